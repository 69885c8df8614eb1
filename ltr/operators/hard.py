"""Hard ranks as an operator, which every soft operator relaxes."""

from ltr.operators.base import RankOperator


class HardRank(RankOperator):
    """Hard ranks as an operator, with no gradient.

    `SoftNDCG(HardRank(), mean="arithmetic")` is 1 - NDCG.

    Ties, masked items and NaN: see `hard_ranks`.

    >>> import torch
    >>> HardRank()(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    """

    @property
    def is_hard(self) -> bool:
        """Return True."""
        return True
