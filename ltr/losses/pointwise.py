"""Pointwise losses, which treat each item as a separate sample: baselines for ranking losses."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from ltr.losses.base import RankingLoss, Reduction, finite_if_removed
from ltr.losses.soft import real_weights, weighted_mean
from ltr.shapes import check_flag, check_floats, check_number, masked_fill, upcast


class PointwiseMSE(RankingLoss):
    """Mean squared error between scores and labels, over the items of each list.

    The loss of a list is sum w (s - y)^2 / sum w over its real items, with scores s, labels y and
    weights w, which are 1 by default. The loss is 0, with a zero gradient, for a fully masked list
    and if all weights are 0. Lists with one item and ties need no special treatment.

    Reference: Cossock and Zhang, "Subset ranking using regression", COLT 2006.

    >>> PointwiseMSE()(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
    tensor(2.)
    """

    grades = False
    every_item = True

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the weighted mean squared error of each list."""
        errors = masked_fill(scores, mask) - masked_fill(labels, mask)
        return weighted_mean(errors.square(), real_weights(scores, mask, weights))


class PointwiseSigmoid(RankingLoss):
    """Binary cross-entropy for each item: relevant or not.

    The probability that an item with score s is relevant is 1 / (1 + exp(-s)).

    The loss of a list is the weighted mean of log(1 + exp(s)) - t s over its items. By default the
    target t is 1 or 0. A list without a relevant item needs no special treatment: all its targets
    are 0. The loss is 0, with a zero gradient, for a fully masked list and if all weights are 0.

    Args:
        threshold: > 0; t is 1 for labels >= threshold, else 0. Default: 1. With None, the targets
            are the labels themselves, such as a teacher's probabilities, which must lie in [0, 1].
            A label strictly between 0 and 1 keeps the loss above 0. (rax has the target min(label,
            1). For whole labels, the default here gives the same target; for labels in [0, 1],
            `threshold=None` does.)

    Raises:
        ValueError: threshold is not a number > 0; in `forward`, threshold is None and a label is
            above 1.

    >>> PointwiseSigmoid()(torch.tensor([0.0, 0.0]), torch.tensor([3.0, 0.0]))
    tensor(0.6931)
    """

    every_item = True

    def __init__(self, threshold: float | None = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction)
        if threshold is not None:
            check_number("threshold", threshold, minimum=0.0, strict=True)
        self.threshold = threshold
        if threshold is None:
            self.most_label = 1.0

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the weighted mean cross-entropy of each list."""
        y = masked_fill(labels, mask)
        s = finite_if_removed(masked_fill(scores, mask), y)
        target = y if self.threshold is None else (y >= self.threshold).to(s.dtype)
        each = F.binary_cross_entropy_with_logits(s, target, reduction="none")
        return weighted_mean(each, real_weights(scores, mask, weights))


class PointwiseOrdinal(RankingLoss):
    """Ordinal regression of the grades with one score per item.

    With score s, the probability of a label >= g is sigmoid(s - theta_g) (cumulative logits).

    The loss of a list is a sum over the grades g >= 1. The term of g is the weighted mean, over the
    items, of the sigmoid cross-entropy for "label >= g". All grades use the same score of an item.
    So the scores rank the items, and the two thresholds on either side of a score give the
    predicted grade. This is the proportional odds model. (In allRank's ordinal loss, the model has
    one output for each grade instead.) A label between the lowest and the highest grade keeps the
    loss above 0. The loss is 0, with a zero gradient, for a fully masked list and if all weights
    are 0.

    Args:
        thresholds: theta_1 <= theta_2 <= ..., in units of the scores; theta_g is the threshold for
            labels >= g. Default: 1/2, 3/2, 5/2, 7/2, for grades 0 to 4 with scores on the scale of
            the grades. Labels above the last grade count as the last grade.

    Raises:
        ValueError: there are no thresholds, or they are not ascending finite numbers.

    Reference: McCullagh, "Regression models for ordinal data", 1980; Rennie and Srebro, "Loss
    functions for preference levels", 2005 (all-threshold logistic).

    >>> PointwiseOrdinal([0.0])(torch.tensor([0.0, 0.0]), torch.tensor([3.0, 0.0]))
    tensor(0.6931)
    """

    every_item = True

    def __init__(self, thresholds: Sequence[float] | None = None, reduction: Reduction = "mean"):
        super().__init__(reduction)
        given = [0.5, 1.5, 2.5, 3.5] if thresholds is None else thresholds
        chosen = check_floats("thresholds", given)
        ascending = all(a <= b for a, b in pairwise(chosen))
        if not chosen or not ascending or not all(map(math.isfinite, chosen)):
            raise ValueError(
                f"thresholds must be one or more ascending finite numbers, got {thresholds!r}"
            )
        self.thresholds = chosen

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return each list's weighted mean over the items, summed over the thresholds."""
        y = masked_fill(labels, mask)
        s = finite_if_removed(masked_fill(scores, mask), y)
        each = torch.zeros_like(s)
        for grade, threshold in enumerate(self.thresholds, 1):
            target = (y >= grade).to(s.dtype)
            logits = s - threshold
            each = each + F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        return weighted_mean(each, real_weights(scores, mask, weights))


class PointwiseHuber(RankingLoss):
    """Huber's robust regression loss over the items of each list.

    The errors are e = score - label. The loss of a list is the mean of s H(e / s) + s. H is Huber's
    function, and s is a scale of the errors, which is fitted to the list.

    With the threshold t, H(z) is z^2 if |z| <= t, and 2 t |z| - t^2 otherwise. The scale s is the
    one that minimizes the loss; the mean of min((e / s)^2, t^2) is then 1. A sort finds s exactly.
    Because of the scale, a fit does not depend on the unit of the labels. All large errors have the
    same gradient, however large they are. The loss is convex in the errors.

    With `adaptive=False` the scale s is 1, and the loss is just the mean of H(e).

    The list is a sample to fit, not a ranking. The loss is 0, with a zero gradient, for a fully
    masked list and if all errors are 0. Cost: O(n log n).

    Args:
        threshold: t, in units of s. It must be > 1 if `adaptive` is True, else > 0. Default: 1.35,
            which is 5 % less efficient than least squares if the errors are normal.
        adaptive: whether s is fitted to each list. Default: True.

    With weights, the means above are weighted means.

    Raises:
        ValueError: threshold is not a number in the range above.

    Reference: Huber, "Robust estimation of a location parameter", 1964; Huber, "Robust
    statistics", 1981, section 7.7, for the scale.

    >>> loss = PointwiseHuber(1.0, adaptive=False)
    >>> loss(torch.tensor([1.0, 5.0]), torch.tensor([0.0, 0.0]))  # (1 + 9) / 2
    tensor(5.)
    """

    grades = False
    every_item = True

    def __init__(
        self, threshold: float = 1.35, adaptive: bool = True, reduction: Reduction = "mean"
    ):
        super().__init__(reduction)
        self.adaptive = check_flag("adaptive", adaptive)
        least = 1.0 if adaptive else 0.0
        self.threshold = check_number("threshold", threshold, minimum=least, strict=True)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the loss of each list."""
        errors = upcast(masked_fill(scores, mask) - masked_fill(labels, mask))
        weights = real_weights(errors, mask, weights)
        total = weights.sum(-1, keepdim=True)
        shares = weights / torch.where(total > 0, total, 1.0)
        if not errors.shape[-1]:
            return errors.sum(-1)
        if not self.adaptive:
            return (shares * _scaled(errors, torch.ones_like(total), self.threshold)).sum(-1)
        scale = _fitted_scale(errors, shares, self.threshold)
        return (shares * _scaled(errors, scale, self.threshold)).sum(-1) + scale.squeeze(-1)


def _scaled(errors: Tensor, scale: Tensor, threshold: float) -> Tensor:
    """Return s H(e / s) for the scale s, or 2 t |e| if s is 0."""
    size, t = errors.abs(), threshold
    near = ~(size > t * scale)  # NaN stays NaN
    # From 1.8e19 on, the squares of errors would overflow in float32.
    squared = torch.where(near, errors, 0.0).square() / torch.where(scale > 0, scale, 1.0)
    return torch.where(near, squared, 2 * t * size - t**2 * scale)


def _fitted_scale(errors: Tensor, shares: Tensor, threshold: float) -> Tensor:
    """Return the largest s, (..., 1), for which the mean of min(e^2, t^2 s^2) is s^2."""
    squares, order = torch.where(shares > 0, errors.square(), 0.0).sort(-1)
    ordered = shares.gather(-1, order)
    below = (ordered * squares).cumsum(-1)
    # If exactly the k smallest errors are below t s, then s^2 = below / spare. The correct s^2 is
    # the least of these quotients over all k. s is not detached: the first derivative of the loss
    # with respect to s is 0 at the fitted s, but second derivatives depend on the derivative of s.
    spare = 1 - threshold**2 * (1 - ordered.cumsum(-1))
    inside = torch.where(spare > 0, below / torch.where(spare > 0, spare, 1.0), torch.inf)
    least = inside.amin(-1, keepdim=True)
    has_scale = (least > 0) & least.isfinite()
    return torch.where(has_scale, torch.where(has_scale, least, 1.0).sqrt(), 0.0)
