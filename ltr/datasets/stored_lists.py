"""The lists of a store as a data set, read from the disk on demand."""

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.datasets.lists import ListDataset
from ltr.datasets.shards import WIDE, Shard
from ltr.datasets.store import Qids, Store
from ltr.shapes import check_at_least

_COLUMNS = (
    "features",
    "_labels",
    "categories",
    "weight",
    "position",
    "protected",
    "doc_id",
    "rows",
)

FIT_VALUES = 1 << 28
"""Of a store with more features than this in all documents (1 GiB), a sample is read to fit on."""


class StoredLists(ListDataset):
    """The lists of a store (`open_store`), like a `ListDataset` but not in memory.

    A batch is copied from the mapped shards of its lists. `features`, `labels` and the other arrays
    read the whole column from the disk at each access. If the store has one shard, and all of its
    lists are selected, they are mapped instead. `select` and `widen` copy only the numbers of the
    lists.

    Args:
        store: the files.

    Attributes:
        store: the files.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lists: np.ndarray | None = None  # which ones, if not all
        self._offsets: np.ndarray = store.offsets
        self._width = store.widths.get("features", 0)
        self._columns: np.ndarray | None = None  # which features, if not all
        # of each category: its position in the store, and its codes by the store's
        self._codes: list[tuple[int, np.ndarray]] | None = None
        self._first_row: int | None = None

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def in_memory(self) -> ListDataset:
        """Return the lists in memory; they are mapped if the store has one shard.

        >>> from tempfile import mkdtemp
        >>> from ltr.datasets import open_store, write_store
        >>> data = ListDataset.from_arrays([[1.0], [2.0]], labels=[0, 2], qid=["a", "b"])
        >>> write_store(data, folder := mkdtemp())
        >>> open_store(folder).in_memory().labels
        array([0., 2.], dtype=float32)
        """
        if not self._is_mapped():
            return self.read(np.arange(len(self)))
        return self.store.shard(0).lists(self._offsets, [*self.store.qids])

    def to_fit(self) -> ListDataset:
        """Return the lists to fit a transform on, in memory.

        These are all lists. For a store with more than `FIT_VALUES` feature values, they are a
        sample of whole lists, drawn without regard to their labels and always the same.
        """
        values = max(1, int(self._offsets[-1])) * max(1, self.num_features)
        if values <= FIT_VALUES:
            return self.in_memory()
        count = max(1, len(self) * FIT_VALUES // values)
        drawn = np.random.default_rng(0).choice(len(self), count, replace=False, shuffle=False)
        return self.read(np.sort(drawn))

    def select(self, lists: Sequence[int] | np.ndarray) -> "StoredLists":
        """Return a data set with only these lists, in this order; this reads nothing."""
        chosen = np.asarray(lists, dtype=np.int64)
        return self._with(
            _lists=chosen if self._lists is None else self._lists[chosen],
            _offsets=np.r_[0, np.cumsum(self.lengths[chosen])],
        )

    def between(self, start: int, stop: int) -> "StoredLists":
        """Return neighboring lists; this reads nothing."""
        return self.select(range(start, stop))

    def widen(self, num_features: int) -> "StoredLists":
        """Return the same lists, with features of 0 up to `num_features`; this reads nothing.

        Raises:
            ValueError: there are already more features.
        """
        check_at_least("num_features", num_features, self.num_features)
        if num_features == self.num_features:
            return self
        if self._columns is None:
            return self._with(_width=num_features)
        # past the last feature of the store is one of 0
        more = np.full(num_features - self.num_features, self._width)
        return self._with(_columns=np.r_[self._columns, more], _width=self._width + 1)

    def take_features(self, indices: np.ndarray) -> "StoredLists":
        """Return the lists with only the features of these indices; this reads nothing."""
        return self._with(_columns=indices if self._columns is None else self._columns[indices])

    def with_codes(self, codes: list[tuple[int, np.ndarray]]) -> "StoredLists":
        """Return the same lists with other categories; this reads nothing.

        Args:
            codes: for each category, its position in the store, and a new code for each code of the
                store.
        """
        return self._with(_codes=codes)

    def numbered(self, start: int) -> "StoredLists":
        """Return the same lists with `rows` that count from `start` in the store's order."""
        return self._with(_first_row=start)

    def __getattr__(self, name: str) -> Any:
        """Return a column of all documents, such as `features`, read from the disk."""
        if name not in _COLUMNS:
            raise AttributeError(f"StoredLists has no attribute {name!r}", name=name, obj=self)
        only = (
            self.in_memory()
            if self._is_mapped()
            else self.read(np.arange(len(self)), {name.removeprefix("_")})
        )
        return getattr(only, name)

    @property
    def offsets(self) -> np.ndarray:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The first document of each list, int64 (lists + 1,); mapped, without a selection."""
        return self._offsets

    @property
    def qids(self) -> Qids:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The qids, read from the disk on demand."""
        return self.store.qids if self._lists is None else self.store.qids.take(self._lists)

    @property
    def has_labels(self) -> bool:
        """Whether there are labels."""
        return "labels" in self.store.widths

    @property
    def num_features(self) -> int:
        """How many features a document has."""
        return self._width if self._columns is None else len(self._columns)

    @property
    def num_categories(self) -> int:
        """How many categories a document has."""
        return self.store.widths.get("categories", 0) if self._codes is None else len(self._codes)

    def columns(self) -> dict[str, np.ndarray]:
        """The arrays besides the features; see `ListDataset.columns`."""
        return self.in_memory().columns()

    def relevant(self) -> np.ndarray:
        """Return which lists have a document of label > 0; this reads no shard."""
        return self.store.relevant(self._lists)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_offsets"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)  # the files are mapped again
        every, lists = self.store.offsets, self._lists
        self._offsets = every
        if lists is not None:
            self._offsets = np.r_[0, np.cumsum(every[lists + 1] - every[lists])]

    def _is_mapped(self) -> bool:
        """Return whether the arrays are those of the only shard."""
        changes = (self._lists, self._columns, self._codes, self._first_row)
        same = self._width == self.store.widths.get("features", 0)
        return len(self.store.entries) == 1 and same and all(one is None for one in changes)

    def read(self, chosen: np.ndarray, only: set[str] | None = None) -> ListDataset:
        """Copy lists from the shards into memory, all columns or some."""
        store = self.store
        lists = chosen if self._lists is None else self._lists[chosen]
        starts = store.offsets[lists]
        offsets = np.r_[0, np.cumsum(store.offsets[lists + 1] - starts)]
        widths = {**store.widths, "features": max(store.widths.get("features", 0), self._width)}
        widths = {key: n for key, n in widths.items() if only is None or key in only}
        documents = int(offsets[-1])
        arrays: dict[str, np.ndarray] = {}
        for key in widths.keys() - {"doc_id"}:
            dtype = np.int64 if key in ("categories", "position") else np.float32
            arrays[key] = np.empty((documents, widths[key]) if key in WIDE else documents, dtype)
        qids: list[str] = []
        ids: list[Any] = []
        shards = np.searchsorted(store.first_list, lists, side="right") - 1
        # runs of neighboring lists in a shard
        breaks = (np.diff(lists, prepend=-2) != 1) | (np.diff(shards, prepend=-1) != 0)
        firsts = np.flatnonzero(breaks)
        ends = np.append(firsts[1:], len(lists))[: len(firsts)]  # none of no lists
        numbers = shards[firsts]
        positions = starts[firsts] - store.first_document[numbers]
        local = lists[firsts] - store.first_list[numbers]
        runs = np.stack([numbers, offsets[firsts], offsets[ends], positions, local, ends - firsts])
        for number, begin, stop, position, first, count in runs.T.tolist():
            shard = store.shard(number)
            there = slice(position, position + stop - begin)
            for key, array in arrays.items():
                source, target = shard.columns.get(key), array[begin:stop]
                if key in WIDE:  # a shard may be narrower than another, and than these lists
                    width = 0 if source is None else source.shape[1]
                    if width < widths[key]:
                        target[:, width:] = 0
                        target = target[:, :width]
                if source is not None:
                    target[:] = source[there]
            names, _ = store.lists[number]
            qids += names.slice(first, count).to_pylist()
            if "doc_id" in widths:
                ids.append(_ids(shard.doc_id, there))
        if self._columns is not None and "features" in arrays:
            arrays["features"] = arrays["features"][:, self._columns]
        if self._codes is not None and "categories" in arrays:
            codes = arrays.pop("categories")
            new = [table[codes[:, position]] for position, table in self._codes]
            arrays |= {"categories": np.stack(new, axis=1)} if new else {}
        if self._first_row is not None and (only is None or "rows" in only):
            before = self._first_row + self._offsets[chosen] - offsets[:-1]
            arrays["rows"] = np.arange(documents) + np.repeat(before, np.diff(offsets))
        doc_id = None
        if "doc_id" in widths:
            doc_id = pa.concat_arrays(ids) if ids else pa.array([], pa.string())
        return Shard(arrays, doc_id).lists(offsets, qids)


def open_store(path: str | PathLike[str]) -> StoredLists:
    """Open a store of lists, written by `ltr convert` or `write_store`.

    Opening takes milliseconds, and only batches need memory: see `StoredLists`.

    Args:
        path: the folder.

    Raises:
        ValueError: the folder is not a store, is of another version, or is damaged. A shard of the
            wrong size is found here. Other damage is found when one of its lists is first
            requested. The message names the shard.

    >>> open_store("no/such/store")
    Traceback (most recent call last):
    ...
    ValueError: path must be a list store, got no/such/store (no manifest.json)
    """
    return StoredLists(Store(path))


def _ids(found: Any, there: slice) -> Any:
    if found is None:
        return pa.repeat(pa.scalar("", pa.string()), there.stop - there.start)
    return found.slice(there.start, there.stop - there.start).cast(pa.string())
