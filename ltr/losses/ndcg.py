"""Losses for NDCG on soft ranks or with soft sorting: SoftNDCG, ApproxNDCG, NeuralNDCG, PiRank."""

from collections.abc import Callable
from typing import Literal, cast

import torch
from torch import Tensor

from ltr.gains import (
    Discount,
    Gain,
    check_discount,
    check_gain,
    discount_function,
    ideal_dcg,
    inverse_log2,
    log2_discount,
    ndcg_gains,
)
from ltr.losses.base import RankingLoss, Reduction
from ltr.losses.scaling import sinkhorn_scaled
from ltr.losses.soft import cutoff_discount, shortfall, sort_operator
from ltr.losses.softmax import softmax_divergence
from ltr.losses.tight_ranks import tight_ranks
from ltr.operators import (
    NeuralSort,
    RankOperator,
    SigmoidRank,
    SoftplusRank,
    SortOperator,
    Standardized,
)
from ltr.operators.base import check_operator
from ltr.operators.permutation import check_rows
from ltr.shapes import (
    check_at_least,
    check_choice,
    check_flag,
    check_number,
    check_top_k,
    first_value,
    masked_fill,
    positions,
)

Mean = Literal["regret", "tight", "harmonic", "arithmetic"]


class SoftNDCG(RankingLoss):
    r"""A differentiable loss for NDCG on soft ranks; start with the default, `SoftNDCG()`.

    With the gains g_i, their fractions p_i = g_i / sum of g, the discount d and the soft ranks r_i,
    the loss is by default the regret

        sum_i p_i / d(r_i) - sum_i p_i / d(ideal rank_i)

    With the default discount, this is the mean of log2(1 + rank), weighted by the gains, minus the
    least value of this mean. By default the ranks are those of `SoftplusRank()`, which are at least
    the hard ranks. So the loss is at least (ideal DCG - DCG) / sum of g, and an item that ranks too
    low always has a gradient. The proof and the measurements are in the documentation, under "How
    to train on soft NDCG". These ranks count all other items, those that belong above too. So with
    two or more relevant items, the minimum of the default form is above 0, and a perfect order
    costs more as its scores spread: labels 1, 1, 0, 0 cost 1.23 at the scores 40, 30, 0, 0, and at
    least 0.29. `mean` selects three other forms:

        tight: the regret with r_i = ideal rank_i
            + sum over g_j < g_i of softplus((s_j - s_i) / temperature) / log 2
        harmonic: 1 - (sum_i p_i / d(ideal rank_i)) / (sum_i p_i / d(r_i))
        arithmetic: 1 - (sum_i p_i d(r_i)) / (sum_i p_i d(ideal rank_i))

    In the tight form only items of lower gains cost, equal gains are in the order of the scores in
    the ideal order, and the temperature is that of the `SoftplusRank`. This loss is at least the
    regret of the hard order too. It is 0 in the limit of a sure perfect order, and never grows if
    an item of the highest gain rises. In our measurements it ranked like the default, and took up
    to three times as long.

    With hard ranks, the other three forms are 0 only for an ideal order, and the arithmetic form is
    exactly 1 - `ltr.metrics.NDCG`. With `SigmoidRank` the arithmetic form is ApproxNDCG (Qin et al.
    2010). The harmonic form lies between 0 and 1. It contains the harmonic mean of the discounts,
    1 / (sum_i p_i / d(r_i)), which is a lower bound on DCG / sum of g. The ranks of `SoftSort` and
    `NeuralSort`, which come from the transpose of a matrix, can be below 1. So with `SoftSort` the
    loss may be slightly below 0, and with `NeuralSort` far below 0 if many scores are tied. With
    `top_k`, ties at the cutoff may make the arithmetic form negative.

    Special cases: the loss is 0, with a zero gradient, for a list without a relevant item and for a
    fully masked list. For one item the loss is 0 if the item's soft rank is 1 and there is no
    smooth cutoff. The operator decides the ranks of tied scores. If all labels are equal, any order
    is ideal.

    Args:
        operator: any `RankOperator`; a `SoftplusRank` in the tight form. Default: `SoftplusRank()`
            for the regret and the tight form, else `Standardized(SigmoidRank(0.3))`, which makes
            the loss independent of the scale of the scores.
        top_k: k, to train for NDCG@k. All but the arithmetic form then count only the gains of the
            first k items of the ideal order; items tied at position k of this order share the
            remaining positions. Items that the scores rank after k keep their cost, and so their
            gradient. The arithmetic form has a smooth cutoff of the discounts at rank k + 1/2
            instead (exact in the ideal DCG); with it, an untrained network has hardly any gradient
            on long lists. Default: all items, which was as good for NDCG@10 in our measurements.
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4" (see
            `ltr.metrics.functional.ndcg`), or a function of the ranks. All but the arithmetic
            form need discounts above 0, even at the ranks of `SoftplusRank`, which may exceed the
            number of items. On the CPU, a discount that is not above 0 at a rank from 1 to n is an
            error, even if only padding has this rank. On other devices, and in `torch.compile`,
            there is no such check, and the loss may be NaN.
        mean: "regret" (the default), "tight", "harmonic" or "arithmetic", see above.
        dequantize: whether to add a random number from [0, 1) to each label before its gain is
            computed, if the list has a relevant item. Like dropout, this happens only in training
            mode, with new numbers at each call. So items of one grade count differently at each
            call, and irrelevant items count a little. This keeps a network from memorizing a small
            data set, as the random gammas of `XENDCG` do. Default: False.
        softmax: the weight w of an additional term w KL(p || softmax(s)): the loss of `SoftmaxLoss`
            for the same p, on the scores s before any standardization. If the operator standardizes
            the scores, only this term fixes their scale. On noisy data, the harmonic form needs a
            fixed scale. With this term, the minimum of the loss is above 0. Default: 0.

    Weights multiply the gains, also in the ideal DCG. Labels need not be whole numbers, and may be
    arbitrarily large, even in float32: "exp2" gains are computed relative to 2^(the largest label
    of the list).

    Cost: that of the operator, and one sort of the gains. In the tight form one sort and O(n g)
    time, for g distinct gains, if g <= 32 and the scores are on the CPU; otherwise O(n^2) time. So
    `dequantize` and weights that differ by item take O(n^2) time. Memory is O(n).

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Qin, Liu and Li, "A general approximation framework for direct optimization of
    information retrieval measures", 2010, for the arithmetic form.

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
            bounded = mean in ("regret", "tight")
            operator = SoftplusRank() if bounded else Standardized(SigmoidRank(0.3))
        self.operator = check_operator(operator)
        if mean == "tight" and not isinstance(operator, SoftplusRank):
            raise ValueError(f"operator must be a SoftplusRank with mean='tight', got {operator!r}")
        self.top_k = check_top_k(top_k)
        self.gain: Gain = check_gain(gain)
        self.discount: Discount = check_discount(discount)
        check_choice("mean", mean, "regret", "tight", "harmonic", "arithmetic")
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
        if callable(self.discount) and self.mean != "arithmetic":
            self._check_discount(self.discount, scores)
        term, soft_term = self._terms()
        top_k = self.top_k
        if self.mean != "arithmetic" and top_k is not None:
            gains, top_k = first_gains(gains, top_k), None
        total = gains.sum(-1)
        if self.mean == "tight":
            temperature = cast(SoftplusRank, self.operator).temperature
            ranks, ideal = tight_ranks(scores, gains, mask, temperature)
            excess = (gains * masked_fill(term(ranks) - term(ideal), mask)).sum(-1)
            loss = excess / torch.where(total > 0, total, 1.0)
        else:
            soft = (gains * self.operator.discounts(soft_term, scores, mask)).sum(-1)
            ideal = ideal_dcg(gains, term, top_k)
            if self.mean == "regret":
                loss = (soft - ideal) / torch.where(total > 0, total, 1.0)
            else:
                loss = self._shortfall(soft, ideal)
        if self.softmax:
            loss = loss + self.softmax * softmax_divergence(scores, gains, mask)[0]
        return loss

    def _check_discount(self, discount: Callable[[Tensor], Tensor], scores: Tensor) -> None:
        # Discounts given by name are above 0. As for labels, values are checked on the CPU only.
        if scores.device.type != "cpu" or torch.compiler.is_compiling():
            return
        ranks = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype)
        values = discount(ranks).detach()
        wrong = first_value(ranks, ~(values > 0))
        if wrong is not None:
            raise ValueError(
                f"discount must be above 0 at every rank with mean={self.mean!r}, got "
                f"{values[ranks == wrong].item():g} at rank {wrong:.0f}"
            )

    def _terms(self) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
        # Return the function of the rank that is summed over the items, once for hard ranks and
        # once for soft ranks.
        discount = discount_function(self.discount)
        if self.mean != "arithmetic":
            if discount is log2_discount:
                return inverse_log2, inverse_log2
            return (inverse := lambda ranks: discount(ranks).reciprocal()), inverse
        return discount, cutoff_discount(discount, self.top_k, self.operator)

    def _shortfall(self, soft: Tensor, ideal: Tensor) -> Tensor:
        if self.mean == "arithmetic":
            return shortfall(soft, ideal)
        defined = ideal > 0  # if False, the quotient is 0 / 1, or NaN if a score is NaN
        return defined.to(soft.dtype) - ideal / torch.where(defined, soft, 1 + 0 * soft)


def first_gains(gains: Tensor, top_k: int) -> Tensor:
    """Return the gains (..., n), with 0 for the items that do not count in the ideal DCG@k.

    Items tied at position k of the ideal order share the remaining positions.

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
    """ApproxNDCG: 1 - NDCG with soft ranks that are sums of sigmoids of score differences.

    This is `SoftNDCG(SigmoidRank(temperature), mean="arithmetic")`, under its name in the
    literature. Unless the model already ranks well, `SoftNDCG()` trains far better; "How to train
    on soft NDCG" in the documentation gives the reason.

    Args:
        temperature: the temperature of the sigmoids, in units of the scores (1 / alpha in the
            paper). 0 gives hard ranks. Default: 0.1.
        top_k: k of NDCG@k, with a smooth cutoff at rank k + 1/2 (exact in the ideal DCG). Default:
            all items.
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4" (see
            `ltr.metrics.functional.ndcg`), or a function of the ranks.

    For special cases, weights and errors see `SoftNDCG`.

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

    With P the operator's soft permutation matrix, NDCG is the sum over positions i of (P gains)_i *
    discount(i), divided by the ideal DCG.

    The paper's transposed form gives each item j the discount (P^T discounts)_j. Without scaling,
    its value is the same sum, with the terms in another order, and only the first `top_k` rows of P
    are computed.

    With `scaling`, the whole matrix P is built, and its columns and rows are divided by their sums
    in alternation. The last step makes the sums of the rows exactly 1, so the sorted gains are
    means of gains. In the transposed form, the last step makes the sums of the columns exactly 1,
    so the items' discounts are means of discounts. With a hard permutation the loss is exactly 1 -
    `ltr.metrics.NDCG` in both forms.

    Special cases: the loss is 0, with a zero gradient, for a list without a relevant item and for a
    fully masked list. For one item the loss is 0. The operator decides how tied scores share the
    positions. Without scaling, or with few iterations, the columns of P may sum to more than 1, so
    the soft NDCG may be above 1 and the loss below 0.

    Args:
        operator: any `SortOperator` whose matrix has a row for each item. Default: `NeuralSort()`.
        top_k: k of NDCG@k, the number of first positions that count. Default: all.
        transposed: whether to compute a soft discount for each item (the transposed form) instead
            of a soft gain for each position. Default: False.
        scaling: the number of iterations of Sinkhorn scaling. Default: 0, no scaling. The paper's
            code does up to 50 iterations. Derivatives go through the iterations. Memory is O(n^2 +
            n * iterations).
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4" (see
            `ltr.metrics.functional.ndcg`), or a function of the ranks.

    Weights multiply the gains, also in the ideal DCG. Labels may be arbitrarily large, as in
    `SoftNDCG`.

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
        self.transposed = check_flag("transposed", transposed)
        self.scaling = check_at_least("scaling", scaling, 0)
        self.gain: Gain = check_gain(gain)
        self.discount: Discount = check_discount(discount)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return 1 - NDCG of each list, with softly sorted gains or soft discounts."""
        gains = ndcg_gains(labels, mask, weights, self.gain)
        full = discount_function(self.discount)
        ideal = ideal_dcg(gains, full, self.top_k)
        P = self.operator.permutation(scores, mask)
        n = scores.shape[-1]
        check_rows(P.rows, n)
        k = n if self.top_k is None else min(self.top_k, n)
        discounts = full(positions(scores, k))
        # In a list with m real items, the rows of P after row m are 0: `discounts` needs no mask.
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

    This is `NeuralNDCG(operator, top_k)` without scaling, under its name in the paper, and with a
    cutoff of 10 by default. The paper's straight-through variant is
    `PiRank(StraightThrough(NeuralSort()))`. The paper lowers the temperature during training.

    The special cases are those of `NeuralNDCG`.

    Args:
        operator: any `SortOperator` whose matrix has a row for each item. Default: `NeuralSort()`.
        top_k: k, the number of first positions that count. Default: 10.
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4" (see
            `ltr.metrics.functional.ndcg`), or a function of the ranks.

    Weights multiply the gains, also in the ideal DCG.

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
