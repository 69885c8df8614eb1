"""The files of tables, CSV and Parquet, read by Arrow.

Arrow reads both formats, as a whole or chunk by chunk, and says what is wrong with a file; the
file's name comes first. The files are found and opened one by one: the scanner of `pyarrow.dataset`
(26.0) holds a whole row group of Parquet in memory, 1.6 GiB for one of 0.75 GiB where
`iter_batches` takes 0.3 GiB, and its listing skips folders such as `_year=2024`.
"""

import io
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from csv import Error as CsvError
from csv import reader as csv_reader
from fnmatch import fnmatch
from glob import glob, has_magic
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from ltr.arrays import pc
from ltr.compressed import SUFFIXES, open_text
from ltr.datasets.column_steps import Date, parse_dates
from ltr.datasets.frames import Frame, plain_types, refuse_doubles
from ltr.datasets.infer import ROWS, Finder, Rows, scan
from ltr.datasets.schema import Schema
from ltr.files import check_path

_PARQUET = (".parquet", ".pq")
_TEXT = {".csv": ",", ".tsv": "\t"}
_LETOR = (".txt", ".dat", ".svm", ".svmlight", ".libsvm", ".letor", ".train", ".test", ".valid")

# A file with the first name is no data beside one with the second: a log or a model.
_OUTPUTS = (("metrics.csv", "hparams.yaml"), ("ranker-*.txt", "config.json"))
_LAKES = {
    "_delta_log": ("a Delta table", "deltalake"),
    ".hoodie": ("a Hudi table", "hudi"),
    "*.metadata.json": ("an Iceberg table", "pyiceberg"),
}
"""The log of each kind of table whose log says which files count, with its name and package."""

MISSING = (
    *("", "NULL", "null", "NaN", "nan", "NAN", "NaT"),
    *("NA", "N/A", "n/a", "#N/A", "<NA>", "None"),
)
"""The texts that are missing values in a CSV file's columns of numbers, booleans and dates.

In a column of text, only an empty value is missing.
"""

_NULLS = [text for word in MISSING for text in (word, f" {word}", f"{word} ")]
_BOOLEANS = [*csv.ConvertOptions().true_values, *csv.ConvertOptions().false_values, *_NULLS, None]
"""The texts that a column of booleans in a CSV file may have."""

BLOCKS = (1 << 21, 1 << 24)
"""The sizes, in bytes, of the blocks in which a CSV file is read; Arrow reads 32 blocks ahead.

The larger size is for files with a row that does not fit into two of the smaller blocks.
"""


_ALL = 1 << 30  # more rows than a row group of Parquet or a block of CSV has

VALUES = 1 << 22
"""The largest number of feature values read at a time; a row with more values is read alone."""


def load_table(source: Any, text: Collection[str] = ()) -> pa.Table:
    """Load a table from CSV or Parquet files, or from pandas, polars or Arrow.

    The values of a CSV file have no types: a column is whole numbers, numbers or booleans if Arrow
    reads all its values as such, and otherwise text. Dates stay text here (see `Schema.infer`). An
    empty value is missing. NULL, null, NaN, nan, NAN,
    NA, N/A, n/a, #N/A, None, <NA> and NaT are missing in a column of numbers, booleans or dates,
    and text in a column of text. If a column has no other values, all are missing.

    Args:
        source: a file, a folder of files, a pattern such as "data/2024-*.parquet", a pandas or
            polars data frame, an Arrow table, or any other object with `__arrow_c_stream__`. Files
            are `.csv` or `.tsv`, plain or compressed, `.parquet` or `.pq`; several files are read
            in the order of their names. Folders named `column=value` add a column (see
            `partition_of`), and hidden files are left out (see `find_files`).
        text: the columns of a CSV file that are text, whatever their values are.

    Raises:
        ValueError: a file is missing, damaged or of an unknown kind, the files have different
            columns, a column name is repeated, a column has values of mixed types, or the table has
            no rows.

    >>> load_table(pa.table({"q": [1, 2]})).num_rows
    2
    """
    return load_frame(source, text).to_arrow()


def load_frame(source: Any, text: Collection[str] = ()) -> Frame:
    """Load a table as `load_table` does, without copying numeric columns of pandas and numpy."""
    if not isinstance(source, str | PathLike):
        return _with_rows(Frame.of(source), source)
    files = typed_files(source, text)
    return _with_rows(Frame.of(files.read(files.schema.names)), source)


def typed_files(path: str | PathLike[str], text: Collection[str]) -> "TableFiles":
    """Return the files of a table; those of CSV with the types that Arrow finds in all values.

    Args:
        path: a file, a folder or a pattern.
        text: see `load_table`.

    Raises:
        ValueError: see `load_table`.
    """
    files = TableFiles(path, dict.fromkeys(text, pa.string()))
    return files if files.delimiter is None else TableFiles(path, text_types(files, text))


def load_columns(
    source: Any, schema: Schema, optional: Collection[str] = ()
) -> tuple[Frame, list[str]]:
    """Return the columns of a schema from a table, and the names of the table's other columns.

    Args:
        source: see `load_table`.
        schema: the schema, which also gives the types of a CSV file's columns.
        optional: columns that may be missing.

    Raises:
        ValueError: see `load_table`; or a column is missing.
    """
    is_file = isinstance(source, str | PathLike)
    table = TableFiles(source, schema.text_types()) if is_file else Frame.of(source)
    names = table.schema.names
    with naming(source):
        schema.check_names(names, optional)
    known = {*schema.columns}
    used = [name for name in names if name in known]
    if isinstance(table, TableFiles):
        table = Frame.of(table.read(used))
    return _with_rows(table, source), [name for name in names if name not in known]


def rows_at_once(schema: Schema) -> int:
    """Return how many rows of a table are read at a time; many features mean fewer rows."""
    return max(1, min(ROWS, VALUES // max(1, schema.num_features)))


def column_names(source: Any) -> list[str]:
    """Return the names of a table's columns; see `load_table`."""
    if isinstance(source, str | PathLike):
        return TableFiles(source).schema.names
    return Frame.of(source).column_names


class TableFiles:
    """CSV or Parquet files with the same columns, read as one table.

    Args:
        path: a file, a folder or a pattern.
        types: the types of the columns of CSV files, and of columns that the names of folders give
            (see `partition_of`). A column of CSV without a type here is text. Parquet files have
            their own types; beside them, a folder's column has by default the type that Arrow
            finds.

    Attributes:
        files: the files, in the order of their names.
        delimiter: the delimiter of CSV files; None for Parquet.
        schema: the columns and their types.
        size: the size of all files together, in bytes.

    Raises:
        ValueError: a file is missing, damaged or of an unknown kind, the files have different
            columns, or a column name is repeated; or, later, a value does not have the column's
            type. The message has the file's name and, where Arrow finds the error, Arrow's words.
    """

    def __init__(
        self, path: str | PathLike[str], types: Mapping[str, pa.DataType] | None = None
    ) -> None:
        path = check_path("path", path)
        self.files = find_files(path)
        base = base_of(path)
        self._partitions = {file: partition_of(file, base) for file in self.files}
        with naming(self.files[0]):
            kind = kind_of_table(self.files[0])
        self.delimiter = None if kind == "parquet" else kind
        self.size = sum(file.stat().st_size for file in self.files)
        known = {**self._types_of_folders(), **(types or {})}
        schemas: list[pa.Schema] = []
        for file, partition in self._partitions.items():
            with naming(file), naming_damage():
                schema = self._read_schema(file, known)
                refuse_doubles(schema.names)
                for name in [*partition]:
                    if name in schema.names:  # the file itself has the values
                        del partition[name]
                    else:
                        schema = schema.append(pa.field(name, known[name]))
                if schemas:
                    _compare(schemas[0].names, schema.names, self.files[0])
                schemas = [_unified([*schemas, schema])]
        self.schema: pa.Schema = schemas[0]

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return all rows of the given columns."""
        tables = [self._schema_of(columns).empty_table(), *self.chunks(columns, _ALL)]
        return pa.concat_tables(tables, promote_options="permissive")

    def chunks(self, columns: Sequence[str], rows: int) -> Iterator[pa.Table]:
        """Yield the given columns in chunks of rows; the memory does not grow with the files.

        Args:
            columns: the names of the columns.
            rows: the largest number of rows in a chunk.
        """
        return (chunk for _, chunk in self.watched_chunks(columns, rows))

    def watched_chunks(self, columns: Sequence[str], rows: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield the number of bytes read so far from the disk, and the next of the `chunks`."""
        schema = self._schema_of(columns)
        before = 0
        for file in self.files:
            with naming(file), naming_damage():
                if self.delimiter is None:
                    own = self._own(file, columns)
                    for position, table in _parquet_chunks(file, own, rows):
                        yield before + position, self._completed(file, table, columns).cast(schema)
                else:
                    for position, table in self._csv_blocks(file, columns):
                        for start in range(0, table.num_rows, rows):
                            yield before + position, table.slice(start, rows)
            before += file.stat().st_size

    def _own(self, file: Path, columns: Sequence[str]) -> list[str]:
        """Return the columns to read from a file: at least one, which tells the number of rows."""
        partition = self._partitions[file]
        own = [name for name in columns if name not in partition]
        return own or [name for name in self.schema.names if name not in partition][:1]

    def _completed(self, file: Path, table: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Return the columns of a file's rows, with those that the names of folders give."""
        for name in columns:
            if name in (partition := self._partitions[file]):
                value = pa.scalar(partition[name], pa.string()).cast(self.schema.field(name).type)
                table = table.append_column(name, pa.repeat(value, table.num_rows))
        return table.select([*columns])

    def _types_of_folders(self) -> dict[str, pa.DataType]:
        """Return the types of the columns of folders: text for CSV, or those that Arrow finds."""
        folders = [*self._partitions.values()]
        names = dict.fromkeys(name for folder in folders for name in folder)
        if self.delimiter is not None:
            return dict.fromkeys(names, pa.string())
        values = {x: pa.array([folder.get(x) for folder in folders], pa.string()) for x in names}
        return text_types(Frame({x: pa.chunked_array([texts]) for x, texts in values.items()}), ())

    def _schema_of(self, columns: Sequence[str]) -> pa.Schema:
        fields = [self.schema.field(name) for name in columns]
        return pa.schema(fields, metadata=self.schema.metadata)

    def _read_schema(self, file: Path, types: Mapping[str, pa.DataType]) -> pa.Schema:
        if self.delimiter is None:
            return plain_types(pq.read_schema(file).empty_table()).schema
        with open_text(file) as content:
            lines = io.TextIOWrapper(content, "utf-8-sig", "replace", newline="")
            names = next(filter(None, csv_reader(lines, delimiter=self.delimiter)), None)
        if names is None:
            raise ValueError("not a table: empty CSV file")
        return pa.schema([(name, types.get(name, pa.string())) for name in names])

    def _numbered(self, table: pa.Table) -> pa.Table:
        """Return rows of CSV with numbers where a column of numbers is written as booleans."""
        for position, field in enumerate(table.schema):
            if pa.types.is_boolean(field.type):
                numbers = table.column(position).cast(self.schema.field(field.name).type)
                table = table.set_column(position, field.name, numbers)
        return table

    def _csv_blocks(self, file: Path, columns: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
        """Yield the number of bytes read so far, and the next rows."""
        assert self.delimiter is not None
        own = self._own(file, columns)
        types = {name: self.schema.field(name).type for name in own}
        done = 0
        for block in BLOCKS:
            rows = 0
            convert = _conversion(own, types)
            try:
                with _open_csv(file, self.delimiter, block, convert) as (reader, on_disk):
                    for batch in reader:
                        fresh = _without_words(pa.table(batch).slice(max(0, done - rows)))
                        fresh = self._numbered(fresh)
                        rows += batch.num_rows
                        done = max(done, rows)
                        if fresh.num_rows:
                            yield on_disk.tell(), self._completed(file, fresh, columns)
                return
            except pa.ArrowInvalid:
                if block == BLOCKS[-1]:
                    raise
                # A row may be too long for the block, and numbers may be written as booleans, or
                # whole numbers with a point.
                numbers = [name for name, dtype in types.items() if dtype in _NUMBERS]
                options = file, self.delimiter, BLOCKS[-1], _conversion(numbers or own, {})
                with _open_csv(*options) as (reader, _):
                    seen = {name: reader.schema.field(name).type for name in numbers}
                wider = pa.bool_(), pa.float64()
                types |= {name: dtype for name, dtype in seen.items() if dtype in wider}


def _conversion(columns: Sequence[str], types: Mapping[str, pa.DataType]) -> csv.ConvertOptions:
    return csv.ConvertOptions(
        include_columns=[*columns], column_types=dict(types), null_values=_NULLS
    )


def _without_words(table: pa.Table) -> pa.Table:
    """Return a table of CSV with null for "" in text, and for `MISSING` in dates."""
    for position, column in enumerate(table.columns):
        if column.type == Date.text_type:
            column = with_nulls(column)
        elif column.type == pa.string() and pc.any(pc.equal(column, "")).as_py():
            column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
        table = table.set_column(position, table.column_names[position], column)
    return table


@contextmanager
def _open_csv(
    file: Path, delimiter: str, block: int, convert: csv.ConvertOptions
) -> Iterator[tuple[csv.CSVStreamingReader, pa.NativeFile]]:
    # Arrow's errors name the row only if a single thread reads.
    options = csv.ReadOptions(block_size=block, use_threads=False)
    parse = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    # Arrow opens and closes the file itself, since its thread reads ahead and may outlive the
    # reader. A Python file object that it releases while Python exits would abort the process. And
    # if the file were closed here, the next file could get its descriptor, and the thread would
    # take rows from that file, which would be lost.
    with open_text(file) as text:
        on_disk = pa.OSFile(os.fsencode(file))
        content = pa.CompressedInputStream(on_disk, text.form) if text.form else on_disk
        yield csv.open_csv(content, options, parse, convert), on_disk


def _parquet_chunks(
    file: Path, columns: Sequence[str], rows: int
) -> Iterator[tuple[int, pa.Table]]:
    # Arrow reads through a buffer, since a row group may be as large as the file. `pre_buffer`,
    # which reads ahead, would not release its memory.
    whole = pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)
    size, done = file.stat().st_size, 0
    for group in range(whole.num_row_groups):
        for batch in whole.iter_batches(rows, row_groups=[group], columns=[*columns]):
            done += batch.num_rows
            yield size * done // whole.metadata.num_rows, plain_types(pa.table(batch))


def _unified(schemas: Sequence[pa.Schema]) -> pa.Schema:
    try:
        return pa.unify_schemas([*schemas], promote_options="permissive")
    except pa.ArrowException as error:
        problem = "the files of a table must have the same columns"
        raise ValueError(f"{problem}: {error}") from None


def _compare(first: Sequence[str], other: Sequence[str], file: Path) -> None:
    """Raise an error if the columns of a file differ from those of the first file, `file`."""
    for name in sorted({*first} ^ {*other}):
        has, lacks = (file, "it") if name in first else ("it", file)
        raise ValueError(
            f"the files of a table must have the same columns: {lacks} has no {name!r}, {has} has "
            "one"
        )


def _with_rows(frame: Frame, source: Any) -> Frame:
    if not frame.num_rows:
        raise ValueError(f"the table must have at least one row, got none{of_file(source)}")
    return frame


def find_files(path: Path) -> list[Path]:
    """Return the files of a table, which are all of one kind, in the order of their names.

    A folder's files are those in its subfolders too. These are left out: files of other kinds;
    hidden files, whose name or folder begins with a dot or, unless it has the form `column=value`,
    with an underscore, such as `.ipynb_checkpoints/`; the logs of training runs and the files of
    models, which `ltr` may write into the same folder; and LETOR text beside files of other kinds.
    A pattern stands for the files that it matches and, if it matches only folders, for theirs.

    Raises:
        ValueError: there is no file, the files are of several kinds, or a folder is a Delta,
            Iceberg or Hudi table, whose log says which of its files count.
    """
    if path.is_file():
        return [path]
    if path.is_dir():
        files = _files_in(path)
        files = [file for file in files if kind_of_file(file) != "letor"] or files
        problem = f"a folder of a table must hold CSV, Parquet or LETOR files, got {path}"
    elif has_magic(str(path)):
        matches = sorted(map(Path, glob(str(path), recursive=True)))
        files = [file for file in matches if file.is_file()]
        base = base_of(path)
        if not _has_hidden(path, base):
            files = [file for file in files if not _has_hidden(file, base)]
        for folder in {folder for file in files for folder in file.parents}:
            if folder == base or base in folder.parents:
                _refuse_lake(folder, [*folder.iterdir(), *folder.glob("metadata/*")])
        files = files or [file for folder in matches for file in _files_in(folder)]
        problem = f"no file matches the pattern {path}"
    else:
        files = []
        problem = f"path must be a file, a folder or a pattern, got {path} (no such file)"
    if not files:
        raise ValueError(problem)
    kinds = {kind_of_file(file) for file in files}
    if len(kinds) > 1:
        raise ValueError(f"the files of a table must be of one kind, got several in {path}")
    return files


def base_of(path: Path) -> Path:
    """Return the folder below which the names of folders give columns; see `partition_of`.

    >>> str(base_of(Path("data/year=*/part.csv")))
    'data'
    """
    if path.is_dir():
        return path
    names = [*path.parts]
    if path.is_file() or not has_magic(str(path)):
        return path.parent
    return Path(*names[: next(i for i, name in enumerate(names) if has_magic(name))])


def partition_of(file: Path, base: Path) -> dict[str, str | None]:
    """Return the columns that the names of a file's folders give, as Hive and Spark write them.

    Each folder named `column=value` gives a column with one value, as text. A value may be
    percent-encoded, and `__HIVE_DEFAULT_PARTITION__` is a missing value.

    Args:
        file: the file.
        base: the names of the folders below this one count.

    Raises:
        ValueError: two folders give one column.

    >>> partition_of(Path("data/year=2024/shop=a%20b/part.csv"), Path("data"))
    {'year': '2024', 'shop': 'a b'}
    """
    below = file.relative_to(base)
    names = [unquote(x.partition("=")[0]) for x in below.parent.parts if "=" in x[1:]]
    with naming(file):
        refuse_doubles(names)
    if not names:
        return {}
    from pyarrow import dataset as ds  # it imports pandas, which takes a while

    folders = ds.HivePartitioning(pa.schema([(name, pa.string()) for name in names]))
    values = ds.get_partition_keys(folders.parse(below.as_posix()))
    return {name: values[name] for name in names}


def _files_in(folder: Path) -> list[Path]:
    """Return the files of a table in a folder; see `find_files`."""
    entries = sorted(folder.rglob("*"))
    _refuse_lake(folder, entries)
    files = []
    for file in entries:
        if not kind_of_file(file) or _has_hidden(file, folder) or not file.is_file():
            continue
        signs = [sign for name, sign in _OUTPUTS if fnmatch(file.name, name)]
        if not any((file.parent / sign).exists() for sign in signs):
            files.append(file)
    return files


def _has_hidden(path: Path, base: Path) -> bool:
    """Return whether a file or a folder of a path below `base` is hidden; see `find_files`."""
    names = path.relative_to(base).parts
    return any(x.startswith(".") or (x.startswith("_") and "=" not in x) for x in names)


def _refuse_lake(folder: Path, entries: Iterable[Path]) -> None:
    """Raise an error if an entry of a folder belongs to a table whose log says which files count.

    Args:
        folder: the folder.
        entries: its files and folders; or those in its subfolders too.
    """
    for entry in entries:
        for log, (table, package) in _LAKES.items():
            if entry.match(log):
                raise ValueError(
                    f"{folder} must not be or hold {table}, whose log {entry} says which files "
                    f"count: read it with the package {package}, and give the data frame or Arrow "
                    "table"
                )


def kind_of_file(path: Path) -> str:
    """Return a file's kind by its name: "parquet", "letor", the delimiter of CSV text, or "".

    >>> kind_of_file(Path("a.csv.gz")), kind_of_file(Path("a.xlsx"))
    (',', '')
    """
    plain = Path(path.stem) if path.suffix in SUFFIXES else path
    if plain.suffix.lower() in _LETOR:
        return "letor"
    return "parquet" if path.suffix.lower() in _PARQUET else _TEXT.get(plain.suffix.lower(), "")


def kind_of_table(file: Path) -> str:
    """Return "parquet", or the delimiter of CSV text.

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
            "a table must end in .csv, .tsv, .parquet or .pq, or like LETOR text, such as .txt "
            "(text may be compressed)"
        )
    return kind


@contextmanager
def naming_damage() -> Iterator[None]:
    """Replace reading errors by a "cannot be read" error, except the errors of the file system."""
    try:
        yield
    except (pa.ArrowException, CsvError, OSError) as error:
        if getattr(error, "errno", None) is not None:  # the error comes from the file system
            raise
        raise ValueError(f"cannot be read: {' '.join(str(error).split())}") from None


class NamedError(ValueError):
    """An error whose message begins with the name of a file."""


@contextmanager
def naming(source: Any) -> Iterator[None]:
    """Put the name of a file, folder or pattern before the message of an error of its table."""
    try:
        yield
    except NamedError:
        raise
    except ValueError as error:
        if not isinstance(source, str | PathLike) or str(error).startswith(str(source)):
            raise
        # The traceback tells a mistake in the table from a bug, where another library raised it.
        raise NamedError(f"{source}: {error}").with_traceback(error.__traceback__) from None


def of_file(source: Any) -> str:
    """Return " in " and the file's name, if the table comes from a file; otherwise ""."""
    return f" in {source}" if isinstance(source, str | PathLike) else ""


_NUMBERS = (pa.int64(), pa.float64())


def text_types(table: Rows, text: Collection[str]) -> dict[str, pa.DataType]:
    """Return the type of each column of a table of text, found in its values; see `load_table`.

    Args:
        table: the table.
        text: the columns that are text, whatever their values are.
    """
    columns = [TextColumn(name) for name in table.schema.names if name not in text]
    scan(table, columns)
    of_columns = {column.name: column.dtype for column in columns}
    return dict.fromkeys(table.schema.names, pa.string()) | of_columns


class TextColumn(Finder):
    """Finds the type of a column of text: the first of `TYPES` to which Arrow casts all its values.

    If there is no such type, the column is text; if all values are missing, its type is null.

    Attributes:
        types: the types that all values so far have.

    >>> column = TextColumn("x")
    >>> column.add(pa.table({"x": ["1", " NA"]}), 0), column.add(pa.table({"x": ["2.5"]}), 2)
    (None, None)
    >>> column.dtype
    DataType(double)
    """

    TYPES = (pa.int64(), pa.float64(), pa.bool_(), Date.text_type)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.types = [pa.null(), *self.TYPES]

    def add(self, part: pa.Table, row: int) -> None:
        """Look at the next values."""
        texts = part.column(self.name)
        values = with_nulls(texts)
        self.types = [dtype for dtype in self.types if _fits(texts, values, dtype)]
        self.open = bool(self.types)

    @property
    def dtype(self) -> pa.DataType:
        """The type of the column."""
        return next(iter(self.types), pa.string())


def _fits(texts: pa.ChunkedArray, values: pa.ChunkedArray, dtype: pa.DataType) -> bool:
    """Return whether all texts of a column have a type; dates stay text.

    Args:
        texts: the column.
        values: its `with_nulls`.
        dtype: the type.
    """
    if dtype == pa.null():
        return values.null_count == len(values)
    if dtype == pa.bool_():  # a cast also takes other spellings, such as tRuE
        return pc.all(pc.is_in(texts, value_set=pa.array(_BOOLEANS, texts.type))).as_py()
    if dtype == Date.text_type:
        return parse_dates(values, "naive", "utc") is not None
    return parsed(values, dtype) is not None


def with_nulls(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of text without the blanks around values, and with null for `MISSING`.

    >>> with_nulls(pa.chunked_array([["1", " NA", "", None]])).to_pylist()
    ['1', None, None, None]
    """
    missing = pc.is_in(column, value_set=pa.array(_NULLS, column.type))
    return pc.if_else(missing, pa.scalar(None, column.type), pc.utf8_trim(column, " \t"))


def parsed(values: pa.ChunkedArray, dtype: pa.DataType) -> pa.ChunkedArray | None:
    """Return the `with_nulls` of a text column as another type; None if a value does not fit."""
    try:
        return values.cast(dtype)
    except pa.ArrowException:
        return None
