"""Find how the columns of a table are used, in passes over its chunks.

The same passes serve tables in memory and files that do not fit into it. Each pass reads only the
columns that are still open, and ends as soon as none is.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.arrays import check_columns
from ltr.datasets.column_steps import (
    Category,
    Date,
    Number,
    Step,
    Vector,
    count_levels,
    kind_of,
    width_of,
)
from ltr.datasets.dates import DateFinder, is_date
from ltr.datasets.whole_numbers import RoundedNumbers
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

Read = Callable[[Sequence[str], int], Iterable[pa.Table]]
"""Yields the rows of some columns of a table, at most so many at a time."""


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
    columns: pa.Schema, read: Read, roles: Mapping[str, Any], trained: np.ndarray | None = None
) -> Inferred:
    """Return how the columns of a table are used; see `Schema.infer`.

    A table with times or text takes a pass to find the dates, which ends early if it can. A table
    with categories or whole numbers takes another pass.

    Args:
        columns: of the table, with their types.
        read: yields its rows.
        roles: the names of columns by their use, as `Schema.infer` takes them.
        trained: bool (rows,), the rows that are trained on. Default: all.

    Raises:
        ValueError: see `Schema.infer`.
    """
    given = check_roles(columns, roles)
    dates = _find_dates(columns, read, roles)
    steps = _assign(columns, dates, roles, given)
    plain = {name for name, step in steps.items() if isinstance(step, Number)}
    numbers = RoundedNumbers(columns, plain)
    for table in read([*numbers.open], ROWS) if numbers.open else ():
        numbers.add(table)  # the first rows clear most columns
        break
    coarse = numbers.coarse
    numbers = RoundedNumbers(columns, numbers.open)
    categories = [name for name, step in steps.items() if isinstance(step, Category)]
    counts = {name: Counter[str]() for name in categories}
    of_trained = {name: Counter[str]() for name in categories}
    names = [*counts, *numbers.open]
    rows = 0
    for table in read(names, ROWS) if names else ():
        numbers.add(table)
        part = None if trained is None else pa.array(trained[rows : rows + table.num_rows])
        rows += table.num_rows
        for name in counts:
            column = table.column(name)
            _count(counts, name, column)
            if part is not None:
                _count(of_trained, name, column.filter(part))
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


def _find_dates(
    columns: pa.Schema, read: Read, roles: Mapping[str, Any]
) -> dict[str, tuple[Zone, int]]:
    """Return the result of `DateFinder` for each column of dates.

    The whole table is read only for columns whose first rows may be dates.
    """
    used = {name for _, name in check_columns(roles)} | index_columns(columns)
    wanted = roles.get("features")
    names = [name for name in columns.names if name not in used] if wanted is None else [*wanted]
    finder = DateFinder(columns, {*columns.names})
    for rows in (_FIRST, ROWS):
        finder = DateFinder(columns, {*columns.names} - {*names})
        some = [name for name in names if name in finder.open]
        for table in read(some, rows) if some else ():
            finder.add(table)
            if rows == _FIRST or not finder.open:
                break
        names = [x for x in names if x in finder.open or is_date(columns.field(x).type)]
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
