"""The share of lists in perfect order."""

from torch import Tensor

from ltr._shapes import count
from ltr.metrics.functional._lists import (
    Reduction,
    check_values,
    list_values,
    ranked,
    real_places,
    reduce_lists,
)


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
    scores, labels = check_values(scores, labels, mask)
    by_rank, at_rank = ranked(labels, scores, mask), ranked(scores, scores, mask)
    higher, lower = by_rank[..., :-1], by_rank[..., 1:]
    parted = (higher > lower) & (at_rank[..., :-1] > at_rank[..., 1:])
    good = (higher == lower) | parted | ~real_places(scores, mask)[..., 1:]
    real = count(scores, mask).squeeze(-1) > 0
    return reduce_lists(
        list_values(good.all(-1).to(scores.dtype), real, scores, mask, "skip"), reduction
    )
