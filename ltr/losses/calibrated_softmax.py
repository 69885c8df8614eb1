"""Softmax cross-entropy with a virtual item that gives the scores a scale."""

from functools import partial

import torch
from torch import Tensor

from ltr.losses.base import Lengths, RankingLoss, Reduction, loss_of_lists
from ltr.losses.listnet import softmax_divergence, weighted
from ltr.shapes import check_number


class CalibratedSoftmax(RankingLoss):
    """Softmax cross-entropy with a virtual item of score 0 and label `anchor` in each list.

    The virtual item gives the scores a scale: at the minimum exp(s_i) = y_i / anchor. The loss is
    the divergence of `SoftmaxLoss` over the n + 1 items, and its minimum is 0. A list without a
    relevant item has a loss here, which lowers its scores. The loss of a fully masked list is 0,
    with a zero gradient. Cost: O(n).

    Args:
        anchor: the virtual item's label, > 0. Default: 1.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Reference: Yan, Qin, Wang, Bendersky and Najork, "Scale calibration of deep ranking models",
    KDD 2022.

    >>> CalibratedSoftmax()(torch.tensor([0.0]), torch.tensor([0.0]))  # log(2)
    tensor(0.6931)
    """

    def __init__(self, anchor: float = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction)
        self.anchor = _check_anchor(anchor)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the divergence of each list and its virtual item."""
        return _calibrated(scores, labels, mask, weights, anchor=self.anchor)


def _calibrated(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    anchor: float,
) -> Tensor:
    def with_anchor(x: Tensor, value: float | bool) -> Tensor:
        return torch.cat([x, torch.full_like(x[..., :1], value)], -1)

    if not scores.shape[-1]:
        return scores.sum(-1)
    relevance = with_anchor(weighted(labels, mask, weights), anchor)
    mask = None if mask is None else with_anchor(mask, True)
    return softmax_divergence(with_anchor(scores, 0.0), relevance, mask)[0]


def _check_anchor(anchor: float) -> float:
    return check_number("anchor", anchor, minimum=0.0, strict=True)


def calibrated_softmax_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    anchor: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the softmax loss with a virtual item: the function form of `CalibratedSoftmax`.

    >>> calibrated_softmax_loss(torch.tensor([0.0]), torch.tensor([1.0]))
    tensor(0.)
    """
    return loss_of_lists(
        partial(_calibrated, anchor=_check_anchor(anchor)),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
    )
