"""What all list metrics share: checks, labels in ranked order, and lists without a value."""

from math import isfinite
from numbers import Real
from typing import Literal

import torch
from torch import Tensor

from ltr._shapes import check_lists, count, hide, upcast
from ltr.metrics.functional._scope import scope

Empty = Literal["skip", "error"] | float
Reduction = Literal["mean", "sum", "none"]


def check_empty(empty: Empty, name: str = "empty") -> Empty:
    """`empty` as it is, or a ValueError: "skip", "error", or what such a list counts.

    >>> check_empty(0)
    0
    """
    number = isinstance(empty, Real) and not isinstance(empty, bool) and isfinite(empty)
    if not number and not (isinstance(empty, str) and empty in ("skip", "error")):
        raise ValueError(f"{name} must be 'skip', 'error' or a number, got {empty!r}")
    return empty


def check_values(
    scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Scores and labels with 0 under the mask, in float32 or better.

    Raises:
        ValueError: shapes differ, mask is not bool, a real score is NaN, or a real label is NaN,
            infinite or negative.

    >>> check_values(torch.tensor([0.5]), torch.tensor([1]), None)
    (tensor([0.5000]), tensor([1.]))
    """
    check_lists(scores, labels=labels, mask=mask, weights=weights)
    scores = upcast(hide(scores.detach(), mask))
    labels = hide(labels.to(scores.dtype), mask)
    if not scores.numel():
        return scores, labels
    if bool(scores.amax().isnan()):
        raise ValueError(f"scores must not be NaN, got {int(scores.isnan().sum())} NaN")
    least, largest = labels.aminmax()
    if not bool((least >= 0) & (largest < torch.inf)):  # one pass; NaN is both
        bad = ~(labels.isfinite() & (labels >= 0))
        raise ValueError(f"labels must be finite and >= 0, got {labels[bad][0].item():g}")
    return scores, labels


def list_values(
    values: Tensor, defined: Tensor, scores: Tensor, mask: Tensor | None, empty: Empty
) -> Tensor:
    """`values` (...), `empty` where not `defined`; NaN for a list that is to be left out.

    A list with no real item is no list and always left out.

    Raises:
        ValueError: empty is "error" and a list is not defined.

    >>> undefined = torch.tensor([True, False])
    >>> list_values(torch.tensor([0.5, 0.0]), undefined, torch.zeros(2, 3), None, "skip")
    tensor([0.5000,    nan])
    """
    whole = mask is None and scores.shape[-1] > 0
    real = None if whole else count(scores, mask).squeeze(-1) > 0
    undefined = ~defined if real is None else real & ~defined
    if empty == "error" and undefined.any():
        raise ValueError(f"empty is 'error' and {int(undefined.sum())} lists have no value")
    if scope.undefined is not None:
        scope.undefined = scope.undefined + undefined.sum()
    fill = torch.nan if isinstance(empty, str) else float(empty)
    values = torch.where(defined, values, fill)
    return values if real is None else torch.where(real, values, torch.nan)


def reduce_lists(values: Tensor, reduction: Reduction) -> Tensor:
    """Mean or sum over the lists that are not left out (NaN if there are none), or all of them.

    >>> reduce_lists(torch.tensor([0.5, torch.nan, 1.0]), "mean")
    tensor(0.7500)
    """
    if reduction == "none":
        return values
    if reduction == "mean":
        return values.nanmean()
    if reduction == "sum":
        return values.nansum()
    raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")


def group_lists(indexes: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """Flat values (items,) with a list id each -> mask and padded values (lists, longest).

    Rows may come in any order; within a list they keep theirs. Lists stand by rising id. Pads all
    lists to the longest: for many ragged lists see `flat`, which does not.

    Raises:
        ValueError: shapes differ or are not one-dimensional.

    >>> group_lists(torch.tensor([7, 3, 7]), torch.tensor([0.1, 0.2, 0.3]))
    (tensor([[ True, False],
            [ True,  True]]), tensor([[0.2000, 0.0000],
            [0.1000, 0.3000]]))
    """
    for value in values:
        if indexes.dim() != 1 or value.shape != indexes.shape:
            raise ValueError(
                "indexes and values must be one-dimensional and of one shape, "
                f"got {tuple(indexes.shape)} and {tuple(value.shape)}"
            )
    ordered, order = indexes.sort(stable=True)
    _, lists, lengths = ordered.unique_consecutive(return_inverse=True, return_counts=True)
    places = torch.arange(len(order), device=order.device)
    places = places - (lengths.cumsum(0) - lengths)[lists]
    shape = (len(lengths), int(lengths.max()) if len(lengths) else 0)
    mask = torch.zeros(shape, dtype=torch.bool, device=indexes.device)
    mask[lists, places] = True
    padded = []
    for value in values:
        table = torch.zeros(shape, dtype=value.dtype, device=value.device)
        table[lists, places] = value[order]
        padded.append(table)
    return mask, *padded
