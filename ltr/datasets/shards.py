"""Shards: the documents of some lists of a store in one memory-mapped Arrow IPC file.

A shard is one record batch with one row per document. Its columns may be float32 `labels`,
`weight` and `protected`, int64 `position`, large_string `doc_id`, and fixed-size lists of float32
`features` and int32 `categories`. It has those that exist in the data. Its buffers are the flat
arrays of `ListDataset`, uncompressed, so reading copies nothing. A shard holds only numbers and
strings, and reading it runs no code from it. Any other schema is an error, even with Arrow's
extension types.
"""

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.datasets.checksums import DamagedError, file_checksum
from ltr.datasets.column_steps import width_of
from ltr.datasets.lists import ListDataset
from ltr.files import durable_write

_TYPES = {
    "features": np.float32,
    "categories": np.int32,
    "labels": np.float32,
    "weight": np.float32,
    "position": np.int64,
    "protected": np.float32,
}
WIDE = ("features", "categories")
"""The columns with several numbers a document."""

_LEAST = {"labels": 0, "weight": 0, "position": 1, "protected": -np.inf, "categories": 0}


@dataclass(frozen=True)
class ShardEntry:
    """What the manifest of a store records about a shard.

    Attributes:
        name: the name of the file.
        lists: how many there are.
        documents: how many they have together.
        widths: how many numbers a document has in each column, such as {"features": 136, "labels":
            1}.
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
        doc_id: one per document, or None.
    """

    columns: dict[str, np.ndarray]
    doc_id: Any

    def lists(self, offsets: np.ndarray, qids: Sequence[str]) -> ListDataset:
        """Return the documents as lists; see `ListDataset`."""
        columns = {**self.columns}
        if "categories" in columns:
            columns["categories"] = columns["categories"].astype(np.int64, copy=False)
        return ListDataset(
            columns.pop("features", np.empty((int(offsets[-1]), 0), np.float32)),
            columns.pop("labels", None),
            offsets,
            qids,
            None if self.doc_id is None else self.doc_id.cast(pa.string()),
            **columns,
        )


def write_shard(data: ListDataset, path: Path) -> ShardEntry:
    """Write lists as one shard.

    Raises:
        OSError: the file cannot be written.
    """
    batch = to_batch(data)
    with durable_write(path) as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    return ShardEntry(
        name=path.name,
        lists=len(data),
        documents=len(data.features),
        widths={field.name: width_of(field.type) for field in batch.schema},
        bytes=path.stat().st_size,
        checksum=file_checksum(path),
    )


def to_batch(data: ListDataset) -> pa.RecordBatch:
    """Return the documents of lists as the rows of a shard."""
    columns: dict[str, Any] = {}
    for key, array in {"features": data.features, **data.columns()}.items():
        if key == "rows" or 0 in array.shape[1:]:
            continue
        values = pa.array(np.ascontiguousarray(array, dtype=_TYPES[key]).reshape(-1))
        wide = key in WIDE
        columns[key] = pa.FixedSizeListArray.from_arrays(values, array.shape[1]) if wide else values
    if data.doc_id is not None:
        columns["doc_id"] = data.doc_id.cast(pa.large_string())
    return pa.RecordBatch.from_pydict(columns)


def file_in(folder: Path, name: Any) -> Path:
    """Return the path of a file of a store.

    Raises:
        DamagedError: the name does not belong to a regular file in the folder, but for example to a
            device or a file elsewhere.
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
    """Check an entry's numbers against the size of the shard's file.

    These numbers decide how much memory is reserved for batches, before a shard is opened.

    Raises:
        DamagedError: the file is missing, its size differs, or it is too small for the numbers of
            the entry.
    """
    path = file_in(folder, entry.name)
    counts = [entry.lists, entry.documents, entry.bytes, *entry.widths.values()]
    if any(type(count) is not int or count < 1 for count in counts):
        raise DamagedError(f"{path}: the shard is damaged: its counts must be whole numbers >= 1")
    if path.stat().st_size != entry.bytes:
        raise DamagedError(f"{path}: the shard is damaged: its size differs from the manifest")
    least = 4 * entry.documents * sum(entry.widths.values())
    if entry.lists > entry.documents or least > entry.bytes:
        raise DamagedError(
            f"{path}: the shard is damaged: it is too small for the manifest's {entry.documents} "
            f"documents and {entry.lists} lists"
        )


def check_file(path: Path, checksum: str) -> None:
    """Compare the checksum of a file with that of the manifest.

    Raises:
        DamagedError: they differ, or the file cannot be read.
    """
    try:
        found = file_checksum(path)
    except OSError as error:
        raise DamagedError(f"{path}: the file cannot be read: {error.strerror}") from None
    if found != checksum:
        raise DamagedError(f"{path}: the file is damaged: its checksum differs from the manifest")


def map_shard(folder: Path, entry: ShardEntry, *, known: bool = False) -> Shard:
    """Map a shard into memory.

    Args:
        folder: of the store.
        entry: what the shard must hold.
        known: whether its values have been checked before.

    Raises:
        DamagedError: it is not a shard, or not the shard of the entry.
    """
    try:
        with pa.ipc.open_file(pa.memory_map(str(file_in(folder, entry.name)))) as reader:
            _check_schema(reader.schema, entry.widths)
            if reader.num_record_batches != 1:
                raise DamagedError(
                    f"a shard must have one record batch, got {reader.num_record_batches}"
                )
            batch = reader.get_batch(0)
        if len(batch) != entry.documents:
            raise DamagedError("the documents differ from the manifest")
        if not known:
            batch.validate(full=True)  # checks strings, and the number of the features
        return from_batch(batch, known=known)
    except (pa.ArrowException, ValueError, KeyError, OSError, OverflowError) as error:
        message = " ".join(str(error).split())
        raise DamagedError(f"{folder / entry.name}: the shard is damaged: {message}") from None


def _schema(widths: dict[str, int]) -> pa.Schema:
    fields: list[tuple[str, pa.DataType]] = []
    for key, width in widths.items():
        kind = pa.large_string() if key == "doc_id" else pa.from_numpy_dtype(_TYPES[key])
        fields.append((key, pa.list_(kind, width) if key in WIDE else kind))
    return pa.schema(fields)


def _check_schema(schema: pa.Schema, widths: dict[str, int]) -> None:
    wanted = _schema(widths)
    # a field with metadata could be one of Arrow's extension types
    if not schema.equals(wanted) or any(field.metadata for field in schema):
        fields = ", ".join(f"{field.name}: {field.type}" for field in wanted)
        raise DamagedError(f"the columns must be {fields}")


def from_batch(batch: pa.RecordBatch, *, known: bool = True) -> Shard:
    """Return the arrays of the rows of a shard, without copying them.

    Args:
        batch: the result of `to_batch`; other columns are ignored.
        known: whether the values have been checked before.

    Raises:
        DamagedError: a value is invalid.
    """
    columns: dict[str, np.ndarray] = {}
    doc_id = None
    for key, column in zip(batch.schema.names, batch.columns, strict=True):
        values: Any = column.values if key in WIDE else column  # pyright: ignore[reportAttributeAccessIssue]
        if not known and (column.null_count or values.null_count):
            raise DamagedError("values must not be null")
        if key == "doc_id":
            doc_id = column
        if key not in _TYPES:
            continue
        flat = values.to_numpy(zero_copy_only=True)
        columns[key] = flat.reshape(-1, width_of(column.type)) if key in WIDE else flat
        least = _LEAST.get(key)
        if not known and least is not None and not (np.isfinite(flat) & (flat >= least)).all():
            raise DamagedError(f"the {key} must be finite and >= {least}")
    return Shard(columns, doc_id)
