"""Read the files of `ltr evaluate`: TREC runs with judgements, and tables of scored documents."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ltr.arrays import name_texts, numbered, pc, rank
from ltr.metrics.batches import Batch
from ltr.metrics.named import Measure
from ltr.metrics.trec import Qrels, Run, join, read_run
from ltr.names import nearest, one_line
from ltr.reports.documents import Documents, repeated_name, run_documents, table_documents
from ltr.reports.slices import COMPUTED, of_lists

_TABLES = (".csv", ".csv.gz", ".parquet")
_POSITIONS_PER_CHUNK = 1 << 22
"""A padded chunk of several lists has at most this many positions, to limit memory."""


@dataclass(frozen=True)
class Columns:
    """The names of a table's columns."""

    qid: str = "qid"
    label: str = "label"
    score: Sequence[str] = ("score",)
    doc_id: str = "doc_id"


@dataclass(frozen=True)
class Evaluated:
    """One model's per-list values.

    Attributes:
        name: the model's name.
        qids: the query ids of the lists.
        values: for each measure's title, its values, float64 (lists,); NaN for a list that is left
            out.
        empty: how many lists have no relevant document.
        missing: for a run, how many judged queries it lacks; for a table, how many lists of the
            other tables it lacks.
        unjudged: how many queries of a run have no judgements.
        documents: the ranked documents; None unless they were requested.
        by: for each column of slices, its value of each list (lists,); null for a missing one.
    """

    name: str
    qids: list[Any]
    values: dict[str, np.ndarray]
    empty: int
    missing: int = 0
    unjudged: int = 0
    documents: Documents | None = None
    by: dict[str, pa.Array] = field(default_factory=dict)


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
    return path.lower().endswith(_TABLES)


def evaluate_run(
    path: str,
    name: str,
    qrels: Qrels,
    measures: Sequence[Measure],
    options: dict[str, Any],
    *,
    skip_missing: bool,
    columns: Columns,
    keep_documents: bool = False,
    by: Sequence[str] = (),
) -> Evaluated:
    """Return the per-list values of a TREC run, or of a table with a column of document ids."""
    computed = [name for name in by if _is_computed(path, name)]
    read = [name for name in by if name not in computed]
    if read and not is_table(path):
        raise ValueError(f"{path}: a run has no column {read[0]!r}: --by takes length or relevant")
    run, found_by = _table_run(path, columns, read) if is_table(path) else (read_run(path), {})
    if not run.keys() & qrels.keys():
        raise ValueError(f"{path}: none of its queries is in the qrels")
    options = _with_scale(options, max(max(x.values(), default=0) for x in qrels.values()))
    deepest = max([1, *(m.top_k for m in measures if m.top_k is not None)])
    chunks: dict[str, list[Tensor]] = {measure.title: [] for measure in measures}
    empty = 0
    for part in _parts(qrels, run, deepest):
        lists = join(run, part, depth=deepest, skip_missing=skip_missing, allow_disjoint=True)
        counted = lists.mask.any(-1)
        empty += int((counted & ~((lists.labels > 0) & lists.mask).any(-1)).sum())
        metrics = [measure.make(options).of_run(lists.depth) for measure in measures]
        batch = Batch(lists.scores, lists.labels, lists.mask, judged=lists.judged)
        for measure, measured in zip(measures, batch.values(metrics), strict=True):
            chunks[measure.title].append(measured.values)
    missing, unjudged = len(qrels.keys() - run.keys()), len(run.keys() - qrels.keys())
    values = {title: torch.cat(parts).numpy() for title, parts in chunks.items()}
    documents = run_documents(run, qrels) if keep_documents else None
    counts = {
        "length": [len(run.get(qid, ())) for qid in qrels],
        "relevant": [sum(label > 0 for label in x.values()) for x in qrels.values()],
    }
    for column in by:
        if column in computed:
            found_by[column] = pa.array(counts[column])
        else:
            value_of = found_by[column]
            found_by[column] = pa.array([value_of.get(qid) for qid in qrels])
    return Evaluated(name, list(qrels), values, empty, missing, unjudged, documents, found_by)


def _is_computed(path: str, name: str) -> bool:
    """Return whether slices by this name are computed, rather than read from a column."""
    return name in COMPUTED and not (is_table(path) and has_column(path, name))


def has_column(path: str, name: str) -> bool:
    """Return whether a table has a column of this name."""
    return name in _column_names(path)


def predicted_roles(path: str) -> dict[str, str]:
    """Return the columns of a table that `ltr predict` wrote, by role; {} for any other table.

    Such a table has the query, the document's name and the label, in this order and as far as they
    are known, then `score` and `rank`. The ranks show whether the first column is the query. If
    only one other column is there, it is the label if a query has one of its values twice, else
    the document's name.
    """
    qid, *others = _column_names(path)
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
    read = [name for name in by if not _is_computed(path, name)]
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


def evaluate_table(
    table: Scored,
    names: Sequence[str],
    measures: Sequence[Measure],
    options: dict[str, Any],
    largest: float,
    *,
    keep_documents: bool = False,
) -> list[Evaluated]:
    """Return the per-list values of each model of a table, one model per column of scores."""
    relevant = np.bincount(table.lists, weights=table.labels > 0, minlength=len(table.qids))
    options = _with_scale(options, largest)
    ids, grades = torch.from_numpy(table.lists), torch.from_numpy(table.labels)
    metrics = [measure.make(options) for measure in measures]
    titles, empty = [measure.title for measure in measures], int((relevant == 0).sum())
    models = []
    for name, column in zip(names, table.scores, strict=True):
        of_metrics = Batch(torch.from_numpy(column), grades, qid=ids).values(metrics)
        values = {title: x.values.numpy() for title, x in zip(titles, of_metrics, strict=True)}
        documents = table.documents(column) if keep_documents else None
        models.append(Evaluated(name, table.qids, values, empty, documents=documents, by=table.by))
    return models


def _with_scale(options: dict[str, Any], largest: float) -> dict[str, Any]:
    """Return the options, and add the largest grade if it is above 0: ERR needs it."""
    return {**options, "max_label": largest} if largest > 0 else options


def _parts(qrels: Qrels, run: Run, depth: int) -> Iterator[Qrels]:
    """Yield the judgements of a few queries at a time, so that the padded lists stay small."""
    part: Qrels = {}
    width = 0
    for qid, labels in qrels.items():
        widest = max(width, depth + len(labels), len(run.get(qid, ())) + len(labels))
        if part and widest * (len(part) + 1) > _POSITIONS_PER_CHUNK:
            yield part
            part, widest = {}, max(depth + len(labels), len(run.get(qid, ())) + len(labels))
        part[qid], width = labels, widest
    yield part


def _table_run(path: str, columns: Columns, by: Sequence[str]) -> tuple[Run, dict[str, Any]]:
    """Return the run in a table, and each query's value of the columns `by`."""
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
    values: dict[str, Any] = {}
    for column in by:
        with _errors_of(path):
            of_each = of_lists(f"column {column!r}", table.column(column), lists, qids)
        values[column] = dict(zip(qids, of_each.to_pylist(), strict=True))
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
