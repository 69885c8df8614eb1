"""The help of `ltr fit`, `validate`, `test` and `predict`: the options that people use."""

from textwrap import fill

ABOUT = {
    "fit": "Train a model, and keep its best weights.",
    "validate": "Evaluate a model on the validation lists.",
    "test": "Evaluate a model on the test lists.",
    "predict": "Write scores and ranks of documents.",
}
_USAGE = {
    "fit": "ltr fit --config RECIPE [--data.path TABLE] [options]",
    "validate": "ltr validate --config RECIPE --ckpt_path MODEL [options]",
    "test": "ltr test --ckpt_path MODEL --data.path TABLE [options]",
    "predict": "ltr predict --ckpt_path MODEL --data.path TABLE --output FILE [options]",
}
_FIT, _TRAINED, _ALL = ("fit",), ("validate", "test", "predict"), tuple(ABOUT)
MODEL = (
    "a checkpoint, `best` or `last` of the newest run, the folder of a run, of NeuralRanker.save "
    "or of an export, or an ONNX file"
)
OPTIONS: dict[str, dict[str, tuple[tuple[str, ...], str]]] = {
    "Data (of a table; LETOR folders have --data.root, `ltr fit --config letor`)": {
        "--data.path TABLE": (_ALL, "CSV, Parquet, LETOR text, or a folder of `ltr convert`"),
        "--data.qid COLUMN": (_ALL, "the query of each row; a model trained on a table knows it"),
        "--data.label COLUMN": (("fit", "validate", "test"), "the relevance of each row, >= 0"),
        "--data.doc_id COLUMN": (("predict",), "the names of the documents, for the output"),
        "--data.validation 0.2": (_FIT, "fraction of the queries to hold out for validation"),
        "--data.val_path TABLE": (("fit", "validate"), "a table to validate on"),
        "--data.batch_size N": (_ALL, "lists in a batch"),
    },
    "Model": {
        "--config NAME": (_ALL, "a recipe (`ltr recipes`) or a YAML file; repeat it to overlay"),
        "--ckpt_path MODEL": (_TRAINED, MODEL),
        "--trust PACKAGE": (_TRAINED, "a package of the model's own classes"),
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
    "Output": {
        "--output FILE": (("predict",), ".csv, .parquet, .run or .txt"),
        "--format NAME": (("predict",), "csv, parquet or trec, if the name does not tell"),
    },
    "Machine": {
        "--trainer.accelerator NAME": (_ALL, "cpu, cuda or mps; default: what exists"),
    },
    "More": {
        "--ray-workers N": (("fit", "predict"), "on a Ray cluster; --ray takes all of its CPUs"),
        "--print_config": (_ALL, "print all options with their values, as YAML"),
        "--help-all": (_ALL, "list all options"),
    },
}
"""The options by group, each with the commands that show it and a description."""


def short_help(command: str) -> str:
    """Return the short help of a command.

    >>> print(short_help("predict").partition("Data")[0])
    usage: ltr predict --ckpt_path MODEL --data.path TABLE --output FILE [options]
    <BLANKLINE>
    Write scores and ranks of documents.
    <BLANKLINE>
    <BLANKLINE>
    """
    lines = [f"usage: {_USAGE[command]}", "", ABOUT[command]]
    for group, options in OPTIONS.items():
        shown = {
            option: about for option, (commands, about) in options.items() if command in commands
        }
        if shown:
            lines += ["", f"{group}:"]
        for option, about in shown.items():
            lines.append(fill(f"  {option:<33}{about}", width=100, subsequent_indent=" " * 35))
    return "\n".join(lines)
