"""`ltr export`: write a model for other programs."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ltr.cli.errors import CommandError

if TYPE_CHECKING:
    from ltr.export import ExportedRanker


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (ltr export --help lists all options)")


def run(command: str, args: list[str]) -> int:
    """Run `ltr export`.

    Args:
        command: "export".
        args: what follows it on the command line.

    Returns:
        The exit code, 0.

    Raises:
        ValueError: an option, the checkpoint or the test data are wrong, or the export failed.
    """
    parser = _Parser(
        prog=f"ltr {command}",
        description="Write a trained model for other programs, with a model card, and check that "
        "it gives the model's scores.",
    )
    parser.add_argument(
        "model", help="a checkpoint, or a folder that an export or NeuralRanker.save wrote"
    )
    parser.add_argument("--to", choices=("onnx", "torch"), help="default: by --out, or onnx")
    parser.add_argument(
        "--out", required=True, help="a file (.onnx, .pt2), or a folder for all files"
    )
    parser.add_argument("--opset", type=int, default=17, help="of ONNX (default: 17)")
    parser.add_argument(
        "--per-document", action="store_true", help="inputs are documents (N, d), not lists"
    )
    parser.add_argument("--test", help="a table with labels, for the metrics of the model card")
    parser.add_argument(
        "--trust", action="append", default=[], help="a package whose classes the model may name"
    )
    given = parser.parse_args(args)

    from ltr.datasets.table_files import load_table
    from ltr.datasets.tables import read_table
    from ltr.export import evaluate, export_model

    module = _model(Path(given.model), given.trust, given.per_document)
    evaluation = None
    if given.test is not None:
        if module.schema is None:
            raise ValueError(f"test must be None: {given.model} was not trained on a table")
        text = {name for name, one in module.schema.categories.items() if one.kind == "string"}
        table = load_table(given.test, text | {module.schema.qid})
        evaluation = evaluate(module, read_table(table, module.schema, needs_weight=False))
    to = given.to or ("torch" if given.out.endswith(".pt2") else "onnx")
    written = export_model(module, given.out, to=to, opset=given.opset, evaluation=evaluation)
    print(f"wrote {written.model} and {written.card}")
    print(f"largest difference from the model: {written.difference:.1e} of the largest score")
    return 0


def _model(path: Path, trust: list[str], per_document: bool) -> "ExportedRanker":
    """Return a saved model."""
    from ltr.export import ExportedRanker, load_model

    if path.is_dir():
        return load_model(path, trust=trust, per_document=per_document)
    if not path.is_file():
        raise ValueError(f"model must be a checkpoint or a folder, got {path}")
    from ltr.modules import Ranker

    ranker = Ranker.load_from_checkpoint(path, map_location="cpu", trust=trust)
    return ExportedRanker(ranker.transform, ranker.scorer, ranker.schema, per_document)
