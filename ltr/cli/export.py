"""`ltr export`: write a model for other programs."""

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltr.cli.recipes import LineParser

if TYPE_CHECKING:
    from ltr.datasets import Schema
    from ltr.export import Exported


def run(command: str, args: list[str]) -> int:
    """Run `ltr export`.

    Args:
        command: "export".
        args: the arguments after it on the command line.

    Returns:
        The exit code, 0.

    Raises:
        ValueError: an option, the checkpoint or the test data are wrong, or the export failed.
    """
    parser = LineParser(
        f"ltr {command}",
        description="Write a trained model for other programs, with a model card, and check that "
        "it gives the model's scores.",
    )
    parser.add_argument(
        "model",
        help="a checkpoint, `best` or `last` of the newest run, the folder of a run, or a folder "
        "that an export, NeuralRanker.save or Blend.save wrote",
    )
    parser.add_argument("--to", choices=("onnx", "torch"), help="default: by --out, or onnx")
    parser.add_argument(
        "--out", required=True, help="a file (.onnx, .pt2), or a folder for all files"
    )
    parser.add_argument(
        "--opset", type=int, default=17, help="version of the ONNX operators (default: 17)"
    )
    parser.add_argument(
        "--per-document", action="store_true", help="inputs are documents (N, d), not lists"
    )
    parser.add_argument(
        "--float32", action="store_true", help="features of a blend are float32, not float64"
    )
    parser.add_argument("--test", help="a table with labels, for the metrics of the model card")
    parser.add_argument(
        "--trust", action="append", default=[], help="a package whose classes the model may name"
    )
    given = parser.parse_args(args)

    from ltr.cli.named_models import find_model, is_blend, load_to_export
    from ltr.datasets.prepare import read_table
    from ltr.export import evaluate, export_model

    path = find_model(given.model)
    assert path is not None  # which it is only for a training
    if is_blend(path):
        written = _export_blend(path, given)
    else:
        module = load_to_export(path, given.trust, given.per_document)
        evaluation = None
        if given.test is not None:
            table, schema = _test_lists(given, module.schema)
            evaluation = evaluate(module, read_table(table, schema, needs_weight=False))
        options = {"to": given.to, "opset": given.opset, "evaluation": evaluation}
        written = export_model(module, given.out, **options)
    print(f"wrote {written.model} and {written.card}")
    print(
        f"largest difference from the model: {written.difference:.1e} of the largest score; "
        f"{written.differing} of {written.rows} rows differ by more than 1e-4 of it"
    )
    return 0


def _export_blend(path: Path, given: Namespace) -> "Exported":
    """Export the folder of a `Blend`."""
    from ltr.estimators import Blend

    if given.to == "torch" or given.out.endswith(".pt2"):
        raise ValueError(f"--to must be onnx for a blend, got {given.to} for {given.out}")
    blend = Blend.load(path, trust=given.trust)
    test = None
    if given.test is not None:
        table, schema = _test_lists(given, blend.schema_)
        schema.check(table)
        test = table, table[schema.label].to_numpy(), table[schema.qid].to_numpy()
    options = {"opset": given.opset, "per_document": given.per_document, "single": given.float32}
    return blend.export(given.out, test=test, **options)


def _test_lists(given: Namespace, schema: "Schema | None") -> "tuple[Any, Schema]":
    """Return the table of the test lists, and the model's schema."""
    from ltr.datasets.table_files import load_table

    if schema is None:
        raise ValueError(f"test must be None: {given.model} was not trained on a table")
    text = {name for name, one in schema.categories.items() if one.kind == "string"}
    return load_table(given.test, text | {schema.qid}), schema
