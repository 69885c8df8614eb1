"""The types of the columns of a CSV file: types that fit all of a column's values."""

from collections import Counter
from collections.abc import Collection, Mapping

import pyarrow as pa

from ltr.arrays import pc
from ltr.datasets.table_errors import RowError

_TYPES = (pa.int64(), pa.float64(), pa.bool_())
_NUMBER = r"^\s*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity))\s*$"
_HEAD = 64


class TextTypes:
    """Finds the types of columns of text from chunks of a table.

    A column has numbers or booleans if all of its values are of that type, otherwise text. Numbers
    are int64 if all of them are whole and fit. It has the type null if it has no value. Blanks
    around a value do not count. If more than half of the values of a column of text are numbers, it
    is an error.

    Args:
        names: of all columns.
        text: columns that are text whatever their values are.

    Attributes:
        rows: how many there were.

    >>> types = TextTypes(["q", "x"], {"q"})
    >>> types.add(pa.table({"q": ["007", "08"], "x": ["1", None]}))
    >>> types.add(pa.table({"q": ["9"], "x": [" 2.5"]}))
    >>> types.found()
    {'q': DataType(string), 'x': DataType(double)}
    """

    def __init__(self, names: Collection[str], text: Collection[str] = ()) -> None:
        self._names = names
        self._possible = {name: [*_TYPES] for name in names if name not in text}
        self._values, self._numbers = Counter[str](), Counter[str]()
        self._first_text: dict[str, tuple[int, str]] = {}
        self.rows = 0

    def add(self, table: pa.Table) -> None:
        """Look at the next rows."""
        for name, possible in self._possible.items():
            column = table.column(name)
            values = len(column) - column.null_count
            if not values:
                continue
            possible[:] = [dtype for dtype in possible if parsed(column, dtype) is not None]
            if pa.int64() in possible and pa.float64() not in possible:  # such as 0x10
                possible.remove(pa.int64())
            self._values[name] += values
            if pa.float64() in possible:
                self._numbers[name] += values
                continue
            self._numbers[name] += pc.sum(pc.match_substring_regex(column, _NUMBER)).as_py()
            if name not in self._first_text and (row := first_text(column)) >= 0:
                self._first_text[name] = self.rows + row, column[row].as_py()
        self.rows += table.num_rows

    def found(self) -> dict[str, pa.DataType]:
        """Return the type of each column.

        Raises:
            RowError: a column of text has numbers in more than half of its values.
        """
        types: dict[str, pa.DataType] = dict.fromkeys(self._names, pa.string())
        for name, possible in self._possible.items():
            if not self._values[name]:
                types[name] = pa.null()
            elif possible:
                types[name] = possible[0]
            elif 2 * self._numbers[name] > self._values[name]:
                row, value = self._first_text[name]
                raise RowError(
                    row,
                    name,
                    f"most values are numbers, got {shown(value)} (a column of text must be named "
                    "in categories, doc_id or qid)",
                )
        return types


def typed(table: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Return columns of text converted to other types; a column with other values stays text.

    A column that should have numbers may have booleans.

    >>> typed(pa.table({"x": ["1", None], "y": ["1", "a"]}), {"x": pa.int8(), "y": pa.int8()})
    pyarrow.Table
    x: int8
    y: string
    ----
    x: [[1,null]]
    y: [["1","a"]]
    """
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        found = column if types[name] == pa.string() else parsed(column, types[name])
        if found is None and types[name] == pa.float64():
            found = parsed(column, pa.bool_())
        columns.append(column if found is None else found)
    return pa.table(columns, names=table.column_names)


def parsed(column: pa.ChunkedArray, dtype: pa.DataType) -> pa.ChunkedArray | None:
    """Return text values as another type, or None if one of them does not fit."""
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), dtype)])
    found = None
    for part in (column.slice(0, _HEAD), column):  # the first values tell most
        try:
            found = part.cast(dtype)
        except pa.ArrowInvalid:
            try:
                found = pc.utf8_trim_whitespace(part).cast(dtype)
            except pa.ArrowInvalid:
                return None
    return found


def first_text(column: pa.ChunkedArray) -> int:
    """Return the first row of a column of text that is neither missing nor a number, or -1.

    >>> first_text(pa.chunked_array([["1", None, " 2e3"], ["x"]]))
    3
    """
    return pc.index(pc.match_substring_regex(column, _NUMBER), False).as_py()


def shown(value: object) -> str:
    """Return a shortened value for an error.

    >>> shown(None), shown("x" * 99)[-5:]
    ('nothing', 'xx...')
    """
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
