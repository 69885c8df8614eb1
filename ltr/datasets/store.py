"""The list store: lists in one Arrow IPC file (a shard), read by mapping it into memory.

A shard is one record batch with one row per list: `qid` string, `labels` list<float32>, `features`
list<fixed_size_list<float32, d>>, and `doc_ids` list<string> where the data has them. Its buffers
are the flat arrays of `ListDataset`, so that reading copies nothing. The schema's metadata holds
the version of this format, and, for a cache, what the lists were made from. The checksums of the
file's blocks follow after the Arrow file (`ltr.datasets._checksums`); they are compared before
anything else is read. A shard holds only numbers and strings, and reading it runs no code from it:
any other schema, also with Arrow's extension types, is an error.
"""

import hashlib
import json
import logging
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import platformdirs
import pyarrow as pa

from ltr._files import atomic_write, remove_leftovers
from ltr.datasets._checksums import DamagedError, check_sealed, seal
from ltr.datasets.letor import find_group_file, read_letor
from ltr.datasets.lists import ListDataset

FORMAT_VERSION = "2"
_READER_VERSION = 2  # raise it when `read_letor` returns other lists for the same text
_SUFFIX = ".ltr-cache.arrow"
_log = logging.getLogger(__name__)


class _StaleError(ValueError):
    """A shard is sound, but of another version or made from something else."""


def write_shard(
    data: ListDataset, path: str | PathLike[str], *, source: dict[str, Any] | None = None
) -> None:
    """Write lists as one shard, atomically: a reader sees the old file or the new one.

    Args:
        data: the lists.
        path: the file; what is there is replaced.
        source: what the lists were made from, kept as JSON; `read_shard` can check it.

    Raises:
        ValueError: the lists have no labels, or have categories, weights, positions or rows, for
            which a shard has no place.
        OSError: the file cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> data = ListDataset.from_arrays([[1.0], [2.0], [3.0]], labels=[0, 2, 1], qid=[7, 7, 8])
    >>> with TemporaryDirectory() as folder:
    ...     write_shard(data, f"{folder}/lists.arrow")
    ...     read_shard(f"{folder}/lists.arrow").qids
    ['7', '8']
    """
    others = {"categories": data.categories, "weights": data.weights}
    others |= {"positions": data.positions, "rows": data.rows}
    if extra := [name for name, array in others.items() if array is not None]:
        raise ValueError(f"a shard has no place for {', '.join(extra)}: keep the table itself")
    offsets = pa.array(data.offsets, pa.int32())
    rows = pa.FixedSizeListArray.from_arrays(
        pa.array(np.ascontiguousarray(data.features).reshape(-1)), data.num_features
    )
    columns = [
        pa.array(data.qids, pa.string()),
        pa.ListArray.from_arrays(offsets, pa.array(data.labels)),
        pa.ListArray.from_arrays(offsets, rows),
    ]
    if data.doc_ids is not None:
        columns.append(pa.ListArray.from_arrays(offsets, data.doc_ids))
    schema = _schema(data.num_features, data.doc_ids is not None).with_metadata(
        {
            "ltr.format_version": FORMAT_VERSION,
            "ltr.num_features": str(data.num_features),
            "ltr.source": _as_json(source),
        }
    )
    with atomic_write(path) as partial:
        with partial.open("wb") as file, pa.ipc.new_file(file, schema) as writer:
            writer.write_batch(pa.record_batch(columns, schema=schema))
        seal(partial)


def read_shard(path: str | PathLike[str], *, source: dict[str, Any] | None = None) -> ListDataset:
    """Map a shard into memory, after comparing the checksums of all its blocks.

    Args:
        path: the file.
        source: what the shard must have been made from. Default: anything.

    Raises:
        ValueError: the file is missing, damaged, not a shard, of another version of the format, or
            made from another source.

    >>> read_shard("no/such.arrow")
    Traceback (most recent call last):
    ...
    ValueError: path must be a list shard, got no/such.arrow (no such file)
    """
    if not Path(path).is_file():
        raise ValueError(f"path must be a list shard, got {path} (no such file)")
    try:
        return _read(path, source)
    except (_StaleError, DamagedError) as error:
        raise type(error)(f"path must be a list shard, got {path} ({error})") from None


def _read(path: str | PathLike[str], source: dict[str, Any] | None) -> ListDataset:
    try:
        content = pa.memory_map(str(path)).read_buffer()
        content = content.slice(0, check_sealed(content))
        with pa.ipc.open_file(content) as reader:
            metadata = reader.schema.metadata or {}
            version = metadata.get(b"ltr.format_version", b"none")
            if version != FORMAT_VERSION.encode():
                found = version[:20].decode(errors="replace").strip()
                raise _StaleError(f"format version {FORMAT_VERSION} wanted, {found} found")
            if source is not None and metadata.get(b"ltr.source") != _as_json(source).encode():
                raise _StaleError("made from another source")
            _check_schema(reader.schema)
            if reader.num_record_batches != 1:
                raise DamagedError(f"1 record batch wanted, {reader.num_record_batches} found")
            batch = reader.get_batch(0)
        batch.validate(full=True)  # checks offsets and strings, and the number of the features
        return _from_batch(batch)
    except (_StaleError, DamagedError):
        raise
    except (pa.ArrowException, ValueError, KeyError, OSError, OverflowError) as error:
        raise DamagedError(" ".join(str(error).split())) from error


def _schema(num_features: int, has_doc_ids: bool) -> pa.Schema:
    fields: list[tuple[str, pa.DataType]] = [
        ("qid", pa.string()),
        ("labels", pa.list_(pa.float32())),
        ("features", pa.list_(pa.list_(pa.float32(), num_features))),
    ]
    return pa.schema([*fields, ("doc_ids", pa.list_(pa.string()))] if has_doc_ids else fields)


def _check_schema(schema: pa.Schema) -> None:
    width = (schema.metadata or {}).get(b"ltr.num_features", b"")
    if not width.isdigit() or not 1 <= int(width[:10]) < 2**31:
        raise DamagedError(f"the number of features must be >= 1, got {width[:20]!r}")
    wanted = _schema(int(width[:10]), "doc_ids" in schema.names)
    # a field with metadata could be one of Arrow's extension types
    if not schema.equals(wanted) or any(field.metadata for field in schema):
        fields = ", ".join(f"{field.name}: {field.type}" for field in wanted)
        raise DamagedError(f"the columns must be {fields}")


def _from_batch(batch: pa.RecordBatch) -> ListDataset:
    labels: Any = batch.column("labels")
    lists: Any = batch.column("features")
    names: Any = batch.column("qid")
    doc_ids: Any = batch.column("doc_ids") if "doc_ids" in batch.schema.names else None
    offsets = labels.offsets.to_numpy()
    nested = [lists] if doc_ids is None else [lists, doc_ids]
    if (np.diff(offsets) < 1).any() or not all(
        column.offsets.equals(labels.offsets) for column in nested
    ):
        raise DamagedError("the columns' offsets must rise and be the same")
    inner = [column.values for column in (labels, *nested)]
    if any(a.null_count for a in (names, labels, *nested, *inner)):
        raise DamagedError("no value must be null")
    grades = labels.values.to_numpy(zero_copy_only=True)
    if not (np.isfinite(grades) & (grades >= 0)).all():
        raise DamagedError("the labels must be finite and >= 0")
    rows: Any = lists.values
    return ListDataset(
        rows.values.to_numpy(zero_copy_only=True).reshape(-1, rows.type.list_size),
        grades,
        offsets.astype(np.int64),
        names.to_pylist(),
        None if doc_ids is None else doc_ids.values,
    )


def load_letor(
    path: str | PathLike[str],
    *,
    num_features: int | None = None,
    sort_by_qid: bool = False,
    group_file: str | PathLike[str] | None = None,
    missing: Literal["keep", "error"] = "keep",
    cache_dir: str | PathLike[str] | None = None,
) -> ListDataset:
    """Read a file as `read_letor` does, but only once: later calls map a shard of its lists.

    The lists have no `rows`.

    The shard is a file in the user's cache folder, or in `cache_dir`, named after the source and
    its path; nothing is written into the source's folder. Its checksums are compared before it is
    used. It is made again if the source, its file of group sizes or an argument has changed, and,
    with a warning, if it is damaged. A source has changed if its size, modification time, change
    time or inode has. If the cache cannot be written, the lists are returned with a warning. Any
    file of the cache may be deleted at any time.

    Args:
        path: see `read_letor`.
        num_features: see `read_letor`.
        sort_by_qid: see `read_letor`.
        group_file: see `read_letor`.
        missing: see `read_letor`.
        cache_dir: the folder for the cache, made if it is missing. Default: the user's cache folder
            (`~/.cache/ltr` on Linux).

    Raises:
        ValueError: as `read_letor`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.txt")
    ...     _ = file.write_text("2 qid:7 1:0.5")
    ...     _ = load_letor(file, cache_dir=f"{folder}/cache")
    ...     [p.suffixes[-2:] for p in Path(folder, "cache").iterdir()]
    [['.ltr-cache', '.arrow']]
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"path must be a file, got {path}")
    sizes = find_group_file(path, group_file)
    # stamp before reading: if the source changes meanwhile, the next call makes the cache again
    source = {
        "reader": _READER_VERSION,
        "num_features": num_features,
        "sort_by_qid": sort_by_qid,
        "missing": missing,
        "file": _stamp(path),
        "group_file": None if sizes is None else [str(sizes.resolve()), *_stamp(sizes)],
        "group_file_given": group_file is not None,
    }
    options: dict[str, Any] = {
        "num_features": num_features,
        "sort_by_qid": sort_by_qid,
        "group_file": group_file,
        "missing": missing,
    }
    try:
        cache = cache_path(path, cache_dir)
    except RuntimeError as error:
        _log.warning("%s is read each time: %s", path, error)
        data = read_letor(path, **options)
        data.rows = None
        return data
    remove_leftovers(cache.parent)
    try:
        return read_shard(cache, source=source)
    except DamagedError as error:
        _log.warning("%s is read again, since its cache is damaged: %s", path, error)
    except ValueError as error:
        _log.debug("reading %s: %s", path, error)
    data = read_letor(path, **options)
    data.rows = None  # for which a shard has no place
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_shard(data, cache, source=source)
    except OSError as error:
        _log.warning("%s is read each time, since its cache cannot be written: %s", path, error)
    return data


def cache_path(path: str | PathLike[str], cache_dir: str | PathLike[str] | None = None) -> Path:
    """Return the path of the shard in which `load_letor` keeps the lists of a file.

    Args:
        path: the source.
        cache_dir: the folder for the cache. Default: the user's cache folder.

    Raises:
        RuntimeError: the user has no home folder.

    >>> cache_path("/data/train.txt", "/caches").name
    'train.txt-0b1fc96600.ltr-cache.arrow'
    """
    path = Path(path).absolute()
    if cache_dir is not None:
        folder = Path(cache_dir).absolute()
    else:
        folder = platformdirs.user_cache_path("ltr")
        if not folder.is_absolute():  # with an older platformdirs it begins with a literal "~"
            raise RuntimeError("there is no home folder for a cache: give cache_dir")
    digest = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:10]
    return folder / f"{path.name}-{digest}{_SUFFIX}"


def _stamp(path: Path) -> list[int]:
    # `cp -p` over a file keeps size and modification time, but not the time of the change
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns]


def _as_json(source: dict[str, Any] | None) -> str:
    return json.dumps(source, sort_keys=True)
