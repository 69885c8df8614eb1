"""1 - NDCG on soft ranks. The choice of the operator gives ApproxNDCG and its relatives."""

from functools import partial
from typing import Any

from torch import Tensor

from ltr.gains import (
    Discount,
    Gain,
    discount_function,
    gain_function,
    ideal_dcg,
    ndcg_gains,
    ragged_ideal_dcg,
    ragged_ndcg_gains,
)
from ltr.kernels import sum_lists
from ltr.losses.base import Lengths, RankingLoss, Reduction, loss_of_lists
from ltr.losses.soft import cut, rank_operator, shortfall
from ltr.operators import RankOperator
from ltr.shapes import check_at_least, check_top_k, check_whole


class SoftNDCG(RankingLoss):
    """1 - soft NDCG: sum over i of gain_i * discount(soft rank_i), divided by the exact ideal DCG.

    With hard ranks this is exactly 1 - `ltr.metrics.NDCG`. With `SigmoidRank`, the default, it
    is ApproxNDCG (Qin et al. 2010). Ranks by SoftSort's transpose can be below 1. The soft NDCG may
    then be slightly above 1, and the loss slightly below 0.

    Special cases: the loss is 0, with a zero gradient, for a list without a relevant item or fully
    masked. For one item it is 0 if the item's soft rank is 1. The operator decides the ranks of
    tied scores. With equal labels any order is ideal.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`.
        top_k: NDCG@k, by a smooth cut at rank k + 1/2 (the ideal is cut exactly). Default: all. On
            long lists let the cut move in at the start of training: see `moving_cut`.
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4", or a function of the ranks.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights multiply the gains, in the ideal too. Labels may have any size and need not be whole
    numbers, in float32 too: gains of "exp2" are computed relative to the list's largest.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Qin, Liu and Li, "A general approximation framework for direct optimization of
    information retrieval measures", 2010.

    >>> import torch
    >>> from ltr.operators import SoftSort
    >>> scores = torch.tensor([[0.2, 0.9, 0.4]], requires_grad=True)
    >>> labels = torch.tensor([[2.0, 0.0, 1.0]])
    >>> loss = SoftNDCG(SoftSort(temperature=0.5))(scores, labels)
    >>> loss.backward()
    >>> scores.grad.sign()  # raise the relevant items, lower the other
    tensor([[-1.,  1., -1.]])
    """

    def __init__(
        self,
        operator: RankOperator | None = None,
        top_k: int | None = None,
        gain: Gain = "exp2",
        discount: Discount = "log2",
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = rank_operator(operator)
        self.top_k = check_top_k(top_k)
        gain_function(gain)  # raises ValueError for an unknown gain
        self.gain: Gain = gain
        discount_function(discount)
        self.discount: Discount = discount

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return 1 - soft NDCG of each list."""
        return _ndcg(
            scores,
            labels,
            mask,
            weights,
            operator=self.operator,
            top_k=self.top_k,
            gain=self.gain,
            discount=self.discount,
        )

    def per_ragged_list(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, scores: Tensor, labels: Tensor, lengths: Tensor, weights: Tensor | None
    ) -> Tensor:
        """Return 1 - soft NDCG of each ragged list, without padding if the operator needs none."""
        return _ragged_ndcg(
            scores,
            labels,
            lengths,
            weights,
            operator=self.operator,
            top_k=self.top_k,
            gain=self.gain,
            discount=self.discount,
        )


def _ndcg(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    operator: RankOperator,
    top_k: int | None,
    gain: Gain,
    discount: Discount,
) -> Tensor:
    full = discount_function(discount)
    gains = ndcg_gains(labels, mask, weights, gain)
    dcg = (gains * operator.discounts(cut(full, top_k, operator), scores, mask)).sum(-1)
    return shortfall(dcg, ideal_dcg(gains, full, top_k))


def _ragged_ndcg(
    scores: Tensor,
    labels: Tensor,
    lengths: Tensor,
    weights: Tensor | None,
    *,
    operator: RankOperator,
    top_k: int | None,
    gain: Gain,
    discount: Discount,
) -> Tensor:
    full = discount_function(discount)
    gains = ragged_ndcg_gains(labels, lengths, weights, gain)
    discounts = operator.ragged_discounts(cut(full, top_k, operator), scores, lengths)
    ideal = ragged_ideal_dcg(gains, lengths, full, top_k)
    return shortfall(sum_lists(gains * discounts, lengths), ideal)


def soft_ndcg_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    operator: RankOperator | None = None,
    top_k: int | None = None,
    gain: Gain = "exp2",
    discount: Discount = "log2",
    reduction: Reduction = "mean",
) -> Tensor:
    """Return 1 - soft NDCG: scores, labels, mask, weights (..., n) -> a scalar.

    This is the function form of `SoftNDCG`, which documents the arguments, the errors and the
    special cases.

    >>> import torch
    >>> from ltr.operators import HardRank
    >>> soft_ndcg_loss(torch.tensor([3.0, 1.0]), torch.tensor([0.0, 1.0]), operator=HardRank())
    tensor(0.3691)
    """
    options: dict[str, Any] = {
        "operator": rank_operator(operator),
        "top_k": check_top_k(top_k),
        "gain": gain,
        "discount": discount,
    }
    return loss_of_lists(
        partial(_ndcg, **options),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
        per_ragged_list=partial(_ragged_ndcg, **options),
    )


def moving_cut(step: int, top_k: int, steps: int = 40) -> int | None:
    """Return the cut of a training step: none at first, then 8, 4 and 2 times `top_k`, then that.

    The scores of a new network are nearly equal, so that soft ranks lie near the middle of the
    list. On a long list that is far behind a cut at k, where the gradient is some hundred times
    smaller, and says little of who is first. By the time that the cut is there, the ranks have
    spread. `ltr.modules` moves the cut of each `SoftNDCG` in this way (`ltr.modules.MoveCut`); in a
    training loop of your own, set `loss.top_k` before each step.

    Args:
        step: the steps done so far, from 0.
        top_k: the cut to arrive at, >= 1.
        steps: how many steps come before it, in four parts; 0 for none.

    Raises:
        ValueError: step or steps < 0, or top_k < 1.

    >>> [moving_cut(step, 10) for step in (0, 9, 10, 20, 30, 40)]
    [None, None, 80, 40, 20, 10]
    """
    check_at_least("step", step, 0)
    check_whole("top_k", top_k)
    if step >= check_at_least("steps", steps, 0):
        return top_k
    return (None, 8 * top_k, 4 * top_k, 2 * top_k)[4 * step // steps]
