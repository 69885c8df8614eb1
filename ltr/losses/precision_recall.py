"""1 - precision@k and 1 - recall@k, by the soft membership in the first k."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from ltr.gains import ideal_dcg, item_gains
from ltr.losses.base import Lengths, RankingLoss, Reduction, loss_of_lists
from ltr.losses.soft import rank_operator, relevance, shortfall
from ltr.operators import RankOperator
from ltr.shapes import check_whole

Divisor = Callable[[Tensor, Tensor, int], Tensor]


class _SoftTopK(RankingLoss):
    """The common part of precision and recall, which differ in the divisor of the soft hits."""

    def __init__(
        self,
        operator: RankOperator | None = None,
        top_k: int | Sequence[int] = 10,
        normalize: bool = True,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = rank_operator(operator)
        self.cuts = _check_cuts(top_k)
        self.top_k = self.cuts if isinstance(top_k, Sequence) else self.cuts[0]
        self.normalize = normalize

    def divisor(self, gains: Tensor, items: Tensor, k: int) -> Tensor:
        """Return the divisor of the soft hits without `normalize`: (...).

        `items` (..., n) are the weights, 0 under the mask. `gains` (..., n) are the weights of the
        relevant items, 0 elsewhere.
        """
        raise NotImplementedError

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return 1 - the soft metric of each list, the mean over the cuts."""
        return _missed_hits(
            scores,
            labels,
            mask,
            weights,
            operator=self.operator,
            cuts=self.cuts,
            divisor=None if self.normalize else self.divisor,
        )


class SoftPrecision(_SoftTopK):
    """1 - soft precision@k: the soft hits among the first k, divided by the most any order has.

    That maximum is min(k, number of relevant items), so the minimum of the loss is 0. With
    `normalize=False` the divisor is k; with hard ranks the loss is then exactly 1 - precision@k.
    With `normalize=True` the precision@k and the recall@k of a list are the same.

    Special cases: the loss is 0, with a zero gradient, for a list without a relevant item or fully
    masked. For one item it is about 0. The operator decides how tied scores share the places.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`. It computes the soft membership in
            the first k: by default a smooth cut of the ranks at k + 1/2.
        top_k: k, or several numbers, over which the mean is taken. Default: 10.
        normalize: True (default) divides by the maximum, False by k.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights multiply the hits. The maximum is then the sum of the k largest weights of relevant
    items. With `normalize=False` the divisor is k times the mean of the k largest weights.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    >>> from ltr.operators import HardRank
    >>> loss = SoftPrecision(HardRank(), top_k=2)
    >>> loss(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 1.0]))
    tensor(0.5000)
    """

    def divisor(self, gains: Tensor, items: Tensor, k: int) -> Tensor:
        """Return k, or with weights k times the mean of the k largest."""
        return _places(gains, items, k)


class SoftRecall(_SoftTopK):
    """1 - soft recall@k: the soft hits among the first k, divided by the most any order has.

    That maximum is min(k, number of relevant items), so the minimum of the loss is 0. With
    `normalize=False` the divisor is the number of relevant items; with hard ranks the loss is then
    exactly 1 - recall@k.

    The recall@k surrogate of Patel et al. is
    `SoftRecall(SigmoidRank(0.01), top_k=[1, 2, 4, 8, 16])`: ranks by sigmoids of differences, then
    a smooth step at k. Their step is a sigmoid; ours has a longer tail.

    Special cases: the loss is 0, with a zero gradient, for a list without a relevant item or fully
    masked. For one item it is about 0. The operator decides how tied scores share the places.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`. It computes the soft membership in
            the first k: by default a smooth cut of the ranks at k + 1/2.
        top_k: k, or several numbers, over which the mean is taken. Default: 10.
        normalize: True (default) divides by the maximum, False by the number of relevant items.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights multiply the hits. The maximum is then the sum of the k largest weights of relevant
    items.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Patel, Tolias and Matas, "Recall@k surrogate loss with large batches and similarity
    mixup", CVPR 2022.

    >>> from ltr.operators import HardRank
    >>> loss = SoftRecall(HardRank(), top_k=1, normalize=False)
    >>> loss(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 1.0, 0.0]))
    tensor(0.5000)
    """

    def divisor(self, gains: Tensor, items: Tensor, k: int) -> Tensor:
        """Return the number, or the total weight, of the relevant items."""
        return _relevant_items(gains, items, k)


def _missed_hits(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    operator: RankOperator,
    cuts: list[int],
    divisor: Divisor | None,
) -> Tensor:
    gains = item_gains(labels, mask, weights, relevance)
    items = item_gains(labels, mask, weights, torch.ones_like)
    losses = []
    for k in cuts:
        hits = (gains * operator.top_k(k, scores, mask)).sum(-1)
        most = ideal_dcg(gains, torch.ones_like, k)
        if divisor is None:
            losses.append(shortfall(hits, most))
        else:
            losses.append(shortfall(hits, torch.where(most > 0, divisor(gains, items, k), 0.0)))
    return torch.stack(losses).mean(0)


def _places(gains: Tensor, items: Tensor, k: int) -> Tensor:
    """Return k times the mean of the k largest weights: the divisor of precision."""
    places = ideal_dcg((items > 0).to(items.dtype), torch.ones_like, k)
    largest = ideal_dcg(items, torch.ones_like, k)
    return k * largest / places.clamp(min=1)


def _relevant_items(gains: Tensor, items: Tensor, k: int) -> Tensor:
    """Return the total weight of the relevant items: the divisor of recall."""
    return gains.sum(-1)


def _check_cuts(top_k: int | Sequence[int]) -> list[int]:
    cuts = list(top_k) if isinstance(top_k, Sequence) else [top_k]
    if not cuts:
        raise ValueError(f"top_k must have at least one whole number, got {top_k!r}")
    return [check_whole("top_k", k) for k in cuts]


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
    """Return 1 - soft precision@k: the function form of `SoftPrecision`.

    >>> soft_precision_loss(torch.tensor([9.0, 1.0]), torch.tensor([0.0, 1.0]), top_k=1).round()
    tensor(1.)
    """
    return loss_of_lists(
        partial(
            _missed_hits,
            operator=rank_operator(operator),
            cuts=_check_cuts(top_k),
            divisor=None if normalize else _places,
        ),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
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
    """Return 1 - soft recall@k: the function form of `SoftRecall`.

    >>> soft_recall_loss(torch.tensor([9.0, 1.0]), torch.tensor([0.0, 1.0]), top_k=1).round()
    tensor(1.)
    """
    return loss_of_lists(
        partial(
            _missed_hits,
            operator=rank_operator(operator),
            cuts=_check_cuts(top_k),
            divisor=None if normalize else _relevant_items,
        ),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
    )
