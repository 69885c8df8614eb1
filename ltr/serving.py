"""Score documents with an exported model: needs numpy and onnxruntime, nothing else.

This file stands alone: copy it into a service. It reads the ONNX file that `ltr export` or
`NeuralRanker.export` wrote.
"""

import json
from collections.abc import Mapping, Sequence
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
        ValueError: the file was not written by `ltr export`.
    """

    def __init__(self, path: str, threads: int = 1) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        found = self._session.get_modelmeta().custom_metadata_map
        if "ltr" not in found:
            raise ValueError(f"path must be an ONNX file that `ltr export` wrote, got {path}")
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
            ValueError: a column is missing, or holds what is no number.
        """
        if self.about["features"] is None:
            raise ValueError("the model has no names of columns: use score_arrays")
        if not len(documents):
            return np.zeros(0, dtype=np.float32)
        columns = _columns(documents)
        parts = []
        for name, width in self.about["features"].items():
            values = _numbers(name, _column(columns, name), width)
            parts.append(values)
        rows = len(next(iter(columns.values()), ()))
        features = np.concatenate(parts, axis=1) if parts else np.zeros((rows, 0), np.float32)
        categories = None
        if self._codes:
            codes = [
                [self._code(name, value) for value in _column(columns, name)]
                for name in self._codes
            ]
            categories = np.array(codes, dtype=np.int64).reshape(len(codes), -1).T
        return self.score_arrays(features, categories)

    def score_arrays(
        self, features: np.ndarray, categories: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the scores of one list, float32 (documents,).

        Args:
            features: (documents, d); NaN is a missing value.
            categories: (documents, c), codes: 1 for the first level, 0 for a missing or unseen
                value. None if the model has none.
        """
        features = np.asarray(features, dtype=np.float32)
        if not len(features):
            return np.zeros(0, dtype=np.float32)
        given = {"features": features}
        if categories is not None:
            given["categories"] = np.asarray(categories, dtype=np.int64)
        if self.about["looks_at_list"]:
            given["mask"] = np.ones(len(features), dtype=bool)
        if not self.about["per_document"]:
            given = {name: value[None] for name, value in given.items()}
        return np.asarray(self._session.run(None, given)[0]).reshape(-1)

    def _code(self, name: str, value: Any) -> int:
        if value is None or value != value:
            return 0
        if self.about["categories"][name]["kind"] == "boolean":
            value = str(bool(value)).lower()
        elif self.about["categories"][name]["kind"] == "number" and float(value).is_integer():
            value = int(value)
        return self._codes[name].get(str(value), 0)


def _columns(documents: Any) -> Mapping[str, Any]:
    if hasattr(documents, "columns") and not isinstance(documents, Mapping):  # a data frame
        return {str(name): documents[name] for name in documents.columns}
    if isinstance(documents, Mapping):
        return documents
    names = dict.fromkeys(name for one in documents for name in one)
    return {name: [one.get(name) for one in documents] for name in names}


def _column(columns: Mapping[str, Any], name: str) -> Sequence[Any]:
    if name not in columns:
        raise ValueError(f"documents must have the column {name!r}, got {sorted(columns)}")
    values = columns[name]
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _numbers(name: str, values: Sequence[Any], width: int) -> np.ndarray:
    empty = np.nan if width == 1 else [np.nan] * width
    try:
        found = np.array([empty if x is None else x for x in values], dtype=np.float32)
        return found.reshape(len(values), width)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"column {name!r} must hold {width} number(s) a document: {error}"
        ) from None
