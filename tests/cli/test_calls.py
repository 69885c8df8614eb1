"""Calls in which the command finds out what is meant: a recipe or a table, a class, a column."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ltr.cli.recipes import EXPERIMENTS, find_recipes
from ltr.estimators import NeuralRanker

OWN = """
from ltr.losses import RankingLoss


class Focal(RankingLoss):
    def per_list(self, scores, labels, mask, weights):
        return ((scores - labels) ** 2 * mask).sum(-1)
"""
TABLE = ("--qid", "query", "--label", "grade", "--doc-id", "sku")
QUICK = ("--effort", "fast", "--quiet", "--output", "model")


def test_options_may_stand_before_the_model(ltr, write_table):
    write_table(Path("t.csv"), 90)
    assert ltr("train", *TABLE, *QUICK, "t.csv").code == 0
    after, before = (
        ltr("test", *args) for args in (("model", "t.csv", *TABLE), (*TABLE, "model", "t.csv"))
    )
    assert before.code == 0, before.err
    assert before.out == after.out


@pytest.mark.parametrize("options", [["--config", "tiny.yaml"], ["--seed_everything", 1]])
def test_a_recipe_may_come_after_other_options(ltr, options):
    answer = ltr("test", "--trainer.max_epochs=no", *options)
    assert answer.code == 2
    assert "--trainer.max_epochs" in answer.err or "--data is required" in answer.err


def test_one_command_with_one_help(ltr):
    """Not the first word, but an option of recipes decides what is tested."""
    calls = ("--help",), ("m", "t", "-h"), ("--config", "tiny.yaml", "-h")
    shown = {ltr("test", *args).out for args in calls}
    assert len(shown) == 1
    text = shown.pop()
    for part in ("ltr test MODEL TABLE", "--config RECIPE", "--qrels FILE", "--ckpt_path"):
        assert part in text
    answer = ltr("test", "model", "t.csv", "--config", "tiny.yaml")
    assert answer.code == 2
    assert answer.err == "ltr test: unrecognized arguments: model t.csv\n"
    answer = ltr("test")
    assert answer.code == 2
    assert "MODEL, TABLE" in answer.err


@pytest.mark.parametrize("command", ["fit", "copy"])
@pytest.mark.parametrize("name", ["sort", "sort/smoke", "topk/resnet"])
def test_an_experiment_needs_a_clone(ltr, command, name):
    answer = ltr(command, *(["--config", name] if command == "fit" else [name, "x.yaml"]))
    assert answer.code == 2
    assert f"no configuration {name!r} here" in answer.err
    assert "clone" in answer.err
    assert "did you mean" not in answer.err


def test_the_experiments_are_those_of_the_repository():
    names = {
        name for name in find_recipes(Path(__file__).parents[2] / "recipes") if "/" not in name
    }
    assert names == {*EXPERIMENTS}


def test_a_loss_of_ones_own(ltr, write_table):
    write_table(Path("t.csv"), 90)
    Path("own_loss.py").write_text(OWN)
    answer = ltr("train", "t.csv", *TABLE, *QUICK, "--loss", "own_loss.Focal")
    assert answer.code == 0, answer.err
    loss = json.loads(Path("model/config.json").read_text())["parameters"]["loss"]
    assert loss["class_path"] == "own_loss.Focal"
    with pytest.raises(ValueError, match=r"give trust=\['own_loss'\] \(--trust own_loss of"):
        NeuralRanker.load("model")
    assert NeuralRanker.load("model", trust=["own_loss"]).loss is not None
    answer = ltr("predict", "model", "t.csv", "--output", "s.csv")
    assert answer.code == 0, answer.err


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("no_module.Focal", "no no_module.Focal"),
        ("torch.nn.MSELoss", "torch.nn.MSELoss is not a RankingLoss"),
        ("SoftNDGC", "ltr.losses.SoftNDGC"),
    ],
)
def test_a_loss_that_is_none(ltr, write_table, loss, message):
    write_table(Path("t.csv"), 90)
    answer = ltr("train", "t.csv", *TABLE, *QUICK, "--loss", loss)
    assert answer.code == 2
    assert message in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.slow  # a process of its own, since the tests import shap without its compiler
def test_explain_compiles_nothing(ltr, write_table):
    pytest.importorskip("shap")
    write_table(Path("t.csv"), 90)
    assert ltr("train", "t.csv", *TABLE, *QUICK).code == 0
    code = (
        "from numba.core import event\n"
        "from ltr.cli import main\n"
        "with event.install_recorder('numba:compile') as compiled:\n"
        "    code = main(['explain', 'model', 't.csv', '--query', 'q1'])\n"
        "print(code, len(compiled.buffer))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 0", done.stderr
