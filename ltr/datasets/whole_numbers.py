"""Refuse columns of whole numbers that are lost in float32, the type of features."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.arrays import pc

_EXACT = 1 << 24
"""float32 holds all whole numbers up to this one. Larger ones are rounded to 24 bits."""

_ENOUGH = 256
"""A column with more different values than this in float32 is not lost."""


class RoundedNumbers:
    """Finds columns of whole numbers that are lost in float32, in the chunks of a table.

    A column is lost if rounding to float32 leaves at most half of its different values, and at most
    256 of them. Identifiers such as `10**18 + i` are lost: all of them become one number.
    Timestamps of a year in nanoseconds are not: they keep a resolution of 137 seconds.

    A column with a fraction is never lost. Rows before the first chunk with a number beyond 2^24
    are not counted.

    Args:
        columns: of the table, with their types.
        names: of the columns to look at. Default: all.

    Attributes:
        open: the columns that may be lost and cannot be decided without more rows.
        suspects: the columns that may be lost, with up to 512 of their different values.
        coarse: the columns of which rounding leaves at most half of the different values of some
            rows, with the number of values before and after it.

    >>> table = pa.table({"price": [10**9, 2 * 10**9], "id": [10**18, 10**18 + 1]})
    >>> numbers = RoundedNumbers(table.schema)
    >>> numbers.add(table)
    >>> [*numbers.suspects]
    ['price', 'id']
    >>> numbers.check()
    Traceback (most recent call last):
    ValueError: column 'id': ...
    """

    def __init__(self, columns: pa.Schema, names: Collection[str] | None = None) -> None:
        wanted = columns.names if names is None else names
        self.open = [x for x in columns.names if x in wanted and _is_wide(columns.field(x).type)]
        self._rounded: dict[str, np.ndarray] = {}
        self.suspects: dict[str, Any] = {}
        self.coarse: dict[str, tuple[int, int]] = {}

    def add(self, table: pa.Table) -> None:
        """Look at the next rows."""
        self.open = [name for name in self.open if self._may_be_lost(name, table.column(name))]

    def check(self) -> None:
        """Raise an error if a column is lost.

        Raises:
            ValueError: one is; the message names it.
        """
        for name, values in self.suspects.items():
            if 0 < 2 * len(self._rounded[name]) <= len(values):
                with np.errstate(over="ignore"):
                    floats = _as_floats(values).astype(np.float32)
                same, counts = np.unique(floats, return_counts=True)
                one, two = np.flatnonzero(floats == same[counts.argmax()])[:2].tolist()
                raise ValueError(
                    f"column {name!r}: {values[one].as_py()} and {values[two].as_py()} are one "
                    "number in float32, the type of features, and so are most others: make them "
                    "text, subtract a constant, or leave the column out"
                )

    def _may_be_lost(self, name: str, column: pa.ChunkedArray) -> bool:
        """Add the next values of a column; return whether to look at further ones."""
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if name not in self.suspects and not _is_large(column):
            return (
                pa.types.is_integer(column.type) or not (_as_floats(column.drop_null()) % 1).any()
            )
        values = pc.unique(column.drop_null())
        floats = _as_floats(values)
        finite = np.isfinite(floats)
        whole = not (floats[finite] % 1).any()
        if whole:
            known = self._rounded.get(name, np.empty(0, np.float32))
            with np.errstate(over="ignore"):  # infinity is refused when the features are read
                singles = np.unique(floats[finite].astype(np.float32))
            if 2 * len(singles) <= finite.sum():
                self.coarse.setdefault(name, (int(finite.sum()), len(singles)))
            rounded = np.union1d(known, singles)
            self._rounded[name] = rounded[: _ENOUGH + 1]
            seen = [self.suspects[name]] if name in self.suspects else []
            every = pc.unique(pa.chunked_array([*seen, values.filter(pa.array(finite))]))
            self.suspects[name] = every[: 2 * _ENOUGH]
            if len(rounded) <= _ENOUGH:
                return True
        self.suspects.pop(name, None)
        return False


def _is_wide(dtype: pa.DataType) -> bool:
    """Return whether float32 may have to round whole numbers of a type."""
    if pa.types.is_dictionary(dtype):
        return _is_wide(dtype.value_type)
    return pa.types.is_integer(dtype) or pa.types.is_float64(dtype) or pa.types.is_decimal(dtype)


def _is_large(column: pa.ChunkedArray) -> bool:
    """Return whether a column has a number beyond the exact ones of float32."""
    ends = pc.min_max(column).as_py().values()
    return any(end is not None and abs(float(end)) > _EXACT for end in ends)


def _as_floats(values: Any) -> np.ndarray:
    return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
