"""Average precision."""

from torch import Tensor

from ltr._shapes import check_top_k, positions
from ltr.metrics.functional._lists import (
    Empty,
    Reduction,
    check_empty,
    check_values,
    list_values,
    ranked,
    reduce_lists,
)


def average_precision(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    top_k: int | None = None,
    empty: Empty = 0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Average precision: the mean over the relevant items of the precision at their ranks.

    Args:
        scores: (..., n), not NaN. Ties are ranked in list order.
        labels: (..., n), >= 0; above 0 is relevant.
        mask: (..., n) bool, True = a real item. Default: all are real.
        top_k: count the relevant items of the first k alone, and divide by min(k, number of
            relevant items). Default: the whole list.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        reduction: "mean" over the lists that count (MAP), "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". All masked: no list, left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Buckley and Voorhees, "Evaluating evaluation measure stability", 2000.

    >>> import torch
    >>> average_precision(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]))
    tensor(0.8333)
    """
    scores, labels = check_values(scores, labels, mask)
    check_empty(empty)
    hits = (ranked(labels, scores, mask) > 0).to(scores.dtype)
    total = hits.sum(-1)
    if check_top_k(top_k) is not None:
        hits, total = hits[..., :top_k], total.clamp(max=top_k)
    precision = hits.cumsum(-1) / positions(hits)
    values = (hits * precision).sum(-1) / total.clamp(min=1)
    return reduce_lists(list_values(values, total > 0, scores, mask, empty), reduction)
