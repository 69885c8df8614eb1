"""Convert files into lists on disk, in little memory.

If the rows of a query are not together, the documents are first copied into temporary files, all
documents of a list into the same file. DuckDB sorts the lists by the row of their first document.
This order decides which file each list is copied into. Each file is then grouped on its own. DuckDB
could also sort rows with some hundred columns in less than 1 GiB (`benchmarks/grouping.py --wide`),
but LETOR text and embeddings are vectors of any width, which it holds 2,048 at a time.
"""

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, pairwise
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.arrays import check_columns
from ltr.datasets.column_steps import counted_from
from ltr.datasets.infer import no_column
from ltr.datasets.letor import LetorReader, Watch, ZeroIndexError
from ltr.datasets.list_files import is_list_folder, new_folder, open_lists, write_files
from ltr.datasets.lists import ListDataset, SeenNumbers, gather_runs, join_lists
from ltr.datasets.prepare import scan_table
from ltr.datasets.reading import read_table
from ltr.datasets.schema import Schema
from ltr.datasets.splits import check_one_split
from ltr.datasets.table_files import (
    TableFiles,
    column_names,
    find_files,
    kind_of_file,
    naming,
    rows_at_once,
)
from ltr.files import check_path, name_full_disk
from ltr.shapes import check_at_least


def convert(
    source: str | PathLike[str],
    out: str | PathLike[str],
    *,
    qid: str | None = None,
    label: str | Sequence[str] | None = None,
    weight: str | None = None,
    position: str | None = None,
    protected: str | None = None,
    doc_id: str | None = None,
    features: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
    max_levels: int = 256,
    watch: Watch | None = None,
) -> ListDataset:
    r"""Convert files into lists on disk, in at most 1 GiB of memory.

    Lists and documents keep the order in which they first appear. If the rows of a query are not
    together, they are grouped by means of DuckDB and temporary files, which are about as large as
    the lists. The folder `out` appears when it is complete. Until then, the files are in
    `out.partial` beside it. An error or an interrupt removes `out.partial`. A killed conversion
    leaves `out.partial`, and the next conversion to `out` asks the user to delete it. Memory grows
    with the longest list and with the number of lists, by 8 bytes for each list. If more than 32
    GiB of documents are grouped, memory also grows with their size.

    Args:
        source: a file, a folder or a pattern of LETOR text, CSV or Parquet, as for
            `TableDataModule`. A query may be in several files.
        out: the folder, which must be new or empty.
        qid: the column of the query; None for LETOR text.
        label: the column of the labels, or several columns; None for LETOR text, or if there are no
            labels.
        weight: see `Schema`.
        position: see `Schema`.
        protected: see `Schema`.
        doc_id: see `Schema`.
        features: see `Schema.infer`.
        categories: see `Schema.infer`.
        max_levels: see `Schema.fit_levels`.
        watch: called with the progress: bytes read, bytes in all, documents. If the rows have to be
            grouped, the source is read twice more. `watch` is then called with 0 documents, and the
            progress starts again.

    Returns:
        The lists on disk, as `open_lists` returns them.

    Raises:
        ValueError: an argument is wrong; another process writes to `out`; or the source has an
            error that `read_letor` or `read_table` refuses. The message names the file and the
            line, or the row and the column. Or rows have to be grouped, and DuckDB, the extra
            `convert`, is not installed.
        OSError: a file cannot be written, for example because the disk is full.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.csv")
    ...     _ = file.write_text("q,y,x\na,0,0.5\nb,1,0.1\na,2,0.25\n")
    ...     convert(file, f"{folder}/lists", qid="q", label="y")[0]["labels"]
    tensor([0., 2.])
    """
    check_at_least("max_levels", max_levels, 1)
    path = check_path("source", source)
    named: dict[str, Any] = {"qid": qid, "label": label, "weight": weight, "position": position}
    named |= {"protected": protected, "doc_id": doc_id}
    named |= {"features": features, "categories": categories}
    check_columns(named)
    if is_list_folder(path):
        raise ValueError(f"source must not be a folder of lists already, got {path}")
    files = find_files(path)
    is_letor = kind_of_file(files[0]) == "letor"
    if is_letor:
        for key, value in named.items():
            if value and value != {"qid": "qid", "label": "label", "doc_id": "doc_id"}.get(key):
                raise ValueError(f"{key} must be None for LETOR text, got {value!r}")
        check_one_split(path)
    elif qid is None:
        with naming(path):
            raise no_column("qid", None, column_names(path))
    with new_folder("out", out) as folder:
        if not is_letor:
            schema = scan_table(path, max_levels=max_levels, **named)
            keys = partial(table_chunks, path, Schema(schema.qid))
            _write_rows(folder, partial(table_chunks, path, schema), keys, watch, schema)
        else:
            try:
                chunks = LetorReader(files).chunks
                _write_rows(folder, chunks, chunks, watch)
            except ZeroIndexError:
                chunks = LetorReader(files, zero_based=True).chunks
                _write_rows(folder, chunks, chunks, watch)
    return open_lists(out)


def table_chunks(path: Path, schema: Schema, watch: Watch | None = None) -> Iterator[ListDataset]:
    """Yield the rows of CSV or Parquet files in chunks, like `LetorReader.chunks`.

    Each chunk has at most 16,384 rows, or fewer if there are many features.

    Args:
        path: the file, folder or pattern.
        schema: how the columns are used.
        watch: called with the progress.

    Raises:
        ValueError: see `read_table`; the message names the file, the row and the column.
    """
    files = TableFiles(path, schema.text_types())
    columns = [name for name in files.schema.names if name in {*schema.columns}]
    rows = 0
    with naming(path):
        for position, table in files.watched_chunks(columns, rows_at_once(schema)):
            with counted_from(rows):
                data = read_table(table, schema, needs_label=False)
            rows += table.num_rows
            if watch is not None:
                watch(position, files.size, rows)
            yield data
    if not rows:
        raise ValueError(f"the table must have at least one row, got none in {path}")


Chunks = Callable[[Watch | None], Iterator[ListDataset]]
"""A function that yields rows in chunks; its argument is called with the progress."""


def _write_rows(
    folder: Path, chunks: Chunks, keys: Chunks, watch: Watch | None, schema: Schema | None = None
) -> None:
    """Write rows as lists; group them first if the rows of a query are not together.

    Args:
        folder: an empty folder.
        chunks: yields the rows.
        keys: yields the same rows; only their qids are needed.
        watch: called with the progress.
        schema: the schema of the table; None for LETOR text.
    """
    with suppress(NotGroupedError):  # do not keep the error: its traceback holds a chunk
        write_files(folder, check_grouped(chunks(watch)), schema)
        return
    if watch is not None:
        watch(0, 1, 0)
    with TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as temporary:
        write_files(folder, group_chunks(keys(None), chunks(watch), Path(temporary)), schema)


MEMORY = "256MB"
"""The most memory that DuckDB may use. It keeps data beyond this limit in temporary files."""

FILE_BYTES = 1 << 26
"""The bytes of documents in a temporary file; more if `FILES` such files are not enough."""

FILES = 512
"""The largest number of temporary files for documents."""

BATCH = 1 << 25
"""The bytes of features that are copied at a time."""

_FILES = """
    WITH lists AS (SELECT qid, min(row) AS first, count(*) AS length FROM documents GROUP BY qid),
    placed AS (SELECT qid, sum(length) OVER (ORDER BY first) - length AS before FROM lists)
    SELECT CAST(before // {documents} AS INTEGER) AS file
    FROM documents JOIN placed USING (qid) ORDER BY row
"""


class NotGroupedError(Exception):
    """The rows of a query are not together."""


def check_grouped(chunks: Iterable[ListDataset]) -> Iterator[ListDataset]:
    """Yield the chunks; raise an error if the rows of a list are not together.

    Args:
        chunks: see `write_lists`. If rows were gathered in a chunk, its `rows` are not consecutive.

    Raises:
        NotGroupedError: a list continues after another list.
    """
    seen = SeenNumbers()
    last: str | None = None
    for chunk in chunks:
        qids = chunk.qids
        fresh = qids[qids[0] == last :]
        last = qids[-1]
        # Two different qids have the same hash about once in 2^64 pairs: then rows are grouped.
        hashes = np.fromiter(map(hash, fresh), np.int64, len(fresh))
        if seen.add(hashes) or (np.diff(_rows(chunk)) != 1).any():
            raise NotGroupedError
        yield chunk


def group_chunks(
    keys: Iterable[ListDataset], chunks: Iterable[ListDataset], temporary: Path
) -> Iterator[ListDataset]:
    """Yield the grouped lists in chunks; lists and documents are in order of first appearance.

    Grouping a temporary file takes three times its size in memory. A file has about 64 MiB of
    documents, or 1/512 of all documents if that is more (about 200 MiB for 100 GiB of data). Apart
    from this, memory does not depend on the number of documents or features.

    Args:
        keys: chunks of all documents, with their qids and `rows`. Other columns may be left out.
        chunks: the same documents with all columns. If a chunk has `rows`, they give the original
            order of its documents.
        temporary: an empty folder for temporary files, which are about as large as the documents.

    Raises:
        OSError: a file cannot be written.
    """
    with name_full_disk(temporary):
        with _database(temporary) as database:
            width, documents = _add_keys(database, keys)
            chunks = iter(chunks)
            first = next(chunks)
            # A document takes about this many bytes.
            size = _to_batch(first).nbytes // len(first.features)
            size += 4 * max(0, width - first.num_features) + 1
            room = max(FILE_BYTES, documents * size // FILES)
            numbers = database.sql(_FILES.format(documents=max(1, room // size)))
            _divide(chain([first], chunks), numbers.to_arrow_reader(1 << 16), temporary)
        for path in sorted(temporary.glob("*.arrow")):
            gathered = gather_runs(join_lists(_read(path)))
            gathered.first_feature = first.first_feature
            yield gathered
            path.unlink()


@contextmanager
def _database(temporary: Path) -> Iterator[Any]:
    """Open a DuckDB database; its file and memory errors become `OSError`s."""
    try:
        import duckdb
    except ImportError:
        raise ValueError(
            "the rows of a query are not together, and grouping them needs duckdb: "
            "pip install 'ltr-torch[convert]', or sort the rows by query"
        ) from None

    settings: dict[str, Any] = {
        "memory_limit": MEMORY,
        "temp_directory": str(temporary),
        "threads": "1",  # each thread takes memory of its own
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    try:
        database = duckdb.connect(str(temporary / "lists.duckdb"), config=settings)
        try:
            database.execute("SET enable_progress_bar = false")
            yield database
        finally:
            with suppress(duckdb.Error):  # a second error must not hide the first
                database.close()
    except (duckdb.Error, pa.ArrowException) as error:
        message = f"the rows cannot be grouped: {' '.join(str(error).split())}"
        full = "Could not write" in message  # the error's class depends on when the write fails
        if not full and not isinstance(error, duckdb.IOException | duckdb.OutOfMemoryException):
            raise
        raise OSError(errno.ENOSPC if full else errno.EIO, message, str(temporary)) from None


def _add_keys(database: Any, keys: Iterable[ListDataset]) -> tuple[int, int]:
    """Insert the qids; return the largest number of features and the number of documents."""
    width = documents = 0
    # Each chunk is a transaction of its own, because uncommitted rows stay in memory.
    database.execute("CREATE TABLE documents (qid VARCHAR, row BIGINT)")
    for chunk in keys:
        lists = np.repeat(np.arange(len(chunk)), chunk.lengths)
        qids = chunk.qid_texts.take(pa.array(lists))
        database.register("chunk", pa.table({"qid": qids, "row": documents + _rows(chunk)}))
        database.execute("INSERT INTO documents FROM chunk")
        width, documents = max(width, chunk.num_features), documents + len(chunk.features)
    return width, documents


def _rows(chunk: ListDataset) -> np.ndarray:
    return np.arange(len(chunk.features)) if chunk.rows is None else chunk.rows


def _divide(chunks: Iterable[ListDataset], numbers: pa.RecordBatchReader, folder: Path) -> None:
    """Copy documents into files; `numbers` has the number of each document's file."""
    known = np.empty(0, np.int32)
    held: list[ListDataset] = []
    files: list[np.ndarray] = []
    for chunk in chunks:
        count = len(chunk.features)
        while len(known) < count:
            known = np.r_[known, numbers.read_next_batch().column(0).to_numpy()]
        held.append(chunk)
        files.append(known[:count][_rows(chunk)[chunk.offsets[:-1]]])
        known = known[count:]
        if sum(lists.features.nbytes for lists in held) > BATCH:
            _append(held, files, folder)
            held, files = [], []
    if held:
        _append(held, files, folder)


def _append(held: list[ListDataset], files: list[np.ndarray], folder: Path) -> None:
    """Append each list to its file; `files` has the number of each list's file."""
    numbers = np.concatenate(files)
    order = np.argsort(numbers, kind="stable")
    data, numbers = join_lists(held).read(order), numbers[order]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    for start, end in pairwise([*starts, len(numbers)]):
        part = data.between(start, end)
        qids = pa.RunEndEncodedArray.from_arrays(
            pa.array(part.offsets[1:]), part.qid_texts.combine_chunks()
        )
        batch = _to_batch(part).append_column("qid", qids)
        path = folder / f"{numbers[start]:06d}.arrow"
        with path.open("ab") as file, pa.ipc.new_stream(file, batch.schema) as writer:
            writer.write_batch(batch)


def _read(path: Path) -> Iterator[ListDataset]:
    """Memory-map a temporary file, and yield its lists in the order in which they were written."""
    with pa.memory_map(str(path)) as file:
        while file.tell() < file.size():
            [batch] = pa.ipc.open_stream(file)
            yield _from_batch(batch)


def _to_batch(data: ListDataset) -> pa.RecordBatch:
    """Return the documents of lists as the rows of an Arrow batch, without qids."""
    columns: dict[str, Any] = {}
    for key, array in {"features": data.features, **data.columns()}.items():
        if key == "rows" or 0 in array.shape[1:]:
            continue
        values = pa.array(np.ascontiguousarray(array).reshape(-1))
        wide = array.ndim > 1
        columns[key] = pa.FixedSizeListArray.from_arrays(values, array.shape[1]) if wide else values
    if data.doc_id is not None:
        columns["doc_id"] = data.doc_id.cast(pa.string())
    return pa.RecordBatch.from_pydict(columns)


def _from_batch(batch: pa.RecordBatch) -> ListDataset:
    """Return the lists of a batch of `_to_batch` with a column of qids, without a copy."""
    arrays: dict[str, Any] = {"features": np.empty((len(batch), 0), np.float32), "labels": None}
    for key, column in zip(batch.schema.names, batch.columns, strict=True):
        wide = pa.types.is_fixed_size_list(column.type)
        values: Any = column.values if wide else column  # pyright: ignore[reportAttributeAccessIssue]
        if key not in ("qid", "doc_id"):
            values = values.to_numpy(zero_copy_only=True)
        arrays[key] = values.reshape(len(batch), -1) if wide else values
    qids = arrays.pop("qid")
    offsets = np.r_[0, qids.run_ends.to_numpy()].astype(np.int64)
    return ListDataset(**arrays, offsets=offsets, qids=qids.values)
