"""1 - average precision on soft ranks. The choice of the operator gives Smooth-AP and others."""

from functools import partial

import torch
from torch import Tensor

from ltr.gains import ideal_dcg, item_gains
from ltr.losses.base import Lengths, RankingLoss, Reduction, loss_of_lists
from ltr.losses.soft import cut, one_draw, rank_operator, reciprocal_rank, relevance, shortfall
from ltr.operators import RankOperator
from ltr.shapes import check_top_k, masked_fill


class SoftMAP(RankingLoss):
    """1 - soft average precision: the mean of soft precisions at the relevant items.

    The precision at item i is its soft rank among the relevant items, divided by its soft rank
    among all items. So the operator is called twice. With hard ranks this is exactly
    1 - `ltr.metrics.MAP`. With `SigmoidRank`, the default, it is Smooth-AP;
    `SoftMAP(SigmoidRank(0.01))` has the paper's temperature, for cosine similarities. If the ranks
    of an operator are not sums over pairs, the precision may be slightly above 1, and the loss
    slightly below 0.

    Special cases: the loss is 0, with a zero gradient, for a list without a relevant item or fully
    masked. For one item it is 0. The operator decides the ranks of tied scores.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`. With a `Stochastic` operator both
            ranks use the same draw.
        top_k: AP@k, by a smooth cut at rank k + 1/2. The ideal is then min(k, number of relevant
            items). Default: all.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights make the mean over the relevant items a weighted mean. With `top_k` the ideal has the
    k largest weights.

    Cost: twice the operator's.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Brown, Xie, Kalogeiton and Zisserman, "Smooth-AP: Smoothing the path towards
    large-scale image retrieval", ECCV 2020; Qin, Liu and Li, 2010.

    >>> from ltr.operators import HardRank
    >>> SoftMAP(HardRank())(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 1.0]))
    tensor(0.1667)
    """

    def __init__(
        self,
        operator: RankOperator | None = None,
        top_k: int | None = None,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = rank_operator(operator)
        self.top_k = check_top_k(top_k)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return 1 - soft average precision of each list."""
        return _map(scores, labels, mask, weights, operator=self.operator, top_k=self.top_k)


def _map(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    operator: RankOperator,
    top_k: int | None,
) -> Tensor:
    gains = item_gains(labels, mask, weights, relevance)
    ideal = ideal_dcg(gains, torch.ones_like, top_k)
    relevant = (masked_fill(labels, mask) > 0).expand(scores.shape)
    operator, scores, mask = one_draw(operator, scores, mask)
    relevant = relevant.expand(scores.shape)
    among = operator(scores, relevant if mask is None else relevant & mask)
    discount = cut(reciprocal_rank, top_k, operator)
    precision = masked_fill(among, relevant) * operator.discounts(discount, scores, mask)
    return shortfall((gains * precision).sum(-1), ideal)


def soft_map_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    operator: RankOperator | None = None,
    top_k: int | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return 1 - soft average precision: (..., n) each -> a scalar.

    This is the function form of `SoftMAP`, which documents the arguments, the errors and the
    special cases.

    >>> from ltr.operators import HardRank
    >>> soft_map_loss(torch.tensor([3.0, 1.0]), torch.tensor([0.0, 1.0]), operator=HardRank())
    tensor(0.5000)
    """
    return loss_of_lists(
        partial(_map, operator=rank_operator(operator), top_k=check_top_k(top_k)),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
    )
