"""Each recipe's smallest run, from one end to the other; a resume."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ltr.cli.recipes import find_recipes

RECIPES = [name for name in find_recipes() if "/" not in name]


@pytest.fixture
def options(letor_root: Path, table_options: list[object]) -> Callable[[str], list[object]]:
    """The options that a recipe needs, by its name."""
    needed = {"letor": ["--data.path", letor_root], "table": table_options}
    return lambda name: needed.get(name, [])


@pytest.mark.parametrize("name", RECIPES)
def test_the_smallest_run_is_trained_and_tested(ltr, fit_once, options, name):
    config = ["--config", f"{name}/smoke", *options(name)]
    fit_once(*config)
    checkpoints = Path(f"runs/{name}-smoke/1/checkpoints")
    assert {path.name for path in checkpoints.iterdir()} == {"best.ckpt", "last.ckpt"}
    answer = ltr("test", *config, "--ckpt_path", "best")
    assert answer.code == 0, answer.err
    with Path(f"runs/{name}-smoke/1/logs/version_1/metrics.csv").open() as lines:
        (row,) = csv.DictReader(lines)
    assert all(row[f"test_ndcg_{k}"] for k in (1, 5, 10))


@pytest.mark.slow  # three trainings a recipe; test_fit.py has one small one
@pytest.mark.parametrize("name", RECIPES)
def test_a_smallest_run_that_is_killed_goes_on_to_the_same_weights(ltr, options, monkeypatch, name):
    config = ["--config", f"{name}/smoke", *options(name)]
    config += ["--trainer.callbacks+", "stopper.Stopper"]
    config += ["--trainer.limit_train_batches", 2]
    whole = ltr("fit", *config, "--trainer.default_root_dir", "whole")
    assert whole.code == 0, whole.err
    config += ["--trainer.default_root_dir", "broken"]
    monkeypatch.setenv("STOP_AT", "broken:3")
    assert ltr("fit", *config).code == 130
    monkeypatch.delenv("STOP_AT")
    answer = ltr("fit", *config, "--ckpt_path", "last")
    assert answer.code == 0, answer.err
    for file in ("last.ckpt", "best.ckpt"):
        one, two = (torch.load(f"{root}/1/checkpoints/{file}") for root in ("whole", "broken"))
        assert one["global_step"] == two["global_step"]
        assert one["state_dict"].keys() == two["state_dict"].keys()
        for key, value in one["state_dict"].items():
            assert torch.equal(value, two["state_dict"][key]), (file, key)
