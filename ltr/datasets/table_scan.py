"""Find the schema of a table that is larger than memory, in passes over its files."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ltr.datasets.arrays import pc
from ltr.datasets.schema import Schema, count_levels
from ltr.datasets.table_files import (
    compare,
    find_files,
    first_text_of,
    kind_of_table,
    kind_of_values,
    naming,
    not_numbers,
)
from ltr.datasets.table_stream import RowStream, empty_table

MOST_LEVELS = 1 << 20
"""Of a category with more levels, those that are rare so far are forgotten while it is counted."""


def scan_table(path: Path, files: Sequence[Path], *, max_levels: int, **uses: Any) -> Schema:
    """Return the schema of a table, with the levels of its categories.

    It is that of `Schema.infer` and `fit_levels`. A CSV file takes a pass for the types of its
    columns, and any table with categories one for their levels.

    Args:
        path: the file, folder or pattern, for errors.
        files: its files, of one kind.
        max_levels: see `Schema.fit_levels`.
        uses: the columns by their uses; see `Schema.infer`.

    Raises:
        ValueError: what `load_table` and `Schema.infer` raise.
    """
    tables = [empty_table(file) for file in files]
    for file, table in zip(files[1:], tables[1:], strict=True):
        with naming(file):
            compare(tables[0], table, files[0])
    with naming(path):
        empty = pa.concat_tables(tables, promote_options="permissive")
        if kind_of_table(files[0]) != "parquet":
            text = {name for name in (uses["qid"], uses["doc_id"]) if name is not None}
            text |= {*(uses["categories"] or ())} & {*empty.column_names}
            empty = _typed(path, empty, text)
        schema = Schema.infer(empty, **uses)
        if not schema.categories:
            return schema
        return schema.with_levels(_count_levels(path, schema), max_levels)


def _typed(path: Path, empty: pa.Table, text: set[str]) -> pa.Table:
    """Return the columns of CSV files with the types that all of their values show."""
    kinds: dict[str, set[str]] = {name: set() for name in empty.column_names}
    numbers, distinct = Counter[str](), Counter[str]()
    first: dict[str, tuple[int, str]] = {}
    rows = 0
    for table in _pieces(path, empty.column_names):
        for name in {*empty.column_names} - text:
            column = table.column(name)
            kind, *counts = kind_of_values(pc.utf8_trim_whitespace(column))
            kinds[name].add(kind)
            numbers[name] += counts[0]
            distinct[name] += counts[1]
            if name not in first and counts[0] < counts[1]:
                row, value = first_text_of(column)
                first[name] = rows + row, value
        rows += table.num_rows
    if not rows:
        raise ValueError("a table must have a row at least, got none")
    types: dict[str, pa.DataType] = {}
    for name, found in kinds.items():
        found.discard("missing")
        types[name] = pa.string()
        if name in text:
            continue
        if not found:
            types[name] = pa.null()
        elif len(found) == 1 and "string" not in found:
            types[name] = pa.bool_() if "boolean" in found else pa.float64()
        elif numbers[name] > 0.5 * distinct[name]:
            raise not_numbers(name, *first[name])
    return pa.schema(list(types.items())).empty_table()


def _count_levels(path: Path, schema: Schema) -> dict[str, Counter[str]]:
    counts = {name: Counter[str]() for name in schema.categories}
    is_text = kind_of_table(find_files(path)[0]) != "parquet"
    for table in _pieces(path, list(schema.categories)):
        for name, category in schema.categories.items():
            column = table.column(name)
            if is_text and category.kind == "boolean":
                column = pc.utf8_lower(pc.utf8_trim_whitespace(column))
            counts[name].update(count_levels(column))
            if len(counts[name]) > MOST_LEVELS:
                counts[name] = Counter(dict(counts[name].most_common(MOST_LEVELS // 2)))
    return counts


def _pieces(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield columns of the files piece by piece, as they are."""
    stream = RowStream(path, Schema(columns[0], features=dict.fromkeys(columns[1:], 1)))
    yield from stream.tables()
