"""1 - MRR on soft ranks."""

from functools import partial

from torch import Tensor

from ltr.gains import item_gains
from ltr.losses.base import Lengths, RankingLoss, Reduction, loss_of_lists
from ltr.losses.soft import cut, rank_operator, reciprocal_rank, relevance, shortfall
from ltr.operators import RankOperator
from ltr.shapes import check_top_k, largest


class SoftMRR(RankingLoss):
    """1 - soft reciprocal rank: 1 - max over the relevant items i of 1 / soft rank_i.

    With hard ranks this is exactly 1 - `ltr.metrics.MRR`: only the first relevant item counts.
    (Some libraries take the mean of 1 / rank over the relevant items instead. A second relevant
    item then lowers the value.) Soft ranks below 1 count as 1.

    Special cases: the loss is 0, with a zero gradient, for a list without a relevant item or fully
    masked. For one item it is 0 if the item's soft rank is 1. The operator decides the ranks of
    tied scores.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`.
        top_k: MRR@k, by a smooth cut at rank k + 1/2. Default: all.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights multiply the reciprocal ranks, in the ideal too.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Voorhees, "The TREC-8 question answering track report", 1999; with soft ranks as in
    Qin, Liu and Li, 2010.

    >>> import torch
    >>> from ltr.operators import HardRank
    >>> SoftMRR(HardRank())(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 1.0]))
    tensor(0.5000)
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
        """Return 1 - soft reciprocal rank of each list."""
        return _mrr(scores, labels, mask, weights, operator=self.operator, top_k=self.top_k)


def _mrr(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    operator: RankOperator,
    top_k: int | None,
) -> Tensor:
    gains = item_gains(labels, mask, weights, relevance)
    reciprocal = operator.discounts(cut(reciprocal_rank, top_k, operator), scores, mask)
    return shortfall(largest(gains * reciprocal), largest(gains))


def soft_mrr_loss(
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
    """Return 1 - soft reciprocal rank: scores, labels, mask, weights (..., n) -> a scalar.

    This is the function form of `SoftMRR`, which documents the arguments, the errors and the
    special cases.

    >>> import torch
    >>> from ltr.operators import HardRank
    >>> soft_mrr_loss(torch.tensor([3.0, 1.0]), torch.tensor([0.0, 1.0]), operator=HardRank())
    tensor(0.5000)
    """
    return loss_of_lists(
        partial(_mrr, operator=rank_operator(operator), top_k=check_top_k(top_k)),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
    )
