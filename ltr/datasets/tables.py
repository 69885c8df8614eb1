"""Read tables into lists. A schema says how their columns are used."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from ltr.arrays import pc
from ltr.datasets.dates import read_dates
from ltr.datasets.lists import ListDataset
from ltr.datasets.qids import check_spelling
from ltr.datasets.schema import Schema, encode, kind_of, without_codes
from ltr.datasets.table_errors import RowError
from ltr.datasets.table_files import load_columns, naming, of_file
from ltr.datasets.text_types import first_text, shown
from ltr.shapes import check_choice

_RULES: dict[str, tuple[str, str, Callable[[np.ndarray], np.ndarray]]] = {
    "label": ("a label", "a finite number >= 0", lambda x: x >= 0),
    "weight": ("a weight", "a finite number >= 0", lambda x: x >= 0),
    "position": ("a position", "a whole number >= 1", lambda x: (x >= 1) & (x % 1 == 0)),
    "protected": ("protected", "a finite number", np.isfinite),
}
"""The name of a row's number and what it must be, by its use; it must be finite in any case."""


def read_table(
    source: Any,
    schema: Schema,
    *,
    missing: Literal["keep", "error"] = "keep",
    needs_label: bool = True,
    needs_weight: bool = True,
) -> ListDataset:
    """Read a table into lists; its schema says how each column is used.

    The rows of a query need not be together. Lists and documents are in the order of their first
    appearance; `rows` of the result is the row of each document in the table. A missing feature is
    NaN. Dates are days since 1970-01-01, and the hour of the day if the schema has it; see
    `Schema.infer`. A missing category has code 0, and so has any value that is not a level of the
    schema. Errors count rows from 0, without a header. For a folder or pattern they name the file,
    and count its rows.

    Args:
        source: see `load_table`.
        schema: how the columns are used; see `Schema.infer`.
        missing: "keep" keeps missing features as NaN; "error" refuses them.
        needs_label: whether the column of the labels must exist. Otherwise it may be missing; the
            lists then have no labels.
        needs_weight: whether the columns of weight, position and protected, which only training
            uses, must exist. Without `needs_label` they may be missing too.

    Raises:
        ValueError: a column is missing or has another type; a qid or document id is missing; a
            label is missing, negative, infinite or not a number; a weight is missing, negative or
            infinite; a position is not a whole number >= 1; protected is not a finite number; a
            date is invalid, or differs from the training dates in having a time zone; or a feature
            is infinite in float32. The message names the row and the column.

    >>> table = pa.table({"q": ["a", "b", "a"], "y": [0, 1, 2], "x": [0.5, None, 1.5]})
    >>> data = read_table(table, Schema.infer(table, qid="q", label="y"))
    >>> data.qids, data.labels.tolist(), data.features[:, 0].tolist(), data.rows.tolist()
    (['a', 'b'], [0.0, 2.0, 1.0], [0.5, 1.5, nan], [0, 2, 1])
    """
    check_choice("missing", missing, "keep", "error")
    if needs_label and schema.label is None:
        raise ValueError(f"label must name the column of the labels, got None{of_file(source)}")
    optional = schema.optional(needs_label=needs_label, needs_weight=needs_weight)
    table, _ = load_columns(source, schema, optional)
    with naming(source):
        _check_numbers(table, schema)
        schema.check(table, optional)
        return _to_lists(table, schema, missing)


def _to_lists(table: pa.Table, schema: Schema, missing: str) -> ListDataset:
    features = np.empty((table.num_rows, schema.num_features), dtype=np.float32)
    start = 0
    for name, width in schema.features.items():
        values = table.column(name)
        if name in schema.dates:
            numbers = read_dates(values, name, schema.dates[name])[:, :width]
        else:
            numbers = _feature(values, name, width)
        features[:, start : start + width] = numbers
        start += width
    for row, position in np.argwhere(np.isinf(features))[:1]:
        column = _column_at(schema, int(position))
        value = _shown(table, column, int(row))
        raise RowError(int(row), column, f"must be finite in float32, got {value}")
    if missing == "error":
        for row, position in np.argwhere(np.isnan(features))[:1]:
            column = _column_at(schema, int(position))
            raise RowError(int(row), column, "must not be missing")
    codes = [encode(table.column(name), one) for name, one in schema.categories.items()]
    lists, qids = group_rows(table.column(schema.qid), schema.qid)
    order = np.argsort(lists, kind="stable")
    offsets = np.r_[0, np.cumsum(np.bincount(lists, minlength=len(qids)))]
    found = {use: _amounts(table, schema, use) for use in _RULES}
    amounts = {use: values[order] for use, values in found.items() if values is not None}
    if "position" in amounts:
        amounts["position"] = amounts["position"].astype(np.int64)
    doc_id = None
    if schema.doc_id is not None:
        ids = table.column(schema.doc_id)
        _refuse(pc.is_null(ids), schema.doc_id, "a document id must not be missing")
        doc_id = ids.cast(pa.string()).take(pa.array(order)).combine_chunks()
    return ListDataset(
        features[order],
        amounts.pop("label", None),
        offsets.astype(np.int64),
        qids,
        doc_id,
        categories=np.stack(codes, axis=1)[order] if codes else None,
        rows=order.astype(np.int64),
        **amounts,
    )


def add_scores(keys: pa.Table, rows: np.ndarray, scores: np.ndarray) -> pa.Table:
    """Return a table with a column `score`, float32.

    Args:
        keys: the columns of the qid and, if there is one, of the document ids.
        rows: (n,), the row of each score, each row of the table once.
        scores: (n,).

    Raises:
        ValueError: a row has no score or several, or a column is already called "score".

    >>> add_scores(pa.table({"q": ["a", "b"]}), np.array([1, 0]), np.array([0.5, 2.0])).to_pylist()
    [{'q': 'a', 'score': 2.0}, {'q': 'b', 'score': 0.5}]
    """
    counts = np.bincount(rows, minlength=keys.num_rows)
    if len(counts) != keys.num_rows or (counts != 1).any():
        raise ValueError(
            f"each of the {keys.num_rows} rows must have one score, got {len(rows)} scores for "
            f"{int((counts > 0).sum())} rows"
        )
    if "score" in keys.column_names:
        raise ValueError("qid and doc_id must not be called 'score', the name of the scores")
    ordered = np.empty(len(rows), dtype=np.float32)
    ordered[rows] = scores
    return keys.append_column("score", pa.array(ordered))


def group_rows(column: pa.ChunkedArray, name: str) -> tuple[np.ndarray, list[str]]:
    """Return the list of each row, int64 (rows,), and the lists' qids in order of appearance.

    Args:
        column: of the qids.
        name: its name, for errors.

    Raises:
        ValueError: a qid is missing or empty, or is a number in two spellings, such as 5 and 5.0.

    >>> groups, qids = group_rows(pa.chunked_array([["b", "a"], ["b"]]), "q")
    >>> groups.tolist(), qids
    ([0, 1, 0], ['b', 'a'])
    """
    column = without_codes(column)
    _refuse(pc.is_null(column, nan_is_null=True), name, "a qid must not be missing")
    encoded = column.combine_chunks().dictionary_encode()
    groups, values = encoded.indices.to_numpy().astype(np.int64), encoded.dictionary
    try:
        qids = values.cast(pa.string())
    except pa.ArrowException as error:
        raise ValueError(f"column {name!r}: a qid must be a name or a number: {error}") from None
    for row in np.flatnonzero(pc.equal(qids, "").to_numpy(zero_copy_only=False))[:1]:
        raise RowError(int(np.argmax(groups == row)), name, "a qid must not be empty")
    if kind_of(values.type) == "string":
        check_spelling(lambda: [column.cast(pa.string())], name)
    return groups, qids.to_pylist()


def _feature(column: pa.ChunkedArray, name: str, width: int) -> np.ndarray:
    """Return the values of a feature, (rows, width), NaN where missing."""
    if kind_of(column.type) == "missing":
        return np.full((len(column), width), np.nan, dtype=np.float32)
    if not pa.types.is_fixed_size_list(column.type):
        return _numbers(column).reshape(-1, 1)
    found = np.full((len(column), width), np.nan, dtype=np.float32)
    there = column.is_valid().to_numpy()
    values = pc.list_flatten(column.drop_null())
    found[there] = _numbers(values).reshape(-1, width)
    return found


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column of numbers or booleans as float32, NaN where missing."""
    column = without_codes(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    if not pa.types.is_floating(column.type):
        column = column.cast(pa.float64(), safe=False)
    with np.errstate(over="ignore"):  # overflow gives infinity, which is refused like any other
        return column.to_numpy().astype(np.float32)


def _amounts(table: pa.Table, schema: Schema, use: str) -> np.ndarray | None:
    """Return the numbers of the column of a use of `_RULES`, if the table has it."""
    name = getattr(schema, use)
    if name is None or name not in table.column_names:
        return None
    values = _feature(table.column(name), name, 1)[:, 0]
    what, rule, holds = _RULES[use]
    for row in np.flatnonzero(~(np.isfinite(values) & holds(values)))[:1]:
        problem = f"{what} must be {rule}, got {_shown(table, name, int(row))}"
        if values[row] < 0 and use == "label":
            problem += " (leave out rows of padding or without a judgement)"
        raise RowError(int(row), name, problem)
    return values


def _check_numbers(table: pa.Table, schema: Schema) -> None:
    """Raise an error for text instead of numbers; it names the first row without a number."""
    uses = {getattr(schema, use): what for use, (what, _, _) in _RULES.items()}
    uses |= {name: "a feature" for name in schema.features if name not in schema.dates}
    given = {*table.column_names}  # once: Arrow makes a new list each time
    for name, what in uses.items():
        if name is None or name not in given:
            continue
        column = table.column(name)
        if kind_of(column.type) == "string":
            row = max(0, first_text(column.cast(pa.string())))
            shown = _shown(table, name, row)
            raise RowError(row, name, f"{what} must be a number, got {shown}")
        if schema.features.get(name) is None and kind_of(column.type) not in (
            *("number", "boolean", "missing"),
        ):
            raise ValueError(f"column {name!r}: {what} must be a number, got type {column.type}")


def _refuse(bad: pa.ChunkedArray, name: str, problem: str) -> None:
    for row in np.flatnonzero(bad.to_numpy())[:1]:
        raise RowError(int(row), name, problem)


def _column_at(schema: Schema, position: int) -> str:
    """Return the column that holds the feature at a position."""
    bounds = np.cumsum(list(schema.features.values()))
    return list(schema.features)[int(np.searchsorted(bounds, position, side="right"))]


def _shown(table: pa.Table, name: str, row: int) -> str:
    return shown(table.column(name)[row].as_py())
