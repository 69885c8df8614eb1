"""Group documents by their qids out of core.

DuckDB finds the place of each document, from the qids alone. The documents then go to their places
in steps: into files of neighboring places, at most `FILES` at a time, those into files of fewer
places, until a file is a part that is put in order in memory. So no sort holds features, the memory
depends neither on their number nor on that of the documents, and each step reads and writes each
document once: one step up to 1 GiB, two up to 64 GiB, three up to 4 TiB.
"""

import errno
import shutil
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.datasets.lists import ListDataset
from ltr.datasets.seen_qids import SeenQids, add_all
from ltr.files import name_full_disk

MEMORY = "128MB"
"""The memory that DuckDB may use; what is beyond lies in files."""

PART = 1 << 24
"""The bytes of the documents that are put in order at a time."""

FILES = 64
"""The most files into which one is divided."""

_ROWS = 1 << 13
_BATCH = 1 << 22  # bytes
_KEYS = pa.schema([("qid", pa.string()), ("row", pa.int64()), ("number", pa.int64())])
_FIXED = {
    "labels": np.float32,
    "weights": np.float32,
    "positions": np.int64,
    "groups": np.float32,
}
_BLOBS = {"features": np.float32, "categories": np.int64}


class NotGroupedError(Exception):
    """Says that the rows of a query are not together."""


def check_grouped(
    pieces: Iterable[ListDataset], skipped: Iterable[str] = ()
) -> Iterator[ListDataset]:
    """Yield pieces as long as their lists stand together.

    Args:
        pieces: see `write_store`; rows that a piece had to gather are in its `rows`.
        skipped: the qids of the lists before.

    Raises:
        NotGroupedError: a list comes back.
    """
    seen = SeenQids(spelling=True)
    add_all(seen, skipped)
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


def group_pieces(pieces: Iterable[ListDataset], folder: Path) -> Generator[ListDataset, None, None]:
    """Yield the documents again, those of a qid together, in the order of first appearance.

    Args:
        pieces: documents; where a piece has `rows`, they say in which order its documents stood.
        folder: for temporary files, about twice as large as the documents.
    """
    temporary = folder / ".grouping"
    shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
    temporary.mkdir(parents=True)
    try:
        with name_full_disk(temporary):
            path = temporary / "part"
            found = _divide_pieces(pieces, path)
            for part in _parts(path, *found):
                yield _read_part(part)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _divide_pieces(pieces: Iterable[ListDataset], path: Path) -> tuple[int, int, int]:
    """Write the documents into files of neighboring places; see `_divide`.

    Returns how many documents there are, how many a file has, and how many a part may have.
    """
    staged = path.with_name("documents.arrow")
    with _database(path.parent) as database:
        if not _stage(database, pieces, staged):
            return 0, 1, 1
        ordered = database.sql(
            "SELECT row_number() OVER (ORDER BY lists.first, docs.row) - 1 FROM docs "
            "JOIN (SELECT qid, min(row) AS first FROM docs GROUP BY qid) AS lists USING (qid) "
            "ORDER BY docs.number"
        )
        [(documents,)] = database.sql("SELECT count(*) FROM docs").fetchall()
        per_part = max(1, PART * documents // staged.stat().st_size)
        places = (batch.column(0).to_numpy() for batch in ordered.to_arrow_reader(1 << 16))
        step = _divide(_with_places(staged, places), path, documents, per_part)
    staged.unlink()
    return documents, step, per_part


def _parts(path: Path, documents: int, step: int, per_part: int) -> Iterator[Path]:
    """Yield the parts of what `_divide` wrote for `path`, one file divided at a time."""
    for number, first in enumerate(range(0, documents, step)):
        file = path.with_name(f"{path.name}-{number}")
        if step <= per_part:
            yield file
        else:
            count = min(step, documents - first)
            smaller = _divide(_tables(file, first), file, count, per_part)
            file.unlink()
            yield from _parts(file, count, smaller, per_part)


def _divide(tables: Iterable[pa.Table], path: Path, documents: int, per_part: int) -> int:
    """Write documents into files of neighboring places; return how many places a file has.

    Args:
        tables: with the documents' places, from 0, in the column `place`.
        path: the files are this with "-0", "-1", ... at the end.
        documents: how many there are.
        per_part: how many a part has.
    """
    step = per_part
    while step * FILES < documents:
        step *= FILES
    for table in tables:
        place = table.column("place").to_numpy()
        order = np.argsort(place)
        table = table.take(pa.array(order))
        number = place[order] // step
        starts = np.flatnonzero(np.r_[True, np.diff(number) > 0])
        for start, end in pairwise([*starts.tolist(), len(number)]):
            with (
                path.with_name(f"{path.name}-{number[start]}").open("ab") as file,
                pa.ipc.new_stream(file, table.schema) as writer,
            ):
                writer.write_table(table.slice(start, end - start))
    return step


def _with_places(staged: Path, places: Iterator[np.ndarray]) -> Iterator[pa.Table]:
    """Yield the documents as they came, about `PART` bytes at a time, with their places."""
    left = np.empty(0, np.int64)
    with pa.OSFile(str(staged)) as file, pa.ipc.open_file(file) as reader:
        count = reader.num_record_batches
        several = max(1, PART * count // file.size())
        for first in range(0, count, several):
            numbers = range(first, min(first + several, count))
            table = pa.Table.from_batches([reader.get_batch(number) for number in numbers])
            while len(left) < table.num_rows:
                left = np.r_[left, next(places)]
            yield table.append_column("place", pa.array(left[: table.num_rows]))
            left = left[table.num_rows :]


def _streams(path: Path) -> Iterator[pa.Table]:
    """Yield the tables that were appended to a file."""
    with pa.OSFile(str(path)) as file:
        while file.tell() < file.size():
            yield pa.ipc.open_stream(file).read_all()


def _tables(path: Path, first: int) -> Iterator[pa.Table]:
    """Yield the tables of a file, about `PART` bytes at a time, their places less `first`."""
    kept: list[pa.Table] = []
    for table in chain(_streams(path), [None]):
        if kept and (table is None or sum(one.nbytes for one in kept) >= PART):
            joined = pa.concat_tables(kept)
            places = pa.array(joined.column("place").to_numpy() - first)
            yield joined.drop_columns("place").append_column("place", places)
            kept = []
        if table is not None:
            kept.append(table)


def _read_part(path: Path) -> ListDataset:
    """Return the documents of a part in the order of their places."""
    table = pa.concat_tables(_streams(path))
    path.unlink()
    order = np.argsort(table.column("place").to_numpy())
    [batch] = table.drop_columns("place").take(pa.array(order)).combine_chunks().to_batches()
    return _to_lists(batch)


@contextmanager
def _database(temporary: Path) -> Iterator[Any]:
    import duckdb

    settings: dict[str, Any] = {
        "memory_limit": MEMORY,
        "temp_directory": str(temporary),
        "preserve_insertion_order": "false",
        "threads": "1",  # each takes memory of its own
    }
    database = duckdb.connect(str(temporary / "documents.duckdb"), config=settings)
    try:
        yield database
    except duckdb.Error as error:
        message = f"the rows cannot be grouped: {' '.join(str(error).split())}"
        full = "Could not write" in message  # its class depends on when the write is made
        if not full and not isinstance(error, (duckdb.IOException, duckdb.OutOfMemoryException)):
            raise
        raise OSError(errno.ENOSPC if full else errno.EIO, message, str(temporary)) from None
    finally:
        with suppress(duckdb.Error):  # a second error must not hide the first
            database.close()


def _stage(database: Any, pieces: Iterable[ListDataset], staged: Path) -> bool:
    """Write the documents into a file, and their qids into the table `docs`.

    Returns whether there are any.
    """
    failed: list[Exception] = []
    batches = _until_failure(_batches(pieces), failed)
    first = next(batches, None)
    if first is not None:
        with staged.open("wb") as file, pa.ipc.new_file(file, first.schema) as writer:
            keys = _until_failure(_write_all(chain([first], batches), writer), failed)
            database.register("incoming", pa.RecordBatchReader.from_batches(_KEYS, keys))
            database.execute("CREATE TABLE docs AS SELECT * FROM incoming")
            database.unregister("incoming")
    for error in failed:
        raise error
    return first is not None


def _write_all(
    batches: Iterable[pa.RecordBatch], writer: pa.RecordBatchFileWriter
) -> Iterator[pa.RecordBatch]:
    """Write batches, and yield the qid, the row and the number of each document."""
    number = 0
    for batch in batches:
        writer.write_batch(batch)
        numbers = pa.array(np.arange(number, number := number + batch.num_rows))
        yield pa.record_batch([batch.column("qid"), batch.column("row"), numbers], _KEYS)


def _until_failure(
    batches: Iterator[pa.RecordBatch], failed: list[Exception]
) -> Iterator[pa.RecordBatch]:
    """Yield batches up to an error, which would else be told as one of the database."""
    try:
        yield from batches
    except Exception as error:
        failed.append(error)


def _batches(pieces: Iterable[ListDataset]) -> Iterator[pa.RecordBatch]:
    start = 0
    for piece in pieces:
        documents = len(piece.features)
        rows = np.arange(documents) if piece.rows is None else piece.rows
        names = np.repeat(np.arange(len(piece)), piece.lengths)
        arrays: dict[str, Any] = {
            "qid": pa.array(piece.qids, pa.string()).take(pa.array(names)),
            "row": pa.array(rows + start, pa.int64()),
            "features": _blob(piece.features),
        }
        for name, array in piece.columns().items():
            if name in _BLOBS:
                arrays[name] = _blob(array)
            elif name in _FIXED:
                arrays[name] = pa.array(array)
        # a piece may lack ids, and another one have them: all have the column
        empty = pa.repeat(pa.scalar("", pa.string()), documents)
        arrays["doc_ids"] = empty if piece.doc_ids is None else piece.doc_ids.cast(pa.string())
        start += documents
        batch = pa.RecordBatch.from_pydict(arrays)
        rows_at_once = max(1, min(_ROWS, _BATCH * documents // batch.nbytes))
        for begin in range(0, documents, rows_at_once):
            yield batch.slice(begin, rows_at_once)


def _blob(array: np.ndarray) -> pa.Array:
    """Return each row of an array as bytes."""
    array = np.ascontiguousarray(array)
    offsets = np.arange(len(array) + 1, dtype=np.int64) * (array.shape[1] * array.itemsize)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(array)]
    return pa.Array.from_buffers(pa.large_binary(), len(array), buffers)


def _to_lists(batch: pa.RecordBatch) -> ListDataset:
    found: dict[str, Any] = {}
    for name in batch.schema.names:
        column: Any = batch.column(name)
        if name in _BLOBS:
            found[name] = _from_blobs(column, _BLOBS[name])
        elif name in _FIXED:
            found[name] = column.to_numpy(zero_copy_only=False).astype(_FIXED[name])
    names = batch.column("qid").to_pylist()
    starts = [i for i, name in enumerate(names) if not i or name != names[i - 1]]
    ids: Any = batch.column("doc_ids").cast(pa.string())
    return ListDataset(
        found.pop("features"),
        found.pop("labels", None),
        np.array([*starts, len(names)], np.int64),
        [names[start] for start in starts],
        ids if any(ids.to_pylist()) else None,
        **found,
    )


def _from_blobs(column: Any, dtype: type) -> np.ndarray:
    """Return bytes as the rows of an array, 0 behind the end of a short one."""
    values = column.cast(pa.large_binary())
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset :][: len(values) + 1]
    size = np.dtype(dtype).itemsize
    widths = np.diff(offsets) // size
    width = int(widths.max())
    data = values.buffers()[2]
    flat = np.empty(0, dtype)
    if width:
        content = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
        flat = np.frombuffer(content.tobytes(), dtype)
    if (widths == width).all():
        return flat.reshape(len(widths), width)
    array = np.zeros((len(widths), width), dtype)
    array[np.arange(width) < widths[:, None]] = flat
    return array
