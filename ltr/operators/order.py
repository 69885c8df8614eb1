"""What operators share: scores in order, hard ranks, weights of items, and NaN."""

import torch
from torch import Tensor

from ltr.kernels.sorting import descending_order, in_list_order
from ltr.shapes import count, masked_fill, positions, real_scores, with_masked

LEAST_WEIGHT = 1e-30
"""Added to every weight, so that an item of weight 0 has a rank but changes no other rank."""


def hard_ranks(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the ranks 1..m of the m real items; 1 = the highest score.

    The ranks are those of `scipy.stats.rankdata(-scores, method="ordinal")`: ties get distinct
    ranks, in the order of the list. Masked items get rank m + 1. In a list with a NaN score all
    ranks are NaN. There is no gradient.

    Args:
        scores: (..., n), any floating dtype.
        mask: (..., n) bool, True for a real item. Default: all are real.

    Returns:
        (..., n), in float32 for half-precision scores, else in the dtype of the scores. Cost: one
        sort.

    >>> hard_ranks(torch.tensor([0.1, 0.9, 0.9, 0.5]))
    tensor([4., 1., 2., 3.])
    """
    return expected_ranks(real_scores(scores, mask), mask)


def expected_ranks(scores: Tensor, mask: Tensor | None, weights: Tensor | None = None) -> Tensor:
    """Return hard ranks, of which a weighted item has the mean of its copies: (..., n).

    The arguments are checked, and the scores 0 where masked. Without weights these are
    `hard_ranks`. An item of weight w counts as w tied copies; ties are in list order.

    >>> expected_ranks(torch.tensor([1.0, 3.0]), None, torch.tensor([1.0, 3.0]))
    tensor([2.2500, 1.2500])
    """
    scores = scores.detach()
    order = descending_order(scores, mask)
    if weights is None:
        ranks = in_list_order(positions(scores).expand(scores.shape), order)
    else:
        w = item_weights(scores, mask, weights)
        ranks = 0.5 + w.gather(-1, order).cumsum(-1).gather(-1, inverse(order)) - w / 2
    return nan_in_list(with_masked(ranks, mask), scores)


def hard_membership(k: int | Tensor, scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return 1 for the first k of the real items and 0 for others, (..., n); k may be a fraction.

    The arguments are checked, and the scores 0 where masked.

    >>> hard_membership(torch.tensor(1.5), torch.tensor([0.1, 0.9, 0.5]), None)
    tensor([0.0000, 1.0000, 0.5000])
    """
    return masked_fill((k + 1 - expected_ranks(scores, mask)).clamp(0, 1), mask)


def item_weights(scores: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
    """Return weights (..., n) that sum to the number of real items; 0 where masked.

    >>> item_weights(torch.zeros(2), None, torch.tensor([1.0, 3.0]))
    tensor([0.5000, 1.5000])
    """
    if weights is None:
        return masked_fill(torch.ones_like(scores), mask)
    weights = masked_fill(weights.to(scores.dtype) + LEAST_WEIGHT, mask)
    total = weights.sum(-1, keepdim=True)
    return weights * (count(scores, mask) / torch.where(total == 0, 1.0, total))


def nan_unless_finite(x: Tensor, scores: Tensor) -> Tensor:
    """Return x (..., m), with NaN for each list whose scores (..., n) are not all finite.

    >>> scores = torch.tensor([[1.0, 3e38, 3e38], [1.0, torch.inf, 0.0]])
    >>> nan_unless_finite(torch.ones(2, 1), scores)
    tensor([[1.],
            [nan]])
    """
    fixed = scores.detach()
    return x + (fixed - fixed).sum(-1, keepdim=True)


def nan_in_list(x: Tensor, scores: Tensor) -> Tensor:
    """Return x (..., m), with NaN, without a gradient, for each list with a NaN among its scores.

    >>> nan_in_list(torch.ones(2, 1), torch.tensor([[1.0, torch.inf], [1.0, torch.nan]]))
    tensor([[1.],
            [nan]])
    """
    return torch.where(scores.isnan().any(-1, keepdim=True), torch.nan, x)


def descending(scores: Tensor, order: Tensor, mask: Tensor | None) -> Tensor:
    """Return the scores in descending order; the last real score fills the masked positions."""
    points = scores.gather(-1, order)
    if mask is None or not scores.shape[-1]:
        return points
    m = count(scores, mask)
    last = points.gather(-1, (m - 1).clamp(min=0).long())
    return torch.where(positions(points) <= m, points, last)


def descending_scores(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the scores (..., n) in descending order, -inf in the masked positions.

    This is a stable `torch.sort`: ties keep the order of the list, which matters for derivatives.
    For short lists this is faster than `descending`, which needs an order.

    >>> descending_scores(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([True, True, False]))
    tensor([3., 1., -inf])
    """
    filled = masked_fill(scores, mask, -torch.inf)
    return torch.sort(filled, descending=True, stable=True).values


def inverse(order: Tensor) -> Tensor:
    """Return the inverse of a permutation `order` (..., n): the position of each item."""
    positions = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    return in_list_order(positions, order)
