"""A mistake in the options is one line with jsonargparse's cause and the nearest right name.

There are ten kinds of mistake:

1. an option that does not exist;
2. an option without a value, or a value without an option;
3. a class that does not exist;
4. a class of another kind than the option takes;
5. a value of another type, or none of those to choose from;
6. a value that is refused by what is made of it;
7. an option that is required and missing;
8. an option set before the class that it is an option of;
9. a configuration that is not there, or is not YAML with options and values;
10. data or a checkpoint that are not there, or are malformed.

The tables have them by these numbers, each with words of the message; the tests of one case each
follow in this order.
"""

from pathlib import Path

import pytest
import torch

TINY = ("--config", "tiny.yaml")
LETOR = (*TINY, "--data", "TableDataModule", "--data.path")

COMMAND_LINE = {
    1: [
        (["--model.lss", "3"], ["--model.lss: ", "did you mean --model.loss?"]),
        (
            ["--model.loss.init_args.operator.init_args.temperatur", "3"],
            ["--model.loss.operator.temperatur: ", "--model.loss.operator.temperature?"],
        ),
        (["--model.loss.temperature=3"], ["did you mean --model.loss.operator.temperature?"]),
        (
            ["--model.optimizer", "SGD", "--model.optimizer.lrr", "0.1"],
            ["did you mean --model.optimizer.lr?"],
        ),
        (["--data.listsize", "3"], ["did you mean --data.list_size?"]),
        (["--trainer.max_epoch", "3"], ["did you mean --trainer.max_epochs?"]),
        (["--trainr.max_epochs", "3"], ["did you mean --trainer.max_epochs?"]),
        (["--max_epochs", "3"], ["--max_epochs", "did you mean --trainer.max_epochs?"]),
        (["--checkpoint", "x"], ["--best_checkpoint"]),
        (
            ["--data", "recipes.images.ImageDataModule", "--data.normalise", "true"],
            ["--data.normalise: ", "did you mean --data.normalize?"],
        ),
    ],
    2: [
        (["stray"], ["stray"]),
        (["--trainer.max_epochs"], ["--trainer.max_epochs: "]),
        (["--seed_everything", "3", "--data.seed"], ["--data.seed: "]),
    ],
    3: [
        (["--model", "Rankr"], ["--model: ", "Rankr", "did you mean ltr.modules.Ranker?"]),
        (["--model.loss", "SoftNCDG"], ["--model.loss: ", "did you mean ltr.losses.SoftNDCG?"]),
        (["--model.loss.operator", "ltr.operators.SoftSor"], ["did you mean 'SoftSort'?"]),
        (["--model.loss", "ltr.losses.ListNET"], ["'ListNET'", "did you mean 'ListNet'?"]),
        (["--model.optimizer", "Adm"], ["did you mean torch.optim.Adam?"]),
        (["--trainer.callbacks", "EarlyStoping"], ["lightning.pytorch.callbacks.EarlyStopping?"]),
        (["--model.scorer.activation", "torch.nn.Relu"], ["'torch.nn' has no attribute 'Relu'"]),
        (["--model.scorer.activation", "ReLU"], ["did you mean torch.nn.modules.ReLU?"]),
        (["--model.metrics.mrr", "null"], ["--model.metrics.mrr: ", "None"]),
    ],
    4: [
        (["--model.scorer", "ltr.losses.SoftNDCG"], ["--model.scorer: ", "subclass of Scorer"]),
    ],
    5: [
        (
            ["--model.loss.operator.temperature", "hot"],
            ["--model.loss.operator.temperature: ", "float", "hot"],
        ),
        (["--trainer.max_epochs", "many"], ["--trainer.max_epochs: ", "int", "'many'"]),
        (["--model.loss.gain", "exp3"], ["--model.loss.gain: ", "'exp2', 'linear'", "exp3"]),
        (["--model.scorer.hidden", "wide"], ["--model.scorer.hidden: ", "Sequence", "wide"]),
        (["--model.scorer.hidden", "[a]"], ["--model.scorer.hidden: ", "int", "a"]),
        (
            ["--model.optimizer", "SGD", "--model.optimizer.lr", "x"],
            ["--model.optimizer.lr: ", "float", "x"],
        ),
    ],
    6: [
        (["--model.loss.operator.temperature", "-1"], ["temperature must be >= 0, got -1"]),
        (["--early_stopping.mode", "up"], ["`mode` can be min, max, got up"]),
        (["--trainer.accelerator", "gpuu"], ["accelerator='gpuu'"]),
        (["--trainer.devices", "x"], ["--trainer.devices x: `devices` selected with"]),
        (
            ["--model.loss.reduction", "none"],
            ["loss.reduction must be 'mean' or 'sum', got 'none'"],
        ),
        (["--model.loss.operator", "HardRank"], ["loss must have a gradient"]),
    ],
    7: [
        (["--model.scheduler", "CosineAnnealingLR"], ["--model.scheduler: ", "required: T_max"]),
    ],
    10: [
        (["--ckpt_path", "nowhere.ckpt"], ["no checkpoint 'nowhere.ckpt': runs/tiny has none"]),
        (["--ckpt_path", "best"], ["no checkpoint 'best': runs/tiny has none"]),
    ],
}

FILES = {
    1: [
        ("modle: {class_path: Ranker}", ["own.yaml: modle: ", "did you mean model?"]),
        ("trainer: {max_epoch: 3}", ["own.yaml: trainer.max_epoch: ", "trainer.max_epochs?"]),
        (
            "model: {init_args: {los: {class_path: SoftNDCG}}}",
            ["own.yaml: model.los: ", "did you mean model.loss?"],
        ),
    ],
    3: [
        (
            "model: {class_path: Ranker, init_args: {loss: {class_path: ltr.losses.ListNET}}}",
            ["own.yaml: model.loss: ", "'ListNET'", "did you mean 'ListNet'?"],
        ),
        (
            "model: {init_args: {metrics: {n: {class_path: NCDG}}}}",
            ["own.yaml: model.metrics: ", "NCDG", "did you mean ltr.metrics.NDCG?"],
        ),
        (
            "trainer: {callbacks: [{class_path: LearningRateMonitr}]}",
            ["own.yaml: trainer.callbacks: ", "lightning.pytorch.callbacks.LearningRateMonitor?"],
        ),
        ("data: {class_path: nowhere.Data}", ["own.yaml: data: ", "'nowhere'"]),
        ("data: {class_path: 3}", ["own.yaml: data: "]),
        ("model: [Ranker]", ["own.yaml: model: ", "LightningModule"]),
    ],
    5: [
        (
            "model: {init_args: {loss: {class_path: SoftNDCG, init_args: {top_k: x}}}}",
            ["own.yaml: model.loss.top_k: Expected a <class 'int'>"],
        ),
        ("trainer: 5", ["trainer must be a mapping of options to values, got 5"]),
        ("model: {init_args: {metrics: [NDCG]}}", ["own.yaml: model.metrics: ", "dict"]),
    ],
    6: [
        (
            "model: {init_args: {metrics: {loss: {class_path: NDCG}}}}",
            ["metrics must have names of"],
        ),
    ],
    9: [
        ("model: [1, {", ["own.yaml, line 1: "]),
        ("model:\n  a: b: c\n", ["own.yaml, line 2: mapping values are not allowed here"]),
        ("just text", ["own.yaml: must have options and values, got 'just text'"]),
        (
            "trainer: {max_epochs: 3, max_epochs: 4}",
            ["own.yaml, line 1: 'max_epochs' is given twice"],
        ),
    ],
}


def numbered(table: dict[int, list]) -> pytest.MarkDecorator:
    """Parametrize a test over the cases of all kinds; an id begins with the kind."""
    # Each is a command. The fast tests have four of a kind, the slow ones all.
    cases = [
        pytest.param(
            *case,
            id=f"{kind}-{str(case[0])[:40]}",
            marks=[] if number < 4 else [pytest.mark.slow],
        )
        for kind, cases in table.items()
        for number, case in enumerate(cases)
    ]
    return pytest.mark.parametrize(("given", "words"), cases)


@numbered(COMMAND_LINE)
def test_on_the_command_line(ltr, given, words):
    answer = ltr("fit", *TINY, *given)
    assert answer.code == 2
    assert answer.err.startswith("ltr fit: ")
    assert answer.err.count("\n") == 1
    assert [word for word in words if word not in answer.err] == []


@numbered(FILES)
def test_in_a_file(ltr, given, words):
    Path("own.yaml").write_text(given)
    answer = ltr("fit", *TINY, "--config", "own.yaml")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert [word for word in words if word not in answer.err] == []


# 6: a value that is refused by what is made of it


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["gpu", "cuda"])
def test_a_gpu_that_there_is_not(ltr, name):
    answer = ltr("fit", *TINY, "--trainer.accelerator", name)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert f"--trainer.accelerator {name}: " in answer.err


@pytest.mark.parametrize("group", ["early_stopping", "best_checkpoint"])
def test_a_value_that_is_not_logged(ltr, group):
    answer = ltr("fit", *TINY, f"--{group}.monitor", "val_ndcg_5")
    assert answer.code == 2
    assert "val_ndcg_5" in answer.err.splitlines()[-1]
    assert "val_ndcg_10" in answer.err.splitlines()[-1]


# 7: an option that is required and missing


def test_no_data(ltr):
    answer = ltr("fit")
    assert answer.code == 2
    assert answer.err.startswith("ltr fit: --data is required: a recipe")
    assert answer.err.count("\n") == 1


# 8: an option set before its class


def test_layers_in_the_wrong_order(ltr):
    Path("layer.yaml").write_text("data: {init_args: {batch_size: 4}}")
    answer = ltr("fit", "--config", "layer.yaml", *TINY)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert ": data.batch_size: " in answer.err
    assert "before its class: name the class (class_path)" in answer.err


# 9: a configuration that is not there, or is not YAML


def test_a_recipe_that_there_is_not(ltr):
    answer = ltr("fit", "--config", "digts")
    assert answer.code == 2
    assert answer.err == "ltr fit: no configuration 'digts': did you mean digits?\n"


def test_a_file_that_is_no_text(ltr):
    Path("own.yaml").write_bytes(b"\xff\xfe\x00")
    answer = ltr("fit", "--config", "own.yaml")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "own.yaml: not YAML" in answer.err


# 10: data or a checkpoint


def test_data_that_are_not_there(ltr, tmp_path):
    answer = ltr("fit", *LETOR, tmp_path / "nowhere")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "nowhere" in answer.err


@pytest.mark.parametrize("command", ["fit", "test"])
def test_an_empty_folder(ltr, tmp_path, command):
    (tmp_path / "empty").mkdir()
    answer = ltr(command, *LETOR, "empty")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "a folder of a table must hold CSV, Parquet or LETOR files, got empty" in answer.err


def test_a_malformed_line_of_data(ltr, tmp_path):
    for name in ("train", "vali", "test"):
        (tmp_path / f"{name}.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:inf\n")
    answer = ltr("fit", *LETOR, tmp_path)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    for part in ("train.txt", "2", "inf"):
        assert part in answer.err
