"""The share of lists in perfect order."""

from torch import Tensor

from ltr._shapes import count
from ltr.metrics.functional._lists import Reduction, list_values, reduce_lists
from ltr.metrics.functional._ranking import rank


def perfect_order(
    scores: Tensor, labels: Tensor, mask: Tensor | None = None, *, reduction: Reduction = "mean"
) -> Tensor:
    """Whether every item stands above all items with a lower label; equal labels either way.

    Args:
        scores: (..., n), not NaN. A tie between different labels is not perfect.
        labels: (..., n), >= 0.
        mask: (..., n) bool, True = a real item. Default: all are real.
        reduction: "mean" (the share of lists), "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) of 0 and 1 with reduction="none". One item, or all labels equal: 1. All
        masked: no list, left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    >>> import torch
    >>> perfect_order(torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]]),
    ...               torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 2.0]]))
    tensor(0.5000)
    """
    lists = rank(scores, labels, mask)
    higher, lower = lists.labels[..., :-1], lists.labels[..., 1:]
    parted = (higher > lower) & (lists.scores[..., :-1] > lists.scores[..., 1:])
    good = (higher == lower) | parted
    if lists.mask is not None:
        good = good | ~lists.mask[..., 1:]
    real = count(lists.scores, lists.mask).squeeze(-1) > 0
    values = good.all(-1).to(lists.scores.dtype)
    return reduce_lists(list_values(values, real, lists.scores, lists.mask, "skip"), reduction)
