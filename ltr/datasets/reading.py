"""Read tables into lists, with a schema."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.arrays import name_texts, numbered, pc
from ltr.datasets.column_steps import (
    Category,
    Number,
    RowError,
    Step,
    are_numbers,
    kind_of,
    or_nulls,
    shown,
    without_codes,
)
from ltr.datasets.frames import Frame
from ltr.datasets.list_tables import holds_lists, load_lists, with_schema
from ltr.datasets.lists import ListDataset
from ltr.datasets.schema import Schema
from ltr.datasets.table_files import (
    load_columns,
    naming,
    of_file,
)
from ltr.names import shown_names

_RULES: dict[str, tuple[str, str, Callable[[np.ndarray], np.ndarray]]] = {
    "label": ("a label", "a finite number >= 0", lambda x: x >= 0),
    "weight": ("a weight", "a finite number >= 0", lambda x: x >= 0),
    "position": ("a position", "a whole number >= 1", lambda x: (x >= 1) & (x % 1 == 0)),
    "protected": ("protected", "a finite number", np.isfinite),
}
"""For each use of a column: what errors call a value, the rule in words, and the check.

All values must also be finite.
"""


def read_table(
    source: Any,
    schema: Schema,
    *,
    needs_label: bool = True,
    needs_weight: bool = True,
    tell: Callable[[str], Any] | None = None,
) -> ListDataset:
    """Read a table into lists, with a schema that says how each column is used.

    The rows of a query need not be together. Lists are in the order of their first rows, and the
    documents of a list in the order of their rows; `rows` of the result gives each document's row
    in the table. A missing feature is NaN. Dates become the days since 1970-01-01, and the hour of
    the day if the schema says so; see `Schema.infer`. A missing category has code 0, and so has any
    value that is not a level of the schema. Errors count rows from 0, without headers, through
    all files of a folder or pattern.

    Args:
        source: a table (see `load_table`), LETOR text or lists on disk. The last two already have
            a schema (see `schema_of`). Lists on disk are not loaded into memory.
        schema: how the columns are used; see `Schema.infer`.
        needs_label: whether the column of the labels must exist. If False and the column is
            missing, the lists have no labels.
        needs_weight: whether the columns of weight, position and protected, which only training
            uses, must exist. They may also be missing if `needs_label` is False.
        tell: called with a message about the columns that the schema does not have, if any.

    Raises:
        ValueError: a column is missing or does not have the type in the schema; a qid or document
            id is missing; a label is missing, negative, infinite or not a number; a weight is
            missing, negative or infinite; a position is not a whole number >= 1; protected is not a
            finite number; a date is invalid; dates have a time zone but the training dates have
            none, or the reverse; or a feature is infinite in float32. The message names the column,
            and the row if a value is wrong.

    >>> table = pa.table({"q": ["a", "b", "a"], "y": [0, 1, 2], "x": [0.5, None, 1.5]})
    >>> data = read_table(table, Schema.infer(table, qid="q", label="y"))
    >>> data.qids, data.labels.tolist(), data.features[:, 0].tolist(), data.rows.tolist()
    (['a', 'b'], [0.0, 2.0, 1.0], [0.5, 1.5, nan], [0, 2, 1])
    """
    if holds_lists(source):
        with naming(source):
            lists = load_lists(source)
            if needs_label and not lists.has_labels:
                raise ValueError("the lists must have labels, got none: convert them with `label`")
            return with_schema(lists, schema, tell)
    if needs_label and schema.label is None:
        raise ValueError(f"label must name the column of the labels, got None{of_file(source)}")
    optional = schema.optional(needs_label=needs_label, needs_weight=needs_weight)
    frame, unused = load_columns(source, schema, optional)
    if unused and tell is not None:
        tell(f"columns that the model does not use: {shown_names(unused)}")
    with naming(source):
        return frame_lists(frame, schema)[0]


def frame_lists(
    frame: Frame,
    schema: Schema,
    exact: bool = False,
    order: "RowOrder | None" = None,
) -> tuple[ListDataset, np.ndarray | None]:
    """Return the lists of a table in memory and, if `exact`, their features in float64.

    The features are copied only once, or twice if `exact`; see `read_table` for the errors.

    Args:
        frame: the table, with the columns of the schema. Those of the labels, the weight, the
            position and the protected group may be missing.
        schema: how the columns are used.
        exact: whether the features in float64 are returned too; otherwise they are None.
        order: the order of the rows. Default: that of the column of qids; if its name is "", all
            rows are one list, in their order.
    """
    if order is None and schema.qid:
        order = RowOrder.of(*group_rows(frame.column(schema.qid), schema.qid))
    order = order or RowOrder.of(np.zeros(frame.num_rows, np.int64), ["0"])
    rows = order.rows
    features, numbers = features_of(frame, schema, rows, exact)
    codes = None
    if categories := schema.categories:
        codes = np.empty((len(rows), len(categories)), np.int64)
        for position, (name, category) in enumerate(categories.items()):
            codes[:, position] = category.read(name, _column(frame, name, category))[rows, 0]
    uses = {use: getattr(schema, use) for use in _RULES if use != "label"}
    by_use = {
        use: amounts(frame, name, use)[rows]
        for use, name in uses.items()
        if name in frame.column_names
    }
    if "position" in by_use:
        by_use["position"] = by_use["position"].astype(np.int64)
    doc_id = None
    if schema.doc_id is not None:
        ids = _names(frame.column(schema.doc_id), schema.doc_id, "a document id")
        doc_id = ids.take(pa.array(rows))
    lists = ListDataset(
        features,
        labels_of(frame, schema, rows),
        order.offsets,
        order.qids,
        doc_id,
        categories=codes,
        rows=rows,
        **by_use,
    )
    return lists, numbers


@dataclass(frozen=True)
class RowOrder:
    """The order of a table's rows that puts the rows of each list together.

    Attributes:
        rows: int64 (documents,), the row of each document.
        offsets: int64 (lists + 1,), where each list starts, and where the last one ends.
        qids: the qid of each list.
        train: the number of training lists, which come first; the other lists are held out.

    >>> order = RowOrder.of(np.array([0, 1, 0, 2]), ["a", "b", "c"], np.array([True, False, False]))
    >>> order.rows.tolist(), order.offsets.tolist(), order.qids, order.train
    ([1, 3, 0, 2], [0, 1, 2, 4], ['b', 'c', 'a'], 2)
    """

    rows: np.ndarray
    offsets: np.ndarray
    qids: list[str]
    train: int

    @classmethod
    def of(
        cls, lists: np.ndarray, qids: Sequence[str], held: np.ndarray | None = None
    ) -> "RowOrder":
        """Return an order that keeps the given order of lists, and of the rows in each list.

        Args:
            lists: int64 (rows,), the number of each row's list.
            qids: the qid of each list.
            held: bool (lists,), whether each list is held out. Held-out lists come last. Default:
                no list is held out.
        """
        names, train = [*qids], len(qids)
        if held is not None:
            chosen = np.r_[np.flatnonzero(~held), np.flatnonzero(held)]
            names, train = [names[i] for i in chosen.tolist()], train - int(held.sum())
            number = np.empty(len(names), np.int64)
            number[chosen] = np.arange(len(names))
            lists = number[lists]
        lengths = np.bincount(lists, minlength=len(names))
        offsets = np.r_[0, np.cumsum(lengths)].astype(np.int64)
        return cls(np.argsort(lists, kind="stable"), offsets, names, train)


def labels_of(frame: Frame, schema: Schema, rows: np.ndarray) -> np.ndarray | None:
    """Return the labels of a table, float32 (rows,), or (rows, labels) if it has several.

    Several labels may be missing, which is NaN. The result is None if a column is missing.

    Args:
        frame: the table.
        schema: how the columns are used.
        rows: int64 (rows,), a permutation of the table's rows.
    """
    if not schema.labels or not {*schema.labels} <= {*frame.column_names}:
        return None
    several = len(schema.labels) > 1
    columns = [amounts(frame, name, "label", unknown=several)[rows] for name in schema.labels]
    return np.stack(columns, axis=1) if several else columns[0]


def features_of(
    frame: Frame, schema: Schema, rows: np.ndarray, exact: bool = False
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the features of a table in float32 and, if `exact`, in float64, (rows, d) each.

    Args:
        frame: the table, with the columns of the schema.
        schema: how the columns are used.
        rows: int64 (rows,), a permutation of the table's rows.
        exact: whether the features are also returned in float64, for rankers that compare numbers
            without rounding, such as trees; otherwise they are None.

    Raises:
        ValueError: a column has another type than in the schema, or a value is infinite in float32.
    """
    shape = frame.num_rows, schema.num_features
    features, numbers = np.empty(shape, np.float32), np.empty(shape) if exact else None
    start = 0
    for name, width in schema.features.items():
        step = schema.steps[name]
        assert not isinstance(step, Category)  # `features` has no categories
        values = step.read(name, _column(frame, name, step), np.float64 if exact else np.float32)
        columns = slice(start, start := start + width)
        if numbers is not None:
            numbers[:, columns] = values.take(rows, axis=0)
        with np.errstate(over="ignore"):  # overflow gives infinity, which is refused
            values = values.astype(np.float32, copy=False)
        for row in np.flatnonzero(np.isinf(values).any(axis=1))[:1]:
            value = _shown(frame, name, int(row))
            raise RowError(int(row), name, f"must be finite in float32, got {value}")
        features[:, columns] = values.take(rows, axis=0)
    return features, numbers


def _column(frame: Frame, name: str, step: Step) -> pa.ChunkedArray:
    """Return a column that a step can read; raise a `ValueError` if it has another type."""
    column = or_nulls(frame.column(name))
    if isinstance(step, Number) and kind_of(column.type) == "string":
        raise _not_a_number(column, name, "a feature")
    step.check(name, column.type)
    return column


def group_rows(column: pa.ChunkedArray, name: str) -> tuple[np.ndarray, list[str]]:
    """Return the number of each row's list, int64 (rows,), and the qids in order of appearance.

    `ltr.columns.qid_text` says which qids are the same.

    Args:
        column: the column of the qids.
        name: the name of the column, for errors.

    Raises:
        ValueError: a qid is missing, empty, or neither a name nor a number.

    >>> groups, qids = group_rows(pa.chunked_array([["b", "a"], ["b"]]), "q")
    >>> groups.tolist(), qids
    ([0, 1, 0], ['b', 'a'])
    """
    groups, qids = numbered(_names(column, name, "a qid"))
    for row in np.flatnonzero(pc.equal(qids, "").to_numpy(zero_copy_only=False))[:1]:
        raise RowError(int(np.argmax(groups == row)), name, "a qid must not be empty")
    return groups, qids.to_pylist()


def amounts(frame: Frame, name: Any, use: str, *, unknown: bool = False) -> np.ndarray:
    """Return the values of a column, float32 (rows,), after the checks of `_RULES` for its use.

    Args:
        frame: the table.
        name: the name of the column.
        use: its use.
        unknown: whether values may be missing, which is NaN.

    Raises:
        ValueError: see `read_table`.
    """
    what, rule, holds = _RULES[use]
    if kind_of((column := or_nulls(frame.column(name))).type) == "string":
        raise _not_a_number(column, name, what)
    if kind_of(dtype := frame.schema.field(name).type) not in ("number", "boolean", "missing"):
        raise ValueError(f"column {name!r}: {what} must be a number, got type {dtype}")
    values = Number().read(name, frame.column(name))[:, 0]
    good = np.isfinite(values) & holds(values)
    if unknown:
        good |= np.isnan(values)
    for row in np.flatnonzero(~good)[:1]:
        problem = f"{what} must be {rule}, got {_shown(frame, name, int(row))}"
        if values[row] < 0 and use == "label":
            problem += " (leave out rows of padding or without a judgement)"
        raise RowError(int(row), name, problem)
    return values


def _not_a_number(column: pa.ChunkedArray, name: str, what: str) -> RowError:
    """Return the error of a text column that must have numbers; it names the first wrong row."""
    row = max(0, pc.index(are_numbers(column.cast(pa.string())), False).as_py())
    return RowError(row, name, f"{what} must be a number, got {shown(column[row].as_py())}")


def _names(column: pa.ChunkedArray, name: str, what: str) -> pa.Array:
    """Return a column of names as text; raise an error if a value is missing or no name."""
    missing = pc.is_null(without_codes(column), nan_is_null=True)
    for row in np.flatnonzero(missing.to_numpy())[:1]:
        raise RowError(int(row), name, f"{what} must not be missing")
    return name_texts(column, f"column {name!r}: {what}")


def _shown(frame: Frame, name: str, row: int) -> str:
    return shown(frame.column(name)[row].as_py())
