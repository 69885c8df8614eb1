"""No command runs code of a checkpoint's."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

OWN = """\
from ltr.datasets import FeatureTransform
from ltr.models import LinearScorer

class Halve(FeatureTransform):
    def transform(self, features, mask):
        return features / 2

class OwnScorer(LinearScorer):
    pass
"""


class Bomb:
    """Runs a command where it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch hit",)


COMMANDS: dict[str, list[str]] = {
    "fit": ["--trainer.max_epochs", "2"],
    "validate": [],
    "test": [],
    "predict": ["--output", "x.csv"],
}

ATTACKS: dict[str, dict[str, Any]] = {
    "a pickled object": {"objects": {"scorer": Bomb()}},
    "a pickled transform": {"transform": pickle.dumps(Bomb())},
    "a transform by name": {
        "transform": {"class_path": "os.system", "init_args": {"command": "touch hit"}}
    },
    "a package of the folder": {"transform": {"class_path": "untrusted.Halve"}},
}


@pytest.fixture
def trained(ltr, fit_once):
    """A run of one epoch, and a module that leaves a file when it is imported."""
    fit_once("--config", "tiny.yaml", "--trainer.max_epochs", 1)
    Path("untrusted.py").write_text("open('hit', 'w').close()\n" + OWN)
    return ltr


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_malicious_checkpoint_is_refused(trained, attack: str):
    [file] = Path("runs/tiny").rglob("last.ckpt")
    content = torch.load(file, weights_only=True)
    torch.save({**content, **ATTACKS[attack]}, "bad.ckpt")
    # every command reads a checkpoint in one way: one attack tries them all
    commands = COMMANDS if attack == "a pickled object" else {"fit": COMMANDS["fit"]}
    for command, options in commands.items():
        answer = trained(command, "--config", "tiny.yaml", "--ckpt_path", "bad.ckpt", *options)
        assert answer.code == 2, answer.out
        assert answer.err.count("\n") == 1
        assert not Path("hit").exists()


def test_trust_names_the_packages_of_a_checkpoint(ltr):
    Path("own_loss.py").write_text(OWN)
    config = ["--config", "tiny.yaml", "--trainer.max_epochs", 1]
    assert ltr("fit", *config, "--data.transform", "own_loss.Halve").code == 0
    # with the same data the class is named in the configuration already
    again = ["--data.transform", "own_loss.Halve", "--ckpt_path", "best"]
    assert ltr("test", *config, *again).code == 0
    answer = ltr("test", *config, "--ckpt_path", "best")
    assert answer.code == 2
    assert "own_loss.Halve is in the package own_loss, which is not named in trust" in answer.err
    assert ltr("test", *config, "--ckpt_path", "best", "--trust", "own_loss").code == 0
    assert ltr("test", *config, "--ckpt_path", "best", "--trust", "own_los").code == 2
    assert "trust must be a list of packages" in ltr("test", *config, "--trust", "a b").err
