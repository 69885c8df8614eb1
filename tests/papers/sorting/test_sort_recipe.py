"""The recipe `sort` is the published protocol."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from ltr.cli.layers import merged
from ltr.cli.lightning_cli import make_cli
from ltr.cli.plan import make_plan
from ltr.cli.quiet import quiet
from ltr.modules import Ranker
from ltr.papers.networks import ImageCNN
from ltr.papers.sorting import MatrixSorter
from ltr.papers.sorting.numbers import NumbersDataModule

SAMPLES = 5


def operator_of(config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    loss = config["model"]["init_args"]["loss"]["init_args"]
    return loss["operator"]["class_path"], loss["operator"]["init_args"]


def test_the_cells_have_the_published_temperatures():
    plan = make_plan("sort", [])
    assert plan.grid["data.n"] == [3, 5, 7, 9, 15]
    seen = set()
    for run in plan.runs:
        config = merged(plan.config, run.config)
        n = config["data"]["init_args"]["n"]
        assert n == run.point["data.n"]
        if run.variant in ("SinkhornSort", "Gumbel-Sinkhorn"):
            continue
        name, options = operator_of(config)
        if "stochastic" in run.variant:
            assert (name, options["samples"]) == ("Stochastic", SAMPLES)
            name, options = options["operator"]["class_path"], options["operator"]["init_args"]
        assert name == run.variant.partition(",")[0]
        assert options["temperature"] == (1024 if n <= 7 else 128)
        seen.add(run.variant)
    assert len(seen) == 5


@pytest.mark.parametrize("variant", ["SoftSort", "Gumbel-Sinkhorn"])
def test_what_is_trained_is_the_papers(tmp_path: Path, monkeypatch, variant: str):
    monkeypatch.chdir(tmp_path)
    plan = make_plan("sort", [])
    [run] = [run for run in plan.runs if run.variant == variant and run.point["data.n"] == 5]
    layer = tmp_path / "layer.yaml"
    layer.write_text(yaml.safe_dump(run.config))
    with quiet():
        cli = make_cli("fit", [*plan.args, "--config", str(layer)], name="sort")
    model, data = cli.model, cli.datamodule
    assert isinstance(data, NumbersDataModule)
    assert (data.n, data.digits, data.batch_size) == (5, 4, 20)
    assert data.batches == {"train": None, "val": None, "test": None}
    assert type(model) is (MatrixSorter if variant == "Gumbel-Sinkhorn" else Ranker)
    assert isinstance(model.scorer, ImageCNN)
    model.scorer.build((1, 112, 28))
    optimizer = model.configure_optimizers()["optimizer"]
    assert type(optimizer) is torch.optim.Adam
    assert optimizer.defaults["lr"] == 0.005
    assert optimizer.defaults["weight_decay"] == 0


def test_the_full_scale_is_the_papers():
    config = make_plan("sort/paper", []).config
    assert config["trainer"]["max_epochs"] == 100
    assert config["trainer"]["precision"] == "32-true"
    assert config["model"]["init_args"]["scheduler"] is None
    assert config["data"]["init_args"]["images"]["class_path"] == "MNIST"
