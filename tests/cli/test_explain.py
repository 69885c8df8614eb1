"""A mistake in the options is one line that names it and the nearest right name.

There are ten kinds of mistake, and what `ltr.cli.explain` says is said for one of them:

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

The tables have them by these numbers; the tests of one case each follow in this order.
"""

from pathlib import Path

import pytest
import torch

TINY = ("--config", "tiny.yaml")

COMMAND_LINE = {
    1: [
        (["--model.lss", "3"], "unknown option --model.lss: did you mean --model.loss?"),
        (
            ["--model.loss.init_args.operator.init_args.temperatur", "3"],
            "unknown option --model.loss.init_args.operator.init_args.temperatur: "
            "did you mean --model.loss.operator.temperature?",
        ),
        (["--model.loss.temperature=3"], "did you mean --model.loss.operator.temperature?"),
        (["--model.metrics.ndcg_10.topk", "5"], "did you mean --model.metrics.ndcg_10.top_k?"),
        (
            ["--model.optimizer", "SGD", "--model.optimizer.lrr", "0.1"],
            "did you mean --model.optimizer.lr?",
        ),
        (["--data.fld", "3"], "unknown option --data.fld"),
        (["--data.listsize", "3"], "did you mean --data.list_size?"),
        (["--trainer.max_epoch", "3"], "did you mean --trainer.max_epochs?"),
        (["--trainr.max_epochs", "3"], "did you mean --trainer.max_epochs?"),
        (["--max_epochs", "3"], "unknown option --max_epochs: did you mean --trainer.max_epochs?"),
        (["--early_stopping.patient", "3"], "did you mean --early_stopping.patience?"),
        (["--checkpoint", "x"], "did you mean --best_checkpoint or --last_checkpoint?"),
        # names of earlier versions
        (
            ["--data", "recipes.images.ImageDataModule", "--data.normalise", "true"],
            "unknown option --data.normalise: did you mean --data.normalize?",
        ),
    ],
    2: [
        (["stray"], "not an option: stray"),
        (["--trainer.max_epochs"], "--trainer.max_epochs needs a value"),
        (["--data.seed", "--seed_everything", "3"], "--data.seed needs a value"),
        (["--seed_everything", "3", "--data.seed"], "--data.seed needs a value"),
    ],
    3: [
        (["--model", "Rankr"], "--model: no class 'Rankr': did you mean Ranker?"),
        (["--data", "Letor"], "--data: no class 'Letor': did you mean LetorDataModule?"),
        (["--model.loss", "SoftNCDG"], "--model.loss: no class 'SoftNCDG': did you mean SoftNDCG?"),
        (["--model.loss.operator", "ltr.operators.SoftSor"], "did you mean SoftSort?"),
        (
            ["--model.loss", "ltr.losses.ListNET"],
            "no class 'ltr.losses.ListNET': did you mean ListNet?",
        ),
        (["--model.optimizer", "Adm"], "did you mean Adam?"),
        (["--trainer.callbacks", "EarlyStoping"], "did you mean EarlyStopping?"),
        (["--model.scorer.activation", "torch.nn.Relu"], "'torch.nn' has no attribute 'Relu'"),
        (["--model.metrics.mrr", "null"], "--model.metrics.mrr: no class 'None'"),
    ],
    4: [
        (
            ["--model.scorer", "ltr.losses.SoftNDCG"],
            "--model.scorer must be a class of Scorer, got 'ltr.losses.SoftNDCG'",
        ),
    ],
    5: [
        (
            ["--model.loss.operator.temperature", "hot"],
            "--model.loss.operator.temperature must be float, got 'hot'",
        ),
        (
            ["--trainer.max_epochs", "many"],
            "--trainer.max_epochs must be int or null, got 'many'",
        ),
        (
            ["--model.loss.gain", "exp3"],
            "--model.loss.gain must be exp2, linear, got 'exp3': did you mean exp2?",
        ),
        (["--model.scorer.hidden", "wide"], "--model.scorer.hidden must be Sequence, got 'wide'"),
        (["--model.scorer.hidden", "[a]"], "--model.scorer.hidden must be int, got 'a'"),
        (
            ["--model.scorer.activation", "ReLU"],
            "--model.scorer.activation: ",
        ),
        (
            ["--model.optimizer", "SGD", "--model.optimizer.lr", "x"],
            "--model.optimizer.lr must be float or Tensor, got 'x'",
        ),
    ],
    6: [
        (["--model.loss.operator.temperature", "-1"], "temperature must be >= 0, got -1"),
        (["--early_stopping.patience", "0"], "patience must be >= 1 or None, got 0"),
        (["--data.batch_size", "0"], "batch_size must be a whole number >= 1, got 0"),
        (["--trainer.accelerator", "gpuu"], "accelerator='gpuu'"),
        (["--trainer.devices", "x"], "--trainer.devices x: `devices` selected with"),
        (["--trainer.devices", "0"], "--trainer.devices 0: "),
        (["--model.loss.reduction", "none"], 'reduction must be "mean" or "sum"'),
        (["--model.loss.operator", "HardRank"], "loss must have a gradient to train by"),
    ],
    7: [
        (
            ["--model.scheduler", "CosineAnnealingLR"],
            "--model.scheduler.T_max is required by CosineAnnealingLR",
        ),
        (["--data", "LetorDataModule"], "--data.root is required by LetorDataModule"),
    ],
    10: [
        (["--ckpt_path", "nowhere.ckpt"], "no checkpoint 'nowhere.ckpt': runs/tiny has none"),
        (["--ckpt_path", "best"], "no checkpoint 'best': runs/tiny has none"),
    ],
}

FILES = {
    1: [
        ("modle: {class_path: Ranker}", "own.yaml: unknown option modle: did you mean model?"),
        (
            "trainer: {max_epoch: 3}",
            "unknown option trainer.max_epoch: did you mean trainer.max_epochs",
        ),
        (
            "model: {init_args: {los: {class_path: SoftNDCG}}}",
            "own.yaml: unknown option model.los: did you mean model.loss?",
        ),
    ],
    3: [
        (
            "model: {class_path: Ranker, init_args: {loss: {class_path: ltr.losses.ListNET}}}",
            "own.yaml: model.loss: no class 'ltr.losses.ListNET': did you mean ListNet?",
        ),
        (
            "model: {init_args: {metrics: {n: {class_path: NCDG}}}}",
            "own.yaml: model.metrics: no class 'NCDG': did you mean NDCG?",
        ),
        (
            "trainer: {callbacks: [{class_path: LearningRateMonitr}]}",
            "own.yaml: trainer.callbacks: no class 'LearningRateMonitr': "
            "did you mean LearningRateMonitor?",
        ),
        ("data: {class_path: nowhere.Data}", "own.yaml: data: no class 'nowhere.Data'"),
        ("data: {class_path: 3}", "own.yaml: data: no class"),
        ("model: [Ranker]", "own.yaml: model: no class \"['Ranker']\": did you mean Ranker?"),
    ],
    5: [
        (
            "model: {init_args: {loss: {class_path: SoftNDCG, init_args: {top_k: x}}}}",
            "own.yaml: model.loss.top_k must be int or null, got 'x'",
        ),
        ("trainer: 5", "trainer must have options and values, got 5"),
        (
            "model: {init_args: {metrics: [NDCG]}}",
            "own.yaml: model.metrics must be dict or null, got",
        ),
    ],
    6: [
        ("model: {init_args: {metrics: {loss: {class_path: NDCG}}}}", "metrics must have names of"),
    ],
    9: [
        ("model: [1, {", "own.yaml, line 1: "),
        ("model:\n  a: b: c\n", "own.yaml, line 2: mapping values are not allowed here"),
        ("just text", "own.yaml: must have options and values, got 'just text'"),
        (
            "trainer: {max_epochs: 3, max_epochs: 4}",
            "own.yaml, line 1: 'max_epochs' is given twice",
        ),
    ],
}


def numbered(table: dict[int, list]) -> pytest.MarkDecorator:
    """Parametrize a test over the cases of all kinds; an id begins with the kind."""
    cases = [(kind, *case) for kind, cases in table.items() for case in cases]
    ids = [f"{kind}-{str(given)[:40]}" for kind, given, _ in cases]
    return pytest.mark.parametrize(("given", "message"), [case[1:] for case in cases], ids=ids)


@numbered(COMMAND_LINE)
def test_on_the_command_line(ltr, given, message):
    answer = ltr("fit", *TINY, *given)
    assert answer.code == 2
    assert answer.err.startswith("ltr fit: ")
    assert answer.err.count("\n") == 1
    assert message in answer.err


@numbered(FILES)
def test_in_a_file(ltr, given, message):
    Path("own.yaml").write_text(given)
    answer = ltr("fit", *TINY, "--config", "own.yaml")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert message in answer.err


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
    assert answer.err == (
        f"ltr fit: {group}.monitor must be a value that is logged, got 'val_ndcg_5': "
        "did you mean val_ndcg_10?\n"
    )
    assert "epoch 1" not in answer.out


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
    assert "data.batch_size is set before its class" in answer.err


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
    answer = ltr("fit", "--config", "letor", "--data.root", tmp_path / "nowhere")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "nowhere" in answer.err


@pytest.mark.parametrize(("command", "split"), [("fit", "train"), ("test", "test")])
def test_an_empty_folder(ltr, tmp_path, command, split):
    (tmp_path / "empty").mkdir()
    answer = ltr(command, "--config", "letor", "--data.root", "empty")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert f"root must hold a {split} file" in answer.err


def test_a_malformed_line_of_data(ltr, tmp_path):
    for name in ("train", "vali", "test"):
        (tmp_path / f"{name}.txt").write_text("1 qid:1 1:0.5\n0 qid:1 1:NULL\n")
    answer = ltr("fit", "--config", "letor", "--data.root", tmp_path, "--data.missing", "error")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    for part in ("train.txt", "2", "NULL"):
        assert part in answer.err
