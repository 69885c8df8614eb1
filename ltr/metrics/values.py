"""The result of a metric for each list, and the treatment of lists without a value."""

from math import isfinite
from numbers import Real
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ltr.metrics.ranked import Ranked

Empty = Literal["skip", "error"] | float
Reduction = Literal["mean", "sum", "none"]


class ListValues(NamedTuple):
    """The result of a metric's `per_list`: one value per list.

    Attributes:
        values: (...); NaN for a list that is left out.
        empty: (...) bool, True for a list with real items on which the metric is not defined.
        wrong: as in `Ranked`. If a list is wrong, the mean and the sum are NaN.
    """

    values: Tensor
    empty: Tensor
    wrong: Tensor | None = None


def check_empty(empty: Empty) -> Empty:
    """Return `empty`, or raise `ValueError` unless it is "skip", "error" or a finite number.

    >>> check_empty("skip")
    'skip'
    """
    number = isinstance(empty, Real) and not isinstance(empty, bool) and isfinite(empty)
    if not number and not (isinstance(empty, str) and empty in ("skip", "error")):
        raise ValueError(f"empty must be 'skip', 'error' or a number, got {empty!r}")
    return empty


def list_values(values: Tensor, defined: Tensor, lists: Ranked, empty: Empty) -> ListValues:
    """Return `values` (...), with the value of `empty` for lists that are not `defined`.

    A list without a real item is always left out.

    Raises:
        ValueError: `empty` is "error", and a list with a real item is not `defined`.

    >>> from ltr.metrics.ranked import rank
    >>> lists = rank(torch.zeros(2, 3), torch.ones(2, 3))
    >>> list_values(torch.tensor([0.5, 0.0]), torch.tensor([True, False]), lists, "skip").values
    tensor([0.5000,    nan])
    """
    whole = lists.mask is None and lists.scores.shape[-1] > 0
    real = None if whole else lists.lengths > 0
    undefined = ~defined if real is None else real & ~defined
    if empty == "error":
        lists = lists.check(
            undefined, lambda: f"empty is 'error' and {int(undefined.sum())} lists have no value"
        )
    fill = torch.nan if isinstance(empty, str) else float(empty)
    values = torch.where(defined, values, fill)
    values = values if real is None else torch.where(real, values, torch.nan)
    return ListValues(values, undefined, lists.wrong)


def reduce_lists(found: ListValues, reduction: Reduction) -> Tensor:
    """Return the mean or the sum over the lists that are not left out, or the value of each list.

    If all lists are left out, the mean is NaN and the sum is 0.

    >>> found = ListValues(torch.tensor([0.5, torch.nan, 1.0]), torch.tensor([False, True, False]))
    >>> reduce_lists(found, "mean")
    tensor(0.7500)
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    values, wrong = found.values, found.wrong
    if reduction != "none":
        values = values.nanmean() if reduction == "mean" else values.nansum()
        wrong = None if wrong is None else wrong.any()
    return values if wrong is None else torch.where(wrong, torch.nan, values)
