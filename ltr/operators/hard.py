"""Hard ranks, which every soft operator relaxes and every metric uses."""

import torch
from torch import Tensor

from ltr.kernels.sorting import descending_order
from ltr.operators.base import RankOperator
from ltr.shapes import (
    count,
    positions,
    real_scores,
    refuse_weights,
)


def hard_ranks(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the ranks 1..m of the m real items; 1 = the highest score.

    The ranks are those of `scipy.stats.rankdata(-scores, method="ordinal")`: ties get distinct
    ranks, in the order of the list. Masked items get rank m + 1. In a list with a NaN score all
    ranks are NaN. There is no gradient.

    Args:
        scores: (..., n), any floating dtype.
        mask: (..., n) bool, True for a real item. Default: all are real.

    Returns:
        (..., n), in float32 for half-precision scores, else in the dtype of the scores. Cost: one
        sort.

    >>> hard_ranks(torch.tensor([0.1, 0.9, 0.9, 0.5]))
    tensor([4., 1., 2., 3.])
    """
    scores = real_scores(scores, mask).detach()
    order = descending_order(scores, mask)
    position = positions(scores).expand(scores.shape)
    ranks = torch.zeros_like(scores).scatter(-1, order, position)
    if mask is not None:
        ranks = torch.where(mask, ranks, count(scores, mask) + 1)
    return torch.where(scores.isnan().any(-1, keepdim=True), torch.nan, ranks)


class HardRank(RankOperator):
    """Hard ranks as an operator, with no gradient.

    `SoftNDCG(HardRank(), mean="arithmetic")` is 1 - NDCG.

    Ties, masked items and NaN: see `hard_ranks`.

    >>> HardRank()(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    """

    @property
    def exact_cutoff(self) -> bool:
        """Return True."""
        return True

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return hard ranks (..., n) of scores (..., n); weights are refused."""
        refuse_weights(self, weights)
        return hard_ranks(scores, mask)
