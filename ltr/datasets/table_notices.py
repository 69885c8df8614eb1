"""Warn about the columns of a table before training: one warning names them all."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ltr.arrays import pc
from ltr.datasets.column_steps import kind_of, without_codes
from ltr.datasets.infer import FEW, ROWS, Inferred, Rows, index_columns
from ltr.datasets.lists import SeenQids
from ltr.datasets.schema import Schema
from ltr.datasets.table_files import parsed

_LIBRARIES = ("ltr", "lightning", "lightning_utilities", "torch", "jsonargparse", "sklearn")
_MANY = 1000  # rows: in fewer, the numbers of a feature may all differ by chance
_FIRST = 64  # rows, which tell most


@dataclass(frozen=True)
class Suspects:
    """Columns that should probably not be features or categories.

    Attributes:
        rows: of the table; only up to the row after which no column was a suspect.
        of_qid: those that equal the qid in all rows.
        of_label: those that equal the label in all rows.
        unique: features with a different whole number in each row.
    """

    rows: int
    of_qid: Sequence[str]
    of_label: Sequence[str]
    unique: Sequence[str]


def notice(
    table: Rows,
    schema: Schema,
    found: Inferred,
    max_levels: int,
    roles: Mapping[str, Any],
    *,
    names_uses: bool = True,
) -> str:
    """Return a notice of columns that are not used, or should probably not be used, or "".

    These are columns that are neither numbers, dates, text nor booleans, such as durations; the
    index of a pandas frame; text that looks like dates; text with nearly one value per row, which
    is left out; whole numbers of which float32 keeps at most half; a feature or category that
    equals the qid or the label; a feature with a different whole number in each row; and categories
    with more levels than codes.

    Args:
        table: the table.
        schema: how the columns are used.
        found: what is known of them.
        max_levels: see `Schema.fit_levels`.
        roles: see `infer_columns`. If both the features and the categories are named, the other
            columns are left out on purpose.
        names_uses: whether the user can name columns as features, categories and `doc_id`. If not,
            the advice is to change the table.
    """
    columns, suspects = table.schema, find_suspects(table, schema)
    chosen = None not in (roles.get("features"), roles.get("categories"))
    used, indexes = {*schema.columns}, index_columns(columns)
    told = []
    unused = [
        field
        for field in columns
        if field.name not in used and (kind_of(field.type) == "other" or field.name in indexes)
    ]
    if unused and not chosen:
        told.append("not used: " + ", ".join(_described(one, indexes) for one in unused))
    texts = [name for name in schema.dates if kind_of(columns.field(name).type) != "date"]
    if texts and not chosen:
        name_them = "name them in categories, or " if names_uses else ""
        told.append(
            f"dates, by their text: {', '.join(texts)} ({name_them}make them categorical, to keep "
            "the text)"
        )
    for name, count in found.left.items():
        name_it = "name it in categories, or " if names_uses else ""
        told.append(
            f"{name} is left out, with {count} different texts in {found.rows} rows: a name, not a "
            f"category ({name_it}make it categorical, to use it)"
        )
    for name, (before, after) in found.coarse.items():
        if before > FEW:
            told.append(
                f"{name} has {before} different whole numbers in some rows, of which float32, the "
                f"type of features, keeps {after} (if they are identifiers, make them text)"
            )
    for name in schema.categories:
        count = len(found.counts[name])
        if count > max_levels:
            told.append(
                f"{name} has {count} levels: the {max_levels} most frequent ones have a code, the "
                "others count as missing (max_levels)"
            )
    copies = dict.fromkeys(suspects.of_qid, "qid")
    copies |= dict.fromkeys(suspects.of_label, "label")
    advice = "name the others in features or categories" if names_uses else "drop it from X"
    for name, key in copies.items() if suspects.rows > FEW else ():
        told.append(f"{name} equals the {key} ({advice})")
    for name in suspects.unique if suspects.rows > _MANY else ():
        if name not in copies:
            told.append(
                f"{name} has a different whole number in each of the {suspects.rows} rows: leave "
                "it out if it is an identifier"
            )
    return "columns of the table: " + "; ".join(told) if told else ""


def find_suspects(table: Rows, schema: Schema) -> Suspects:
    """Return the columns that should probably not be features or categories.

    The whole table is read only for columns that the first rows do not clear.

    >>> from ltr.datasets.frames import Frame
    >>> table = pa.table({"q": ["07", "8"], "y": [2, 1], "x": [7.0, 8.0], "z": [2.0, 1.0]})
    >>> schema = Schema.infer(table, qid="q", label="y")
    >>> find_suspects(Frame.of(table), schema)
    Suspects(rows=2, of_qid=['x'], of_label=['z'], unique=[])
    """
    keys = [key for key in (schema.qid, schema.label) if key is not None]
    copies = {key: [*schema.features, *schema.categories] for key in keys}
    unique, rows = [*schema.features], 0
    varying: set[str] = set()
    for size in (_FIRST, ROWS):
        first: dict[str, Any] = {}
        seen = {name: SeenQids() for name in unique}
        names = dict.fromkeys([*keys, *unique, *(x for found in copies.values() for x in found)])
        rows = 0
        for part in table.chunks([*names], size):
            rows += part.num_rows
            for key in [key for key in keys if copies[key]]:
                column = without_codes(part.column(key))
                known = first.setdefault(key, column[0])
                if key not in varying and pc.any(pc.not_equal(column, known)).as_py():
                    varying.add(key)
                copies[key] = _equal_columns(part, key, copies[key])
            unique = [name for name in unique if _is_new(part.column(name), seen[name])]
            if size == _FIRST or not (unique or any(copies.values())):
                break
    found = [copies[key] if key in varying else [] for key in keys]
    return Suspects(rows, found[0], found[1] if len(found) > 1 else [], unique)


def _equal_columns(table: pa.Table, key: str, names: Sequence[str]) -> list[str]:
    """Return which columns equal another one in all rows, as text or as numbers."""
    texts = without_codes(table.column(key)).cast(pa.string())
    numbers = _as_floats(table.column(key))
    found = []
    for name in names:
        column = without_codes(table.column(name))
        kind = kind_of(column.type)
        same: object = False
        if kind == "string":
            same = pc.all(pc.equal(column.cast(pa.string()), texts), skip_nulls=False).as_py()
        elif kind in ("number", "boolean") and numbers is not None:
            same = pc.all(pc.equal(_as_floats(column), numbers), skip_nulls=False).as_py()
        if same:
            found.append(name)
    return found


def _as_floats(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return numbers, booleans or the text of numbers as float64; None for other values."""
    column = without_codes(column)
    kind = kind_of(column.type)
    if kind == "string":
        return parsed(column.cast(pa.string()), pa.float64())
    if kind == "boolean":
        column = column.cast(pa.uint8())
    return column.cast(pa.float64(), safe=False) if kind in ("boolean", "number") else None


def _is_new(column: pa.ChunkedArray, seen: SeenQids) -> bool:
    """Add the next whole numbers of a column; return whether none has occurred before."""
    if not pa.types.is_integer(column.type) or column.null_count:
        return False
    return not seen.add_numbers(column.cast(pa.int64(), safe=False).to_numpy())


def _described(field: pa.Field, indexes: set[str]) -> str:
    what = "the index of a pandas frame" if field.name in indexes else field.type
    return f"{field.name or repr('')} ({what})"


def warn_caller(message: str) -> None:
    """Warn with the line that called this package, directly or through a library.

    Args:
        message: nothing happens if it is "".
    """
    if not message:
        return
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _LIBRARIES:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
