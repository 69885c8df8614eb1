"""`ltr export`: write a model for other programs."""

from pathlib import Path

from ltr.cli.arguments import LineParser, saved_files, table_files
from ltr.cli.errors import CommandError
from ltr.cli.models import add_model, find_model, load_model
from ltr.files import check_path


def exported_files(value: str) -> list[Path]:
    """Return the files that an export to a path writes, and the folder if it is one."""
    path = check_path("path", value)
    if path.suffix in (".onnx", ".pt2"):
        return [path, path.with_suffix(".md")]
    return saved_files(value)


def export(parser: LineParser, args: list[str]) -> None:
    """Write a trained model for other programs, with a model card.

    The written model is checked: it must give the model's scores. With --float32, the differences
    are only printed, because a number next to a split of a tree may score otherwise.
    """
    add_model(parser, "the folder of a model or of a run")
    add = parser.add_argument
    about = "a file (.onnx, .pt2), or a folder for all"
    parser.writes(add("output", metavar="OUTPUT", help=about), exported_files)
    add("--to", choices=("onnx", "torch"), help="default: by OUTPUT, or onnx")
    add("--opset", type=int, default=17, help="version of the ONNX operators (default: 17)")
    add("--per-document", action="store_true", help="inputs are documents (N, d), not lists")
    add("--float32", action="store_true", help="features of a blend are float32, not float64")
    about = "a table with labels, for the metrics of the model card"
    parser.reads(add("--test", help=about), table_files)
    given = parser.parse_args(args)

    from ltr.datasets.prepare import read_table
    from ltr.datasets.table_files import load_table
    from ltr.estimators import Blend
    from ltr.export import card_metrics, export_model
    from ltr.models import RankingModel
    from ltr.models.onnx import OnnxModel

    model = load_model(given)
    if isinstance(model, OnnxModel):
        raise CommandError(f"{given.model} is already exported: give the folder of the model")
    if given.test is not None and model.schema is None:
        raise CommandError(
            f"--test needs the columns of a table, which {given.model} does not know"
        )
    schema, test = model.schema, None
    options = {"opset": given.opset, "per_document": given.per_document}
    if isinstance(model, RankingModel):
        if given.test is not None:
            test = card_metrics(model, read_table(given.test, schema, needs_weight=False))
        written = export_model(model, given.output, to=given.to, evaluation=test, **options)
    elif given.to == "torch":
        raise CommandError("--to must be onnx for a blend, got torch")
    else:
        if given.test is not None:
            text = {
                name for name, category in schema.categories.items() if category.kind == "string"
            }
            frame = load_table(given.test, text | {schema.qid})
            schema.check(frame)
            test = frame, frame[schema.label].to_numpy(), frame[schema.qid].to_numpy()
        blend = Blend.load(find_model(given.model), trust=given.trust)
        written = blend.export(given.output, test=test, single=given.float32, **options)
    print(f"wrote {written.model} and {written.card}")
    print(
        f"largest difference from the model: {written.difference:.1e} of the largest score; "
        f"{written.differing} of {written.rows} rows differ by more than 1e-4 of it"
    )
