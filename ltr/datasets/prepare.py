"""Read tables into lists: with a model's schema, or with a new schema for training."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.arrays import check_columns, name_texts, pc
from ltr.datasets.column_steps import (
    Category,
    Number,
    RowError,
    kind_of,
    or_nulls,
    shown,
    without_codes,
)
from ltr.datasets.frames import Frame
from ltr.datasets.infer import Rows, check_roles, infer_columns, no_column
from ltr.datasets.list_tables import holds_lists, load_lists, schema_of, with_schema
from ltr.datasets.lists import ListDataset
from ltr.datasets.schema import Schema
from ltr.datasets.splits import hold_out
from ltr.datasets.table_files import (
    column_names,
    first_text,
    load_columns,
    load_frame,
    naming,
    of_file,
    typed_files,
)
from ltr.datasets.table_notices import notice, warn_caller
from ltr.names import shown_names

_COLUMNS = 8  # each block of columns but the last has at least this many
_ROWS = 1 << 12  # this many rows are written at a time

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
        return _frame_lists(frame, schema, optional)[0]


def _frame_lists(
    frame: Frame, schema: Schema, optional: Collection[str] = (), exact: bool = False
) -> tuple[ListDataset, np.ndarray | None]:
    """Return the lists of a table in memory and, if `exact`, their features in float64."""
    check_types(frame, schema, optional)
    order = RowOrder.of(*group_rows(frame.column(schema.qid), schema.qid))
    numbers = features_of(frame, schema, order.rows, np.float64) if exact else None
    return to_lists(frame, schema, order), numbers


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


def check_types(frame: Frame, schema: Schema, optional: Collection[str] = ()) -> None:
    """Raise a `ValueError` if a column is missing or has values of another type than the schema."""
    known = {*frame.column_names}
    for name, step in schema.steps.items():
        if isinstance(step, Number) and name in known:
            _refuse_text(frame, name, "a feature")
    schema.check(frame, optional)


def to_lists(frame: Frame, schema: Schema, order: RowOrder) -> ListDataset:
    """Return the rows of a table as lists, copying its features only once; see `read_table`.

    Args:
        frame: the table, with the columns of the schema.
        schema: how the columns are used.
        order: the order of the rows.
    """
    rows = order.rows
    features = features_of(frame, schema, rows)
    codes = None
    if categories := schema.categories:
        codes = np.empty((len(rows), len(categories)), np.int64)
        for position, (name, one) in enumerate(categories.items()):
            codes[:, position] = one.read(name, or_nulls(frame.column(name)))[rows, 0]
    uses = {use: getattr(schema, use) for use in _RULES}
    numbers = {
        use: amounts(frame, name, use)[rows]
        for use, name in uses.items()
        if name in frame.column_names
    }
    if "position" in numbers:
        numbers["position"] = numbers["position"].astype(np.int64)
    doc_id = None
    if schema.doc_id is not None:
        ids = without_codes(frame.column(schema.doc_id))
        what = "a document id"
        _refuse(pc.is_null(ids, nan_is_null=True), schema.doc_id, f"{what} must not be missing")
        with _naming_type(schema.doc_id, what):
            doc_id = name_texts(ids, f"column {schema.doc_id!r}: {what}").take(pa.array(rows))
    return ListDataset(
        features,
        numbers.pop("label", None),
        order.offsets,
        order.qids,
        doc_id,
        categories=codes,
        rows=rows,
        **numbers,
    )


def features_of(
    frame: Frame,
    schema: Schema,
    rows: np.ndarray,
    dtype: Any = np.float32,
) -> np.ndarray:
    """Return the features of a table, (rows, d), with its rows in the given order.

    Args:
        frame: the table, with the columns of the schema.
        schema: how the columns are used.
        rows: int64 (rows,), a permutation of the table's rows.
        dtype: float32, or float64 for rankers that compare numbers without rounding, such as trees.

    Raises:
        ValueError: a value is infinite in `dtype`.
    """
    in_order = (rows[1:] > rows[:-1]).all()
    found = np.empty((frame.num_rows, schema.num_features), dtype=dtype)
    block: list[np.ndarray] = []
    start = end = 0
    for name, width in schema.features.items():
        step = schema.steps[name]
        assert not isinstance(step, Category)  # `features` has no categories
        values = step.read(name, or_nulls(frame.column(name)), dtype)
        for row in np.flatnonzero(np.isinf(values).any(axis=1))[:1]:
            value = _shown(frame, name, int(row))
            raise RowError(int(row), name, f"must be finite in float32, got {value}")
        block.append(values if in_order else values.take(rows, axis=0))
        end += width
        # Writing 8 columns of a matrix is as fast as writing one, so a block of them is written.
        if end - start >= _COLUMNS or end == found.shape[1]:
            for row in range(0, len(found), _ROWS):
                some = slice(row, row + _ROWS)
                np.concatenate([one[some] for one in block], axis=1, out=found[some, start:end])
            start, block = end, []
    return found


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
    column = without_codes(column)
    _refuse(pc.is_null(column, nan_is_null=True), name, "a qid must not be missing")
    with _naming_type(name, "a qid"):
        encoded = column.combine_chunks().dictionary_encode()
        # Different values, such as 0.0 and -0.0, may be the same qid.
        texts = name_texts(encoded.dictionary, f"column {name!r}").dictionary_encode()
    groups = texts.indices.take(encoded.indices).to_numpy().astype(np.int64)
    qids = texts.dictionary
    for row in np.flatnonzero(pc.equal(qids, "").to_numpy(zero_copy_only=False))[:1]:
        raise RowError(int(np.argmax(groups == row)), name, "a qid must not be empty")
    return groups, qids.to_pylist()


def amounts(frame: Frame, name: Any, use: str) -> np.ndarray:
    """Return the values of a column, float32 (rows,), after the checks of `_RULES` for its use.

    Raises:
        ValueError: see `read_table`.
    """
    what, rule, holds = _RULES[use]
    _refuse_text(frame, name, what)
    if kind_of(dtype := frame.schema.field(name).type) not in ("number", "boolean", "missing"):
        raise ValueError(f"column {name!r}: {what} must be a number, got type {dtype}")
    values = Number().read(name, frame.column(name))[:, 0]
    for row in np.flatnonzero(~(np.isfinite(values) & holds(values)))[:1]:
        problem = f"{what} must be {rule}, got {_shown(frame, name, int(row))}"
        if values[row] < 0 and use == "label":
            problem += " (leave out rows of padding or without a judgement)"
        raise RowError(int(row), name, problem)
    return values


def _refuse_text(frame: Frame, name: str, what: str) -> None:
    """Raise an error if a column that must have numbers is text; name the first wrong row."""
    is_text = kind_of(frame.schema.field(name).type) == "string"
    if is_text and kind_of(or_nulls(frame.column(name)).type) == "string":
        row = max(0, first_text(frame.column(name).cast(pa.string())))
        raise RowError(row, name, f"{what} must be a number, got {_shown(frame, name, row)}")


@contextmanager
def _naming_type(name: str, what: str) -> Iterator[None]:
    """Raise a `ValueError` that names the column, if Arrow cannot convert its values to text."""
    try:
        yield
    except pa.ArrowException as error:
        raise ValueError(f"column {name!r}: {what} must be a name or a number: {error}") from None


def _refuse(bad: pa.ChunkedArray, name: str, problem: str) -> None:
    for row in np.flatnonzero(bad.to_numpy())[:1]:
        raise RowError(int(row), name, problem)


def _shown(frame: Frame, name: str, row: int) -> str:
    return shown(frame.column(name)[row].as_py())


@dataclass(frozen=True)
class Prepared:
    """A table that is ready for training.

    Attributes:
        schema: how each column is used, with the levels of categories in the training lists.
        train: the training lists.
        val: the validation lists, or None if none are held out.
        notice: a message about the table's columns, to be shown before training, or "".
        exact: float64 (documents, d), the features of `train` as they were read, not rounded to
            float32; None if `prepare` was not asked for them.
        exact_val: the same for `val`.
        list_weights: whether the weights are those of lists: equal within each list, so that they
            are factors of the lists' losses.
    """

    schema: Schema
    train: ListDataset
    val: ListDataset | None
    notice: str = ""
    exact: np.ndarray | None = None
    exact_val: np.ndarray | None = None
    list_weights: bool = False


def prepare(
    source: Any,
    roles: Mapping[str, Any],
    *,
    validation: float = 0.0,
    seed: int = 0,
    max_levels: int | Callable[[int], int] = 256,
    schema: Schema | None = None,
    exact: bool = False,
    tell: Callable[[str], Any] | None = None,
) -> Prepared:
    """Return the schema of a table, its training lists and its validation lists.

    All features are written once, into one array in the order of the lists, with the training lists
    first. The features of training and validation lists are slices of this array. So the function
    takes the memory of this array and of a few of the table's columns, plus 30 bytes per row. Lists
    on disk are not loaded into memory.

    Args:
        source: a table (see `load_table`) or a `Frame`; LETOR text, or lists on disk or in memory,
            whose roles may be left out (see `load_lists` and `schema_of`); or a `Prepared`, which
            gets validation lists if it has none, and is otherwise returned unchanged.
        roles: the names of the columns by their use, as `Schema.infer` takes them: "qid", "label",
            "weight", "position", "protected", "doc_id", "features", "categories".
        validation: the fraction of the queries that is held out for validation, in [0, 1). A hash
            of the qid and `seed` decides, so a query is either always held out or never. If no
            query would be held out, or none would remain for training, `val` is None.
        seed: the seed of the hash.
        max_levels: see `Schema.fit_levels`; or a function that returns this limit for a number of
            training documents.
        schema: the schema of an earlier training run, with its levels. Default: a new schema for
            the table.
        exact: whether the result has the features in float64 too, for boosted trees; not for
            lists, which have been rounded already.
        tell: see `with_schema`.

    Raises:
        ValueError: the errors of `load_table`, `Schema.infer` and `read_table`, or of `load_lists`,
            `schema_of` and `with_schema`.

    >>> table = pa.table({"q": ["a", "a", "b", "c"], "y": [0, 1, 1, 0], "x": [1.0, 2.0, 3.0, 4.0]})
    >>> found = prepare(table, {"qid": "q", "label": "y"}, validation=0.5)
    >>> found.schema.features, found.train.qids, found.val.qids
    ({'x': 1}, ['a'], ['b', 'c'])
    """
    if isinstance(source, ListDataset | Prepared) or holds_lists(source):
        found = source
        if not isinstance(found, Prepared):
            lists = source
            if not isinstance(lists, ListDataset):
                lists = load_lists(source)
            schema = schema or schema_of(lists, roles)
            found = Prepared(schema, with_schema(lists, schema, tell), None)
        if not validation or found.val is not None:
            return found
        lists = found.train
        held = hold_out(lists.qid_texts, validation, seed)
        if held is None:
            return found
        train, val = (lists.select(np.flatnonzero(side)) for side in (~held, held))
        found = replace(found, train=train, val=val)
        if found.exact is not None:
            inside = np.repeat(held, lists.lengths)
            found = replace(found, exact=found.exact[~inside], exact_val=found.exact[inside])
        return found
    if schema is None:
        for key in ("qid", "label"):
            if roles.get(key) is None:
                with naming(source):
                    raise no_column(key, None, column_names(source))
        check_columns(roles)
        frame = load_frame(source, _texts(roles))
    else:
        frame, _ = load_columns(source, schema)
    told = ""
    with naming(source):
        if schema is None:
            check_roles(frame.schema, roles)
        qid = roles["qid"] if schema is None else schema.qid
        lists, qids = group_rows(frame.column(qid), qid)
        held = hold_out(qids, validation, seed) if validation else None
        order = RowOrder.of(lists, qids, held)
        if schema is None:
            documents = int(order.offsets[order.train])
            most = max_levels(documents) if callable(max_levels) else max_levels
            trained = None if held is None else ~held[lists]
            schema, told = _describe(frame, roles, most, trained)
        check_types(frame, schema)
        data = to_lists(frame, schema, order)
        numbers = features_of(frame, schema, order.rows, np.float64) if exact else None
    if held is None:
        return Prepared(schema, data, None, told, numbers)
    train, val = data.between(0, order.train), data.between(order.train, len(data))
    if numbers is None:
        return Prepared(schema, train, val, told)
    numbers, others = np.split(numbers, order.offsets[[order.train]])
    return Prepared(schema, train, val, told, numbers, others)


def prepare_varied(
    source: Any, roles: Mapping[str, Any], *, validation: float, **options: Any
) -> Prepared:
    """Return the result of `prepare`, without validation lists on which no metric could differ.

    The training lists and the validation lists each need a list with two distinct labels.
    Otherwise all lists are training lists.
    """
    found = prepare(source, roles, validation=validation, **options)
    sides = [lists for lists in (found.train, found.val) if lists is not None]
    if len(sides) < 2 or all(lists.varied().any() for lists in sides):
        return found
    return prepare(source, roles, **options)


def validated(found: Prepared, source: Any) -> Prepared:
    """Return prepared lists with the lists of another table as validation lists.

    The table need not have the columns of weight, position and protected, which metrics do not use.

    Args:
        found: the prepared lists, whose schema says how the columns are used.
        source: the table; see `read_table`.

    Raises:
        ValueError: see `read_table`.
    """
    plain = replace(found.schema, weight=None, position=None, protected=None)
    if found.exact is None or holds_lists(source):
        return replace(found, val=read_table(source, plain))
    frame, _ = load_columns(source, plain)
    with naming(source):
        val, exact = _frame_lists(frame, plain, exact=True)
    return replace(found, val=val, exact_val=exact)


def scan_table(path: Path, *, max_levels: int, **roles: Any) -> Schema:
    """Return the schema of files that need not fit into memory, with the levels of its categories.

    `prepare` finds the same schema if `validation` is 0. A CSV file is first read once to find the
    types of its columns; see `infer_columns` for the other passes. A warning names the columns that
    look like mistakes.

    Args:
        path: the file, folder or pattern.
        max_levels: see `Schema.fit_levels`.
        roles: the names of the columns by their use; see `Schema.infer`.

    Raises:
        ValueError: the errors of `load_table` and `Schema.infer`.
    """
    files = typed_files(path, _texts(roles))
    with naming(path):
        schema, told = _describe(files, roles, max_levels)
        warn_caller(told)
        return schema


def _describe(
    table: Rows,
    roles: Mapping[str, Any],
    max_levels: int,
    trained: np.ndarray | None = None,
) -> tuple[Schema, str]:
    """Return the schema of a table, and the notice about its columns; see `prepare`.

    Args:
        table: the table.
        roles: see `prepare`.
        max_levels: see `Schema.fit_levels`.
        trained: bool (rows,), whether each row is in a training list. Default: all are.
    """
    found = infer_columns(table, roles, trained)
    keys = {key: name for key, name in roles.items() if key not in ("features", "categories")}
    schema = Schema(**keys, steps=found.steps)
    told = notice(table, schema, found, max_levels, roles)
    return schema.with_levels(found.trained, max_levels), told


def _texts(roles: Mapping[str, Any]) -> set[str]:
    """Return the columns of a CSV file that are read as text, whatever their values are."""
    names = {roles.get("qid"), roles.get("doc_id"), *(roles.get("categories") or ())}
    return {name for name in names if name is not None}
