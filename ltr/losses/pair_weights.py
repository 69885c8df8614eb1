"""Pair weights of the literature: what changing places would change in a metric, and bounds."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ltr._shapes import check_number, check_whole, positions
from ltr.gains import (
    Discount,
    Gain,
    discount_function,
    gain_function,
    ideal_dcg,
    letor4_discount,
    log2_discount,
    ndcg_gains,
)
from ltr.kernels.pairs import GradedWeights
from ltr.losses.pairs import PairWeights, Truncation
from ltr.operators import truncated


class LabelDifference(PairWeights):
    """|y_i - y_j|: a pair counts by how far its labels are apart.

    Reference: Burges et al., "Learning to rank with nonsmooth cost functions", NeurIPS 2006 (the
    pairs of other grades "cost" more); as a bound on the average relevance position it is
    `ARPLoss2`.

    >>> from ltr.losses import LambdaLoss
    >>> LambdaLoss(LabelDifference())(torch.tensor([0.0, 0.0]), torch.tensor([3.0, 0.0]))
    tensor(0.6931)
    """

    def __init__(self):
        super().__init__()

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """The labels."""
        return (labels,)

    def by_item(self, upper: Sequence[Tensor], lower: Sequence[Tensor]) -> Any:
        """Their difference."""
        return (upper[0] - lower[0]).abs()

    def graded(self, labels: Tensor, mask: Tensor | None) -> GradedWeights | None:
        """The labels as gains."""
        known = self.has_methods_of(LabelDifference)
        return self.cut_pairs(GradedWeights(labels)) if known else None


class ARPLoss2(LabelDifference):
    """|y_i - y_j|, the tighter bound on the average relevance position, as the paper calls it.

    The same numbers as `LabelDifference`. Reference: Wang et al., "The LambdaLoss framework for
    ranking metric optimization", CIKM 2018.
    """


class ARPLoss1(PairWeights):
    """y_i for every other item j that could stand above i, equal labels included.

    The looser bound on the average relevance position, sum of y_i * rank_i. Both orders of a pair
    count, (i, j) by y_i and (j, i) by y_j, so the loss does not fall to 0 where two items are
    relevant. Reference: Wang et al., CIKM 2018.
    """

    both_orders = True

    def __init__(self):
        super().__init__()

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """The labels."""
        return (labels,)

    def by_item(self, upper: Sequence[Tensor], lower: Sequence[Tensor]) -> Any:
        """The label of the item that should be above."""
        return upper[0], lower[0]


class _NDCGWeights(PairWeights):
    """What the weights by NDCG share: gains over the ideal DCG, and the discount."""

    def __init__(
        self,
        top_k: int | None = None,
        truncation: Truncation = "metric",
        gain: Gain = "exp2",
        discount: Discount = "log2",
    ):
        super().__init__(top_k, truncation)
        gain_function(gain)  # a ValueError for what is none
        self.gain: Gain = gain
        discount_function(discount)
        self.discount: Discount = discount

    @property
    def full(self) -> Callable[[Tensor], Tensor]:
        """The discount, without a cut."""
        return discount_function(self.discount)

    @property
    def cut(self) -> Callable[[Tensor], Tensor]:
        """The discount, 0 behind `top_k` where the metric is cut."""
        return (
            self.full if self.metric_k is None else truncated(self.full, self.metric_k, exact=True)
        )

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """Gains over the ideal DCG, of the first `top_k` where there is a cut."""
        gains = ndcg_gains(labels, mask, None, self.gain)
        ideal = ideal_dcg(gains, self.full, self.top_k).unsqueeze(-1)
        return (gains / torch.where(ideal > 0, ideal, 1.0),)

    def by_item(self, upper: Sequence[Tensor], lower: Sequence[Tensor]) -> Any:
        """The difference of the gains."""
        return (upper[0] - lower[0]).abs()


class DeltaNDCG(_NDCGWeights):
    """|G_i - G_j| |D_i - D_j|: how much NDCG changes if the two change places. LambdaRank's.

    G is the gain over the ideal DCG, D the discount of the rank that the item has now, in the
    loss's one sort, also between tied scores. It separates into the columns 1, D, G and G D.

    Args:
        top_k: NDCG@k. Default: the whole list.
        truncation: "metric" (default) sets D to 0 behind rank k, so a pair with both items there
            counts 0 (rax, TF-Ranking); "any" keeps D whole and leaves out just those pairs
            (LightGBM's truncation level); "both" leaves out each pair that is not wholly among
            the first k (allRank's k).
        gain: "exp2" (2^label - 1, the default), "linear", or a function of the labels.
        discount: "log2" (the default), "letor4", or a function of the ranks.

    Raises:
        ValueError: an argument that is none of these, named with its value.

    Reference: Burges, Ragno and Le, "Learning to rank with nonsmooth cost functions", NeurIPS
    2006.
    """

    def by_rank(self, i: Tensor, j: Tensor) -> Tensor | None:
        """The difference of the discounts."""
        return (self.cut(i) - self.cut(j)).abs()

    def graded(self, labels: Tensor, mask: Tensor | None) -> GradedWeights | None:
        """Gains and discounts, where the gains are by the label and the discounts fall."""
        named = self.full in (log2_discount, letor4_discount)
        if callable(self.gain) or not named or not self.has_methods_of(DeltaNDCG):
            return None
        gains, n = ndcg_gains(labels, mask, None, self.gain), labels.shape[-1]
        discounts = _discounts(self.full, n, self.metric_k)
        ideal = _discounts(self.full, n, self.top_k)
        return self.cut_pairs(GradedWeights(gains, discounts, ideal))


@lru_cache(maxsize=16)
def _discounts(full: Callable[[Tensor], Tensor], n: int, top_k: int | None) -> Any:
    # of ranks 1 to n, 0 behind top_k, as an array: in short lists they would take a tenth
    discounts = full(torch.arange(1, n + 1, dtype=torch.float64)).numpy().copy()
    discounts[n if top_k is None else top_k :] = 0
    return discounts


class NDCGLoss1(_NDCGWeights):
    """G_i D_i for every other item j, equal labels included: the looser bound of LambdaLoss.

    Both orders of a pair count, so the loss does not fall to 0 where two items are relevant.
    Arguments as of `DeltaNDCG`; "metric" sets D to 0 behind rank k, "any" and "both" keep the
    pairs that they name. Reference: Wang et al., CIKM 2018.
    """

    both_orders = True

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """G D."""
        return (super().columns(labels, mask)[0] * self.cut(positions(labels)),)

    def by_item(self, upper: Sequence[Tensor], lower: Sequence[Tensor]) -> Any:
        """G D of the item that should be above."""
        return upper[0], lower[0]


class NDCGLoss2(_NDCGWeights):
    """|G_i - G_j| (D(|i - j|) - D(|i - j| + 1)), i and j the ranks: the tighter bound.

    Arguments as of `DeltaNDCG`, but "metric" is the correction of Jagerman et al. 2022 for NDCG@k:
    a pair with an item behind rank k counts 1 / (1 - D(the larger rank)) as much.

    Reference: Wang et al., CIKM 2018; Jagerman, Qin, Wang, Bendersky and Najork, "On optimizing
    top-k metrics for neural ranking models", SIGIR 2022.
    """

    def by_rank(self, i: Tensor, j: Tensor) -> Tensor | None:
        """The step of the discount at the distance of the ranks."""
        return self.steps(i, j)

    def steps(self, i: Tensor, j: Tensor) -> Tensor:
        """The same, as a method that `NDCGLoss2PP` has too."""
        apart = (j - i).clamp(min=1)
        steps = (self.full(apart) - self.full(apart + 1)).abs()
        if self.metric_k is None:
            return steps
        rest = 1 - self.full(j)
        more = 1 / torch.where(rest > 0, rest, 1.0)
        return steps * torch.where(j > self.metric_k, more, 1.0)


class NDCGLoss2PP(NDCGLoss2):
    """mu times the weight of `NDCGLoss2`, plus that of `DeltaNDCG`: LambdaLoss's NDCG-Loss2++.

    Args:
        mu: >= 0, the paper's 10 by default.
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

    def by_rank(self, i: Tensor, j: Tensor) -> Tensor | None:
        """The bound's factor times mu, plus the difference of the discounts."""
        bound = self.steps(i, j)
        return self.mu * bound + (self.cut(i) - self.cut(j)).abs()


class DeltaMAP(PairWeights):
    """How much average precision changes if the two change places, exactly; relevant is y > 0.

    Pairs of two relevant items change nothing and count 0.

    Args:
        top_k: as `ltr.metrics.functional.average_precision` has it. Default: the whole list.
        truncation: see `PairWeights`.

    Reference: Yue, Finley, Radlinski and Joachims, "A support vector method for optimizing
    average precision", SIGIR 2007; Donmez, Svore and Burges, "On the local optimality of
    LambdaRank", SIGIR 2009.
    """

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """Relevance, and what the change is made of, for the item above and the one below."""
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
        """The size of the change."""
        return (upper[0] - lower[0]).abs() * (upper[1] + lower[2]).abs()


class DeltaMRR(PairWeights):
    """How much the reciprocal rank changes if the two change places, exactly; relevant is y > 0.

    Only the first relevant item and what stands above it, or a better first than the next, count.

    Args:
        top_k: a first relevant item behind rank k counts 0. Default: the whole list.
        truncation: see `PairWeights`.

    Reference: Donmez, Svore and Burges, "On the local optimality of LambdaRank", SIGIR 2009.
    """

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """Whether it is the first relevant; what is won there, and lost there; relevance."""
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
        """The size of the change: the first relevant item falls, or another comes above it."""
        return upper[0] * lower[2] + upper[1] * lower[3]


class DeltaPrecision(PairWeights):
    """1 / k for a relevant and an irrelevant item on either side of rank k, else 0.

    How much precision@k changes if the two change places; relevant is y > 0. A list that is all
    on one side (shorter than k) has no such pair.

    Args:
        top_k: k. Default: 10.
    """

    def __init__(self, top_k: int = 10):
        super().__init__(check_whole("top_k", top_k))

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """Relevance."""
        return ((labels > 0).to(labels.dtype),)

    def by_rank(self, i: Tensor, j: Tensor) -> Tensor | None:
        """1 / k on either side of the cut."""
        assert self.top_k is not None
        return ((i <= self.top_k) & (j > self.top_k)).to(i.dtype) / self.top_k

    def by_item(self, upper: Sequence[Tensor], lower: Sequence[Tensor]) -> Any:
        """Whether one of the two is relevant."""
        return (upper[0] - lower[0]).abs()

    def graded(self, labels: Tensor, mask: Tensor | None) -> GradedWeights | None:
        """Relevance as gains, the first k as discounts."""
        assert self.top_k is not None
        if not self.has_methods_of(DeltaPrecision):
            return None
        first = (positions(labels) <= self.top_k).to(labels.dtype) / self.top_k
        return GradedWeights((labels > 0).to(labels.dtype), first)
