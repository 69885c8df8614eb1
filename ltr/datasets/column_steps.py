"""Steps, which read a column of a table as numbers, vectors, dates or categories.

A step turns its column into features or codes, and checks that the column of a later table has the
same type as in training. Its class extends a class of `ltr.columns`. The classes there encode plain
values for an exported model, without Arrow.

Only categories are fitted, to find their levels. Numbers, vectors and dates need no fit here,
because the model's feature transform scales them and replaces missing values. The transform is
fitted on the matrix of all features. An exported ONNX graph contains the transform. The graph's
inputs are the matrix and the codes of the categories, because not every ONNX runtime can compute
with texts and dates. The classes of `ltr.columns` therefore make the matrix and the codes from
plain values.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from ltr import columns
from ltr.arrays import pc
from ltr.columns import FIRST_DAY, ISO_DATES, LAST_DAY, MICROSECONDS, Zone
from ltr.names import shown_names

_NUMBER = r"^\s*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity))\s*$"


@dataclass(frozen=True)
class Number(columns.Number):
    """A column of numbers: one feature.

    >>> Number().read("x", pa.chunked_array([[1, None]])).tolist()
    [[1.0], [nan]]
    """

    text_type: ClassVar[pa.DataType] = pa.float64()
    """The type with which the column is read from a text file."""

    def read(self, name: str, column: pa.ChunkedArray, dtype: Any = np.float32) -> np.ndarray:
        """Return a column's values (rows, width): NaN if missing, inf if too large for the dtype.

        Args:
            name: the name of the column, for errors.
            column: the column.
            dtype: float32, the type of features, or float64, which rounds no number of a table.
        """
        if kind_of(column.type) == "missing":
            return np.full((len(column), self.width), np.nan, dtype=dtype)
        return _numbers(column, dtype)

    def check(self, name: str, dtype: pa.DataType) -> None:
        """Raise a `ValueError` if the type of a column does not match the training data.

        A column of lists of size 1 is a column of numbers.
        """
        kind = kind_of(dtype)
        if kind not in ("number", "boolean", "missing") and not (
            kind == "embedding" and width_of(dtype) == 1
        ):
            raise _other_type(name, "numbers", dtype)

    def feature_names(self, name: str) -> list[str]:
        """Return the names of the features of a column."""
        return [name]

    def __str__(self) -> str:
        return f"{self.width} feature{'s' if self.width > 1 else ''}"


@dataclass(frozen=True)
class Vector(columns.Vector, Number):
    """A column of vectors (Arrow's fixed-size lists), such as embeddings: one feature per element.

    Attributes:
        size: the number of elements of each vector.
    """

    def check(self, name: str, dtype: pa.DataType) -> None:
        """Raise a `ValueError` if the type of a column does not match the training data."""
        kind = kind_of(dtype)
        if kind != "missing" and (kind != "embedding" or width_of(dtype) != self.size):
            raise _other_type(name, f"lists of size {self.size}", dtype)

    def feature_names(self, name: str) -> list[str]:
        """Return the names of the features of a column."""
        return [f"{name}[{i}]" for i in range(self.size)]


@dataclass(frozen=True)
class Date(columns.Date):
    """A column of dates; see `ltr.columns.Date`.

    >>> Date("naive", hour=True).read("at", pa.chunked_array([["1970-01-02T12:30"]])).tolist()
    [[1.0, 12.5]]
    """

    text_type: ClassVar[pa.DataType] = pa.large_string()
    """The type with which the column is read from a text file: it tells dates from other text."""

    def read(self, name: str, column: pa.ChunkedArray, dtype: Any = np.float32) -> np.ndarray:
        """Return a column's values, rounded to float32, (rows, width); see `read_dates`."""
        return read_dates(column, name, self.zone)[:, : self.width].astype(dtype, copy=False)

    def check(self, name: str, dtype: pa.DataType) -> None:
        """Raise a `ValueError` if the type of a column does not match the training data."""
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
class Category(columns.Category):
    """A column of categories: the kind of its values, and the values that have a code.

    Attributes:
        kind: "string", "number" or "boolean".
        levels: the values, as text; the code of `levels[i]` is i + 1. Missing values and values
            that are not levels have code 0.

    >>> Category("string", ("a", "b")).read("shop", pa.chunked_array([["a", None, "c"]])).tolist()
    [[1], [0], [0]]
    """

    @property
    def text_type(self) -> pa.DataType:
        """The type with which the column is read from a text file."""
        if self.kind == "number" and all(_WHOLE.fullmatch(level) for level in self.levels):
            return pa.int64()  # float64 would round large identifiers
        return _TEXT_TYPES[self.kind]

    def fit(self, counts: Mapping[str, int], max_levels: int) -> "Category":
        """Return the category with the `max_levels` most frequent values as levels, sorted."""
        pairs = sorted((-count, level) for level, count in counts.items())
        return replace(self, levels=tuple(sorted(level for _, level in pairs[:max_levels])))

    def read(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        """Return the codes of a column, int64 (rows, 1)."""
        levels = pa.array(self.levels, pa.string())
        indices = pc.index_in(as_text(column), value_set=levels, skip_nulls=True)
        return pc.fill_null(indices, -1).to_numpy().astype(np.int64).reshape(-1, 1) + 1

    def check(self, name: str, dtype: pa.DataType) -> None:
        """Raise a `ValueError` if the type of a column does not match the training data."""
        if kind_of(dtype) not in (self.kind, "missing"):
            raise _other_type(name, _ARE[self.kind], dtype)

    def __str__(self) -> str:
        return f"{self.kind} category of {len(self.levels)} levels {shown_names(self.levels)}"


Step = Number | Date | Category
"""A step of any class; a `Vector` is a `Number` too."""

STEPS = (Number, Vector, Date, Category)
"""The classes of steps, in the order of the argument `classes` of `ltr.columns.steps_of`."""

_HOUR = 3_600_000_000
_IN_DAY = {"s": 86_400, "ms": 86_400_000, "us": MICROSECONDS, "ns": 1000 * MICROSECONDS}
TYPES: dict[Zone, pa.DataType] = {"naive": pa.timestamp("us"), "utc": pa.timestamp("us", "UTC")}
"""For each zone, the Arrow type to which dates in text are converted."""

_TEXT_TYPES = {"string": pa.string(), "number": pa.float64(), "boolean": pa.bool_()}
_WHOLE = re.compile(r"-?[0-9]+")
_ARE = {"number": "numbers", "string": "text", "boolean": "booleans"}
_ZONES = {"naive": "without a time zone", "utc": "with a time zone"}


def _other_type(name: str, wanted: str, dtype: pa.DataType) -> ValueError:
    return ValueError(f"column {name!r} must be {wanted}, as in training, got type {dtype}")


def kind_of(dtype: pa.DataType) -> str:
    """Return the kind of values that an Arrow type holds; "other" if a ranker cannot use them.

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
    if types.is_date(dtype) or types.is_timestamp(dtype):
        return "date"
    if types.is_null(dtype):
        return "missing"
    if types.is_fixed_size_list(dtype) and kind_of(dtype.value_type) == "number":
        return "embedding"
    return "other"


def without_codes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a categorical column (Arrow's dictionary) as plain values; keep any other column."""
    coded = pa.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if coded else column


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a column of categories as text; NaN becomes missing.

    Numbers are written as by `ltr.columns.number_text`.

    >>> as_text(pa.chunked_array([pa.array([0.1, 3.0, None], pa.float32())])).to_pylist()
    ['0.1', '3', None]
    """
    column = without_codes(column)
    if kind_of(column.type) != "number" or pa.types.is_integer(column.type):
        return column.cast(pa.string())
    coded = column.cast(pa.float64(), safe=False).combine_chunks().dictionary_encode()
    values = coded.dictionary.to_pylist()
    texts = [None if x != x else columns.number_text(x) for x in values]
    return pa.chunked_array([pa.array(texts, pa.string()).take(coded.indices)])


def count_levels(column: pa.ChunkedArray) -> dict[str, int]:
    """Return how often each value, as text, occurs in a column of categories."""
    counted = pc.value_counts(as_text(column).drop_null())
    return {pair["values"].as_py(): pair["counts"].as_py() for pair in counted}


def width_of(dtype: pa.DataType) -> int:
    """Return how many numbers one value of this type holds."""
    return dtype.list_size if pa.types.is_fixed_size_list(dtype) else 1


def or_nulls(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without any value as a column of Arrow's type null; keep any other column.

    The type of such a column says nothing: pandas gives float64 to a column of missing text.

    >>> or_nulls(pa.chunked_array([[None, float("nan")]])).type
    DataType(null)
    """
    plain = without_codes(column)
    if pa.types.is_fixed_size_list(plain.type):
        plain = pc.list_flatten(plain)
    # The first value usually shows that the column has one.
    for part in (plain.slice(0, 1), plain):
        if not pc.all(pc.is_null(part, nan_is_null=True), min_count=0).as_py():
            return column
    return pa.chunked_array([pa.nulls(len(column))])


def _numbers(column: pa.ChunkedArray, dtype: Any) -> np.ndarray:
    """Return a column of numbers, booleans or vectors as floats (rows, width), NaN if missing."""
    if not pa.types.is_fixed_size_list(column.type):
        return _plain_numbers(column, dtype).reshape(-1, 1)
    width = width_of(column.type)
    if not column.null_count:
        return _plain_numbers(pc.list_flatten(column), dtype).reshape(-1, width)
    numbers = np.full((len(column), width), np.nan, dtype=dtype)
    present = column.is_valid().to_numpy()
    numbers[present] = _plain_numbers(pc.list_flatten(column.drop_null()), dtype).reshape(-1, width)
    return numbers


def _plain_numbers(column: pa.ChunkedArray, dtype: Any) -> np.ndarray:
    column = without_codes(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    if not pa.types.is_floating(column.type):
        column = column.cast(pa.float64(), safe=False)
    with np.errstate(over="ignore"):  # overflow gives infinity, which the caller refuses
        return column.to_numpy().astype(dtype, copy=False)


class RowError(ValueError):
    """An error in a row of a table.

    Args:
        row: the number of the row, from 0.
        column: the name of the column.
        problem: what must hold, and what was found.
        other: the number of another row, to name at the end of the message, or None.

    >>> str(RowError(7, "x", "must not be missing"))
    "row 7, column 'x': must not be missing"
    """

    def __init__(self, row: int, column: str, problem: str, other: int | None = None) -> None:
        super().__init__(row, column, problem, other)
        self.row, self.column, self.problem, self.other = row, column, problem, other

    def __str__(self) -> str:
        also = "" if self.other is None else f" in row {self.other}"
        return f"row {self.row}, column {self.column!r}: {self.problem}{also}"


@contextmanager
def counted_from(first: int) -> Iterator[None]:
    """Convert row numbers in the errors of a chunk to row numbers of the whole table.

    Args:
        first: the row of the table at which the chunk begins.

    >>> with counted_from(100):
    ...     raise RowError(7, "x", "must not be missing")
    Traceback (most recent call last):
    ltr.datasets.column_steps.RowError: row 107, column 'x': must not be missing
    """
    try:
        yield
    except RowError as error:
        other = None if error.other is None else first + error.other
        raise RowError(first + error.row, error.column, error.problem, other) from None


def zone_of(dtype: pa.DataType) -> Zone:
    """Return the zone of a type of dates: "utc" if the type has a time zone, else "naive"."""
    if pa.types.is_dictionary(dtype):
        return zone_of(dtype.value_type)
    return "utc" if pa.types.is_timestamp(dtype) and dtype.tz is not None else "naive"


def read_dates(column: pa.ChunkedArray, name: str, zone: Zone) -> np.ndarray:
    """Return the whole days since 1970-01-01 and the hours of the day, (rows, 2); NaN if missing.

    Both are float32. Days are exact. The hours, from 0 to 24, have minutes and seconds as a
    fraction, exact to the microsecond before rounding to float32. Times with a time zone are
    converted to UTC.

    Args:
        column: a column of dates or times of any unit, or of text.
        name: the name of the column, for errors.
        zone: the zone that dates in text must have.

    Raises:
        RowError: a date is out of range, or a text is not a date that `zone` allows.

    >>> read_dates(pa.chunked_array([["1970-01-02T12:30", None]]), "at", "naive").tolist()
    [[1.0, 12.5], [nan, nan]]
    """
    column = without_codes(column)
    if kind_of(column.type) == "string":
        column = _parsed(column.cast(pa.string()), name, zone)
    return days_and_hours(column, name)


def days_and_hours(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """Return the result of `read_dates` for a column of dates or times, not of text."""
    numbers = np.full((len(column), 2), np.nan, dtype=np.float32)
    if pa.types.is_null(column.type):
        return numbers
    whole = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
    values = pc.fill_null(column.cast(whole), 0).to_numpy().astype(np.int64)
    present = column.is_valid().to_numpy()
    in_day = 1
    if not pa.types.is_date32(column.type):
        in_day = _IN_DAY["ms" if pa.types.is_date64(column.type) else column.type.unit]
    days, rest = values // in_day, values % in_day
    for row in np.flatnonzero(present & ((days < FIRST_DAY) | (days > LAST_DAY)))[:1]:
        problem = "a date must be from 0001-01-01 to 9999-12-31, got"
        raise RowError(int(row), name, f"{problem} the day {days[row]} days after 1970-01-01")
    microseconds = rest // 1000 if in_day > MICROSECONDS else rest * (MICROSECONDS // in_day)
    numbers[present] = np.stack([days, microseconds / _HOUR], axis=1)[present]
    return numbers


def _parsed(column: pa.ChunkedArray, name: str, zone: Zone) -> pa.ChunkedArray:
    """Return the times in a column of text; raise a `RowError` if a text is not a date."""
    texts = pc.utf8_trim_whitespace(column)
    times = parse_dates(texts, zone)
    if times is not None:
        return times
    cells = (pa.chunked_array([[text]], pa.string()) for text in texts.to_pylist())
    wrong = next(row for row, cell in enumerate(cells) if parse_dates(cell, zone) is None)
    problem = (
        f"must be an ISO 8601 date (YYYY-MM-DD, or with a time) {_ZONES[zone]}, as in training"
    )
    raise RowError(wrong, name, f"{problem}, got {shown(column[wrong].as_py())}")


def are_numbers(column: Any) -> Any:
    """Return whether each text is a number, as an Arrow column of booleans.

    >>> are_numbers(pa.array(["12.5", " 1e3", "1,000", "n/a"])).to_pylist()
    [True, True, False, False]
    """
    return pc.match_substring_regex(column, _NUMBER)


def are_dates(texts: pa.ChunkedArray, zone: Zone) -> pa.ChunkedArray:
    """Return for each text whether it matches the pattern `ISO_DATES[zone]`; null if missing."""
    return pc.match_substring_regex(texts, ISO_DATES[zone])


def parse_dates(texts: pa.ChunkedArray, *zones: Zone) -> pa.ChunkedArray | None:
    """Return the times in a column of text, or None if a text is not a date that `zones` allow.

    A text such as 2024-02-30 matches a pattern of `ISO_DATES` but is not a date. If some texts have
    a UTC offset and others have none, the texts with an offset become null.
    """
    forms = [are_dates(texts, zone) for zone in zones]
    if not pc.all(pc.or_(forms[0], forms[-1]), min_count=0).as_py():
        return None
    short = pc.replace_substring_regex(texts, r"(\.[0-9]{6})[0-9]+", r"\1")
    aware = are_dates(short, "utc")
    nothing = pa.scalar(None, pa.string())
    try:
        utc = pc.if_else(aware, short, nothing).cast(TYPES["utc"])
        naive = pc.if_else(aware, nothing, short).cast(TYPES["naive"])
    except pa.ArrowInvalid:
        return None
    return utc if naive.null_count == len(naive) else naive


def shown(value: object) -> str:
    """Return a value as text for an error, shortened to at most 60 characters.

    >>> shown(None), shown("x" * 99)[-5:]
    ('nothing', 'xx...')
    """
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
