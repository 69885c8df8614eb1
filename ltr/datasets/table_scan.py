"""Find the schema of a table that does not fit into memory, in passes over its files."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ltr.arrays import check_columns
from ltr.datasets.dates import TYPES, DateFinder, Zone, is_date
from ltr.datasets.qids import check_spelling
from ltr.datasets.schema import Schema, are_names, count_levels, index_columns, kind_of
from ltr.datasets.table_files import ROWS, TableFiles, naming
from ltr.datasets.table_notices import Read, find_suspects, notice_of_columns, warn_caller
from ltr.datasets.text_types import TextTypes, typed
from ltr.datasets.whole_numbers import RoundedNumbers

MOST_LEVELS = 1 << 20
"""Of a category with more levels, those that are rare so far are forgotten while it is counted."""

_FIRST = 64  # rows


def scan_table(path: Path, *, max_levels: int, **uses: Any) -> Schema:
    """Return the schema of a table, with the levels of its categories.

    It is that of `Schema.infer` and `fit_levels`. A CSV file takes one pass for the types of its
    columns. A table with times or text takes a pass to find the dates, which ends early if it can.
    A table with categories takes a pass for their levels. A warning names the columns that look
    like a mistake; see `notice_of_columns`.

    Args:
        path: the file, folder or pattern.
        max_levels: see `Schema.fit_levels`.
        uses: the columns by their uses; see `Schema.infer`.

    Raises:
        ValueError: the errors of `load_table` and `Schema.infer`, or a qid has two spellings.
    """
    files = TableFiles(path)
    with naming(path):
        columns, types = files.schema, None
        if files.delimiter is not None:
            types = _find_types(files, uses)
            columns = pa.schema([*types.items()])
        dates = _find_dates(files, columns, uses)
        known = [
            one.with_type(TYPES[dates[one.name][0]]) if one.name in dates else one
            for one in columns
        ]
        schema = _infer(pa.schema(known, columns.metadata), dates, uses)
        if kind_of(columns.field(schema.qid).type) == "string":
            check_spelling(lambda: files.texts(schema.qid), schema.qid)

        def read(columns: Sequence[str], rows: int) -> Iterable[pa.Table]:
            chunks = (table for _, table in files.chunks(columns, rows))
            return chunks if types is None else (typed(table, types) for table in chunks)

        _check_numbers(read, schema)
        counts, rows = _count_levels(read, schema)
        left: dict[str, int] = {}
        if uses["categories"] is None:
            texts = [name for name in counts if kind_of(columns.field(name).type) == "string"]
            texts = [x for x in texts if not pa.types.is_dictionary(columns.field(x).type)]
            left = {x: len(counts[x]) for x in texts if are_names(len(counts[x]), rows)}
        if left:
            known = [one for one in known if one.name not in left]
            schema = _infer(pa.schema(known, columns.metadata), dates, uses)
        distinct = {name: len(counts[name]) for name in schema.categories}
        suspects = find_suspects(read, schema)
        chosen = None not in (uses["features"], uses["categories"])
        counted = columns, schema, rows, distinct, left, suspects, max_levels
        warn_caller(notice_of_columns(*counted, chosen=chosen))
        return schema.with_levels(counts, max_levels)


def _infer(
    columns: pa.Schema, dates: Mapping[str, tuple[Zone, int]], uses: dict[str, Any]
) -> Schema:
    """Return the schema of columns, without levels."""
    schema = Schema.infer(columns.empty_table(), **uses)
    widths = {name: width for name, (_, width) in dates.items() if name in schema.dates}
    return replace(schema, features={**schema.features, **widths})


def _find_types(files: TableFiles, uses: dict[str, Any]) -> dict[str, pa.DataType]:
    text = {name for name in (uses["qid"], uses["doc_id"]) if name is not None}
    found = TextTypes(files.schema.names, text | {*(uses["categories"] or ())})
    for _, table in files.chunks(files.schema.names):
        found.add(table)
    if not found.rows:
        raise ValueError("the table must have at least one row, got none")
    return found.found()


def _find_dates(
    files: TableFiles, columns: pa.Schema, uses: dict[str, Any]
) -> dict[str, tuple[Zone, int]]:
    """Return the result of `DateFinder` for each column of dates.

    The whole table is read only for columns whose first rows may be dates.
    """
    used = {name for _, name in check_columns(uses)} | index_columns(columns)
    names = [name for name in columns.names if name not in used] + [*(uses["features"] or ())]
    finder = DateFinder(columns, {*columns.names})
    for rows in (_FIRST, ROWS):
        finder = DateFinder(columns, {*columns.names} - {*names})
        for _, table in files.chunks([name for name in names if name in finder.open], rows):
            finder.add(table)
            if rows == _FIRST or not finder.open:
                break
        names = [x for x in names if x in finder.open or is_date(columns.field(x).type)]
    return finder.found()


def _count_levels(read: Read, schema: Schema) -> tuple[dict[str, Counter[str]], int]:
    """Return how often each value of each category occurs, and the number of rows."""
    counts = {name: Counter[str]() for name in schema.categories}
    rows = 0
    for table in read([*counts], ROWS) if counts else ():
        rows += table.num_rows
        for name, found in counts.items():
            found.update(count_levels(table.column(name)))
            if len(found) > MOST_LEVELS:
                counts[name] = Counter(dict(found.most_common(MOST_LEVELS // 2)))
    return counts, rows


def _check_numbers(read: Read, schema: Schema) -> None:
    """Raise an error for whole numbers that are lost in float32.

    The whole table is read only for columns with such numbers in the first rows.
    """
    names = [name for name in schema.features if name not in schema.dates]
    for whole in (False, True):
        numbers = RoundedNumbers(names)
        for table in read(names, ROWS) if names else ():
            numbers.add(table)
            if not whole:
                break
        names = [*numbers.suspects]
    numbers.check()
