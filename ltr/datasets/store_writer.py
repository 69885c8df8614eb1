"""Write a store chunk by chunk; it is either complete or absent.

The manifest is written last, and names the files of the store. Their names begin with a new random
key, so a store that is written again keeps its old files until the new manifest exists. A writer
that was killed leaves files that no manifest names. The next writer removes them. A writer holds a
lock: a second writer of the same lists waits, and then uses the finished store.
"""

import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from filelock import FileLock

from ltr.datasets.checksums import file_checksum
from ltr.datasets.lists import ListDataset, join_lists
from ltr.datasets.schema import Schema
from ltr.datasets.shards import ShardEntry, write_shard
from ltr.datasets.store import FILES, LISTS, LOCK, OFFSETS, Store, write_manifest
from ltr.files import check_path, durable_write, remove_leftovers
from ltr.shapes import check_whole

SHARD_BYTES = 1 << 26
"""The bytes of a shard, about."""

TEMPORARY = ".temporary"
"""What is in this folder of a store is removed when the store is written."""


def write_store(
    lists: ListDataset | Iterable[ListDataset],
    path: str | PathLike[str],
    *,
    schema: Schema | None = None,
    source: Any = None,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write lists as a store; `open_store` opens it.

    Args:
        lists: a data set, or chunks of one that come one after another. The first list of a chunk
            continues the last one of the previous chunk if both have the same qid. All chunks have
            the same columns; only document ids may be left out.
        path: the folder, made if it is missing. An existing store is replaced in one step, when the
            manifest is written.
        schema: the schema of the table that the lists come from; stored in the manifest.
        source: plain data that identify the source of the lists; stored in the manifest.
        shard_bytes: the approximate size of a shard in bytes.

    Raises:
        ValueError: there are no lists, the columns of the chunks differ, `path` is a file, or an
            argument has the wrong type.
        OSError: a file cannot be written.

    >>> from tempfile import mkdtemp
    >>> from ltr.datasets import open_store
    >>> data = ListDataset.from_arrays([[1.0], [2.0], [3.0]], labels=[0, 2, 1], qid=[7, 7, 8])
    >>> write_store(data, folder := mkdtemp())
    >>> open_store(folder)[0]["labels"]
    tensor([0., 2.])
    """
    folder = check_path("path", path)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"path must be a folder, got the file {folder}")
    check_whole("shard_bytes", shard_bytes)
    if schema is not None and not isinstance(schema, Schema):
        raise ValueError(f"schema must be a Schema or None, got {schema!r}")
    try:
        json.dumps(source)
    except (TypeError, ValueError) as error:
        raise ValueError(f"source must be plain data, got {source!r} ({error})") from None
    chunks = lists if isinstance(lists, Iterable) else [lists]
    with locked(folder):
        StoreWriter(folder, source, schema, shard_bytes).write(chunks)


def locked(folder: Path) -> FileLock:
    """Make a folder, and return the lock for its writers.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / LOCK)


def is_written(folder: Path, source: Any) -> bool:
    """Return whether a folder is a store made from this source; the folder must be locked.

    If so, the remains of a killed writer are removed.
    """
    with suppress(ValueError):
        if Store(folder).source == source:
            _remove_others(folder)
            return True
    return False


class StoreWriter:
    """Writes the files of a store; its folder must be locked.

    Args:
        folder: of the store.
        source: what the lists are made from, plain data.
        schema: of the table that they come from.
        shard_bytes: the approximate size of a shard in bytes.
    """

    def __init__(
        self, folder: Path, source: Any, schema: Schema | None, shard_bytes: int = SHARD_BYTES
    ) -> None:
        self.folder = folder
        self.shard_bytes = shard_bytes
        self._header = {"source": source, "schema": None if schema is None else schema.to_dict()}

    def write(self, chunks: Iterable[ListDataset]) -> None:
        """Write the lists of chunks in order; see `write_store`.

        Raises:
            ValueError: there is no list, or the columns of the chunks differ.
            OSError: a file cannot be written.
        """
        with self._writing():
            columns: set[str] | None = None
            held: list[ListDataset] = []
            size = 0
            for chunk in chunks:
                if not isinstance(chunk, ListDataset):
                    raise ValueError(f"lists must be a ListDataset or chunks of one, got {chunk!r}")
                found = {*chunk.columns()} - {"rows"}
                if columns is not None and found != columns:
                    raise ValueError(
                        f"all chunks must have the columns {sorted(columns)}, got {sorted(found)}"
                    )
                columns = found
                held.append(chunk)
                size += int(_sizes(chunk)[-1])
                if size > self.shard_bytes:
                    held = self._write_shards(held, whole=False)
                    size = sum(int(_sizes(one)[-1]) for one in held)
            if held:
                self._write_shards(held, whole=True)

    def join(self, folders: Iterable[Path]) -> None:
        """Write the lists of several stores in order; their shards move into this store's folder.

        Args:
            folders: of the stores; they may be made on demand.

        Raises:
            ValueError: there is no store, or one is damaged.
            OSError: a file cannot be moved or written.
        """
        with self._writing():
            for folder in folders:
                store = Store(folder)
                for number, entry in enumerate(store.entries):
                    path = self._next_path()
                    os.replace(folder / entry.name, path)
                    first, end = store.first_list[number : number + 2]
                    lengths = np.diff(store.offsets[first : end + 1])
                    self._add(replace(entry, name=path.name), lengths, *store.lists[number])

    def _write_shards(self, held: list[ListDataset], whole: bool) -> list[ListDataset]:
        """Write shards of the lists in memory, and return the rest; the last list may continue.

        Where a shard ends depends only on the lists, not on the chunks.
        """
        data = join_lists(held, across=True)
        held.clear()
        while len(data):
            ends = _sizes(data)
            count = len(data)
            if ends[-1] > self.shard_bytes:
                fitting = int(np.searchsorted(ends, self.shard_bytes, side="right"))
                count = min(max(1, fitting), len(data) - (not whole))
            elif not whole:
                count = 0
            if not count:
                break
            shard = data.between(0, count)
            entry = write_shard(shard, self._next_path())
            qids = pa.array(shard.qids, pa.large_string())
            relevant = shard.relevant() if shard.has_labels else [None] * len(shard)
            self._add(entry, shard.lengths, qids, pa.array(relevant, pa.bool_()))
            data = data.between(count, len(data))
        # a copy, since a slice would hold all that is written
        return [data.select(range(len(data)))] if len(data) else []

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Open the files; at the end, write the manifest and remove files that it does not name."""
        _remove_others(self.folder)  # of a writer that was killed
        self._key = secrets.token_hex(4)
        self._entries: list[ShardEntry] = []
        self._documents = 0
        paths = {"offsets": self._path("offsets.bin"), "lists": self._path("lists.arrow")}
        files = ExitStack()
        try:
            self._offsets = files.enter_context(durable_write(paths["offsets"]))
            self._offsets.write(np.zeros(1, OFFSETS).tobytes())
            lists = files.enter_context(durable_write(paths["lists"]))
            self._lists = files.enter_context(pa.ipc.new_file(lists, LISTS))
            yield
            files.close()
            if not self._entries:
                raise ValueError("at least one list is needed, got none")
            named = {
                key: {"name": path.name, "checksum": file_checksum(path)}
                for key, path in paths.items()
            }
            write_manifest(self.folder, {**self._header, "files": named}, self._entries)
        finally:
            with suppress(OSError):  # a second error must not hide the first
                files.close()
            _remove_others(self.folder)

    def _add(self, entry: ShardEntry, lengths: np.ndarray, qids: pa.Array, relevant: Any) -> None:
        """Add the lists of a written shard."""
        self._offsets.write((self._documents + np.cumsum(lengths)).astype(OFFSETS).tobytes())
        self._lists.write_batch(pa.record_batch([qids, relevant], schema=LISTS))
        self._documents += entry.documents
        self._entries.append(entry)

    def _next_path(self) -> Path:
        """Return the path of the next shard."""
        return self._path(f"{len(self._entries):06d}.arrow")

    def _path(self, end: str) -> Path:
        return self.folder / f"{self._key}-{end}"


def _remove_others(folder: Path) -> None:
    """Remove store files that the manifest of the folder does not name."""
    remove_leftovers(folder)
    kept: set[str] = set()
    with suppress(ValueError):
        kept = Store(folder).names
    for path in folder.iterdir():
        if path.name not in kept and FILES.fullmatch(path.name):
            with suppress(OSError):
                path.unlink()
    shutil.rmtree(folder / TEMPORARY, ignore_errors=True)


def _sizes(data: ListDataset) -> np.ndarray:
    """The approximate size in bytes of the lists up to each one."""
    return data.offsets[1:] * (4 * data.num_features + 16) + 32 * np.arange(1, len(data) + 1)
