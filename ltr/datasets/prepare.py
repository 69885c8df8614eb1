"""Prepare a table for training: its schema, the training lists and the validation lists."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from ltr.datasets.lists import ListDataset
from ltr.datasets.query_splits import hold_out, hold_out_informative
from ltr.datasets.schema import Schema, count_levels, no_column
from ltr.datasets.table_files import column_names, load_columns, load_frame, naming
from ltr.datasets.table_notices import notice
from ltr.datasets.tables import RowOrder, check_types, group_rows, label_numbers, to_lists


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
            "weight", "position", "group", "doc_id", "features", "categories".
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
        text = {name for name in (roles["qid"], roles.get("doc_id")) if name is not None}
        frame = load_frame(source, text | {*(roles.get("categories") or ())})
    else:
        frame, _ = load_columns(source, schema)
    with naming(source):
        found = schema or Schema.infer(frame, **roles)
        check_types(frame, found)
        lists, qids = group_rows(frame.column(found.qid), found.qid)
        held = None
        if validation and few == "error":
            held = hold_out(qids, validation, seed)
        elif validation:
            labels = label_numbers(frame, found)
            held = hold_out_informative(lists, qids, labels, validation, seed)
        order = RowOrder.of(lists, qids, held)
        documents = int(order.offsets[order.train])
        most = max_levels if isinstance(max_levels, int) else max_levels(documents)
        if schema is None:
            trained = None if held is None else pa.array(~held[lists])
            columns = {name: frame.column(name) for name in found.categories}
            if trained is not None:
                columns = {name: column.filter(trained) for name, column in columns.items()}
            counts = {name: count_levels(column) for name, column in columns.items()}
            found = found.with_levels(counts, most)
        data = to_lists(frame, found, order, missing)
    told = ""
    if schema is None:
        chosen = roles.get("features"), roles.get("categories")
        told = notice(frame, found, most, *chosen, names_uses=names_uses)
    if held is None:
        return Prepared(found, data, None, told)
    train, val = data.between(0, order.train), data.between(order.train, len(data))
    return Prepared(found, train, val, told)
