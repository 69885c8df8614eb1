"""Gains, discounts, cutoffs and the ideal DCG, for the losses and the metrics.

On hard ranks these functions define a metric, on soft ranks a loss. The ideal DCG is always exact.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ltr.kernels.sorting import falling_values
from ltr.shapes import check_whole, largest, masked_fill, positions

Gain = Literal["exp2", "linear"] | Callable[[Tensor], Tensor]
Discount = Literal["log2", "letor4"] | Callable[[Tensor], Tensor]


CUT_WIDTH = 0.1
"""Width of the smooth cutoff at rank k + 1/2, in ranks: rank k keeps 94 % of its discount, and rank
k + 1 keeps 6 %."""


def log2_discount(ranks: Tensor) -> Tensor:
    """Return 1 / log2(1 + rank), the common form of the discount of Järvelin and Kekäläinen.

    >>> log2_discount(torch.tensor([1.0, 3.0]))
    tensor([1.0000, 0.5000])
    """
    return torch.log2(1 + ranks).reciprocal()


def inverse_log2(ranks: Tensor) -> Tensor:
    """Return log2(1 + rank), the reciprocal of `log2_discount`, for harmonic means of discounts.

    >>> inverse_log2(torch.tensor([1.0, 3.0]))
    tensor([1., 2.])
    """
    return torch.log2(1 + ranks)


def letor4_discount(ranks: Tensor) -> Tensor:
    """Return the discount of LETOR 4's script: 1 at ranks 1 and 2, then 1 / log2(rank).

    >>> letor4_discount(torch.tensor([1.0, 2.0, 4.0]))
    tensor([1.0000, 1.0000, 0.5000])
    """
    return torch.log2(ranks.clamp(min=2)).reciprocal()


def exp2_gain(labels: Tensor) -> Tensor:
    """Return 2^label - 1: the gain of a grade is twice the gain of the grade below, plus one.

    >>> exp2_gain(torch.tensor([0.0, 1.0, 4.0]))
    tensor([ 0.,  1., 15.])
    """
    return torch.exp2(labels) - 1


def linear_gain(labels: Tensor) -> Tensor:
    """Return the label itself.

    >>> linear_gain(torch.tensor([0.0, 1.0, 4.0]))
    tensor([0., 1., 4.])
    """
    return labels


def gain_function(gain: Gain) -> Callable[[Tensor], Tensor]:
    """Return the function labels -> gains named `gain`, or `gain` if it is a function.

    >>> gain_function("exp2")(torch.tensor([2.0]))
    tensor([3.])
    """
    if gain == "exp2":
        return exp2_gain
    if gain == "linear":
        return linear_gain
    if callable(gain):
        return gain
    raise ValueError(f"gain must be 'exp2', 'linear' or a function, got {gain!r}")


def discount_function(discount: Discount) -> Callable[[Tensor], Tensor]:
    """Return the function ranks -> discounts named `discount`, or `discount` if it is a function.

    >>> discount_function("log2")(torch.tensor([1.0]))
    tensor([1.])
    """
    if discount == "log2":
        return log2_discount
    if discount == "letor4":
        return letor4_discount
    if callable(discount):
        return discount
    raise ValueError(f"discount must be 'log2', 'letor4' or a function, got {discount!r}")


def check_gain(gain: Gain) -> Gain:
    """Return `gain`, or raise a ValueError if it is neither a name nor a function."""
    gain_function(gain)
    return gain


def check_discount(discount: Discount) -> Discount:
    """Return `discount`, or raise a ValueError if it is neither a name nor a function."""
    discount_function(discount)
    return discount


def item_gains(
    labels: Tensor, mask: Tensor | None, weights: Tensor | None, gain: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return the gain of each item times its weight, (..., n), 0 under the mask.

    A function may return a condition, such as labels >= 2: True is a gain of 1, and False of 0.

    >>> item_gains(torch.tensor([2.0, 1.0]), None, torch.tensor([1.0, 0.5]), gain_function("exp2"))
    tensor([3.0000, 0.5000])
    """
    gains = gain(masked_fill(labels, mask))
    gains = gains if gains.is_floating_point() else gains.to(labels.dtype)
    return masked_fill(gains if weights is None else gains * weights, mask)


def ndcg_gains(
    labels: Tensor, mask: Tensor | None, weights: Tensor | None, gain: Gain = "exp2"
) -> Tensor:
    """Return gains times weights, (..., n), up to a factor for each list that cancels in NDCG.

    For "exp2" the gain is 2^(y - max y) - 2^(-max y), so labels of 128 or more do not overflow in
    float32. The largest label is that of the items with a weight above 0. For whole labels, the
    factor cancels without a rounding error.

    >>> ndcg_gains(torch.tensor([0.0, 199.0, 200.0]), None, None)
    tensor([0.0000, 0.5000, 1.0000])
    """
    if gain != "exp2":
        return item_gains(labels, mask, weights, gain_function(gain))
    labels = masked_fill(labels, mask)
    if weights is not None:
        labels = torch.where(weights > 0, labels, 0.0)
    gains = _scaled_exp2(labels, largest(labels).unsqueeze(-1))  # 0 for a label of 0
    return gains if weights is None else gains * masked_fill(weights, mask)


def _scaled_exp2(labels: Tensor, most: Tensor) -> Tensor:
    return torch.exp2(labels - most) - torch.exp2(-most)


def stop_probabilities(
    labels: Tensor,
    mask: Tensor | None,
    max_label: float | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Return the probability that a reader stops at each item: R = (2^label - 1) / 2^max_label.

    By default `max_label` is the largest label of each list. Labels above `max_label` count as
    `max_label`. No power overflows. The result is (..., n), and 0 under the mask. With a weight w
    the reader looks at the item w times, and stops with probability 1 - (1 - R)^w.

    >>> stop_probabilities(torch.tensor([0.0, 1.0, 2.0]), None)
    tensor([0.0000, 0.2500, 0.7500])
    >>> stop_probabilities(torch.tensor([0.0, 1.0, 2.0]), None, None, torch.tensor([9.0, 2.0, 0.5]))
    tensor([0.0000, 0.4375, 0.5000])
    """
    labels = masked_fill(labels, mask)
    if max_label is None:
        top = largest(labels).unsqueeze(-1)
    else:
        top, labels = torch.full_like(labels, max_label), labels.clamp(max=max_label)
    stops = masked_fill(_scaled_exp2(labels, top), mask)
    if weights is None:
        return stops
    return -torch.expm1(masked_fill(weights, mask) * log_left(stops))


def log_left(stops: Tensor) -> Tensor:
    """Return log(1 - R) of stop probabilities R. The result is finite even if R is rounded to 1.

    >>> log_left(torch.tensor([0.75, 0.5]))
    tensor([-1.3863, -0.6931])
    """
    return torch.log1p(-stops.clamp(max=1 - torch.finfo(stops.dtype).eps))


def truncated(
    discount: Callable[[Tensor], Tensor], k: int, *, exact: bool
) -> Callable[[Tensor], Tensor]:
    """Return `discount`, set to 0 after rank k. All losses and metrics share this cutoff.

    Args:
        discount: maps ranks (..., n) to discounts (..., n).
        k: a whole number >= 1.
        exact: True for whole ranks: the discount is 0 for ranks above k. False for soft ranks: the
            discount is multiplied by 1/2 + arctan((k + 1/2 - rank) / `CUT_WIDTH`) / pi. This factor
            is a Cauchy distribution function, whose tail decreases like 1 / (rank - k). So items
            far after k, such as most items of a long list before training, still have a gradient.
            With an exponential tail they would have none.

    Raises:
        ValueError: k is not a whole number >= 1.

    >>> truncated(torch.ones_like, 2, exact=True)(torch.tensor([1.0, 2.0, 3.0]))
    tensor([1., 1., 0.])
    >>> truncated(torch.ones_like, 2, exact=False)(torch.tensor([1.0, 2.0, 3.0]))
    tensor([0.9788, 0.9372, 0.0628])
    """
    k = check_whole("k", k)
    return Cut(discount, k, exact)


class Cut:
    """The result of `truncated`."""

    def __init__(self, discount: Callable[[Tensor], Tensor], k: int, exact: bool):
        self.discount = discount
        self.k = k
        self.is_exact = exact

    def __call__(self, ranks: Tensor) -> Tensor:
        """Return the discounts (..., n) of ranks (..., n)."""
        if self.is_exact:  # NaN ranks stay NaN
            return torch.where(ranks > self.k, 0.0, self.discount(ranks) + 0 * ranks)
        inside = torch.atan((self.k + 0.5 - ranks) / CUT_WIDTH)
        return self.discount(ranks) * (0.5 + inside / torch.pi)


def with_exact_cutoff(discount: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the discount with an exact cutoff instead of a smooth one, if it has a cutoff.

    >>> smooth = truncated(torch.ones_like, 2, exact=False)
    >>> with_exact_cutoff(smooth)(torch.tensor([1.0, 2.0, 3.0]))
    tensor([1., 1., 0.])
    """
    return Cut(discount.discount, discount.k, True) if isinstance(discount, Cut) else discount


def with_cutoff(
    discount: Callable[[Tensor], Tensor], top_k: int | None, *, exact: bool
) -> Callable[[Tensor], Tensor]:
    """Return `discount` with a cutoff after rank `top_k`, or `discount` itself if `top_k` is None.

    The cutoff is that of `truncated`: exact if `exact` is True, and smooth otherwise.

    >>> with_cutoff(log2_discount, 1, exact=True)(torch.tensor([1.0, 2.0]))
    tensor([1., 0.])
    """
    return discount if top_k is None else truncated(discount, top_k, exact=exact)


def ideal_dcg(
    gains: Tensor, discount: Callable[[Tensor], Tensor], top_k: int | None = None
) -> Tensor:
    """Return the largest DCG over all orders of the items: gains (..., n) -> (...).

    Cost: one sort.

    >>> ideal_dcg(torch.tensor([1.0, 3.0]), log2_discount)
    tensor(3.6309)
    """
    best = falling_values(gains)[..., :top_k]
    return (best * discount(positions(best))).sum(-1)


def greedy_topics(topics: Tensor, alpha: float, top_k: int | None) -> tuple[Tensor, Tensor]:
    """Return the greedy order of alpha-DCG: each position gets the item with the largest gain.

    The gain of an item is the sum over the topics of t * (the product of 1 - alpha * t' over the
    items at earlier positions). t is how far the item is about the topic, and t' is the same value
    of an earlier item. Items with equal gains are taken in the order of the list.

    Args:
        topics: (..., n, topics), how far each item is about each topic, in [0, 1]; 0 or 1 in the
            metric.
        alpha: the fraction of its gain that a topic loses with each item about it, in [0, 1].
        top_k: k, the number of positions to fill. Default: all.

    Returns:
        The gains (..., n) at each position, 0 after position k, and the items (..., k), int64.
        Cost: O(n k topics).

    Reference: Clarke et al., "Novelty and diversity in information retrieval evaluation", 2008.

    >>> gains, items = greedy_topics(torch.tensor([[1.0, 0], [1.0, 0], [0, 1.0]]), 0.5, None)
    >>> gains, items
    (tensor([1.0000, 1.0000, 0.5000]), tensor([0, 2, 1]))
    """
    n = topics.shape[-2]
    worth = topics.new_ones(*topics.shape[:-2], topics.shape[-1])
    free = topics.new_ones(topics.shape[:-1], dtype=torch.bool)
    gains = topics.new_zeros(topics.shape[:-1])
    items = []
    for position in range(n if top_k is None else min(n, top_k)):
        offered = (topics * worth.unsqueeze(-2)).sum(-1).masked_fill(~free, -1.0)
        best, item = offered.max(-1, keepdim=True)
        gains[..., position] = best.squeeze(-1)
        free = free.scatter(-1, item, False)
        taken = topics.gather(-2, item.unsqueeze(-1).expand(*item.shape, topics.shape[-1]))
        worth = worth * (1 - alpha * taken.squeeze(-2))
        items.append(item)
    none = torch.zeros((*topics.shape[:-2], 0), dtype=torch.int64, device=topics.device)
    return gains, torch.cat([none, *items], -1)
