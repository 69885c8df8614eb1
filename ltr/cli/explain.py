"""`ltr explain`: why the documents of a query rank as they do."""

from pathlib import Path
from typing import Any

from ltr.cli.arguments import LineParser, add_model
from ltr.cli.errors import CommandError
from ltr.cli.models import find_model, load_model
from ltr.names import nearest

_ABOUT = """\
Show what each column adds to the scores of a query's documents, beside usual documents of the
table (Shapley values), and why the first document is above the second. Needs the extra `explain`.

  ltr explain model test.parquet --query 17
"""
_USUAL, _COLUMNS = 100, 6
"""So many rows are the usual documents; so many columns are shown, those that add most."""


def run(command: str, args: list[str]) -> int:
    """Run `ltr explain`.

    Raises:
        ValueError: an option, the model or the table is wrong, or shap is not installed.
    """
    parser = LineParser(f"ltr {command}", description=_ABOUT)
    add_model(parser)
    parser.add_argument("table", metavar="TABLE", help="CSV or Parquet: a file, folder or pattern")
    parser.add_argument("--query", required=True, metavar="QID", help="whose documents to explain")
    parser.add_argument("--top", type=int, default=5, metavar="N", help="documents; default: 5")
    given = parser.parse_args(args)
    if given.top < 1:
        raise CommandError(f"--top must be >= 1, got {given.top}")
    import numpy as np

    from ltr.datasets.list_tables import holds_lists
    from ltr.datasets.table_files import load_columns
    from ltr.estimators import contributions

    model = load_model(find_model(given.model), given.trust)
    schema = model.schema
    if schema is None or holds_lists(given.table):
        what = given.model if schema is None else given.table
        raise CommandError(f"{what} has no columns with names: give a model and a table of columns")
    frame, _ = load_columns(given.table, schema, schema.optional(needs_label=False))
    table = frame.to_arrow()
    queries = np.array([str(name) for name in table.column(schema.qid).to_pylist()], dtype=object)
    rows = np.flatnonzero(queries == given.query)
    if not len(rows):
        raise CommandError(
            f"--query {given.query}: the table has no such query: "
            f"{nearest(given.query, dict.fromkeys(queries.tolist()))}"
        )
    columns = table.select([*schema.steps])
    usual = np.unique(np.linspace(0, len(queries) - 1, _USUAL).astype(int))
    found = contributions(model, columns.take(rows), background=columns.take(usual))
    names = table.column(schema.doc_id).take(rows) if schema.doc_id in table.column_names else rows
    order = np.argsort(-found.scores, kind="stable")
    print(
        f"query {given.query}: {len(rows)} documents of {Path(given.table).name}. A score is "
        f"{found.base:.3f}, the mean of usual documents, plus what each column adds."
    )
    _print(found, order[: given.top], [str(name) for name in np.asarray(names)])
    if len(order) > 1:
        print(f"Why {names[order[0]]} is above {names[order[1]]}:")
        print(found.between(*order[:2]).head(_COLUMNS).to_string(float_format="{:.3f}".format))
    return 0


def _print(found: Any, rows: Any, names: list[str]) -> None:
    """Print a line for each document: score, and the values and contributions of its columns."""
    import numpy as np
    from rich import box
    from rich.console import Console
    from rich.table import Table

    shown = np.argsort(-abs(found.values).mean(0), kind="stable")[:_COLUMNS]
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("rank", "document", "score", *(str(found.columns[j]) for j in shown)):
        table.add_column(heading, justify="left" if heading == "document" else "right")
    if others := len(found.columns) - len(shown):
        table.add_column(f"{others} others", justify="right")
    for rank, row in enumerate(rows.tolist(), 1):
        parts = [f"{_text(found.data.iloc[row, j])}: {found.values[row, j]:+.3f}" for j in shown]
        rest = found.values[row].sum() - found.values[row, shown].sum()
        parts += [f"{rest:+.3f}"] if others else []
        table.add_row(str(rank), names[row], f"{found.scores[row]:.3f}", *parts)
    Console(width=None, highlight=False, markup=False).print(table)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
