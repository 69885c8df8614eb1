"""Lists on disk: a folder of arrays that numpy maps.

The folder has `features.npy`, `offsets.npy` (the first document of each list, and the number of all
documents), `qids.arrow` and `schema.json`. Where the data have them, it also has `labels.npy`,
`categories.npy`, `weight.npy`, `position.npy`, `protected.npy` and `doc_id.arrow`. `schema.json`
has the version of the format, the shape and the type of each array, and the schema of the table.
The folder is written beside its final path, and renamed when it is complete.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.datasets.lists import ListDataset
from ltr.datasets.schema import Schema
from ltr.files import check_path

FORMAT = "ltr lists"
VERSION = 5
"""Versions 1 to 4 were stores of shards with a `manifest.json`."""

HEAD = "schema.json"
PARTIAL = ".partial"
"""The ending of a folder that is being written."""

_MOST = float(np.finfo(np.float32).max)
_LARGEST = np.iinfo(np.int64).max
ARRAYS: dict[str, tuple[str, float, float]] = {
    "features": ("<f4", -np.inf, np.inf),  # NaN is a missing value: not checked
    "labels": ("<f4", 0, _MOST),
    "categories": ("<i8", 0, _LARGEST),
    "weight": ("<f4", 0, _MOST),
    "position": ("<i8", 1, _LARGEST),
    "protected": ("<f4", -_MOST, _MOST),
}
"""For each array of a `ListDataset`: its type, and the least and the largest value."""

_WIDE = ("features", "categories")
_CHECKED = 1 << 20  # offsets that are compared at a time
_QIDS = 1 << 14  # that are read at a time


class ListFiles(Mapping[str, Any]):
    """The mapped arrays of a folder of lists, by their names in a `ListDataset`.

    Opening it checks shapes, types and offsets. `read` and `whole` check values. Another process
    gets only the path, and maps the files itself.

    Args:
        path: the folder.

    Attributes:
        path: the folder.
        schema: the schema of the table that the lists come from; None for LETOR text.
        missing: whether a feature is missing.
        offsets: int64 (lists + 1,), the first document of each list.

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
        check_schema(self.path, self.schema, self._arrays)

    def _file(self, key: str) -> Path:
        return self.path / f"{key}.{'arrow' if key in ('qids', 'doc_id') else 'npy'}"

    def _map(self, key: str, dtype: str, shape: Sequence[int]) -> np.ndarray:
        path = self._file(key)
        if not path.is_file():  # a pipe would wait for a writer
            raise ValueError(f"{path}: the file is missing")
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
        if not path.is_file():
            raise ValueError(f"{path}: the file is missing")
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

    def read(self, key: str, rows: np.ndarray) -> Any:
        """Return a copy of the values of some documents, checked.

        Args:
            key: the name of an array.
            rows: int64 (documents,).

        Raises:
            ValueError: a value is damaged.
        """
        array = self._arrays[key]
        if key == "doc_id":
            return self._texts(key, array, rows).cast(pa.string())
        values = array.take(rows, axis=0)
        self._check(key, values, rows)
        return values

    def whole(self, key: str) -> Any:
        """Return an array of all documents, mapped, and checked.

        Raises:
            ValueError: a value is damaged.
        """
        array = self._arrays[key]
        if key == "doc_id":
            return self._texts(key, array, None).cast(pa.string())
        self._check(key, array, None)
        return array

    def names(self, lists: np.ndarray | None) -> list[str]:
        """Return the qids of some lists, or of all, checked."""
        return self._texts("qids", self.qids, lists).to_pylist()

    def _check(self, key: str, values: np.ndarray, rows: np.ndarray | None) -> None:
        _, least, most = ARRAYS[key]
        if key == "features" or not values.size:
            return
        limit: Any = most
        if key == "categories" and self.schema is not None:
            limit = np.array([len(one.levels) for one in self.schema.categories.values()])
        # NaN is neither
        if values.min() >= least and (values.max(axis=0) <= limit).all():
            return
        wrong = ~((values >= least) & (values <= limit))
        where = int(np.flatnonzero(wrong.reshape(len(values), -1).any(axis=1))[0])
        document = where if rows is None else int(rows[where])
        got = values[where][wrong[where]] if values.ndim > 1 else values[where : where + 1]
        raise ValueError(
            f"{self._file(key)}: {key} must be {_range(least, most, limit)}, got {got[0]} of "
            f"document {document}"
        )

    def _texts(self, key: str, array: pa.LargeStringArray, rows: np.ndarray | None) -> Any:
        # Arrow follows any offset, so they are compared first
        _, ends, content = array.buffers()
        bounds = np.frombuffer(ends, np.int64, len(array) + 1, 8 * array.offset)
        size = 0 if content is None else content.size
        first, last = bounds[:-1], bounds[1:]
        if rows is not None:
            first, last = first[rows], last[rows]
        try:
            if ((first < 0) | (last < first) | (last > size)).any():
                raise ValueError("the offsets of its texts do not ascend")
            found = array if rows is None else array.take(pa.array(rows))
            found.validate(full=True)
        except (pa.ArrowException, ValueError) as error:
            raise ValueError(f"{self._file(key)}: the file is damaged: {error}") from None
        return found

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
        files: of the lists.
        lists: int64 (lists,), the numbers of those that are chosen; None for all.
    """

    def __init__(self, files: ListFiles, lists: np.ndarray | None = None) -> None:
        self._files = files
        self._lists = lists

    def __len__(self) -> int:
        return len(self._files.qids) if self._lists is None else len(self._lists)

    def __getitem__(self, index: Any) -> Any:
        """Return the qid at an index, or the list of the qids in a slice or array of indices."""
        if isinstance(index, np.ndarray):
            return self._files.names(index if self._lists is None else self._lists[index])
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
        """Return the qids of these lists, int64 (lists,)."""
        return StoredQids(self._files, lists if self._lists is None else self._lists[lists])


def open_lists(path: str | PathLike[str]) -> ListDataset:
    """Open lists on disk, written by `ltr convert` or `write_lists`.

    Opening takes milliseconds: the arrays are mapped, and the system reads the pages of the lists
    that are asked for. See `ListDataset`.

    Args:
        path: the folder.

    Raises:
        ValueError: the folder does not hold lists, is of another version, or is damaged; the
            message names the file. Shapes, types and offsets are checked here, and labels, weights,
            codes and texts when they are read.

    >>> open_lists("no/such/lists")
    Traceback (most recent call last):
    ...
    ValueError: path must be a folder of lists, got no/such/lists (no schema.json)
    """
    files = ListFiles(path)
    return ListDataset.of_files(files, StoredQids(files))


def is_list_folder(path: Any) -> bool:
    """Return whether a path is a folder of lists, also one of an earlier version.

    >>> is_list_folder("no/such/folder")
    False
    """
    if not isinstance(path, str | PathLike):
        return False
    folder = Path(path).expanduser()
    return any((folder / name).is_file() for name in (HEAD, "manifest.json"))


def check_schema(path: Path, schema: Schema | None, arrays: Mapping[str, Any]) -> None:
    """Raise a ValueError if the arrays of a folder do not fit its schema."""
    if schema is None:
        return
    known = {key: arrays[key].shape[1] if key in arrays else 0 for key in _WIDE}
    wanted = {"features": schema.num_features, "categories": len(schema.categories)}
    for key, width in wanted.items():
        if known[key] != width:
            raise ValueError(f"{path}: the schema has {width} {key}, got {known[key]}")


def text_schema(key: str) -> pa.Schema:
    """Return the schema of the file of the qids or the document ids."""
    return pa.schema([pa.field({"qids": "qid"}.get(key, key), pa.large_string())])


def _range(least: float, most: float, limit: Any) -> str:
    """Return which values an array may have, in words."""
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
        if (folder / "manifest.json").is_file():
            raise ValueError(
                f"path must be a folder of lists of version {VERSION}, got {folder}, a store of an "
                "earlier version: convert again"
            )
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
