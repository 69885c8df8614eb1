"""1 - precision@k and 1 - recall@k by soft membership in the first k."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ltr._shapes import check_whole
from ltr.gains import ideal_dcg, item_gains
from ltr.losses._soft import relevance, shortfall
from ltr.losses.base import Lengths, RankingLoss, Reduction
from ltr.operators import RankOperator, SigmoidRank
from ltr.operators.base import check_operator


class _SoftTopK(RankingLoss):
    """What precision and recall share; they differ in what divides the soft hits."""

    def __init__(
        self,
        operator: RankOperator | None = None,
        top_k: int | Sequence[int] = 10,
        normalize: bool = True,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = SigmoidRank() if operator is None else check_operator(operator)
        cuts = list(top_k) if isinstance(top_k, Sequence) else [top_k]
        if not cuts:
            raise ValueError(f"top_k must have at least one whole number, got {top_k!r}")
        self.cuts = [check_whole("top_k", k) for k in cuts]
        self.top_k = self.cuts if isinstance(top_k, Sequence) else self.cuts[0]
        self.normalize = normalize

    def divisor(self, gains: Tensor, items: Tensor, k: int) -> Tensor:
        """What divides the soft hits without `normalize`, (...).

        `items` (..., n) are the weights, 0 under the mask; `gains` those of the relevant items.
        """
        raise NotImplementedError

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """1 - the soft metric of each list, the mean over the cuts."""
        gains = item_gains(labels, mask, weights, relevance)
        items = item_gains(labels, mask, weights, torch.ones_like)
        losses = []
        for k in self.cuts:
            hits = (gains * self.operator.top_k(k, scores, mask)).sum(-1)
            most = ideal_dcg(gains, torch.ones_like, k)
            if self.normalize:
                losses.append(shortfall(hits, most))
            else:
                divisor = torch.where(most > 0, self.divisor(gains, items, k), 0.0)
                losses.append(shortfall(hits, divisor))
        return torch.stack(losses).mean(0)


class SoftPrecision(_SoftTopK):
    """1 - soft precision@k: soft hits among the first k, over the most that any order has.

    The most is min(k, number of relevant items), so that the loss falls to 0; with
    `normalize=False` the divisor is k, and with hard ranks the loss exactly 1 - precision@k.
    Divided by the ideal, precision@k and recall@k of a list are the same.

    What unusual lists give: no relevant item, or all masked: 0, with a graph. One item: about 0.
    Tied scores: what the operator gives them.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`. It gives the soft membership: a
            smooth cut of the ranks at k + 1/2, or better.
        top_k: k, or several, over which the mean is taken. Default: 10.
        normalize: whether to divide by the ideal, or by k. Default: True.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights multiply the hits, in the ideal too (it has the k largest weights); with
    `normalize=False` the divisor is k times the mean of the k largest weights of the list.

    Raises:
        ValueError: an argument that is none of these, named with its value.

    >>> from ltr.operators import HardRank
    >>> loss = SoftPrecision(HardRank(), top_k=2)
    >>> loss(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 1.0]))
    tensor(0.5000)
    """

    def divisor(self, gains: Tensor, items: Tensor, k: int) -> Tensor:
        """The cut k; with weights as many times the mean of the k largest."""
        places = ideal_dcg((items > 0).to(items.dtype), torch.ones_like, k)
        largest = ideal_dcg(items, torch.ones_like, k)
        return k * largest / places.clamp(min=1)


class SoftRecall(_SoftTopK):
    """1 - soft recall@k: soft hits among the first k, over the most that any order has.

    The most is min(k, number of relevant items), so that the loss falls to 0; with
    `normalize=False` the divisor is the number of relevant items, and with hard ranks the loss
    exactly 1 - recall@k. The recall@k surrogate of Patel et al. is
    `SoftRecall(SigmoidRank(0.01), top_k=[1, 2, 4, 8, 16])`: ranks by sigmoids of differences,
    then a smooth step at k (theirs is a sigmoid; ours has a longer tail).

    What unusual lists give: no relevant item, or all masked: 0, with a graph. One item: about 0.
    Tied scores: what the operator gives them.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`. It gives the soft membership: a
            smooth cut of the ranks at k + 1/2, or better.
        top_k: k, or several, over which the mean is taken. Default: 10.
        normalize: whether to divide by the ideal, or by the relevant items. Default: True.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights multiply the hits, in the ideal too (it has the k largest weights).

    Raises:
        ValueError: an argument that is none of these, named with its value.

    Reference: Patel, Tolias and Matas, "Recall@k surrogate loss with large batches and similarity
    mixup", CVPR 2022.

    >>> from ltr.operators import HardRank
    >>> loss = SoftRecall(HardRank(), top_k=1, normalize=False)
    >>> loss(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 1.0, 0.0]))
    tensor(0.5000)
    """

    def divisor(self, gains: Tensor, items: Tensor, k: int) -> Tensor:
        """The number, or weight, of the relevant items."""
        return gains.sum(-1)


def soft_precision_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    operator: RankOperator | None = None,
    top_k: int | Sequence[int] = 10,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """1 - soft precision@k, as a function: (..., n) each -> a scalar. See `SoftPrecision`.

    >>> soft_precision_loss(torch.tensor([9.0, 1.0]), torch.tensor([0.0, 1.0]), top_k=1).round()
    tensor(1.)
    """
    return SoftPrecision(operator, top_k, normalize, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )


def soft_recall_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    operator: RankOperator | None = None,
    top_k: int | Sequence[int] = 10,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """1 - soft recall@k, as a function: (..., n) each -> a scalar. See `SoftRecall`.

    >>> soft_recall_loss(torch.tensor([9.0, 1.0]), torch.tensor([0.0, 1.0]), top_k=1).round()
    tensor(1.)
    """
    return SoftRecall(operator, top_k, normalize, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )
