"""Prepare tables for training: a schema, training lists and validation lists."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.arrays import check_columns
from ltr.datasets.column_steps import count_levels
from ltr.datasets.infer import Rows, check_roles, infer_columns, no_column
from ltr.datasets.list_tables import holds_lists, load_lists, schema_of, with_schema
from ltr.datasets.lists import ListDataset
from ltr.datasets.reading import (
    RowOrder,
    frame_lists,
    group_rows,
    read_table,
)
from ltr.datasets.schema import Schema
from ltr.datasets.splits import hold_out
from ltr.datasets.table_files import (
    column_names,
    load_columns,
    load_frame,
    naming,
    typed_files,
)
from ltr.datasets.table_notices import notice, warn_caller


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
        divided: whether the weights are divided by their mean, as the estimators do with weights.
    """

    schema: Schema
    train: ListDataset
    val: ListDataset | None
    notice: str = ""
    exact: np.ndarray | None = None
    exact_val: np.ndarray | None = None
    list_weights: bool = False
    divided: bool = False


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

    >>> import pyarrow as pa
    >>> table = pa.table({"q": ["a", "a", "b", "c"], "y": [0, 1, 1, 0], "x": [1.0, 2.0, 3.0, 4.0]})
    >>> prepared = prepare(table, {"qid": "q", "label": "y"}, validation=0.5)
    >>> prepared.schema.features, prepared.train.qids, prepared.val.qids
    ({'x': 1}, ['a'], ['b', 'c'])
    """
    if isinstance(source, ListDataset | Prepared) or holds_lists(source):
        prepared = source
        if not isinstance(prepared, Prepared):
            lists = source if isinstance(source, ListDataset) else load_lists(source)
            schema = schema or schema_of(lists, roles)
            prepared = Prepared(schema, with_schema(lists, schema, tell), None)
        if not validation or prepared.val is not None:
            return prepared
        lists = prepared.train
        held = hold_out(lists.qid_texts, validation, seed)
        if held is None:
            return prepared
        train, val = (lists.select(np.flatnonzero(side)) for side in (~held, held))
        prepared = replace(prepared, train=train, val=val)
        if prepared.exact is not None:
            inside = np.repeat(held, lists.lengths)
            prepared = replace(
                prepared, exact=prepared.exact[~inside], exact_val=prepared.exact[inside]
            )
        return prepared
    if schema is None:
        for key in ("qid", "label"):
            if roles.get(key) is None:
                with naming(source):
                    raise no_column(key, None, column_names(source))
        check_columns(roles)
        frame = load_frame(source, _texts(roles))
    else:
        frame, _ = load_columns(source, schema)
    message = ""
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
            schema, counts, message = _describe(frame, roles, most)
            if held is not None:
                trained = pa.array(~held[lists])
                counts = {
                    name: count_levels(frame.column(name).filter(trained))
                    for name in schema.categories
                }
            schema = schema.with_levels(counts, most)
        data, numbers = frame_lists(frame, schema, exact=exact, order=order)
    if held is None:
        return Prepared(schema, data, None, message, numbers)
    train, val = data.between(0, order.train), data.between(order.train, len(data))
    if numbers is None:
        return Prepared(schema, train, val, message)
    numbers, others = np.split(numbers, order.offsets[[order.train]])
    return Prepared(schema, train, val, message, numbers, others)


def prepare_varied(
    source: Any, roles: Mapping[str, Any], *, validation: float, **options: Any
) -> Prepared:
    """Return the result of `prepare`, without validation lists on which no metric could differ.

    The training lists and the validation lists each need a list with two distinct labels.
    Otherwise all lists are training lists.
    """
    prepared = prepare(source, roles, validation=validation, **options)
    sides = [lists for lists in (prepared.train, prepared.val) if lists is not None]
    if len(sides) < 2 or all(lists.varied().any() for lists in sides):
        return prepared
    return prepare(source, roles, **options)


def validated(prepared: Prepared, source: Any) -> Prepared:
    """Return prepared lists with the lists of another table as validation lists.

    The table need not have the columns of weight, position and protected, which metrics do not use.

    Args:
        prepared: the prepared lists, whose schema says how the columns are used.
        source: the table; see `read_table`.

    Raises:
        ValueError: see `read_table`.
    """
    plain = replace(prepared.schema, weight=None, position=None, protected=None)
    if prepared.exact is None or holds_lists(source):
        return replace(prepared, val=read_table(source, plain))
    frame, _ = load_columns(source, plain)
    with naming(source):
        val, exact = frame_lists(frame, plain, exact=True)
    return replace(prepared, val=val, exact_val=exact)


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
        schema, counts, message = _describe(files, roles, max_levels)
        warn_caller(message)
        return schema.with_levels(counts, max_levels)


def _describe(
    table: Rows, roles: Mapping[str, Any], max_levels: int
) -> tuple[Schema, Mapping[str, Mapping[str, int]], str]:
    """Return the schema of a table, the counts of its levels, and the notice about its columns.

    Args:
        table: the table.
        roles: see `prepare`.
        max_levels: see `Schema.fit_levels`.
    """
    inferred = infer_columns(table, roles)
    keys = {key: name for key, name in roles.items() if key not in ("features", "categories")}
    schema = Schema(**keys, steps=inferred.steps)
    return schema, inferred.counts, notice(table, schema, inferred, max_levels, roles)


def _texts(roles: Mapping[str, Any]) -> set[str]:
    """Return the columns of a CSV file that are read as text, whatever their values are."""
    names = {roles.get("qid"), roles.get("doc_id"), *(roles.get("categories") or ())}
    return {name for name in names if name is not None}
