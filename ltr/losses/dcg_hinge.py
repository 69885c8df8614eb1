"""The DCG hinge: a discount of the number of wrong pairs, bounded by hinges."""

import math
from functools import partial

import torch
from torch import Tensor

from ltr.losses.base import Lengths, RankingLoss, Reduction, loss_of_lists
from ltr.losses.pair_costs import HingeCost
from ltr.losses.pair_sums import pair_sums
from ltr.losses.pairs import PairCost, PairWeights


class PairwiseDCGHinge(RankingLoss):
    """1 - 1 / log2(2 + H), with H the sum of max(0, margin - (s_i - s_j)) over pairs y_i > y_j.

    With a margin of 1 the hinges bound the number of wrong pairs from above. With one relevant
    item that number is its rank - 1, so 1 / log2(2 + H) is a lower bound of its DCG. Because of the
    discount, a list counts less the more of it is wrong: the slope falls as 1 / (H log(H)^2),
    while that of `PairwiseHinge` is constant. The loss lies between 0 and 1. It is 0 if each pair
    is right by the margin.

    The loss is 0, with a zero gradient, for a list without a pair, with one item, or fully masked.
    Pairs with tied scores are treated like other pairs. The weight of item i, the one with the
    higher label, multiplies the pair. Cost: O(n^2) time, O(n) memory.

    Args:
        margin: > 0, in units of score. Default: 1.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: margin or reduction has none of these values.

    Reference: Agarwal, Takatsu, Zaitsev and Joachims, "A general framework for counterfactual
    learning-to-rank", SIGIR 2019, which has one rank bound for each relevant item. pytorchltr's
    `PairwiseDCGHingeLoss`, -1 / log(2 + H), has one sum over the list's pairs. The loss here is
    that one, shifted and scaled to lie between 0 and 1.

    >>> PairwiseDCGHinge()(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]))  # H = 2
    tensor(0.5000)
    """

    def __init__(self, margin: float = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction)
        self.cost = HingeCost(margin)
        self.margin = self.cost.margin

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the discounted sum of each list's hinges."""
        return _discounted_sum(scores, labels, mask, weights, cost=self.cost)


def _discounted_sum(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    cost: PairCost,
) -> Tensor:
    total, _ = pair_sums(cost, PairWeights(), scores, labels, mask, weights)
    # log1p keeps the loss from falling below 0 by a rounding error
    over = torch.log1p(total / 2)
    return over / (math.log(2) + over)


def pairwise_dcg_hinge_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    margin: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return 1 - 1 / log2(2 + sum of hinges): the function form of `PairwiseDCGHinge`.

    >>> pairwise_dcg_hinge_loss(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]))
    tensor(0.5000)
    """
    return loss_of_lists(
        partial(_discounted_sum, cost=HingeCost(margin)),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
    )
