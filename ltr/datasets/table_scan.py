"""Find the schema of a table that does not fit into memory, in passes over its files."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ltr.arrays import check_columns
from ltr.datasets.dates import TYPES, DateFinder, Zone, is_date
from ltr.datasets.qids import check_spelling
from ltr.datasets.schema import Schema, count_levels, index_columns, kind_of
from ltr.datasets.table_files import ROWS, TableFiles, naming
from ltr.datasets.table_notices import copies_of_qid, warn_of_columns
from ltr.datasets.text_types import TextTypes, typed

MOST_LEVELS = 1 << 20
"""Of a category with more levels, those that are rare so far are forgotten while it is counted."""

_FIRST = 64  # rows


def scan_table(path: Path, *, max_levels: int, **uses: Any) -> Schema:
    """Return the schema of a table, with the levels of its categories.

    It is that of `Schema.infer` and `fit_levels`. A CSV file takes one pass for the types of its
    columns. A table with times or text takes a pass to find the dates, which ends early if it can.
    A table with categories takes a pass for their levels. A warning names the columns that look
    like a mistake; see `warn_of_columns`.

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
        schema = Schema.infer(pa.schema(known, columns.metadata).empty_table(), **uses)
        widths = {name: width for name, (_, width) in dates.items() if name in schema.dates}
        schema = replace(schema, features={**schema.features, **widths})
        if kind_of(columns.field(schema.qid).type) == "string":
            check_spelling(lambda: files.texts(schema.qid), schema.qid)
        counts, rows = _count_levels(files, schema, types)
        distinct = {name: len(found) for name, found in counts.items()}
        copies = _find_copies(files, schema, types)
        chosen = None not in (uses["features"], uses["categories"])
        warn_of_columns(columns, schema, rows, distinct, copies, max_levels, chosen=chosen)
        return schema.with_levels(counts, max_levels)


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


def _count_levels(
    files: TableFiles, schema: Schema, types: dict[str, pa.DataType] | None
) -> tuple[dict[str, Counter[str]], int]:
    """Return how often each value of each category occurs, and the number of rows."""
    counts = {name: Counter[str]() for name in schema.categories}
    rows = 0
    for _, table in files.chunks([*counts]) if counts else ():
        rows += table.num_rows
        table = table if types is None else typed(table, types)
        for name, found in counts.items():
            found.update(count_levels(table.column(name)))
            if len(found) > MOST_LEVELS:
                counts[name] = Counter(dict(found.most_common(MOST_LEVELS // 2)))
    return counts, rows


def _find_copies(
    files: TableFiles, schema: Schema, types: dict[str, pa.DataType] | None
) -> list[str]:
    """Return the columns that equal the qid in all rows.

    The whole table is read only for columns whose first rows equal the qid.
    """
    copies = [*schema.features, *schema.categories]
    for rows in (_FIRST, ROWS):
        for _, table in files.chunks([schema.qid, *copies], rows):
            table = table if types is None else typed(table, types)
            copies = [name for name in copies_of_qid(table, schema.qid) if name in copies]
            if rows == _FIRST or not copies:
                break
    return copies
