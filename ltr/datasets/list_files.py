"""Lists on disk: a folder of memory-mapped arrays.

The folder has `features.npy`, `offsets.npy` (the first document of each list, and the number of all
documents), `qids.arrow` and `schema.json`. If the data have them, it also has `labels.npy`,
`categories.npy`, `weight.npy`, `position.npy`, `protected.npy` and `doc_id.arrow`. `schema.json`
has the version of the format, the shape of each array, whether any feature value is missing, and
the schema of the table. The folder is written beside its final path, and renamed when it is
complete.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy

from ltr.datasets.column_steps import Number
from ltr.datasets.lists import ListDataset
from ltr.datasets.schema import Schema
from ltr.files import check_path, made_folder, name_full_disk, sync_folder

FORMAT = "ltr lists"
VERSION = 5
"""The version of the format. Versions 1 to 4 stored shards instead of arrays."""

HEAD = "schema.json"
PARTIAL = ".partial"
"""The suffix of the name of a folder that is being written."""

_MOST = float(np.finfo(np.float32).max)
_LARGEST = np.iinfo(np.int64).max
ARRAYS: dict[str, tuple[str, float, float]] = {
    "features": ("<f4", -np.inf, np.inf),  # these are not checked, since NaN is a missing value
    "labels": ("<f4", 0, _MOST),
    "categories": ("<i8", 0, _LARGEST),
    "weight": ("<f4", 0, _MOST),
    "position": ("<i8", 1, _LARGEST),
    "protected": ("<f4", -_MOST, _MOST),
}
"""For each array of a `ListDataset`: its type, and its least and largest allowed value."""

_WIDE = ("features", "categories")
_TEXTS = ("qids", "doc_id")
_CHECKED = 1 << 20  # this many offsets are compared at a time
_QIDS = 1 << 14  # this many qids are read at a time


class ListFiles(Mapping[str, Any]):
    """The memory-mapped arrays of a folder of lists, by their names in a `ListDataset`.

    Opening the folder checks shapes, types and offsets. `read` checks values. Pickling keeps only
    the path, so another process maps the files itself.

    Args:
        path: the folder.

    Attributes:
        path: the folder.
        schema: the schema of the table that the lists come from; None for LETOR text.
        missing: whether any value of the features is missing.
        offsets: int64 (lists + 1,), the first document of each list, and the number of documents.

    Raises:
        ValueError: the folder does not hold lists, is of another version, or is damaged.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = check_path("path", path)
        head = _read_head(self.path)
        try:
            shapes: dict[str, Any] = head["arrays"]
            self.missing = bool(head["missing"])
            self.schema = _schema(self.path, head["schema"])
            self.offsets = self._map("offsets", "<i8", shapes["offsets"])
            self._arrays: dict[str, Any] = {
                key: self._map(key, dtype, shapes[key])
                for key, (dtype, *_) in ARRAYS.items()
                if key in shapes
            }
            self.qids = self._map_texts("qids", shapes["qids"])
            if "doc_id" in shapes:
                self._arrays["doc_id"] = self._map_texts("doc_id", shapes["doc_id"])
            features = self._arrays["features"]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{self.path / HEAD}: the file is damaged: {error!r}") from None
        for key, array in self._arrays.items():
            if len(array) != len(features) or getattr(array, "ndim", 1) != 1 + (key in _WIDE):
                raise ValueError(f"{self._file(key)}: the shape differs from that of the features")
        self._check_offsets(len(features))
        if self.schema is not None:
            widths = (self.schema.num_features, len(self.schema.categories))
            for key, width in zip(_WIDE, widths, strict=True):
                got = self[key].shape[1] if key in self else 0
                if got != width:
                    raise ValueError(f"{self.path}: the schema has {width} {key}, got {got}")

    def _file(self, key: str) -> Path:
        path = self.path / f"{key}.{'arrow' if key in _TEXTS else 'npy'}"
        if not path.is_file():  # opening a pipe would wait for a writer
            raise ValueError(f"{path}: the file is missing")
        return path

    def _map(self, key: str, dtype: str, shape: Sequence[int]) -> np.ndarray:
        path = self._file(key)
        try:
            found = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError, SyntaxError) as error:
            raise ValueError(f"{path}: the file is damaged: {error}") from None
        size = path.stat().st_size
        if found.dtype.str != dtype or [*found.shape] != [*shape] or not found.flags.c_contiguous:
            raise ValueError(
                f"{path}: the array must be {dtype} of shape {[*shape]}, as {HEAD} says, got "
                f"{found.dtype.str} of shape {[*found.shape]}"
            )
        if not isinstance(found, np.memmap) or found.offset + found.nbytes != size:
            raise ValueError(f"{path}: the file is damaged: its size is {size} bytes")
        return found.view(np.ndarray)

    def _map_texts(self, key: str, shape: Sequence[int]) -> pa.LargeStringArray:
        path = self._file(key)
        try:
            with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
                fits = reader.num_record_batches == 1 and reader.schema.equals(text_schema(key))
                batch = reader.get_batch(0) if fits else None
            if batch is not None:
                batch.validate()
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path}: the file is damaged: {error}") from None
        if batch is None or [len(batch)] != [*shape] or batch.column(0).null_count:
            raise ValueError(f"{path}: the file must have {shape} texts in one batch")
        texts: Any = batch.column(0)
        return texts

    def _check_offsets(self, documents: int) -> None:
        path, offsets = self.path / "offsets.npy", self.offsets
        if offsets.ndim != 1 or len(offsets) != len(self.qids) + 1:
            raise ValueError(f"{path}: the {len(self.qids)} lists need one offset more")
        starts = range(0, len(offsets), _CHECKED)
        ascending = all(
            (np.diff(offsets[start : start + _CHECKED + 1]) > 0).all() for start in starts
        )
        if not ascending or offsets[0] != 0 or offsets[-1] != documents:
            raise ValueError(f"{path}: the offsets must ascend from 0 to {documents}")

    def read(self, key: str, rows: np.ndarray | None = None) -> Any:
        """Check and return the values of an array.

        Args:
            key: the name of the array, or "qids".
            rows: int64 (documents,), or (lists,) for qids: the indices of the values to copy.
                Default: all values, in which case numeric arrays are memory-mapped, not copied.

        Raises:
            ValueError: a value is damaged.
        """
        if key in _TEXTS:
            return self._texts(key, rows)
        values = self._arrays[key] if rows is None else self._arrays[key].take(rows, axis=0)
        self._check(key, values, rows)
        return values

    def _check(self, key: str, values: np.ndarray, rows: np.ndarray | None) -> None:
        _, least, most = ARRAYS[key]
        if key == "features" or not values.size:
            return
        limit: Any = most
        if key == "categories" and self.schema is not None:
            limit = np.array([len(one.levels) for one in self.schema.categories.values()])
        # For NaN, both comparisons are false.
        if values.min() >= least and (values.max(axis=0) <= limit).all():
            return
        where = tuple(np.argwhere(~((values >= least) & (values <= limit)))[0])
        document = where[0] if rows is None else rows[where[0]]
        raise ValueError(
            f"{self._file(key)}: {key} must be {_range(least, most, limit)}, got {values[where]} "
            f"of document {document}"
        )

    def _texts(self, key: str, rows: np.ndarray | None) -> pa.StringArray:
        array: Any = self.qids if key == "qids" else self._arrays[key]
        # Arrow would follow a wrong offset, so check the offsets first.
        _, ends, content = array.buffers()
        bounds = np.frombuffer(ends, np.int64, len(array) + 1, 8 * array.offset)
        size = 0 if content is None else content.size
        first, last = bounds[:-1], bounds[1:]
        if rows is not None:
            first, last = first[rows], last[rows]
        try:
            if ((first < 0) | (last < first) | (last > size)).any():
                raise ValueError("the offsets of its texts do not ascend")
            found = array if rows is None else array.take(rows)
            found.validate(full=True)
        except (pa.ArrowException, ValueError) as error:
            raise ValueError(f"{self._file(key)}: the file is damaged: {error}") from None
        return found.cast(pa.string())

    def __getitem__(self, key: str) -> Any:
        return self._arrays[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __reduce__(self) -> tuple[type["ListFiles"], tuple[Path]]:
        return ListFiles, (self.path,)


class StoredQids(Sequence[str]):
    """The qids of lists on disk, read on demand.

    Args:
        files: the files of the lists.
        lists: int64 (lists,), the numbers of the chosen lists; None for all lists.
    """

    def __init__(self, files: ListFiles, lists: np.ndarray | None = None) -> None:
        self._files = files
        self._lists = lists

    def __len__(self) -> int:
        return len(self._files.qids) if self._lists is None else len(self._lists)

    def __getitem__(self, index: Any) -> Any:
        """Return the qid at an index, or a list of qids for a slice or an array of indices."""
        if isinstance(index, np.ndarray):
            lists = index if self._lists is None else self._lists[index]
            return self._files.read("qids", lists).to_pylist()
        positions = range(len(self))[index]
        if isinstance(positions, range):
            return self[np.array(positions, np.int64)]
        return self[np.array([positions])][0]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _QIDS):
            yield from self[start : start + _QIDS]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        more = ["..."] if len(self) > 6 else []
        return f"StoredQids([{', '.join([*map(repr, self[:6]), *more])}])"

    def take(self, lists: np.ndarray) -> "StoredQids":
        """Return the qids of the lists with these numbers, int64 (lists,)."""
        return StoredQids(self._files, lists if self._lists is None else self._lists[lists])


def open_lists(path: str | PathLike[str]) -> ListDataset:
    """Open lists on disk, written by `ltr convert` or `write_lists`.

    Opening takes milliseconds: the arrays are memory-mapped. Later, the operating system reads only
    the parts of the files that hold the lists in use. See `ListDataset`.

    Args:
        path: the folder.

    Raises:
        ValueError: the folder does not hold lists, is of another version, or is damaged; the
            message names the file. Shapes, types and offsets are checked here; labels, weights,
            codes and texts are checked when they are read.

    >>> open_lists("no/such/lists")
    Traceback (most recent call last):
    ...
    ValueError: path must be a folder of lists, got no/such/lists (no schema.json)
    """
    files = ListFiles(path)
    return ListDataset.of_files(files, StoredQids(files))


def is_list_folder(path: Any) -> bool:
    """Return whether a path is a folder of lists.

    >>> is_list_folder("no/such/folder")
    False
    """
    return isinstance(path, str | PathLike) and (check_path("path", path) / HEAD).is_file()


def letor_schema(data: ListDataset) -> Schema:
    """Return the schema of lists of LETOR text.

    >>> data = ListDataset.from_arrays([[1.0, 2.0]], labels=[0], qid=[7])
    >>> letor_schema(data).features
    {'1': 1, '2': 1}
    """
    first = data.first_feature
    names = [str(number) for number in range(first, first + data.num_features)]
    return Schema("qid", "label", steps=dict.fromkeys(names, Number()))


def text_schema(key: str) -> pa.Schema:
    """Return the Arrow schema of the file of qids or of document ids."""
    return pa.schema([pa.field({"qids": "qid"}.get(key, key), pa.large_string())])


def _range(least: float, most: float, limit: Any) -> str:
    """Return the allowed values of an array, in words."""
    if limit is not most:
        return f"codes from 0 to the number of levels, {limit.tolist()}"
    return "finite" if least == -most else f"finite and >= {least:g}"


def _schema(folder: Path, found: Any) -> Schema | None:
    try:
        return None if found is None else Schema.from_dict(found)
    except ValueError as error:
        raise ValueError(f"{folder / HEAD}: {error}") from None


def _read_head(folder: Path) -> dict[str, Any]:
    path = folder / HEAD
    if not path.is_file():
        partial = folder.with_name(folder.name + PARTIAL)
        reason = f"{partial} is not complete" if partial.is_dir() else f"no {HEAD}"
        raise ValueError(f"path must be a folder of lists, got {folder} ({reason})")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: the file is damaged: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path}: the file does not describe lists")
    if found.get("version") != VERSION:
        version = str(found.get("version"))[:20]
        raise ValueError(
            f"path must be a folder of lists of version {VERSION}, got version {version} in "
            f"{folder}: convert again"
        )
    return found


_ROWS = 1 << 14  # this many rows are widened, or texts appended, at a time


def write_lists(
    lists: ListDataset | Iterable[ListDataset],
    path: str | PathLike[str],
    *,
    schema: Schema | None = None,
) -> None:
    """Write lists to the disk; `open_lists` opens them.

    The folder appears when it is complete. It is written as `PATH.partial` beside its final path,
    and an error or an interrupt removes `PATH.partial`. A killed process leaves `PATH.partial`.

    Args:
        lists: a data set, or the consecutive chunks of one. The first list of a chunk continues the
            last list of the previous chunk if both have the same qid. All chunks have the same
            columns, except that some may lack document ids.
        path: the folder, which must be new or empty.
        schema: the schema of the table that the lists come from; it is stored with the lists.
            Default: none, or the names of features whose indices in LETOR text begin with 0.

    Raises:
        ValueError: there are no lists; a list is empty; the columns of the chunks differ, or do not
            fit the schema; `path` is a file, or a folder that is not empty; another process writes
            to `path`; or an argument has the wrong type.
        OSError: a file cannot be written.

    >>> from tempfile import mkdtemp
    >>> from ltr.datasets import open_lists
    >>> data = ListDataset.from_arrays([[1.0], [2.0], [3.0]], labels=[0, 2, 1], qid=[7, 7, 8])
    >>> write_lists(data, folder := mkdtemp())
    >>> open_lists(folder)[0]["labels"]
    tensor([0., 2.])
    """
    if schema is not None and not isinstance(schema, Schema):
        raise ValueError(f"schema must be a Schema or None, got {schema!r}")
    if not isinstance(lists, Iterable) and not isinstance(lists, ListDataset):
        raise ValueError(f"lists must be a ListDataset or chunks of one, got {lists!r}")
    chunks = [lists] if isinstance(lists, ListDataset) else lists
    with new_folder("path", path) as folder:
        write_files(folder, chunks, schema)


@contextmanager
def new_folder(name: str, path: str | PathLike[str]) -> Iterator[Path]:
    """Yield a new folder; at the end, rename it to `path`, or remove it after an error.

    Args:
        name: the name of the argument with the path, for errors.
        path: the final path, which must be new or an empty folder.

    Raises:
        ValueError: `path` is a file, or a folder that is not empty; or `PATH.partial` exists.
        OSError: a folder cannot be made or renamed.
    """
    target = Path(os.path.realpath(check_path(name, path)))
    if target.exists() and not target.is_dir():
        raise ValueError(f"{name} must be a folder, got the file {path}")
    if target.is_dir() and (names := sorted(one.name for one in target.iterdir())):
        raise ValueError(f"{name} must be a new folder, got {path}, which holds {names[0]!r}")
    partial = target.with_name(target.name + PARTIAL)
    with made_folder(target.parent), name_full_disk(path):
        try:
            partial.mkdir()
        except FileExistsError:
            raise ValueError(
                f"{name} must not be written by another process, got {path}: {partial} exists "
                "(if no process writes it, one was killed: delete that folder)"
            ) from None
        try:
            yield partial
            for file in partial.iterdir():
                with file.open("rb+") as one:
                    os.fsync(one.fileno())
            sync_folder(partial)
            if target.is_dir():
                target.rmdir()
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        sync_folder(target.parent)


def write_files(folder: Path, chunks: Iterable[ListDataset], schema: Schema | None) -> None:
    """Write the files of lists into a folder; remove all its files after an error.

    Raises:
        ValueError: see `write_lists`.
        OSError: a file cannot be written.
    """
    try:
        with ExitStack() as files:
            writer, last = _Writer(folder, files), None
            for chunk in chunks:
                if not isinstance(chunk, ListDataset):
                    raise ValueError(f"lists must be a ListDataset or chunks of one, got {chunk!r}")
                for block in chunk.blocks():
                    writer.add(block)
                last = chunk
            if schema is None and last is not None and not last.first_feature:
                schema = letor_schema(last)
            writer.finish(schema)
    except BaseException:
        for path in folder.iterdir():
            if path.is_file():
                path.unlink()
        raise


class _Writer:
    """Appends lists to the files of a folder.

    Args:
        folder: an empty folder.
        files: the stack that closes the files at the end.
    """

    def __init__(self, folder: Path, files: ExitStack) -> None:
        self.folder = folder
        self._open = files
        self._columns: set[str] | None = None
        self._last: str | None = None
        self._missing = False
        self._offsets = _Rows(folder / "offsets.npy", "<i8", (), files)
        self._qids = _Texts(folder / "qids.arrow", files)
        self._doc_id: _Texts | None = None
        # An array may have several files, and later files have wider rows.
        self._parts: dict[str, list[_Rows]] = {}
        self.documents = 0

    def add(self, data: ListDataset) -> None:
        """Append the lists of a chunk."""
        if not len(data):
            return
        if (data.lengths < 1).any():
            raise ValueError("each list must have at least one document, got an empty list")
        arrays = {"features": data.features, **data.columns()}
        arrays.pop("rows", None)
        if self._columns not in (None, {*arrays}):
            raise ValueError(
                f"all chunks must have the columns {sorted(self._columns)}, got {sorted(arrays)}"
            )
        self._columns = {*arrays}
        for key, array in arrays.items():
            parts, shape = self._parts.setdefault(key, []), array.shape[1:]
            if not parts or parts[-1].shape < shape:  # sparse data may gain features
                path = self.folder / f"{key}-{len(parts)}.npy"
                parts.append(_Rows(path, ARRAYS[key][0], shape, self._open))
            parts[-1].append(array)
        # The minimum of an array with NaN is NaN.
        self._missing = self._missing or bool(np.isnan(data.features.min(initial=0)))
        same = int(data.qids[0] == self._last)
        self._last = data.qids[-1]
        self._offsets.append(data.offsets[same:-1] + self.documents)
        self._qids.append(pa.array(list(data.qids[same:]), pa.large_string()))
        if data.doc_id is not None:
            if self._doc_id is None:
                self._doc_id = _Texts(self.folder / "doc_id.arrow", self._open)
            self._doc_id.fill(self.documents)
            self._doc_id.append(data.doc_id)
        self.documents += int(data.offsets[-1])

    def finish(self, schema: Schema | None) -> None:
        """Write the headers and `schema.json`.

        Raises:
            ValueError: there is no list, or the schema does not fit.
        """
        if not self.documents:
            raise ValueError("at least one list is needed, got none")
        self._offsets.append(np.array([self.documents]))
        shapes = {"offsets": [self._offsets.rows], "qids": [self._qids.count]}
        for key, parts in self._parts.items():
            self._join(parts, self.folder / f"{key}.npy")
            shapes[key] = [self.documents, *parts[-1].shape]
        self._offsets.close()
        self._qids.close()
        if self._doc_id is not None:
            self._doc_id.fill(self.documents)
            self._doc_id.close()
            shapes["doc_id"] = [self.documents]
        head = {
            "format": FORMAT,
            "version": VERSION,
            "missing": self._missing,
            "arrays": shapes,
            "schema": None if schema is None else schema.to_dict(),
        }
        (self.folder / HEAD).write_text(json.dumps(head, indent=1), encoding="utf-8")
        ListFiles(self.folder)  # if the folder does not open, do not rename it

    def _join(self, parts: list["_Rows"], path: Path) -> None:
        """Join files into one file, with rows as wide as those of the last file."""
        for part in parts:
            part.close()
        if len(parts) == 1:
            parts[0].path.rename(path)
            return
        joined = _Rows(path, "<f4", parts[-1].shape, self._open)
        for part in parts:
            rows = np.load(part.path, mmap_mode="r")
            for start in range(0, len(rows), _ROWS):
                joined.append(rows[start : start + _ROWS])
            del rows  # close the map before its file is removed
            part.path.unlink()
        joined.close()


class _Rows:
    """A `.npy` file to which rows are appended; its header is written again at the end."""

    def __init__(self, path: Path, dtype: str, shape: tuple[int, ...], files: ExitStack) -> None:
        self.path = path
        self.shape = shape  # this is the shape of a row
        self.rows = 0
        self._dtype = np.dtype(dtype)
        self._file: BinaryIO = files.enter_context(path.open("wb"))
        self._write_header()
        self._begin = self._file.tell()

    def append(self, values: np.ndarray) -> None:
        """Append rows, (rows, *shape); narrower rows are padded with zeros."""
        values = np.ascontiguousarray(values, dtype=self._dtype)
        if values.shape[1:] != self.shape:
            values = np.pad(values, ((0, 0), (0, self.shape[0] - values.shape[1])))
        if values.size:
            self._file.write(values.data)
        self.rows += len(values)

    def close(self) -> None:
        """Write the number of rows into the header, and close the file."""
        self._file.seek(0)
        self._write_header()
        if self._file.tell() != self._begin:  # numpy leaves room for a larger number of rows
            raise ValueError(f"{self.path}: numpy wrote a header of another length")
        self._file.close()

    def _write_header(self) -> None:
        shape = (self.rows, *self.shape)
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(self._file, header)


class _Texts:
    """An Arrow file with one batch of texts, to which texts are appended.

    Until `close`, the bytes and the offsets of the texts are in two other files.
    """

    def __init__(self, path: Path, files: ExitStack) -> None:
        self.path = path
        self._bytes = _Rows(path.with_suffix(".bytes"), "|u1", (), files)
        self._ends = _Rows(path.with_suffix(".ends"), "<i8", (), files)
        self._ends.append(np.zeros(1))

    @property
    def count(self) -> int:
        """The number of texts."""
        return self._ends.rows - 1

    def append(self, texts: Any) -> None:
        """Append the texts of an Arrow array."""
        if texts.null_count:
            raise ValueError(f"{self.path.stem} must be texts, got a missing one")
        texts = texts.cast(pa.large_string())
        if not len(texts):
            return
        _, ends, content = texts.buffers()
        bounds = np.frombuffer(ends, np.int64, len(texts) + 1, 8 * texts.offset)
        self._ends.append(bounds[1:] + (self._bytes.rows - bounds[0]))
        if bounds[-1] > bounds[0]:
            self._bytes.append(np.frombuffer(content, np.uint8)[bounds[0] : bounds[-1]])

    def fill(self, count: int) -> None:
        """Append "" until there are `count` texts."""
        while self.count < count:
            self._ends.append(np.full(min(_ROWS, count - self.count), self._bytes.rows))

    def close(self) -> None:
        """Write the Arrow file, and remove the two other files."""
        parts = (self._bytes, self._ends)
        for part in parts:
            part.close()
        content, ends = (pa.py_buffer(np.load(part.path, mmap_mode="r")) for part in parts)
        texts = pa.LargeStringArray.from_buffers(self.count, ends, content)
        schema = text_schema(self.path.stem)
        with pa.ipc.new_file(str(self.path), schema) as writer:
            writer.write_batch(pa.record_batch([texts], schema=schema))
        for part in parts:
            part.path.unlink()
