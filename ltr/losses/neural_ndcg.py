"""1 - NDCG by a relaxed sort: NeuralNDCG, its transposed form, and PiRank."""

from torch import Tensor

from ltr._shapes import check_top_k, positions
from ltr.gains import (
    Discount,
    Gain,
    discount_function,
    gain_function,
    ideal_dcg,
    ndcg_gains,
)
from ltr.losses._scaling import sinkhorn_scaled
from ltr.losses._soft import shortfall, sort_operator
from ltr.losses.base import Lengths, RankingLoss, Reduction
from ltr.operators import NeuralSort, SortOperator


class NeuralNDCG(RankingLoss):
    """1 - NDCG of softly sorted gains: sum over positions of (P gains)_i * discount(i) / ideal.

    Only the first `top_k` rows of P are computed. The transposed form of the paper gives each
    item the discount (P^T discounts)_j; without scaling that is the same number in another order
    of summation. With `scaling` the matrix is built, its columns and rows are divided by their
    sums in turn, and the two forms differ by which of them is divided last: rows here, so that
    sorted gains are means of gains, columns in the transposed form, so that discounts are means of
    discounts. With a hard permutation either is exactly 1 - `ltr.metrics.NDCG`.

    What unusual lists give: no relevant item, or all masked: 0, with a graph. One item: 0. Tied
    scores: what the operator gives them. Without scaling an item may stand at more than one
    position, so the soft NDCG may pass 1.

    Args:
        operator: any `SortOperator` with a row for each item. Default: `NeuralSort()`.
        top_k: NDCG@k: the first k positions. Default: all.
        transposed: discounts of the items instead of gains at the positions. Default: False.
        scaling: iterations of Sinkhorn scaling: 0 for none (default); the paper's code has up to
            50. Derivatives go through them; memory is O(n^2 + n * iterations).
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4", or a function of the ranks.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights multiply the gains, in the ideal too. Labels may be of any size, as in `SoftNDCG`.

    Raises:
        ValueError: an argument that is none of these, named with its value; an operator
            that has no permutation or, in `forward`, not a row for each item.

    Reference: Pobrotyn and Białobrzeski, "NeuralNDCG: Direct optimisation of a ranking metric via
    differentiable relaxation of sorting", 2021.

    >>> import torch
    >>> scores = torch.tensor([2.0, 9.0, 4.0], requires_grad=True)
    >>> loss = NeuralNDCG()(scores, torch.tensor([2.0, 0.0, 0.0]))
    >>> loss.backward()
    >>> scores.grad[0] < 0  # raise the relevant one
    tensor(True)
    """

    def __init__(
        self,
        operator: SortOperator | None = None,
        top_k: int | None = None,
        transposed: bool = False,
        scaling: int = 0,
        gain: Gain = "exp2",
        discount: Discount = "log2",
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = sort_operator(operator, NeuralSort, type(self).__name__)
        self.top_k = check_top_k(top_k)
        self.transposed = transposed
        if isinstance(scaling, bool) or not isinstance(scaling, int) or scaling < 0:
            raise ValueError(f"scaling must be a whole number >= 0, got {scaling!r}")
        self.scaling = scaling
        gain_function(gain)  # a ValueError for what is none
        self.gain: Gain = gain
        discount_function(discount)
        self.discount: Discount = discount

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """1 - NDCG of the sorted gains of each list."""
        gains = ndcg_gains(labels, mask, weights, self.gain)
        discount = discount_function(self.discount)
        ideal = ideal_dcg(gains, discount, self.top_k)
        P = self.operator.permutation(scores, mask)
        n = scores.shape[-1]
        if P.rows != n:
            raise ValueError(f"operator must give {n} rows, one for each item, got {P.rows}")
        k = n if self.top_k is None else min(self.top_k, n)
        discounts = discount(positions(scores, k))
        # rows past the real items hold nothing
        if self.scaling and n:
            matrix = sinkhorn_scaled(P, self.scaling, columns_last=self.transposed)[..., :k, :]
            if self.transposed:
                dcg = (gains * (matrix * discounts.unsqueeze(-1)).sum(-2)).sum(-1)
            else:
                dcg = ((matrix * gains.unsqueeze(-2)).sum(-1) * discounts).sum(-1)
            return shortfall(dcg, ideal)
        top = P if k == n else P.top(k)
        if self.transposed:
            dcg = (gains * top.mT.mv(discounts.expand(*P.scores.shape[:-1], k))).sum(-1)
        else:
            dcg = (top.mv(gains.expand(P.scores.shape)) * discounts).sum(-1)
        return shortfall(dcg, ideal)


class PiRank(NeuralNDCG):
    """1 - NDCG@k of softly sorted gains, of which only the first k rows are computed.

    `NeuralNDCG(operator, top_k)` without scaling, under the name of the paper, whose cut is at 10
    here. Its straight-through variant is `PiRank(StraightThrough(NeuralSort()))`; its temperature
    falls while training there.

    What unusual lists give: as for `NeuralNDCG`.

    Args:
        operator: any `SortOperator` with a row for each item. Default: `NeuralSort()`.
        top_k: the first k positions. Default: 10.
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4", or a function of the ranks.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights multiply the gains, in the ideal too.

    Raises:
        ValueError: as for `NeuralNDCG`.

    Reference: Swezey, Grover, Charron and Ermon, "PiRank: Scalable learning to rank via
    differentiable sorting", NeurIPS 2021.

    >>> import torch
    >>> from ltr.operators import SoftSort
    >>> PiRank(SoftSort(0.01))(torch.tensor([3.0, 1.0]), torch.tensor([0.0, 1.0]))
    tensor(0.3691)
    """

    def __init__(
        self,
        operator: SortOperator | None = None,
        top_k: int | None = 10,
        gain: Gain = "exp2",
        discount: Discount = "log2",
        reduction: Reduction = "mean",
    ):
        super().__init__(operator, top_k, False, 0, gain, discount, reduction)


def neural_ndcg_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    operator: SortOperator | None = None,
    top_k: int | None = None,
    transposed: bool = False,
    scaling: int = 0,
    gain: Gain = "exp2",
    discount: Discount = "log2",
    reduction: Reduction = "mean",
) -> Tensor:
    """1 - NDCG of softly sorted gains, as a function: (..., n) each -> a scalar.

    See `NeuralNDCG` for the arguments, the errors and what unusual lists give.

    >>> import torch
    >>> scores, labels = torch.tensor([99.0, 1.0]), torch.tensor([0.0, 1.0])
    >>> neural_ndcg_loss(scores, labels), neural_ndcg_loss(scores, labels, transposed=True)
    (tensor(0.3691), tensor(0.3691))
    """
    loss = NeuralNDCG(operator, top_k, transposed, scaling, gain, discount, reduction)
    return loss(scores, labels, mask, weights, lengths=lengths, padding=padding)


def pirank_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    operator: SortOperator | None = None,
    top_k: int | None = 10,
    gain: Gain = "exp2",
    discount: Discount = "log2",
    reduction: Reduction = "mean",
) -> Tensor:
    """1 - NDCG@k of softly sorted gains, as a function: (..., n) each -> a scalar. See `PiRank`.

    >>> import torch
    >>> pirank_loss(torch.tensor([1.0, 9.0]), torch.tensor([0.0, 1.0])).abs() < 1e-3
    tensor(True)
    """
    return PiRank(operator, top_k, gain, discount, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )
