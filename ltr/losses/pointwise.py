"""Pointwise losses: each item by itself, the baseline that a ranking loss has to beat."""

import torch
from torch import Tensor

from ltr._shapes import hide
from ltr.losses.base import RankingLoss, Reduction


class PointwiseMSE(RankingLoss):
    """Mean squared error between scores and labels, over the items of each list.

    A list's number is sum w (s - y)^2 / sum w over its real items, with w = 1 by default; all
    masked, or all weights 0: 0, with a graph. One item and ties are nothing special.

    Args:
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Reference: Cossock and Zhang, "Subset ranking using regression", COLT 2006.

    >>> PointwiseMSE()(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
    tensor(2.)
    """

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Weighted mean squared error of each list."""
        weights = torch.ones_like(scores) if weights is None else weights
        weights = hide(weights, mask)
        squared = (hide(scores, mask) - hide(labels, mask)).square()
        total = weights.sum(-1)
        return (weights * squared).sum(-1) / torch.where(total > 0, total, 1.0)


def pointwise_mse_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    reduction: Reduction = "mean",
) -> Tensor:
    """Mean squared error, as a function: see `PointwiseMSE`.

    >>> pointwise_mse_loss(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
    tensor(2.)
    """
    return PointwiseMSE(reduction)(scores, labels, mask, weights)
