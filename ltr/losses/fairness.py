"""Penalties on the exposure of groups, to be added to a ranking loss."""

import copy

import torch
from torch import Tensor

from ltr._shapes import check_number, check_top_k, masked_fill
from ltr.gains import Discount, discount_function
from ltr.losses._soft import cut, weighted_mean
from ltr.losses.base import Lengths, RankingLoss, Reduction
from ltr.losses.ndcg import SoftNDCG
from ltr.operators import RankOperator, SigmoidRank
from ltr.operators.base import check_operator


class ExposureParity(RankingLoss):
    """(mean exposure of one group - mean exposure of the other)^2, with exposure by soft ranks.

    An item's exposure is discount(soft rank), such as 1 / log2(1 + rank). The first group are
    the items with a group id above 0, the second the others. With `merit` each group's exposure
    is divided by its mean label, scaled so that the larger merit is 1: exposure in proportion to
    relevance. With `one_sided` only a lack of exposure of the first group counts (DELTR).

    This is a constraint and no aim: `Penalized` adds it to a ranking loss.

    What unusual lists give: one group alone, or all masked: 0, with a graph; with `merit` also a
    group without a relevant item. Tied scores: what the operator gives them.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`.
        top_k: exposure among the first k alone, by a smooth cut at rank k + 1/2. Default: all.
        merit: whether exposure is to be in proportion to the labels, or equal (default).
        one_sided: whether the first group may have more. Default: False.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4", or a function of the ranks.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    `forward` has a further argument, `groups` (..., n), by default the labels. Weights make the
    means over the groups weighted ones.

    Raises:
        ValueError: an argument that is none of these, named with its value.

    Reference: Singh and Joachims, "Fairness of exposure in rankings", KDD 2018; Zehlike and
    Castillo, "Reducing disparate exposure in ranking: a learning to rank approach" (DELTR), 2020.

    >>> from ltr.operators import HardRank
    >>> groups = torch.tensor([1.0, 0.0, 0.0])
    >>> ExposureParity(HardRank(), discount=torch.reciprocal)(  # (1/3 - (1 + 1/2) / 2)^2
    ...     torch.tensor([1.0, 3.0, 2.0]), torch.zeros(3), groups=groups)
    tensor(0.1736)
    """

    def __init__(
        self,
        operator: RankOperator | None = None,
        top_k: int | None = None,
        merit: bool = False,
        one_sided: bool = False,
        discount: Discount = "log2",
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = SigmoidRank() if operator is None else check_operator(operator)
        self.top_k = check_top_k(top_k)
        self.merit = merit
        self.one_sided = one_sided
        discount_function(discount)  # a ValueError for what is none
        self.discount: Discount = discount

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
        groups: Tensor | None = None,
    ) -> Tensor:
        """The penalty of each list; groups (..., n), above 0 for the first, default to labels."""
        groups = labels if groups is None else groups
        w = masked_fill(torch.ones_like(scores) if weights is None else weights, mask)
        first = w * masked_fill((groups > 0).to(scores.dtype), mask)
        second = w - first
        exposure = self.operator.discounts(
            cut(discount_function(self.discount), self.top_k, self.operator), scores, mask
        )
        gap = weighted_mean(exposure, second) - weighted_mean(exposure, first)
        defined = (first.sum(-1) > 0) & (second.sum(-1) > 0)
        if self.merit:
            merits = [weighted_mean(masked_fill(labels, mask), group) for group in (first, second)]
            defined = defined & (merits[0] > 0) & (merits[1] > 0)
            top = torch.where(defined, torch.maximum(*merits), 1.0)
            one, other = (torch.where(defined, m, 1.0) / top for m in merits)
            gap = weighted_mean(exposure, second) / other - weighted_mean(exposure, first) / one
        if self.one_sided:
            gap = gap.relu()
        return torch.where(defined, gap.square(), 0 * gap)


class Penalized(RankingLoss):
    """A ranking loss and a penalty: loss + strength * penalty.

    What unusual lists give: what the two give.

    Args:
        loss: any `RankingLoss`. Default: `SoftNDCG()`.
        penalty: any `RankingLoss`. Default: `ExposureParity()`.
        strength: >= 0. Default: 1.
        reduction: "mean" over the lists with a real item (default), "sum", "none". Those of the
            two parts do not count.

    Arguments in `forward` beyond `scores, labels, mask, weights`, such as `groups`, go to the
    penalty.

    >>> from ltr.losses import PointwiseMSE
    >>> scores, labels = torch.tensor([3.0, 1.0]), torch.tensor([1.0, 1.0])
    >>> Penalized(PointwiseMSE(), PointwiseMSE(), strength=0.5)(scores, labels)  # 2 + 2 / 2
    tensor(3.)
    """

    grades = False  # the two losses look at their labels themselves

    def __init__(
        self,
        loss: RankingLoss | None = None,
        penalty: RankingLoss | None = None,
        strength: float = 1.0,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.loss = unreduced(SoftNDCG() if loss is None else loss)
        self.penalty = unreduced(ExposureParity() if penalty is None else penalty)
        self.strength = check_number("strength", strength, minimum=0.0)

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
        **extra: Tensor,
    ) -> Tensor:
        """Loss and penalty of each list."""
        loss = self.loss(scores, labels, mask, weights)
        return loss + self.strength * self.penalty(scores, labels, mask, weights, **extra)

    def per_ragged_list(
        self,
        scores: Tensor,
        labels: Tensor,
        lengths: Tensor,
        weights: Tensor | None,
        **extra: Tensor,
    ) -> Tensor:
        """Loss and penalty of each ragged list."""
        loss = self.loss(scores, labels, None, weights, lengths=lengths)
        penalty = self.penalty(scores, labels, None, weights, lengths=lengths, **extra)
        return loss + self.strength * penalty


def unreduced(loss: RankingLoss) -> RankingLoss:
    """The loss with reduction="none": a shallow copy, of the same operators and parameters.

    >>> unreduced(SoftNDCG())(torch.zeros(2, 1), torch.ones(2, 1))
    tensor([0., 0.])
    """
    loss = copy.copy(loss)
    loss.reduction = "none"
    return loss


def exposure_parity_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    groups: Tensor | None = None,
    operator: RankOperator | None = None,
    top_k: int | None = None,
    merit: bool = False,
    one_sided: bool = False,
    discount: Discount = "log2",
    reduction: Reduction = "mean",
) -> Tensor:
    """Squared difference of two groups' exposure, as a function. See `ExposureParity`.

    >>> groups = torch.tensor([1, 0])
    >>> exposure_parity_loss(torch.zeros(2), torch.ones(2), groups=groups)  # tied: equal exposure
    tensor(0.)
    """
    loss = ExposureParity(operator, top_k, merit, one_sided, discount, reduction)
    return loss(scores, labels, mask, weights, lengths=lengths, padding=padding, groups=groups)


def penalized_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    loss: RankingLoss | None = None,
    penalty: RankingLoss | None = None,
    strength: float = 1.0,
    reduction: Reduction = "mean",
    **extra: Tensor | None,
) -> Tensor:
    """A ranking loss and a penalty, as a function; `extra` go to the penalty. See `Penalized`.

    >>> from ltr.losses import PointwiseMSE
    >>> scores, labels, squares = torch.tensor([3.0, 1.0]), torch.tensor([1.0, 1.0]), PointwiseMSE()
    >>> penalized_loss(scores, labels, loss=squares, penalty=squares, strength=0.5)  # 2 + 2 / 2
    tensor(3.)
    """
    both = Penalized(loss, penalty, strength, reduction)
    return both(scores, labels, mask, weights, lengths=lengths, padding=padding, **extra)
