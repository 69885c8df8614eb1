"""The Huber loss: squares of small errors, and the size of large ones."""

from functools import partial

import torch
from torch import Tensor

from ltr.losses.base import Lengths, RankingLoss, Reduction, loss_of_lists
from ltr.shapes import check_number, masked_fill, upcast


class PointwiseHuber(RankingLoss):
    """Huber's loss of the errors e = score - label, over the items of each list.

    This is robust regression. With z = e / s, the loss is the mean of s H(z) + s. H(z) is z^2 up to
    |z| = t, the `threshold`, and 2 t |z| - t^2 beyond. The scale s is the one that makes the loss
    smallest; there the mean of min(z^2, t^2) is 1. It is found exactly, by a sort. So a fit does
    not depend on the unit of the labels. Each of the largest errors pulls with the same strength,
    however large it is. The loss is convex in the errors.

    With `adaptive=False` s is 1, and the loss is the mean of H(e) alone.

    The list is a sample to fit, not a ranking. The loss is 0, with a zero gradient, for a fully
    masked list and where all errors are 0. Cost: O(n log n).

    Args:
        threshold: t, in units of s: > 1 if `adaptive`, else > 0. Default: 1.35, which loses 5 % of
            the efficiency of least squares if errors are normal.
        adaptive: whether s is fitted. Default: True.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights make both means weighted means.

    Raises:
        ValueError: threshold is not such a number.

    Reference: Huber, "Robust estimation of a location parameter", 1964; Huber, "Robust
    statistics", 1981, section 7.7, for the scale.

    >>> loss = PointwiseHuber(1.0, adaptive=False)
    >>> loss(torch.tensor([1.0, 5.0]), torch.tensor([0.0, 0.0]))  # (1 + 9) / 2
    tensor(5.)
    """

    grades = False

    def __init__(
        self, threshold: float = 1.35, adaptive: bool = True, reduction: Reduction = "mean"
    ):
        super().__init__(reduction)
        self.threshold = _check_threshold(threshold, adaptive)
        self.adaptive = adaptive

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the loss of each list."""
        return _huber(
            scores, labels, mask, weights, threshold=self.threshold, adaptive=self.adaptive
        )


def _huber(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    threshold: float,
    adaptive: bool,
) -> Tensor:
    errors = upcast(masked_fill(scores, mask) - masked_fill(labels, mask))
    weights = masked_fill(torch.ones_like(errors) if weights is None else weights, mask)
    total = weights.sum(-1, keepdim=True)
    shares = weights / torch.where(total > 0, total, 1.0)
    if not errors.shape[-1]:
        return errors.sum(-1)
    if not adaptive:
        return (shares * _scaled(errors, torch.ones_like(total), threshold)).sum(-1)
    scale = _fitted_scale(errors, shares, threshold)
    return (shares * _scaled(errors, scale, threshold)).sum(-1) + scale.squeeze(-1)


def _scaled(errors: Tensor, scale: Tensor, threshold: float) -> Tensor:
    """Return s H(e / s) for the scale s; for s = 0 it is 2 t |e|."""
    size, t = errors.abs(), threshold
    near = ~(size > t * scale)  # NaN stays NaN
    # the squares of far errors would overflow from 1.8e19 on in float32
    squared = torch.where(near, errors, 0.0).square() / torch.where(scale > 0, scale, 1.0)
    return torch.where(near, squared, 2 * t * size - t**2 * scale)


def _fitted_scale(errors: Tensor, shares: Tensor, threshold: float) -> Tensor:
    """Return the largest s, (..., 1), at which the mean of min(e^2, t^2 s^2) is s^2."""
    squares, order = torch.where(shares > 0, errors.square(), 0.0).sort(-1)
    ordered = shares.gather(-1, order)
    below = (ordered * squares).cumsum(-1)
    # If the k smallest errors are below t s, then s^2 = below / spare. The least of these over
    # all k is s^2. The loss has derivative 0 by s there, but s has a part in second derivatives.
    spare = 1 - threshold**2 * (1 - ordered.cumsum(-1))
    inside = torch.where(spare > 0, below / torch.where(spare > 0, spare, 1.0), torch.inf)
    least = inside.amin(-1, keepdim=True)
    some = (least > 0) & least.isfinite()
    return torch.where(some, torch.where(some, least, 1.0).sqrt(), 0.0)


def _check_threshold(threshold: float, adaptive: bool) -> float:
    return check_number("threshold", threshold, minimum=1.0 if adaptive else 0.0, strict=True)


def pointwise_huber_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    threshold: float = 1.35,
    adaptive: bool = True,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return Huber's loss: the function form of `PointwiseHuber`.

    >>> pointwise_huber_loss(torch.tensor([1.0, 5.0]), torch.zeros(2), threshold=1, adaptive=False)
    tensor(5.)
    """
    return loss_of_lists(
        partial(_huber, threshold=_check_threshold(threshold, adaptive), adaptive=adaptive),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
        grades=False,
    )
