"""Shards: some lists of a store in one Arrow IPC file, read by mapping it into memory.

A shard is one record batch with one row per list: `qid` large_string, and lists with 64-bit offsets
of float32 `labels`, `weights` and `groups`, int64 `positions`, large_string `doc_ids`, and
fixed-size lists of float32 `features` and int32 `categories`: those that the data has. Its buffers
are the flat arrays of `ListDataset`, uncompressed, so that reading copies nothing. A shard holds
only numbers and strings, and reading it runs no code from it: any other schema, also with Arrow's
extension types, is an error.
"""

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.datasets.checksums import DamagedError, file_checksum
from ltr.datasets.lists import ListDataset
from ltr.files import atomic_write

_WIDE = {"features": np.float32, "categories": np.int32}
_NARROW = {
    "labels": np.float32,
    "weights": np.float32,
    "positions": np.int64,
    "groups": np.float32,
}
_LEAST = {"labels": 0, "weights": 0, "positions": 1, "groups": -np.inf, "categories": 0}


@dataclass(frozen=True)
class ShardEntry:
    """What the manifest of a store says of a shard.

    Attributes:
        name: of the file.
        lists: how many there are.
        documents: how many they have together.
        widths: the numbers of a document in each column, such as {"features": 136, "labels": 1}.
        longest: the length of the longest list.
        without_relevant: lists without a document of label > 0; None without labels.
        of_one: lists of one document.
        bytes: the size of the file.
        checksum: see `file_checksum`.
    """

    name: str
    lists: int
    documents: int
    widths: dict[str, int]
    longest: int
    without_relevant: int | None
    of_one: int
    bytes: int
    checksum: str


@dataclass(frozen=True)
class Shard:
    """The arrays of a shard, mapped.

    Attributes:
        offsets: int64 (lists + 1,).
        qids: one a list.
        columns: by their names, (documents,) or (documents, width).
        doc_ids: one a document, or None.
    """

    offsets: np.ndarray
    qids: Any
    columns: dict[str, np.ndarray]
    doc_ids: Any


def write_shard(data: ListDataset, folder: Path, name: str) -> ShardEntry:
    """Write lists as one shard, atomically.

    Raises:
        OSError: the file cannot be written.
    """
    arrays = {"features": data.features, **data.columns()}
    arrays.pop("rows", None)
    widths = {key: array.shape[1] if array.ndim == 2 else 1 for key, array in arrays.items()}
    if data.doc_ids is not None:
        widths["doc_ids"] = 1
    widths = {key: width for key, width in widths.items() if width}
    offsets = pa.array(data.offsets, pa.int64())
    columns: list[Any] = [pa.array(data.qids, pa.large_string())]
    for key, width in widths.items():
        values: Any = data.doc_ids
        if key == "doc_ids":
            values = values.cast(pa.large_string())
        else:
            kind = {**_WIDE, **_NARROW}[key]
            values = pa.array(np.ascontiguousarray(arrays[key], dtype=kind).reshape(-1))
        if key in _WIDE:
            values = pa.FixedSizeListArray.from_arrays(values, width)
        columns.append(pa.LargeListArray.from_arrays(offsets, values))
    batch = pa.record_batch(columns, schema=_schema(widths))
    with atomic_write(folder / name) as partial:
        with partial.open("wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        summary = data.summary()
        return ShardEntry(
            name=name,
            lists=len(data),
            documents=len(data.features),
            widths=widths,
            longest=summary.longest,
            without_relevant=summary.without_relevant,
            of_one=summary.of_one,
            bytes=partial.stat().st_size,
            checksum=file_checksum(partial),
        )


def file_in(folder: Path, name: Any) -> Path:
    """Return the path of a file of a store.

    Raises:
        DamagedError: the name is not that of a regular file in the folder, such as a device or a
            file elsewhere.
    """
    if not isinstance(name, str) or name in ("", ".", "..") or {*"/\\\0"} & {*name}:
        raise DamagedError(f"{folder}: the manifest is damaged: no file may be called {name!r}")
    path = folder / name
    try:
        kind = path.stat().st_mode
    except OSError as error:
        raise DamagedError(f"{path}: the file cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(kind):
        raise DamagedError(f"{path}: the store is damaged: this must be a regular file")
    return path


def check_entry(folder: Path, entry: ShardEntry) -> None:
    """Compare the numbers of an entry with the size of the shard's file.

    Memory for batches is reserved by these numbers, before a shard is opened.

    Raises:
        DamagedError: there is no such file, its size is another one, or it is too small for what
            the entry says.
    """
    path = file_in(folder, entry.name)
    lists = [entry.lists, entry.longest, entry.of_one, entry.without_relevant or 0]
    counts = [*lists, entry.documents, entry.bytes, *entry.widths.values()]
    if any(type(count) is not int or count < 0 for count in counts):
        raise DamagedError(f"{path}: the shard is damaged: its counts must be whole numbers >= 0")
    if path.stat().st_size != entry.bytes:
        raise DamagedError(f"{path}: the shard is damaged: its size is not the manifest's")
    least = 4 * entry.documents * sum(entry.widths.values())
    if max(lists) > entry.documents or least > entry.bytes:
        raise DamagedError(
            f"{path}: the shard is damaged: it is too small for the manifest's {entry.documents} "
            f"documents and {entry.lists} lists"
        )


def check_shard(folder: Path, entry: ShardEntry) -> None:
    """Compare the size and the checksum of a shard with its entry.

    Raises:
        DamagedError: they differ, or the file is missing.
    """
    path = file_in(folder, entry.name)
    try:
        size, found = path.stat().st_size, file_checksum(path)
    except OSError as error:
        raise DamagedError(f"{path}: the shard cannot be read: {error.strerror}") from None
    if size != entry.bytes or found != entry.checksum:
        raise DamagedError(f"{path}: the shard is damaged: its checksum is not the manifest's")


def map_shard(folder: Path, entry: ShardEntry, *, known: bool = False) -> Shard:
    """Map a shard into memory.

    Args:
        folder: of the store.
        entry: what the shard must hold.
        known: whether its values have been checked before.

    Raises:
        DamagedError: it is not a shard, or not that of the entry.
    """
    try:
        with pa.ipc.open_file(pa.memory_map(str(file_in(folder, entry.name)))) as reader:
            _check_schema(reader.schema, entry.widths)
            if reader.num_record_batches != 1:
                raise DamagedError(f"1 record batch wanted, {reader.num_record_batches} found")
            batch = reader.get_batch(0)
        if not known:
            batch.validate(full=True)  # checks offsets and strings, and the number of the features
        return _from_batch(batch, entry, known)
    except (pa.ArrowException, ValueError, KeyError, OSError, OverflowError) as error:
        message = " ".join(str(error).split())
        raise DamagedError(f"{folder / entry.name}: the shard is damaged: {message}") from None


def _schema(widths: dict[str, int]) -> pa.Schema:
    fields = [("qid", pa.large_string())]
    for key, width in widths.items():
        kind: pa.DataType = pa.large_string()
        if key in _NARROW:
            kind = pa.from_numpy_dtype(_NARROW[key])
        elif key in _WIDE:
            kind = pa.list_(pa.from_numpy_dtype(_WIDE[key]), width)
        fields.append((key, pa.large_list(kind)))
    return pa.schema(fields)


def _check_schema(schema: pa.Schema, widths: dict[str, int]) -> None:
    wanted = _schema(widths)
    # a field with metadata could be one of Arrow's extension types
    if not schema.equals(wanted) or any(field.metadata for field in schema):
        fields = ", ".join(f"{field.name}: {field.type}" for field in wanted)
        raise DamagedError(f"the columns must be {fields}")


def _from_batch(batch: pa.RecordBatch, entry: ShardEntry, known: bool) -> Shard:
    names: Any = batch.column("qid")
    lists: dict[str, Any] = {key: batch.column(key) for key in entry.widths}
    offsets = next(iter(lists.values())).offsets.to_numpy() if len(batch) else np.zeros(1, np.int64)
    if len(names) != entry.lists or offsets[0] != 0 or offsets[-1] != entry.documents:
        raise DamagedError("the lists are not those of the manifest")
    columns = {}
    for key, width in entry.widths.items():
        values: Any = lists[key].values
        if key in _WIDE:
            values = values.values
        if key != "doc_ids":
            flat = values.to_numpy(zero_copy_only=True)
            columns[key] = flat.reshape(-1, width) if key in _WIDE else flat
    if not known:
        if (np.diff(offsets) < 1).any() or not all(
            np.array_equal(one.offsets.to_numpy(), offsets) for one in lists.values()
        ):
            raise DamagedError("the columns' offsets must rise and be the same")
        nested = [*lists.values(), *(one.values for one in lists.values())]
        if any(array.null_count for array in (names, *nested)):
            raise DamagedError("no value must be null")
        for key, least in _LEAST.items():
            found = columns.get(key, np.ones(1))
            if not (np.isfinite(found) & (found >= least)).all():
                raise DamagedError(f"the {key} must be finite and >= {least}")
    doc_ids = lists["doc_ids"].values if "doc_ids" in lists else None
    return Shard(offsets, names, columns, doc_ids)
