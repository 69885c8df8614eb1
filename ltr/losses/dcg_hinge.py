"""The DCG hinge: a discount of the number of wrong pairs, bounded by hinges."""

import math

import torch
from torch import Tensor

from ltr.losses._pair_sums import pair_sums
from ltr.losses.base import Lengths, RankingLoss, Reduction
from ltr.losses.pairs import PairWeights
from ltr.losses.pairwise import HingeCost


class PairwiseDCGHinge(RankingLoss):
    """1 - 1 / log2(2 + H), with H the sum of max(0, margin - (s_i - s_j)) over pairs y_i > y_j.

    With a margin of 1 the hinges bound the number of wrong pairs from above. With one relevant
    item that number is its rank - 1, so 1 / log2(2 + H) is a lower bound of its DCG. The discount
    makes a list count less, the more of it is wrong: the slope falls as 1 / (H log(H)^2), where
    that of `PairwiseHinge` is constant. It is always between 0 and 1, and 0 where each pair is
    right by the margin.

    No pair, one item, or all masked: 0, with a graph. Tied scores are pairs like others. Weights:
    that of item i, with the higher label, multiplies the pair. Time O(n^2), memory O(n).

    Args:
        margin: > 0, in units of score. Default: 1.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: margin or reduction is none of these.

    Reference: Agarwal, Takatsu, Zaitsev and Joachims, "A general framework for counterfactual
    learning-to-rank", SIGIR 2019 (there one rank bound for each relevant item); as one sum over
    the list's pairs pytorchltr's `PairwiseDCGHingeLoss`, -1 / log(2 + H), which is this one
    shifted and scaled to fall from 1 to 0.

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
        """The discounted sum of each list's hinges."""
        total, _ = pair_sums(self.cost, PairWeights(), scores, labels, mask, weights)
        # log1p: a list that is right to a rounding error is not below 0
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
    """1 - 1 / log2(2 + the sum of the pairs' hinges), as a function. See `PairwiseDCGHinge`.

    >>> pairwise_dcg_hinge_loss(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]))
    tensor(0.5000)
    """
    return PairwiseDCGHinge(margin, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )
