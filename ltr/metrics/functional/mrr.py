"""Mean reciprocal rank."""

import torch
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


def mrr(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    top_k: int | None = None,
    empty: Empty = 0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Reciprocal rank: 1 / rank of the first item with a label above 0.

    Args:
        scores: (..., n), not NaN. Ties are ranked in list order.
        labels: (..., n), >= 0; above 0 is relevant.
        mask: (..., n) bool, True = a real item. Default: all are real.
        top_k: a first relevant item behind rank k counts 0. Default: the whole list.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". All masked: no list, left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Voorhees, "The TREC-8 question answering track report", 1999.

    >>> mrr(torch.tensor([[3.0, 1.0, 2.0], [1.0, 2.0, 3.0]]), torch.tensor([[0, 0, 1], [0, 0, 0]]))
    tensor(0.2500)
    """
    scores, labels = check_values(scores, labels, mask)
    check_empty(empty)
    relevant = (labels > 0).any(-1)
    reciprocal = torch.where(ranked(labels, scores, mask) > 0, 1 / positions(scores), 0.0)
    if check_top_k(top_k) is not None:
        reciprocal = reciprocal[..., :top_k]
    # 1 / rank falls along the list, so the first relevant item has the largest
    values = reciprocal.amax(-1) if scores.shape[-1] else reciprocal.sum(-1)
    return reduce_lists(list_values(values, relevant, scores, mask, empty), reduction)
