"""1 - NDCG on soft ranks: ApproxNDCG and its kin, by choice of the operator."""

from collections.abc import Callable

from torch import Tensor

from ltr._shapes import check_top_k
from ltr.gains import (
    Discount,
    Gain,
    cut_discount,
    discount_function,
    gain_function,
    ideal_dcg,
    ndcg_gains,
    ragged_ideal_dcg,
    ragged_ndcg_gains,
)
from ltr.kernels import sum_lists
from ltr.losses._soft import shortfall
from ltr.losses.base import Lengths, RankingLoss, Reduction
from ltr.operators import RankOperator, SigmoidRank
from ltr.operators.base import check_operator


class SoftNDCG(RankingLoss):
    """1 - soft NDCG: sum over i of gain_i * discount(soft rank_i), over the exact ideal DCG.

    With hard ranks this is exactly 1 - `ltr.metrics.NDCG`. With `SigmoidRank`, the default, it
    is ApproxNDCG (Qin et al. 2010). Ranks by SoftSort's transpose can fall below 1, so there the
    soft NDCG may pass 1 and the loss fall below 0 by a little.

    What unusual lists give: no relevant item, or all masked: 0, with a graph. One item: 0 if its
    soft rank is 1. Tied scores: what the operator gives them; equal labels: any order is ideal.

    Args:
        operator: any `RankOperator`. Default: `SigmoidRank()`.
        top_k: NDCG@k, by a smooth cut at rank k + 1/2 (the ideal is cut exactly). Default: all.
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4", or a function of the ranks.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights multiply the gains, in the ideal too. Labels of any size, whole or not, are good in
    float32: gains of "exp2" are taken relative to the list's largest.

    Raises:
        ValueError: an argument that is none of these, named with its value.

    Reference: Qin, Liu and Li, "A general approximation framework for direct optimization of
    information retrieval measures", 2010.

    >>> import torch
    >>> from ltr.operators import SoftSort
    >>> scores = torch.tensor([[0.2, 0.9, 0.4]], requires_grad=True)
    >>> labels = torch.tensor([[2.0, 0.0, 1.0]])
    >>> loss = SoftNDCG(SoftSort(temperature=0.5))(scores, labels)
    >>> loss.backward()
    >>> scores.grad.sign()  # raise the relevant ones, lower the other
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
        self.operator = SigmoidRank() if operator is None else check_operator(operator)
        self.top_k = check_top_k(top_k)
        gain_function(gain)  # a ValueError for what is none
        self.gain: Gain = gain
        discount_function(discount)
        self.discount: Discount = discount

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """1 - soft NDCG of each list."""
        gains = ndcg_gains(labels, mask, weights, self.gain)
        dcg = (gains * self.operator.discounts(self._cut_discount(), scores, mask)).sum(-1)
        return shortfall(dcg, ideal_dcg(gains, discount_function(self.discount), self.top_k))

    def per_ragged_list(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, scores: Tensor, labels: Tensor, lengths: Tensor, weights: Tensor | None
    ) -> Tensor:
        """1 - soft NDCG of each ragged list, without padding where the operator needs none."""
        gains = ragged_ndcg_gains(labels, lengths, weights, self.gain)
        discounts = self.operator.ragged_discounts(self._cut_discount(), scores, lengths)
        ideal = ragged_ideal_dcg(gains, lengths, discount_function(self.discount), self.top_k)
        return shortfall(sum_lists(gains * discounts, lengths), ideal)

    def _cut_discount(self) -> Callable[[Tensor], Tensor]:
        discount = discount_function(self.discount)
        return cut_discount(discount, self.top_k, exact=self.operator.whole_ranks)


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
    """1 - soft NDCG, as a function: scores, labels, mask, weights (..., n) -> a scalar.

    See `SoftNDCG` for the arguments, the errors and what unusual lists give.

    >>> import torch
    >>> from ltr.operators import HardRank
    >>> soft_ndcg_loss(torch.tensor([3.0, 1.0]), torch.tensor([0.0, 1.0]), operator=HardRank())
    tensor(0.3691)
    """
    return SoftNDCG(operator, top_k, gain, discount, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )
