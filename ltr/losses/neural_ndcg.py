"""1 - NDCG by a relaxed sort: NeuralNDCG, its transposed form, and PiRank."""

from functools import partial

from torch import Tensor

from ltr.gains import (
    Discount,
    Gain,
    discount_function,
    gain_function,
    ideal_dcg,
    ndcg_gains,
)
from ltr.losses.base import Lengths, RankingLoss, Reduction, loss_of_lists
from ltr.losses.scaling import sinkhorn_scaled
from ltr.losses.soft import check_rows, shortfall, sort_operator
from ltr.operators import NeuralSort, SortOperator
from ltr.shapes import check_top_k, positions


class NeuralNDCG(RankingLoss):
    """1 - NDCG of softly sorted gains: sum over positions of (P gains)_i * discount(i) / ideal.

    Only the first `top_k` rows of P are computed. The transposed form of the paper gives each
    item the discount (P^T discounts)_j. Without scaling that is the same number, summed in another
    order.

    With `scaling` the matrix is built, and its columns and rows are divided by their sums in turn.
    The two forms then differ by the side that is divided last. Here it is the rows, so sorted gains
    are means of gains. In the transposed form it is the columns, so discounts are means of
    discounts. With a hard permutation both are exactly 1 - `ltr.metrics.NDCG`.

    Special cases: the loss is 0, with a zero gradient, for a list without a relevant item or fully
    masked. For one item it is 0. The operator decides how tied scores share the positions. Without
    scaling an item may stand at several positions, so the soft NDCG may be above 1.

    Args:
        operator: any `SortOperator` with a row for each item. Default: `NeuralSort()`.
        top_k: NDCG@k: the first k positions. Default: all.
        transposed: whether items get discounts instead of positions getting gains. Default: False.
        scaling: the number of iterations of Sinkhorn scaling. Default: 0, none. The paper's code
            has up to 50. Derivatives go through the iterations. Memory is
            O(n^2 + n * iterations).
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4", or a function of the ranks.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights multiply the gains, in the ideal too. Labels may be of any size, as in `SoftNDCG`.

    Raises:
        ValueError: an argument is invalid (the message names it and its value); the operator has
            no permutation; in `forward`, the operator does not give a row for each item.

    Reference: Pobrotyn and Białobrzeski, "NeuralNDCG: Direct optimisation of a ranking metric via
    differentiable relaxation of sorting", 2021.

    >>> import torch
    >>> scores = torch.tensor([2.0, 9.0, 4.0], requires_grad=True)
    >>> loss = NeuralNDCG()(scores, torch.tensor([2.0, 0.0, 0.0]))
    >>> loss.backward()
    >>> scores.grad[0] < 0  # raise the relevant item
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
        self.scaling = _check_scaling(scaling)
        gain_function(gain)  # raises ValueError for an unknown gain
        self.gain: Gain = gain
        discount_function(discount)
        self.discount: Discount = discount

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return 1 - NDCG of the sorted gains of each list."""
        return _sorted_ndcg(
            scores,
            labels,
            mask,
            weights,
            operator=self.operator,
            top_k=self.top_k,
            transposed=self.transposed,
            scaling=self.scaling,
            gain=self.gain,
            discount=self.discount,
        )


class PiRank(NeuralNDCG):
    """1 - NDCG@k of softly sorted gains, for which only the first k rows of P are computed.

    It is `NeuralNDCG(operator, top_k)` without scaling, under the name of the paper, and with a cut
    at 10 by default. The paper's straight-through variant is
    `PiRank(StraightThrough(NeuralSort()))`. The paper lowers the temperature during training.

    The special cases are those of `NeuralNDCG`.

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


def _sorted_ndcg(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    operator: SortOperator,
    top_k: int | None,
    transposed: bool,
    scaling: int,
    gain: Gain,
    discount: Discount,
) -> Tensor:
    gains = ndcg_gains(labels, mask, weights, gain)
    full = discount_function(discount)
    ideal = ideal_dcg(gains, full, top_k)
    P = operator.permutation(scores, mask)
    n = scores.shape[-1]
    check_rows(P.rows, n)
    k = n if top_k is None else min(top_k, n)
    discounts = full(positions(scores, k))
    # the rows past the real items are 0
    if scaling and n:
        matrix = sinkhorn_scaled(P, scaling, columns_last=transposed)[..., :k, :]
        if transposed:
            dcg = (gains * (matrix * discounts.unsqueeze(-1)).sum(-2)).sum(-1)
        else:
            dcg = ((matrix * gains.unsqueeze(-2)).sum(-1) * discounts).sum(-1)
        return shortfall(dcg, ideal)
    top = P if k == n else P.top(k)
    if transposed:
        dcg = (gains * top.mT.mv(discounts.expand(*P.scores.shape[:-1], k))).sum(-1)
    else:
        dcg = (top.mv(gains.expand(P.scores.shape)) * discounts).sum(-1)
    return shortfall(dcg, ideal)


def _check_scaling(scaling: int) -> int:
    if isinstance(scaling, bool) or not isinstance(scaling, int) or scaling < 0:
        raise ValueError(f"scaling must be a whole number >= 0, got {scaling!r}")
    return scaling


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
    """Return 1 - NDCG of softly sorted gains: (..., n) each -> a scalar.

    This is the function form of `NeuralNDCG`, which documents the arguments, the errors and the
    special cases.

    >>> import torch
    >>> scores, labels = torch.tensor([99.0, 1.0]), torch.tensor([0.0, 1.0])
    >>> neural_ndcg_loss(scores, labels), neural_ndcg_loss(scores, labels, transposed=True)
    (tensor(0.3691), tensor(0.3691))
    """
    return loss_of_lists(
        partial(
            _sorted_ndcg,
            operator=sort_operator(operator, NeuralSort, "neural_ndcg_loss"),
            top_k=check_top_k(top_k),
            transposed=transposed,
            scaling=_check_scaling(scaling),
            gain=gain,
            discount=discount,
        ),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
    )


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
    """Return 1 - NDCG@k of softly sorted gains: the function form of `PiRank`.

    >>> import torch
    >>> pirank_loss(torch.tensor([1.0, 9.0]), torch.tensor([0.0, 1.0])).abs() < 1e-3
    tensor(True)
    """
    return neural_ndcg_loss(
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
        operator=sort_operator(operator, NeuralSort, "pirank_loss"),
        top_k=top_k,
        gain=gain,
        discount=discount,
    )
