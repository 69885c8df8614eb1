"""The list store: lists in one Arrow IPC file (a shard), read by mapping it into memory.

A shard is one record batch with one row per list: `qid` string, `labels` list<float32>, `features`
list<fixed_size_list<float32, d>>, and `doc_ids` list<string> where the data has them. Its buffers
are the flat arrays of `ListDataset`, so that reading copies nothing. The schema's metadata says
which version of this format it is, and, for a cache, what it was made from.
"""

import hashlib
import json
import logging
import os
import uuid
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pyarrow as pa

from ltr.datasets.letor import find_group_file, read_letor
from ltr.datasets.lists import ListDataset

FORMAT_VERSION = "1"
_READER_VERSION = 1  # raise it where `read_letor` gives other lists for the same text
_SUFFIX = ".ltr-cache.arrow"
_log = logging.getLogger(__name__)


def write_shard(
    data: ListDataset, path: str | PathLike[str], *, source: dict[str, Any] | None = None
) -> None:
    """Write lists as one shard, atomically: a reader sees the old file or the new one.

    Args:
        data: the lists.
        path: the file; what is there is replaced.
        source: what the lists were made from, kept as JSON; `read_shard` can ask for it.

    Raises:
        OSError: if the file cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> data = ListDataset.from_arrays([[1.0], [2.0], [3.0]], labels=[0, 2, 1], qid=[7, 7, 8])
    >>> with TemporaryDirectory() as folder:
    ...     write_shard(data, f"{folder}/lists.arrow")
    ...     read_shard(f"{folder}/lists.arrow").qids
    ['7', '8']
    """
    path = Path(path)
    offsets = pa.array(data.offsets, pa.int32())
    rows = pa.FixedSizeListArray.from_arrays(
        pa.array(np.ascontiguousarray(data.features).reshape(-1)), data.num_features
    )
    columns = {
        "qid": pa.array(data.qids, pa.string()),
        "labels": pa.ListArray.from_arrays(offsets, pa.array(data.labels)),
        "features": pa.ListArray.from_arrays(offsets, rows),
    }
    if data.doc_ids is not None:
        columns["doc_ids"] = pa.ListArray.from_arrays(offsets, data.doc_ids)
    batch = pa.record_batch(columns).replace_schema_metadata(
        {
            "ltr.format_version": FORMAT_VERSION,
            "ltr.num_features": str(data.num_features),
            "ltr.source": json.dumps(source, sort_keys=True),
        }
    )
    # a name of its own for each writer, so that two at once do not meet
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with partial.open("xb") as file:
            with pa.ipc.new_file(file, batch.schema) as writer:
                writer.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_shard(path: str | PathLike[str], *, source: dict[str, Any] | None = None) -> ListDataset:
    """Map a shard into memory.

    Args:
        path: the file.
        source: if given, the shard must have been made from just this.

    Raises:
        ValueError: if the file is missing, no shard, damaged, of another version of the format, or
            made from another source.

    >>> read_shard("no/such.arrow")
    Traceback (most recent call last):
    ...
    ValueError: path must be a list shard, got no/such.arrow (no such file)
    """
    if not Path(path).is_file():
        raise ValueError(f"path must be a list shard, got {path} (no such file)")
    try:
        with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
            metadata = reader.schema.metadata or {}
            version = metadata.get(b"ltr.format_version", b"none").decode()
            if version != FORMAT_VERSION:
                raise ValueError(f"format version {FORMAT_VERSION} wanted, {version} found")
            if source is not None and json.loads(metadata[b"ltr.source"]) != source:
                raise ValueError("made from another source")
            if reader.num_record_batches != 1:
                raise ValueError(f"1 record batch wanted, {reader.num_record_batches} found")
            batch = reader.get_batch(0)
        batch.validate()
        for name in {"qid", "doc_ids"} & set(batch.schema.names):
            batch.column(name).validate(full=True)  # small, and read piece by piece later
        return _from_batch(batch)
    except (pa.ArrowException, ValueError, KeyError, OSError, TypeError, AttributeError) as error:
        raise ValueError(f"path must be a list shard, got {path} ({error})") from error


def _from_batch(batch: pa.RecordBatch) -> ListDataset:
    labels: Any = batch.column("labels")
    rows: Any = batch.column("features").values
    width = rows.type.list_size
    offsets = labels.offsets.to_numpy()
    if (np.diff(offsets) < 1).any() or not batch.column("features").offsets.equals(labels.offsets):
        raise ValueError("offsets do not rise")
    doc_ids: Any = batch.column("doc_ids") if "doc_ids" in batch.schema.names else None
    return ListDataset(
        rows.values.to_numpy(zero_copy_only=True).reshape(-1, width),
        labels.values.to_numpy(zero_copy_only=True),
        offsets.astype(np.int64),
        batch.column("qid").to_pylist(),
        None if doc_ids is None else doc_ids.values,
    )


def load_letor(
    path: str | PathLike[str],
    *,
    num_features: int | None = None,
    sort_by_qid: bool = False,
    group_file: str | PathLike[str] | None = None,
    cache_dir: str | PathLike[str] | None = None,
) -> ListDataset:
    """`read_letor`, but read once: the lists are kept as a shard, and later calls map that.

    The cache is NAME.ltr-cache.arrow beside the source; where that folder is read-only, in the
    user's cache folder. It is made again when the source, its file of group sizes or an argument
    has changed, and when it is damaged or another program's. Where it cannot be written, the lists
    are simply returned.

    Args:
        path: see `read_letor`.
        num_features: see `read_letor`.
        sort_by_qid: see `read_letor`.
        group_file: see `read_letor`.
        cache_dir: the folder for the cache, made if it is missing; None chooses as above.

    Raises:
        ValueError: whatever `read_letor` raises.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.txt")
    ...     _ = file.write_text("2 qid:7 1:0.5")
    ...     _ = load_letor(file)
    ...     sorted(p.name for p in Path(folder).iterdir())
    ['train.txt', 'train.txt.ltr-cache.arrow']
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"path must be a file, got {path}")
    sizes = find_group_file(path, group_file)
    # taken before reading: if the source changes meanwhile, the cache is made again the next time
    source = {
        "reader": _READER_VERSION,
        "num_features": num_features,
        "sort_by_qid": sort_by_qid,
        "file": _stamp(path),
        "group_file": None if sizes is None else [str(sizes.resolve()), *_stamp(sizes)],
        "group_file_given": group_file is not None,
    }
    cache = cache_path(path, cache_dir)
    try:
        return read_shard(cache, source=source)
    except ValueError as error:
        _log.debug("reading %s: %s", path, error)
    data = read_letor(
        path, num_features=num_features, sort_by_qid=sort_by_qid, group_file=group_file
    )
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_shard(data, cache, source=source)
    except OSError as error:
        _log.warning("%s is read anew each time: no cache could be written (%s)", path, error)
    return data


def cache_path(path: str | PathLike[str], cache_dir: str | PathLike[str] | None = None) -> Path:
    """Where `load_letor` keeps the lists of a file.

    Args:
        path: the source.
        cache_dir: the folder for the cache; None takes the source's own, unless it is read-only.

    >>> cache_path("/data/train.txt", "/caches").name
    'train.txt-0b1fc96600.ltr-cache.arrow'
    """
    path = Path(path).absolute()
    if cache_dir is None and _may_write(path.parent):
        return path.with_name(path.name + _SUFFIX)
    folder = platformdirs.user_cache_path("ltr") if cache_dir is None else Path(cache_dir)
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:10]
    return folder / f"{path.name}-{digest}{_SUFFIX}"


def _may_write(folder: Path) -> bool:
    # root may write everywhere, but a folder that nobody is meant to write to is left alone
    return bool(folder.stat().st_mode & 0o222) and os.access(folder, os.W_OK)


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]
