"""The published scale begins, on real data: two steps of each variant."""

import json
from pathlib import Path

import pytest

# where the files are; and the smaller of what the sweep has
RECIPES = {
    "sort": ("mnist", ["--n", 3]),
    "quantile": ("mnist", ["--n", 5]),
    "knn": ("", ["--images", "MNIST"]),
    "topk": ("", ["--images", "FashionMNIST", "--seeds", 1]),
}
SHORT = {
    "--trainer.max_epochs": 1,
    "--trainer.limit_train_batches": 2,
    "--trainer.limit_val_batches": 1,
    "--trainer.limit_test_batches": 1,
}


@pytest.mark.slow  # two steps of each variant of the published size
@pytest.mark.parametrize("name", RECIPES)
def test_every_variant_begins(sweep, data_root, name):
    folder, point = RECIPES[name]
    short = [part for option in SHORT.items() for part in option]
    options = ["--overlay", "paper", "--data.root", data_root / folder, *point, *short]
    answer = sweep(f"{name}.run", "--output", "out", *options)
    assert answer.code == 0, answer.err
    results = json.loads(Path("out/results.json").read_text())
    assert results["config"]["trainer"]["precision"] == "32-true"
    for run in results["runs"]:
        assert run["metrics"], run["name"]
        if run["fit"]:
            assert run["steps"] == 2 * run["epochs"] > 0
