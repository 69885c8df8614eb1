"""Penalties on the exposure of a protected group, to be added to a ranking loss."""

import copy

import torch
from torch import Tensor

from ltr.gains import Discount, check_discount, discount_function
from ltr.losses.base import RankingLoss, Reduction
from ltr.losses.ndcg import SoftNDCG
from ltr.losses.soft import cutoff_discount, rank_operator, real_weights, weighted_mean
from ltr.operators import RankOperator
from ltr.shapes import check_flag, check_number, check_top_k, masked_fill


class ExposureParity(RankingLoss):
    """Penalty if a protected group of items gets more or less exposure than the other items.

    An item's exposure is the attention that users give to its rank. The loss is (mean exposure of
    the protected items - mean exposure of the others)^2.

    Exposure is computed as discount(soft rank), such as 1 / log2(1 + rank). With `merit=True`,
    exposure should be in proportion to relevance: each of the two means is divided by the merit of
    its items. The merit is the mean label, scaled so that the larger of the two merits is 1. With
    `one_sided=True`, the loss counts only a lack of exposure of the protected items (DELTR).

    This loss is a constraint and does not teach a ranking by itself. `Penalized` adds it to a
    ranking loss.

    Special cases: the loss is 0, with a zero gradient, for a list in which all items or no items
    are protected, and for a fully masked list. With `merit=True` it is also 0 if no protected item,
    or no other item, is relevant. The operator decides the ranks of tied scores.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`.
        top_k: k, if only the first k ranks give exposure, with a cutoff at rank k + 1/2.
            Default: all ranks.
        merit: whether exposure should be in proportion to the labels. Default: False, for equal
            exposure.
        one_sided: whether the protected items may have more exposure than the others. Default:
            False.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4" (see
            `ltr.metrics.functional.ndcg`), or a function of the ranks.

    `forward` has one more argument, `protected` (..., n): above 0 for an item in the protected
    group. Default: the labels. With weights, the means are weighted means.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Singh and Joachims, "Fairness of exposure in rankings", KDD 2018; Zehlike and
    Castillo, "Reducing disparate exposure in ranking: a learning to rank approach" (DELTR), 2020.

    >>> from ltr.operators import HardRank
    >>> protected = torch.tensor([1.0, 0.0, 0.0])
    >>> ExposureParity(HardRank(), discount=torch.reciprocal)(  # (1/3 - (1 + 1/2) / 2)^2
    ...     torch.tensor([1.0, 3.0, 2.0]), torch.zeros(3), protected=protected)
    tensor(0.1736)
    """

    side_inputs = ("protected",)

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
        self.operator = rank_operator(operator)
        self.top_k = check_top_k(top_k)
        self.merit = check_flag("merit", merit)
        self.one_sided = check_flag("one_sided", one_sided)
        self.discount: Discount = check_discount(discount)

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
        protected: Tensor | None = None,
    ) -> Tensor:
        """Return the penalty of each list; `protected` (..., n) is above 0 for protected items."""
        protected = labels if protected is None else protected
        w = real_weights(scores, mask, weights)
        inside = w * masked_fill((protected > 0).to(scores.dtype), mask)
        outside = w - inside
        discount = cutoff_discount(discount_function(self.discount), self.top_k, self.operator)
        exposure = self.operator.discounts(discount, scores, mask)
        gap = weighted_mean(exposure, outside) - weighted_mean(exposure, inside)
        defined = (inside.sum(-1) > 0) & (outside.sum(-1) > 0)
        if self.merit:
            merits = [weighted_mean(masked_fill(labels, mask), part) for part in (inside, outside)]
            defined = defined & (merits[0] > 0) & (merits[1] > 0)
            top = torch.where(defined, torch.maximum(*merits), 1.0)
            own, other = (torch.where(defined, m, 1.0) / top for m in merits)
            gap = weighted_mean(exposure, outside) / other - weighted_mean(exposure, inside) / own
        if self.one_sided:
            gap = gap.relu()
        return torch.where(defined, gap.square(), 0 * gap)


class Penalized(RankingLoss):
    """A ranking loss plus a penalty: loss + strength * penalty.

    In special cases, such as a list without a relevant item, each of the two terms has its own
    value.

    Args:
        loss: any `RankingLoss`. Default: `SoftNDCG()`.
        penalty: any `RankingLoss`. Default: `ExposureParity()`.
        strength: the factor of the penalty, >= 0. Default: 1.
        reduction: replaces the reductions of the loss and of the penalty.

    `forward` passes the side inputs of the loss, such as `position` of `Unbiased`, to the loss. It
    passes the side inputs of the penalty, such as `protected`, to the penalty, and also any further
    arguments that are side inputs of neither.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    >>> from ltr.losses import PointwiseMSE
    >>> scores, labels = torch.tensor([3.0, 1.0]), torch.tensor([1.0, 1.0])
    >>> Penalized(PointwiseMSE(), PointwiseMSE(), strength=0.5)(scores, labels)  # 2 + 2 / 2
    tensor(3.)
    """

    grades = False  # the loss and the penalty check their labels themselves

    def __init__(
        self,
        loss: RankingLoss | None = None,
        penalty: RankingLoss | None = None,
        strength: float = 1.0,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.loss = unreduced(SoftNDCG() if loss is None else loss)
        self.penalty = unreduced(ExposureParity() if penalty is None else penalty, "penalty")
        self.strength = check_number("strength", strength, minimum=0.0)
        self.every_item = self.loss.every_item
        self.side_inputs = tuple(dict.fromkeys((*self.loss.side_inputs, *self.penalty.side_inputs)))

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
        **extra: Tensor,
    ) -> Tensor:
        """Return the loss of each list plus `strength` times its penalty."""
        own, others = self.shared(extra)
        value = self.loss(scores, labels, mask, weights, **own)
        return value + self.strength * self.penalty(scores, labels, mask, weights, **others)

    def shared(self, extra: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the arguments in `extra` that go to the loss, and those that go to the penalty."""
        own = {name: x for name, x in extra.items() if name in self.loss.side_inputs}
        needed = self.penalty.side_inputs
        return own, {n: x for n, x in extra.items() if n in needed or n not in own}


def unreduced(loss: RankingLoss, name: str = "loss") -> RankingLoss:
    """Return a shallow copy of the loss with reduction="none".

    The copy shares its operators and parameters with the original.

    Raises:
        ValueError: loss is not a `RankingLoss`; the message names the argument `name`.

    >>> unreduced(SoftNDCG())(torch.zeros(2, 1), torch.ones(2, 1))
    tensor([0., 0.])
    """
    if not isinstance(loss, RankingLoss):
        raise ValueError(f"{name} must be a RankingLoss, got {loss!r}")
    loss = copy.copy(loss)
    loss.reduction = "none"
    return loss
