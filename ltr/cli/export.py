"""`ltr export`: write a model for other programs."""

from ltr.cli.recipes import LineParser


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
    parser = LineParser(
        f"ltr {command}",
        description="Write a trained model for other programs, with a model card, and check that "
        "it gives the model's scores.",
    )
    parser.add_argument(
        "model",
        help="a checkpoint, `best` or `last` of the newest run, the folder of a run, or a folder "
        "that an export or NeuralRanker.save wrote",
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

    from ltr.cli.named_models import find_model, load_to_export
    from ltr.datasets.table_files import load_table
    from ltr.datasets.tables import read_table
    from ltr.export import evaluate, export_model

    path = find_model(given.model)
    assert path is not None  # which it is for a training alone
    module = load_to_export(path, given.trust, given.per_document)
    evaluation = None
    if given.test is not None:
        if module.schema is None:
            raise ValueError(f"test must be None: {given.model} was not trained on a table")
        text = {name for name, one in module.schema.categories.items() if one.kind == "string"}
        table = load_table(given.test, text | {module.schema.qid})
        evaluation = evaluate(module, read_table(table, module.schema, needs_weight=False))
    options = {"to": given.to, "opset": given.opset, "evaluation": evaluation}
    written = export_model(module, given.out, **options)
    print(f"wrote {written.model} and {written.card}")
    print(f"largest difference from the model: {written.difference:.1e} of the largest score")
    return 0
