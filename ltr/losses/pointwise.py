"""Pointwise losses: each item is a sample of its own. Ranking losses have to beat them."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from ltr.losses.base import Lengths, RankingLoss, Reduction, loss_of_lists
from ltr.shapes import check_number, masked_fill


class PointwiseMSE(RankingLoss):
    """Mean squared error between scores and labels, over the items of each list.

    The loss of a list is sum w (s - y)^2 / sum w over its real items, with w = 1 by default. It is
    0, with a zero gradient, for a fully masked list and if all weights are 0. One item and ties
    need no special treatment.

    Args:
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Reference: Cossock and Zhang, "Subset ranking using regression", COLT 2006.

    >>> PointwiseMSE()(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
    tensor(2.)
    """

    grades = False

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the weighted mean squared error of each list."""
        return _squared_error(scores, labels, mask, weights)


class PointwiseSigmoid(RankingLoss):
    """Sigmoid cross-entropy: 1 / (1 + exp(-s)) is the probability that the item is relevant.

    The loss of a list is the weighted mean of log(1 + exp(s)) - t s over its items, with the
    target t of 1 or 0. A list without a relevant item has a loss like others; its targets are all
    0. The loss is 0, with a zero gradient, for a fully masked list and if all weights are 0.

    Args:
        threshold: > 0; t is 1 for labels >= threshold. Default: 1, as in rax. With None the labels
            themselves are the targets, such as a teacher's probabilities. They must lie in [0, 1].
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: threshold is not a number > 0.

    >>> PointwiseSigmoid()(torch.tensor([0.0, 0.0]), torch.tensor([3.0, 0.0]))
    tensor(0.6931)
    """

    def __init__(self, threshold: float | None = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction)
        self.threshold = _check_threshold(threshold)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the weighted mean cross-entropy of each list."""
        return _sigmoid(scores, labels, mask, weights, threshold=self.threshold)


class PointwiseOrdinal(RankingLoss):
    """Cumulative logits: sigmoid(s - theta_g) is the probability that the label is at least g.

    The loss of a list is the sum over the grades g of the weighted mean sigmoid cross-entropy of
    its items. All grades share one score for each item, so the score ranks, and its place between
    the thresholds is a prediction of the grade. This is the proportional odds model. (allRank's
    ordinal loss has an output for each grade instead.) The loss is 0, with a zero gradient, for a
    fully masked list and if all weights are 0.

    Args:
        thresholds: theta_1 <= theta_2 <= ..., in units of score; theta_g is for labels >= g.
            Default: 1/2, 3/2, 5/2, 7/2, for grades 0 to 4 with scores on the scale of the grades.
            Labels above the last grade count as the last grade.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Raises:
        ValueError: thresholds are empty or fall.

    Reference: McCullagh, "Regression models for ordinal data", 1980; Rennie and Srebro, "Loss
    functions for preference levels", 2005 (all-threshold logistic).

    >>> PointwiseOrdinal([0.0])(torch.tensor([0.0, 0.0]), torch.tensor([3.0, 0.0]))
    tensor(0.6931)
    """

    def __init__(self, thresholds: Sequence[float] | None = None, reduction: Reduction = "mean"):
        super().__init__(reduction)
        self.thresholds = _check_thresholds(thresholds)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the weighted mean over the items, summed over the thresholds, of each list."""
        return _ordinal(scores, labels, mask, weights, thresholds=self.thresholds)


def _squared_error(
    scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
) -> Tensor:
    return _item_mean(
        (masked_fill(scores, mask) - masked_fill(labels, mask)).square(), mask, weights
    )


def _sigmoid(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    threshold: float | None,
) -> Tensor:
    s, y = masked_fill(scores, mask), masked_fill(labels, mask)
    target = y if threshold is None else (y >= threshold).to(s.dtype)
    each = F.binary_cross_entropy_with_logits(s, target, reduction="none")
    return _item_mean(each, mask, weights)


def _ordinal(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    thresholds: list[float],
) -> Tensor:
    s, y = masked_fill(scores, mask), masked_fill(labels, mask)
    each = torch.zeros_like(s)
    for grade, threshold in enumerate(thresholds, 1):
        target = (y >= grade).to(s.dtype)
        each = each + F.binary_cross_entropy_with_logits(s - threshold, target, reduction="none")
    return _item_mean(each, mask, weights)


def _item_mean(each: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
    """Return the weighted mean of finite `each` (..., n) over the real items: (...)."""
    weights = masked_fill(torch.ones_like(each) if weights is None else weights, mask)
    total = weights.sum(-1)
    return (weights * each).sum(-1) / torch.where(total > 0, total, 1.0)


def _check_threshold(threshold: float | None) -> float | None:
    if threshold is None:
        return None
    return check_number("threshold", threshold, minimum=0.0, strict=True)


def _check_thresholds(thresholds: Sequence[float] | None) -> list[float]:
    chosen = [0.5, 1.5, 2.5, 3.5] if thresholds is None else [float(x) for x in thresholds]
    if not chosen or any(a > b for a, b in pairwise(chosen)):
        raise ValueError(f"thresholds must be one or more rising numbers, got {thresholds!r}")
    return chosen


def pointwise_mse_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the mean squared error: the function form of `PointwiseMSE`.

    >>> pointwise_mse_loss(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
    tensor(2.)
    """
    return loss_of_lists(
        _squared_error,
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
        grades=False,
    )


def pointwise_sigmoid_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    threshold: float | None = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the sigmoid cross-entropy: the function form of `PointwiseSigmoid`.

    >>> pointwise_sigmoid_loss(torch.tensor([0.0, 0.0]), torch.tensor([3.0, 0.0]))
    tensor(0.6931)
    """
    return loss_of_lists(
        partial(_sigmoid, threshold=_check_threshold(threshold)),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
    )


def pointwise_ordinal_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    thresholds: Sequence[float] | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the cross-entropy of cumulative logits: the function form of `PointwiseOrdinal`.

    >>> pointwise_ordinal_loss(torch.tensor([0.0, 0.0]), torch.tensor([3.0, 0.0]), thresholds=[0.0])
    tensor(0.6931)
    """
    return loss_of_lists(
        partial(_ordinal, thresholds=_check_thresholds(thresholds)),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
    )
