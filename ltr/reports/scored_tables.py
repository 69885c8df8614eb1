"""Tables of scored documents, as `ltr evaluate` reads them: CSV and Parquet."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.arrays import name_texts, numbered, pc, rank
from ltr.metrics.trec import Run
from ltr.names import nearest, one_line
from ltr.reports.documents import Documents, repeated_name, table_documents
from ltr.reports.slices import COMPUTED, of_lists

_EXTENSIONS = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True)
class Columns:
    """The names of a table's columns."""

    qid: str = "qid"
    label: str = "label"
    score: Sequence[str] = ("score",)
    doc_id: str = "doc_id"


@dataclass(frozen=True)
class Scored:
    """The columns of a table of scored documents.

    Attributes:
        qids: the query ids of the lists.
        lists: (rows,) the number of each row's list.
        labels: (rows,) float64, >= 0.
        scores: an array (rows,), float64, for each column of scores.
        names: (rows,) the documents' ids; None if they are not known.
        by: for each column of slices, its value of each list (lists,); null for a missing one.
    """

    qids: list[Any]
    lists: np.ndarray
    labels: np.ndarray
    scores: list[np.ndarray]
    names: np.ndarray | None = None
    by: dict[str, pa.Array] = field(default_factory=dict)

    def counts(self) -> dict[str, pa.Array]:
        """Return the number of documents of each list, and of relevant ones."""
        length = np.bincount(self.lists, minlength=len(self.qids))
        relevant = np.bincount(self.lists, self.labels > 0, len(self.qids)).astype(np.int64)
        return {"length": pa.array(length), "relevant": pa.array(relevant)}

    def documents(self, scores: np.ndarray) -> Documents:
        """Return the documents of each list, the best first by the given column of scores."""
        return table_documents(self.qids, self.lists, self.labels, scores, self.names)


def is_table(path: str) -> bool:
    """Return whether the file is CSV or Parquet, by its extension.

    >>> is_table("a.parquet"), is_table("b.CSV.gz"), is_table("c.run")
    (True, True, False)
    """
    return path.lower().endswith(_EXTENSIONS)


def is_computed(path: str, name: str) -> bool:
    """Return whether slices by this name are computed, rather than read from a column."""
    return name in COMPUTED and not (is_table(path) and has_column(path, name))


def has_column(path: str, name: str) -> bool:
    """Return whether a table has a column of this name."""
    return name in _column_names(path)


def predicted_roles(path: str) -> dict[str, str]:
    """Return the columns of a table that `ltr predict` wrote, by role; {} for any other table.

    Such a table has the query, the document's name and the label, in this order and as far as they
    are known, then `score`, the `probability` of a calibrated model, and `rank`. The ranks show
    whether the first column is the query. If only one other column is there, it is the label if a
    query has one of its values twice, else the document's name.
    """
    qid, *others = _column_names(path)
    if others[-3:] == ["score", "probability", "rank"]:
        others.remove("probability")
    if others[-2:] != ["score", "rank"] or len(others) > 4:
        return {}
    others = others[:-2]
    table = _read_table(path, [qid, "score", "rank", *others], qid, *others)
    lists, _ = numbered(table.column(qid).combine_chunks())
    if (rank(_numbers(path, table, "score"), lists) != _numbers(path, table, "rank")).any():
        return {}
    if len(others) != 1:
        return {"qid": qid, **dict(zip(("doc_id", "label"), others, strict=False))}
    repeated = repeated_name(lists, table.column(others[0]).to_numpy()) is not None
    return {"qid": qid, "label" if repeated else "doc_id": others[0]}


def read_scored(
    path: str, columns: Columns, *, with_names: bool = False, by: Sequence[str] = ()
) -> Scored:
    """Read a table of labels and scores, and check it.

    Args:
        path: the file.
        columns: the names of the file's columns.
        with_names: whether to read the documents' ids.
        by: the columns of slices, or names in `COMPUTED`.
    """
    wanted = [columns.qid, columns.label, *columns.score]
    text = [columns.qid, *([columns.doc_id] if with_names else [])]
    read = [name for name in by if not is_computed(path, name)]
    table = _read_table(path, [*wanted, *text[1:]], *text, as_written=read)
    labels = _numbers(path, table, columns.label)
    if (labels < 0).any():
        first = int((labels < 0).argmax())
        raise ValueError(
            f"{path}, row {first + 1}: column {columns.label!r} must be >= 0, got {labels[first]:g}"
        )
    lists, queries = numbered(table.column(columns.qid).combine_chunks())
    qids = queries.to_pylist()
    scores = [_numbers(path, table, column) for column in columns.score]
    counts = Scored(qids, lists, labels, scores).counts()
    with _errors_of(path):
        values = {
            name: of_lists(f"column {name!r}", table.column(name), lists, qids)
            if name in read
            else counts[name]
            for name in by
        }
    if not with_names:
        return Scored(qids, lists, labels, scores, by=values)
    names = table.column(columns.doc_id).to_numpy()
    if (row := repeated_name(lists, names)) is not None:
        twice = f"query {qids[lists[row]]!r} has {names[row]!r} twice"
        raise ValueError(f"{path}, row {row + 1}: {twice}")
    return Scored(qids, lists, labels, scores, names, values)


def read_table_run(
    path: str, columns: Columns, by: Sequence[str]
) -> tuple[Run, dict[str, pa.Array]]:
    """Return the run in a table, and the value of each of its queries in the columns `by`."""
    if len(columns.score) > 1:
        raise ValueError("--score must be one column with --qrels")
    score = columns.score[0]
    wanted = [columns.qid, columns.doc_id, score]
    table = _read_table(path, wanted, columns.qid, columns.doc_id, as_written=by)
    scores = _numbers(path, table, score).tolist()
    run: Run = {}
    names = zip(*(table.column(c).to_pylist() for c in (columns.qid, columns.doc_id)), strict=True)
    for row, ((qid, doc), value) in enumerate(zip(names, scores, strict=True), start=1):
        scores_of_query = run.setdefault(qid, {})
        if doc in scores_of_query:
            raise ValueError(f"{path}, row {row}: query {qid!r} has {doc!r} twice")
        scores_of_query[doc] = value
    lists, queries = numbered(table.column(columns.qid).combine_chunks())
    qids = queries.to_pylist()
    with _errors_of(path):
        values = {x: of_lists(f"column {x!r}", table.column(x), lists, qids) for x in by}
    return run, values


def _read_table(
    path: str, wanted: Sequence[str], *text: str, as_written: Sequence[str] = ()
) -> pa.Table:
    """Return columns of a file: those in `text` as strings, other wanted ones as float64.

    Columns that are only in `as_written` keep the type that they have, or that Arrow infers.
    """
    import pyarrow.csv
    import pyarrow.parquet

    types: dict[str, pa.DataType | None] = dict.fromkeys(as_written)
    types |= {name: pa.string() if name in text else pa.float64() for name in wanted}
    names = _column_names(path)
    with _errors_of(path):
        _check_columns([*types], names)
        if path.lower().endswith(".parquet"):
            with pyarrow.parquet.ParquetFile(path) as file:
                table = file.read(columns=list(types))
            columns = {}
            for name, dtype in types.items():
                column = table.column(name)
                if name in text:
                    columns[name] = name_texts(column, f"column {name!r}")
                    continue
                if dtype is None:
                    columns[name] = column
                    continue
                with _naming_numbers(name, types):
                    columns[name] = column.cast(dtype)
            table = pa.table(columns)
        else:
            table = _read_csv(path, types)
    if not len(table):
        raise ValueError(f"{path}: the table must have at least one row, got none")
    for name in text:  # an empty field of a CSV file is the text ""
        missing = pc.equal(table.column(name).fill_null(""), "")
        _refuse_missing(path, table, name, np.asarray(missing))
    return table


def _read_csv(path: str, types: dict[str, pa.DataType | None]) -> pa.Table:
    import pyarrow.csv

    def read(names: Sequence[str]) -> pa.Table:
        known = {name: types[name] for name in names if types[name] is not None}
        convert = pyarrow.csv.ConvertOptions(column_types=known, include_columns=[*names])
        return pyarrow.csv.read_csv(path, convert_options=convert)

    try:
        return read([*types])
    except pa.ArrowInvalid:
        for name in types:  # reading the columns one by one finds the one with the error
            with _naming_numbers(name, types):
                read([name])
        raise


@contextmanager
def _naming_numbers(name: str, types: dict[str, pa.DataType | None]) -> Iterator[None]:
    """Name the column in an error of Arrow, if the column must have numbers."""
    try:
        yield
    except pa.ArrowException as error:
        if types[name] != pa.float64():
            raise
        raise ValueError(f"column {name!r} must have numbers: {error}") from None


def _column_names(path: str) -> list[str]:
    import pyarrow.csv
    import pyarrow.parquet

    if not Path(path).is_file():
        raise ValueError(f"{path}: no such file")
    with _errors_of(path):
        if path.lower().endswith(".parquet"):
            with pyarrow.parquet.ParquetFile(path) as file:
                return file.schema_arrow.names
        with pyarrow.csv.open_csv(path) as reader:
            return reader.schema.names


@contextmanager
def _errors_of(path: str) -> Iterator[None]:
    """Turn any error in reading a table into a `ValueError` of one line that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise ValueError(one_line(f"{path}: {error}")) from None


def _check_columns(wanted: Sequence[str], names: list[str]) -> None:
    for name in wanted:
        if name not in names:
            raise ValueError(f"no column {name!r}: {nearest(name, names)}")
        if names.count(name) > 1:
            raise ValueError(f"column {name!r} occurs {names.count(name)} times")


def _numbers(path: str, table: pa.Table, column: str) -> np.ndarray:
    numbers = table.column(column).to_numpy()
    _refuse_missing(path, table, column, ~np.isfinite(numbers))
    return np.array(numbers)  # torch needs writable memory, so this is a copy


def _refuse_missing(path: str, table: pa.Table, column: str, bad: np.ndarray) -> None:
    if bad.any():
        raise ValueError(
            f"{path}, row {int(bad.argmax()) + 1}: column {column!r} must have a value in every "
            f"row, finite where it is a number; {int(bad.sum()):,} have none"
        )
