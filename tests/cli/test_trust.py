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

BENCH = """\
variants:
  tiny: {}
metrics: {test_ndcg_10: NDCG@10}
figure: ltr.papers.figures.digits
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
def trained(ltr):
    """A run of one epoch, and a module that leaves a file when it is imported."""
    assert ltr("fit", "--config", "tiny.yaml", "--trainer.max_epochs", 1).code == 0
    Path("untrusted.py").write_text("open('hit', 'w').close()\n" + OWN)
    return ltr


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_malicious_checkpoint_is_refused(trained, attack: str):
    [file] = Path("runs/tiny").rglob("last.ckpt")
    content = torch.load(file, weights_only=True)
    torch.save({**content, **ATTACKS[attack]}, "bad.ckpt")
    for command, options in COMMANDS.items():
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
    assert "own_loss.Halve is of the package own_loss, which is not named in trust" in answer.err
    assert ltr("test", *config, "--ckpt_path", "best", "--trust", "own_loss").code == 0
    assert ltr("test", *config, "--ckpt_path", "best", "--trust", "own_los").code == 2
    assert "trust must be a list of packages" in ltr("test", *config, "--trust", "a b").err


@pytest.fixture
def bench(ltr):
    """`ltr bench` of a recipe whose picture loads a finished run."""
    Path("own").mkdir()
    Path("own/config.yaml").write_text(Path("tiny.yaml").read_text())
    Path("own/bench.yaml").write_text(BENCH)
    return lambda *more: ltr("bench", "own", "--out", "out", "--trainer.max_epochs", 1, *more)


def test_bench_does_not_unpickle_a_finished_run(bench):
    assert bench().code == 0
    [file] = Path("out").glob("runs/*/checkpoints/best.ckpt")
    whole = torch.load(file, weights_only=True)
    for change in (
        {"objects": {"scorer": Bomb()}},
        {"config": None, "objects": {"scorer": pickle.dumps(Bomb())}},
        {"config": {"init_args": {"scorer": {"class_path": "os.system"}}}},
        {"config": {"init_args": {"scorer": pickle.dumps(Bomb())}}},
    ):
        torch.save({key: value for key, value in {**whole, **change}.items() if value}, file)
        answer = bench()
        assert answer.code == 2, answer.out
        assert answer.err.count("\n") == 1
        assert not Path("hit").exists()


def test_bench_of_ones_own_scorer(bench):
    Path("own_loss.py").write_text(OWN)
    config = Path("own/config.yaml").read_text()
    scorer = "{class_path: MLPScorer, init_args: {hidden: [4], dropout: 0.5}}"
    Path("own/config.yaml").write_text(config.replace(scorer, "{class_path: own_loss.OwnScorer}"))
    answer = bench()
    assert answer.code == 2
    assert "own_loss.OwnScorer is of the package own_loss" in answer.err
    answer = bench("--trust", "own_loss")
    assert answer.code == 0, answer.err
    assert Path("out/digits.png").is_file()
