"""The list store: a folder with shards of whole lists, and a manifest.

The manifest, `manifest.json`, is written last. It has the schema, the source of the lists, and the
counts and the checksum of each shard. `KEY-offsets.bin` has the position of each list in int64, and
`KEY-lists.arrow` has the qids. A folder without a manifest is not a store. Opening a store reads
the manifest and maps the offsets. A shard is mapped when one of its lists is first requested; its
checksum is then compared.
"""

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.datasets.checksums import DamagedError
from ltr.datasets.schema import Schema
from ltr.datasets.shards import Shard, ShardEntry, check_entry, check_file, file_in, map_shard
from ltr.files import atomic_write, check_path

FORMAT_VERSION = 5
MANIFEST = "manifest.json"
LOCK = ".lock"
"""The file that the writers of a store lock; it stays."""

LISTS = pa.schema([("qid", pa.large_string()), ("relevant", pa.bool_())])
OFFSETS = np.dtype("<i8")
FILES = re.compile(
    r"[0-9a-f]{8}-(?:[0-9]{6,}\.arrow|offsets\.(?:bin|npy)|lists\.arrow|journal\.jsonl)"
)
"""The names of a store's files, those of earlier versions among them, beside the manifest."""

_CHECKED = 1 << 20  # offsets that are compared at a time
_OPEN = 256  # shards that are mapped at a time, since each takes a file descriptor


class StaleError(ValueError):
    """A store is undamaged, but of another version or made from another source."""


class Store:
    """The files of a store.

    Most users call `open_store`, which returns the lists.

    Args:
        path: the folder.

    Attributes:
        path: the folder.
        source: what the lists were made from.
        schema: the schema of the source table; None for LETOR text.
        entries: one for each shard.
        offsets: int64 (lists + 1,), mapped: the first document of each list.
        first_list: int64 (shards + 1,), the first list of each shard.
        first_document: int64 (shards + 1,), the first document of each shard.
        widths: the largest width of each column in any shard.

    Raises:
        ValueError: the folder is not a store, is of another version, or is damaged.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = check_path("path", path)
        manifest = _read_manifest(self.path)
        try:
            self.source: Any = manifest["source"]
            schema = manifest["schema"]
            self.schema = None if schema is None else Schema.from_dict(schema)
            self.entries = [ShardEntry(**entry) for entry in manifest["shards"]]
            self._files: dict[str, Any] = manifest["files"]
            for entry in self.entries:
                check_entry(self.path, entry)
            offsets = self._file("offsets")
        except (KeyError, TypeError, AttributeError) as error:
            raise DamagedError(f"{self.path}: the manifest is damaged: {error!r}") from None
        lists = [entry.lists for entry in self.entries]
        documents = [entry.documents for entry in self.entries]
        self.first_list = np.r_[0, np.cumsum(lists, dtype=np.int64)]
        self.first_document = np.r_[0, np.cumsum(documents, dtype=np.int64)]
        self.widths: dict[str, int] = {}
        for entry in self.entries:
            for key, width in entry.widths.items():
                self.widths[key] = max(width, self.widths.get(key, 0))
        if offsets.stat().st_size != OFFSETS.itemsize * (self.first_list[-1] + 1):
            raise DamagedError(f"{offsets}: the offsets differ from the manifest")
        self.offsets: np.ndarray = np.memmap(offsets, OFFSETS, "r").view(np.ndarray)
        starts = range(0, len(self.offsets), _CHECKED)
        chunks = (self.offsets[start : start + _CHECKED + 1] for start in starts)
        ascending = all((np.diff(chunk) > 0).all() for chunk in chunks)
        if not ascending or (self.offsets[self.first_list] != self.first_document).any():
            raise DamagedError(f"{offsets}: the offsets must ascend and match the shards")
        self._mapped: OrderedDict[int, Shard] = OrderedDict()
        self._known: set[int] = set()

    def shard(self, number: int) -> Shard:
        """Map a shard; the first time, compare its checksum and check its values.

        Raises:
            ValueError: it is damaged.
        """
        if number in self._mapped:
            self._mapped.move_to_end(number)
            return self._mapped[number]
        entry = self.entries[number]
        known = number in self._known
        if not known:
            check_file(file_in(self.path, entry.name), entry.checksum)
        shard = map_shard(self.path, entry, known=known)
        self._known.add(number)
        self._mapped[number] = shard
        if len(self._mapped) > _OPEN:
            self._mapped.popitem(last=False)
        return shard

    @cached_property
    def lists(self) -> list[tuple[pa.Array, pa.Array]]:
        """For each shard, `qid` and `relevant` (null without labels) of its lists, mapped.

        Raises:
            ValueError: the file is damaged.
        """
        path = self._file("lists")
        try:
            with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
                if not reader.schema.equals(LISTS):
                    raise DamagedError(f"{path}: the columns differ from the format")
                batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            for batch in batches:
                batch.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise DamagedError(f"{path}: the lists are damaged: {error}") from None
        found = [(batch.column("qid"), batch.column("relevant")) for batch in batches]
        counts = [len(batch) for batch in batches]
        if counts != np.diff(self.first_list).tolist() or any(qid.null_count for qid, _ in found):
            raise DamagedError(f"{path}: the lists differ from the manifest")
        return found

    @property
    def qids(self) -> "Qids":
        """The qids of all lists, mapped.

        Raises:
            ValueError: the file is damaged.
        """
        return Qids(pa.chunked_array([qid for qid, _ in self.lists], LISTS.field("qid").type))

    def relevant(self, lists: np.ndarray | None = None) -> np.ndarray:
        """Return which of the lists have a document of label > 0: bool (lists,).

        Raises:
            ValueError: the file is damaged.
        """
        parts = [relevant.to_numpy(zero_copy_only=False) for _, relevant in self.lists]
        found = np.concatenate(parts).astype(bool)
        return found if lists is None else found[lists]

    @property
    def names(self) -> set[str]:
        """The names of the files, except the manifest."""
        return {file["name"] for file in self._files.values()} | {one.name for one in self.entries}

    def check(self) -> None:
        """Compare the checksums of all shards; this reads the whole store.

        Raises:
            DamagedError: a shard is damaged; the message names it.
        """
        for number in range(len(self.entries)):
            self.shard(number)
        len(self.qids)

    def _file(self, key: str) -> Path:
        path = file_in(self.path, self._files[key]["name"])
        check_file(path, self._files[key]["checksum"])
        return path

    def __reduce__(self) -> tuple[type["Store"], tuple[Path]]:
        return Store, (self.path,)  # another process maps the files itself


class Qids(Sequence[str]):
    """The qids of a store's lists, read from the disk on demand."""

    def __init__(self, column: pa.ChunkedArray, lists: np.ndarray | None = None) -> None:
        self._column = column
        self._lists = lists

    def __len__(self) -> int:
        return len(self._column) if self._lists is None else len(self._lists)

    def __getitem__(self, index: Any) -> Any:
        positions = range(len(self))[index]
        if isinstance(positions, range):
            return [self[position] for position in positions]
        return self._column[
            positions if self._lists is None else int(self._lists[positions])
        ].as_py()

    def __iter__(self) -> Iterator[str]:
        if self._lists is not None:
            yield from (self[position] for position in range(len(self)))
            return
        for start in range(0, len(self), 1 << 12):
            yield from self._column.slice(start, 1 << 12).to_pylist()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        more = ["..."] if len(self) > 6 else []
        return f"Qids([{', '.join([*map(repr, self[:6]), *more])}])"

    def take(self, lists: np.ndarray) -> "Qids":
        """Return the qids of some lists of the store."""
        return Qids(self._column, lists)


def is_store(path: Any) -> bool:
    """Return whether a path is a folder with the manifest of a store.

    >>> is_store("no/such/folder")
    False
    """
    return isinstance(path, str | PathLike) and (Path(path).expanduser() / MANIFEST).is_file()


def write_manifest(folder: Path, content: dict[str, Any], entries: list[ShardEntry]) -> None:
    """Write the manifest of a store, atomically."""
    body = {"format": "ltr store", "version": FORMAT_VERSION, **content}
    body["shards"] = [asdict(entry) for entry in entries]
    text = json.dumps({**body, "checksum": _digest(body)}, indent=1)
    with atomic_write(folder / MANIFEST) as partial:
        partial.write_text(text, encoding="utf-8")


def _read_manifest(folder: Path) -> dict[str, Any]:
    if not (folder / MANIFEST).is_file():
        unfinished = (folder / LOCK).is_file()
        reason = "its conversion has not ended" if unfinished else f"no {MANIFEST}"
        raise ValueError(f"path must be a list store, got {folder} ({reason})")
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedError(f"{folder}: the manifest is damaged: {error}") from None
    if not isinstance(found, dict) or found.get("format") != "ltr store":
        raise DamagedError(f"{folder}: the manifest is damaged: it does not describe a list store")
    if found.get("version") != FORMAT_VERSION:
        version = str(found.get("version"))[:20]
        raise StaleError(
            f"path must be a list store of version {FORMAT_VERSION}, got version {version} in "
            f"{folder}: convert again"
        )
    checksum = found.pop("checksum", None)
    if checksum != _digest(found):
        raise DamagedError(f"{folder}: the manifest is damaged: its checksum is wrong")
    return found


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
