"""Score documents with an exported model: needs numpy and onnxruntime, nothing else.

This file stands alone: copy it into a service. It reads the ONNX file that `ltr export` or
`NeuralRanker.export` wrote.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from os import PathLike
from typing import Any

import numpy as np


class OnnxRanker:
    """A ranking model in an ONNX file.

    Args:
        path: the file.
        threads: how many threads score, >= 1. Default: 1, as a service with many requests wants.

    Attributes:
        about: what the file says of the model: its columns, the levels of its categories, whether
            it looks at the whole list.

    Raises:
        ValueError: threads < 1; the file cannot be read, or was not written by `ltr export`.
    """

    def __init__(self, path: str | PathLike[str], threads: int = 1) -> None:
        import onnxruntime

        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise ValueError(f"threads must be a whole number >= 1, got {threads!r}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        wanted = "path must be an ONNX file that `ltr export` wrote, got"
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's errors have no base class of their own
            raise ValueError(f"{wanted} {path}: {error}") from error
        found = self._session.get_modelmeta().custom_metadata_map
        if "ltr" not in found:
            raise ValueError(f"{wanted} {path}")
        self._widths = {one.name: one.shape[-1] for one in self._session.get_inputs()}
        self.about: dict[str, Any] = json.loads(found["ltr"])
        self._codes = {
            name: {level: code for code, level in enumerate(one["levels"], start=1)}
            for name, one in (self.about["categories"] or {}).items()
        }

    def score(self, documents: Any) -> np.ndarray:
        """Return the scores of one list of documents, float32 (documents,); higher ranks first.

        Args:
            documents: a data frame, a mapping of columns, or a sequence of dicts, one a document.
                Columns are matched by name, and others are ignored. None and NaN are missing, as is
                a key that a dict lacks; a category that training did not have counts as missing.

        Raises:
            ValueError: documents are none of these; a column is missing, holds what is no number,
                or is of another length than the others.
        """
        widths = self.about["features"]
        if widths is None:
            raise ValueError("the model has no names of columns: use score_arrays")
        documents = _documents(documents)
        if not documents:
            return np.zeros(0, dtype=np.float32)
        by_rows = isinstance(documents, list) and set(widths.values()) <= {1}
        names = [*({} if by_rows else widths), *self._codes]
        columns = {name: _column(documents, name) for name in names}
        rows = len(documents) if by_rows else len(columns[names[0]])
        for name, values in columns.items():
            if len(values) != rows:
                raise ValueError(
                    f"documents must have columns of one length, got {len(values)} in {name!r} and "
                    f"{rows} in {names[0]!r}"
                )
        if by_rows:
            features = _rows(documents, [*widths])
        else:
            parts = [_numbers(name, columns[name], width) for name, width in widths.items()]
            features = np.concatenate([np.zeros((rows, 0), dtype=np.float32), *parts], axis=1)
        categories = None
        if self._codes:
            codes = [[self._code(name, value) for value in columns[name]] for name in self._codes]
            categories = np.array(codes, dtype=np.int64).T
        return self.score_arrays(features, categories)

    def score_arrays(
        self, features: np.ndarray, categories: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the scores of one list, float32 (documents,).

        Args:
            features: (documents, d); NaN is a missing value.
            categories: (documents, c), codes: 1 for the first level, 0 for a missing or unseen
                value. None if the model has none.

        Raises:
            ValueError: an array is of another shape or type, or the model's categories are missing.
        """
        features = _array("features", features, np.float32)
        if features.shape[:1] == (0,):
            return np.zeros(0, dtype=np.float32)
        given = {"features": features}
        if categories is not None:
            given["categories"] = _array("categories", categories, np.int64)
        for name in ("features", "categories"):
            width = self._widths.get(name)
            shape = None if width is None else (*features.shape[:1], width)
            got = given[name].shape if name in given else None
            if got != shape:
                raise ValueError(f"{name} must be {shape and f'of shape {shape}'}, got {got}")
        if self.about["looks_at_list"]:
            given["mask"] = np.ones(len(features), dtype=bool)
        if not self.about["per_document"]:
            given = {name: value[None] for name, value in given.items()}
        return np.asarray(self._session.run(None, given)[0]).reshape(-1)

    def _code(self, name: str, value: Any) -> int:
        if _is_na(value) or value != value:
            return 0
        kind = self.about["categories"][name]["kind"]
        if kind == "boolean":
            value = (value if isinstance(value, str) else str(bool(value))).lower()
        elif kind == "number":
            try:
                value = int(value) if float(value).is_integer() else value
            except (TypeError, ValueError):
                raise ValueError(f"column {name!r} must hold numbers, got {value!r}") from None
        return self._codes[name].get(str(value), 0)


def _documents(documents: Any) -> Mapping[str, Any] | list[Mapping[str, Any]]:
    """Return columns by name, or a list of dicts."""
    if isinstance(documents, Mapping):
        return documents
    if hasattr(documents, "columns"):  # a data frame
        return {str(name): documents[name] for name in documents.columns}
    found = list(documents) if hasattr(documents, "__iter__") else [documents]
    for one in found:
        if not isinstance(one, Mapping):
            raise ValueError(
                "documents must be a data frame, a mapping of columns or a sequence of dicts, got "
                f"{type(documents).__name__} with {one!r}"[:200]
            )
    return found


def _column(documents: Mapping[str, Any] | list[Mapping[str, Any]], name: str) -> Sequence[Any]:
    if isinstance(documents, list):
        _find([name], set().union(*documents))
        return [one.get(name) for one in documents]
    _find([name], documents)
    values = documents[name]
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise ValueError(f"column {name!r} must hold a value for each document, got {values!r}")
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _find(names: Sequence[str], there: Collection[str]) -> None:
    for name in names:
        if name not in there:
            raise ValueError(
                f"documents must have the column {name!r}, got {sorted(map(str, there))}"
            )


def _rows(documents: list[Mapping[str, Any]], names: list[str]) -> np.ndarray:
    """Return a number for each document and name; row by row is faster than column by column."""
    pick = itemgetter(*names) if len(names) > 1 else lambda one: [one[name] for name in names]
    try:
        found = [pick(one) for one in documents]
    except KeyError:
        _find(names, set().union(*documents))
        found = [[one.get(name) for name in names] for one in documents]
    try:
        return np.array(found, dtype=np.float32).reshape(len(documents), len(names))  # None is NaN
    except (TypeError, ValueError):
        for name, values in zip(names, zip(*found, strict=True), strict=True):
            _numbers(name, values, 1)
        raise


def _is_na(value: Any) -> bool:
    """Return whether a value is None, or pandas's NA, which cannot be compared."""
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _numbers(name: str, values: Sequence[Any], width: int) -> np.ndarray:
    empty = np.nan if width == 1 else [np.nan] * width
    try:
        found = np.array([empty if _is_na(x) else x for x in values], dtype=np.float32)
        return found.reshape(len(values), width)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"column {name!r} must hold {width} number(s) a document: {error}"
        ) from None


def _array(name: str, values: Any, dtype: type) -> np.ndarray:
    try:
        found = np.asarray(values)
        if dtype is np.int64 and found.dtype.kind not in "iu":
            raise TypeError(f"{found.dtype} in place of whole numbers")
        return found.astype(dtype, copy=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers, got {error}") from None
