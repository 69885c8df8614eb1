"""The columns of a table as plain values: their types, the names of queries, and their numbers.

`ltr.datasets` reads training tables by these rules, and `ltr.serving` encodes the documents of a
request by them, so both give a model the same numbers. This file needs only numpy.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from numbers import Integral
from typing import Any, Literal

import numpy as np

LARGEST = np.finfo(np.float32).max
"""The largest finite number in float32."""

_DAY, _TIME = "[0-9]{4}-[0-9]{2}-[0-9]{2}", r"[T ][0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?"
ISO_DATES = {
    "naive": f"^{_DAY}({_TIME})?$",
    "utc": f"^{_DAY}{_TIME}(Z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)$",
}
"""Patterns of dates as text in ISO 8601: with a time zone ("utc") and without one ("naive")."""

FIRST_DAY, LAST_DAY = (
    day.toordinal() - date(1970, 1, 1).toordinal() for day in (date.min, date.max)
)
"""The range of dates, as days since 1970-01-01: from 0001-01-01 to 9999-12-31."""

MICROSECONDS = 86_400_000_000
"""The number of microseconds in a day."""

Zone = Literal["naive", "utc"]
"""The zone of a column of dates: "utc" if the times have a time zone, otherwise "naive"."""

CategoryKind = Literal["string", "number", "boolean"]
CATEGORY_KINDS: tuple[CategoryKind, ...] = ("string", "number", "boolean")
"""The types that the values of a column of categories may have."""


def unmasked(values: Any) -> Any:
    """Return a masked array of numpy as an array in which a masked value is missing.

    A masked number becomes NaN, a masked date NaT, and any other masked value None. The same holds
    for the masked values in a list. Anything else is returned unchanged.

    >>> unmasked(np.ma.array([1, 2], mask=[False, True]))
    array([ 1., nan])
    """
    if isinstance(values, (list, tuple)) and any(
        isinstance(value, np.ma.MaskedArray) for value in values
    ):
        return [unmasked(value) for value in values]
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if not np.ma.is_masked(values):
        return np.asarray(values)
    kind, missing, dtype = values.dtype.kind, None, np.dtype(object)
    if kind in "biuf":
        missing, dtype = np.nan, np.result_type(values.dtype, np.float32)
    elif kind in "mM":
        missing, dtype = "NaT", values.dtype
    filled = np.array(values, dtype=dtype)
    filled[np.ma.getmaskarray(values)] = missing
    return filled


def qid_text(value: Any) -> str:
    """Return the text of a qid: two qids, of any types, are the same if their texts are equal.

    `evaluate`, `rank`, `fuse`, `fit`, `predict` and every other function with a `qid` compare these
    texts, and so do tables and lists on disk. Names of documents follow the same rule.

    - Text stays as it is written: "1", "01" and "1.0" are three names. Bytes are read as UTF-8.
    - A number is written without an exponent and without trailing zeros: 1, 1.0 and
      `Decimal("1.0")` are "1"; -0.0 is "0"; 0.5 is "0.5". A float has the fewest digits that
      identify it in its own type, so 0.1 is "0.1" in float32 and in float64.
    - A boolean is "true" or "false".
    - A date is "2026-11-28". A time of the day follows unless it is midnight, as in
      "2026-11-28 21:30:05.25". A time with a time zone is written in UTC and ends with "Z", so one
      instant in two time zones is one name.
    - Any other value is `str(value)`.

    Args:
        value: the qid of one row, not missing.

    Raises:
        ValueError: the value is a duration, or text that UTF-8 cannot write.

    >>> [qid_text(value) for value in ("01", 1, 1.0, True, Decimal("2.50"), date(2026, 11, 28))]
    ['01', '1', '1', 'true', '2.5', '2026-11-28']
    """
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ValueError(f"a name must be UTF-8 text, got {value!r}") from None
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (timedelta, np.timedelta64)):
        raise ValueError(f"a name must not be a duration, got {value!r}")
    if isinstance(value, (int, Integral)):
        return str(int(value))
    if isinstance(value, (float, np.floating, Decimal)):
        return _number_text(value)
    if isinstance(value, (date, np.datetime64)):
        return _date_text(value)
    text = str.__str__(value) if isinstance(value, str) else str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"a name must be UTF-8 text, got {value!r}") from None
    return text


def _number_text(value: Any) -> str:
    if not np.isfinite(float(value)):
        return str(float(value))
    if value == int(value):
        return str(int(value))
    if isinstance(value, Decimal):
        return format(value, "f").rstrip("0")
    return np.format_float_positional(value, trim="-")


def _date_text(value: Any) -> str:
    zone = ""
    if isinstance(value, np.datetime64):
        # A unit of numpy that is coarser than a second, such as a month, becomes seconds.
        unit = np.promote_types(value.dtype, "datetime64[s]")
        text = str(np.datetime_as_string(value.astype(unit)))
    elif isinstance(value, datetime):
        if value.utcoffset() is not None:
            value, zone = value.astimezone(UTC).replace(tzinfo=None), "Z"
        text = value.isoformat()
    else:
        return value.isoformat()
    day, _, time = text.partition("T")
    time = time.rstrip("0").rstrip(".") if "." in time else time
    return day if time == "00:00:00" and not zone else f"{day} {time}{zone}"


@dataclass(frozen=True)
class Number:
    """A column of numbers: one feature."""

    @property
    def width(self) -> int:
        """The number of features that the column becomes."""
        return 1

    def encode(self, name: str, values: Sequence[Any], dtype: type) -> np.ndarray:
        """Return the features of the documents, (documents, width); NaN if missing."""
        return numbers(name, values, self.width, dtype)

    def describe(self) -> dict[str, Any]:
        """Return the type of the column's values, with an example, as JSON."""
        return {"type": "number", "example": 0.5}


@dataclass(frozen=True)
class Vector(Number):
    """A column of vectors of one size, such as embeddings.

    Attributes:
        size: the number of elements of each vector.
    """

    size: int

    @property
    def width(self) -> int:
        """The number of features that the column becomes."""
        return self.size

    def describe(self) -> dict[str, Any]:
        """Return the type of the column's values, with an example, as JSON."""
        return {"type": "numbers", "size": self.size, "example": [0.5] * self.size}


@dataclass(frozen=True)
class Date:
    """A column of dates: the days since 1970-01-01 and, if it has times, the hour of the day.

    Attributes:
        zone: "utc" if the values have a time zone, otherwise "naive".
        hour: whether the hour of the day is a feature too.
    """

    zone: Zone
    hour: bool = False

    @property
    def width(self) -> int:
        """The number of features that the column becomes."""
        return 1 + self.hour

    def encode(self, name: str, values: Sequence[Any], dtype: type) -> np.ndarray:
        """Return the features of the documents, (documents, width); NaN if missing."""
        return _dates(name, values, self.zone)[:, : self.width].astype(dtype)

    def describe(self) -> dict[str, Any]:
        """Return the type of the column's values, with an example, as JSON."""
        utc = self.zone == "utc"
        time = "T23:59:59" if self.hour or utc else ""
        example = f"2024-12-31{time}{'Z' if utc else ''}"
        return {"type": "date", "time_zone": utc, "example": example}


@dataclass(frozen=True)
class Category:
    """A column of categories: the type of its values, and the values that have a code.

    Attributes:
        kind: "string", "number" or "boolean".
        levels: the values, as text; the code of `levels[i]` is i + 1. Missing values and values
            that are not levels have code 0.
    """

    kind: CategoryKind
    levels: tuple[str, ...] = ()

    @cached_property
    def codes(self) -> dict[str, int]:
        """The code of each level."""
        return {level: code for code, level in enumerate(self.levels, start=1)}

    def encode(self, name: str, values: Sequence[Any], dtype: type = np.int64) -> np.ndarray:
        """Return the codes of the documents, (documents, 1)."""
        plain = values.tolist() if isinstance(values, np.ndarray) else values
        codes = [self._code(name, value) for value in plain]
        return np.array(codes, dtype=dtype).reshape(-1, 1)

    def describe(self) -> dict[str, Any]:
        """Return the type of the column's values, with its levels and an example, as JSON."""
        example: Any = self.levels[0] if self.levels else None
        if example is not None and self.kind != "string":
            example = json.loads(example)
        return {"type": self.kind, "levels": [*self.levels], "example": example}

    def _code(self, name: str, value: Any) -> int:
        if is_na(value) or value != value:
            return 0
        if self.kind == "boolean":
            value = (value if isinstance(value, str) else str(bool(value))).lower()
        elif self.kind == "number":
            try:
                value = number_text(value)
            except (TypeError, ValueError, OverflowError):
                raise ValueError(f"column {name!r} must hold numbers, got {shown(value)}") from None
        return self.codes.get(str(value), 0)


def number_text(value: Any) -> str:
    """Return a number as the text of a category's level.

    3 and 3.0 are both "3". A fraction that float32 holds exactly has the digits that tell it apart
    in float32. So 0.1 in float32, and its copy in float64, is "0.1", like 0.1 in float64.

    >>> number_text(3.0), number_text(np.float32(0.1)), number_text(0.10000000149011612)
    ('3', '0.1', '0.1')
    """
    number = float(value)
    if number.is_integer():
        return str(int(value))
    if abs(number) <= LARGEST and float(np.float32(number)) == number:
        number = float(str(np.float32(number)))
    return str(number)


def steps_of(
    data: Mapping[str, Any], classes: tuple[Any, Any, Any, Any] = (Number, Vector, Date, Category)
) -> dict[str, Any]:
    """Return a step for each column, such as a `Number` or a `Date`, from plain data.

    Args:
        data: the columns, as `Schema.to_dict` returns them: "features" has the number of features
            of each column of numbers or dates, "dates" the zone of each column of dates, and
            "categories" the kind and the levels of each column of categories. A value of None
            stands for no columns.
        classes: the classes of the steps for numbers, vectors, dates and categories.
    """
    number, vector, dated, category = classes
    dates = data["dates"] or {}
    steps: dict[str, Any] = {}
    for name, width in (data["features"] or {}).items():
        if name in dates:
            steps[name] = dated(dates[name], width > 1)
        else:
            steps[name] = number() if width == 1 else vector(width)
    for name, known in (data["categories"] or {}).items():
        steps[name] = category(known["kind"], tuple(known["levels"]))
    return steps


def shown(value: Any) -> str:
    """Return the text of a value for a message, cut after 200 characters."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def is_na(value: Any) -> bool:
    """Return whether a value is None, or pandas's NA or NaT, by its type: NA cannot be compared."""
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def numbers(name: str, values: Sequence[Any], width: int, dtype: type) -> np.ndarray:
    """Return a column's numbers (documents, width); NaN if missing, infinite if too large.

    Args:
        name: the name of the column, for errors.
        values: a value for each document: a number, or a sequence of `width` numbers.
        width: the number of features that the column becomes.
        dtype: the type of the result.

    Raises:
        ValueError: a value is not a number, or its size is not `width`.
    """
    empty = np.nan if width == 1 else [np.nan] * width
    try:
        with np.errstate(over="ignore"):
            if isinstance(values, np.ndarray):
                array = values.astype(dtype)
            else:
                plain: list[Any] = [empty if is_na(x) else x for x in values]
                if width == 1:  # a vector of size 1 is a number
                    plain = [x[0] if _is_vector(x) and len(x) == 1 else x for x in plain]
                array = np.array(plain, dtype=dtype)
        if width == 1 and array.ndim > 1:
            raise ValueError("got a list")
        return array.reshape(len(values), width)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"column {name!r} must hold {width} number(s) per document: {str(error)[:200]}"
        ) from None


def _is_vector(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str)


def _dates(name: str, values: Sequence[Any], zone: str) -> np.ndarray:
    """Return the days since 1970-01-01 and the hours of the day, (rows, 2) float32."""
    days = np.full((len(values), 2), np.nan, dtype=np.float32)
    for row, value in enumerate(values):
        if not is_na(value) and value == value:
            days[row] = _day_and_hour(name, value, zone)
    return days


def _day_and_hour(name: str, value: Any, zone: str) -> tuple[int, float]:
    try:
        moment = value
        if isinstance(value, str) and any(re.match(x, value.strip()) for x in ISO_DATES.values()):
            moment = datetime.fromisoformat(value.strip())
        if isinstance(moment, date) and not isinstance(moment, datetime):
            moment = datetime(moment.year, moment.month, moment.day)
        if not isinstance(moment, datetime):
            raise ValueError("neither a date nor ISO 8601 text, YYYY-MM-DD with or without a time")
        if (moment.tzinfo is not None) != (zone == "utc"):
            wanted = "with" if zone == "utc" else "without"
            raise ValueError(f"dates must be {wanted} a time zone, as in training")
        if zone == "utc":
            moment = moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"column {name!r} must hold dates, got {shown(value)}: {str(error)[:200]}"
        ) from None
    seconds = (moment.hour * 60 + moment.minute) * 60 + moment.second
    microseconds = seconds * 1_000_000 + moment.microsecond
    return moment.toordinal() - date(1970, 1, 1).toordinal(), microseconds / (MICROSECONDS / 24)
