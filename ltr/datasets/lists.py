"""Lists of documents in flat arrays, in memory or mapped from files."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import Dataset

from ltr.arrays import as_names, as_numbers, as_texts, is_absent
from ltr.datasets.schema import Schema
from ltr.names import plural
from ltr.shapes import check_at_least

FIT_VALUES = 1 << 28
"""If lists have more feature values than this (1 GiB), a transform is fitted on a sample."""

BLOCK_VALUES = 1 << 23
"""The number of feature values (32 MiB) that are read at a time if all lists are read."""


@dataclass(frozen=True)
class ListSummary:
    """The size of a data set; the data modules log its `str()`.

    Attributes:
        lists: how many lists there are.
        documents: how many documents all lists have together.
        features: how many features a document has.
        longest: the length of the longest list.
        without_relevant: how many lists have no document with label > 0; these lists are kept. None
            if there are no labels.
        of_one: how many lists have only one document; these lists are kept.
        categories: how many categories a document has.
    """

    lists: int
    documents: int
    features: int
    longest: int
    without_relevant: int | None
    of_one: int
    categories: int = 0

    def __str__(self) -> str:
        relevant = "there are no labels"
        if self.without_relevant is not None:
            have = plural(self.without_relevant, "has", "have")
            relevant = f"{self.without_relevant} {have} no relevant document"
        columns = f"{self.features} {plural(self.features, 'feature')}"
        if self.categories:
            columns += f" and {self.categories} {plural(self.categories, 'category', 'categories')}"
        return (
            f"{self.lists} {plural(self.lists, 'list')}, {self.documents} "
            f"{plural(self.documents, 'document')}, {columns}; the longest list has "
            f"{self.longest} {plural(self.longest, 'document')}, {relevant}, "
            f"{self.of_one} {plural(self.of_one, 'has', 'have')} one document (all are kept)"
        )


class ListDataset(Dataset[dict[str, Any]]):
    """Lists of documents; `dataset[i]` is one list as a dict of tensors and names.

    The dict of a list of n documents has `features` float32 (n, d), `mask` bool (n,), all True, and
    `qid`, a string. If the data have them, it also has `labels` float32 (n,), `doc_id` (n strings),
    `categories` int64 (n, c), `weight` float32 (n,), `position` int64 (n,), `protected` float32
    (n,) and `rows` int64 (n,). `dataset[-1]` is a filler: a list of one masked document with the
    qid "", for `ListSampler`.

    A `DataLoader` requests a whole batch at once (`__getitems__`). A batch of B lists with N
    documents in all is ragged: arrays are (N, ...) instead of (n, ...), and `lengths` int64 (B,)
    replaces the mask. A filler has length 0. Use `collate_ragged` as the loader's `collate_fn` to
    keep this form, or `collate_lists` to pad.

    Most users get a data set from `read_letor`, `read_table`, `open_lists` or
    `ListDataset.from_arrays`, which check the data. This constructor checks only shapes, and keeps
    the arrays without a copy.

    Lists need not fit into memory: numpy maps the arrays of `open_lists` from their files. A batch
    is a copy. `select`, `take_features`, `with_codes` and `widen` copy nothing. They share the
    arrays, and note which lists, features and codes to read later. After such a call, each access
    to `features` or another array copies the values of all chosen documents. Call `in_memory` to
    copy them only once.

    Args:
        features: float32 (documents, d); NaN is a missing value.
        labels: float32 (documents,), >= 0; or (documents, labels) for several labels, with NaN
            where one is not known; None for data without labels.
        offsets: int64 (lists + 1,), ascending; list i has the documents offsets[i] to
            offsets[i + 1] - 1, at least one.
        qids: one string per list.
        doc_id: one string per document, or None if the data have none.
        categories: int64 (documents, c), codes of categories; 0 is missing or unseen.
        weight: float32 (documents,), >= 0.
        position: int64 (documents,), the position at which each document was shown, from 1.
        protected: float32 (documents,), the protected group: above 0 for its documents; see
            `ExposureParity`.
        rows: int64 (documents,), the row of each document in its table, from 0.

    Attributes:
        schema: the schema of the table that the lists of `open_lists` come from; otherwise None.
        first_feature: the index that the first feature had in LETOR text, 0 or 1 (the default).

    Raises:
        ValueError: the shapes do not fit together.

    >>> data = ListDataset.from_arrays([[1.0], [2.0], [3.0]], labels=[0, 2, 1], qid=[7, 7, 8])
    >>> len(data)
    2
    >>> data[0]["labels"], data[0]["qid"]
    (tensor([0., 2.]), '7')
    >>> data.__getitems__([1, 0])["lengths"]
    tensor([1, 2])
    """

    def __init__(
        self,
        features: np.ndarray,
        labels: np.ndarray | None,
        offsets: np.ndarray,
        qids: Sequence[str] | pa.ChunkedArray,
        doc_id: Sequence[str] | pa.StringArray | pa.ChunkedArray | None = None,
        *,
        categories: np.ndarray | None = None,
        weight: np.ndarray | None = None,
        position: np.ndarray | None = None,
        protected: np.ndarray | None = None,
        rows: np.ndarray | None = None,
    ) -> None:
        arrays: dict[str, Any] = {"labels": labels, "categories": categories, "weight": weight}
        arrays |= {"position": position, "protected": protected, "rows": rows}
        arrays = {name: array for name, array in arrays.items() if array is not None}
        arrays = {"features": features, **arrays}
        for name, array in {**arrays, "offsets": offsets}.items():
            if not isinstance(array, np.ndarray):
                raise ValueError(f"{name} must be an array of numpy, got {array!r}")
            if np.ma.is_masked(array):
                raise ValueError(
                    f"{name} must not be masked, got {np.ma.count_masked(array)} masks"
                )
        documents = len(features) if labels is None else len(labels)
        for name, array in arrays.items():
            axis = {"features": " d", "categories": " c"}.get(name, "")
            if name == "labels" and array.ndim == 2:
                axis = " labels"
            if array.ndim != 1 + bool(axis) or len(array) != documents:
                raise ValueError(f"{name} must be ({documents},{axis}), got shape {array.shape}")
        if offsets.shape != (len(qids) + 1,) or offsets[0] != 0 or offsets[-1] != documents:
            got = f"{len(offsets)} from {offsets[0]} to {offsets[-1]}" if len(offsets) else "none"
            raise ValueError(
                f"offsets must be {len(qids) + 1} numbers from 0 to {documents}, got {got}"
            )
        if doc_id is not None:
            if len(doc_id) != documents:
                raise ValueError(f"doc_id must be {documents} strings, got {len(doc_id)}")
            arrays["doc_id"] = _as_chunks("doc_id", doc_id)
        arrays |= {"offsets": offsets, "qids": _as_chunks("qids", qids)}
        self._arrays: Mapping[str, Any] = arrays
        self.schema: Schema | None = None
        self.first_feature = 1
        # The attributes below are the lazy index: what to read from the arrays. Each is None until
        # the method that its comment names sets it.
        self._chosen: np.ndarray | None = None  # `select`: the number of each list in the arrays
        self._numbered: bool | None = None  # `numbered`: whether `rows` are positions in the arrays
        # `take_features`: the index of each feature; -1 is a feature of zeros
        self._columns: np.ndarray | None = None
        # `with_codes`: for each category, its index, and the new code of each code
        self._codes: list[tuple[int, np.ndarray]] | None = None

    @classmethod
    def from_arrays(
        cls,
        features: Any,
        labels: Any,
        qid: Any,
        doc_id: Any = None,
        *,
        padding: float | None = None,
    ) -> "ListDataset":
        """Make lists from numpy arrays, tensors, pandas data (also from Parquet) or Python lists.

        The rows of a qid need not be together. Lists are in the order of their first rows, and the
        documents of a list in the order of their rows. If rows are moved, `rows` of the result
        gives each document's row.

        Args:
            features: (documents, d), finite.
            labels: (documents,), graded relevance >= 0; or (documents, labels), several labels,
                with NaN where one is not known.
            qid: (documents,), the name of each document's list; any type, kept as a string: see
                `ltr.columns.qid_text`.
            doc_id: (documents,), the documents' names, kept as strings by the same rule; None if
                they have none.
            padding: the label of padding rows, such as -1 in allRank and TF-Ranking; these rows are
                left out, whatever their other values are. None: there are no padding rows.

        Raises:
            ValueError: a shape does not fit, a feature is not finite, a label is negative or not
                finite, or a qid or a document id is missing; the message names the row.

        >>> import pandas as pd
        >>> table = pd.DataFrame({"q": ["a", "a", "b"], "f1": [0.1, 0.2, 0.3], "y": [1, 0, 2]})
        >>> ListDataset.from_arrays(table[["f1"]], table["y"], table["q"]).summary().lists
        2
        """
        values = as_numbers("features", features)
        if values.ndim != 2 or 0 in values.shape:
            raise ValueError(f"features must be (documents, d), not empty, got {values.shape}")
        given = values
        with np.errstate(over="ignore"):
            values = np.ascontiguousarray(values, dtype=np.float32)
            grades = as_numbers("labels", labels).astype(np.float32)
        names = as_names("qid", qid)
        ids = None if doc_id is None else as_names("doc_id", doc_id)
        documents = len(values)
        for argument, array in (("labels", grades), ("qid", names), ("doc_id", ids)):
            several = argument == "labels" and array is not None and array.ndim == 2
            if array is not None and array.shape[: 2 - several] != (documents,):
                raise ValueError(f"{argument} must have shape ({documents},), got {array.shape}")
        rows = np.arange(documents)  # these are the caller's row numbers
        if padding is not None:
            if isinstance(padding, bool) or not isinstance(padding, Real) or padding != padding:
                raise ValueError(f"padding must be the label of padding, got {padding!r}")
            rows = np.flatnonzero((grades != padding).reshape(documents, -1).any(axis=1))
            given, values, grades, names = (x[rows] for x in (given, values, grades, names))
            ids = None if ids is None else ids[rows]
            if not len(rows):
                raise ValueError(f"labels must not all be padding, got padding={padding!r}")
        for row in np.flatnonzero(~np.isfinite(values).all(axis=1))[:1]:
            column = int(np.flatnonzero(~np.isfinite(values[row]))[0])
            raise ValueError(
                f"features must be finite in float32, got {given[row, column]} "
                f"at row {rows[row]}, column {column}"
            )
        good = np.isfinite(grades) & (grades >= 0)
        if grades.ndim == 2:
            good |= np.isnan(grades)
        for row, *column in np.argwhere(~good)[:1]:
            grade, hint = grades[row, *column], ""
            if grade < 0:
                hint = f": if that marks padding, leave the row out or give padding={grade:g}"
            raise ValueError(
                f"labels must be finite and >= 0, got {grade:g} at row {rows[row]}{hint}"
            )
        where: dict[str, Any] = {"numbers": rows, "at": "at row"}
        texts = as_texts("qid", names, "name a list", **where)
        if ids is not None:
            ids = as_texts("doc_id", ids, "be a name", is_wrong=is_absent, **where)
        codes = texts.dictionary_encode().indices.to_numpy()
        starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
        runs = texts.take(pa.array(starts)).to_pylist()
        offsets = np.r_[starts, len(rows)].astype(np.int64)
        data = cls(values, grades, offsets, runs, ids)
        return data if len({*runs}) == len(runs) else gather_runs(data.with_arrays(rows=rows))

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any], schema: Schema | None = None) -> Self:
        """Return the lists of named arrays, such as those that numpy maps from a folder.

        Args:
            arrays: the arguments of the constructor by name. Copies of the lists share the mapping.
            schema: the schema of the table that the lists come from.
        """
        return cls(**{"labels": None, **arrays})._with(_arrays=arrays, schema=schema)

    def __len__(self) -> int:
        return len(self._arrays["qids"] if self._chosen is None else self._chosen)

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not -1 <= index < len(self):
            raise IndexError(f"index must be in [-1, {len(self)}), got {index}")
        item = self.__getitems__([index])
        mask = torch.ones(int(item.pop("lengths")[0]), dtype=torch.bool)
        item["qid"] = item["qid"][0]
        if index == -1:
            mask = torch.zeros(1, dtype=torch.bool)
            tensors = {key: x for key, x in item.items() if isinstance(x, torch.Tensor)}
            item |= {key: x.new_zeros((1, *x.shape[1:])) for key, x in tensors.items()}
        return {**item, "mask": mask}

    def __getitems__(self, indices: Sequence[int]) -> dict[str, Any]:
        """Return a ragged batch of lists, as a copy, because numpy may have mapped an array.

        Args:
            indices: the numbers of the lists, in any order; -1 is a filler.

        Raises:
            IndexError: an index is out of range.
        """
        chosen = np.asarray(indices, dtype=np.int64)
        if len(chosen) and not (chosen.min() >= -1 and chosen.max() < len(self)):
            raise IndexError(f"indices must be in [-1, {len(self)}), got {list(indices)}")
        real = chosen >= 0
        arrays = self._read(chosen[real])
        lengths = np.zeros(len(chosen), np.int64)
        lengths[real] = np.diff(arrays.pop("offsets"))
        qids = np.full(len(chosen), "", object)
        qids[real] = arrays.pop("qids").to_pylist()
        batch: dict[str, Any] = {
            "features": torch.from_numpy(arrays.pop("features")),
            "lengths": torch.from_numpy(lengths),
            "qid": qids.tolist(),
        }
        for name, array in arrays.items():
            is_text = isinstance(array, pa.ChunkedArray)
            batch[name] = array.to_pylist() if is_text else torch.from_numpy(array)
        return batch

    def read(self, chosen: np.ndarray, only: set[str] | None = None) -> "ListDataset":
        """Return the chosen lists, as a copy in memory.

        Args:
            chosen: int64 (lists,), the numbers of the lists.
            only: the names of the arrays to read, such as {"labels"}. Default: all.
        """
        lazy = dict.fromkeys(("_chosen", "_numbered", "_columns", "_codes"))
        return self._with(_arrays=self._read(chosen, only), **lazy)

    def _read(self, chosen: np.ndarray, only: set[str] | None = None) -> dict[str, Any]:
        """Return the arrays of `read`."""
        lists = chosen if self._chosen is None else self._chosen[chosen]
        offsets = self._arrays["offsets"]
        starts = offsets[lists]
        lengths = offsets[lists + 1] - starts
        ends = np.r_[0, np.cumsum(lengths)]
        positions = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], lengths)
        names = [name for name in self._names if only is None or name in only]
        arrays = {name: self._of(name, positions) for name in names if name in self._arrays}
        if self._numbered and "rows" in names:
            arrays["rows"] = positions
        return {**arrays, "offsets": ends, "qids": _take(self._arrays["qids"], lists)}

    def in_memory(self) -> "ListDataset":
        """Return the lists with arrays in memory that hold no other lists; see `select`."""
        return self if self._is_ready else self.read(np.arange(len(self)))

    @property
    def _is_ready(self) -> bool:
        """Whether all arrays are in memory, with the chosen lists, features and codes alone."""
        index = self._chosen, self._columns, self._codes
        mapped = any(isinstance(array, np.memmap) for array in self._arrays.values())
        return not mapped and all(part is None for part in index)

    def between(self, start: int, stop: int) -> "ListDataset":
        """Return lists `start` to `stop` - 1; their arrays are parts of the same arrays."""
        if self._chosen is not None or self._numbered:
            return self.select(np.arange(start, stop))
        begin, end = self.offsets[[start, stop]].tolist()
        arrays = {name: self._arrays[name][begin:end] for name in self._arrays}
        arrays["offsets"] = self.offsets[start : stop + 1] - begin
        arrays["qids"] = self._arrays["qids"][start:stop]
        return self._with(_arrays=arrays)

    def blocks(
        self, values: int = BLOCK_VALUES, only: set[str] | None = None
    ) -> "Iterator[ListDataset]":
        """Yield the lists in order, in memory: these lists if they are ready, or copies in blocks.

        Args:
            values: the most feature values of a block; only a block of one list may have more.
            only: see `read`.
        """
        if self._is_ready:
            yield self
            return
        ends = self.offsets[1:] * max(1, self.num_features)
        start = 0
        while start < len(self):
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + values, side="right"))
            stop = max(stop, start + 1)
            yield self.read(np.arange(start, stop), only)
            start = stop

    def _with(self, **changes: Any) -> Self:
        """Return a copy of this object with new values of the given attributes."""
        copy = object.__new__(type(self))
        copy.__dict__.update({**self.__dict__, **changes})
        return copy

    @property
    def _names(self) -> list[str]:
        """The names of the arrays of documents."""
        names = [name for name in self._arrays if name not in ("offsets", "qids")]
        if self._codes is not None and not self._codes:
            names.remove("categories")
        return [*names, "rows"] if self._numbered else names

    def _of(self, name: str, positions: np.ndarray) -> Any:
        """Return the values of the documents at these positions of an array, as a copy."""
        values: Any = _take(self._arrays[name], positions)
        if name == "features" and self._columns is not None:
            known, stored = self._columns >= 0, values
            values = np.zeros((len(stored), len(known)), stored.dtype)
            values[:, known] = stored[:, self._columns[known]]
        if name == "categories" and self._codes is not None:
            values = np.stack([codes[values[:, column]] for column, codes in self._codes], axis=1)
        return values

    def _whole(self, name: str) -> Any:
        """Return an array for all documents, or None if there is no such array."""
        if name not in self._names:
            return None
        changes = {"features": self._columns, "categories": self._codes, "rows": self._numbered}
        if self._chosen is None and changes.get(name) is None:
            return self._arrays[name]
        return self.read(np.arange(len(self)), {name})._arrays[name]

    @property
    def offsets(self) -> np.ndarray:
        """Where each list starts, and where the last one ends, int64 (lists + 1,)."""
        offsets = self._arrays["offsets"]
        if self._chosen is None:
            return offsets
        return np.r_[0, np.cumsum(offsets[self._chosen + 1] - offsets[self._chosen])]

    @property
    def qids(self) -> list[str]:
        """The qid of each list; each access makes a new Python list."""
        return self.qid_texts.to_pylist()

    @property
    def qid_texts(self) -> pa.ChunkedArray:
        """The qids as Arrow strings, which take less memory than `qids`."""
        qids = self._arrays["qids"]
        return qids if self._chosen is None else _take(qids, self._chosen)

    @property
    def features(self) -> np.ndarray:
        """The features, float32 (documents, d); NaN is a missing value."""
        return self._whole("features")

    @property
    def has_labels(self) -> bool:
        """Whether there are labels; data that are only scored may have none."""
        return "labels" in self._arrays

    @property
    def labels(self) -> np.ndarray:
        """The labels, float32 (documents,), or (documents, labels) if there are several.

        Raises:
            ValueError: there are no labels.
        """
        if not self.has_labels:
            raise ValueError("the lists must have labels, got none: name the label column")
        return self._whole("labels")

    @property
    def relevance(self) -> np.ndarray:
        """One label of each document, float32 (documents,).

        Several labels are added up, each divided by its largest value; one that is not known is 0.

        Raises:
            ValueError: there are no labels.
        """
        labels = self.labels
        if labels.ndim == 1:
            return labels
        known = np.nan_to_num(labels)
        return (known / np.maximum(known.max(axis=0, initial=0), 1e-30)).sum(axis=1)

    @property
    def categories(self) -> np.ndarray | None:
        """The codes of categories, int64 (documents, c), or None."""
        return self._whole("categories")

    @property
    def weight(self) -> np.ndarray | None:
        """The weights, float32 (documents,), or None."""
        return self._whole("weight")

    @property
    def position(self) -> np.ndarray | None:
        """The positions at which documents were shown, int64 (documents,), or None."""
        return self._whole("position")

    @property
    def protected(self) -> np.ndarray | None:
        """The protected group, float32 (documents,): above 0 for its documents; or None."""
        return self._whole("protected")

    @property
    def rows(self) -> np.ndarray | None:
        """The row of each document in its table, int64 (documents,), or None."""
        return self._whole("rows")

    @property
    def doc_id(self) -> Any:
        """The names of the documents, a `pyarrow.StringArray`, or None."""
        names = self._whole("doc_id")
        return None if names is None else names.combine_chunks().cast(pa.string())

    def columns(self) -> dict[str, np.ndarray]:
        """Return all arrays except features and document ids, by their names in a batch."""
        names = ("labels", "categories", "weight", "position", "protected", "rows")
        named = {name: self._whole(name) for name in names}
        return {name: array for name, array in named.items() if array is not None}

    @property
    def num_features(self) -> int:
        """The number of features."""
        return self._arrays["features"].shape[1] if self._columns is None else len(self._columns)

    @property
    def num_categories(self) -> int:
        """How many categories a document has."""
        if self._codes is not None:
            return len(self._codes)
        return self._arrays["categories"].shape[1] if "categories" in self._arrays else 0

    @property
    def lengths(self) -> np.ndarray:
        """How many documents each list has, int64 (lists,)."""
        return np.diff(self.offsets)

    def summary(self) -> ListSummary:
        """Count lists and documents, and the lists that metrics treat specially.

        >>> data = ListDataset.from_arrays([[1.0], [2.0], [3.0]], labels=[0, 0, 1], qid=[7, 7, 8])
        >>> data.summary().without_relevant, data.summary().of_one
        (1, 1)
        """
        lengths = self.lengths
        return ListSummary(
            lists=len(self),
            documents=int(self.offsets[-1]),
            features=self.num_features,
            longest=int(lengths.max(initial=0)),
            without_relevant=int((~self.relevant()).sum()) if self.has_labels else None,
            of_one=int((lengths == 1).sum()),
            categories=self.num_categories,
        )

    def relevant(self) -> np.ndarray:
        """Return which lists have a document with a label > 0, bool (lists,).

        Raises:
            ValueError: there are no labels.
        """
        return np.any(self._of_labels(np.fmax) > 0, axis=1)

    def varied(self) -> np.ndarray:
        """Return which lists have at least two distinct values of a label, bool (lists,).

        Raises:
            ValueError: there are no labels.
        """
        return np.any(self._of_labels(np.fmax) > self._of_labels(np.fmin), axis=1)

    def _of_labels(self, extreme: np.ufunc) -> np.ndarray:
        """Return the largest or the least value of each list's labels, float32 (lists, labels)."""
        parts = self.blocks(only={"labels"}) if len(self) else ()
        values = [extreme.reduceat(part.labels, part.offsets[:-1]) for part in parts]
        return np.concatenate(values).reshape(len(self), -1) if values else np.empty((0, 1))

    def select(self, lists: Sequence[int] | np.ndarray) -> "ListDataset":
        """Return the lists with these numbers, in this order; no array is copied.

        Raises:
            ValueError: `lists` are not numbers from 0 to `len(self)` - 1.

        >>> data = ListDataset.from_arrays([[1.0], [2.0], [3.0]], labels=[0, 0, 1], qid=[7, 7, 8])
        >>> data.select([1, 0]).qids
        ['8', '7']
        """
        given = np.asarray(lists)
        chosen = given.astype(np.int64)
        if len(chosen) and (
            given.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= len(self)
        ):
            raise ValueError(f"lists must be numbers in [0, {len(self)}), got {lists!r}")
        return self._with(_chosen=chosen if self._chosen is None else self._chosen[chosen])

    def take_features(self, indices: np.ndarray) -> "ListDataset":
        """Return the lists with only the features at these indices; -1 is a feature of zeros."""
        if self._columns is not None:
            indices = np.where(indices < 0, -1, self._columns[indices])
        return self._with(_columns=indices)

    def with_codes(self, codes: list[tuple[int, np.ndarray]]) -> "ListDataset":
        """Return the lists with other categories.

        Args:
            codes: for each new categorical column, the index of the old column from which it is
                made, and an array with the new code of each old code.
        """
        if (before := self._codes) is not None:
            codes = [(before[i][0], table[before[i][1]]) for i, table in codes]
        return self._with(_codes=codes)

    def with_arrays(self, **arrays: Any) -> "ListDataset":
        """Return lists in memory with other arrays, such as `features`, for the same documents."""
        lists = self.in_memory()
        return lists._with(_arrays={**lists._arrays, **arrays})

    def divide_weights(self, divisor: float) -> "ListDataset":
        """Return the lists with their weights divided by a number; no other array is copied."""
        given = self._arrays["weight"]
        weight = np.empty(len(given), np.float32)
        # A quotient is rounded once, from float64, and no array of float64 is made.
        np.divide(given, divisor, out=weight, dtype=np.float64, casting="same_kind")
        return self._with(_arrays={**self._arrays, "weight": weight})

    def numbered(self) -> "ListDataset":
        """Return the same lists with `rows`: if they have none, documents are counted from 0.

        After `select`, the chosen documents are counted, and their arrays copied.
        """
        if self._numbered or "rows" in self._arrays:
            return self
        return (self if self._chosen is None else self.in_memory())._with(_numbered=True)

    def to_fit(self) -> "ListDataset":
        """Return the lists to fit a transform on, in memory: all lists, or a sample of them.

        If the lists have more than `FIT_VALUES` feature values, the result is a sample of whole
        lists. The labels do not influence the sample, and it is always the same.
        """
        values = int(self.offsets[-1]) * max(1, self.num_features)
        if values <= FIT_VALUES:
            return self.in_memory()
        count = max(1, len(self) * FIT_VALUES // values)
        drawn = np.random.default_rng(0).choice(len(self), count, replace=False, shuffle=False)
        return self.read(np.sort(drawn))

    def widen(self, num_features: int) -> "ListDataset":
        """Return the lists with `num_features` features; new features are 0, as in sparse files.

        Raises:
            ValueError: the lists already have more features.

        >>> data = ListDataset.from_arrays([[1.0], [2.0]], labels=[0, 1], qid=[7, 7])
        >>> data.widen(2)[0]["features"]
        tensor([[1., 0.],
                [2., 0.]])
        """
        check_at_least("num_features", num_features, self.num_features)
        known = self.num_features
        if num_features == known:
            return self
        return self.take_features(np.r_[np.arange(known), np.full(num_features - known, -1)])


def _as_chunks(name: str, texts: Any) -> pa.ChunkedArray:
    """Return strings as an Arrow array, which is compact, and quick to slice."""
    if isinstance(texts, pa.ChunkedArray):
        return texts
    try:
        array = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
    except (pa.ArrowException, UnicodeEncodeError) as error:
        raise ValueError(f"{name} must be strings, got {error}") from None
    if array.null_count:
        raise ValueError(f"{name} must be strings, got a missing one")
    return pa.chunked_array([array])


def _take(array: Any, positions: np.ndarray) -> Any:
    """Return the values at these positions of an array of numpy or Arrow, as a copy."""
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([_take_texts(array, positions)])
    return np.asarray(array).take(positions, axis=0)


def _take_texts(texts: pa.ChunkedArray, positions: np.ndarray) -> pa.StringArray:
    """Return the texts at these positions, as a copy.

    Arrow's own `take` first joins all chunks, and those of lists on disk need not fit into memory.
    """
    if texts.num_chunks == 1:
        return texts.chunk(0).take(pa.array(positions)).cast(pa.string())
    chunks: Any = texts.chunks
    starts = np.cumsum([0, *map(len, chunks)])
    chunk = np.searchsorted(starts, positions, side="right") - 1
    parts = [
        chunks[i].take(pa.array(positions[chunk == i] - starts[i])).cast(pa.string())
        for i in np.unique(chunk).tolist()
    ]
    taken = pa.concat_arrays([pa.array([], pa.string()), *parts])
    back = np.argsort(np.argsort(chunk, kind="stable"))
    return taken.take(pa.array(back))


def gather_runs(data: ListDataset) -> ListDataset:
    """Join all runs of each qid into one list; lists and documents stay in order of appearance.

    >>> from ltr.datasets.lists import ListDataset
    >>> rows = np.ones((3, 1), dtype=np.float32)
    >>> runs = ListDataset(rows, np.arange(3.0), np.arange(4), ["a", "b", "a"])
    >>> joined = gather_runs(runs)
    >>> joined.qids, joined.labels.tolist()
    (['a', 'b'], [0.0, 2.0, 1.0])
    """
    encoded = data.qid_texts.combine_chunks().dictionary_encode()
    if len(encoded.dictionary) == len(data):
        return data
    groups = encoded.indices.to_numpy()
    lengths = np.bincount(groups, weights=data.lengths).astype(np.int64)
    gathered = data.read(np.argsort(groups, kind="stable"))
    offsets = np.r_[0, np.cumsum(lengths)]
    return gathered.with_arrays(offsets=offsets, qids=pa.chunked_array([encoded.dictionary]))


def join_lists(parts: Iterable[ListDataset], *, across: bool = False) -> ListDataset:
    """Return the lists of several data sets, one after the other, in memory.

    A single data set is returned unchanged. If a data set has fewer features than another one, the
    missing features are 0. If only some data sets have document ids, the ids of the others are "".
    Any other column is kept only if all data sets have it.

    Args:
        parts: one or more data sets.
        across: whether the first list of a data set continues the last list of the previous one if
            both have the same qid.

    Raises:
        ValueError: there is no data set, or they have different numbers of labels or categories.

    >>> one = ListDataset.from_arrays([[1.0], [2.0]], labels=[0, 1], qid=["a", "b"])
    >>> two = ListDataset.from_arrays([[3.0, 4.0]], labels=[2], qid=["b"])
    >>> join_lists([one, two], across=True)[1]["features"]
    tensor([[2., 0.],
            [3., 4.]])
    """
    parts = list(parts)
    if not parts:
        raise ValueError("parts must have at least one data set, got none")
    if len(parts) == 1:
        return parts[0]
    width = max(part.num_features for part in parts)
    qids: list[str] = []
    starts, ids = [], []
    begin = 0
    for part in parts:
        own = part.qids
        same = across and qids[-1:] == own[:1]
        qids += own[same:]
        starts.append(part.offsets[same:-1] + begin)
        begin += len(part.features)
        none = pa.repeat(pa.scalar("", pa.string()), len(part.features))
        ids.append(none if part.doc_id is None else part.doc_id)
    doc_id = None
    if any(part.doc_id is not None for part in parts):
        doc_id = pa.concat_arrays(ids)
    columns = [part.columns() for part in parts]
    names = set.intersection(*({*own} for own in columns))
    for name in sorted(names):
        if len(counts := {math.prod(own[name].shape[1:]) for own in columns}) > 1:
            raise ValueError(f"parts must agree in the number of {name}, got {sorted(counts)}")
    joint = {name: np.concatenate([own[name] for own in columns]) for name in names}
    joined = ListDataset(
        np.concatenate([part.widen(width).features for part in parts]),
        joint.pop("labels", None),
        np.r_[np.concatenate(starts), begin].astype(np.int64),
        qids,
        doc_id,
        **joint,
    )
    joined.first_feature = parts[0].first_feature
    return joined


def constant_label(labels: np.ndarray, names: Sequence[str] = ()) -> str | None:
    """Return the only value of a label, in words, if it has one; None if each label varies.

    Args:
        labels: (documents,) or (documents, labels).
        names: the names of several labels.

    >>> constant_label(np.array([[0.0, np.nan], [1.0, np.nan]]), ["click", "buy"])
    "no value of 'buy'"
    >>> constant_label(np.array([2.0, 2.0]))
    '2'
    """
    columns = labels.reshape(len(labels), -1).T
    for i, values in enumerate(columns):
        known = values[~np.isnan(values)]
        if len(known) and known.min() < known.max():
            continue
        name = f" of {names[i] if i < len(names) else i!r}" * (len(columns) > 1)
        return f"{known[0]:g}{name}" if len(known) else f"no value{name}"
    return None


_RECENT = 16


class SeenNumbers:
    """The numbers of a stream, in 8 bytes each, to find one that returns.

    >>> seen = SeenNumbers()
    >>> seen.add(np.array([5, 6])), seen.add(np.array([7])), seen.add(np.array([8, 5]))
    (False, False, True)
    """

    def __init__(self) -> None:
        # This array is sorted, and so is each array of `_recent`.
        self._known = np.empty(0, np.int64)
        self._recent: list[np.ndarray] = []

    def add(self, numbers: np.ndarray) -> bool:
        """Add numbers, int64 (n,); return whether one occurs twice or came before."""
        fresh = np.unique(numbers)
        again = len(fresh) < len(numbers) or any(
            (known[np.minimum(np.searchsorted(known, fresh), len(known) - 1)] == fresh).any()
            for known in (self._known, *self._recent)
            if len(known)
        )
        self._recent.append(fresh)
        if len(self._recent) > _RECENT:
            self._known, self._recent = np.unique(np.concatenate([self._known, *self._recent])), []
        return again
