"""The recipe `sort` is the published protocol."""

from pathlib import Path

import pytest
import torch
import yaml

from ltr.cli.lightning_cli import RankingCLI
from ltr.cli.quiet import quiet_lightning
from ltr.modules import Ranker
from recipes.networks import ImageCNN
from recipes.numbers import NumbersDataModule
from recipes.sort.matrix_sorter import MatrixSorter
from recipes.sort.run import SWEEP

SAMPLES = 5


def test_the_runs_have_the_published_temperatures():
    runs = list(SWEEP.runs([]))
    assert list(dict.fromkeys(run.point["n"] for run in runs)) == [3, 5, 7, 9, 15]
    seen = set()
    for run in runs:
        n = run.options["data.n"]
        assert n == run.point["n"]
        if run.variant in ("SinkhornSort", "Gumbel-Sinkhorn"):
            continue
        operator = run.options["model.loss.operator"]
        name, options = operator["class_path"], operator["init_args"]
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
    [run] = [run for run in SWEEP.runs([], n=[5]) if run.variant == variant]
    with quiet_lightning():
        cli = RankingCLI("fit", [f"--config={SWEEP.folder / 'config.yaml'}", *run.args], "sort")
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
    config, paper = (
        yaml.safe_load((SWEEP.folder / f"{name}.yaml").read_text()) for name in ("config", "paper")
    )
    assert paper["trainer"]["max_epochs"] == 100
    assert paper["trainer"]["precision"] == "32-true"
    assert paper["model"]["init_args"]["scheduler"] is None
    assert config["data"]["init_args"]["images"]["class_path"] == "recipes.images.MNIST"
