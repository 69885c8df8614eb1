"""Convert files into a store of lists, in little memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from ltr.datasets.arrays import check_columns
from ltr.datasets.grouping import NotGroupedError, check_grouped, group_pieces
from ltr.datasets.letor import check_end, letor_reader
from ltr.datasets.lists import ListDataset
from ltr.datasets.schema import Schema
from ltr.datasets.seen_qids import SeenQids, add_all
from ltr.datasets.splits import find_splits
from ltr.datasets.store import is_store
from ltr.datasets.store_parts import RunTasks, write_by_file
from ltr.datasets.store_writer import SHARD_BYTES, Names, Pieces, StoreWriter, locked
from ltr.datasets.stored_lists import StoredLists, open_store
from ltr.datasets.table_files import find_files, kind_of_file
from ltr.datasets.table_scan import scan_table
from ltr.datasets.table_stream import RowStream
from ltr.files import check_path
from ltr.shapes import check_at_least

_READER_VERSION = 3  # raise it when a reader returns other lists for the same file

Watch = Callable[[int, int, int], object]
"""Is told how far a conversion is: bytes read, bytes in all, documents.

If the rows have to be grouped, all is read a second time: the numbers start again, with no
documents.
"""


def convert(
    source: str | PathLike[str],
    out: str | PathLike[str],
    *,
    qid: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    position: str | None = None,
    group: str | None = None,
    doc_id: str | None = None,
    features: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
    max_levels: int = 256,
    missing: Literal["keep", "error"] = "keep",
    sort_by_qid: bool = False,
    shard_bytes: int = SHARD_BYTES,
    watch: Watch | None = None,
    run_tasks: RunTasks | None = None,
) -> StoredLists:
    r"""Convert files into a store of lists, in at most 1 GiB of memory.

    Lists and documents are in the order of their first appearance. Where the rows of a query are
    not together, DuckDB groups them, with temporary files in `out`, about twice as large as the
    store. A conversion that was killed goes on when it is started again: finished shards are kept
    if the source has not changed. Of two processes that convert the same, one waits and takes what
    the other one wrote. The memory grows with the number of lists alone, by 8 bytes each, and with
    the longest list.

    Args:
        source: what `TableDataModule` takes: a file, a folder or a pattern of LETOR text, CSV or
            Parquet.
        out: the folder of the store. It must be new or empty, or hold a store of this source or
            what is left of its conversion.
        qid: the column of the query; None for LETOR text.
        label: the column of the labels; None for LETOR text, or where there are none.
        weight: see `Schema`.
        position: see `Schema`.
        group: see `Schema`.
        doc_id: see `Schema`.
        features: see `Schema.infer`.
        categories: see `Schema.infer`.
        max_levels: how many levels of a category have a code of their own, the most frequent ones
            in the source.
        missing: "keep" keeps missing features; "error" refuses them.
        sort_by_qid: gather the lines of a qid that comes back in LETOR text, which is an error
            otherwise. The rows of other tables are always gathered.
        shard_bytes: the bytes of a shard, about.
        watch: is told how far the conversion is.
        run_tasks: where there are several files, is given a task for each, which converts it by
            itself, and runs them in any order and processes: those of a cluster, as `ltr convert
            --ray` does. The lists and their order are the same; shards end where a file ends. A
            query must then be in one file. `watch` is not told anything.

    Returns:
        The lists of the store.

    Raises:
        ValueError: an argument is wrong, or the source is not as `read_letor` or `read_table` wants
            it; the message names the file and the line, or the row and the column.
        OSError: a file cannot be written, as on a full disk.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.csv")
    ...     _ = file.write_text("q,y,x\na,0,0.5\nb,1,0.1\na,2,0.25\n")
    ...     convert(file, f"{folder}/store", qid="q", label="y")[0]["labels"]
    tensor([0., 2.])
    """
    check_at_least("shard_bytes", shard_bytes, 1)
    check_at_least("max_levels", max_levels, 1)
    if missing not in ("keep", "error"):
        raise ValueError(f'missing must be "keep" or "error", got {missing!r}')
    path, folder = check_path("source", source), check_path("out", out)
    named: dict[str, Any] = {"qid": qid, "label": label, "weight": weight, "position": position}
    named |= {"group": group, "doc_id": doc_id, "features": features, "categories": categories}
    check_columns(named)
    if is_store(path):
        raise ValueError(f"path must not be a store already, got {path}")
    files = find_files(path)
    if kind_of_file(files[0]) == "letor":
        for key, value in named.items():
            if value and value != {"qid": "qid", "label": "label", "doc_id": "doc_id"}.get(key):
                raise ValueError(f"{key} must be None for LETOR text, got {value!r}")
        if path.is_dir() and len(splits := find_splits(path, 1)) > 1:
            names = ", ".join(one.name for one in splits.values())
            raise ValueError(f"a folder of a table must hold one split, got {names} in {path}")
        options: dict[str, Any] = {"sort_by_qid": sort_by_qid, "missing": missing}
        made_of = letor_source(files, **options)
        _check_folder(folder, made_of)
        if run_tasks is None or len(files) == 1:
            convert_letor(
                files, folder, source=made_of, shard_bytes=shard_bytes, watch=watch, **options
            )
            return open_store(folder)
        with locked(folder):
            writer = StoreWriter(folder, made_of, None, shard_bytes, order="files apart")
            if not writer.is_written():
                write = partial(_letor_part, shard_bytes=shard_bytes, **options)
                write_by_file(writer, files, write, run_tasks)
        return open_store(folder)
    if qid is None:
        raise ValueError("qid must name a column of the table, got None")
    columns = {
        key: value if value is None or isinstance(value, str) else list(value)
        for key, value in named.items()
    }
    made_of = {**_stamps(files), **columns, "missing": missing, "max_levels": max_levels}
    _check_folder(folder, made_of)
    with locked(folder):
        if not StoreWriter(folder, made_of, None, shard_bytes).is_written():
            schema = scan_table(path, files, max_levels=max_levels, **named)
            if run_tasks is None or len(files) == 1:
                order = _TableOrder(path, schema, missing, watch)
                pieces, keys = order.pieces, order.keys
                _write(
                    folder, made_of, schema, shard_bytes, pieces, keys, checked=True, watch=watch
                )
            else:
                types = RowStream(path, schema).types
                write = partial(
                    _table_part,
                    schema=schema,
                    types=types,
                    missing=missing,
                    shard_bytes=shard_bytes,
                )
                writer = StoreWriter(folder, made_of, schema, shard_bytes, order="files apart")
                write_by_file(
                    writer, [one for one in files if _has_rows(one, qid)], write, run_tasks
                )
    return open_store(folder)


def convert_letor(
    files: Sequence[Path],
    folder: Path,
    *,
    source: dict[str, Any],
    num_features: int | None = None,
    sort_by_qid: bool = False,
    group_file: str | PathLike[str] | None = None,
    missing: Literal["keep", "error"] = "keep",
    shard_bytes: int = SHARD_BYTES,
    watch: Watch | None = None,
) -> None:
    """Convert files of LETOR text into a store, as `convert` does; see `read_letor`.

    Args:
        files: one or more.
        folder: of the store.
        source: what `letor_source` gives for the same arguments.
        num_features: see `read_letor`.
        sort_by_qid: see `read_letor`.
        group_file: see `read_letor`; None where there are several files.
        missing: see `read_letor`.
        shard_bytes: the bytes of a shard, about.
        watch: see `convert`.
    """

    def pieces(skip: int, skipped: Names) -> Iterator[ListDataset]:
        seen, total = SeenQids(spelling=True), sum(file.stat().st_size for file in files)
        several = len(files) > 1 and not sort_by_qid
        if several:
            add_all(seen, skipped())
        before, documents, place = 0, 0, [0]
        for file in files:
            options = (file, num_features, sort_by_qid, group_file, missing)
            reader = letor_reader(*options, skipped() if skip else ())
            last = None
            for piece in reader.pieces(max(0, skip - documents), partial(place.__setitem__, 0)):
                fresh = piece.qids[piece.qids[0] == last :]
                last = piece.qids[-1]
                if several and seen.add([qid.encode() for qid in fresh]):
                    _check_apart(fresh, file, files[: files.index(file)], missing)
                yield piece
                if watch is not None:
                    watch(before + place[0], total, documents + reader.documents)
            check_end(reader, group_file)
            documents += reader.documents
            before += file.stat().st_size

    with locked(folder):
        if not StoreWriter(folder, source, None, shard_bytes).is_written():
            keys = partial(pieces, 0, lambda: iter(()))
            _write(
                folder, source, None, shard_bytes, pieces, keys, checked=sort_by_qid, watch=watch
            )


def _check_apart(qids: Sequence[str], file: Path, earlier: Sequence[Path], missing: str) -> None:
    """Raise `ValueError` if an earlier file has one of the qids; two may but share a hash."""
    names = {*qids}
    for other in earlier:
        for piece in letor_reader(other, None, False, None, missing).pieces():
            for qid in piece.qids:
                if qid in names:
                    raise ValueError(
                        f"{file}: a qid must not come back, got {qid!r}, which stood in {other} "
                        "(sort_by_qid=True gathers it)"
                    )


def letor_source(files: Sequence[Path], **options: Any) -> dict[str, Any]:
    """Return what tells whether a store is of these files, read with these options.

    A file has changed if its size, modification time, change time or inode has.
    """
    options = {"num_features": None, "group_file": None, **options}
    sizes = options.pop("group_file")
    group = None if sizes is None else [str(sizes.resolve()), *stamp(sizes)]
    return {**_stamps(files), **options, "group_file": group}


def stamp(path: Path) -> list[int]:
    """Return what changes where a file does."""
    # `cp -p` over a file keeps size and modification time, but not the time of the change
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns]


def _stamps(files: Sequence[Path]) -> dict[str, Any]:
    return {
        "reader": _READER_VERSION,
        "files": [[str(file.absolute()), *stamp(file)] for file in files],
    }


def _check_folder(folder: Path, source: dict[str, Any]) -> None:
    """Refuse a folder that holds anything else."""
    if is_store(folder):
        if open_store(folder).store.source != source:
            raise ValueError(
                f"out must be a new folder, or the store of this source, got {folder}, a store "
                "of another source, of an older state of it, or with other options: delete it first"
            )
    elif folder.exists() and not folder.is_dir():
        raise ValueError(f"out must be a folder, got the file {folder}")
    elif folder.is_dir():
        others = [path.name for path in folder.iterdir()]
        if others and not any(name == ".lock" for name in others):
            raise ValueError(f"out must be a new folder, got {folder}, which holds {others[0]!r}")


def _write(
    folder: Path,
    source: dict[str, Any],
    schema: Schema | None,
    shard_bytes: int,
    pieces: Pieces,
    keys: Callable[[], Iterable[ListDataset]],
    *,
    checked: bool,
    watch: Watch | None = None,
) -> None:
    """Write the pieces as they come, or, where lists come back, grouped."""

    def as_they_come(skip: int, skipped: Names) -> Iterable[ListDataset]:
        found = pieces(skip, skipped)
        return check_grouped(found) if checked else found

    def grouped(skip: int, skipped: Names) -> Iterator[ListDataset]:
        with closing(group_pieces(keys(), pieces(0, lambda: iter(())), folder)) as found:
            for piece in found:
                documents = len(piece.features)
                if skip < documents:
                    yield _without_first(piece, skip) if skip else piece
                skip = max(0, skip - documents)

    with suppress(NotGroupedError):  # left before the next try: an error holds what it saw
        StoreWriter(folder, source, schema, shard_bytes).write(as_they_come)
        return
    if watch is not None:
        watch(0, 1, 0)
    StoreWriter(folder, source, schema, shard_bytes, order="grouped").write(grouped)


def _without_first(piece: ListDataset, documents: int) -> ListDataset:
    """Return a piece without its first documents, which are whole lists."""
    return piece.select(range(int((piece.offsets[1:] <= documents).sum()), len(piece)))


def _letor_part(file: Path, folder: Path, source: Any, **options: Any) -> None:
    """Convert a file of LETOR text by itself."""
    convert_letor([file], folder, source=source, **options)


def _table_part(
    file: Path,
    folder: Path,
    source: Any,
    *,
    schema: Schema,
    types: pa.Schema,
    missing: str,
    shard_bytes: int,
) -> None:
    """Convert a file of a table by itself; `types` are those of the columns of all files."""
    with locked(folder):
        if not StoreWriter(folder, source, schema, shard_bytes).is_written():
            order = _TableOrder(file, schema, missing, types=types)
            _write(folder, source, schema, shard_bytes, order.pieces, order.keys, checked=True)


def _has_rows(file: Path, qid: str) -> bool:
    return any(table.num_rows for table in RowStream(file, Schema(qid)).tables())


class _TableOrder:
    """The rows of a table in their order."""

    def __init__(
        self,
        path: Path,
        schema: Schema,
        missing: Any,
        watch: Watch | None = None,
        types: pa.Schema | None = None,
    ) -> None:
        self.path, self.schema, self.missing, self.watch = path, schema, missing, watch
        self.types = types

    def keys(self) -> Iterator[ListDataset]:
        """Yield the rows with their qids alone."""
        stream = RowStream(self.path, Schema(self.schema.qid))
        if self.types is not None:
            stream.types = pa.schema([self.types.field(name) for name in stream.columns])
        for _, data, _ in stream.pieces():
            yield data

    def pieces(self, skip: int, skipped: Names) -> Iterator[ListDataset]:
        """Yield the rows as lists, without the first `skip` of them."""
        stream = RowStream(self.path, self.schema, self.missing)
        if self.types is not None:  # of all files: a whole number here is a fraction in another one
            stream.types = pa.schema([self.types.field(name) for name in stream.columns])
        for _, data, _ in stream.pieces(skip):
            if self.watch is not None:
                self.watch(stream.place, stream.size, stream.rows)
            yield data
