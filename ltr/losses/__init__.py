"""Losses for learning to rank: `loss(scores, labels, mask=None, weights=None)`.

Each takes tensors alone, of any batch shape with the list as the last axis, so that it serves in
any training loop. A loss that needs soft ranks takes an operator of `ltr.operators`.
"""

from ltr.losses.base import RankingLoss
from ltr.losses.ndcg import SoftNDCG, soft_ndcg_loss
from ltr.losses.pointwise import PointwiseMSE, pointwise_mse_loss

__all__ = [
    "PointwiseMSE",
    "RankingLoss",
    "SoftNDCG",
    "pointwise_mse_loss",
    "soft_ndcg_loss",
]
