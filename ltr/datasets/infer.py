"""Infer the use of each column of a table, in passes over the table's chunks.

The same passes serve tables in memory and files that do not fit into memory. Each pass reads only
the columns that are not yet decided, and ends as soon as all columns are decided.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ltr.arrays import check_columns, pc
from ltr.columns import CATEGORY_KINDS, Zone
from ltr.datasets.column_steps import (
    Category,
    Date,
    Number,
    RowError,
    Step,
    Vector,
    are_dates,
    are_numbers,
    count_levels,
    counted_from,
    days_and_hours,
    kind_of,
    parse_dates,
    width_of,
    without_codes,
    zone_of,
)
from ltr.names import close_matches, shown_names

ROWS = 1 << 14
"""The most rows of a chunk."""

FEW = 20
"""A table with at most this many rows is too small to tell how its columns should be used."""

MOST_LEVELS = 1 << 20
"""If a category has more levels than this, the counts of its rarest levels so far are dropped."""

_EXACT = 1 << 24
"""float32 holds all whole numbers up to this one. It rounds larger numbers to 24 bits."""

_ENOUGH = 256
"""A column with more distinct values than this in float32 is not lost; see `WholeNumbers`."""

# A column of text holds numbers if at most this fraction of its distinct texts are other words.
_WORDS = 0.1

_UNIQUE = 0.8  # a text column with a higher ratio of distinct values to rows is not a category
_FIRST = 64  # the first chunk has at most this many rows, and decides most columns

# An index that pandas writes to Parquet or CSV has such a name.
_INDEX = re.compile(r"__index_level_[0-9]+__|Unnamed: [0-9]+|")


class Rows(Protocol):
    """A table that is read in chunks: a `Frame` or `TableFiles`."""

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        ...

    def chunks(self, columns: Sequence[str], rows: int) -> Iterable[pa.Table]:
        """Yield the given columns of all rows, in chunks of at most `rows` rows."""
        ...


@dataclass(frozen=True)
class Inferred:
    """How the columns of a table are used.

    Attributes:
        steps: the step of each column of features or categories; categories have no levels yet.
        counts: for each category, and for each text column that is left out, how often each value
            occurs.
        left: a sentence for each text column that is left out because it has nearly as many
            distinct values as rows.
        coarse: the features of whole numbers for which rounding to float32 leaves at most half of
            the distinct values of some chunk, each with the numbers of distinct values before and
            after rounding.
    """

    steps: Mapping[str, Step]
    counts: Mapping[str, Mapping[str, int]]
    left: list[str]
    coarse: Mapping[str, tuple[int, int]]


def infer_columns(table: Rows, roles: Mapping[str, Any]) -> Inferred:
    """Return how the columns of a table are used; see `Schema.infer`.

    If the table has dates or text, a pass finds the columns of dates. If the table has categories,
    or numbers that float32 may round, another pass follows. A pass ends early if it can.

    Args:
        table: the table.
        roles: the names of columns by their use, as in the arguments of `Schema.infer`.

    Raises:
        ValueError: see `Schema.infer`.
    """
    columns = table.schema
    given = check_roles(columns, roles)
    used = {*given} | index_columns(columns)
    free = [name for name in columns.names if name not in used]
    named = roles.get("features")
    steps = _assign(columns, free, find_dates(table, free if named is None else named), roles)
    plain = [name for name, step in steps.items() if isinstance(step, Number)]
    numbers = [WholeNumbers(name) for name in plain if _is_wide(columns.field(name).type)]
    categories = [name for name, step in steps.items() if isinstance(step, Category)]
    levels = [Levels(name) for name in categories]
    rows = scan(table, [*levels, *numbers])
    for column in numbers:
        column.check()
    coarse = {column.name: column.coarse for column in numbers if column.coarse is not None}
    counts = {column.name: column.counts for column in levels}
    left: list[str] = []
    if roles.get("categories") is None:
        texts = [name for name in counts if _is_text(columns.field(name).type)]
        names = [name for name in texts if are_names(len(counts[name]), rows)]
        left = [_why_left(name, counts[name], rows) for name in names]
        steps = {name: step for name, step in steps.items() if name not in names}
    if not steps:
        raise ValueError(
            "a table must have a feature or a category besides the columns "
            f"{shown_names([*given])}, got {shown_names(columns.names)}"
            + (f" ({'; '.join(left)})" if left else "")
        )
    return Inferred(steps, counts, left, coarse)


def other_words(texts: Collection[str]) -> list[str] | None:
    """Return the texts that are no numbers; None if there are too many for a column of numbers.

    >>> other_words(["shoe", "boot", "1"]), other_words(["1", "2.5"])
    (None, [])
    """
    column = pa.array([*texts], pa.string())
    words = column.filter(pc.invert(are_numbers(column))).to_pylist()
    return words if len(words) <= _WORDS * len(texts) else None


def numbers_as_text(name: str, words: Collection[str]) -> str:
    """Return what to do about a column of text that holds numbers, except some words."""
    others = f", except {shown_names(words)}" if words else ""
    return (
        f"numbers written as text{others} (unless they are identifiers, make them numbers, in "
        f"pandas with pd.to_numeric(X[{name!r}], errors='coerce'))"
    )


def _why_left(name: str, texts: Collection[str], rows: int) -> str:
    """Return why a column of text is left out, and how to use it."""
    words = other_words(texts)
    what = "a name, not a category (to use its words, add columns of TF-IDF or embeddings)"
    if words is not None:
        what = numbers_as_text(name, words)
    return f"{name} is left out, with {len(texts)} different texts in {rows} rows: {what}"


class Finder:
    """Base class of finders, each of which learns something about a column from a table's chunks.

    Args:
        name: the name of the column.
        others: the names of further columns that the finder reads.

    Attributes:
        names: the names of all columns that the finder reads.
        open: whether more rows may change the result.
    """

    def __init__(self, name: str, *others: str) -> None:
        self.name = name
        self.names = (name, *others)
        self.open = True

    def add(self, part: pa.Table, row: int) -> None:
        """Look at the next rows; `row` is the row of the table at which they begin."""
        raise NotImplementedError


def scan(table: Rows, finders: Sequence[Finder]) -> int:
    """Show the rows of a table to finders, from the first row on, until no finder is open.

    The first rows close most finders. The rest of the table is read only for those still open.

    Args:
        table: the table.
        finders: the finders of the table's columns.

    Returns:
        How many rows were read.
    """
    seen = 0
    for first in (True, False):
        names = list(
            dict.fromkeys(name for finder in finders if finder.open for name in finder.names)
        )
        start = 0
        for part in table.chunks(names, _FIRST if first else ROWS) if names else ():
            fresh = part.slice(max(0, seen - start))
            for finder in finders if fresh.num_rows else ():
                if finder.open:
                    finder.add(fresh, seen)
            start += part.num_rows
            seen = max(seen, start)
            if first or not any(finder.open for finder in finders):
                break
    return seen


def find_dates(table: Rows, names: Collection[str] | None = None) -> dict[str, Date]:
    """Return the step of each column that holds dates, whether its type is dates or text.

    Args:
        table: the table.
        names: the names of the columns to look at. Default: all.

    Raises:
        RowError: a date is out of range, or some values of a text column have a UTC offset and
            others have none.

    >>> from ltr.datasets.frames import Frame
    >>> table = pa.table({"day": ["2024-12-31", None], "x": [1, 2], "shop": ["a", "2024-12-31"]})
    >>> find_dates(Frame.of(table))
    {'day': Date(zone='naive', hour=False)}
    """
    fields = [
        field for field in table.schema if kind_of(field.type) == "date" or _is_text(field.type)
    ]
    fields = [field for field in fields if names is None or field.name in names]
    finders = [DateColumn(field.name, field.type) for field in fields]
    scan(table, finders)
    return {finder.name: step for finder in finders if (step := finder.step()) is not None}


class DateColumn(Finder):
    """Finds whether a column holds dates.

    A column of text holds dates if each of its values is an ISO 8601 date, YYYY-MM-DD, with or
    without a time, which may have a UTC offset. Blanks around a value are ignored.

    Args:
        name: the name of the column.
        dtype: the type of the column, which is dates or text.

    Attributes:
        typed: whether `dtype` is a type of dates, not text.
    """

    def __init__(self, name: str, dtype: pa.DataType) -> None:
        super().__init__(name)
        self.typed = kind_of(dtype) == "date"
        self._zone: Zone = zone_of(dtype)
        self._hour = False
        # This is each zone's first text, with its row.
        self._first: dict[Zone, tuple[int, str]] = {}

    def add(self, part: pa.Table, row: int) -> None:
        """Look at the next values.

        Raises:
            RowError: a date is out of range.
        """
        column = without_codes(part.column(self.name))
        times = column if self.typed else self._times(column.cast(pa.string()), row)
        with counted_from(row):
            if times is not None and (days_and_hours(times, self.name)[:, 1] > 0).any():
                self._hour = True
                self.open = not self.typed

    def step(self) -> Date | None:
        """Return the step of the column; None if the column does not hold dates.

        Raises:
            RowError: some values of a text column have a UTC offset and others have none.
        """
        if len(self._first) > 1:
            (first, other), (row, text) = self._first.values()
            problem = f"dates must all have a time zone, or none, got {text!r} and {other!r}"
            raise RowError(row, self.name, problem, first)
        if self.typed:
            return Date(self._zone, self._hour)
        return next((Date(zone, self._hour) for zone in self._first), None)

    def _times(self, column: pa.ChunkedArray, row: int) -> pa.ChunkedArray | None:
        """Return the times in a text column; None if all are missing or a value is not a date."""
        texts = pc.utf8_trim_whitespace(column)
        if texts.null_count == len(texts):
            return None
        times = parse_dates(texts, "naive", "utc")
        if times is None:
            self.open = False
            self._first.clear()
            return None
        zones: tuple[Zone, ...] = ("naive", "utc")
        for zone in zones:
            at = pc.index(are_dates(texts, zone), pa.scalar(True)).as_py()
            if at >= 0:
                self._first.setdefault(zone, (row + at, texts[at].as_py()))
        return times


class WholeNumbers(Finder):
    """Finds whether a column of whole numbers is lost in float32, the type of features.

    A column is lost if rounding to float32 leaves at most half of its distinct values, and at most
    256 of them. Identifiers such as `10**18 + i` are lost: all become the same value. Timestamps of
    one year in nanoseconds are not lost: they keep a resolution of 137 seconds. A column with a
    fractional value is never lost. Chunks before the first one with a value above 2^24 in magnitude
    are not counted.

    Args:
        name: the name of the column.

    Attributes:
        coarse: the numbers of distinct values before and after rounding, in a chunk in which
            rounding leaves at most half of the distinct values; None if there is no such chunk.

    >>> numbers = WholeNumbers("id")
    >>> numbers.add(pa.table({"id": [10**18, 10**18 + 1]}), 0)
    >>> numbers.coarse
    (2, 1)
    >>> numbers.check()
    Traceback (most recent call last):
    ValueError: column 'id': ...
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.coarse: tuple[int, int] | None = None
        # These are up to 512 distinct values, or None until a chunk has a large value.
        self._seen: Any = None
        self._rounded = np.empty(0, np.float32)  # these are up to 257 distinct values in float32

    def add(self, part: pa.Table, row: int) -> None:
        """Look at the next values."""
        column = without_codes(part.column(self.name)).drop_null()
        if self._seen is None and not _is_large(column):
            floats = _as_floats(column)
            self.open = not (floats[np.isfinite(floats)] % 1).any()
            return
        values = pc.unique(column)
        floats = _as_floats(values)
        finite = np.isfinite(floats)
        if (floats[finite] % 1).any():
            self.open, self._seen = False, None
            return
        with np.errstate(over="ignore"):  # infinity is refused when the features are read
            singles = np.unique(floats[finite].astype(np.float32))
        if 2 * len(singles) <= finite.sum():
            self.coarse = max(self.coarse or (0, 0), (int(finite.sum()), len(singles)))
        rounded = np.union1d(self._rounded, singles)
        known = [] if self._seen is None else [self._seen]
        every = pc.unique(pa.chunked_array([*known, values.filter(pa.array(finite))]))
        self._rounded, self._seen = rounded[: _ENOUGH + 1], every[: 2 * _ENOUGH]
        if len(rounded) > _ENOUGH:
            self.open, self._seen = False, None

    def check(self) -> None:
        """Raise a `ValueError` if the column is lost; the message names it."""
        values = self._seen
        if values is None or not 0 < 2 * len(self._rounded) <= len(values):
            return
        with np.errstate(over="ignore"):
            floats = _as_floats(values).astype(np.float32)
        same, counts = np.unique(floats, return_counts=True)
        first, second = np.flatnonzero(floats == same[counts.argmax()])[:2].tolist()
        raise ValueError(
            f"column {self.name!r}: {values[first].as_py()} and {values[second].as_py()} are one "
            "number in float32, the type of features, and so are most others: make them "
            "text, subtract a constant, or leave the column out"
        )


class Levels(Finder):
    """Counts the values of a category.

    If there are more than `MOST_LEVELS` levels, the rare ones are dropped.

    Attributes:
        counts: how often each value occurs.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.counts = Counter[str]()

    def add(self, part: pa.Table, row: int) -> None:
        """Count the next values."""
        self.counts.update(count_levels(part.column(self.name)))
        if len(self.counts) > MOST_LEVELS:
            self.counts = Counter(dict(self.counts.most_common(MOST_LEVELS // 2)))


def are_names(distinct: int, rows: int) -> bool:
    """Return whether there are more than `FEW` rows and nearly as many distinct values as rows."""
    return rows > FEW and distinct > _UNIQUE * rows


def check_roles(columns: pa.Schema, roles: Mapping[str, Any]) -> dict[str, str]:
    """Return the use of each named column.

    Raises:
        ValueError: a column is missing or is named twice.
    """
    given: dict[str, str] = {}
    known = {*columns.names}
    for argument, name in check_columns(roles):
        if name not in known:
            raise no_column(argument, name, columns.names)
        if name in given:
            raise ValueError(
                f"a column must have one use, got {name!r} as {given[name]} and as {argument}"
            )
        given[name] = argument
    return given


def _assign(
    columns: pa.Schema, free: Sequence[str], dates: Mapping[str, Date], roles: Mapping[str, Any]
) -> dict[str, Step]:
    """Return the step of each column of features or categories, by the column's type.

    Args:
        columns: the schema of the table.
        free: the names of the columns without a role.
        dates: the steps of the columns of dates.
        roles: see `infer_columns`.
    """
    types = {field.name: field.type for field in columns}
    kinds = {name: kind_of(dtype) for name, dtype in types.items()} | dict.fromkeys(dates, "date")
    features, categories = roles.get("features"), roles.get("categories")
    if features is None:
        wanted = ("number", "embedding", "missing", "date")
        features = [name for name in free if kinds[name] in wanted]
        if categories is None:
            features = [x for x in features if x in dates or not pa.types.is_dictionary(types[x])]
    if categories is None:
        # A categorical column is a category, even if its values are numbers.
        named = {*features}
        rest = [name for name in free if name not in named]
        text = ("string", "boolean")
        categories = [x for x in rest if kinds[x] in text or pa.types.is_dictionary(types[x])]
    steps: dict[str, Step] = {}
    for name in features:
        if kinds[name] not in ("number", "boolean", "embedding", "missing", "date"):
            raise ValueError(
                "a feature must be numbers, fixed-size lists of them or dates, got column "
                f"{name!r} of type {types[name]} (name it in categories, or leave it out)"
            )
        width = width_of(types[name])
        steps[name] = dates.get(name) or (Number() if width == 1 else Vector(width))
    for name in categories:
        kind: Any = "string" if kinds[name] == "missing" else kinds[name]
        if kind not in CATEGORY_KINDS:
            raise ValueError(
                "a category must be text, numbers or booleans, got column "
                f"{name!r} of type {types[name]}"
            )
        steps[name] = Category(kind)
    return steps


def _is_text(dtype: pa.DataType) -> bool:
    return kind_of(dtype) == "string" and not pa.types.is_dictionary(dtype)


def index_columns(schema: pa.Schema) -> set[str]:
    """Return the names of the columns that are the index of a pandas frame.

    The metadata that pandas wrote, or the usual names of an index, tell which columns these are. In
    CSV that pandas wrote, the index has an empty name.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"x": [1, 2]}, index=[1, 0])
    >>> index_columns(pa.Table.from_pandas(frame).schema)
    {'__index_level_0__'}
    """
    indexes = {name for name in schema.names if _INDEX.fullmatch(name)}
    try:
        written: Any = (schema.pandas_metadata or {}).get("index_columns", ())
        return indexes | {name for name in written if isinstance(name, str)}
    except (ValueError, AttributeError, TypeError):  # the metadata is not pandas's
        return indexes


def no_column(argument: str, name: str | None, names: Collection[str]) -> ValueError:
    """Return the error for an argument that does not name a column of the table.

    >>> str(no_column("qid", "quer", ["query", "price"]))
    "qid must name a column of the table, got 'quer': the columns are 'query', 'price' (did you \
mean 'query'?)"
    """
    close = close_matches(argument if name is None else name, names)
    hint = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
    return ValueError(
        f"{argument} must name a column of the table, got {name!r}: the columns are "
        f"{shown_names(names)}{hint}"
    )


def _is_wide(dtype: pa.DataType) -> bool:
    """Return whether whole numbers of this type are checked for rounding to float32."""
    if pa.types.is_dictionary(dtype):
        return _is_wide(dtype.value_type)
    return pa.types.is_integer(dtype) or pa.types.is_float64(dtype) or pa.types.is_decimal(dtype)


def _is_large(column: pa.ChunkedArray) -> bool:
    """Return whether a column has a value above 2^24 in magnitude."""
    ends = pc.min_max(column).as_py().values()
    return any(end is not None and abs(float(end)) > _EXACT for end in ends)


def _as_floats(values: Any) -> np.ndarray:
    return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
