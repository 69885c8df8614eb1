"""Convert files into a store of lists, in little memory."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from ltr.arrays import check_columns
from ltr.datasets.grouping import NotGroupedError, check_grouped, group_chunks
from ltr.datasets.infer import no_column
from ltr.datasets.letor import LetorReader, Watch
from ltr.datasets.prepare import scan_table
from ltr.datasets.qids import SeenQids
from ltr.datasets.splits import check_one_split
from ltr.datasets.store import LOCK, Store, is_store
from ltr.datasets.store_writer import SHARD_BYTES, TEMPORARY, StoreWriter, is_written, locked
from ltr.datasets.stored_lists import StoredLists, open_store
from ltr.datasets.table_files import column_names, find_files, kind_of_file, naming
from ltr.datasets.table_stream import RowStream
from ltr.files import check_path
from ltr.shapes import check_at_least, check_choice

RunTasks = Callable[[Sequence[Callable[[], None]]], object]
"""Calls every task at least once, in any order, in any process. The tasks can be pickled."""

_READER_VERSION = 5  # raise it when a reader returns other lists for the same file
_QIDS = 1 << 16  # that are compared at a time


def convert(
    source: str | PathLike[str],
    out: str | PathLike[str],
    *,
    qid: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    position: str | None = None,
    protected: str | None = None,
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

    Lists and documents keep the order in which they first appear. If the rows of a query are not
    together, DuckDB groups them. Its temporary files in `out` are about as large as the store. The
    store is either complete or absent. If a conversion is killed, the next one removes its files
    and starts again. If two processes convert the same source, one waits and uses the store of the
    other. Memory grows only with the longest list and with the number of lists, by 8 bytes for
    each.

    Args:
        source: what `TableDataModule` takes: a file, a folder or a pattern of LETOR text, CSV or
            Parquet. A query may be in several files.
        out: the folder of the store. It must be new or empty, or hold a store of this source or
            files of an interrupted conversion.
        qid: the column of the query; None for LETOR text.
        label: the column of the labels; None for LETOR text, or if there are none.
        weight: see `Schema`.
        position: see `Schema`.
        protected: see `Schema`.
        doc_id: see `Schema`.
        features: see `Schema.infer`.
        categories: see `Schema.infer`.
        max_levels: see `Schema.fit_levels`.
        missing: see `read_table`.
        sort_by_qid: see `read_letor`; for LETOR text. The rows of other tables are always gathered.
        shard_bytes: the approximate size of a shard in bytes.
        watch: called with the progress: bytes read, bytes in all, documents. If the rows have to be
            grouped, the source is read twice more. `watch` is then called with 0 documents, and the
            numbers start again.
        run_tasks: called with a task for each file, if there are several. Each task converts one
            file. `run_tasks` may run them in any order and in any process, such as those of a
            cluster (`ltr convert --ray`). The lists and their order are the same, but no shard has
            documents of two files. All rows of a query must be in one file. Lists from group sizes
            are numbered through all files. `watch` is not called.

    Returns:
        The lists of the store.

    Raises:
        ValueError: an argument is wrong, or `read_letor` or `read_table` would refuse the source.
            The message names the file and the line, or the row and the column. With `run_tasks`, a
            query in two files is an error that names both.
        OSError: a file cannot be written, for example because the disk is full.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.csv")
    ...     _ = file.write_text("q,y,x\na,0,0.5\nb,1,0.1\na,2,0.25\n")
    ...     convert(file, f"{folder}/store", qid="q", label="y")[0]["labels"]
    tensor([0., 2.])
    """
    check_at_least("shard_bytes", shard_bytes, 1)
    check_at_least("max_levels", max_levels, 1)
    check_choice("missing", missing, "keep", "error")
    path, folder = check_path("source", source), check_path("out", out)
    named: dict[str, Any] = {"qid": qid, "label": label, "weight": weight, "position": position}
    named |= {
        "protected": protected,
        "doc_id": doc_id,
        "features": features,
        "categories": categories,
    }
    check_columns(named)
    if is_store(path):
        raise ValueError(f"path must not be a list store already, got {path}")
    files = find_files(path)
    reader: LetorReader | None = None
    if kind_of_file(files[0]) == "letor":
        for key, value in named.items():
            if value and value != {"qid": "qid", "label": "label", "doc_id": "doc_id"}.get(key):
                raise ValueError(f"{key} must be None for LETOR text, got {value!r}")
        check_one_split(path)
        reader = LetorReader(files, sort_by_qid=sort_by_qid, missing=missing)
        made_of = letor_source(reader)
    else:
        if qid is None:
            with naming(path):
                raise no_column("qid", None, column_names(path))
        columns = {
            key: value if value is None or isinstance(value, str) else list(value)
            for key, value in named.items()
        }
        made_of = {**_stamps(files), **columns, "missing": missing, "max_levels": max_levels}
    _check_folder(folder, made_of)
    with locked(folder):
        if not is_written(folder, made_of):
            rows = reader
            if rows is None:
                rows = RowStream(path, scan_table(path, max_levels=max_levels, **named), missing)
            writer = StoreWriter(folder, made_of, rows.schema, shard_bytes)
            if run_tasks is None or len(files) == 1:
                write_rows(writer, rows, watch)
            else:
                writer.join(_convert_apart(rows, folder / TEMPORARY, shard_bytes, run_tasks))
    return open_store(folder)


def write_rows(
    writer: StoreWriter, rows: LetorReader | RowStream, watch: Watch | None = None
) -> None:
    """Write rows as a store; group them if a list returns after another one and that is allowed."""
    if not rows.gathers:  # the reader refuses it
        writer.write(rows.chunks(watch))
        return
    with suppress(NotGroupedError):  # left before the next try: an error holds what it saw
        writer.write(check_grouped(rows.chunks(watch)))
        return
    if watch is not None:
        watch(0, 1, 0)
    temporary = writer.folder / TEMPORARY
    with closing(group_chunks(rows.keys(), rows.chunks(watch), temporary)) as chunks:
        writer.write(chunks)


def letor_source(reader: LetorReader) -> dict[str, Any]:
    """Return data that identify the files and the reader's options from which a store is made.

    A file counts as changed if its size, modification time, change time or inode differs.
    """
    groups = [one and [str(one.resolve()), *stamp(one)] for one in reader.group_files]
    return {
        **_stamps(reader.files),
        "num_features": reader.num_features,
        "sort_by_qid": reader.gathers,
        "missing": reader.missing,
        "group_files": groups,
        "group_file_given": reader.group_file is not None,
    }


def stamp(path: Path) -> list[int]:
    """Return values by which a change of a file is noticed."""
    # `cp -p` over a file keeps size and modification time, but not the time of the change
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns]


def _stamps(files: Sequence[Path]) -> dict[str, Any]:
    return {
        "reader": _READER_VERSION,
        "files": [[str(file.absolute()), *stamp(file)] for file in files],
    }


def _check_folder(folder: Path, source: dict[str, Any]) -> None:
    """Raise an error if a folder holds anything but a store of this source."""
    if is_store(folder):
        if open_store(folder).store.source != source:
            raise ValueError(
                f"out must be a new folder or a store of this source, got {folder}, a store "
                "of another source, of an older version of it, or with other options: "
                "delete it first"
            )
    elif folder.exists() and not folder.is_dir():
        raise ValueError(f"out must be a folder, got the file {folder}")
    elif folder.is_dir():
        others = [path.name for path in folder.iterdir()]
        if others and LOCK not in others:
            raise ValueError(f"out must be a new folder, got {folder}, which holds {others[0]!r}")


def _convert_apart(
    rows: LetorReader | RowStream, temporary: Path, shard_bytes: int, run_tasks: RunTasks
) -> Iterator[Path]:
    """Convert each file by itself, and yield the folders of their stores.

    Raises:
        ValueError: a query is in two files; the message names both.
    """
    # names of their own: on a cluster, the tasks of a command that was killed may live on a little
    key = secrets.token_hex(4)
    parts = {temporary / f"{key}-{number:06d}": one for number, one in enumerate(rows.by_file())}
    run_tasks([partial(_write_part, one, part, shard_bytes) for part, one in parts.items()])
    seen = SeenQids()
    for part in parts:
        qids = iter(Store(part).qids)
        while chunk := [*islice(qids, _QIDS)]:
            if seen.add([qid.encode() for qid in chunk]):
                _refuse_return({*chunk}, part, parts)
    yield from parts


def _write_part(rows: LetorReader | RowStream, folder: Path, shard_bytes: int) -> None:
    with locked(folder):
        write_rows(StoreWriter(folder, None, rows.schema, shard_bytes), rows)


def _refuse_return(
    qids: set[str], part: Path, parts: Mapping[Path, LetorReader | RowStream]
) -> None:
    """Raise the error if an earlier part has one of the qids; different qids may share a hash."""
    here = parts[part].files[0]
    for before, rows in parts.items():
        if before == part:
            return
        qid = next((qid for qid in Store(before).qids if qid in qids), None)
        if qid is not None:
            raise ValueError(
                f"{here}: each query must be in one file if files are converted in "
                f"parallel, got {qid!r}, which is in {rows.files[0]} too: convert them in "
                "one process"
            )
