"""Ordered pair accuracy."""

import torch
from torch import Tensor

from ltr._shapes import hide
from ltr.metrics.functional._lists import Empty, Reduction, check_empty, list_values, reduce_lists
from ltr.metrics.functional._pairs import dense_ranks, rising_pairs
from ltr.metrics.functional._ranking import Ties, check_ties, rank, runs


def opa(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """Ordered pair accuracy: the share of pairs with different labels that stand in their order.

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), >= 0, graded relevance.
        mask: (..., n) bool, True = a real item. Default: all are real.
        weights: (..., n), >= 0, of a pair that of its item with the higher label. Default: 1.
        empty: what a list without two different labels counts: a number, "skip" or "error".
        ties: "stable" (list order), "worst" or "expected": the mean over all orders of tied items,
            in closed form: a tied pair counts 1/2.
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". All masked: no list, left out. Cost:
        O(n log n) time, O(n) memory.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Joachims, "Optimizing search engines using clickthrough data", KDD 2002.

    >>> opa(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 2.0, 0.0]))
    tensor(0.6667)
    """
    check_empty(empty)
    check_ties(ties)
    lists = rank(scores, labels, mask, weights)
    ones = torch.ones_like(lists.labels) if lists.weights is None else lists.weights
    ones = hide(ones, lists.mask)
    pairs = _pairs_by_label(lists.labels, ones, lists.mask)

    def wrong(order: Tensor | None) -> Tensor:
        y = lists.labels if order is None else lists.labels.gather(-1, order)
        w = ones if order is None else ones.gather(-1, order)
        return rising_pairs(dense_ranks(y), None, w)

    if ties == "stable":
        lost = wrong(None)
    else:
        lost = wrong(lists.by_value(lists.labels)[1])
        if ties == "expected":
            lost = (lost + wrong(lists.by_value(lists.labels, descending=True)[1])) / 2
    values = 1 - lost / pairs.where(pairs > 0, 1.0)
    values = values.to(lists.scores.dtype)
    return reduce_lists(list_values(values, pairs > 0, lists.scores, lists.mask, empty), reduction)


def _pairs_by_label(labels: Tensor, weights: Tensor, mask: Tensor | None) -> Tensor:
    """The sum over the pairs with different labels of the weight of the one with the higher label.

    The padding has weight 0 and the lowest rank, so it is taken off the lower items.
    """
    ordered, order = labels.sort(dim=-1)
    padding = 0 if mask is None else (~mask).sum(-1, keepdim=True)
    lower = runs(ordered)[0] - padding
    return (lower.clamp(min=0) * weights.gather(-1, order)).double().sum(-1)
