"""The seed of the data: that of `seed_everything`, and after the training that of the training."""

from pathlib import Path

import pytest
import torch
import yaml

FIT = ["fit", "--config", "tiny.yaml", "--trainer.max_epochs", 1]


def config_of(log: str) -> dict:
    """Return the configuration that a run has kept."""
    return yaml.safe_load(Path("runs/tiny", log, "config.yaml").read_text())


@pytest.mark.parametrize(
    ("options", "seed"),
    [
        ([], 42),
        (["--seed_everything", 5, "--data.seed", 0], 0),
        (["--seed_everything", "false"], 0),
    ],
)
def test_the_data_have_the_seed_of_the_command(ltr, options, seed):
    answer = ltr(*FIT, *options)
    assert answer.code == 0, answer.err
    assert config_of("1/logs/version_0")["data"]["init_args"]["seed"] == seed
    saved = torch.load("runs/tiny/1/checkpoints/last.ckpt")
    assert saved["datamodule_hyper_parameters"]["seed"] == seed


def test_the_data_of_a_test_are_split_as_in_training(ltr):
    assert ltr(*FIT, "--seed_everything", 5).code == 0
    found = []
    for options in ([], ["--data.seed", 6]):
        answer = ltr("test", "--config", "tiny.yaml", "--ckpt_path", "best", *options)
        assert answer.code == 0, answer.err
        found.append([line for line in answer.out.splitlines() if "test_" in line])
    assert found[0] != found[1]
    assert config_of("1/logs/version_1")["data"]["init_args"]["seed"] == 5

    # the rest of a training too
    answer = ltr(*FIT[:-1], 2, "--ckpt_path", "last")
    assert answer.code == 0, answer.err
    saved = torch.load("runs/tiny/1/checkpoints/last.ckpt")
    assert saved["epoch"] == 1
    assert saved["datamodule_hyper_parameters"]["seed"] == 5


def test_data_without_folds_have_no_second_fold(ltr):
    folder = Path("data")
    folder.mkdir()
    for name in ("train", "vali", "test"):
        (folder / f"{name}.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:0.25\n")
    answer = ltr("fit", "--config", "letor", "--data.path", "data", "--data.fold", 2)
    assert answer.code == 2
    assert answer.err.startswith("ltr fit: fold must be 1 if path has no folds, got 2")
