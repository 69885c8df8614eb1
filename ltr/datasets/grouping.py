"""Group documents by their qids in little memory, on the disk, by DuckDB.

It finds the first document of each list, and by it the file that a document belongs to. The
documents are copied into these files of whole lists, which it sorts one after another. A sort of
all documents at once would have to hold a part of each of its runs, and so more memory for more
documents: of 20 GiB it does not work in `MEMORY`.
"""

import errno
import shutil
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.datasets.arrays import pc
from ltr.datasets.lists import ListDataset
from ltr.datasets.seen_qids import SeenQids
from ltr.files import name_full_disk

MEMORY = "256MB"
"""The memory that DuckDB may use; the rest lies in files."""

BYTES = 1 << 12
"""The most bytes of a row that DuckDB sorts; it takes 2,048 rows at a time."""

FILE_BYTES = 1 << 27
"""The bytes of the documents in a file, if there are not too many files."""

FILES = 128
"""The most files; they are open at the same time."""

_BATCH = 1 << 23  # bytes that are copied at a time, and that come back at a time
_RUNS = pa.schema([("qid", pa.string()), ("row", pa.int64()), ("documents", pa.int64())])
_LISTS = """
    CREATE TABLE lists AS
    SELECT qid, first,
        sum(documents) OVER (ORDER BY first ROWS UNBOUNDED PRECEDING) - documents AS before
    FROM (SELECT qid, min(row) AS first, sum(documents) AS documents FROM runs GROUP BY qid)
"""
_NUMBERED = """
    SELECT documents.*, lists.first, CAST(lists.before // {count} AS INTEGER) AS file
    FROM documents JOIN lists USING (qid)
"""
_SORTED = "SELECT qid, doc_id, content FROM file ORDER BY first, row, part"


class NotGroupedError(Exception):
    """Says that the rows of a query are not together."""


def check_grouped(pieces: Iterable[ListDataset]) -> Iterator[ListDataset]:
    """Yield pieces as long as their lists stand together.

    Args:
        pieces: see `write_store`; rows that a piece had to gather are in its `rows`.

    Raises:
        NotGroupedError: a list comes back.
    """
    seen = SeenQids(spelling=True)
    last: str | None = None
    for piece in pieces:
        fresh = piece.qids[piece.qids[0] == last :]
        last = piece.qids[-1]
        rows = piece.rows
        if seen.add([qid.encode() for qid in fresh]) or (
            rows is not None and (np.diff(rows) != 1).any()
        ):
            raise NotGroupedError
        yield piece


def group_pieces(
    keys: Iterable[ListDataset], pieces: Iterable[ListDataset], temporary: Path
) -> Generator[ListDataset, None, None]:
    """Yield the documents again, those of a qid together, in the order of first appearance.

    The memory depends neither on the number of the documents nor on that of their features, up to
    some hundred GiB, from where on a file is too large for a sort in `MEMORY`.

    Args:
        keys: all documents, for their qids and `rows`. They may lack other columns; pieces that
            differ in width are widened to the widest of them.
        pieces: the same documents; where a piece has `rows`, they say in which order its documents
            stood.
        temporary: a folder for files, about as large as the documents; it is removed at the end.

    Raises:
        OSError: a file cannot be written.
    """
    shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
    temporary.mkdir(parents=True)
    failed: list[BaseException] = []
    try:
        with name_full_disk(temporary), _database(temporary, failed) as database:
            keys, pieces = _noting(keys, failed), _noting(pieces, failed)
            width = documents = 0

            def runs() -> Iterator[pa.RecordBatch]:
                nonlocal width, documents
                for start, piece in _counted(keys):
                    width, documents = max(width, piece.num_features), start + len(piece.features)
                    first = np.minimum.reduceat(_rows(piece), piece.offsets[:-1]) + start
                    columns = [pa.array(piece.qids), pa.array(first), pa.array(piece.lengths)]
                    yield pa.record_batch(columns, _RUNS)

            database.register("runs", pa.RecordBatchReader.from_batches(_RUNS, runs()))
            database.execute(_LISTS)
            wide = (
                (start, piece.widen(max(width, piece.num_features)))
                for start, piece in _counted(pieces)
            )
            found = next(wide, None)
            if found is None:
                return
            dtype = _dtype(found[1])
            batches = (_to_batch(start, piece, dtype) for start, piece in chain([found], wide))
            first = next(batches)
            reader = pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
            database.register("documents", reader)
            size = max(FILE_BYTES, documents * dtype.itemsize // FILES)
            numbered = database.sql(_NUMBERED.format(count=max(1, size // dtype.itemsize)))
            rows = max(1, _BATCH // _parts(dtype)[1])
            for path in _divide(numbered.to_arrow_reader(rows), temporary):
                with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
                    database.register("file", reader)
                    yield from _to_lists(database.sql(_SORTED).to_arrow_reader(rows), dtype)
                path.unlink()
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _database(temporary: Path, failed: list[BaseException]) -> Iterator[Any]:
    """Open a database; an error in `failed` is raised in place of the one that it led to."""
    import duckdb

    settings: dict[str, Any] = {
        "memory_limit": MEMORY,
        "temp_directory": str(temporary),
        "preserve_insertion_order": "false",
        "threads": "1",  # each takes memory of its own
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        # it does not know how many documents come, and would hold them instead of the lists
        "disabled_optimizers": "join_order,build_side_probe_side",
    }
    database = duckdb.connect(str(temporary / "lists.duckdb"), config=settings)
    try:
        database.execute("SET enable_progress_bar = false")
        yield database
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        for first in failed:
            raise first from None
        if isinstance(error, OSError) and error.errno is not None:  # not the database's
            raise
        message = f"the rows cannot be grouped: {' '.join(str(error).split())}"
        full = "Could not write" in message  # its class depends on when the write is made
        kinds = (duckdb.IOException, duckdb.OutOfMemoryException, pa.ArrowException, OSError)
        if not full and not isinstance(error, kinds):
            raise
        raise OSError(errno.ENOSPC if full else errno.EIO, message, str(temporary)) from None
    finally:
        with suppress(duckdb.Error):  # a second error must not hide the first
            database.close()


def _noting(pieces: Iterable[ListDataset], failed: list[BaseException]) -> Iterator[ListDataset]:
    """Yield pieces, and note their error, which the database would tell as one of its own."""
    try:
        yield from pieces
    except (Exception, KeyboardInterrupt) as error:
        failed.append(error)
        raise


def _counted(pieces: Iterable[ListDataset]) -> Iterator[tuple[int, ListDataset]]:
    """Yield pieces with the number of documents before each."""
    start = 0
    for piece in pieces:
        yield start, piece
        start += len(piece.features)


def _rows(piece: ListDataset) -> np.ndarray:
    return np.arange(len(piece.features)) if piece.rows is None else piece.rows


def _dtype(piece: ListDataset) -> np.dtype:
    """Return the type of a document's numbers, side by side."""
    arrays = {"features": piece.features, **piece.columns()}
    arrays.pop("rows", None)
    return np.dtype([(name, array.dtype, array.shape[1:]) for name, array in arrays.items()])


def _parts(dtype: np.dtype) -> tuple[int, int]:
    """Return into how many rows a document is cut, and the bytes of each."""
    parts = max(1, -(-dtype.itemsize // BYTES))
    return parts, -(-dtype.itemsize // parts)


def _to_batch(start: int, piece: ListDataset, dtype: np.dtype) -> pa.RecordBatch:
    """Return documents as rows for the database, of which `start` came before."""
    count = len(piece.features)
    parts, size = _parts(dtype)
    documents = np.empty(count, dtype)
    documents["features"] = piece.features
    for name, array in piece.columns().items():
        if name != "rows":
            documents[name] = array
    content = np.zeros((count, parts * size), np.uint8)
    content[:, : dtype.itemsize] = documents.view(np.uint8).reshape(count, dtype.itemsize)
    lists = np.repeat(np.arange(len(piece)), piece.lengths)
    ids = pa.repeat("", count) if piece.doc_ids is None else piece.doc_ids.cast(pa.string())
    place = pa.array(np.repeat(np.arange(count), parts))
    return pa.RecordBatch.from_pydict(
        {
            "qid": pa.array(piece.qids, pa.string()).take(pa.array(np.repeat(lists, parts))),
            "row": pa.array(_rows(piece) + start, pa.int64()).take(place),
            "part": pa.array(np.tile(np.arange(parts, dtype=np.int32), count)),
            "doc_id": ids.take(place),
            "content": pa.Array.from_buffers(
                pa.binary(size), count * parts, [None, pa.py_buffer(content)]
            ),
        }
    )


def _divide(batches: pa.RecordBatchReader, folder: Path) -> list[Path]:
    """Copy rows into files by their column `file`, and return those in its order."""
    paths: dict[int, Path] = {}
    writers: dict[int, Any] = {}
    with ExitStack() as stack:
        for batch in batches:
            numbers = batch.column("file")
            for number in pc.unique(numbers).to_pylist():
                if number not in writers:
                    paths[number] = folder / f"{number}.arrow"
                    file = stack.enter_context(paths[number].open("wb"))
                    new = pa.ipc.new_stream(file, batches.schema)
                    writers[number] = stack.enter_context(new)
                writers[number].write_batch(batch.filter(pc.equal(numbers, number)))
    return [paths[number] for number in sorted(paths)]


def _to_lists(batches: pa.RecordBatchReader, dtype: np.dtype) -> Iterator[ListDataset]:
    """Yield the rows that the database has sorted as lists."""
    parts, size = _parts(dtype)
    rest: pa.Table | None = None  # rows of a document whose others are still to come
    for batch in batches:
        table = pa.table(batch)
        if rest is not None:
            table = pa.concat_tables([rest, table])
        count = table.num_rows // parts
        rest = table.slice(count * parts)
        if not count:
            continue
        whole = table.slice(0, count * parts)
        content = whole["content"].cast(pa.binary(size)).combine_chunks()
        begin = content.offset * size
        values = np.frombuffer(content.buffers()[1], np.uint8)
        values = values[begin : begin + len(content) * size].reshape(count, parts * size)
        documents = np.ascontiguousarray(values[:, : dtype.itemsize]).view(dtype)[:, 0]
        firsts = pa.array(np.arange(count) * parts)
        runs = pc.run_end_encode(whole["qid"].take(firsts).combine_chunks())
        ids = whole["doc_id"].take(firsts).combine_chunks().cast(pa.string())
        arrays = {name: np.ascontiguousarray(documents[name]) for name in dtype.names or ()}
        yield ListDataset(
            arrays.pop("features"),
            arrays.pop("labels", None),
            np.r_[0, runs.run_ends.to_numpy()].astype(np.int64),
            runs.values.to_pylist(),
            ids if any(ids.to_pylist()) else None,
            **arrays,
        )
