"""Pair weights from the literature, by which pairwise losses follow or bound a metric."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ltr.gains import (
    Discount,
    Gain,
    check_discount,
    check_gain,
    discount_function,
    ideal_dcg,
    letor4_discount,
    log2_discount,
    ndcg_gains,
)
from ltr.kernels.pairs import GradedWeights
from ltr.operators import truncated
from ltr.shapes import check_choice, check_number, check_top_k, check_whole, positions

Truncation = Literal["metric", "any", "both"]


class PairWeights(nn.Module):
    """Base class of pair weights, which determine how much each pair counts in a pairwise loss.

    A weight is computed from the labels and from the ranks that the current scores give.

    The items are sorted by descending score, ties in the order of the list, so the position of an
    item is its rank. The upper item of a pair is the item with the smaller rank i, and the lower
    item is the item with the larger rank j. The weight of the pair is `by_rank` times `by_item`. A
    pair of items with equal labels has weight 0, unless `both_orders` is True. Weights have no
    gradient. A subclass overrides `by_rank`, `by_item` or both, and `columns`, which returns the
    inputs of `by_item`.

    Args:
        top_k: the cutoff k. Default: no cutoff.
        truncation: the kind of cutoff, if `top_k` is given. "metric": the weights for the metric
            with cutoff k, as the docstring of the subclass defines them. "any": the weights without
            a cutoff, but only for pairs with at least one item among the first k. "both": the
            weights without a cutoff, but only for pairs with both items among the first k.

    Raises:
        ValueError: top_k or truncation is invalid.

    >>> from ltr.losses import LambdaLoss, PairWeights
    >>> class Gap(PairWeights):
    ...     def columns(self, labels, mask):
    ...         return (labels,)
    ...     def by_item(self, upper, lower):
    ...         return (upper[0] - lower[0]).abs()
    >>> LambdaLoss(Gap())(torch.zeros(3), torch.tensor([2.0, 0.0, 1.0]))
    tensor(0.6931)
    """

    both_orders: bool = False
    """Whether every pair counts in both orders, even if its labels are equal. If True, `by_item`
    returns two weights: one for the order "upper item first", one for "lower item first"."""

    def __init__(self, top_k: int | None = None, truncation: Truncation = "metric"):
        super().__init__()
        self.top_k = check_top_k(top_k)
        check_choice("truncation", truncation, "metric", "any", "both")
        self.truncation: Truncation = truncation

    @property
    def metric_k(self) -> int | None:
        """`top_k` if the truncation is "metric", else None."""
        return self.top_k if self.truncation == "metric" else None

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """Return the inputs of `by_item`, (..., n) each.

        The labels and the mask are in the order of the ranks. Labels are 0 for masked items.
        """
        return ()

    def by_rank(self, i: Tensor, j: Tensor) -> Tensor | None:
        """Return the factor (a, b) that depends on ranks i (a, 1) and j (1, b); None means 1."""
        return None

    def by_item(self, upper: Sequence[Tensor], lower: Sequence[Tensor]) -> Any:
        """Return the factor that depends on the items, >= 0; None means 1.

        The arguments are the `columns` of the upper items, (..., a, 1) each, and of the lower
        items, (..., 1, b) each. The result is (..., a, b), or two such factors if `both_orders` is
        True.
        """
        return None

    def kept(self, i: Tensor, j: Tensor) -> Tensor:
        """Return True for the pairs i < j that count with the cutoff: (a, b) bool."""
        once = i < j
        if self.top_k is None or self.truncation == "metric":
            return once
        return once & ((i if self.truncation == "any" else j) <= self.top_k)

    def graded(self, labels: Tensor, mask: Tensor | None) -> GradedWeights | None:
        """Return the weights as gains and discounts, for sums in the time of a sort, or None.

        The labels (..., n) are in the order of the list. None means that the weights cannot be
        written as gains and discounts. A subclass that overrides another method should override
        `graded` too; otherwise its sums are computed over all pairs, in O(n^2) time.
        """
        return self.within_cutoff(GradedWeights()) if self.has_methods_of(PairWeights) else None

    def has_methods_of(self, kind: "type[PairWeights]") -> bool:
        """Return whether all methods that define the weights are those of `kind`."""
        own = type(self)
        for name in ("columns", "by_rank", "by_item", "kept", "both_orders", "truncated_discount"):
            if getattr(own, name, None) is not getattr(kind, name, None):
                return False
        return True

    def within_cutoff(self, weights: GradedWeights) -> GradedWeights:
        """Return `weights` without the pairs that the truncation "any" or "both" leaves out."""
        if self.top_k is None or self.truncation == "metric":
            return weights
        if self.truncation == "any":
            return weights._replace(upper=self.top_k)
        return weights._replace(last=self.top_k)

    def extra_repr(self) -> str:
        """Return the cutoff and the truncation, or an empty string without a cutoff."""
        return "" if self.top_k is None else f"top_k={self.top_k}, truncation={self.truncation!r}"


class LabelDifference(PairWeights):
    """Weights a pair by the difference of its labels.

    The weight is |y_i - y_j|, with the labels y.

    `ARPLoss2` has the same weights, for a bound on the average relevance position.

    Reference: Burges et al., "Learning to rank with nonsmooth cost functions", NeurIPS 2006, in
    which a pair "costs" more if its grades differ more.

    >>> from ltr.losses import LambdaLoss
    >>> LambdaLoss(LabelDifference())(torch.tensor([0.0, 0.0]), torch.tensor([3.0, 0.0]))
    tensor(0.6931)
    """

    def __init__(self):
        super().__init__()

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """Return the labels."""
        return (labels,)

    def by_item(self, upper: Sequence[Tensor], lower: Sequence[Tensor]) -> Any:
        """Return the difference of the labels."""
        return (upper[0] - lower[0]).abs()

    def graded(self, labels: Tensor, mask: Tensor | None) -> GradedWeights | None:
        """Return the labels as gains."""
        known = self.has_methods_of(LabelDifference)
        return self.within_cutoff(GradedWeights(labels)) if known else None


class ARPLoss2(LabelDifference):
    """Pair weights that make `LambdaLoss` a tight bound on the average relevance position.

    The weight is |y_i - y_j|, with the labels y, as in `LabelDifference`. Reference: Wang et al.,
    "The LambdaLoss framework for ranking metric optimization", CIKM 2018, the source of the name.
    """


class ARPLoss1(PairWeights):
    """Pair weights that make `LambdaLoss` a loose bound on the average relevance position.

    In the order "i above j" the weight is the label y_i, even if the labels of i and j are equal.

    The average relevance position is the sum of y_i * rank_i; the bound of `ARPLoss2` is tighter.
    Both orders of a pair count, "i above j" with y_i and "j above i" with y_j. So the minimum of
    the loss is above 0 if at least two items are relevant. Reference: Wang et al., CIKM 2018.
    """

    both_orders = True

    def __init__(self):
        super().__init__()

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """Return the labels."""
        return (labels,)

    def by_item(self, upper: Sequence[Tensor], lower: Sequence[Tensor]) -> Any:
        """Return, for each of the two orders, the label of the item that comes first."""
        return upper[0], lower[0]


class _NDCGWeights(PairWeights):
    """Base class of the weights for NDCG, with gains divided by the ideal DCG, and a discount."""

    def __init__(
        self,
        top_k: int | None = None,
        truncation: Truncation = "metric",
        gain: Gain = "exp2",
        discount: Discount = "log2",
    ):
        super().__init__(top_k, truncation)
        self.gain: Gain = check_gain(gain)
        self.discount: Discount = check_discount(discount)

    @property
    def full(self) -> Callable[[Tensor], Tensor]:
        """The discount, without a cutoff."""
        return discount_function(self.discount)

    @property
    def truncated_discount(self) -> Callable[[Tensor], Tensor]:
        """The discount, set to 0 after `top_k` if the truncation is "metric"."""
        return (
            self.full if self.metric_k is None else truncated(self.full, self.metric_k, exact=True)
        )

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """Return the gains divided by the ideal DCG, or by the ideal DCG@k if `top_k` is given."""
        gains = ndcg_gains(labels, mask, None, self.gain)
        ideal = ideal_dcg(gains, self.full, self.top_k).unsqueeze(-1)
        return (gains / torch.where(ideal > 0, ideal, 1.0),)

    def by_item(self, upper: Sequence[Tensor], lower: Sequence[Tensor]) -> Any:
        """Return the difference of the gains."""
        return (upper[0] - lower[0]).abs()


class DeltaNDCG(_NDCGWeights):
    """Weights a pair by how much NDCG changes if its items swap positions, as in LambdaRank.

    The weight is |G_i - G_j| |D_i - D_j|. G_i is the gain of item i divided by the ideal DCG (by
    the ideal DCG@k if `top_k` is given), and D_i is the discount at the item's current rank. Items
    with tied scores are ranked in the order of the list. The product (G_i - G_j) (D_i - D_j) is the
    sum of four products of a value of item i and a value of item j. This makes sums over pairs in
    the time of a sort possible.

    Args:
        top_k: k of NDCG@k. Default: the whole list.
        truncation: "metric" (default) sets D to 0 after rank k, so pairs with both items after rank
            k have weight 0 (as in rax and TF-Ranking). "any" does not change D, and leaves out only
            the pairs with both items after rank k (LightGBM's truncation level). "both" leaves out
            all pairs except those with both items among the first k (allRank's k).
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank), the default), "letor4" (see
            `ltr.metrics.functional.ndcg`), or a function of the ranks.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Burges, Ragno and Le, "Learning to rank with nonsmooth cost functions", NeurIPS
    2006.
    """

    def by_rank(self, i: Tensor, j: Tensor) -> Tensor | None:
        """Return the difference of the discounts."""
        return (self.truncated_discount(i) - self.truncated_discount(j)).abs()

    def graded(self, labels: Tensor, mask: Tensor | None) -> GradedWeights | None:
        """Return gains and discounts, or None if a function gives the gains or the discounts."""
        full = self.full
        named = full in (log2_discount, letor4_discount)
        if callable(self.gain) or not named or not self.has_methods_of(DeltaNDCG):
            return None
        gains, n = ndcg_gains(labels, mask, None, self.gain), labels.shape[-1]
        discounts = _discounts(full, n, self.metric_k)
        ideal = _discounts(full, n, self.top_k)
        return self.within_cutoff(GradedWeights(gains, discounts, ideal))


@lru_cache(maxsize=16)
def _discounts(full: Callable[[Tensor], Tensor], n: int, top_k: int | None) -> Any:
    # Return the discounts of ranks 1 to n, with 0 after rank `top_k`, as an array. They are cached:
    # for short lists, computing them would take a tenth of the time of the loss.
    discounts = full(torch.arange(1, n + 1, dtype=torch.float64)).numpy().copy()
    discounts[n if top_k is None else top_k :] = 0
    return discounts


class NDCGLoss1(_NDCGWeights):
    """Pair weights that make `LambdaLoss` a loose bound on NDCG.

    In the order "i above j" the weight is G_i D_i, even if the labels of i and j are equal. As in
    `DeltaNDCG`, G_i is the gain of item i divided by the ideal DCG, and D_i is the discount at the
    item's current rank. Both orders of a pair count, so the minimum of the loss is above 0 if at
    least two relevant items have weights above 0. The arguments are those of `DeltaNDCG`; the
    truncations "any" and "both" leave out the same pairs as in `DeltaNDCG`. Reference: Wang et al.,
    CIKM 2018.
    """

    both_orders = True

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """Return G_i D_i of each item i."""
        return (super().columns(labels, mask)[0] * self.truncated_discount(positions(labels)),)

    def by_item(self, upper: Sequence[Tensor], lower: Sequence[Tensor]) -> Any:
        """Return, for each of the two orders, G_i D_i of the item that comes first."""
        return upper[0], lower[0]


class NDCGLoss2(_NDCGWeights):
    """Pair weights that make `LambdaLoss` a tighter bound on NDCG.

    The weight is |G_i - G_j| |D(|i - j|) - D(|i - j| + 1)|. Here i and j are ranks, D(r) is the
    discount at rank r, and G_i is the gain of the item at rank i, divided by the ideal DCG (by the
    ideal DCG@k if `top_k` is given). The bound is tighter than that of `NDCGLoss1`.

    The arguments are those of `DeltaNDCG`, except that the truncation "metric" is the correction of
    Jagerman et al. 2022 for NDCG@k: if the larger rank j of a pair is above k, the pair's weight is
    multiplied by 1 / (1 - D(j)).

    Reference: Wang et al., CIKM 2018; Jagerman, Qin, Wang, Bendersky and Najork, "On optimizing
    top-k metrics for neural ranking models", SIGIR 2022.
    """

    def by_rank(self, i: Tensor, j: Tensor) -> Tensor:
        """Return the step of the discount from |i - j| to |i - j| + 1, corrected for the cutoff."""
        apart = (j - i).clamp(min=1)
        steps = (self.full(apart) - self.full(apart + 1)).abs()
        if self.metric_k is None:
            return steps
        rest = 1 - self.full(j)
        more = 1 / torch.where(rest > 0, rest, 1.0)
        return steps * torch.where(j > self.metric_k, more, 1.0)


class NDCGLoss2PP(NDCGLoss2):
    """Pair weights for NDCG: a mix of `NDCGLoss2` and `DeltaNDCG` (NDCG-Loss2++).

    The weight is mu times the weight of `NDCGLoss2` plus the weight of `DeltaNDCG`.

    Args:
        mu: the factor of the weight of `NDCGLoss2`, >= 0. Default: 10, as in the paper.
        top_k: see `DeltaNDCG`.
        truncation: see `DeltaNDCG` and `NDCGLoss2`.
        gain: see `DeltaNDCG`.
        discount: see `DeltaNDCG`.

    Reference: Wang et al., CIKM 2018.
    """

    def __init__(
        self,
        mu: float = 10.0,
        top_k: int | None = None,
        truncation: Truncation = "metric",
        gain: Gain = "exp2",
        discount: Discount = "log2",
    ):
        super().__init__(top_k, truncation, gain, discount)
        self.mu = check_number("mu", mu, minimum=0.0)

    def by_rank(self, i: Tensor, j: Tensor) -> Tensor:
        """Return mu times the step of `NDCGLoss2`, plus the difference of the discounts."""
        bound = super().by_rank(i, j)
        return self.mu * bound + (self.truncated_discount(i) - self.truncated_discount(j)).abs()


class DeltaMAP(PairWeights):
    """Weights a pair by how much average precision changes if its items swap positions.

    The change is exact. An item is relevant if its label is above 0.

    A swap of two relevant items, or of two irrelevant items, changes nothing, so the weight is 0.

    Args:
        top_k: the cutoff, as in `ltr.metrics.functional.average_precision`. Default: the whole
            list.
        truncation: see `PairWeights`. The weights always have the divisor of the cutoff, min(k,
            number of relevant items).

    Reference: Yue, Finley, Radlinski and Joachims, "A support vector method for optimizing
    average precision", SIGIR 2007; Donmez, Svore and Burges, "On the local optimality of
    LambdaRank", SIGIR 2009.
    """

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """Return relevance, and the terms of the change for an upper and for a lower item."""
        relevant, rank = (labels > 0).to(labels.dtype), positions(labels)
        counted = torch.ones_like(rank) if self.metric_k is None else (rank <= self.metric_k) * 1.0
        inverse = counted / rank
        hits = relevant.cumsum(-1)
        behind = (relevant * inverse).cumsum(-1)
        total = relevant.sum(-1, keepdim=True).clamp(min=1)
        total = total if self.top_k is None else total.clamp(max=self.top_k)
        as_upper = (hits + 1 - relevant) * inverse - behind
        as_lower = behind - relevant * inverse - hits * inverse
        return relevant, as_upper / total, as_lower / total

    def by_item(self, upper: Sequence[Tensor], lower: Sequence[Tensor]) -> Any:
        """Return the absolute change of the metric."""
        return (upper[0] - lower[0]).abs() * (upper[1] + lower[2]).abs()


class DeltaMRR(PairWeights):
    """Weights a pair by how much the reciprocal rank changes if its items swap positions.

    The change is exact. An item is relevant if its label is above 0.

    A pair has a weight above 0 in two cases: its upper item is the first relevant item and its
    lower item is irrelevant, or its lower item is relevant and would become the first relevant
    item.

    Args:
        top_k: the cutoff k. If the first relevant item is after rank k, the reciprocal rank is 0.
            Default: the whole list.
        truncation: see `PairWeights`.

    Reference: Donmez, Svore and Burges, "On the local optimality of LambdaRank", SIGIR 2009.
    """

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """Return the four columns `first`, `won`, `lost` and `relevant`.

        `relevant` is 1 for a relevant item, else 0, and `first` is 1 only for the first relevant
        item. For an irrelevant item, `won` is the increase of the metric if a relevant item moves
        up to the irrelevant item's rank, and `lost` is the decrease if the first relevant item
        moves down to this rank. For a relevant item, `won` and `lost` are 0.
        """
        relevant, rank = (labels > 0).to(labels.dtype), positions(labels)
        inverse = (1 / rank).expand_as(labels)
        if self.metric_k is not None:
            inverse = inverse * (rank <= self.metric_k)
        hits = relevant.cumsum(-1)
        first = relevant * (hits == 1)
        first_value = (first * inverse).sum(-1, keepdim=True)
        second_value = (relevant * (hits == 2) * inverse).sum(-1, keepdim=True)
        won = (1 - relevant) * (inverse - first_value).relu()
        lost = (1 - relevant) * (first_value - torch.maximum(inverse, second_value))
        return first, won, lost, relevant

    def by_item(self, upper: Sequence[Tensor], lower: Sequence[Tensor]) -> Any:
        """Return the absolute change: the first relevant item moves down, or a relevant one up."""
        return upper[0] * lower[2] + upper[1] * lower[3]


class DeltaPrecision(PairWeights):
    """Weights a pair by how much precision@k changes if its items swap positions.

    The weight is 1 / k if exactly one of the two items is relevant and exactly one of them is among
    the first k, else 0.

    An item is relevant if its label is above 0. In a list of at most k items, all weights are 0.

    Args:
        top_k: k of precision@k. Default: 10.
    """

    def __init__(self, top_k: int = 10):
        super().__init__(check_whole("top_k", top_k))

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """Return relevance."""
        return ((labels > 0).to(labels.dtype),)

    def by_rank(self, i: Tensor, j: Tensor) -> Tensor | None:
        """Return 1 / k if only the upper item is among the first k, else 0."""
        assert self.top_k is not None
        return ((i <= self.top_k) & (j > self.top_k)).to(i.dtype) / self.top_k

    def by_item(self, upper: Sequence[Tensor], lower: Sequence[Tensor]) -> Any:
        """Return 1 if exactly one of the two items is relevant, else 0."""
        return (upper[0] - lower[0]).abs()

    def graded(self, labels: Tensor, mask: Tensor | None) -> GradedWeights | None:
        """Return relevance / k as gains; the discount is 1 at the first k ranks, else 0.

        With discounts of exactly 0 and 1, weights of 0 have no rounding errors.
        """
        assert self.top_k is not None
        if not self.has_methods_of(DeltaPrecision):
            return None
        first = (positions(labels) <= self.top_k).to(labels.dtype)
        return GradedWeights((labels > 0).to(labels.dtype) / self.top_k, first)
