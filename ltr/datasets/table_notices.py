"""Warn about suspect columns of a table before training: one warning names them all."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ltr.arrays import pc
from ltr.datasets.column_steps import kind_of, without_codes
from ltr.datasets.infer import (
    FEW,
    Finder,
    Inferred,
    Rows,
    index_columns,
    numbers_as_text,
    other_words,
    scan,
)
from ltr.datasets.lists import SeenNumbers
from ltr.datasets.schema import Schema
from ltr.datasets.table_files import MISSING, parsed, with_nulls
from ltr.names import shown_names

_LIBRARIES = ("ltr", "lightning", "lightning_utilities", "torch", "jsonargparse", "sklearn")
# In a table of at most this many rows, the values of a feature may all differ by chance.
_MANY = 1000


def notice(
    table: Rows,
    schema: Schema,
    inferred: Inferred,
    max_levels: int,
    roles: Mapping[str, Any],
) -> str:
    """Return a notice about columns that are unused, or perhaps used wrongly; "" if there are none.

    These are columns that are neither numbers, dates, text nor booleans, such as durations; the
    index of a pandas frame; text that is read as dates; text that is left out because it has nearly
    as many distinct values as rows; text of which nearly all values are numbers; whole numbers of
    which float32 keeps at most half distinct; a feature or category that equals the qid or the
    label; a feature with a new whole number in each row; categories with more than `max_levels`
    levels; and categories with levels such as "NA".

    Args:
        table: the table.
        schema: how the columns are used.
        inferred: the result of `infer_columns` for the table.
        max_levels: see `Schema.fit_levels`.
        roles: see `infer_columns`. If both the features and the categories are named, the notice
            names neither unused columns nor text that is read as dates.
    """
    columns = table.schema
    copies, unique, rows = find_suspects(table, schema)
    chosen = None not in (roles.get("features"), roles.get("categories"))
    used, indexes = {*schema.columns}, index_columns(columns)
    notices = []
    unused = [
        field
        for field in columns
        if field.name not in used and (kind_of(field.type) == "other" or field.name in indexes)
    ]
    if unused and not chosen:
        notices.append("not used: " + ", ".join(_described(field, indexes) for field in unused))
    texts = [name for name in schema.dates if kind_of(columns.field(name).type) != "date"]
    if texts and not chosen:
        notices.append(
            f"dates, by their text: {', '.join(texts)} (make them categorical, to keep the text)"
        )
    notices += inferred.left
    for name, (before, after) in inferred.coarse.items():
        if before > FEW:
            notices.append(
                f"{name} has {before} different whole numbers in some rows, of which float32, the "
                f"type of features, keeps {after} (if they are identifiers, make them text)"
            )
    for name, category in schema.categories.items():
        count = len(inferred.counts[name])
        found = category.kind == "string" and roles.get("categories") is None
        if found and (words := other_words(inferred.counts[name])):
            what = numbers_as_text(name, words)
            notices.append(f"{name} is a category, with {count} different texts: {what}")
        if count > max_levels:
            notices.append(
                f"{name} has {count} levels: the {max_levels} most frequent ones have a code, the "
                "others count as missing (max_levels)"
            )
        words = [level for level in inferred.counts[name] if level.strip() in MISSING]
        if words:
            notices.append(
                f"{name} has the text {shown_names(words)}, which is a level, not a missing value "
                "(leave the cell empty if it is missing)"
            )
    for name, key in copies.items() if rows > FEW else ():
        notices.append(f"{name} equals the {key} (leave it out)")
    for name in unique if rows > _MANY else ():
        if name not in copies:
            notices.append(
                f"{name} has a different whole number in each of the {rows} rows: leave it out if "
                "it is an identifier"
            )
    return "columns of the table: " + "; ".join(notices) if notices else ""


def find_suspects(table: Rows, schema: Schema) -> tuple[dict[str, str], list[str], int]:
    """Return the columns that should probably not be features or categories.

    Returns:
        A dict of the columns that equal the qid or the label in all rows, with "qid" or "label" as
        values; the features with a new whole number in each row; and the number of rows that were
        read.

    >>> from ltr.datasets.frames import Frame
    >>> table = pa.table({"q": ["07", "8"], "y": [2, 1], "x": [7.0, 8.0], "z": [2.0, 1.0]})
    >>> schema = Schema.infer(table, qid="q", label="y")
    >>> find_suspects(Frame.of(table), schema)
    ({'z': 'label', 'x': 'qid'}, [], 2)
    """
    others = [*schema.features, *schema.categories]
    types = {field.name: field.type for field in table.schema}
    keys = [*(("label", name) for name in schema.labels), ("qid", schema.qid)]
    copies = [(use, Copies(x, others)) for use, x in keys if kind_of(types[x]) != "other"]
    unique = [Unique(name) for name in schema.features if pa.types.is_integer(types[name])]
    rows = scan(table, [*(copy for _, copy in copies), *unique])
    equal = {name: use for use, copy in copies if copy.varies for name in copy.names[1:]}
    return equal, [finder.name for finder in unique if finder.open], rows


class Copies(Finder):
    """Finds which columns equal a key column in all rows, as text or as numbers.

    Args:
        key: the name of the key column.
        same: the names of the columns to compare with the key column.

    Attributes:
        varies: whether the key column has at least two distinct values.
    """

    def __init__(self, key: str, same: Sequence[str]) -> None:
        super().__init__(key, *same)
        self.varies = False
        self._first: Any = None

    def add(self, part: pa.Table, row: int) -> None:
        """Look at the next rows."""
        key = without_codes(part.column(self.name))
        self._first = key[0] if self._first is None else self._first
        self.varies = self.varies or bool(pc.any(pc.not_equal(key, self._first)).as_py())
        texts, numbers = key.cast(pa.string()), _as_floats(key)
        same = [x for x in self.names[1:] if _equal(part.column(x), texts, numbers)]
        self.names, self.open = (self.name, *same), bool(same)


def _equal(column: pa.ChunkedArray, texts: Any, numbers: Any) -> bool:
    """Return whether a column equals `texts` if it is text, or `numbers` if it is not."""
    is_text = kind_of(column.type) == "string"
    values = without_codes(column).cast(pa.string()) if is_text else _as_floats(column)
    key = texts if is_text else numbers
    if values is None or key is None:
        return False
    return bool(pc.all(pc.equal(values, key), skip_nulls=False).as_py())


class Unique(Finder):
    """Finds out whether a column has a new whole number in each row: if so, `open` stays True."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._seen = SeenNumbers()

    def add(self, part: pa.Table, row: int) -> None:
        """Look at the next values."""
        column = part.column(self.name)
        numbers = column.drop_null().cast(pa.int64(), safe=False).to_numpy()
        self.open = not column.null_count and not self._seen.add(numbers)


def _as_floats(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return a column of numbers, booleans or numeric text in float64; None for another column."""
    column = without_codes(column)
    kind = kind_of(column.type)
    if kind == "string":
        return parsed(with_nulls(column.cast(pa.string())), pa.float64())
    if kind == "boolean":
        column = column.cast(pa.uint8())
    return column.cast(pa.float64(), safe=False) if kind in ("boolean", "number") else None


def _described(field: pa.Field, indexes: set[str]) -> str:
    what = "the index of a pandas frame" if field.name in indexes else field.type
    return f"{field.name or repr('')} ({what})"


def warn_caller(message: str) -> None:
    """Warn, and show the line of the user's code that called this package, perhaps indirectly.

    Args:
        message: the text of the warning. If it is empty, there is no warning.
    """
    if not message:
        return
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _LIBRARIES:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
