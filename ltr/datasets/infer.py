"""Find how the columns of a table are used, in passes over its chunks.

The same passes serve tables in memory and files that do not fit into it. Each pass reads only the
columns that are still open, and ends as soon as none is.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.arrays import check_columns
from ltr.datasets.dates import DateFinder, Zone, is_date
from ltr.datasets.schema import (
    Category,
    Schema,
    count_levels,
    index_columns,
    kind_of,
    no_column,
    shown_names,
    width_of,
)
from ltr.datasets.whole_numbers import RoundedNumbers

ROWS = 1 << 14
"""The most rows of a chunk."""

FEW = 20
"""A table with at most this many rows is too small to tell what its columns are."""

MOST_LEVELS = 1 << 20
"""Of a category with more levels, those that are rare so far are forgotten while it is counted."""

_UNIQUE = 0.8  # text with more different values than this fraction of the rows is names
_FIRST = 64  # rows, which tell most

Read = Callable[[Sequence[str], int], Iterable[pa.Table]]
"""Yields the rows of some columns of a table, at most so many at a time."""


@dataclass(frozen=True)
class Inferred:
    """How the columns of a table are used.

    Attributes:
        schema: without the levels of its categories.
        counts: by category, how often each of its values occurs.
        trained: the same in the rows that are trained on.
        left: the columns of text with nearly one value per row, which are left out, with the number
            of their different values.
        rows: how many were read; 0 if the types of the columns told all.
    """

    schema: Schema
    counts: Mapping[str, Mapping[str, int]]
    trained: Mapping[str, Mapping[str, int]]
    left: Mapping[str, int]
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
    schema = _assign(columns, dates, roles, given)
    numbers = RoundedNumbers(columns, {*schema.features} - {*schema.dates})
    for table in read([*numbers.open], ROWS) if numbers.open else ():
        numbers.add(table)  # the first rows clear most columns
        break
    numbers = RoundedNumbers(columns, numbers.open)
    counts = {name: Counter[str]() for name in schema.categories}
    of_trained = {name: Counter[str]() for name in schema.categories}
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
    left: dict[str, int] = {}
    if roles.get("categories") is None:
        texts = [name for name in counts if _is_text(columns.field(name).type)]
        left = {x: len(counts[x]) for x in texts if are_names(len(counts[x]), rows)}
        kept = {name: one for name, one in schema.categories.items() if name not in left}
        schema = replace(schema, categories=kept)
    if not schema.features and not schema.categories:
        raise ValueError(
            "a table must have a feature or a category besides the columns "
            f"{shown_names([*given])}, got {shown_names(columns.names)}"
            + (f" ({shown_names(left)}: one text per row is no category)" if left else "")
        )
    return Inferred(schema, counts, counts if trained is None else of_trained, left, rows)


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
) -> Schema:
    """Return the schema of columns by their types, without levels."""
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
    keys = {key: name for key, name in roles.items() if key not in ("features", "categories")}
    return Schema(
        **keys,
        features={
            name: dates[name][1] if name in dates else width_of(types[name]) for name in features
        },
        dates={name: dates[name][0] for name in features if name in dates},
        categories={
            name: Category("string" if kinds[name] == "missing" else kinds[name])  # pyright: ignore[reportArgumentType]
            for name in categories
        },
    )


def _count(counts: dict[str, Counter[str]], name: str, column: pa.ChunkedArray) -> None:
    """Count the next values of a category."""
    counts[name].update(count_levels(column))
    if len(counts[name]) > MOST_LEVELS:
        counts[name] = Counter(dict(counts[name].most_common(MOST_LEVELS // 2)))


def _is_categorical(dtype: pa.DataType) -> bool:
    return pa.types.is_dictionary(dtype)


def _is_text(dtype: pa.DataType) -> bool:
    return kind_of(dtype) == "string" and not _is_categorical(dtype)
