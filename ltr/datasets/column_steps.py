"""What a column of a table becomes: a number, a vector, a date or a category.

A step reads a column of a table for training, encodes plain values for serving (it extends the step
of `ltr.serving`, which exported models use without Arrow), and checks that a later table has the
type of the training.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ltr import serving
from ltr.arrays import pc
from ltr.datasets.dates import is_date, read_dates, zone_of
from ltr.names import shown_names


@dataclass(frozen=True)
class Number(serving.Number):
    """A column of numbers: one feature.

    >>> Number().read("x", pa.chunked_array([[1, None]])).tolist()
    [[1.0], [nan]]
    """

    @property
    def text_type(self) -> pa.DataType:
        """The type of the column for reading it from a text file."""
        return pa.float64()

    def read(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        """Return a column's numbers, float32 (rows, width); NaN where missing, infinite beyond."""
        if kind_of(column.type) == "missing":
            return np.full((len(column), self.width), np.nan, dtype=np.float32)
        return _numbers(column).reshape(-1, 1)

    def check(self, name: str, dtype: pa.DataType) -> None:
        """Raise a `ValueError` if a column has another type than in training."""
        if kind_of(dtype) not in ("number", "boolean", "missing"):
            raise _other_type(name, "numbers", dtype)

    def feature_names(self, name: str) -> list[str]:
        """Return the names of the features of a column."""
        return [name]

    def __str__(self) -> str:
        return f"{self.width} feature{'s' if self.width > 1 else ''}"


@dataclass(frozen=True)
class Vector(serving.Vector, Number):
    """A column of fixed-size lists of numbers, such as embeddings: as many features.

    Attributes:
        size: of each list.
    """

    def read(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        """Return a column's numbers, float32 (rows, width); NaN where missing, infinite beyond."""
        if kind_of(column.type) == "missing":
            return super().read(name, column)
        if not column.null_count:
            return _numbers(pc.list_flatten(column)).reshape(-1, self.width)
        found = np.full((len(column), self.width), np.nan, dtype=np.float32)
        there = column.is_valid().to_numpy()
        found[there] = _numbers(pc.list_flatten(column.drop_null())).reshape(-1, self.width)
        return found

    def check(self, name: str, dtype: pa.DataType) -> None:
        """Raise a `ValueError` if a column has another type than in training."""
        kind = kind_of(dtype)
        if kind != "missing" and (kind != "embedding" or width_of(dtype) != self.size):
            raise _other_type(name, f"lists of one size of size {self.size}", dtype)

    def feature_names(self, name: str) -> list[str]:
        """Return the names of the features of a column."""
        return [f"{name}[{i}]" for i in range(self.size)]

    def __str__(self) -> str:
        return Number.__str__(self)


@dataclass(frozen=True)
class Date(serving.Date):
    """A column of dates; see `ltr.serving.Date`.

    >>> Date("naive", hour=True).read("at", pa.chunked_array([["1970-01-02T12:30"]])).tolist()
    [[1.0, 12.5]]
    """

    @property
    def text_type(self) -> pa.DataType:
        """The type of the column for reading it from a text file."""
        return pa.string()

    def read(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        """Return a column's numbers, float32 (rows, width); see `read_dates`."""
        return read_dates(column, name, self.zone)[:, : self.width]

    def check(self, name: str, dtype: pa.DataType) -> None:
        """Raise a `ValueError` if a column has another type than in training."""
        kind = kind_of(dtype)
        if kind == "date" and zone_of(dtype) != self.zone:
            wanted = "with" if self.zone == "utc" else "without"
            raise _other_type(name, f"dates {wanted} a time zone", dtype)
        if kind not in ("date", "string", "missing"):
            raise _other_type(name, "dates", dtype)

    def feature_names(self, name: str) -> list[str]:
        """Return the names of the features of a column."""
        return [name, f"{name} (hour)"][: self.width]

    def __str__(self) -> str:
        return f"{self.zone} dates{' with the hour' if self.hour else ''}"


@dataclass(frozen=True)
class Category(serving.Category):
    """A column of categories: the kind of its values, and which of them have a code.

    Attributes:
        kind: "string", "number" or "boolean".
        levels: the values, as text; the code of `levels[i]` is i + 1. Missing values and values
            that are not levels have code 0.

    >>> Category("string", ("a", "b")).read("shop", pa.chunked_array([["a", None, "c"]])).tolist()
    [[1], [0], [0]]
    """

    @property
    def text_type(self) -> pa.DataType:
        """The type of the column for reading it from a text file."""
        return _TEXT_TYPES[self.kind]

    def fit(self, counts: Mapping[str, int], max_levels: int) -> "Category":
        """Return the category with the most frequent levels, at most so many, in their order."""
        pairs = sorted((-count, level) for level, count in counts.items())
        return replace(self, levels=tuple(sorted(level for _, level in pairs[:max_levels])))

    def read(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        """Return the codes of a column, int64 (rows, 1)."""
        levels = pa.array(self.levels, pa.string())
        found = pc.index_in(as_text(column), value_set=levels, skip_nulls=True)
        return pc.fill_null(found, -1).to_numpy().astype(np.int64).reshape(-1, 1) + 1

    def check(self, name: str, dtype: pa.DataType) -> None:
        """Raise a `ValueError` if a column has another type than in training."""
        if kind_of(dtype) not in (self.kind, "missing"):
            raise _other_type(name, _ARE[self.kind], dtype)

    def __str__(self) -> str:
        return f"{self.kind} category of {len(self.levels)} levels {shown_names(self.levels)}"


Step = Number | Date | Category
"""What a column becomes."""

STEPS = (Number, Vector, Date, Category)
"""The classes of steps, as `ltr.serving.steps_of` takes them."""

_TEXT_TYPES = {"string": pa.string(), "number": pa.float64(), "boolean": pa.bool_()}
_ARE = {"number": "numbers", "string": "text", "boolean": "booleans"}


def _other_type(name: str, wanted: str, dtype: pa.DataType) -> ValueError:
    return ValueError(f"column {name!r} must be {wanted}, as in training, got type {dtype}")


def kind_of(dtype: pa.DataType) -> str:
    """Return the kind of a column's values for a ranker, or "other".

    >>> kind_of(pa.int8()), kind_of(pa.list_(pa.float32(), 3)), kind_of(pa.date32())
    ('number', 'embedding', 'date')
    """
    types = pa.types
    if types.is_dictionary(dtype):
        return kind_of(dtype.value_type)
    if types.is_integer(dtype) or types.is_floating(dtype) or types.is_decimal(dtype):
        return "number"
    if types.is_string(dtype) or types.is_large_string(dtype) or types.is_string_view(dtype):
        return "string"
    if types.is_boolean(dtype):
        return "boolean"
    if is_date(dtype):
        return "date"
    if types.is_null(dtype):
        return "missing"
    if types.is_fixed_size_list(dtype) and kind_of(dtype.value_type) == "number":
        return "embedding"
    return "other"


def without_codes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a categorical column's values (Arrow's dictionaries); other columns unchanged."""
    coded = pa.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if coded else column


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a column of categories as text; a NaN is missing."""
    column = without_codes(column)
    if kind_of(column.type) != "number":
        return column.cast(pa.string())
    floats = column.cast(pa.float64(), safe=False)  # 3 and 3.0 are one level
    text = pc.if_else(pc.is_nan(floats), pa.scalar(None, pa.float64()), floats).cast(pa.string())
    if pa.types.is_integer(column.type):  # float64 has one value for some larger ones
        text = pc.if_else(pc.less(pc.abs(floats), 2.0**53), text, column.cast(pa.string()))
    return text


def count_levels(column: pa.ChunkedArray) -> dict[str, int]:
    """Return how often each value of a column of categories, as text, occurs."""
    counted = pc.value_counts(as_text(column).drop_null())
    return {one["values"].as_py(): one["counts"].as_py() for one in counted}


def width_of(dtype: pa.DataType) -> int:
    """Return how many numbers a value of a type holds."""
    return dtype.list_size if pa.types.is_fixed_size_list(dtype) else 1


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column of numbers or booleans as float32, NaN where missing."""
    column = without_codes(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    if not pa.types.is_floating(column.type):
        column = column.cast(pa.float64(), safe=False)
    with np.errstate(over="ignore"):  # overflow gives infinity, which is refused like any other
        return column.to_numpy().astype(np.float32, copy=False)
