"""Pairwise losses: every pair of a list whose labels differ, the higher label to stand above."""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from ltr._shapes import check_number
from ltr.losses._pair_sums import pair_sums
from ltr.losses.base import Lengths, RankingLoss, Reduction
from ltr.losses.pairs import PairCost, PairWeights


class LogisticCost(PairCost):
    """log(1 + exp(-t / temperature)): the negative log-likelihood of the pair's order."""

    uses_gap = False

    def __init__(self, temperature: float = 1.0):
        super().__init__()
        self.temperature = check_number("temperature", temperature, minimum=0.0, strict=True)

    @property
    def logistic_temperature(self) -> float | None:
        """The temperature; None in a subclass, which may say something else."""
        return self.temperature if type(self) is LogisticCost else None

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """Softplus of -t / temperature: linear far below 0, never inf."""
        return F.softplus(_over(t, -self.temperature), threshold=50)

    def slope(self, t: Tensor, gap: Tensor) -> Tensor:
        """Between -1 / temperature and 0; nearly the first for every pair that is wrong."""
        return _over(torch.sigmoid(_over(t, -self.temperature)), -self.temperature)

    def both(self, t: Tensor, gap: Tensor, slopes: bool) -> tuple[Tensor, Tensor | None]:
        """The two, from one -t / temperature."""
        x = _over(t, -self.temperature)
        cost = F.softplus(x, threshold=50)
        return cost, _over(torch.sigmoid(x), -self.temperature) if slopes else None

    def reversed(
        self, t: Tensor, gap: Tensor, cost: Tensor, slope: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """log(1 + exp(x)) is log(1 + exp(-x)) + x; for t >= 0 nothing cancels."""
        if self.logistic_temperature is None:  # a subclass, which may say something else
            return super().reversed(t, gap, cost, slope)
        steeper = None if slope is None else -1 / self.temperature - slope
        return cost + _over(t, self.temperature), steeper


def _over(x: Tensor, divisor: float) -> Tensor:
    """Quotient, sparing the division by 1 and the slower one by -1."""
    if abs(divisor) == 1:
        return x if divisor == 1 else -x
    return x / divisor


class HingeCost(PairCost):
    """max(0, margin - t)."""

    uses_gap = False

    def __init__(self, margin: float = 1.0):
        super().__init__()
        self.margin = check_number("margin", margin, minimum=0.0, strict=True)

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """Linear below the margin, 0 above."""
        return (self.margin - t).relu()

    def slope(self, t: Tensor, gap: Tensor) -> Tensor:
        """-1 below the margin, else 0."""
        return -(t < self.margin).to(t.dtype) + 0 * t  # NaN stays NaN


class SoftZeroOneCost(PairCost):
    """1 / (1 + exp(t / temperature)): how much of an error the pair is."""

    uses_gap = False

    def __init__(self, temperature: float = 1.0):
        super().__init__()
        self.temperature = check_number("temperature", temperature, minimum=0.0, strict=True)

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """Between 0 and 1."""
        return torch.sigmoid(t / -self.temperature)

    def slope(self, t: Tensor, gap: Tensor) -> Tensor:
        """It vanishes far from 0 on both sides, for pairs that are very wrong too."""
        x = t / self.temperature
        return torch.sigmoid(x) * torch.sigmoid(-x) / -self.temperature


class ExponentialCost(PairCost):
    """exp(-t) down to t = -limit, and its tangent from there on: RankBoost's, without overflow.

    The value, but not the slope, ends at the dtype's largest number over 2^34, so that sums over
    the pairs of 130,000 items stay finite: 2e28 in float32, at a gap of 4e19 by the default limit.
    """

    uses_gap = False

    def __init__(self, limit: float = 20.0):
        super().__init__()
        self.limit = check_number("limit", limit, minimum=0.0, strict=True)
        if limit > 60:
            raise ValueError(
                f"limit must be <= 60 (float32 ends at exp(88), which sums reach), got {limit!r}"
            )

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """The exponential, linear where it would overflow."""
        most = torch.finfo(t.dtype).max / 2**34
        cost = self._tail(t) * (1 + (-t - self.limit).relu())
        return cost.clamp(max=most)

    def slope(self, t: Tensor, gap: Tensor) -> Tensor:
        """-exp(-t), and no steeper than at -limit."""
        return -self._tail(t)

    def _tail(self, t: Tensor) -> Tensor:
        return torch.exp(-t.clamp(min=-self.limit))


class SquaredCost(PairCost):
    """(t - gap)^2: differences of scores should be those of labels."""

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """Squared error of the difference."""
        return (t - gap).square()

    def slope(self, t: Tensor, gap: Tensor) -> Tensor:
        """2 (t - gap)."""
        return 2 * (t - gap)


class PairwiseLoss(RankingLoss):
    """Any cost of a pair with any weights: what all pairwise losses are.

    For each list, over the pairs of items with y_i > y_j,

        sum of w_ij * cost(s_i - s_j) / sum of w_ij

    a mean over pairs, weighted by the pair weights times the item weight of i, the item with the
    higher label. Items of the same label make no pair. Memory O(n) a list, in the backward too;
    time O(n^2), but O(n log n + n grades) on the CPU for the logistic cost where the weights
    separate (`PairWeights.graded`) and a list has at most 32 different labels. No pair, one item,
    or all masked: 0, with a graph. Ties of scores are pairs like others.

    Args:
        cost: what a pair costs. Default: `LogisticCost()`.
        pair_weights: what it counts. Default: 1.
        normalize: True (default) divides a list's sum by that of its weights; False leaves the
            sum.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: an argument that is none of these.

    >>> PairwiseLoss(HingeCost())(torch.tensor([0.5, 0.0]), torch.tensor([1.0, 0.0]))
    tensor(0.5000)
    """

    def __init__(
        self,
        cost: PairCost | None = None,
        pair_weights: PairWeights | None = None,
        normalize: bool = True,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.cost = LogisticCost() if cost is None else _check("cost", cost, PairCost)
        self.pair_weights = (
            PairWeights()
            if pair_weights is None
            else _check("pair_weights", pair_weights, PairWeights)
        )
        if not isinstance(normalize, bool):
            raise ValueError(f"normalize must be True or False, got {normalize!r}")
        self.normalize = normalize

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """The mean over each list's pairs."""
        total, weight = pair_sums(self.cost, self.pair_weights, scores, labels, mask, weights)
        return total / torch.where(weight > 0, weight, 1.0) if self.normalize else total


def _check(name: str, value, kind: type):
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be a {kind.__name__}, got {value!r}")
    return value


class RankNet(PairwiseLoss):
    """Pairwise logistic loss: the mean of log(1 + exp(-(s_i - s_j) / temperature)).

    Over the pairs with y_i > y_j; `PairwiseLoss` says the rest. Always finite: 90 for a pair
    that is wrong by 90, with the slope of -1.

    Args:
        temperature: > 0, in units of score (the paper's 1 / sigma).
        normalize: see `PairwiseLoss`.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Reference: Burges et al., "Learning to rank using gradient descent", ICML 2005.

    >>> RankNet()(torch.tensor([0.0, 0.0, 90.0]), torch.tensor([1.0, 0.0, 0.0]))
    tensor(45.3466)
    """

    def __init__(
        self, temperature: float = 1.0, normalize: bool = True, reduction: Reduction = "mean"
    ):
        super().__init__(LogisticCost(temperature), None, normalize, reduction)

    @property
    def temperature(self) -> float:
        """Of the logistic cost."""
        return cast(LogisticCost, self.cost).temperature


class PairwiseHinge(PairwiseLoss):
    """Pairwise hinge loss: the mean of max(0, margin - (s_i - s_j)), over pairs with y_i > y_j.

    See `PairwiseLoss`. The slope at the margin itself is 0.

    Args:
        margin: > 0, in units of score.
        normalize: see `PairwiseLoss`.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Reference: Herbrich, Graepel and Obermayer, "Large margin rank boundaries for ordinal
    regression", 2000; Joachims, "Optimizing search engines using clickthrough data", KDD 2002.

    >>> PairwiseHinge()(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.0]))
    tensor(1.5000)
    """

    def __init__(self, margin: float = 1.0, normalize: bool = True, reduction: Reduction = "mean"):
        super().__init__(HingeCost(margin), None, normalize, reduction)

    @property
    def margin(self) -> float:
        """How far apart a pair should be."""
        return cast(HingeCost, self.cost).margin


class PairwiseSoftZeroOne(PairwiseLoss):
    """Share of the pairs in the wrong order, smoothed: the mean of sigmoid(-(s_i - s_j) / tau).

    Over pairs with y_i > y_j; see `PairwiseLoss`. Bounded, so robust to pairs that cannot be
    right, but for the same reason a pair that is wrong by many temperatures has nearly no
    gradient, and none by 60 in float32's digits of its value: start from scores near each other.

    Args:
        temperature: > 0, in units of score. Towards 0 it is the share itself, (1 - Kendall's
            tau) / 2 where no labels or scores are tied.
        normalize: see `PairwiseLoss`.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    >>> PairwiseSoftZeroOne()(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0]))
    tensor(0.5000)
    """

    def __init__(
        self, temperature: float = 1.0, normalize: bool = True, reduction: Reduction = "mean"
    ):
        super().__init__(SoftZeroOneCost(temperature), None, normalize, reduction)

    @property
    def temperature(self) -> float:
        """Of the sigmoids."""
        return cast(SoftZeroOneCost, self.cost).temperature


class PairwiseExponential(PairwiseLoss):
    """RankBoost's loss: the mean of exp(-(s_i - s_j)), over pairs with y_i > y_j.

    See `PairwiseLoss`. From a pair wrong by `limit` on it goes on as its tangent, and the value
    ends where a sum over pairs would overflow (`ExponentialCost`): no finite gap makes value or
    gradient inf or NaN, also in float32.

    Args:
        limit: where the exponential ends, > 0 and <= 60.
        normalize: see `PairwiseLoss`.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Reference: Freund, Iyer, Schapire and Singer, "An efficient boosting algorithm for combining
    preferences", JMLR 2003.

    >>> PairwiseExponential()(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]))
    tensor(2.7183)
    """

    def __init__(self, limit: float = 20.0, normalize: bool = True, reduction: Reduction = "mean"):
        super().__init__(ExponentialCost(limit), None, normalize, reduction)

    @property
    def limit(self) -> float:
        """Where the exponential ends."""
        return cast(ExponentialCost, self.cost).limit


class PairwiseMSE(PairwiseLoss):
    """The mean of ((s_i - s_j) - (y_i - y_j))^2, over pairs with y_i > y_j.

    See `PairwiseLoss`. Pairs of equal labels are left out, as in every loss here; rax and
    TF-Ranking count them.

    Args:
        normalize: see `PairwiseLoss`.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    >>> PairwiseMSE()(torch.tensor([0.0, 0.5]), torch.tensor([2.0, 0.0]))
    tensor(6.2500)
    """

    grades = False

    def __init__(self, normalize: bool = True, reduction: Reduction = "mean"):
        super().__init__(SquaredCost(), None, normalize, reduction)


def ranknet_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    temperature: float = 1.0,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """Pairwise logistic loss, as a function: see `RankNet`.

    >>> ranknet_loss(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0]))
    tensor(0.6931)
    """
    return RankNet(temperature, normalize, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )


def pairwise_hinge_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    margin: float = 1.0,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """Pairwise hinge loss, as a function: see `PairwiseHinge`.

    >>> pairwise_hinge_loss(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.0]))
    tensor(1.5000)
    """
    return PairwiseHinge(margin, normalize, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )


def pairwise_soft_zero_one_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    temperature: float = 1.0,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """Smoothed share of wrong pairs, as a function: see `PairwiseSoftZeroOne`.

    >>> pairwise_soft_zero_one_loss(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0]))
    tensor(0.5000)
    """
    return PairwiseSoftZeroOne(temperature, normalize, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )


def pairwise_exponential_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    limit: float = 20.0,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """RankBoost's loss, as a function: see `PairwiseExponential`.

    >>> pairwise_exponential_loss(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]))
    tensor(2.7183)
    """
    return PairwiseExponential(limit, normalize, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )


def pairwise_mse_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """Squared errors of the differences, as a function: see `PairwiseMSE`.

    >>> pairwise_mse_loss(torch.tensor([0.0, 0.5]), torch.tensor([2.0, 0.0]))
    tensor(6.2500)
    """
    return PairwiseMSE(normalize, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )


def pairwise_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    cost: PairCost | None = None,
    pair_weights: PairWeights | None = None,
    normalize: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """Any cost of a pair with any weights, as a function. See `PairwiseLoss`.

    >>> pairwise_loss(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0]), cost=HingeCost(2.0))
    tensor(2.)
    """
    loss = PairwiseLoss(cost, pair_weights, normalize, reduction)
    return loss(scores, labels, mask, weights, lengths=lengths, padding=padding)
