"""Each recipe's programs and configurations: complete, run at their smallest size, resumed."""

import csv
import json
from importlib import import_module
from pathlib import Path

import pytest
import torch

from recipes.tables import render

ROOT = Path(__file__).parents[2] / "recipes"
RECIPES = sorted(path.parent.name for path in ROOT.glob("*/config.yaml"))
SMOKE = json.loads((Path(__file__).parent / "smoke.json").read_text())

# a part of each sweep, and the options that make all of it small
PARTS = {
    "clicks": (
        "digits, estimated propensities",
        ["--sets", "digits", "--sessions", 2000, "--seeds", 1],
    ),
    "sort": ("Gumbel-Sinkhorn", ["--n", 3]),
    "quantile": ("SoftSort, stochastic", ["--n", 5]),
    "knn": ("SoftSort", ["--images", "DigitImages"]),
    "topk": (  # in bfloat16, the accuracy differs by up to 0.15 between processors
        "cross-entropy",
        ["--images", "DigitImages", "--seeds", 1, "--trainer.precision", "32-true"],
    ),
    "speed": ("speed", ["--n", 100]),
    "regression": ("least median", ["--outliers", 0.3, "--seeds", 1]),
}

STOPPER = """\
import os
from lightning.pytorch import Callback


class RecipeStopper(Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        last = min(1, trainer.num_training_batches - 1)
        if "broken" in trainer.default_root_dir and (trainer.current_epoch, batch_idx) == (1, last):
            if os.environ.get("STOP"):
                raise KeyboardInterrupt
"""


def test_all_experiments_have_a_part():
    assert set(PARTS) == set(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_complete(name: str):
    folder = ROOT / name
    for file in ("README.md", "run.py", "smoke.yaml", "results.json", "table.md", f"{name}.png"):
        assert (folder / file).is_file(), file
    assert f"python -m recipes.{name}.run" in (folder / "README.md").read_text()
    assert f"python -m recipes.{name}.run" in (folder / "run.py").read_text()
    for path in folder.glob("*.yaml"):
        text = path.read_text()
        assert text.startswith("# ")
        comments = [line for line in text.splitlines() if line.startswith("#")]
        assert any("ltr fit " in line or "python -m " in line for line in comments)
        assert any("--data." in line or "--top_k" in line for line in comments), "an override"


@pytest.mark.parametrize("name", RECIPES)
def test_the_committed_table_is_that_of_the_committed_results(name: str):
    sweep = import_module(f"recipes.{name}.run").SWEEP
    for path in (ROOT / name).glob("results*.json"):
        if path.stem != "results-search":
            content = json.loads(path.read_text(encoding="utf-8"))
            runs = list(sweep.runs([]))
            assert [run["name"] for run in content["runs"]] == [run.name for run in runs]
            assert any("metrics" in run for run in content["runs"])
            table = path.with_name(path.name.replace("results", "table")).with_suffix(".md")
            assert table.read_text(encoding="utf-8") == render(sweep, runs, content)


def test_the_committed_search_is_that_of_its_results():
    sweep = import_module("recipes.knn.search").SWEEP
    content = json.loads((ROOT / "knn" / "results-search.json").read_text(encoding="utf-8"))
    runs = list(sweep.runs(["search"], images=["MNIST"], lr=[0.001]))
    finished = {run["name"] for run in content["runs"] if "metrics" in run}
    assert finished == {run.name for run in runs if run.variant == "SoftSort"}
    table = (ROOT / "knn" / "table-search.md").read_text(encoding="utf-8")
    assert table == render(sweep, runs, content)


def check(out: Path, name: str) -> None:
    """Compare results with those that `ltr bench` gave before there were programs."""
    for run in json.loads((out / "results.json").read_text())["runs"]:
        if "metrics" in run:
            for metric, value in SMOKE[name][run["name"]].items():
                got = run["metrics"].get(metric, run.get(metric))
                # bit for bit on the machine that wrote them; others round differently
                assert got == pytest.approx(value, rel=0.05, abs=0.1), (run["name"], metric)


@pytest.mark.parametrize(
    "name",
    [  # seconds each; the sweeps share their code, and fast tests train what each recipe trains
        pytest.param(n, marks=[] if n in ("clicks", "knn", "speed", "topk") else [pytest.mark.slow])
        for n in RECIPES
    ],
)
def test_a_program_runs_at_the_smallest_size(sweep, name):
    only, options = PARTS[name]
    answer = sweep(f"{name}.run", "--overlay", "smoke", "--output", "out", "--only", only, *options)
    assert answer.code == 0, answer.err
    check(Path("out"), name)
    assert f"drew out/{name}-smoke.png" in answer.out
    assert f"| {only} | " in answer.out or name == "speed"


@pytest.mark.slow  # some ninety runs; a part of each recipe's is among the fast tests
@pytest.mark.parametrize("name", [name for name in RECIPES if name != "speed"])
def test_every_variant_runs_at_the_smallest_size(sweep, name):
    answer = sweep(f"{name}.run", "--overlay", "smoke", "--output", "out", *PARTS[name][1])
    assert answer.code == 0, answer.err
    runs = json.loads(Path("out/results.json").read_text())["runs"]
    assert {run["name"] for run in runs} == set(SMOKE[name])
    assert all("metrics" in run for run in runs)
    check(Path("out"), name)


@pytest.mark.slow  # eight runs
def test_the_search_of_knn(sweep):
    values = ["--top_k", 1, 5, "--lr", 0.001, "--temperature", 1.0, 16.0]
    overlays = ["--overlay", "search", "--overlay", "smoke"]
    images = ["--images", "DigitImages"]
    answer = sweep(
        "knn.search", *overlays, *images, *values, "--only", "SoftSort", "--output", "out"
    )
    assert answer.code == 0, answer.err
    check(Path("out"), "knn-search")
    best = max(SMOKE["knn-search"].values(), key=lambda one: one["val_accuracy"])
    text = Path("out/table.md").read_text()
    assert "### SoftSort, DigitImages, seed 1: tried (shortened: 2 of 200 epochs, 1 seed)" in text
    assert f"Test accuracy of the first: {best['test_accuracy']:.1f}"[:-1] in text


# The fast tests have one of the seven. A program, above, trains each recipe with the same parser.
ONE_FAST = [pytest.param(n, marks=[] if n == "regression" else [pytest.mark.slow]) for n in RECIPES]


@pytest.mark.parametrize("name", ONE_FAST)
def test_the_smallest_run_is_trained_and_tested_by_ltr(ltr, name):
    answer = ltr("fit", "--config", f"{name}/smoke")
    assert answer.code == 0, answer.err
    assert f"{name}/smoke: recipes/{name}/smoke.yaml\n" in answer.out
    checkpoints = Path(f"runs/{name}-smoke/1/checkpoints")
    assert {path.name for path in checkpoints.iterdir()} == {"best.ckpt", "last.ckpt"}
    answer = ltr("test", "--config", f"{name}/smoke", "--ckpt_path", "best")
    assert answer.code == 0, answer.err
    with Path(f"runs/{name}-smoke/1/logs/version_1/metrics.csv").open() as lines:
        (row,) = csv.DictReader(lines)
    sweep = import_module(f"recipes.{name}.run").SWEEP
    wanted = {metric for metric in sweep.metrics if metric.startswith("test_")}
    assert wanted <= {key for key, value in row.items() if value}


@pytest.mark.parametrize("name", ONE_FAST)
def test_a_smallest_run_that_is_stopped_is_resumed_to_the_same_weights(ltr, monkeypatch, name):
    Path("recipe_stopper.py").write_text(STOPPER)
    config = ["--config", f"{name}/smoke", "--trainer.max_epochs", 2]
    config += ["--trainer.limit_train_batches", 2]
    config += ["--trainer.callbacks+", "recipe_stopper.RecipeStopper"]
    whole = ltr("fit", *config, "--trainer.default_root_dir", "whole")
    assert whole.code == 0, whole.err
    config += ["--trainer.default_root_dir", "broken"]
    monkeypatch.setenv("STOP", "1")
    assert ltr("fit", *config).code == 130
    monkeypatch.delenv("STOP")
    answer = ltr("fit", *config, "--ckpt_path", "last")
    assert answer.code == 0, answer.err
    for file in ("last.ckpt", "best.ckpt"):
        one, two = (torch.load(f"{root}/1/checkpoints/{file}") for root in ("whole", "broken"))
        assert one["global_step"] == two["global_step"]
        assert one["state_dict"].keys() == two["state_dict"].keys()
        for key, value in one["state_dict"].items():
            assert torch.equal(value, two["state_dict"][key]), (file, key)


CONFIGS = [f"{path.parent.name}/{path.stem}" for path in sorted(ROOT.glob("*/*.yaml"))]


@pytest.mark.parametrize(
    "name",
    [  # a parser of a fifth of a second each; the files of one recipe are fast, and each is read
        # by `test_configurations.py`
        pytest.param(name, marks=[] if name.startswith("knn/") else [pytest.mark.slow])
        for name in CONFIGS
    ],
)
def test_print_config_can_be_read_back(ltr, name):
    first = ltr("fit", "--config", name.removesuffix("/config"), "--print_config")
    assert first.code == 0, first.err
    if name.endswith("/config"):  # the other files change a few values
        Path("printed.yaml").write_text(first.out)
        assert ltr("fit", "--config", "printed.yaml", "--print_config").out == first.out
