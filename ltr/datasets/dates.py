"""Dates and times of tables as numbers: days since 1970-01-01, and the hour of the day."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.arrays import pc
from ltr.datasets.table_errors import RowError, counted_from
from ltr.datasets.text_types import shown
from ltr.serving import FIRST_DAY, ISO_DATES, LAST_DAY, MICROSECONDS, Zone

_HOUR = 3_600_000_000
_IN_DAY = {"s": 86_400, "ms": 86_400_000, "us": MICROSECONDS, "ns": 1000 * MICROSECONDS}
TYPES: dict[Zone, pa.DataType] = {"naive": pa.timestamp("us"), "utc": pa.timestamp("us", "UTC")}
"""The types of text that holds dates."""

_ARE = {"naive": "without a time zone", "utc": "with a time zone"}
_HEAD = 64


class DateFinder:
    """Finds the columns of dates in the chunks of a table, by their types or by their text.

    A column of text holds dates if each of its values is an ISO 8601 date, YYYY-MM-DD, with or
    without a time, which may have an offset. Blanks around a value are ignored.

    Args:
        columns: of the table, with their types.
        skip: columns to ignore.

    Attributes:
        open: the columns that cannot be decided without more rows.

    >>> table = pa.table({"day": ["2024-12-31", None], "x": [1, 2], "shop": ["a", "2024-12-31"]})
    >>> finder = DateFinder(table.schema)
    >>> finder.add(table)
    >>> finder.found(), finder.open
    ({'day': ('naive', 1)}, {'day'})
    """

    def __init__(self, columns: pa.Schema, skip: Collection[str] = ()) -> None:
        wanted = [field for field in columns if field.name not in skip]
        self._zones: dict[str, Zone] = {
            one.name: zone_of(one.type) for one in wanted if is_date(one.type)
        }
        self.open = {*self._zones, *(one.name for one in wanted if _is_text(one.type))}
        self._with_time: set[str] = set()
        self._first: dict[str, tuple[Zone, int, str]] = {}
        self._mixed: dict[str, RowError] = {}
        self._rows = 0

    def add(self, table: Any) -> None:
        """Read the next rows.

        Raises:
            RowError: a date is out of range.
        """
        with counted_from(self._rows):
            for name in [one for one in table.column_names if one in self.open]:
                column = _decoded(table.column(name))
                times = column if name in self._zones else self._times(name, column)
                if times is not None and (_numbers(times, name)[:, 1] > 0).any():
                    self._with_time.add(name)
                    self.open -= {name} & {*self._zones}
        self._rows += table.num_rows

    def found(self) -> dict[str, tuple[Zone, int]]:
        """Return each date column's zone and number of features: 2 with a time of day, else 1.

        Raises:
            RowError: some values of a column of text have an offset, and others have none.
        """
        for error in self._mixed.values():
            raise error
        zones: dict[str, Zone] = {**self._zones}
        for name, (zone, _, _) in self._first.items():
            zones[name] = zone
        return {name: (zone, 1 + (name in self._with_time)) for name, zone in zones.items()}

    def _times(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray | None:
        """Return the times of a column of text; None if it has no value or is already decided."""
        texts = pc.utf8_trim_whitespace(column)
        if texts.null_count == len(texts):
            return None
        found = None
        for part in (texts.slice(0, _HEAD), texts):  # the first values tell most
            either = pc.or_(_matches(part, "naive"), _matches(part, "utc"))
            found = _cast(part) if pc.all(either, min_count=0).as_py() else None
            if found is None:
                self.open.discard(name)
                self._first.pop(name, None)
                self._mixed.pop(name, None)
                return None
        zones: tuple[Zone, ...] = ("naive", "utc")
        for zone in zones:
            row = pc.index(_matches(texts, zone), pa.scalar(True)).as_py()
            if row < 0:
                continue
            here = zone, self._rows + row, texts[row].as_py()
            known, first, other = self._first.setdefault(name, here)
            if known != zone:
                problem = f"dates must all have a time zone, or none, got {here[2]!r} and {other!r}"
                self._mixed.setdefault(name, RowError(here[1], name, problem, first))
        return found


def is_date(dtype: pa.DataType) -> bool:
    """Return whether values of a type are dates, or dates with a time.

    >>> is_date(pa.date32()), is_date(pa.timestamp("s", "Europe/Berlin")), is_date(pa.time32("s"))
    (True, True, False)
    """
    if pa.types.is_dictionary(dtype):
        return is_date(dtype.value_type)
    return pa.types.is_date(dtype) or pa.types.is_timestamp(dtype)


def zone_of(dtype: pa.DataType) -> Zone:
    """Return the time zone of a type of dates."""
    if pa.types.is_dictionary(dtype):
        return zone_of(dtype.value_type)
    return "utc" if pa.types.is_timestamp(dtype) and dtype.tz is not None else "naive"


def read_dates(column: pa.ChunkedArray, name: str, zone: Zone) -> np.ndarray:
    """Return the whole days since 1970-01-01 and the hours of the day, (rows, 2); NaN if missing.

    Both are float32. Days are exact. The hours, from 0 to 24, have minutes and seconds as a
    fraction. They are exact to the microsecond, then rounded to float32. Instants are in UTC.

    Args:
        column: of dates or times of any unit, or text.
        name: of the column, for errors.
        zone: the zone that dates in text must have.

    Raises:
        RowError: a date is out of range, or a text is not a date of this zone.

    >>> read_dates(pa.chunked_array([["1970-01-02T12:30", None]]), "at", "naive").tolist()
    [[1.0, 12.5], [nan, nan]]
    """
    column = _decoded(column)
    if _is_text(column.type):
        column = _parsed(column, name, zone)
    return _numbers(column, name)


def as_dates(numbers: np.ndarray) -> np.ndarray:
    """Return the dates (rows,), datetime64[us], from the result of `read_dates`; NaT where missing.

    >>> as_dates(np.array([[1, 12.5], [np.nan, np.nan]])).astype(str).tolist()
    ['1970-01-02T12:30:00.000000', 'NaT']
    """
    missing = np.isnan(numbers[:, 0]) | np.isnan(numbers[:, 1])
    days, hours = np.where(missing[:, None], 0, numbers.astype(np.float64)).T
    found = days.astype(np.int64) * MICROSECONDS + np.rint(hours * _HOUR).astype(np.int64)
    return np.where(missing, np.datetime64("NaT", "us"), found.astype("datetime64[us]"))


def _numbers(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """Return the result of `read_dates` for a column of dates or times."""
    found = np.full((len(column), 2), np.nan, dtype=np.float32)
    if pa.types.is_null(column.type):
        return found
    whole = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
    values = pc.fill_null(column.cast(whole), 0).to_numpy().astype(np.int64)
    there = column.is_valid().to_numpy()
    in_day = 1
    if not pa.types.is_date32(column.type):
        in_day = _IN_DAY["ms" if pa.types.is_date64(column.type) else column.type.unit]
    days, rest = values // in_day, values % in_day
    for row in np.flatnonzero(there & ((days < FIRST_DAY) | (days > LAST_DAY)))[:1]:
        problem = "a date must be from 0001-01-01 to 9999-12-31, got"
        raise RowError(int(row), name, f"{problem} the day {days[row]} days after 1970-01-01")
    microseconds = rest // 1000 if in_day > MICROSECONDS else rest * (MICROSECONDS // in_day)
    found[there] = np.stack([days, microseconds / _HOUR], axis=1)[there]
    return found


def _parsed(column: pa.ChunkedArray, name: str, zone: Zone) -> pa.ChunkedArray:
    """Return the times of a column of text."""
    texts = pc.utf8_trim_whitespace(column)
    found = _cast(texts) if pc.all(_matches(texts, zone), min_count=0).as_py() else None
    if found is not None:
        return found
    wrong = next(row for row, text in enumerate(texts.to_pylist()) if not _is_date(text, zone))
    problem = f"must be an ISO 8601 date (YYYY-MM-DD, or with a time) {_ARE[zone]}, as in training"
    raise RowError(wrong, name, f"{problem}, got {shown(column[wrong].as_py())}")


def _is_date(text: str | None, zone: Zone) -> bool:
    if text is None:
        return True
    one = pa.chunked_array([[text]])
    return pc.all(_matches(one, zone)).as_py() and _cast(one) is not None


def _matches(texts: pa.ChunkedArray, zone: Zone) -> pa.ChunkedArray:
    return pc.match_substring_regex(texts, ISO_DATES[zone])


def _cast(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return text in the form of dates as times; None for an impossible date (30 February).

    If a column has times of both kinds, those without an offset are returned.
    """
    short = pc.replace_substring_regex(texts, r"(\.[0-9]{6})[0-9]+", r"\1")
    aware = _matches(short, "utc")
    nothing = pa.scalar(None, pa.string())
    try:
        utc = pc.if_else(aware, short, nothing).cast(TYPES["utc"])
        naive = pc.if_else(aware, nothing, short).cast(TYPES["naive"])
    except pa.ArrowInvalid:
        return None
    return utc if naive.null_count == len(naive) else naive


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.string()) if _is_text(column.type) else column


def _is_text(dtype: pa.DataType) -> bool:
    types = pa.types
    return types.is_string(dtype) or types.is_large_string(dtype) or types.is_string_view(dtype)
