"""The help of `ltr fit`, `validate` and `test`: the options that people use."""

from textwrap import fill
from typing import Literal

Command = Literal["fit", "validate", "test"]

ABOUT: dict[Command, str] = {
    "fit": "Train a recipe or classes of your own (`ltr train` trains on a table).",
    "validate": "Evaluate a model on the validation lists.",
    "test": "Evaluate a model on a table, or a recipe's checkpoint on its test lists.",
}
USAGE: dict[Command, str] = {
    "fit": "ltr fit --config RECIPE [--data.path TABLE] [options]",
    "validate": "ltr validate --config RECIPE --ckpt_path CHECKPOINT [options]",
    "test": "ltr test MODEL TABLE [options of `ltr evaluate`]\n"
    "       ltr test --config RECIPE --ckpt_path CHECKPOINT [options]",
}
_FIT, _TRAINED, _ALL = ("fit",), ("validate", "test"), tuple(ABOUT)
CHECKPOINT = "a checkpoint, or `best` or `last` of the newest run; fit resumes from it"
OPTIONS: dict[str, dict[str, tuple[tuple[str, ...], str]]] = {
    "Data (of a table; `ltr fit --config letor` for LETOR text)": {
        "--data.path TABLE": (_ALL, "CSV, Parquet, LETOR text or its folds, or lists on disk"),
        "--data.qid COLUMN": (_ALL, "the query of each row; a model trained on a table knows it"),
        "--data.label COLUMN": (_ALL, "the relevance of each row, >= 0"),
        "--data.validation 0.2": (_FIT, "fraction of the queries to hold out for validation"),
        "--data.val_path TABLE": (("fit", "validate"), "a table to validate on"),
        "--data.batch_size N": (_ALL, "lists in a batch"),
    },
    "Model": {
        "--ckpt_path CHECKPOINT": (_TRAINED, CHECKPOINT.partition(";")[0]),
        "--model.scorer CLASS": (_FIT, "such as MLPScorer, AdditiveScorer, AttentionScorer"),
        "--model.loss CLASS": (_FIT, "such as SoftNDCG, ListNet, LambdaRank"),
        "--model.optimizer CLASS": (_FIT, "such as AdamW; then --model.optimizer.lr 0.001"),
    },
    "Training": {
        "--trainer.max_epochs N": (_FIT, "epochs at most"),
        "--early_stopping.patience N": (_FIT, "epochs without a better value; null for no stop"),
        "--seed_everything N": (_FIT, "of data, weights and batches; default: 42"),
        "--ckpt_path last": (_FIT, "resume the newest run"),
    },
    "Machine": {
        "--trainer.accelerator NAME": (_ALL, "cpu, cuda or mps; default: what exists"),
    },
    "More": {
        "--print_config": (_ALL, "print all options with their values, as YAML"),
    },
}
"""The options by group, each with the commands that show it and a description."""


def short_help(command: Command) -> str:
    """Return what a command does, and the options that people use.

    >>> print(short_help("validate").partition("Data")[0])
    Evaluate a model on the validation lists.
    <BLANKLINE>
    <BLANKLINE>
    """
    lines = [ABOUT[command]]
    for group, options in OPTIONS.items():
        shown = [
            fill(f"  {option:<33}{about}", 100, subsequent_indent=" " * 35)
            for option, (commands, about) in options.items()
            if command in commands
        ]
        lines += ["", f"{group}:", *shown] if shown else []
    return "\n".join(lines)
