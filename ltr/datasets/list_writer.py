"""Write lists to the disk, chunk by chunk; see `ltr.datasets.list_files` for the format."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy

from ltr.datasets.list_files import ARRAYS, FORMAT, HEAD, PARTIAL, VERSION, ListFiles, text_schema
from ltr.datasets.lists import ListDataset
from ltr.datasets.schema import Schema
from ltr.files import check_path, made_folder, name_full_disk, sync_folder

_ROWS = 1 << 14  # that are widened at a time


def write_lists(
    lists: ListDataset | Iterable[ListDataset],
    path: str | PathLike[str],
    *,
    schema: Schema | None = None,
) -> None:
    """Write lists to the disk; `open_lists` opens them.

    The folder appears when it is complete. It is written as `PATH.partial` beside its final path,
    and an error or an interrupt removes that folder. A process that is killed leaves it.

    Args:
        lists: a data set, or chunks of one that come one after another. The first list of a chunk
            continues the last one of the previous chunk if both have the same qid. All chunks have
            the same columns; only document ids may be left out.
        path: the folder, which must be new or empty.
        schema: the schema of the table that the lists come from; stored with them.

    Raises:
        ValueError: there are no lists or a list is empty, the columns of the chunks differ or do
            not fit the schema, `path` holds anything, another process writes there, or an argument
            has the wrong type.
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
    """Yield a folder to write into, and rename it to `path` at the end; an error removes it.

    Args:
        name: the argument, for errors.
        path: the final path, where nothing may be yet but an empty folder.

    Raises:
        ValueError: `path` holds anything, or the folder to write into exists already.
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
    """Write the files of lists into a folder; see `write_lists`. After an error, remove them.

    Raises:
        ValueError: see `write_lists`.
        OSError: a file cannot be written.
    """
    try:
        with ExitStack() as files:
            writer = _Writer(folder, files)
            for chunk in chunks:
                if not isinstance(chunk, ListDataset):
                    raise ValueError(f"lists must be a ListDataset or chunks of one, got {chunk!r}")
                for block in chunk.blocks():
                    writer.add(block)
            writer.finish(schema)
    except BaseException:
        for path in folder.iterdir():
            if path.is_file():
                path.unlink()
        raise


class _Writer:
    """Appends lists to the files of a folder.

    Args:
        folder: an empty one.
        files: closes the files at the end.
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
        self._files: dict[str, _Rows] = {}
        self._parts: list[_Rows] = []  # of features, narrower than those that follow
        self.documents = 0

    def add(self, data: ListDataset) -> None:
        """Append the lists of a chunk."""
        if not len(data):
            return
        if (data.lengths < 1).any():
            raise ValueError("each list must have at least one document, got an empty list")
        columns = {key: array for key, array in data.columns().items() if key != "rows"}
        if self._columns is not None and self._columns != {*columns}:
            raise ValueError(
                f"all chunks must have the columns {sorted(self._columns)}, got {sorted(columns)}"
            )
        self._columns = {*columns}
        self._add_features(data.features)
        for key, array in columns.items():
            dtype, *_ = ARRAYS[key]
            if key not in self._files:
                path = self.folder / f"{key}.npy"
                self._files[key] = _Rows(path, dtype, array.shape[1:], self._open)
            self._files[key].append(array)
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

    def _add_features(self, features: np.ndarray) -> None:
        """Append rows; the first rows of sparse files may be narrower than later ones."""
        file = self._files.get("features")
        if file is None or features.shape[1] > file.shape[0]:
            if file is not None:
                self._parts.append(file)
            path = self.folder / f"features-{len(self._parts)}.npy"
            file = self._files["features"] = _Rows(path, "<f4", features.shape[1:], self._open)
        # the least number of an array with NaN is NaN
        self._missing = self._missing or bool(features.size and np.isnan(features.min()))
        file.append(_widened(features, file.shape[0]))

    def finish(self, schema: Schema | None) -> None:
        """Write the headers and `schema.json`.

        Raises:
            ValueError: there is no list, or the schema does not fit.
        """
        if not self.documents:
            raise ValueError("at least one list is needed, got none")
        self._offsets.append(np.array([self.documents]))
        self._join_features()
        for file in (self._offsets, *self._files.values()):
            file.close()
        shapes = {"offsets": [self._offsets.rows], "qids": [self._qids.count]}
        for key, file in self._files.items():
            shapes[key] = [file.rows, *file.shape]
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
        ListFiles(self.folder)  # what does not open is not renamed

    def _join_features(self) -> None:
        last = self._files["features"]
        path = self.folder / "features.npy"
        if not self._parts:
            last.path.rename(path)
            return
        joined = self._files["features"] = _Rows(path, "<f4", last.shape, self._open)
        for part in (*self._parts, last):
            part.close()
            rows = np.load(part.path, mmap_mode="r")
            for start in range(0, len(rows), _ROWS):
                joined.append(_widened(rows[start : start + _ROWS], last.shape[0]))
            del rows  # the map, before its file
            part.path.unlink()


class _Rows:
    """A `.npy` file to which rows are appended; its header is written again at the end."""

    def __init__(self, path: Path, dtype: str, shape: tuple[int, ...], files: ExitStack) -> None:
        self.path = path
        self.shape = shape  # of a row
        self.rows = 0
        self._dtype = np.dtype(dtype)
        self._file: BinaryIO = files.enter_context(path.open("wb"))
        self._write_header()
        self._begin = self._file.tell()

    def append(self, values: np.ndarray) -> None:
        """Append rows, (rows, *shape)."""
        values = np.ascontiguousarray(values, dtype=self._dtype)
        if values.size:
            self._file.write(values.data)
        self.rows += len(values)

    def close(self) -> None:
        """Write the number of rows."""
        self._file.seek(0)
        self._write_header()
        if self._file.tell() != self._begin:  # numpy leaves room for a longer first axis
            raise ValueError(f"{self.path}: numpy wrote a header of another length")
        self._file.close()

    def _write_header(self) -> None:
        shape = (self.rows, *self.shape)
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(self._file, header)


class _Texts:
    """A file of Arrow with one batch of texts, to which texts are appended.

    Until `close`, their bytes and offsets are in files of their own.
    """

    def __init__(self, path: Path, files: ExitStack) -> None:
        self.path = path
        self.count = 0
        self._size = 0
        self._paths = path.with_suffix(".bytes"), path.with_suffix(".offsets")
        self._bytes = files.enter_context(self._paths[0].open("wb"))
        self._offsets = files.enter_context(self._paths[1].open("wb"))
        self._offsets.write(np.zeros(1, np.int64).data)

    def append(self, texts: Any) -> None:
        """Append an array of Arrow."""
        if texts.null_count:
            raise ValueError(f"{self.path.stem} must be texts, got a missing one")
        texts = texts.cast(pa.large_string())
        if not len(texts):
            return
        _, ends, content = texts.buffers()
        bounds = np.frombuffer(ends, np.int64, len(texts) + 1, 8 * texts.offset)
        first, last = int(bounds[0]), int(bounds[-1])
        if last > first:
            self._bytes.write(memoryview(content)[first:last])
        self._offsets.write((bounds[1:] + (self._size - first)).data)
        self._size += last - first
        self.count += len(texts)

    def fill(self, count: int) -> None:
        """Append "" up to a number of texts."""
        block = np.full(_ROWS, self._size, np.int64)
        while self.count < count:
            more = min(_ROWS, count - self.count)
            self._offsets.write(block[:more].data)
            self.count += more

    def close(self) -> None:
        """Write the file of Arrow, and remove the other ones."""
        self._bytes.close()
        self._offsets.close()
        content, ends = (
            pa.memory_map(str(path)).read_buffer() if path.stat().st_size else pa.py_buffer(b"")
            for path in self._paths
        )
        texts = pa.LargeStringArray.from_buffers(self.count, ends, content)
        schema = text_schema(self.path.stem)
        with pa.ipc.new_file(str(self.path), schema) as writer:
            writer.write_batch(pa.record_batch([texts], schema=schema))
        for path in self._paths:
            path.unlink()


def _widened(features: np.ndarray, width: int) -> np.ndarray:
    if features.shape[1] == width:
        return features
    found = np.zeros((len(features), width), np.float32)
    found[:, : features.shape[1]] = features
    return found
