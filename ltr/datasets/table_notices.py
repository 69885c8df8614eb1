"""Warn about the columns of a table before training: one warning names them all."""

import inspect
import warnings
from collections.abc import Mapping, Sequence

import pyarrow as pa

from ltr.arrays import pc
from ltr.datasets.dates import is_date
from ltr.datasets.schema import Schema, count_levels, index_columns, kind_of, without_codes
from ltr.datasets.text_types import parsed

_LIBRARIES = ("ltr", "lightning", "lightning_utilities", "torch", "jsonargparse", "sklearn")
_UNIQUE = 0.8
"""A notice names text columns with more different values than this share of the rows."""

_FEW = 20  # tables of up to this many rows get no notice


def warn_of_table(
    table: pa.Table,
    schema: Schema,
    max_levels: int,
    *,
    chosen: bool = False,
    names_uses: bool = True,
) -> None:
    """Warn about the columns of a table in memory; see `warn_of_columns`."""
    distinct = {name: len(count_levels(table.column(name))) for name in schema.categories}
    copies = copies_of_qid(table, schema.qid)
    found = table.schema, schema, table.num_rows, distinct, copies, max_levels
    warn_of_columns(*found, chosen=chosen, names_uses=names_uses)


def warn_of_columns(
    columns: pa.Schema,
    schema: Schema,
    rows: int,
    distinct: Mapping[str, int],
    copies: Sequence[str],
    max_levels: int,
    *,
    chosen: bool = False,
    names_uses: bool = True,
) -> None:
    """Warn about columns that are not used, and columns that should probably not be used.

    These are columns that are neither numbers, dates, text nor booleans, such as durations; the
    index of a pandas frame; text that looks like dates; text with nearly one value per row; a
    feature or category that equals the qid; and categories with more levels than codes. The warning
    points to the first line outside of this package and its libraries.

    Args:
        columns: of the table, with their types.
        schema: how they are used.
        rows: of the table.
        distinct: the number of different values of each category.
        copies: the columns that equal the qid in all rows.
        max_levels: see `Schema.fit_levels`.
        chosen: whether the user has named both the features and the categories, so that the other
            columns are left out on purpose.
        names_uses: whether the user can name columns as features, categories and `doc_id`. If not,
            the advice is to change the table.
    """
    used, indexes = {*schema.columns}, index_columns(columns)
    told, drop = [], "drop it from X"
    unused = [
        field
        for field in columns
        if field.name not in used and (kind_of(field.type) == "other" or field.name in indexes)
    ]
    if unused and not chosen:
        told.append("not used: " + ", ".join(_described(one, indexes) for one in unused))
    read = [name for name in schema.dates if not is_date(columns.field(name).type)]
    if read and not chosen:
        name_them = "name them in categories, or " if names_uses else ""
        told.append(
            f"dates, by their text: {', '.join(read)} ({name_them}make them categorical, to keep "
            "the text)"
        )
    for name, count in distinct.items():
        if schema.categories[name].kind == "string" and count > _UNIQUE * rows and rows > _FEW:
            advice = "name it as doc_id, or name the others in categories" if names_uses else drop
            told.append(
                f"{name} has {count} different texts in {rows} rows: a name, not a category "
                f"({advice})"
            )
        elif count > max_levels:
            told.append(
                f"{name} has {count} levels: the {max_levels} most frequent ones have a code, the "
                "others count as missing (max_levels)"
            )
    for name in copies:
        if name in used - {schema.qid} and rows > _FEW:
            advice = "name the others in features or categories" if names_uses else drop
            told.append(f"{name} equals the qid ({advice})")
    if told:
        _warn_caller("columns of the table: " + "; ".join(told))


def copies_of_qid(table: pa.Table, qid: str) -> list[str]:
    """Return the columns besides the qid that equal it in all rows, as text or as numbers.

    There are none if all rows have the same qid.

    >>> copies_of_qid(pa.table({"q": ["07", "8"], "x": [7.0, 8.0], "y": [7, 9]}), "q")
    ['x']
    """
    names = table.column(qid).cast(pa.string())
    if pc.count_distinct(names).as_py() < 2:
        return []
    numbers = parsed(names, pa.float64())
    found = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = kind_of(column.type)
        if name == qid or kind not in ("number", "string"):
            continue
        column = without_codes(column)
        same: object = False
        if kind == "string":
            same = pc.all(pc.equal(column.cast(pa.string()), names), skip_nulls=False).as_py()
        elif numbers is not None:
            column = column.cast(pa.float64(), safe=False)
            same = pc.all(pc.equal(column, numbers), skip_nulls=False).as_py()
        if same:
            found.append(name)
    return found


def _described(field: pa.Field, indexes: set[str]) -> str:
    what = "the index of a pandas frame" if field.name in indexes else field.type
    return f"{field.name or repr('')} ({what})"


def _warn_caller(message: str) -> None:
    """Warn with the line that called this package, directly or through a library."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _LIBRARIES:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
