"""Prepare a table for training: its schema, the training lists and the validation lists."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from ltr.arrays import check_columns
from ltr.datasets.infer import check_roles, infer_columns, no_column
from ltr.datasets.lists import ListDataset
from ltr.datasets.schema import Schema
from ltr.datasets.splits import hold_out, hold_out_informative
from ltr.datasets.table_files import (
    TableFiles,
    column_names,
    load_columns,
    load_frame,
    naming,
    typed,
)
from ltr.datasets.table_notices import notice, warn_caller
from ltr.datasets.tables import RowOrder, amounts, check_types, group_rows, to_lists


@dataclass(frozen=True)
class Prepared:
    """A table that is ready for training.

    Attributes:
        schema: how each column is used, with the levels of the training lists.
        train: the training lists.
        val: the validation lists, or None if none are held out.
        notice: what to tell of the columns before training, or "".
    """

    schema: Schema
    train: ListDataset
    val: ListDataset | None
    notice: str = ""


def prepare(
    source: Any,
    roles: Mapping[str, Any],
    *,
    validation: float = 0.0,
    seed: int = 0,
    few: Literal["error", "none"] = "error",
    max_levels: int | Callable[[int], int] = 256,
    missing: Literal["keep", "error"] = "keep",
    schema: Schema | None = None,
    names_uses: bool = True,
) -> Prepared:
    """Return the schema of a table, its training lists and its validation lists.

    All numbers are written once, into one array in the order of the lists, the training lists
    first. Training and validation lists are parts of that array. So it takes memory for that array,
    for a few of the table's columns, and for 30 bytes a row.

    Args:
        source: see `load_table`; or a `Frame`.
        roles: the names of the columns by their use, as `Schema.infer` takes them: "qid", "label",
            "weight", "position", "protected", "doc_id", "features", "categories".
        validation: the fraction of the queries that is held out for validation, in [0, 1). A hash
            of the qid and `seed` decides, so a query always stays on its side.
        seed: of the hash.
        few: whether it is an error if no query would be held out or none would remain. Otherwise
            `val` is None then, and also if either side has only lists of equal labels.
        max_levels: see `Schema.fit_levels`; or a function of the number of training documents.
        missing: see `read_table`.
        schema: of an earlier training, whose levels are kept. Default: that of the table.
        names_uses: whether the caller can name columns as features and categories: the notice
            advises to do so.

    Raises:
        ValueError: the errors of `load_table`, `Schema.infer` and `read_table`; or `validation`
            leaves no query on one side.

    >>> table = pa.table({"q": ["a", "a", "b", "c"], "y": [0, 1, 1, 0], "x": [1.0, 2.0, 3.0, 4.0]})
    >>> found = prepare(table, {"qid": "q", "label": "y"}, validation=0.5)
    >>> found.schema.features, found.train.qids, found.val.qids
    ({'x': 1}, ['a'], ['b', 'c'])
    """
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
        qid, label = (
            (roles["qid"], roles["label"]) if schema is None else (schema.qid, schema.label)
        )
        lists, qids = group_rows(frame.column(qid), qid)
        held = None
        if validation and few == "error":
            held = hold_out(qids, validation, seed)
        elif validation:
            labels = amounts(frame, label, "label")
            held = hold_out_informative(lists, qids, labels, validation, seed)
        order = RowOrder.of(lists, qids, held)
        if schema is None:
            documents = int(order.offsets[order.train])
            most = max_levels if isinstance(max_levels, int) else max_levels(documents)
            trained = None if held is None else ~held[lists]
            inferred = infer_columns(frame.schema, frame.chunks, roles, trained)
            schema = Schema(**_keys(roles), steps=inferred.steps)
            known = frame.schema, frame.chunks, schema, inferred, most, roles
            told = notice(*known, names_uses=names_uses)
            schema = schema.with_levels(inferred.trained, most)
        check_types(frame, schema)
        data = to_lists(frame, schema, order, missing)
    if held is None:
        return Prepared(schema, data, None, told)
    train, val = data.between(0, order.train), data.between(order.train, len(data))
    return Prepared(schema, train, val, told)


def scan_table(path: Path, *, max_levels: int, **roles: Any) -> Schema:
    """Return the schema of files that need not fit into memory, with the levels of its categories.

    It is the one that `prepare` finds without validation. A CSV file takes a pass for the types of
    its columns; see also `infer_columns`. A warning names the columns that look like a mistake.

    Args:
        path: the file, folder or pattern.
        max_levels: see `Schema.fit_levels`.
        roles: the names of the columns by their use; see `Schema.infer`.

    Raises:
        ValueError: the errors of `load_table` and `Schema.infer`.
    """
    files = TableFiles(path)
    with naming(path):
        columns, types = files.schema, None
        if files.delimiter is not None:
            types = files.find_types(_texts(roles))
            columns = pa.schema([*types.items()])

        def read(names: Sequence[str], rows: int) -> Iterator[pa.Table]:
            for _, table in files.chunks(names, rows):
                yield table if types is None else typed(table, types)

        found = infer_columns(columns, read, roles)
        schema = Schema(**_keys(roles), steps=found.steps)
        warn_caller(notice(columns, read, schema, found, max_levels, roles))
        return schema.with_levels(found.counts, max_levels)


def _keys(roles: Mapping[str, Any]) -> dict[str, Any]:
    """Return the roles of single columns, which a `Schema` has as its attributes."""
    return {key: name for key, name in roles.items() if key not in ("features", "categories")}


def _texts(roles: Mapping[str, Any]) -> set[str]:
    """Return the columns of a CSV file that are text whatever their values are."""
    names = {roles.get("qid"), roles.get("doc_id"), *(roles.get("categories") or ())}
    return {name for name in names if name is not None}
