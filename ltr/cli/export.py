"""`ltr export`: write a model for other programs."""

from argparse import Namespace
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ltr.cli.arguments import LineParser, saved_files, table_files
from ltr.cli.errors import CommandError
from ltr.cli.models import add_model, find_model, load_model
from ltr.files import check_path
from ltr.names import one_line

_TREES = {".txt": "lightgbm", ".ubj": "xgboost", ".json": "xgboost", ".cbm": "catboost"}
"""The libraries of the files of trees that MODEL may be, by suffix."""

_ENGINES = ("opensearch", "elasticsearch", "solr")


def exported_files(value: str) -> list[Path]:
    """Return the files that an export to a path writes, and the folder if it is one."""
    path = check_path("path", value)
    if path.suffix in (".onnx", ".pt2"):
        return [path, path.with_suffix(".md")]
    if path.suffix == ".json":
        return [path, path.with_suffix(".features.json")]
    return saved_files(value)


def export(parser: LineParser, args: list[str]) -> None:
    """Write a trained model for other programs, with a model card or, for engines, its features.

    The written model is checked: it must give the model's scores. With --float32, the differences
    are only printed, because a number next to a split of a tree may score otherwise.

    Search engines take trees of numbers, or a linear model. --to opensearch is also for the plugin
    of Elasticsearch, --to elasticsearch for Elasticsearch's own learning to rank.
    """
    kinds = "of LightGBM (.txt), XGBoost (.ubj, .json) or CatBoost (.cbm)"
    add_model(parser, f"the folder of a model or of a run, or a file {kinds}")
    add = parser.add_argument
    about = "a file (.onnx, .pt2; for engines .json), or a folder for all"
    parser.writes(add("output", metavar="OUTPUT", help=about), exported_files)
    add("--to", choices=("onnx", "torch", *_ENGINES), help="default: by OUTPUT, or onnx")
    about = "for engines: a missing value goes where the model sends it (default), or where 0 goes"
    add("--missing", choices=("model", "zero"), default="model", help=about)
    add("--opset", type=int, help="version of the ONNX operators; default: 17")
    add("--per-document", action="store_true", help="inputs are documents (N, d), not lists")
    add("--float32", action="store_true", help="features of trees are float32, not float64")
    about = "a table with labels, for the metrics of the model card; for engines, rows to compare"
    parser.reads(add("--test", help=about), table_files)
    add("--qid", metavar="COLUMN", help="the queries of --test, if MODEL is a file of trees")
    given = parser.parse_args(args)
    to_engine = given.to in _ENGINES
    if to_engine:
        wrong = {"--per-document": given.per_document, "--float32": given.float32}
        wrong["--opset"] = given.opset is not None
    else:
        wrong = {"--missing": given.missing == "zero", "--qid": given.qid}
    for name, used in wrong.items():
        if used:
            engines = ", ".join(_ENGINES)
            raise CommandError(f"{name} is for --to {'onnx' if to_engine else engines}")
    if given.qid is not None and given.test is None:
        raise CommandError(f"--qid is for the rows of --test, got {given.qid} without --test")
    model = _model(given)
    if to_engine:
        _to_engine(given, model)
    else:
        _to_file(given, model)


def _model(given: Namespace) -> Any:
    """Return the model, or the trees of a file, that the arguments name."""
    from ltr.models.onnx import OnnxModel

    if (trees := _read_trees(find_model(given.model))) is not None:
        return trees
    model = load_model(given)
    if isinstance(model, OnnxModel):
        raise CommandError(f"{given.model} is already exported: give the folder of the model")
    return model


def _to_file(given: Namespace, model: Any) -> None:
    """Write a model as ONNX or as a program of torch, and print how its scores differ."""
    from ltr.config.folder import saved_in
    from ltr.datasets.prepare import prepare
    from ltr.export import card_metrics, export_model
    from ltr.export.write import is_file
    from ltr.models import RankingModel

    schema = getattr(model, "schema", None)
    options: dict[str, Any] = {"per_document": given.per_document, "single": given.float32}
    options |= {} if given.opset is None else {"opset": given.opset}
    if given.float32 and isinstance(model, RankingModel):
        raise CommandError(
            f"--float32 is for trees: the features of the network {given.model} are float32"
        )
    if given.test is not None:
        if schema is None:
            raise CommandError(
                f"--test needs the folder of a model that knows its columns, got {given.model}"
            )
        plain = replace(schema, weight=None, position=None, protected=None)
        test = prepare(given.test, {}, schema=plain, exact=model.takes_exact)
        options["evaluation"] = card_metrics(model, test.train, test.exact)
    source = find_model(given.model)
    if source.is_dir() and not is_file(given.output):
        options["saved"] = saved_in(source)
    written = export_model(model, given.output, to=given.to, **options)
    print(f"wrote {written.model} and {written.card}")
    print(
        f"largest difference from the model: {written.difference:.1e} of the largest score; "
        f"{written.differing} of {written.rows} rows differ by more than 1e-4 of it"
    )


def _to_engine(given: Namespace, model: Any) -> None:
    """Write a model for a search engine, and print the report."""
    from ltr.export import export_model
    from ltr.export.engines import engine_files

    source = find_model(given.model)
    for file in engine_files(given.output):  # in a folder, this may be XGBoost's model.json
        if file.exists() and file.samefile(source):
            raise CommandError(f"OUTPUT must not be the file that is read, got {file}")
    rows, qid = _rows(given, getattr(model, "schema", None))
    written = export_model(
        model, given.output, to=given.to, missing=given.missing, rows=rows, qid=qid
    )
    print(f"wrote {written.model} and {written.features}")
    print(
        f"largest difference from the model: {written.difference:.1e} of the largest score; rows "
        f"whose position in their list changes: {written.moved} of {written.rows}"
    )
    for note in written.notes:
        print(f"note: {note}")


def _read_trees(path: Path) -> Any:
    """Return the trees of a file of LightGBM, XGBoost or CatBoost; None for any other path."""
    if path.is_dir() or path.suffix not in _TREES:
        return None
    name = _TREES[path.suffix]
    try:
        library = import_module(name)
        if name == "catboost":
            return library.CatBoost().load_model(str(path))
        booster = library.Booster(model_file=str(path))
    except ModuleNotFoundError as error:
        raise CommandError(f"{path} needs {name}, which is not installed") from error
    except Exception as error:  # the libraries' errors have no common base class
        raise CommandError(f"{path} cannot be read by {name}: {one_line(str(error))}") from error
    if name == "xgboost" and booster.attr("scikit_learn") is not None:
        # An `XGBRanker` wrote the file. Unlike a `Booster`, it predicts with its best trees.
        best = booster.attr("best_iteration")
        return booster if best is None else booster[: int(best) + 1]
    return booster


def _rows(given: Namespace, schema: Any) -> tuple[Any, Any]:
    """Return the rows of --test and the query of each; None for what is not there."""
    import numpy as np

    from ltr.datasets.list_tables import holds_lists, load_lists
    from ltr.datasets.table_files import load_table

    if given.test is None:
        return None, None
    if given.qid in (None, "qid") and holds_lists(given.test):
        lists = load_lists(given.test)
        return lists, np.repeat(lists.qids, lists.lengths)
    qid, categories = given.qid or getattr(schema, "qid", None), getattr(schema, "categories", {})
    text = {name for name, category in categories.items() if category.kind == "string"}
    table = load_table(given.test, text | ({qid} if qid else set()))
    if qid in table.column_names:
        return table, table.column(qid).to_pylist()
    if given.qid is not None:
        raise CommandError(f"--qid must be a column of {given.test}, got {qid!r}")
    return table, None
