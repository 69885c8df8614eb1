"""The published scale begins, on real data: two steps of each variant; and the search of `knn`."""

import json
from pathlib import Path

import pytest

from ltr.cli.plan import make_plan, short_name

# where the files are; and the smaller of what the grid has
RECIPES = {
    "sort": ("mnist", {"n": 3}),
    "quantile": ("mnist", {"n": 5}),
    "knn": ("", {"images": "MNIST"}),
    "topk": ("", {"images": "FashionMNIST"}),
}
SHORT = {
    "--trainer.max_epochs": 1,
    "--trainer.limit_train_batches": 2,
    "--trainer.limit_val_batches": 1,
    "--trainer.limit_test_batches": 1,
}


def grid_of(name: str, point: dict) -> list[object]:
    options = []
    for key, values in make_plan(name, []).grid.items():
        options += [f"--{key}", point.get(short_name(key), values[0])]
    return options


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_every_variant_begins(ltr, data_root, name):
    folder, point = RECIPES[name]
    short = [part for option in SHORT.items() for part in option]
    options = ["--data.root", data_root / folder, *grid_of(name, point), *short]
    answer = ltr("bench", f"{name}/paper", "--out", "out", *options)
    assert answer.code == 0, answer.err
    results = json.loads(Path("out/results.json").read_text())
    assert results["config"]["trainer"]["precision"] == "32-true"
    for run in results["runs"]:
        assert run["metrics"], run["name"]
        if run["fit"]:
            assert run["steps"] == 2 * run["epochs"] > 0


@pytest.mark.slow
def test_the_search_of_knn(ltr):
    values = ["--model.top_k", "[1, 5]", "--model.optimizer.lr", "[0.001]"]
    values += ["--model.operator.temperature", "[1.0, 16.0]"]
    values += ["--model.operator.operator.temperature", "[4.0]"]
    images = ["--data.images.class_path", "DigitImages"]
    trained = ["--only", "SoftSort", "--only", "SoftSort, stochastic"]
    answer = ltr(
        "bench", "knn/search", "--config", "knn/smoke", *values, *images, *trained, "--out", "out"
    )
    assert answer.code == 0, answer.err
    runs = [run for run in json.loads(Path("out/results.json").read_text())["runs"] if "fit" in run]
    assert [run["tried"]["model.top_k"] for run in runs] == [1, 1, 5, 5, 1, 5]
    for variant in trained[1::2]:
        here = [run for run in runs if run["variant"] == variant]
        best = max(run["val_accuracy"] for run in here)
        (chosen,) = [run for run in here if run["chosen"]]
        assert chosen["val_accuracy"] == best
        value = f"{chosen['metrics']['test_accuracy']:.4f}"
        assert f"| {variant} | {value} |" in Path("out/table.md").read_text()
