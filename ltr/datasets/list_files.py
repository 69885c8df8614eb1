"""Lists on disk: a folder of arrays that numpy and Arrow map.

The folder has `features.npy`, `offsets.npy` (the first document of each list, and the number of all
documents), `qids.arrow` and `schema.json`. If the data have them, it also has `labels.npy`,
`categories.npy`, `weight.npy`, `position.npy`, `protected.npy` and `doc_id.arrow`. `schema.json`
has the version of the format, and the schema of the table. The folder is written beside its final
path, and renamed when it is complete.
"""

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

from ltr.datasets.column_steps import Number
from ltr.datasets.lists import ListDataset
from ltr.datasets.schema import Schema
from ltr.files import check_path, made_folder, name_full_disk, sync_folder

FORMAT = "ltr lists"
VERSION = 6
"""The version of the format. Version 5 differs in entries of `schema.json` that are not read; older
versions stored shards instead of arrays."""

HEAD = "schema.json"
PARTIAL = ".partial"
"""The suffix of the name of a folder that is being written."""

ARRAYS = {
    "features": "<f4",
    "labels": "<f4",
    "categories": "<i8",
    "weight": "<f4",
    "position": "<i8",
    "protected": "<f4",
}
"""The type of each array of a `ListDataset` that is written."""

_NEEDED = ("features", "offsets", "qids")


class Folder(dict[str, Any]):
    """The arrays of a folder of lists, which the system reads from the files when they are used.

    Pickling keeps only the path, so another process maps the files itself.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("offsets", *ARRAYS):
            if name in _NEEDED or (path / f"{name}.npy").exists():
                self[name] = np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        for name in ("qids", "doc_id"):
            if name in _NEEDED or (path / f"{name}.arrow").exists():
                with pa.ipc.open_file(pa.memory_map(str(path / f"{name}.arrow"))) as file:
                    self[name] = file.read_all().column(0)

    def __reduce__(self) -> tuple[type["Folder"], tuple[Path]]:
        return Folder, (self.path,)


def open_lists(path: str | PathLike[str]) -> ListDataset:
    """Open lists on disk, written by `ltr convert` or `write_lists`.

    Opening takes milliseconds: the arrays are memory-mapped. Later, the operating system reads only
    the parts of the files that hold the lists in use. See `ListDataset`.

    Args:
        path: the folder.

    Raises:
        ValueError: the folder does not hold lists, is of an older version, or is damaged. The
            message names the folder, and says what numpy or Arrow says. The values are not checked.

    >>> open_lists("no/such/lists")
    Traceback (most recent call last):
    ...
    ValueError: path must be a folder of lists, got no/such/lists (no schema.json)
    """
    folder = check_path("path", path)
    head = _read_head(folder)
    try:
        schema = None if head["schema"] is None else Schema.from_dict(head["schema"])
        data = ListDataset.of_arrays(Folder(folder), schema)
    except (ValueError, KeyError, OSError, EOFError, SyntaxError, pa.ArrowException) as error:
        problem = " ".join(str(error).split())
        raise ValueError(f"{folder}: the lists cannot be opened: {problem}") from None
    if schema is not None:
        widths = {"features": schema.num_features, "categories": len(schema.categories)}
        given = {"features": data.num_features, "categories": data.num_categories}
        for name, width in widths.items():
            if given[name] != width:
                raise ValueError(f"{folder}: the schema has {width} {name}, got {given[name]}")
    return data


def is_list_folder(path: Any) -> bool:
    """Return whether a path is a folder of lists.

    >>> is_list_folder("no/such/folder")
    False
    """
    return isinstance(path, str | PathLike) and (check_path("path", path) / HEAD).is_file()


def letor_schema(data: ListDataset) -> Schema:
    """Return the schema of lists of LETOR text; several labels are called y0, y1 and so on.

    >>> data = ListDataset.from_arrays([[1.0, 2.0]], labels=[0], qid=[7])
    >>> letor_schema(data).features
    {'1': 1, '2': 1}
    """
    first = data.first_feature
    names = [str(number) for number in range(first, first + data.num_features)]
    label: Any = "label"
    if data.has_labels and (shape := data.between(0, 0).labels.shape)[1:]:
        label = [f"y{i}" for i in range(shape[1])]
    return Schema("qid", label, steps=dict.fromkeys(names, Number()))


def _read_head(folder: Path) -> dict[str, Any]:
    path = folder / HEAD
    if not path.is_file():
        partial = folder.with_name(folder.name + PARTIAL)
        reason = f"{partial} is not complete" if partial.is_dir() else f"no {HEAD}"
        raise ValueError(f"path must be a folder of lists, got {folder} ({reason})")
    try:
        head = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: the file is damaged: {error}") from None
    if not isinstance(head, dict) or head.get("format") != FORMAT or "schema" not in head:
        raise ValueError(f"{path}: the file does not describe lists")
    if head.get("version") not in (VERSION, 5):
        version = str(head.get("version"))[:20]
        raise ValueError(
            f"path must be a folder of lists of version {VERSION}, got version {version} in "
            f"{folder}: convert again"
        )
    return head


_ROWS = 1 << 14  # this many rows are widened at a time
_TEXTS = 1 << 20  # an Arrow batch has at least this many texts, except the last batch


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
            columns, except that some may lack document ids, or have fewer features: these are 0.
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
    if target.is_dir() and (names := sorted(child.name for child in target.iterdir())):
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
                with file.open("rb+") as opened:
                    os.fsync(opened.fileno())
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
        self._columns: list[str] | None = None
        self._last: str | None = None
        self._offsets: list[np.ndarray] = []
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
        # Only features may differ in number: sparse text has those of its largest index.
        shapes = {key: array.shape[1:] for key, array in arrays.items() if key != "features"}
        columns = sorted(f"{key}{[*shapes.get(key, ())] or ''}" for key in arrays)
        if self._columns not in (None, columns):
            raise ValueError(f"all chunks must have the columns {self._columns}, got {columns}")
        self._columns = columns
        for key, array in arrays.items():
            parts, shape = self._parts.setdefault(key, []), array.shape[1:]
            if not parts or parts[-1].shape < shape:  # sparse data may gain features
                if parts:  # a process may have few open files
                    parts[-1].close()
                path = self.folder / f"{key}-{len(parts)}.npy"
                parts.append(_Rows(path, ARRAYS[key], shape, self._open))
            parts[-1].append(array)
        qids = data.qid_texts
        same = int(qids[0].as_py() == self._last)
        self._last = qids[-1].as_py()
        self._offsets.append(data.offsets[same:-1] + self.documents)
        self._qids.append(qids[same:])
        if (doc_id := data.doc_id) is not None:
            if self._doc_id is None:
                self._doc_id = _Texts(self.folder / "doc_id.arrow", self._open)
            self._doc_id.fill(self.documents)
            self._doc_id.append(doc_id)
        self.documents += int(data.offsets[-1])

    def finish(self, schema: Schema | None) -> None:
        """Write the headers and `schema.json`.

        Raises:
            ValueError: there is no list, or the schema does not fit.
        """
        if not self.documents:
            raise ValueError("at least one list is needed, got none")
        for key, parts in self._parts.items():
            self._join(parts, self.folder / f"{key}.npy")
        offsets = np.concatenate([*self._offsets, [self.documents]])
        np.save(self.folder / "offsets.npy", offsets.astype("<i8"))
        self._qids.close()
        if self._doc_id is not None:
            self._doc_id.fill(self.documents)
            self._doc_id.close()
        plain = None if schema is None else schema.to_dict()
        head = {"format": FORMAT, "version": VERSION, "schema": plain}
        (self.folder / HEAD).write_text(json.dumps(head, indent=1), encoding="utf-8")
        open_lists(self.folder)  # if the folder does not open, do not rename it

    def _join(self, parts: list["_Rows"], path: Path) -> None:
        """Join files into one file, with rows as wide as those of the last file."""
        parts[-1].close()
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
        self._write_header()  # numpy leaves room for a larger number of rows
        self._file.close()

    def _write_header(self) -> None:
        shape = (self.rows, *self.shape)
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(self._file, header)


class _Texts:
    """An Arrow file to which texts are appended."""

    def __init__(self, path: Path, files: ExitStack) -> None:
        name = {"qids": "qid"}.get(path.stem, path.stem)
        self._schema = pa.schema([pa.field(name, pa.large_string())])
        self._file = files.enter_context(pa.ipc.new_file(str(path), self._schema))
        self._waiting: list[Any] = []
        self._count = self._written = 0

    def append(self, texts: Any) -> None:
        """Append the texts of an Arrow array."""
        self._waiting.append(texts.cast(pa.large_string()))
        self._count += len(texts)
        if self._count - self._written >= _TEXTS:
            self._flush()

    def fill(self, count: int) -> None:
        """Append "" until there are `count` texts."""
        while self._count < count:
            self.append(pa.repeat("", min(_TEXTS, count - self._count)))

    def close(self) -> None:
        """Write the texts that wait, and close the file."""
        if self._waiting:
            self._flush()
        self._file.close()

    def _flush(self) -> None:
        chunks = [x for texts in self._waiting for x in getattr(texts, "chunks", [texts])]
        batch = pa.record_batch([pa.concat_arrays(chunks)], schema=self._schema)
        self._file.write_batch(batch)
        self._waiting, self._written = [], self._count
