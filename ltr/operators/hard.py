"""Hard ranks as an operator, which every soft operator relaxes."""

from torch import Tensor

from ltr.operators.base import RankOperator
from ltr.operators.order import hard_ranks
from ltr.shapes import refuse_weights


class HardRank(RankOperator):
    """Hard ranks as an operator, with no gradient.

    `SoftNDCG(HardRank(), mean="arithmetic")` is 1 - NDCG.

    Ties, masked items and NaN: see `hard_ranks`.

    >>> import torch
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
