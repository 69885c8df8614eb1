"""Shards: the documents of some lists of a store in one Arrow IPC file, which is mapped to be read.

A shard is one record batch with one row per document: float32 `labels`, `weights` and `groups`,
int64 `positions`, large_string `doc_ids`, and fixed-size lists of float32 `features` and int32
`categories`: those that the data has. Its buffers are the flat arrays of `ListDataset`,
uncompressed, so that reading copies nothing. A shard holds only numbers and strings, and reading it
runs no code from it: any other schema, also with Arrow's extension types, is an error.
"""

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.datasets.checksums import DamagedError, file_checksum
from ltr.datasets.lists import ListDataset
from ltr.files import durable_write

_TYPES = {
    "features": np.float32,
    "categories": np.int32,
    "labels": np.float32,
    "weights": np.float32,
    "positions": np.int64,
    "groups": np.float32,
}
_WIDE = ("features", "categories")
_LEAST = {"labels": 0, "weights": 0, "positions": 1, "groups": -np.inf, "categories": 0}


@dataclass(frozen=True)
class ShardEntry:
    """What the manifest of a store says of a shard.

    Attributes:
        name: of the file.
        lists: how many there are.
        documents: how many they have together.
        widths: the numbers of a document in each column, such as {"features": 136, "labels": 1}.
        bytes: the size of the file.
        checksum: see `file_checksum`.
    """

    name: str
    lists: int
    documents: int
    widths: dict[str, int]
    bytes: int
    checksum: str


@dataclass(frozen=True)
class Shard:
    """The arrays of a shard, mapped.

    Attributes:
        columns: by their names, (documents,) or (documents, width).
        doc_ids: one a document, or None.
    """

    columns: dict[str, np.ndarray]
    doc_ids: Any


def write_shard(data: ListDataset, path: Path) -> ShardEntry:
    """Write lists as one shard.

    Raises:
        OSError: the file cannot be written.
    """
    arrays = {"features": data.features, **data.columns()}
    arrays.pop("rows", None)
    widths = {key: array.shape[1] if array.ndim == 2 else 1 for key, array in arrays.items()}
    widths = {key: width for key, width in widths.items() if width}
    columns: list[Any] = []
    for key, width in widths.items():
        values: Any = pa.array(np.ascontiguousarray(arrays[key], dtype=_TYPES[key]).reshape(-1))
        columns.append(pa.FixedSizeListArray.from_arrays(values, width) if key in _WIDE else values)
    if data.doc_ids is not None:
        widths["doc_ids"] = 1
        columns.append(data.doc_ids.cast(pa.large_string()))
    batch = pa.record_batch(columns, schema=_schema(widths))
    with durable_write(path) as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    return ShardEntry(
        name=path.name,
        lists=len(data),
        documents=len(data.features),
        widths=widths,
        bytes=path.stat().st_size,
        checksum=file_checksum(path),
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
    counts = [entry.lists, entry.documents, entry.bytes, *entry.widths.values()]
    if any(type(count) is not int or count < 1 for count in counts):
        raise DamagedError(f"{path}: the shard is damaged: its counts must be whole numbers >= 1")
    if path.stat().st_size != entry.bytes:
        raise DamagedError(f"{path}: the shard is damaged: its size is not the manifest's")
    least = 4 * entry.documents * sum(entry.widths.values())
    if entry.lists > entry.documents or least > entry.bytes:
        raise DamagedError(
            f"{path}: the shard is damaged: it is too small for the manifest's {entry.documents} "
            f"documents and {entry.lists} lists"
        )


def check_shard(folder: Path, entry: ShardEntry) -> None:
    """Compare the checksum of a shard with its entry.

    Raises:
        DamagedError: they differ, or the file is missing.
    """
    path = file_in(folder, entry.name)
    try:
        found = file_checksum(path)
    except OSError as error:
        raise DamagedError(f"{path}: the shard cannot be read: {error.strerror}") from None
    if found != entry.checksum:
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
        if len(batch) != entry.documents:
            raise DamagedError("the documents are not those of the manifest")
        if not known:
            batch.validate(full=True)  # checks strings, and the number of the features
        return _from_batch(batch, entry, known)
    except (pa.ArrowException, ValueError, KeyError, OSError, OverflowError) as error:
        message = " ".join(str(error).split())
        raise DamagedError(f"{folder / entry.name}: the shard is damaged: {message}") from None


def _schema(widths: dict[str, int]) -> pa.Schema:
    fields: list[tuple[str, pa.DataType]] = []
    for key, width in widths.items():
        kind = pa.large_string() if key == "doc_ids" else pa.from_numpy_dtype(_TYPES[key])
        fields.append((key, pa.list_(kind, width) if key in _WIDE else kind))
    return pa.schema(fields)


def _check_schema(schema: pa.Schema, widths: dict[str, int]) -> None:
    wanted = _schema(widths)
    # a field with metadata could be one of Arrow's extension types
    if not schema.equals(wanted) or any(field.metadata for field in schema):
        fields = ", ".join(f"{field.name}: {field.type}" for field in wanted)
        raise DamagedError(f"the columns must be {fields}")


def _from_batch(batch: pa.RecordBatch, entry: ShardEntry, known: bool) -> Shard:
    columns: dict[str, np.ndarray] = {}
    doc_ids = None
    for key, width in entry.widths.items():
        column: Any = batch.column(key)
        values = column.values if key in _WIDE else column
        if not known and (column.null_count or values.null_count):
            raise DamagedError("no value must be null")
        if key == "doc_ids":
            doc_ids = column
            continue
        flat = values.to_numpy(zero_copy_only=True)
        columns[key] = flat.reshape(-1, width) if key in _WIDE else flat
        least = _LEAST.get(key)
        if not known and least is not None and not (np.isfinite(flat) & (flat >= least)).all():
            raise DamagedError(f"the {key} must be finite and >= {least}")
    return Shard(columns, doc_ids)
