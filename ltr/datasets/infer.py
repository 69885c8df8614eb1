"""Find how the columns of a table are used, in passes over its chunks.

The same passes serve tables in memory and files that do not fit into it. Each pass reads only the
columns that are still open, and ends as soon as none is.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ltr.arrays import check_columns, pc
from ltr.datasets.column_steps import (
    Category,
    Date,
    Number,
    RowError,
    Step,
    Vector,
    are_dates,
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
from ltr.serving import Zone

ROWS = 1 << 14
"""The most rows of a chunk."""

FEW = 20
"""A table with at most this many rows is too small to tell what its columns are."""

MOST_LEVELS = 1 << 20
"""Of a category with more levels, those that are rare so far are forgotten while it is counted."""

_UNIQUE = 0.8  # text with more different values than this fraction of the rows is names
_FIRST = 64  # rows, which tell most

_INDEX = re.compile(r"__index_level_[0-9]+__|Unnamed: [0-9]+|")  # in Parquet, and twice in CSV


class Rows(Protocol):
    """A table that is read chunk by chunk: a `Frame` or `TableFiles`."""

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        ...

    def chunks(self, columns: Sequence[str], rows: int) -> Iterable[pa.Table]:
        """Yield some columns of all rows, at most so many rows at a time."""
        ...


@dataclass(frozen=True)
class Inferred:
    """How the columns of a table are used.

    Attributes:
        steps: what each column of features and categories becomes; categories have no levels yet.
        counts: by category, how often each of its values occurs.
        trained: the same in the rows that are trained on.
        left: the columns of text with nearly one value per row, which are left out, with the number
            of their different values.
        coarse: features of whole numbers of which float32 keeps at most half, with the number of
            different ones in some rows, and the number that is left.
        rows: how many were read; 0 if the types of the columns told all.
    """

    steps: Mapping[str, Step]
    counts: Mapping[str, Mapping[str, int]]
    trained: Mapping[str, Mapping[str, int]]
    left: Mapping[str, int]
    coarse: Mapping[str, tuple[int, int]]
    rows: int


def infer_columns(
    table: Rows, roles: Mapping[str, Any], trained: np.ndarray | None = None
) -> Inferred:
    """Return how the columns of a table are used; see `Schema.infer`.

    A table with times or text takes a pass to find the dates, which ends early if it can. A table
    with categories or whole numbers takes another pass.

    Args:
        table: the table.
        roles: the names of columns by their use, as `Schema.infer` takes them.
        trained: bool (rows,), the rows that are trained on. Default: all.

    Raises:
        ValueError: see `Schema.infer`.
    """
    columns = table.schema
    given = check_roles(columns, roles)
    dates = _find_dates(table, roles)
    steps = _assign(columns, dates, roles, given)
    plain = {name for name, step in steps.items() if isinstance(step, Number)}
    numbers = RoundedNumbers(columns, plain)
    for part in table.chunks([*numbers.open], ROWS) if numbers.open else ():
        numbers.add(part)  # the first rows clear most columns
        break
    coarse = numbers.coarse
    numbers = RoundedNumbers(columns, numbers.open)
    categories = [name for name, step in steps.items() if isinstance(step, Category)]
    counts = {name: Counter[str]() for name in categories}
    of_trained = {name: Counter[str]() for name in categories}
    names = [*counts, *numbers.open]
    rows = 0
    for part in table.chunks(names, ROWS) if names else ():
        numbers.add(part)
        kept = None if trained is None else pa.array(trained[rows : rows + part.num_rows])
        rows += part.num_rows
        for name in counts:
            column = part.column(name)
            _count(counts, name, column)
            if kept is not None:
                _count(of_trained, name, column.filter(kept))
    numbers.check()
    coarse = {**numbers.coarse, **coarse}
    left: dict[str, int] = {}
    if roles.get("categories") is None:
        texts = [name for name in counts if _is_text(columns.field(name).type)]
        left = {x: len(counts[x]) for x in texts if are_names(len(counts[x]), rows)}
        steps = {name: step for name, step in steps.items() if name not in left}
    if not steps:
        raise ValueError(
            "a table must have a feature or a category besides the columns "
            f"{shown_names([*given])}, got {shown_names(columns.names)}"
            + (f" ({shown_names(left)}: one text per row is no category)" if left else "")
        )
    return Inferred(steps, counts, counts if trained is None else of_trained, left, coarse, rows)


def are_names(distinct: int, rows: int) -> bool:
    """Return whether text with so many different values has nearly one per row."""
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


def _find_dates(table: Rows, roles: Mapping[str, Any]) -> dict[str, tuple[Zone, int]]:
    """Return the result of `DateFinder` for each column of dates.

    The whole table is read only for columns whose first rows may be dates.
    """
    columns = table.schema
    used = {name for _, name in check_columns(roles)} | index_columns(columns)
    wanted = roles.get("features")
    names = [name for name in columns.names if name not in used] if wanted is None else [*wanted]
    finder = DateFinder(columns, {*columns.names})
    for rows in (_FIRST, ROWS):
        finder = DateFinder(columns, {*columns.names} - {*names})
        some = [name for name in names if name in finder.open]
        for part in table.chunks(some, rows) if some else ():
            finder.add(part)
            if rows == _FIRST or not finder.open:
                break
        names = [x for x in names if x in finder.open or kind_of(columns.field(x).type) == "date"]
    return finder.found()


def _assign(
    columns: pa.Schema,
    dates: Mapping[str, tuple[Zone, int]],
    roles: Mapping[str, Any],
    given: Collection[str],
) -> dict[str, Step]:
    """Return what columns become by their types."""
    types = {one.name: one.type for one in columns}
    kinds = {name: kind_of(dtype) for name, dtype in types.items()} | dict.fromkeys(dates, "date")
    indexes = index_columns(columns)
    free = [name for name in types if name not in given and name not in indexes]
    features, categories = roles.get("features"), roles.get("categories")
    if features is None:
        wanted = ("number", "embedding", "missing", "date")
        features = [one for one in free if kinds[one] in wanted]
        if categories is None:
            features = [x for x in features if x in dates or not _is_categorical(types[x])]
    if categories is None:
        # a categorical column is a category, even if its values are numbers
        named = {*features}
        categories = [
            one
            for one in free
            if one not in named
            and (kinds[one] in ("string", "boolean") or _is_categorical(types[one]))
        ]
    for name in features:
        if kinds[name] not in ("number", "boolean", "embedding", "missing", "date"):
            raise ValueError(
                "a feature must be numbers, fixed-size lists of them or dates, got column "
                f"{name!r} of type {types[name]} (name it in categories, or leave it out)"
            )
    for name in categories:
        if kinds[name] not in ("string", "number", "boolean", "missing"):
            raise ValueError(
                "a category must be text, numbers or booleans, got column "
                f"{name!r} of type {types[name]}"
            )
    return {
        **{name: _number_step(types[name], dates.get(name)) for name in features},
        **{
            name: Category("string" if kinds[name] == "missing" else kinds[name])  # pyright: ignore[reportArgumentType]
            for name in categories
        },
    }


def _number_step(dtype: pa.DataType, date: tuple[Zone, int] | None) -> Step:
    """Return what a column of features becomes."""
    if date is not None:
        zone, width = date
        return Date(zone, width > 1)
    width = width_of(dtype)
    return Number() if width == 1 else Vector(width)


def _count(counts: dict[str, Counter[str]], name: str, column: pa.ChunkedArray) -> None:
    """Count the next values of a category."""
    counts[name].update(count_levels(column))
    if len(counts[name]) > MOST_LEVELS:
        counts[name] = Counter(dict(counts[name].most_common(MOST_LEVELS // 2)))


def _is_categorical(dtype: pa.DataType) -> bool:
    return pa.types.is_dictionary(dtype)


def _is_text(dtype: pa.DataType) -> bool:
    return kind_of(dtype) == "string" and not _is_categorical(dtype)


def index_columns(schema: pa.Schema) -> set[str]:
    """Return the columns that are the index of a pandas frame.

    Metadata that pandas wrote names them; a column has no name where pandas wrote CSV.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"x": [1, 2]}, index=[1, 0])
    >>> index_columns(pa.Table.from_pandas(frame).schema)
    {'__index_level_0__'}
    """
    found = {name for name in schema.names if _INDEX.fullmatch(name)}
    try:
        written: Any = (schema.pandas_metadata or {}).get("index_columns", ())
        return found | {name for name in written if isinstance(name, str)}
    except (ValueError, AttributeError, TypeError):  # the metadata is not pandas's
        return found


def no_column(argument: str, name: str | None, names: Collection[str]) -> ValueError:
    """Return the error for an argument that names no column of a table.

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
            one.name: zone_of(one.type) for one in wanted if kind_of(one.type) == "date"
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
                column = without_codes(table.column(name))
                times = column if name in self._zones else self._times(name, column)
                if times is not None and (days_and_hours(times, name)[:, 1] > 0).any():
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
        texts = pc.utf8_trim_whitespace(column.cast(pa.string()))
        if texts.null_count == len(texts):
            return None
        found = None
        for part in (texts.slice(0, _FIRST), texts):
            found = parse_dates(part, "naive", "utc")
            if found is None:
                self.open.discard(name)
                self._first.pop(name, None)
                self._mixed.pop(name, None)
                return None
        zones: tuple[Zone, ...] = ("naive", "utc")
        for zone in zones:
            row = pc.index(are_dates(texts, zone), pa.scalar(True)).as_py()
            if row < 0:
                continue
            here = zone, self._rows + row, texts[row].as_py()
            known, first, other = self._first.setdefault(name, here)
            if known != zone:
                problem = f"dates must all have a time zone, or none, got {here[2]!r} and {other!r}"
                self._mixed.setdefault(name, RowError(here[1], name, problem, first))
        return found
