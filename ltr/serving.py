"""Score documents with an exported model, with only numpy and onnxruntime.

To use it in a service without ltr, copy this file and `columns.py` into a folder `ltr` there. It
reads the ONNX file that `ltr export` or `NeuralRanker.export` wrote.
"""

import json
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from numbers import Integral
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ltr.columns import (
    LARGEST,
    Category,
    Number,
    is_na,
    numbers,
    qid_text,
    shown,
    steps_of,
    unmasked,
)

# An exported file ends with an entry of ONNX metadata: these bytes, then 64 hexadecimal digits,
# which are the SHA-256 of all bytes before the entry.
_DIGEST = b"\x72\x4e\x0a\x0altr.sha256\x12\x40"


class OnnxRanker:
    """A ranking model in an ONNX file.

    Args:
        path: the file.
        threads: how many threads score a list, >= 1. Default: 1, which suits a service with many
            requests.

    Attributes:
        about: the file's description of the model: its columns, which of them are dates, the levels
            of its categories, and whether a score depends on the whole list.
        steps: a `Number`, `Vector`, `Date` or `Category` for each column, by name; empty if the
            model has no column names.

    Raises:
        ValueError: threads < 1; the file cannot be read, is damaged, or was not written by
            `ltr export`.
    """

    def __init__(self, path: str | PathLike[str], threads: int = 1) -> None:
        import onnxruntime

        if isinstance(threads, bool) or not isinstance(threads, Integral) or threads < 1:
            raise ValueError(f"threads must be a whole number >= 1, got {threads!r}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(threads)
        options.inter_op_num_threads = 1
        wanted = "path must be an ONNX file that `ltr export` wrote, got"
        try:
            file = Path(os.path.expanduser(path))
            if file.exists() and not file.is_file():  # reading a device may never end
                raise ValueError("it is not a regular file")
            content = file.read_bytes()
            _check_digest(content)
            self._session = onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
            metadata = self._session.get_modelmeta().custom_metadata_map
            self.about: dict[str, Any] = json.loads(metadata.get("ltr", "null"))
        except Exception as error:  # onnxruntime's errors have no base class of their own
            raise ValueError(f"{wanted} {path}: {error}") from error
        shapes = {given.name: given.shape for given in self._session.get_inputs()}
        self._widths = {name: shape[-1] for name, shape in shapes.items()}
        types = {given.name: given.type for given in self._session.get_inputs()}
        self._dtype = np.float64 if types["features"] == "tensor(double)" else np.float32
        self.steps = steps_of(self.about)
        self._features = {
            name: step for name, step in self.steps.items() if not isinstance(step, Category)
        }
        self._categories = {
            name: step for name, step in self.steps.items() if isinstance(step, Category)
        }
        self._names = [name for name, step in self._features.items() for _ in range(step.width)]

    def score(self, documents: Any) -> np.ndarray:
        """Return the scores of one list, float32 (documents,); higher scores rank first.

        Args:
            documents: a data frame, a mapping of columns, or a sequence with one dict per document.
                Columns are matched by name, and other columns are ignored. None and NaN are missing
                values; a category that was not in the training data counts as missing. Dates are
                `datetime.date` or `datetime.datetime`, or ISO 8601 text. They must have a time zone
                if, and only if, the dates in the training data had one.

        Raises:
            ValueError: documents have another type; a column, or a key of a document, is missing; a
                column has a value that cannot be read as its type, an infinite number, or another
                length than the others.
        """
        return self.score_arrays(*self._encoded(documents))

    def predict(self, table: Any, qid: Any = None) -> np.ndarray:
        """Return the scores of a table, float32 (rows,); within a query, higher scores rank first.

        Args:
            table: the rows of several queries, in any form that `documents` of `score` may have.
            qid: the name of the column of queries, or the query of each row (rows,); used only if a
                score depends on the whole list (`about["looks_at_list"]`).

        Raises:
            ValueError: see `score`; or `qid` is needed, but is missing, has a missing value or does
                not fit the rows.
        """
        features, codes = self._encoded(table)
        if not self.about["looks_at_list"]:
            return self.score_arrays(features, codes)
        if qid is None:
            raise ValueError(
                "qid must be given, the query of each row: the scores of this model depend on the "
                "whole list"
            )
        if isinstance(qid, str):
            names = _column(_documents(table), qid)
        elif isinstance(qid, np.ndarray) and qid.dtype.kind == "M":
            names = [*qid]  # these keep nanoseconds
        else:
            names = _column({"qid": qid}, "qid")
        if len(names) != len(features):
            raise ValueError(
                f"qid must have one value for each of the {len(features)} rows, got {len(names)}"
            )
        groups: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            if is_na(name) or name != name:
                raise ValueError(f"qid must name a query in each row, got {name} in row {row}")
            groups.setdefault(qid_text(name), []).append(row)
        scores = np.empty(len(features), dtype=np.float32)
        for rows in groups.values():
            own = None if codes is None else codes[rows]
            scores[rows] = self.score_arrays(features[rows], own)
        return scores

    def _encoded(self, documents: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the features and the codes of documents."""
        if self.about["features"] is None:
            raise ValueError("the model has no names of columns: use score_arrays")
        documents = _documents(documents)
        if not documents:
            documents = {name: [] for name in self.steps}
        plain = all(type(step) is Number for step in self._features.values())
        by_rows = isinstance(documents, list) and plain
        names = [*({} if by_rows else self._features), *self._categories]
        columns = {name: _column(documents, name) for name in names}
        rows = len(documents) if by_rows else len(columns[names[0]])
        for name, values in columns.items():
            if len(values) != rows:
                raise ValueError(
                    f"documents must have columns of one length, got {len(values)} in {name!r} and "
                    f"{rows} in {names[0]!r}"
                )
        if by_rows:
            features = _rows(documents, [*self._features], self._dtype)
        else:
            parts = [
                step.encode(name, columns[name], self._dtype)
                for name, step in self._features.items()
            ]
            features = np.concatenate([np.zeros((rows, 0), dtype=self._dtype), *parts], axis=1)
        categories = None
        if self._categories:
            codes = [step.encode(name, columns[name]) for name, step in self._categories.items()]
            categories = np.concatenate(codes, axis=1)
        return features, categories

    def score_arrays(
        self, features: np.ndarray, categories: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the scores of one list, float32 (documents,).

        Args:
            features: (documents, d); NaN is a missing value.
            categories: (documents, c), codes: 1 for the first level, 0 for a missing or unseen
                value. None if the model has no categories.

        Raises:
            ValueError: an array has a wrong shape or type, `categories` do not fit the model, or a
                feature is infinite in float32.
        """
        features = _array("features", features, self._dtype)
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
        for row, position in np.argwhere(np.abs(features) > LARGEST)[:1]:
            name = self._names[position] if self._names else int(position)
            raise ValueError(
                f"document {row}, column {name!r}: must be finite in float32, got "
                f"{features[row, position]}"
            )
        if self.about["looks_at_list"]:
            given["mask"] = np.ones(len(features), dtype=bool)
        if not self.about["per_document"]:
            given = {name: value[None] for name, value in given.items()}
        return np.asarray(self._session.run(None, given)[0]).reshape(-1)


def _check_digest(content: bytes) -> None:
    start = len(content) - 64 - len(_DIGEST)
    if start < 0 or not content[start:].startswith(_DIGEST):
        raise ValueError("it has no digest: export it again")
    if sha256(content[:start]).hexdigest().encode() != content[-64:]:
        raise ValueError("it is damaged: its digest is wrong")


def _documents(documents: Any) -> Mapping[str, Any] | list[Mapping[str, Any]]:
    """Return documents as columns by name, or as a list of dicts."""
    if isinstance(documents, Mapping):
        return documents
    names = getattr(documents, "column_names", getattr(documents, "columns", None))
    if names is not None:  # this is an Arrow table or a data frame
        return {str(name): documents[name] for name in names}
    listed = list(documents) if hasattr(documents, "__iter__") else [documents]
    for document in listed:
        if not isinstance(document, Mapping):
            raise ValueError(
                "documents must be a data frame, a mapping of columns or a sequence of dicts, got "
                f"{type(documents).__name__} with {document!r}"[:200]
            )
    return listed


def _column(documents: Mapping[str, Any] | list[Mapping[str, Any]], name: str) -> Sequence[Any]:
    if isinstance(documents, list):
        try:
            return [document[name] for document in documents]
        except KeyError:
            raise _missing(documents, [name]) from None
    if name not in documents:
        raise ValueError(
            f"documents must have the column {name!r}, got {shown(sorted(map(str, documents)))}"
        )
    values = unmasked(documents[name])
    kind = getattr(getattr(values, "dtype", None), "kind", str(getattr(values, "type", "")))
    if hasattr(values, "to_numpy") and kind.startswith(("f", "i", "u", "double", "halffloat")):
        # Only numbers become an array here, because dates would lose their time zone.
        values = values.to_numpy()
    elif hasattr(values, "to_pylist"):
        return values.to_pylist()
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        values = values.astype("datetime64[us]")  # this makes `tolist` return datetimes
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise ValueError(
            f"column {name!r} must hold one value for each document, got {shown(values)}"
        )
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiu":
        return values  # pyright: ignore[reportReturnType]
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _missing(documents: list[Mapping[str, Any]], names: Sequence[str]) -> ValueError:
    """Return the error for the first document that lacks one of the keys `names`."""
    lacking = (
        (row, name)
        for row, document in enumerate(documents)
        for name in names
        if name not in document
    )
    row, name = next(lacking)
    got = shown(sorted(map(str, documents[row])))
    return ValueError(f"document {row} must have the key {name!r}, got {got}")


def _rows(documents: list[Mapping[str, Any]], names: list[str], dtype: type) -> np.ndarray:
    """Return the features (documents, names), read row by row, which is faster than by column."""
    pick = (
        itemgetter(*names)
        if len(names) > 1
        else lambda document: [document[name] for name in names]
    )
    try:
        rows = [pick(document) for document in documents]
    except KeyError:
        raise _missing(documents, names) from None
    try:
        with np.errstate(over="ignore"):  # an overflow becomes infinite, which is refused later
            values = np.array(rows, dtype=dtype)  # None becomes NaN
        if values.shape != (len(documents), len(names)):
            raise ValueError("a value is a list")
        return values
    except (TypeError, ValueError, OverflowError):
        columns = zip(names, zip(*rows, strict=True), strict=True)
        return np.concatenate([numbers(name, x, 1, dtype) for name, x in columns], axis=1)


def _array(name: str, values: Any, dtype: type) -> np.ndarray:
    try:
        array = np.asarray(unmasked(values))
        if dtype is np.int64 and array.dtype.kind not in "iu":
            raise TypeError(f"{array.dtype} instead of whole numbers")
        with np.errstate(over="ignore"):
            return array.astype(dtype, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be an array of numbers, got {error}") from None
