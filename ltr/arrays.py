"""Arrays as users have them: numpy, torch, pandas or plain lists."""

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow.compute
import torch

pc: Any = pyarrow.compute
"""Arrow's functions, which it makes when it is imported: type checkers do not see them."""


def as_array(values: Any) -> np.ndarray:
    """Return the values as an array; a tensor is copied to the CPU."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values  # numpy has none
    return np.asarray(values)


def as_numbers(argument: str, values: Any) -> np.ndarray:
    """Return values as an array of numbers, or raise an error that names the argument."""
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
    """Raise an error for the first value that is neither a number nor None, with its row."""
    for row, value in enumerate(values):
        try:
            float(0 if value is None else value)
        except OverflowError as error:
            raise OverflowError(f"{error} in row {row}") from error
        except (TypeError, ValueError) as error:
            raise ValueError(f"{reprlib.repr(value)} in row {row}") from error


def as_names(argument: str, values: Any) -> np.ndarray:
    """Return names as an array of their types, or raise an error that names the argument."""
    if hasattr(values, "__array__"):
        return as_array(values)
    if not isinstance(values, Iterable):
        raise ValueError(f"{argument} must be an array, got {values!r}")
    # as they are: numpy would make the text "nan" of a NaN among strings
    return np.asarray(list(values), dtype=object)


def check_columns(named: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the use and the name of each column, or raise an error that names a wrong use.

    Args:
        named: by its use the name of a column, or for features and categories several; None for
            none.

    >>> check_columns({"qid": "q", "label": None, "features": ["a", "b"]})
    [('qid', 'q'), ('features', 'a'), ('features', 'b')]
    >>> check_columns({"qid": 3})
    Traceback (most recent call last):
    ValueError: qid must be the name of a column, got 3
    """
    found: list[tuple[str, str]] = []
    for use, given in named.items():
        several = use in ("features", "categories")
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
    """Return whether a name is absent or empty."""
    return is_absent(name) or str(name) == ""


def is_absent(name: Any) -> bool:
    """Return whether a name is absent: None, NaN or pandas' NA."""
    # NaN differs from itself; pandas has more values for what is not there
    return name is None or str(name) in ("<NA>", "NaT") or name != name


def ranks_within(scores: np.ndarray, lists: np.ndarray) -> np.ndarray:
    """Return ranks from 1 within each list, int32 (rows,); equal scores rank in row order.

    Args:
        scores: (rows,).
        lists: (rows,), the number of each row's list.

    >>> ranks_within(np.array([0.5, 2.0, 0.5, 9.0]), np.array([7, 7, 7, 1])).tolist()
    [2, 1, 3, 1]
    """
    order = np.lexsort((-scores, lists))
    new = np.r_[True, lists[order][1:] != lists[order][:-1]]
    starts = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    ranks = np.empty(len(scores), np.int32)
    ranks[order] = np.arange(len(order)) - starts + 1
    return ranks
