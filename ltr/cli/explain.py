"""`ltr explain`: why the documents of a query rank as they do."""

from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltr.cli.arguments import LineParser, at_least_one
from ltr.cli.errors import CommandError
from ltr.cli.models import add_model, load_model
from ltr.names import nearest, plural

if TYPE_CHECKING:
    import pyarrow as pa

    from ltr.datasets import Schema

_USUAL, _COLUMNS = 100, 4
"""The number of documents that `contributions` draws from, and the number of columns to show."""


def explain(parser: LineParser, args: list[str]) -> None:
    """Show what each column adds to the scores of a query's documents.

    Each document is compared with usual documents: at most 25, spread evenly over the table
    (Shapley values). Then come the reasons why the first document is above the second. Needs the
    extra `explain`.

      ltr explain model test.parquet --query 17
    """
    add_model(parser)
    add = parser.add_argument
    about = (
        "CSV, Parquet or LETOR text: a file, a folder or a pattern; or lists on disk, of numbers"
    )
    add("table", metavar="TABLE", help=about)
    add("--query", required=True, metavar="QID", help="whose documents to explain")
    add("--qid", metavar="COLUMN", help="of the queries; default: as in training")
    add("--top", type=at_least_one, default=5, metavar="N", help="documents; default: 5")
    given = parser.parse_args(args)
    import numpy as np

    from ltr.datasets.reading import group_rows
    from ltr.estimators import contributions

    model = load_model(given)
    schema = model.schema
    if schema is None:
        raise CommandError(f"{given.model} knows no columns by their names")
    schema = replace(schema, qid=given.qid or schema.qid)
    if not schema.qid:
        raise CommandError(f"--qid is required: {given.model} names no column of the queries")
    table = _table(given.table, schema)
    lists, queries = group_rows(table.column(schema.qid), schema.qid)
    if given.query not in queries:
        raise CommandError(
            f"--query {given.query}: the table has no such query: {nearest(given.query, queries)}"
        )
    rows = np.flatnonzero(lists == queries.index(given.query))
    columns = table.select([*schema.steps])
    usual = np.unique(np.linspace(0, len(lists) - 1, _USUAL).astype(int))
    if model.looks_at_list:  # columns relative to the list need whole lists
        usual = np.flatnonzero(np.isin(lists, lists[usual]))
    _import_shap()
    explained = contributions(
        model,
        columns.take(rows),
        qid=lists[rows],
        background=columns.take(usual),
        background_qid=lists[usual],
    )
    doc_id = schema.doc_id or "doc_id"
    names = table.column(doc_id).take(rows) if doc_id in table.column_names else rows
    order = np.argsort(-explained.scores, kind="stable")
    print(
        f"query {given.query}: {len(rows)} {plural(len(rows), 'document')} of "
        f"{Path(given.table).name}. A score is "
        f"{explained.base:.3f}, the mean of usual documents, plus what each column adds."
    )
    _print(explained, order[: given.top], [str(name) for name in np.asarray(names)])
    if len(order) > 1:
        print(f"Why {names[order[0]]} is above {names[order[1]]}:")
        print(
            explained.between(*order[:2]).head(2 * _COLUMNS).to_string(float_format="{:.3f}".format)
        )


def _import_shap() -> None:
    """Import shap without its compiler, which takes longer than all sums of a few rows."""
    with suppress(ImportError):  # `contributions` tells what to install
        config = import_module("numba").config
        before, config.DISABLE_JIT = config.DISABLE_JIT, True
        try:
            import_module("shap")
        finally:
            config.DISABLE_JIT = before


def _table(path: str, schema: "Schema") -> "pa.Table":
    """Return the schema's columns that a table has; LETOR text names features by numbers."""
    import numpy as np

    from ltr.datasets.column_steps import Number
    from ltr.datasets.list_tables import holds_lists, keys_of, load_lists, with_schema
    from ltr.datasets.table_files import load_columns

    if not holds_lists(path):
        optional = {*schema.optional(needs_label=False), schema.doc_id or ""}
        return load_columns(path, schema, optional)[0].to_arrow()
    lists = with_schema(load_lists(path), schema)
    for name, step in schema.steps.items():
        if type(step) is not Number:  # lists have what the model computes with, not the values
            raise CommandError(
                f"{path} must hold numbers alone, got column {name!r}: {step}; give the table that "
                "the lists were converted from"
            )
    assert lists.rows is not None  # `load_lists` numbers them
    table = keys_of(lists, schema.qid)  # in the order of the rows, as the features must be
    if schema.doc_id and "doc_id" in table.column_names:
        table = table.rename_columns({"doc_id": schema.doc_id})
    for name, values in zip(schema.features, lists.features[np.argsort(lists.rows)].T, strict=True):
        table = table.append_column(name, [values])
    return table


def _print(explained: Any, rows: Any, names: list[str]) -> None:
    """Print a line for each document: score, and the values and contributions of its columns."""
    import numpy as np
    import pandas as pd

    shown = np.argsort(-abs(explained.values).mean(0), kind="stable")[:_COLUMNS]
    hidden = np.setdiff1d(np.arange(len(explained.columns)), shown)
    lines = []
    for rank, row in enumerate(rows.tolist(), 1):
        values, parts = explained.data.iloc[row], explained.values[row]
        line = {"rank": rank, "document": names[row], "score": f"{explained.scores[row]:.3f}"}
        line |= {explained.columns[j]: f"{_text(values.iloc[j])}: {parts[j]:+.2f}" for j in shown}
        if len(hidden):
            others = f"{len(hidden)} {plural(len(hidden), 'other')}"
            line[others] = f"{parts[hidden].sum():+.2f}"
        lines.append(line)
    print(f"\n{pd.DataFrame(lines).to_string(index=False)}\n")


def _text(value: Any) -> str:
    import numpy as np

    return f"{value:.3g}" if isinstance(value, float | np.floating) else str(value)
