"""Write a store as its lists come, so that a killed writer can go on.

Each shard is written under its final name when it is whole, and then a line of the journal says so.
The names begin with a key, a hash of what the lists are made from: a store that is made again keeps
its old shards until the new manifest is there. A writer holds a lock: a second one of the same
lists waits, and then finds them written.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from filelock import FileLock

from ltr.datasets.checksums import file_checksum
from ltr.datasets.lists import ListDataset, join_lists
from ltr.datasets.schema import Schema
from ltr.datasets.shards import Shard, ShardEntry, check_shard, map_shard, write_shard
from ltr.datasets.store import LISTS, PARTS, Store, write_manifest
from ltr.files import atomic_write, check_path, name_full_disk, remove_leftovers
from ltr.shapes import check_whole

SHARD_BYTES = 1 << 26
"""The bytes of a shard, about."""

_OURS = re.compile(r"[0-9a-f]{8}-(?:[0-9]{6}\.arrow|offsets\.npy|lists\.arrow|journal\.jsonl)")

Names = Callable[[], Iterator[str]]
"""Gives the qids of the lists that are written already."""

Pieces = Callable[[int, Names], Iterable[ListDataset]]
"""Gives lists piece by piece, without the first so many documents, whose qids come too."""


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
        lists: a data set, or pieces of one that come one after another. The first list of a piece
            goes on with the last one of the piece before where both have the same qid. All pieces
            have the same columns; only document ids may be left out.
        path: the folder, made if it is missing. A store that is there is replaced, by the manifest
            in one step.
        schema: of the table that the lists come from; it is kept.
        source: what the lists were made from, plain data; it is kept.
        shard_bytes: the bytes of a shard, about.

    Raises:
        ValueError: there is no list, the columns of the pieces differ, `path` is a file, or an
            argument is of another type.
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
    parts = [lists] if isinstance(lists, ListDataset) else lists
    if not isinstance(parts, Iterable):
        raise _no_lists(lists)
    with locked(folder):
        for journal in folder.glob("*-journal.jsonl"):
            if _OURS.fullmatch(journal.name):
                journal.unlink()  # what was begun before is of other lists
        StoreWriter(folder, source, schema, shard_bytes).write(lambda *_: map(_check_piece, parts))


def locked(folder: Path) -> FileLock:
    """Make a folder, and return the lock of its writers.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / ".lock")


class StoreWriter:
    """Writes the shards and the manifest of a store; its folder must be locked.

    Args:
        folder: of the store.
        source: what the lists are made from, plain data.
        schema: of the table that they come from.
        shard_bytes: the bytes of a shard, about.
        order: a word for the order of the lists, where the same source may have several.
    """

    def __init__(
        self,
        folder: Path,
        source: Any,
        schema: Schema | None,
        shard_bytes: int,
        order: str = "",
    ) -> None:
        self.folder = folder
        self.shard_bytes = shard_bytes
        self.header = {"source": source, "schema": None if schema is None else schema.to_dict()}
        whole = json.dumps([self.header, shard_bytes, order], sort_keys=True)
        self.key = hashlib.sha256(whole.encode()).hexdigest()[:8]
        self.journal = folder / f"{self.key}-journal.jsonl"
        self.entries: list[ShardEntry] = []
        self._parts: list[ListDataset] = []
        self._held = 0

    def is_written(self) -> bool:
        """Whether the store is there, made from the same."""
        with suppress(ValueError):
            if Store(self.folder).source == self.header["source"]:
                self._tidy()  # for a writer that was killed when all was written
                return True
        return False

    def write(self, pieces: Pieces) -> None:
        """Write the lists, from where a killed writer stopped.

        Raises:
            ValueError: there is no list, or the columns of the pieces differ.
            OSError: a file cannot be written.
        """
        remove_leftovers(self.folder)
        self._resume()
        done = sum(entry.documents for entry in self.entries)
        found = pieces(done, self._names)
        try:
            for piece in found:
                self.add(piece)
        finally:  # so that temporary files are gone
            if isinstance(found, Generator):
                found.close()
        self._flush(whole=True)
        if not self.entries:
            raise ValueError("there must be a list at least, got none")
        self._finish()

    def join(self, folders: Sequence[Path]) -> None:
        """Write the lists of stores, one after another; their shards move into this one's folder.

        Where a writer was killed, the same call goes on. The key must tell the same stores.

        Raises:
            ValueError: there is no store, or one is damaged.
            OSError: a file cannot be moved or written.
        """
        remove_leftovers(self.folder)
        for folder in folders:
            for entry in Store(folder).entries:
                name = f"{self.key}-{len(self.entries):06d}.arrow"
                with suppress(FileNotFoundError):  # the writer that was killed had moved it
                    os.replace(folder / entry.name, self.folder / name)
                self.entries.append(replace(entry, name=name))
        if not self.entries:
            raise ValueError("there must be a list at least, got none")
        self._finish()

    def add(self, piece: ListDataset) -> None:
        """Add documents; a shard is written when there are enough."""
        keys = {*piece.columns()} - {"rows"}
        known = {*self._parts[0].columns()} - {"rows"} if self._parts else self._columns()
        if known is not None and keys != known:
            raise ValueError(
                f"all pieces must have the columns {sorted(known)}, got {sorted(keys)}"
            )
        self._parts.append(piece)
        self._held += int(_sizes(piece)[-1])
        if self._held > self.shard_bytes:
            self._flush(whole=False)

    def _columns(self) -> set[str] | None:
        """The columns of the shards so far."""
        if not self.entries:
            return None
        return {*self.entries[0].widths} - {"features", "doc_ids"}

    def _flush(self, whole: bool) -> None:
        """Write shards of what is held; the last list stays if it may go on.

        Where a shard ends depends on the lists alone, not on the pieces they come in.
        """
        if not self._parts:
            return
        data = join_lists(self._parts, across=True)
        self._parts, self._held = [], 0
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
            self._write(_slice(data, 0, count))
            data = _slice(data, count, len(data))
        if len(data):  # a copy, since a slice would hold all that is written
            rest = data.select(range(len(data)))
            self._parts, self._held = [rest], int(_sizes(rest)[-1])

    def _write(self, data: ListDataset) -> None:
        entry = write_shard(data, self.folder, f"{self.key}-{len(self.entries):06d}.arrow")
        self.entries.append(entry)
        with name_full_disk(self.journal), self.journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(entry)) + "\n")

    def _resume(self) -> None:
        """Take over the shards that a killed writer finished."""
        lines: list[str] = []
        with suppress(FileNotFoundError):
            lines = self.journal.read_text(encoding="utf-8").splitlines()
        for line in lines:
            try:
                entry = ShardEntry(**json.loads(line))
                check_shard(self.folder, entry)
            except (ValueError, TypeError):  # the line or the shard is not whole
                break
            self.entries.append(entry)
        with atomic_write(self.journal) as partial:
            text = "".join(json.dumps(asdict(entry)) + "\n" for entry in self.entries)
            partial.write_text(text, encoding="utf-8")

    def _names(self) -> Iterator[str]:
        """Yield the qids of the shards so far."""
        for entry in self.entries:
            yield from map_shard(self.folder, entry, known=True).qids.to_pylist()

    def _finish(self) -> None:
        """Write the offsets, the lists and the manifest, and remove what is left over."""
        offsets = self.folder / f"{self.key}-offsets.npy"
        lists = self.folder / f"{self.key}-lists.arrow"
        count = sum(entry.lists for entry in self.entries)
        with atomic_write(offsets) as first, atomic_write(lists) as second:
            with first.open("wb") as file, second.open("wb") as names:
                header = {"descr": "<i8", "fortran_order": False, "shape": (count + 1,)}
                np.lib.format.write_array_header_1_0(file, header)
                file.write(np.zeros(1, "<i8").tobytes())
                begin = 0
                with pa.ipc.new_file(names, LISTS) as writer:
                    for entry in self.entries:
                        shard = map_shard(self.folder, entry, known=True)
                        file.write((shard.offsets[1:] + begin).astype("<i8").tobytes())
                        begin += entry.documents
                        columns = [shard.qids, _relevant(shard)]
                        writer.write_batch(pa.record_batch(columns, schema=LISTS))
            files = {
                "offsets": {"name": offsets.name, "checksum": file_checksum(first)},
                "lists": {"name": lists.name, "checksum": file_checksum(second)},
            }
        write_manifest(self.folder, {**self.header, "files": files}, self.entries)
        self._tidy()

    def _tidy(self) -> None:
        """Remove what is left of other stores."""
        kept = Store(self.folder).names
        for path in self.folder.iterdir():
            if path.name not in kept and _OURS.fullmatch(path.name):
                with suppress(OSError):
                    path.unlink()
        shutil.rmtree(self.folder / PARTS, ignore_errors=True)


def _check_piece(piece: ListDataset) -> ListDataset:
    if not isinstance(piece, ListDataset):
        raise _no_lists(piece)
    return piece


def _no_lists(given: Any) -> ValueError:
    return ValueError(f"lists must be a ListDataset or pieces of one, got {given!r}")


def _relevant(shard: Shard) -> pa.Array:
    """Whether each list has a document of label > 0; null without labels."""
    if "labels" not in shard.columns:
        return pa.nulls(len(shard.qids), pa.bool_())
    return pa.array(np.maximum.reduceat(shard.columns["labels"], shard.offsets[:-1]) > 0)


def _sizes(data: ListDataset) -> np.ndarray:
    """The bytes of the lists up to each one, about."""
    return data.offsets[1:] * (4 * data.num_features + 16) + 32 * np.arange(1, len(data) + 1)


def _slice(data: ListDataset, start: int, stop: int) -> ListDataset:
    """Return neighboring lists, without copying them."""
    begin, end = int(data.offsets[start]), int(data.offsets[stop])
    columns = {name: array[begin:end] for name, array in data.columns().items()}
    return ListDataset(
        data.features[begin:end],
        columns.pop("labels", None),
        data.offsets[start : stop + 1] - begin,
        data.qids[start:stop],
        None if data.doc_ids is None else data.doc_ids[begin:end],
        **columns,
    )
