"""Pairwise losses: a cost for each pair of a list whose labels differ."""

from functools import partial
from typing import cast

import torch
from torch import Tensor

from ltr.losses.base import Lengths, RankingLoss, Reduction, check_flag, loss_of_lists
from ltr.losses.pair_costs import (
    ExponentialCost,
    HingeCost,
    LogisticCost,
    SoftZeroOneCost,
    SquaredCost,
)
from ltr.losses.pair_sums import pair_sums
from ltr.losses.pairs import PairCost, PairWeights


class PairwiseLoss(RankingLoss):
    """The general pairwise loss: any cost of a pair, with any weights of pairs.

    For each list, with sums over the pairs of items with y_i > y_j, the loss is

        sum of w_ij * cost(s_i - s_j) / sum of w_ij

    This is a weighted mean over pairs. The weight w_ij is the pair weight times the item weight of
    i, the item with the higher label. Items of the same label make no pair. Pairs with tied scores
    are treated like other pairs. The loss is 0, with a zero gradient, for a list without a pair,
    with one item, or fully masked.

    Cost: O(n) memory for each list, in the backward too. The time is O(n^2). On the CPU it is
    O(n log n + n grades) for the logistic cost, if the weights are products of item weights
    (`PairWeights.graded`) and a list has at most 32 different labels.

    Args:
        cost: the cost of a pair. Default: `LogisticCost()`.
        pair_weights: the weight of a pair. Default: 1.
        normalize: True (default) divides a list's sum by the sum of its weights. False does not.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: an argument has none of these values.

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
        self.cost = _check_cost(cost)
        self.pair_weights = _check_pair_weights(pair_weights)
        self.normalize = check_flag("normalize", normalize)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the mean over each list's pairs."""
        return _pair_mean(
            scores,
            labels,
            mask,
            weights,
            cost=self.cost,
            pair_weights=self.pair_weights,
            normalize=self.normalize,
        )


class PairwiseHinge(PairwiseLoss):
    """Pairwise hinge loss: the mean of max(0, margin - (s_i - s_j)), over pairs with y_i > y_j.

    `PairwiseLoss` documents weights, special cases and cost. At the margin itself the slope is 0.

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
        """The difference of scores at which a pair costs nothing."""
        return cast(HingeCost, self.cost).margin


class PairwiseSoftZeroOne(PairwiseLoss):
    """The smoothed share of pairs in the wrong order: the mean of sigmoid(-(s_i - s_j) / tau).

    The mean goes over the pairs with y_i > y_j. `PairwiseLoss` documents weights, special cases
    and cost. The cost of a pair is bounded, so the loss is robust to pairs that cannot be right.
    For the same reason a pair that is wrong by many temperatures has nearly no gradient.
    So training should start from scores near each other.

    Args:
        temperature: > 0, in units of score. As it falls to 0, the loss becomes the share itself,
            which is (1 - Kendall's tau) / 2 if no labels or scores are tied.
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
        """The temperature of the sigmoids."""
        return cast(SoftZeroOneCost, self.cost).temperature


class PairwiseExponential(PairwiseLoss):
    """RankBoost's loss: the mean of exp(-(s_i - s_j)), over pairs with y_i > y_j.

    `PairwiseLoss` documents weights, special cases and cost. For a pair that is wrong by more than
    `limit` the exponential is replaced by its tangent, and the value is limited where a sum over
    pairs would overflow (see `ExponentialCost`). So with any finite gap, value and gradient are
    finite, in float32 too.

    Args:
        limit: the gap at which the tangent begins, > 0 and <= 60.
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
        """The gap at which the tangent begins."""
        return cast(ExponentialCost, self.cost).limit


class PairwiseMSE(PairwiseLoss):
    """The mean of ((s_i - s_j) - (y_i - y_j))^2, over pairs with y_i > y_j.

    `PairwiseLoss` documents weights, special cases and cost. Pairs of equal labels do not count, as
    in all pairwise losses here. In rax and TF-Ranking they count.

    Args:
        normalize: see `PairwiseLoss`.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    >>> PairwiseMSE()(torch.tensor([0.0, 0.5]), torch.tensor([2.0, 0.0]))
    tensor(6.2500)
    """

    grades = False

    def __init__(self, normalize: bool = True, reduction: Reduction = "mean"):
        super().__init__(SquaredCost(), None, normalize, reduction)


def _pair_mean(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    cost: PairCost,
    pair_weights: PairWeights,
    normalize: bool,
) -> Tensor:
    total, weight = pair_sums(cost, pair_weights, scores, labels, mask, weights)
    return total / torch.where(weight > 0, weight, 1.0) if normalize else total


def _check_cost(cost: PairCost | None) -> PairCost:
    if cost is not None and not isinstance(cost, PairCost):
        raise ValueError(f"cost must be a PairCost, got {cost!r}")
    return LogisticCost() if cost is None else cost


def _check_pair_weights(pair_weights: PairWeights | None) -> PairWeights:
    if pair_weights is not None and not isinstance(pair_weights, PairWeights):
        raise ValueError(f"pair_weights must be a PairWeights, got {pair_weights!r}")
    return PairWeights() if pair_weights is None else pair_weights


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
    """Return the loss for any cost and weights of pairs: the function form of `PairwiseLoss`.

    >>> from ltr.losses import HingeCost
    >>> pairwise_loss(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0]), cost=HingeCost(2.0))
    tensor(2.)
    """
    return loss_of_lists(
        partial(
            _pair_mean,
            cost=_check_cost(cost),
            pair_weights=_check_pair_weights(pair_weights),
            normalize=check_flag("normalize", normalize),
        ),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
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
    """Return the pairwise hinge loss: the function form of `PairwiseHinge`.

    >>> pairwise_hinge_loss(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.0]))
    tensor(1.5000)
    """
    return pairwise_loss(
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
        cost=HingeCost(margin),
        normalize=normalize,
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
    """Return the smoothed share of wrong pairs: the function form of `PairwiseSoftZeroOne`.

    >>> pairwise_soft_zero_one_loss(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0]))
    tensor(0.5000)
    """
    return pairwise_loss(
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
        cost=SoftZeroOneCost(temperature),
        normalize=normalize,
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
    """Return RankBoost's loss: the function form of `PairwiseExponential`.

    >>> pairwise_exponential_loss(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]))
    tensor(2.7183)
    """
    return pairwise_loss(
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
        cost=ExponentialCost(limit),
        normalize=normalize,
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
    """Return the mean squared error of differences: the function form of `PairwiseMSE`.

    >>> pairwise_mse_loss(torch.tensor([0.0, 0.5]), torch.tensor([2.0, 0.0]))
    tensor(6.2500)
    """
    return loss_of_lists(
        partial(
            _pair_mean,
            cost=SquaredCost(),
            pair_weights=PairWeights(),
            normalize=check_flag("normalize", normalize),
        ),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
        grades=False,
    )
