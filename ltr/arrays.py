"""Read what users pass as arrays: numpy arrays, tensors, pandas series or plain lists."""

import reprlib
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import torch

from ltr.columns import qid_text, unmasked

pc: Any = pyarrow.compute
"""Arrow's functions. Arrow makes them during its import, so type checkers do not see them."""


def as_array(values: Any) -> np.ndarray:
    """Return the values as an array.

    A tensor is moved to the CPU, and a masked value is missing: see `ltr.columns.unmasked`. The
    numbers of the result have the byte order of this machine.
    """
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        # NumPy has no bfloat16.
        values = values.float() if values.dtype == torch.bfloat16 else values
    return in_own_order(np.asarray(unmasked(values)))


def in_own_order(array: np.ndarray) -> np.ndarray:
    """Return an array in the byte order of this machine: Arrow and torch refuse any other.

    >>> in_own_order(np.array([1.0], ">f8")).dtype.isnative
    True
    """
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def as_numbers(argument: str, values: Any) -> np.ndarray:
    """Return values as an array of numbers, or raise an error that names the argument.

    A missing value, or a masked value of a masked array, becomes NaN.
    """
    try:
        array = as_array(values)
        if array.dtype.kind == "c":
            raise TypeError("complex numbers")
        if array.dtype.kind in "mM":
            raise TypeError(f"values of type {array.dtype}")
        if array.dtype.kind in "biuf":
            return array
        if array.ndim == 1:
            _check_each(array.tolist())
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{argument} must be an array of numbers, got {error}") from error


def _check_each(values: Iterable[Any]) -> None:
    """Raise an error that names the row of the first value that is neither a number nor None."""
    for row, value in enumerate(values):
        try:
            float(0 if value is None else value)
        except OverflowError as error:
            raise OverflowError(f"{error} in row {row}") from error
        except (TypeError, ValueError) as error:
            raise ValueError(f"{reprlib.repr(value)} in row {row}") from error


def as_names(argument: str, values: Any) -> np.ndarray:
    """Return names as an array that keeps their types; an error names the argument."""
    if getattr(getattr(values, "dtype", None), "time_zone", None) is not None:  # it is of polars
        values = pa.chunked_array(values)
    if isinstance(values, pa.Array | pa.ChunkedArray) and getattr(values.type, "tz", None):
        # An array of numpy has no time zone.
        return np.array(values.to_pylist(), dtype=object)
    if hasattr(values, "__array__"):
        return as_array(values)
    if not isinstance(values, Iterable):
        raise ValueError(f"{argument} must be an array, got {values!r}")
    # The dtype `object` keeps the values: otherwise, a NaN among strings becomes the text "nan".
    return np.asarray(list(values), dtype=object)


def check_columns(named: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the use and the name of each column; if a name is invalid, raise an error.

    Args:
        named: the name of a column for each use; several names for "features" and "categories",
            and one or several for "label"; None for a use without a column.

    >>> check_columns({"qid": "q", "label": None, "features": ["a", "b"]})
    [('qid', 'q'), ('features', 'a'), ('features', 'b')]
    >>> check_columns({"qid": 3})
    Traceback (most recent call last):
    ValueError: qid must be the name of a column, got 3
    """
    found: list[tuple[str, str]] = []
    for use, given in named.items():
        several = use in ("features", "categories")
        several = several or (use == "label" and isinstance(given, list | tuple))
        if given is None:
            continue
        if several and (isinstance(given, str) or not isinstance(given, Iterable)):
            raise ValueError(f"{use} must be names of columns, got {given!r}")
        for name in given if several else [given]:
            if not isinstance(name, str):
                wanted = "names of columns" if several else "the name of a column"
                raise ValueError(f"{use} must be {wanted}, got {name!r}")
            found.append((use, name))
    return found


def is_missing(name: Any) -> bool:
    """Return whether a name is absent (see `is_absent`) or empty."""
    return is_absent(name) or str(name) == ""


def is_absent(name: Any) -> bool:
    """Return whether a name is absent: None, NaN, or pandas' NA or NaT."""
    if isinstance(name, str):
        return False
    if name is np.ma.masked:
        return True
    if isinstance(name, Decimal):  # a signalling NaN cannot be compared
        return name.is_nan()
    # NaN differs from itself. pandas has two more values, NA and NaT, for a missing name.
    return name is None or str(name) in ("<NA>", "NaT") or name != name


def as_qids(
    argument: str, qid: Any, rows: int, of: str = "rows", what: str = "a query"
) -> pa.Array:
    """Return the name of the query of each row, (rows,): integers as they are, other names as text.

    `ltr.columns.qid_text` says which names are the same.

    Args:
        argument: the name of the argument, for errors.
        qid: (rows,), the query of each row, in any order.
        rows: the number of rows.
        of: what errors call the rows.
        what: what `qid` names, for errors.

    Raises:
        ValueError: there is not one name for each row, or a name is missing or has no text.

    >>> as_qids("qid", ["b", "a", "b"], 3).to_pylist()
    ['b', 'a', 'b']
    >>> as_qids("qid", [2.0, 1, "2"], 3).to_pylist()
    ['2', '1', '2']
    """
    names = as_names(argument, qid)
    if names.shape != (rows,):
        raise ValueError(
            f"{argument} must have one value for each of the {rows} {of}, got shape {names.shape}"
        )
    if names.dtype.kind in "iu":
        return pa.array(names)
    return as_texts(argument, names, f"name {what} in each row")


def as_texts(
    argument: str,
    names: np.ndarray,
    must: str,
    *,
    is_wrong: Callable[[Any], bool] = is_missing,
    numbers: np.ndarray | None = None,
    at: str = "in row",
) -> pa.Array:
    """Return the result of `as_names` (rows,) as text, by the rule of `ltr.columns.qid_text`.

    Args:
        argument: the name of the argument, for errors.
        names: (rows,).
        must: what the argument must do, for errors about a missing name.
        is_wrong: returns whether a name is missing. By default, "" is a missing name too.
        numbers: (rows,), the numbers of the rows, for errors. Default: from 0.
        at: what stands before this number.

    Raises:
        ValueError: a name is missing, a duration, or not UTF-8; the message names the row.

    >>> as_texts("qid", np.array([0.0, -0.0, 0.5]), "name a list").to_pylist()
    ['0', '0', '0.5']
    """
    kind = names.dtype.kind
    if kind in "OU":
        try:  # this is the fast way, which needs text in each row
            texts = pa.array(names.tolist(), pa.string())
            if not texts.null_count and not (is_wrong("") and pc.any(pc.equal(texts, "")).as_py()):
                return texts
        except (pa.ArrowException, UnicodeEncodeError):
            pass
    if kind in "biufM" and (names == names).all():  # NaN and NaT differ from themselves
        distinct, codes = np.unique(names, return_inverse=True)
        return pa.array([qid_text(name) for name in distinct], pa.string()).take(codes)
    found = []
    # `tolist` would turn nanoseconds into whole numbers.
    for row, name in enumerate([*names] if kind in "mM" else names.tolist()):
        where = f" {at} {row if numbers is None else numbers[row]}"
        if is_wrong(name):
            raise ValueError(f"{argument} must {must}, got {name!r}{where}")
        found.append(_text(name, argument, where))
    return pa.array(found, pa.string())


def name_texts(names: pa.Array | pa.ChunkedArray, argument: str) -> pa.Array:
    """Return the names in a column of a table as text, by the rule of `ltr.columns.qid_text`.

    Args:
        names: (rows,); a missing name, null or NaN, becomes null.
        argument: what errors call the names.

    Raises:
        ValueError: a name is a duration, or is not UTF-8, or names are lists or structs.

    >>> name_texts(pa.array([1.0, -0.0, 0.5, None]), "qid").to_pylist()
    ['1', '0', '0.5', None]
    """
    values: Any = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
    indices = None
    if isinstance(values, pa.DictionaryArray):
        values, indices = values.dictionary, values.indices
    kinds = "null", "bool", "string", "large_string", "string_view"
    if str(values.type) in kinds or pa.types.is_integer(values.type):
        texts = values.cast(pa.string())
    else:
        try:
            encoded = values.dictionary_encode()
        except pa.ArrowNotImplementedError:  # lists, structs and the like
            wanted = "must be a name or a number"
            raise ValueError(f"{argument} {wanted}, got type {values.type}") from None
        distinct = encoded.dictionary
        # `to_numpy` keeps the precision of floats, on which their shortest text depends.
        plain = distinct.to_numpy() if pa.types.is_floating(values.type) else distinct.to_pylist()
        found = [None if is_absent(value) else _text(value, argument) for value in plain]
        texts = pa.array(found, pa.string()).take(encoded.indices)
    return texts if indices is None else texts.take(indices)


def _text(value: Any, argument: str, where: str = "") -> str:
    try:
        return qid_text(value)
    except ValueError as error:
        raise ValueError(f"{argument}: {error}{where}") from None


def list_numbers(qid: Any, rows: int, argument: str = "qid", what: str = "a query") -> np.ndarray:
    """Return the index of each row's list, int64 (rows,); the list of the first row has index 0.

    The lists are in the order of their first rows.

    Args:
        qid: (rows,), as in `as_qids`; None means that all rows are one list.
        rows: the number of rows.
        argument: the name of the argument, for errors.
        what: see `as_qids`.

    >>> list_numbers(["b", "a", "b"], 3).tolist()
    [0, 1, 0]
    """
    if qid is None:
        return np.zeros(rows, np.int64)
    return numbered(as_qids(argument, qid, rows, what=what))[0]


def numbered(names: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Return the number of each name, int64 (rows,), and the names in the order of these numbers.

    Equal names have one number, counted from 0 in the order in which they first appear.

    >>> numbers, names = numbered(pa.array(["b", "a", "b"]))
    >>> numbers.tolist(), names.to_pylist()
    ([0, 1, 0], ['b', 'a'])
    """
    encoded = names.dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary


def rows_by_list(lists: np.ndarray) -> list[np.ndarray]:
    """Return the indices of each list's rows, in order, from the result of `list_numbers`.

    >>> rows_by_list(np.array([0, 1, 0]))
    [array([0, 2]), array([1])]
    """
    order = np.argsort(lists, kind="stable")
    ends = np.flatnonzero(np.diff(lists[order])) + 1
    return np.split(order, ends) if len(order) else []


def as_scores(scores: Any, argument: str = "scores") -> np.ndarray:
    """Return scores (rows,) as an array of numbers, or raise an error if one is NaN.

    >>> as_scores([1, float("nan")])
    Traceback (most recent call last):
    ValueError: scores must not be NaN, got NaN in row 1
    """
    values = as_numbers(argument, scores)
    if values.ndim != 1:
        raise ValueError(f"{argument} must have the shape (rows,), got {values.shape}")
    if (bad := np.flatnonzero(np.isnan(values))).size:
        raise ValueError(f"{argument} must not be NaN, got NaN in row {bad[0]}")
    return values


def check_labels(argument: str, labels: np.ndarray) -> None:
    """Raise an error that names the row of the first label that is not finite and >= 0.

    >>> check_labels("y", np.array([0.0, -1.0]))
    Traceback (most recent call last):
    ValueError: y must be finite and >= 0, got -1 in row 1
    """
    good = (labels >= 0) & (labels < np.inf)
    if not good.all():
        row = int(good.argmin())
        raise ValueError(f"{argument} must be finite and >= 0, got {labels[row]:g} in row {row}")


def rank(scores: Any, qid: Any = None) -> np.ndarray:
    """Return the position of each row within its list, from 1, int32 (rows,).

    Position 1 has the highest score. Rows with equal scores keep their order. `NeuralRanker.rank`,
    `Blend.rank`, the column `rank` of `ltr predict`, and the metrics with `ties="stable"` use the
    same order.

    Args:
        scores: (rows,), finite or infinite. If there are no rows, the result is empty.
        qid: (rows,), the query of each row, numbers or text, in any order. Default: all rows are
            one list.

    Raises:
        ValueError: a score is NaN, or `qid` does not have one name for each row.

    Cost: one sort.

    >>> rank([0.5, 2.0, 0.5, 9.0], qid=["a", "a", "a", "b"])
    array([2, 1, 3, 1], dtype=int32)
    """
    values = as_scores(scores)
    lists = list_numbers(qid, len(values))
    order = np.lexsort((-values.astype(np.float64), lists))
    sorted_lists, position = lists[order], np.arange(len(order))
    starts = position[np.r_[True, sorted_lists[1:] != sorted_lists[:-1]][: len(order)]]
    ranks = np.empty(len(values), np.int32)
    ranks[order] = position - starts[sorted_lists] + 1
    return ranks
