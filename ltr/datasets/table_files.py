"""Load tables: CSV and Parquet files, and pandas, polars and Arrow tables in memory."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from glob import glob, has_magic
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from ltr.compressed import SUFFIXES, TextFile, open_text
from ltr.datasets.arrays import is_absent, pc
from ltr.datasets.schema import kind_of

_PARQUET = (".parquet", ".pq")
_TEXT = {".csv": ",", ".tsv": "\t"}
_LETOR = (".txt", ".dat", ".svm", ".svmlight", ".libsvm", ".letor", ".train", ".test", ".valid")
_MISSING = ["", "NULL", "null", "NaN", "nan", "NAN", "NA", "N/A", "n/a", "#N/A", "None", "<NA>"]
_TRUE, _FALSE = ["true", "True", "TRUE"], ["false", "False", "FALSE"]
_NUMBER = r"^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity))$"


def load_table(source: Any, text: Collection[str] = ()) -> pa.Table:
    """Load a table from CSV or Parquet files, or from pandas, polars or Arrow.

    The values of a CSV file have no types. A column holds booleans if all of its values are true or
    false, numbers if all are numbers, and otherwise text. If more than half of the values of a text
    column are numbers, it is an error, unless `text` names the column. The empty value, NULL, NaN,
    NA, N/A, #N/A, None and <NA> are missing.

    Args:
        source: a file, a folder of files or a pattern such as "data/2024-*.parquet" (files in the
            order of their names; `.csv` and `.tsv`, plain or compressed, `.parquet` and `.pq`), or
            a pandas or polars data frame, an Arrow table, or any other object with
            `__arrow_c_stream__`.
        text: columns of a CSV file that are text whatever their values are.

    Raises:
        ValueError: there is no such file, a file is damaged or of another kind, several files have
            different columns, a name occurs twice, a column has values of mixed types, or there is
            no row.

    >>> load_table(pa.table({"q": [1, 2]})).num_rows
    2
    """
    if isinstance(source, str | PathLike):
        table = _load_files(Path(source).expanduser(), frozenset(text))
    else:
        table = _from_memory(source)
    if not table.num_rows:
        raise ValueError(f"a table must have a row at least, got none{of_file(source)}")
    return table


def _from_memory(source: Any) -> pa.Table:
    if type(source).__name__ == "LazyFrame":
        raise ValueError("a table must be a polars DataFrame, got a LazyFrame: call collect()")
    names = [str(name) for name in getattr(source, "columns", getattr(source, "column_names", ()))]
    if isinstance(source, pa.Table | pa.RecordBatch):
        names = source.schema.names
    _refuse_doubles(names)
    try:
        if type(source).__module__.partition(".")[0] == "pandas":
            return _from_pandas(source)
        if hasattr(source, "__arrow_c_stream__") or isinstance(source, pa.RecordBatch):
            return _without_views(pa.table(source))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"the table cannot be read: {error}") from None
    raise ValueError(
        "a table must be a path, or a pandas, polars or Arrow table, got "
        f"{type(source).__module__}.{type(source).__qualname__}"
    )


def _without_views(table: pa.Table) -> pa.Table:
    """The table with its string views, which polars gives, as strings: Arrow computes with few."""
    for place, field in enumerate(table.schema):
        column = table.column(place)
        if pa.types.is_string_view(field.type):
            column = column.cast(pa.string())
        elif pa.types.is_dictionary(field.type) and pa.types.is_string_view(field.type.value_type):
            chunks = [
                pa.DictionaryArray.from_arrays(one.indices, one.dictionary.cast(pa.string()))
                for one in column.chunks
            ]
            column = pa.chunked_array(chunks, pa.dictionary(field.type.index_type, pa.string()))
        else:
            continue
        table = table.set_column(place, field.name, column)
    return table


def _from_pandas(frame: Any) -> pa.Table:
    """Return a data frame as a table, column by column, so that an error can name the row."""
    columns = []
    for name in frame.columns:
        values = frame[name]
        try:
            columns.append(pa.Array.from_pandas(values))
        except OverflowError:
            whole = [isinstance(x, int) and abs(x) >= 2**63 for x in values]
            place = whole.index(True)
            raise ValueError(
                f"row {place}, column {str(name)!r}: a whole number must fit into 64 bits, got "
                f"one of {values.iloc[place].bit_length()} bits"
            ) from None
        except (pa.ArrowException, TypeError, ValueError) as error:
            there = [(i, x) for i, x in enumerate(values.tolist()) if not is_absent(x)]
            first = there[0][1]
            other, value = next((one for one in there if type(one[1]) is not type(first)), there[0])
            raise ValueError(
                f"row {other}, column {str(name)!r}: values of mixed types, got {value!r} of type "
                f"{type(value).__name__} after {first!r} of type {type(first).__name__} "
                f"({str(error).splitlines()[0]})"
            ) from None
    return pa.Table.from_arrays(columns, names=[str(name) for name in frame.columns])


def _refuse_doubles(names: list[str]) -> None:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValueError(f"a column must be there once, got {name!r} twice")


def _load_files(path: Path, text: frozenset[str]) -> pa.Table:
    files = find_files(path)
    tables = []
    for file in files:
        with naming(file):
            tables.append(_load_file(file, text))
            _refuse_doubles(tables[-1].column_names)
            if len(tables) > 1:
                compare(tables[0], tables[-1], files[0])
    try:
        joined = pa.concat_tables(
            [table.select(tables[0].column_names) for table in tables],
            promote_options="permissive",
        )
    except pa.ArrowException as error:
        raise ValueError(f"{path}: the files must have the same columns: {error}") from None
    if any(file.suffix in _PARQUET for file in files):
        return joined
    with naming(path):
        return typed(joined, text)


def find_files(path: Path) -> list[Path]:
    """Return the files of a table, in the order of their names: all of one kind.

    LETOR text is passed over where there are files of other kinds.

    Raises:
        ValueError: there is no such file, or there are several kinds.
    """
    if path.is_file():
        return [path]
    if path.is_dir():
        found = [one for one in sorted(path.rglob("*")) if one.is_file() and kind_of_file(one)]
        found = [one for one in found if kind_of_file(one) != "letor"] or found
        if not found:
            raise ValueError(
                f"a folder of a table must hold CSV, Parquet or LETOR files, got {path}"
            )
    elif has_magic(str(path)):
        found = [Path(one) for one in sorted(glob(str(path), recursive=True))]
        found = [one for one in found if one.is_file()]
        if not found:
            raise ValueError(f"a pattern must be of files that are there, got {path}")
    else:
        raise ValueError(f"path must be a file, a folder or a pattern, got {path} (no such file)")
    kinds = {kind_of_file(one) for one in found}
    if len(kinds) > 1:
        raise ValueError(f"the files of a table must be of one kind, got several in {path}")
    return found


def kind_of_file(path: Path) -> str:
    """Return a file's kind by its name: "parquet", "letor", its text's delimiter, or "".

    >>> kind_of_file(Path("a.csv.gz")), kind_of_file(Path("a.xlsx"))
    (',', '')
    """
    if path.name.startswith((".", "_")):
        return ""
    plain = Path(path.stem) if path.suffix in SUFFIXES else path
    if plain.suffix.lower() in _LETOR:
        return "letor"
    return "parquet" if path.suffix in _PARQUET else _TEXT.get(plain.suffix.lower(), "")


def kind_of_table(file: Path) -> str:
    """Return "parquet", or the delimiter of a text.

    Raises:
        ValueError: the file is of another kind.

    >>> kind_of_table(Path("a.csv.gz"))
    ','
    """
    kind = kind_of_file(file)
    if kind == "letor":
        raise ValueError("LETOR text has no columns: take TableDataModule or read_letor")
    if not kind:
        raise ValueError(
            "a table must end in .csv, .tsv, .parquet or .pq, or in .txt or another ending of "
            "LETOR text (text may be compressed)"
        )
    return kind


def _load_file(file: Path, text: frozenset[str]) -> pa.Table:
    kind = kind_of_table(file)
    with naming_damage():
        if kind == "parquet":
            # one file at a time, since Arrow would fill columns that a file lacks with nulls
            return pq.ParquetFile(file).read()
        with open_csv(file, kind) as (reader, _):
            return reader.read_all()


@contextmanager
def naming_damage() -> Iterator[None]:
    """Say that a file is no table, in place of Arrow's errors."""
    try:
        yield
    except pa.ArrowException as error:
        raise ValueError(f"not a table: {' '.join(str(error).split())}") from None


@contextmanager
def open_csv(
    file: Path, delimiter: str, block: int = 1 << 24
) -> Iterator[tuple[csv.CSVStreamingReader, TextFile]]:
    """Open a CSV file; its columns are text, null where a value is missing.

    Gives the reader, and the file that it reads from.

    Args:
        file: plain or compressed.
        delimiter: of the columns.
        block: the bytes that are read at a time, more than a row has.
    """
    # in one thread, so that an error names the row
    options = csv.ReadOptions(block_size=block, use_threads=False)
    parse = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    with open_text(file) as content, csv.open_csv(content, options, parse) as reader:
        names = reader.schema.names
    _refuse_doubles(names)
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=_MISSING,
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    with (
        open_text(file) as content,
        csv.open_csv(content, options, parse, convert) as reader,
    ):
        yield reader, content


def compare(first: pa.Table, other: pa.Table, file: Path) -> None:
    """Refuse a file that does not have the columns of the first one."""
    for name in dict.fromkeys([*first.column_names, *other.column_names]):
        if name not in first.column_names or name not in other.column_names:
            has, lacks = ("it", file) if name in other.column_names else (file, "it")
            raise ValueError(
                f"the files of a table must have the same columns: {lacks} has no {name!r}, "
                f"{has} has one"
            )
        one, two = first.schema.field(name).type, other.schema.field(name).type
        if kind_of(one) != kind_of(two) and "missing" not in (kind_of(one), kind_of(two)):
            raise ValueError(
                "the files of a table must have the same columns: column "
                f"{name!r} is {two} here and {one} in {file}"
            )


def typed(table: pa.Table, text: frozenset[str]) -> pa.Table:
    """Return the columns of a CSV file with the types that their values show."""
    columns = []
    for name in table.column_names:
        column = table.column(name)
        if name not in text:
            column = _guess(column, name)
        columns.append(column)
    return pa.table(columns, names=table.column_names)


def _guess(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    trimmed = pc.utf8_trim_whitespace(column)
    kind, numbers, distinct = kind_of_values(trimmed)
    if kind == "missing":
        return pa.chunked_array([pa.nulls(len(column))])
    if kind == "boolean":
        return pc.utf8_lower(trimmed).cast(pa.bool_())
    if kind == "number":
        return trimmed.cast(pa.float64())
    if numbers > 0.5 * distinct:
        raise not_numbers(name, *first_text_of(column))
    return column


def kind_of_values(trimmed: pa.ChunkedArray) -> tuple[str, int, int]:
    """Return the kind of what text shows, and of its distinct values: the numbers, and all.

    >>> kind_of_values(pa.chunked_array([["1", "2.5", None]]))
    ('number', 2, 2)
    """
    values = pa.chunked_array([pc.unique(trimmed.drop_null())])
    if not len(values):
        return "missing", 0, 0
    if pc.all(pc.is_in(values, pa.array(_TRUE + _FALSE))).as_py():
        return "boolean", 0, len(values)
    numbers = int(_are_numbers(values).sum())
    return "number" if numbers == len(values) else "string", numbers, len(values)


def not_numbers(name: str, row: int, value: str) -> ValueError:
    """Return the error of a column of numbers that holds something else."""
    return ValueError(
        f"row {row}, column {name!r}: most values are numbers, got {value!r} "
        "(a column of text must be named in categories, doc_id or qid)"
    )


def first_text_of(column: pa.ChunkedArray) -> tuple[int, str]:
    """Return the first row of a column that holds no number, and its text."""
    row = first_text(column)
    assert row is not None  # else all are numbers
    return row, column[row].as_py()


def first_text(column: pa.ChunkedArray) -> int | None:
    """Return the first row of a column of text that is neither missing nor a number, or None."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    bad = np.flatnonzero(~_are_numbers(pc.utf8_trim_whitespace(column.cast(pa.string()))))
    return int(bad[0]) if len(bad) else None


def _are_numbers(values: pa.ChunkedArray) -> np.ndarray:
    """Return whether each text is a number; a missing one counts as a number."""
    found = pc.match_substring_regex(values, _NUMBER)
    return pc.fill_null(found, True).to_numpy()


@contextmanager
def naming(source: Any) -> Iterator[None]:
    """Put the file's name before an error, if the table comes from a file.

    For a folder or pattern, name the file that has the row, and count the row within that file.
    """
    try:
        yield
    except ValueError as error:
        text = str(error)
        if not isinstance(source, str | PathLike) or text.startswith(str(source)):
            raise
        path = Path(source).expanduser()
        several = has_magic(str(path)) and not path.exists()
        if several and text.startswith(tuple(f"{file}: " for file in find_files(path))):
            raise
        raise ValueError(_placed(path, text) or f"{source}: {text}") from None


def _placed(path: Path, text: str) -> str | None:
    """Return an error of a row of several files with the name of the row's own file."""
    found = re.match(r"row (\d+),", text)
    if found is None or path.is_file():
        return None
    row = int(found[1])
    for file in find_files(path):
        rows = _count_rows(file)
        if row < rows:
            return f"{file}: row {row},{text[found.end() :]}"
        row -= rows
    return None


def _count_rows(file: Path) -> int:
    """Return the rows of a file, read once more if it is a text."""
    kind = kind_of_table(file)
    with naming_damage():
        if kind == "parquet":
            return pq.read_metadata(file).num_rows
        with open_csv(file, kind, block=1 << 21) as (reader, _):
            return sum(batch.num_rows for batch in reader)


def of_file(source: Any) -> str:
    """Return " in " and the file's name, if the table comes from a file; otherwise ""."""
    return f" in {source}" if isinstance(source, str | PathLike) else ""
