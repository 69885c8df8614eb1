"""1 - NDCG on soft ranks, or by a relaxed sort: ApproxNDCG, NeuralNDCG, PiRank and relatives."""

from collections.abc import Callable
from typing import Literal, cast

import torch
from torch import Tensor

from ltr.gains import (
    Discount,
    Gain,
    discount_function,
    gain_function,
    ideal_dcg,
    inverse_log2,
    log2_discount,
    ndcg_gains,
)
from ltr.losses.base import RankingLoss, Reduction, check_flag, first_value
from ltr.losses.scaling import sinkhorn_scaled
from ltr.losses.soft import check_rows, cutoff_discount, shortfall, sort_operator
from ltr.losses.softmax import softmax_divergence
from ltr.operators import (
    NeuralSort,
    RankOperator,
    SigmoidRank,
    SoftplusRank,
    SortOperator,
    Standardized,
)
from ltr.operators.base import check_operator
from ltr.shapes import check_at_least, check_number, check_top_k, masked_fill, positions

Mean = Literal["regret", "harmonic", "arithmetic"]


class SoftNDCG(RankingLoss):
    r"""A differentiable loss for NDCG on soft ranks; `SoftNDCG()` is the one to start with.

    With gains g_i, shares p_i = g_i / sum of g, discounts d and soft ranks r_i it is the regret

        sum_i p_i / d(r_i) - sum_i p_i / d(ideal rank_i),

    the mean of log2(1 + rank) over the gains, minus its least value. By default the ranks are those
    of `SoftplusRank()`, which are at least the hard ranks. So the loss is at least (ideal DCG -
    DCG) / sum of g, and no item that ranks too low loses its gradient. "How to train on soft NDCG"
    in the documentation has the proof, the measurements and the other two forms, by `mean`:

        harmonic: 1 - (sum_i p_i / d(ideal rank_i)) / (sum_i p_i / d(r_i))
        arithmetic: 1 - (sum_i p_i d(r_i)) / (sum_i p_i d(ideal rank_i))

    With hard ranks all three are 0 only for an ideal order. `mean="arithmetic"` is then exactly 1 -
    `ltr.metrics.NDCG`; with `SigmoidRank` it is ApproxNDCG (Qin et al. 2010). The harmonic form is
    a lower bound of NDCG, from 0 to 1. Ranks by SoftSort's transpose can be below 1, so with them
    a loss may be slightly below 0.

    Special cases: the loss is 0, with a zero gradient, for a list without a relevant item or fully
    masked. For one item it is 0 if the item's soft rank is 1. The operator decides the ranks of
    tied scores. With equal labels any order is ideal.

    Args:
        operator: any `RankOperator`. Default: `SoftplusRank()` for the regret, else
            `Standardized(SigmoidRank(0.3))`, with which the loss does not depend on the scale of
            the scores.
        top_k: for NDCG@k, count only the gains of the first k items of the ideal order; items that
            are tied there share what is left. Ranks after k keep their cost and so their gradient.
            For the arithmetic mean, a smooth cutoff of the discounts at rank k + 1/2 instead (that
            of the ideal is exact), with which a new network has hardly any gradient on long lists.
            Default: all items, for NDCG@k too.
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4" (see
            `ltr.metrics.functional.ndcg`), or a function of the ranks. The regret and the harmonic
            form need discounts above 0, also at the ranks of `SoftplusRank`, which exceed the
            number of items. On the CPU, a function that returns another discount
            within the longest list is an error. On other devices, and in `torch.compile`, it makes
            the loss NaN.
        mean: "regret" (the default), "harmonic" or "arithmetic", see above.
        dequantize: whether to add a random number from [0, 1) to each label before its gain is
            computed, if the list has a relevant document. Like dropout, this draws new numbers at
            each call in training mode. Documents of one grade then count differently at each call,
            and irrelevant ones count a little. This keeps a network from memorizing a small data
            set, like the random gammas of `XENDCG`. Default: False.
        softmax: the weight w of an additional w KL(p || softmax(s)), the loss of `SoftmaxLoss` with
            the same shares and the unstandardized scores. It holds the scale of standardized
            scores, which the harmonic form needs on noisy tables. Default: 0.

    Weights multiply the gains, in the ideal too. Labels may have any size and need not be whole
    numbers, in float32 too: gains of "exp2" are computed relative to the list's largest.

    Cost: the operator's, and one sort of the gains.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Qin, Liu and Li, "A general approximation framework for direct optimization of
    information retrieval measures", 2010, for the arithmetic mean.

    >>> import torch
    >>> from ltr.operators import HardRank, SoftSort
    >>> scores = torch.tensor([[0.2, 0.9, 0.4]], requires_grad=True)
    >>> labels = torch.tensor([[2.0, 0.0, 1.0]])
    >>> loss = SoftNDCG(SoftSort(temperature=0.5))(scores, labels)
    >>> loss.backward()
    >>> scores.grad.sign()  # raise the relevant items, lower the other
    tensor([[-1.,  1., -1.]])
    >>> SoftNDCG(HardRank())(scores, labels).round(decimals=4)
    tensor(0.7500)
    >>> SoftNDCG(HardRank(), mean="harmonic")(scores, labels).round(decimals=4)
    tensor(0.3955)
    >>> SoftNDCG(HardRank(), mean="arithmetic")(scores, labels).round(decimals=4)  # 1 - NDCG
    tensor(0.4131)
    """

    def __init__(
        self,
        operator: RankOperator | None = None,
        top_k: int | None = None,
        gain: Gain = "exp2",
        discount: Discount = "log2",
        mean: Mean = "regret",
        dequantize: bool = False,
        softmax: float = 0.0,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        if operator is None:
            operator = SoftplusRank() if mean == "regret" else Standardized(SigmoidRank(0.3))
        self.operator = check_operator(operator)
        self.top_k = check_top_k(top_k)
        gain_function(gain)  # this checks the gain
        self.gain: Gain = gain
        discount_function(discount)
        self.discount: Discount = discount
        if mean not in ("regret", "harmonic", "arithmetic"):
            raise ValueError(f"mean must be 'regret', 'harmonic' or 'arithmetic', got {mean!r}")
        self.mean: Mean = mean
        self.dequantize = check_flag("dequantize", dequantize)
        self.softmax = check_number("softmax", softmax, minimum=0.0)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the regret or 1 - soft NDCG of each list, plus the softmax term."""
        if self.dequantize and self.training:
            labels = masked_fill(labels, mask)
            relevant = (labels > 0).any(-1, keepdim=True)
            labels = labels + relevant * torch.rand_like(labels)
        gains = ndcg_gains(labels, mask, weights, self.gain)
        self._check_discount(scores)
        term, soft_term = self._terms()
        top_k = self.top_k
        if self.mean != "arithmetic" and top_k is not None:
            gains, top_k = first_gains(gains, top_k), None
        soft = (gains * self.operator.discounts(soft_term, scores, mask)).sum(-1)
        ideal = ideal_dcg(gains, term, top_k)
        if self.mean == "regret":
            total = gains.sum(-1)
            found = (soft - ideal) / torch.where(total > 0, total, 1.0)
        else:
            found = self._shortfall(soft, ideal)
        if self.softmax:
            found = found + self.softmax * softmax_divergence(scores, gains, mask)[0]
        return found

    def _check_discount(self, scores: Tensor) -> None:
        # A named discount is above 0. Values are read on the CPU alone, as those of labels are.
        if self.mean == "arithmetic" or not callable(self.discount):
            return
        if scores.device.type != "cpu" or torch.compiler.is_compiling():
            return
        ranks = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype)
        values = self.discount(ranks).detach()
        wrong = first_value(ranks, ~(values > 0))
        if wrong is not None:
            raise ValueError(
                f"discount must be above 0 at every rank with mean={self.mean!r}, got "
                f"{values[ranks == wrong].item():g} at rank {wrong:.0f}"
            )

    def _terms(self) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
        # Return what is summed over the items, at whole ranks and at soft ones.
        discount = discount_function(self.discount)
        if self.mean != "arithmetic":
            if discount is log2_discount:
                return inverse_log2, inverse_log2  # operators know it by its name
            return (inverse := lambda ranks: discount(ranks).reciprocal()), inverse
        return discount, cutoff_discount(discount, self.top_k, self.operator)

    def _shortfall(self, soft: Tensor, ideal: Tensor) -> Tensor:
        if self.mean == "arithmetic":
            return shortfall(soft, ideal)
        defined = ideal > 0  # the quotient is 0 / 1 elsewhere, or NaN if a score is NaN
        return defined.to(soft.dtype) - ideal / torch.where(defined, soft, 1 + 0 * soft)


def first_gains(gains: Tensor, top_k: int) -> Tensor:
    """Return the gains (..., n) that count in the ideal DCG@k; those of the other items are 0.

    Items that are tied at the last of the k positions share what is left of them.

    >>> first_gains(torch.tensor([1.0, 3.0, 0.0, 1.0]), 2)
    tensor([0.5000, 3.0000, 0.0000, 0.5000])
    """
    if top_k >= gains.shape[-1]:
        return gains
    last = gains.topk(top_k).values[..., -1:]
    above, tied = gains > last, gains == last
    left, sharing = top_k - above.sum(-1, keepdim=True), tied.sum(-1, keepdim=True)
    return torch.where(tied, gains * left / sharing, gains * above)


class ApproxNDCG(SoftNDCG):
    """ApproxNDCG: 1 - NDCG with soft ranks, which are sums of sigmoids of score differences.

    It is `SoftNDCG(SigmoidRank(temperature), mean="arithmetic")`, under the name of the literature.
    If there is much to learn, `SoftNDCG()` trains far better; see there for the reason.

    Args:
        temperature: of the sigmoids, in units of the scores (1 / alpha in the paper). 0 gives hard
            ranks. Default: 0.1.
        top_k: NDCG@k, by a smooth cutoff at rank k + 1/2 (that of the ideal is exact). Default:
            all.
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4" (see
            `ltr.metrics.functional.ndcg`), or a function of the ranks.

    `SoftNDCG` documents special cases, weights and errors.

    Reference: Qin, Liu and Li, "A general approximation framework for direct optimization of
    information retrieval measures", 2010; Bruch, Zoghi, Bendersky and Najork, "Revisiting
    approximate metric optimization in the age of deep neural networks", SIGIR 2019.

    >>> import torch
    >>> scores, labels = torch.tensor([0.2, 0.9, 0.4]), torch.tensor([2.0, 0.0, 1.0])
    >>> same = SoftNDCG(SigmoidRank(0.3), mean="arithmetic")
    >>> ApproxNDCG(0.3)(scores, labels) == same(scores, labels)
    tensor(True)
    """

    def __init__(
        self,
        temperature: float = 0.1,
        top_k: int | None = None,
        gain: Gain = "exp2",
        discount: Discount = "log2",
        reduction: Reduction = "mean",
    ):
        super().__init__(
            SigmoidRank(temperature), top_k, gain, discount, "arithmetic", reduction=reduction
        )

    @property
    def temperature(self) -> float:
        """The temperature of the sigmoids."""
        return cast(SigmoidRank, self.operator).temperature


class NeuralNDCG(RankingLoss):
    """NeuralNDCG: 1 - NDCG, with the gains softly sorted by the scores.

    NDCG is the sum over positions of (P gains)_i * discount(i) / ideal.

    Only the first `top_k` rows of P are computed. The transposed form of the paper gives each
    item the discount (P^T discounts)_j. Without scaling that is the same number, summed in another
    order.

    With `scaling` the matrix is built, and its columns and rows are divided by their sums in
    alternation. The two forms then differ in which sums become exactly 1. Here these are the rows,
    so sorted gains are means of gains. In the transposed form these are the columns, so discounts
    are means of discounts. With a hard permutation both are exactly 1 - `ltr.metrics.NDCG`.

    Special cases: the loss is 0, with a zero gradient, for a list without a relevant item or fully
    masked. For one item it is 0. The operator decides how tied scores share the positions. Without
    scaling an item may have several positions, so the soft NDCG may be above 1.

    Args:
        operator: any `SortOperator` with a row for each item. Default: `NeuralSort()`.
        top_k: NDCG@k: the first k positions. Default: all.
        transposed: whether items get discounts instead of positions getting gains. Default: False.
        scaling: the number of iterations of Sinkhorn scaling. Default: 0, none. The paper's code
            has up to 50. Derivatives go through the iterations. Memory is
            O(n^2 + n * iterations).
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4" (see
            `ltr.metrics.functional.ndcg`), or a function of the ranks.

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
        self.scaling = check_at_least("scaling", scaling, 0)
        gain_function(gain)  # this checks the gain
        self.gain: Gain = gain
        discount_function(discount)
        self.discount: Discount = discount

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return 1 - NDCG of the sorted gains of each list."""
        gains = ndcg_gains(labels, mask, weights, self.gain)
        full = discount_function(self.discount)
        ideal = ideal_dcg(gains, full, self.top_k)
        P = self.operator.permutation(scores, mask)
        n = scores.shape[-1]
        check_rows(P.rows, n)
        k = n if self.top_k is None else min(self.top_k, n)
        discounts = full(positions(scores, k))
        # The rows past the real items are 0.
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
    """PiRank: 1 - NDCG@k, with the gains softly sorted into the first k positions.

    It is `NeuralNDCG(operator, top_k)` without scaling, under the name of the paper, and with a
    cutoff of 10 by default. The paper's straight-through variant is
    `PiRank(StraightThrough(NeuralSort()))`. The paper lowers the temperature during training.

    The special cases are those of `NeuralNDCG`.

    Args:
        operator: any `SortOperator` with a row for each item. Default: `NeuralSort()`.
        top_k: the first k positions. Default: 10.
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4" (see
            `ltr.metrics.functional.ndcg`), or a function of the ranks.

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
