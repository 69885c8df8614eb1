"""Score documents with an exported model, with only numpy and onnxruntime.

This file is independent: copy it into a service. It reads the ONNX file that `ltr export` or
`NeuralRanker.export` wrote.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from hashlib import sha256
from numbers import Integral
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

# An exported file ends with an entry of ONNX metadata: these bytes, then 64 hexadecimal digits,
# which are the SHA-256 of all bytes before the entry.
_DIGEST = b"\x72\x4e\x0a\x0altr.sha256\x12\x40"

_LARGEST = np.finfo(np.float32).max

_DAY, _TIME = "[0-9]{4}-[0-9]{2}-[0-9]{2}", r"[T ][0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?"
ISO_DATES = {
    "naive": f"^{_DAY}({_TIME})?$",
    "utc": f"^{_DAY}{_TIME}(Z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)$",
}
"""Patterns of dates as text in ISO 8601: with a time zone ("utc") and without one ("naive")."""

FIRST_DAY, LAST_DAY = (
    day.toordinal() - date(1970, 1, 1).toordinal() for day in (date.min, date.max)
)
"""The range of dates, as days since 1970-01-01: from 0001-01-01 to 9999-12-31."""

MICROSECONDS = 86_400_000_000
"""The number of microseconds in a day."""

Zone = Literal["naive", "utc"]
"""The zone of a column of dates: "utc" if the times have a time zone, otherwise "naive"."""

CategoryKind = Literal["string", "number", "boolean"]
CATEGORY_KINDS: tuple[CategoryKind, ...] = ("string", "number", "boolean")
"""The types that the values of a column of categories may have."""


def unmasked(values: Any) -> Any:
    """Return a masked array of numpy as an array in which a masked value is missing.

    A masked number becomes NaN, a masked date NaT, and any other masked value None. The same holds
    for the masked values in a list. Anything else is returned unchanged.

    >>> unmasked(np.ma.array([1, 2], mask=[False, True]))
    array([ 1., nan])
    """
    if isinstance(values, (list, tuple)) and any(
        isinstance(value, np.ma.MaskedArray) for value in values
    ):
        return [unmasked(value) for value in values]
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if not np.ma.is_masked(values):
        return np.asarray(values)
    kind, missing, dtype = values.dtype.kind, None, np.dtype(object)
    if kind in "biuf":
        missing, dtype = np.nan, np.result_type(values.dtype, np.float32)
    elif kind in "mM":
        missing, dtype = "NaT", values.dtype
    found = np.array(values, dtype=dtype)
    found[np.ma.getmaskarray(values)] = missing
    return found


def qid_text(value: Any) -> str:
    """Return the text of a qid: two qids, of any types, are the same if their texts are equal.

    `evaluate`, `rank`, `fuse`, `fit`, `predict` and every other function with a `qid` compare these
    texts, and so do tables and lists on disk. Names of documents follow the same rule.

    - Text stays as it is written: "1", "01" and "1.0" are three names. Bytes are read as UTF-8.
    - A number is written without an exponent and without trailing zeros: 1, 1.0 and
      `Decimal("1.0")` are "1"; -0.0 is "0"; 0.5 is "0.5". A float has the fewest digits that
      identify it in its own type, so 0.1 is "0.1" in float32 and in float64.
    - A boolean is "true" or "false".
    - A date is "2026-11-28". A time of the day follows unless it is midnight, as in
      "2026-11-28 21:30:05.25". A time with a time zone is written in UTC and ends with "Z", so one
      instant in two time zones is one name.
    - Any other value is `str(value)`.

    Args:
        value: the qid of one row, not missing.

    Raises:
        ValueError: the value is a duration, or text that UTF-8 cannot write.

    >>> [qid_text(value) for value in ("01", 1, 1.0, True, Decimal("2.50"), date(2026, 11, 28))]
    ['01', '1', '1', 'true', '2.5', '2026-11-28']
    """
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ValueError(f"a name must be UTF-8 text, got {value!r}") from None
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (timedelta, np.timedelta64)):
        raise ValueError(f"a name must not be a duration, got {value!r}")
    if isinstance(value, (int, Integral)):
        return str(int(value))
    if isinstance(value, (float, np.floating, Decimal)):
        return _number_text(value)
    if isinstance(value, (date, np.datetime64)):
        return _date_text(value)
    text = str.__str__(value) if isinstance(value, str) else str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"a name must be UTF-8 text, got {value!r}") from None
    return text


def _number_text(value: Any) -> str:
    if not np.isfinite(float(value)):
        return str(float(value))
    if value == int(value):
        return str(int(value))
    if isinstance(value, Decimal):
        return format(value, "f").rstrip("0")
    return np.format_float_positional(value, trim="-")


def _date_text(value: Any) -> str:
    zone = ""
    if isinstance(value, np.datetime64):
        # A unit of numpy that is coarser than a second, such as a month, becomes seconds.
        unit = np.promote_types(value.dtype, "datetime64[s]")
        text = str(np.datetime_as_string(value.astype(unit)))
    elif isinstance(value, datetime):
        if value.utcoffset() is not None:
            value, zone = value.astimezone(UTC).replace(tzinfo=None), "Z"
        text = value.isoformat()
    else:
        return value.isoformat()
    day, _, time = text.partition("T")
    time = time.rstrip("0").rstrip(".") if "." in time else time
    return day if time == "00:00:00" and not zone else f"{day} {time}{zone}"


@dataclass(frozen=True)
class Number:
    """A column of numbers: one feature."""

    @property
    def width(self) -> int:
        """The number of features that the column becomes."""
        return 1

    def encode(self, name: str, values: Sequence[Any], dtype: type) -> np.ndarray:
        """Return the features of the documents, (documents, width); NaN if missing."""
        return _numbers(name, values, self.width, dtype)

    def describe(self) -> dict[str, Any]:
        """Return the type of the column's values, with an example, as JSON."""
        return {"type": "number", "example": 0.5}


@dataclass(frozen=True)
class Vector(Number):
    """A column of vectors of one size, such as embeddings.

    Attributes:
        size: the number of elements of each vector.
    """

    size: int

    @property
    def width(self) -> int:
        """The number of features that the column becomes."""
        return self.size

    def describe(self) -> dict[str, Any]:
        """Return the type of the column's values, with an example, as JSON."""
        return {"type": "numbers", "size": self.size, "example": [0.5] * self.size}


@dataclass(frozen=True)
class Date:
    """A column of dates: the days since 1970-01-01 and, if it has times, the hour of the day.

    Attributes:
        zone: "utc" if the values have a time zone, otherwise "naive".
        hour: whether the hour of the day is a feature too.
    """

    zone: Zone
    hour: bool = False

    @property
    def width(self) -> int:
        """The number of features that the column becomes."""
        return 1 + self.hour

    def encode(self, name: str, values: Sequence[Any], dtype: type) -> np.ndarray:
        """Return the features of the documents, (documents, width); NaN if missing."""
        return _dates(name, values, self.zone)[:, : self.width].astype(dtype)

    def describe(self) -> dict[str, Any]:
        """Return the type of the column's values, with an example, as JSON."""
        utc = self.zone == "utc"
        time = "T23:59:59" if self.hour or utc else ""
        example = f"2024-12-31{time}{'Z' if utc else ''}"
        return {"type": "date", "time_zone": utc, "example": example}


@dataclass(frozen=True)
class Category:
    """A column of categories: the type of its values, and the values that have a code.

    Attributes:
        kind: "string", "number" or "boolean".
        levels: the values, as text; the code of `levels[i]` is i + 1. Missing values and values
            that are not levels have code 0.
    """

    kind: CategoryKind
    levels: tuple[str, ...] = ()

    @cached_property
    def codes(self) -> dict[str, int]:
        """The code of each level."""
        return {level: code for code, level in enumerate(self.levels, start=1)}

    def encode(self, name: str, values: Sequence[Any], dtype: type = np.int64) -> np.ndarray:
        """Return the codes of the documents, (documents, 1)."""
        plain = values.tolist() if isinstance(values, np.ndarray) else values
        found = [self._code(name, value) for value in plain]
        return np.array(found, dtype=dtype).reshape(-1, 1)

    def describe(self) -> dict[str, Any]:
        """Return the type of the column's values, with its levels and an example, as JSON."""
        example: Any = self.levels[0] if self.levels else None
        if example is not None and self.kind != "string":
            example = json.loads(example)
        return {"type": self.kind, "levels": [*self.levels], "example": example}

    def _code(self, name: str, value: Any) -> int:
        if _is_na(value) or value != value:
            return 0
        if self.kind == "boolean":
            value = (value if isinstance(value, str) else str(bool(value))).lower()
        elif self.kind == "number":
            try:
                value = number_text(value)
            except (TypeError, ValueError, OverflowError):
                raise ValueError(
                    f"column {name!r} must hold numbers, got {_shown(value)}"
                ) from None
        return self.codes.get(str(value), 0)


def number_text(value: Any) -> str:
    """Return a number as the text of a category's level.

    3 and 3.0 are both "3". A fraction that float32 holds exactly has the digits that tell it apart
    in float32. So 0.1 in float32, and its copy in float64, is "0.1", like 0.1 in float64.

    >>> number_text(3.0), number_text(np.float32(0.1)), number_text(0.10000000149011612)
    ('3', '0.1', '0.1')
    """
    number = float(value)
    if number.is_integer():
        return str(int(value))
    if abs(number) <= _LARGEST and float(np.float32(number)) == number:
        number = float(str(np.float32(number)))
    return str(number)


def steps_of(
    data: Mapping[str, Any], classes: tuple[Any, Any, Any, Any] = (Number, Vector, Date, Category)
) -> dict[str, Any]:
    """Return a step for each column, such as a `Number` or a `Date`, from plain data.

    Args:
        data: the columns, as `Schema.to_dict` returns them: "features" has the number of features
            of each column of numbers or dates, "dates" the zone of each column of dates, and
            "categories" the kind and the levels of each column of categories. A value of None
            stands for no columns.
        classes: the classes of the steps for numbers, vectors, dates and categories.
    """
    number, vector, dated, category = classes
    dates = data["dates"] or {}
    steps: dict[str, Any] = {}
    for name, width in (data["features"] or {}).items():
        if name in dates:
            steps[name] = dated(dates[name], width > 1)
        else:
            steps[name] = number() if width == 1 else vector(width)
    for name, one in (data["categories"] or {}).items():
        steps[name] = category(one["kind"], tuple(one["levels"]))
    return steps


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
            if Path(path).exists() and not Path(path).is_file():  # reading a device may never end
                raise ValueError("it is not a regular file")
            content = Path(path).read_bytes()
            _check_digest(content)
            self._session = onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
            found = self._session.get_modelmeta().custom_metadata_map
            self.about: dict[str, Any] = json.loads(found.get("ltr", "null"))
        except Exception as error:  # onnxruntime's errors have no base class of their own
            raise ValueError(f"{wanted} {path}: {error}") from error
        shapes = {one.name: one.shape for one in self._session.get_inputs()}
        if not _fits(self.about, shapes):
            raise ValueError(f"{wanted} {path}: its metadata do not describe its inputs")
        self._widths = {name: shape[-1] for name, shape in shapes.items()}
        types = {one.name: one.type for one in self._session.get_inputs()}
        self._dtype = np.float64 if types["features"] == "tensor(double)" else np.float32
        self.steps = steps_of(self.about)
        self._features = {
            name: step for name, step in self.steps.items() if not isinstance(step, Category)
        }
        self._categories = {
            name: step for name, step in self.steps.items() if isinstance(step, Category)
        }
        self._names = [name for name, one in self._features.items() for _ in range(one.width)]

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
            if _is_na(name) or name != name:
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
            codes = [one.encode(name, columns[name]) for name, one in self._categories.items()]
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
        for row, position in np.argwhere(np.abs(features) > _LARGEST)[:1]:
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


def _fits(about: Any, shapes: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether `ltr export` could have written these metadata for inputs of these shapes."""
    keys = {"features", "dates", "categories", "per_document", "looks_at_list"}
    if not isinstance(about, dict) or not keys <= about.keys():
        return False
    features, categories = about["features"], about["categories"]
    axes = 2 if about["per_document"] is True else 3
    widths = {"features": None, "categories": 0}
    widths |= {name: shape[-1] for name, shape in shapes.items() if len(shape) == axes}
    if features is not None and not (
        isinstance(features, dict)
        and all(type(width) is int and width > 0 for width in features.values())
        and isinstance(categories, dict)
        and all(map(_is_category, categories.values()))
        and isinstance(about["dates"], dict)
        and all(
            zone in [*ISO_DATES] and features.get(name) in (1, 2)
            for name, zone in about["dates"].items()
        )
        and (sum(features.values()), len(categories)) == (widths["features"], widths["categories"])
    ):
        return False
    return (
        (features is None) == (categories is None) == (about["dates"] is None)
        and widths["features"] is not None
        and type(about["per_document"]) is bool
        and about["looks_at_list"] is ("mask" in shapes)
    )


def _is_category(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and one.get("kind") in CATEGORY_KINDS
        and isinstance(one.get("levels"), list)
        and all(isinstance(level, str) for level in one["levels"])
    )


def _documents(documents: Any) -> Mapping[str, Any] | list[Mapping[str, Any]]:
    """Return documents as columns by name, or as a list of dicts."""
    if isinstance(documents, Mapping):
        return documents
    names = getattr(documents, "column_names", getattr(documents, "columns", None))
    if names is not None:  # this is an Arrow table or a data frame
        return {str(name): documents[name] for name in names}
    found = list(documents) if hasattr(documents, "__iter__") else [documents]
    for one in found:
        if not isinstance(one, Mapping):
            raise ValueError(
                "documents must be a data frame, a mapping of columns or a sequence of dicts, got "
                f"{type(documents).__name__} with {one!r}"[:200]
            )
    return found


def _shown(value: Any) -> str:
    """Return the text of a value for a message, cut after 200 characters."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _column(documents: Mapping[str, Any] | list[Mapping[str, Any]], name: str) -> Sequence[Any]:
    if isinstance(documents, list):
        try:
            return [one[name] for one in documents]
        except KeyError:
            raise _missing(documents, [name]) from None
    if name not in documents:
        raise ValueError(
            f"documents must have the column {name!r}, got {_shown(sorted(map(str, documents)))}"
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
            f"column {name!r} must hold one value for each document, got {_shown(values)}"
        )
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiu":
        return values  # pyright: ignore[reportReturnType]
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _missing(documents: list[Mapping[str, Any]], names: Sequence[str]) -> ValueError:
    """Return the error for the first document that lacks one of the keys `names`."""
    lacking = (
        (row, name) for row, one in enumerate(documents) for name in names if name not in one
    )
    row, name = next(lacking)
    got = _shown(sorted(map(str, documents[row])))
    return ValueError(f"document {row} must have the key {name!r}, got {got}")


def _rows(documents: list[Mapping[str, Any]], names: list[str], dtype: type) -> np.ndarray:
    """Return the features (documents, names), read row by row, which is faster than by column."""
    pick = itemgetter(*names) if len(names) > 1 else lambda one: [one[name] for name in names]
    try:
        found = [pick(one) for one in documents]
    except KeyError:
        raise _missing(documents, names) from None
    try:
        with np.errstate(over="ignore"):  # an overflow becomes infinite, which is refused later
            values = np.array(found, dtype=dtype)  # None becomes NaN
        if values.shape != (len(documents), len(names)):
            raise ValueError("a value is a list")
        return values
    except (TypeError, ValueError, OverflowError):
        columns = zip(names, zip(*found, strict=True), strict=True)
        return np.concatenate([_numbers(name, x, 1, dtype) for name, x in columns], axis=1)


def _is_na(value: Any) -> bool:
    """Return whether a value is None, or pandas's NA or NaT, by its type: NA cannot be compared."""
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _numbers(name: str, values: Sequence[Any], width: int, dtype: type) -> np.ndarray:
    empty = np.nan if width == 1 else [np.nan] * width
    try:
        with np.errstate(over="ignore"):
            if isinstance(values, np.ndarray):
                found = values.astype(dtype)
            else:
                plain: list[Any] = [empty if _is_na(x) else x for x in values]
                if width == 1:  # a vector of size 1 is a number
                    plain = [x[0] if _is_vector(x) and len(x) == 1 else x for x in plain]
                found = np.array(plain, dtype=dtype)
        if width == 1 and found.ndim > 1:
            raise ValueError("got a list")
        return found.reshape(len(values), width)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"column {name!r} must hold {width} number(s) per document: {str(error)[:200]}"
        ) from None


def _is_vector(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str)


def _dates(name: str, values: Sequence[Any], zone: str) -> np.ndarray:
    """Return the days since 1970-01-01 and the hours of the day, (rows, 2) float32."""
    found = np.full((len(values), 2), np.nan, dtype=np.float32)
    for row, value in enumerate(values):
        if not _is_na(value) and value == value:
            found[row] = _day_and_hour(name, value, zone)
    return found


def _day_and_hour(name: str, value: Any, zone: str) -> tuple[int, float]:
    try:
        moment = value
        if isinstance(value, str) and any(re.match(x, value.strip()) for x in ISO_DATES.values()):
            moment = datetime.fromisoformat(value.strip())
        if isinstance(moment, date) and not isinstance(moment, datetime):
            moment = datetime(moment.year, moment.month, moment.day)
        if not isinstance(moment, datetime):
            raise ValueError("neither a date nor ISO 8601 text, YYYY-MM-DD with or without a time")
        if (moment.tzinfo is not None) != (zone == "utc"):
            wanted = "with" if zone == "utc" else "without"
            raise ValueError(f"dates must be {wanted} a time zone, as in training")
        if zone == "utc":
            moment = moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"column {name!r} must hold dates, got {_shown(value)}: {str(error)[:200]}"
        ) from None
    seconds = (moment.hour * 60 + moment.minute) * 60 + moment.second
    microseconds = seconds * 1_000_000 + moment.microsecond
    return moment.toordinal() - date(1970, 1, 1).toordinal(), microseconds / (MICROSECONDS / 24)


def _array(name: str, values: Any, dtype: type) -> np.ndarray:
    try:
        found = np.asarray(unmasked(values))
        if dtype is np.int64 and found.dtype.kind not in "iu":
            raise TypeError(f"{found.dtype} instead of whole numbers")
        with np.errstate(over="ignore"):
            return found.astype(dtype, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be an array of numbers, got {error}") from None
