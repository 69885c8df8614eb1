"""Normalised discounted cumulative gain, exact."""

import torch
from torch import Tensor

from ltr._shapes import check_top_k, count
from ltr.losses.dcg import (
    Discount,
    Gain,
    discount_function,
    gain_function,
    ideal_dcg,
    item_gains,
)
from ltr.metrics.functional._lists import (
    Empty,
    Reduction,
    check_empty,
    check_values,
    list_values,
    reduce_lists,
)
from ltr.operators import HardRank, truncated


def ndcg(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    top_k: int | None = None,
    gain: Gain = "exp2",
    discount: Discount = "log2",
    empty: Empty = 0,
    short: float | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """NDCG@k: sum of gain * discount over the first k, over its largest value for these labels.

    Args:
        scores: (..., n), finite or infinite, not NaN. Ties are ranked in list order.
        labels: (..., n), graded relevance >= 0.
        mask: (..., n) bool, True = a real item. Default: all are real.
        weights: (..., n), multiply the gains, in the ideal too. Default: 1.
        top_k: k. Default: the whole list.
        gain: "exp2" (2^label - 1), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank)), "letor4" (LETOR 4's script: 1 at ranks 1 and 2,
            then 1 / log2(rank)), or a function of the ranks.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        short: what a list with fewer than `top_k` items counts (LETOR 4's script: 0). Default:
            its NDCG over the items that it has.
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". All masked: no list, left out. One relevant
        item alone: 1. Cost: two sorts.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002;
    Burges et al., "Learning to rank using gradient descent", 2005, for this gain and discount.

    >>> ndcg(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.0, 0.0, 1.0]))
    tensor(0.6309)
    """
    scores, labels = check_values(scores, labels, mask, weights)
    check_empty(empty)
    full = discount_function(discount)
    check_top_k(top_k)
    cut = full if top_k is None else truncated(full, top_k, exact=True)
    gains = item_gains(labels, mask, weights, gain_function(gain))
    dcg = (gains * HardRank().discounts(cut, scores, mask)).sum(-1)
    ideal = ideal_dcg(gains, full, top_k)
    values = dcg / torch.where(ideal > 0, ideal, 1.0)
    values = list_values(values, ideal > 0, scores, mask, empty)
    if short is not None and top_k is not None:
        length = count(scores, mask).squeeze(-1)
        values = torch.where((length > 0) & (length < top_k), float(short), values)
    return reduce_lists(values, reduction)
