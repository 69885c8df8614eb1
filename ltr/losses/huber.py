"""The Huber loss: squared errors, except that large ones count by their size alone."""

import torch
from torch import Tensor

from ltr._shapes import check_number, masked_fill, upcast
from ltr.losses.base import Lengths, RankingLoss, Reduction


class PointwiseHuber(RankingLoss):
    """Huber's loss of the errors e = score - label, over the items of each list: robust regression.

    With z = e / s it is the mean of s H(z) + s, where H(z) is z^2 up to |z| = t, the `threshold`,
    and 2 t |z| - t^2 from there on. The scale s is what makes it smallest, found exactly by a sort:
    the mean of min(z^2, t^2) is 1 there. So a fit depends neither on the labels' unit nor on how
    far off the largest errors are, only on which side: each pulls with the same strength. It is
    convex in the errors. With `adaptive=False` s is 1, and the loss is the mean of H(e) alone.

    The list is the sample that is fitted, and no ranking. All masked, or all errors 0: 0, with a
    graph. O(n log n).

    Args:
        threshold: t, in units of s; > 1 with `adaptive`, else > 0. Default: 1.35, at which 5 % of
            the efficiency of least squares is lost if errors are normal.
        adaptive: whether s is fitted. Default: True.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights make both means weighted ones.

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
        least = 1.0 if adaptive else 0.0
        self.threshold = check_number("threshold", threshold, minimum=least, strict=True)
        self.adaptive = adaptive

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """The loss of each list."""
        errors = upcast(masked_fill(scores, mask) - masked_fill(labels, mask))
        weights = masked_fill(torch.ones_like(errors) if weights is None else weights, mask)
        total = weights.sum(-1, keepdim=True)
        shares = weights / torch.where(total > 0, total, 1.0)
        if not errors.shape[-1]:
            return errors.sum(-1)
        if not self.adaptive:
            return (shares * self._scaled(errors, torch.ones_like(total))).sum(-1)
        scale = self._scale(errors, shares)
        return (shares * self._scaled(errors, scale)).sum(-1) + scale.squeeze(-1)

    def _scaled(self, errors: Tensor, scale: Tensor) -> Tensor:
        """H(e / s) s, also for s = 0, where it is 2 t |e|."""
        size, t = errors.abs(), self.threshold
        near = ~(size > t * scale)  # NaN stays NaN
        # the square of what is far would overflow from 1.8e19 on in float32
        squared = torch.where(near, errors, 0.0).square() / torch.where(scale > 0, scale, 1.0)
        return torch.where(near, squared, 2 * t * size - t**2 * scale)

    def _scale(self, errors: Tensor, shares: Tensor) -> Tensor:
        """The scale (..., 1): the largest s at which the mean of min(e^2, t^2 s^2) is s^2."""
        squares, order = torch.where(shares > 0, errors.square(), 0.0).sort(-1)
        ordered = shares.gather(-1, order)
        below = (ordered * squares).cumsum(-1)
        # with the k smallest inside, s^2 = below / spare; that mean is the least over all k, so
        # s^2 is too. The loss does not change with s there, but its second derivatives do
        spare = 1 - self.threshold**2 * (1 - ordered.cumsum(-1))
        inside = torch.where(spare > 0, below / torch.where(spare > 0, spare, 1.0), torch.inf)
        least = inside.amin(-1, keepdim=True)
        some = (least > 0) & least.isfinite()
        return torch.where(some, torch.where(some, least, 1.0).sqrt(), 0.0)


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
    """Huber's loss, as a function: see `PointwiseHuber`.

    >>> pointwise_huber_loss(torch.tensor([1.0, 5.0]), torch.zeros(2), threshold=1, adaptive=False)
    tensor(5.)
    """
    loss = PointwiseHuber(threshold, adaptive, reduction)
    return loss(scores, labels, mask, weights, lengths=lengths, padding=padding)
