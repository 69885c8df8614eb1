"""Losses for learning to rank: `loss(scores, labels, mask=None, weights=None)`.

Each loss takes tensors only, so it fits any training loop. The last axis is the list; the axes
before it are of any shape. A loss that needs soft ranks takes an operator of `ltr.operators`.
"""

from typing import TYPE_CHECKING, Any

from ltr.losses.approx_ndcg import ApproxNDCG, approx_ndcg_loss
from ltr.losses.average_precision import SoftMAP, soft_map_loss
from ltr.losses.base import RankingLoss
from ltr.losses.calibrated_softmax import CalibratedSoftmax, calibrated_softmax_loss
from ltr.losses.dcg_hinge import PairwiseDCGHinge, pairwise_dcg_hinge_loss
from ltr.losses.distillation import Distillation, distillation_loss
from ltr.losses.err import SoftERR, soft_err_loss
from ltr.losses.fairness import (
    ExposureParity,
    Penalized,
    exposure_parity_loss,
    penalized_loss,
)
from ltr.losses.huber import PointwiseHuber, pointwise_huber_loss
from ltr.losses.knn import KNNLoss, knn_loss
from ltr.losses.lambda_loss import LambdaLoss, LambdaRank, lambda_loss, lambdarank_loss
from ltr.losses.listmle import (
    ListMLE,
    PListMLE,
    list_mle_loss,
    p_list_mle_loss,
)
from ltr.losses.listnet import (
    XENDCG,
    ListNet,
    PolyOneSoftmax,
    SoftmaxLoss,
    listnet_loss,
    poly_one_softmax_loss,
    softmax_loss,
    xe_ndcg_loss,
)
from ltr.losses.mrr import SoftMRR, soft_mrr_loss
from ltr.losses.ndcg import SoftNDCG, moving_cut, soft_ndcg_loss
from ltr.losses.neural_ndcg import NeuralNDCG, PiRank, neural_ndcg_loss, pirank_loss
from ltr.losses.pair_costs import (
    ExponentialCost,
    HingeCost,
    LogisticCost,
    SoftZeroOneCost,
    SquaredCost,
)
from ltr.losses.pair_weights import (
    ARPLoss1,
    ARPLoss2,
    DeltaMAP,
    DeltaMRR,
    DeltaNDCG,
    DeltaPrecision,
    LabelDifference,
    NDCGLoss1,
    NDCGLoss2,
    NDCGLoss2PP,
)
from ltr.losses.pairs import PairCost, PairWeights
from ltr.losses.pairwise import (
    PairwiseExponential,
    PairwiseHinge,
    PairwiseLoss,
    PairwiseMSE,
    PairwiseSoftZeroOne,
    pairwise_exponential_loss,
    pairwise_hinge_loss,
    pairwise_loss,
    pairwise_mse_loss,
    pairwise_soft_zero_one_loss,
)
from ltr.losses.permutation import PermutationCrossEntropy, permutation_cross_entropy
from ltr.losses.pointwise import (
    PointwiseMSE,
    PointwiseOrdinal,
    PointwiseSigmoid,
    pointwise_mse_loss,
    pointwise_ordinal_loss,
    pointwise_sigmoid_loss,
)
from ltr.losses.precision_recall import (
    SoftPrecision,
    SoftRecall,
    soft_precision_loss,
    soft_recall_loss,
)
from ltr.losses.quantile import QuantileLoss, quantile_loss
from ltr.losses.ranknet import RankNet, ranknet_loss
from ltr.losses.spearman import SpearmanLoss, spearman_loss
from ltr.losses.topk import TopKCrossEntropy, TopKLoss, top_k_cross_entropy, top_k_loss
from ltr.losses.trimmed import (
    LeastQuantileRegression,
    LeastTrimmedSquares,
    least_quantile_loss,
    least_trimmed_loss,
)
from ltr.losses.unbiased import PositionBias, Unbiased, inverse_propensity_weights, unbiased_loss
from ltr.losses.unique_softmax import UniqueSoftmax, unique_softmax_loss
from ltr.names import no_attribute

__all__ = [
    "XENDCG",
    "ARPLoss1",
    "ARPLoss2",
    "ApproxNDCG",
    "CalibratedSoftmax",
    "DeltaMAP",
    "DeltaMRR",
    "DeltaNDCG",
    "DeltaPrecision",
    "Distillation",
    "ExponentialCost",
    "ExposureParity",
    "HingeCost",
    "KNNLoss",
    "LabelDifference",
    "LambdaLoss",
    "LambdaRank",
    "LeastQuantileRegression",
    "LeastTrimmedSquares",
    "ListMLE",
    "ListNet",
    "LogisticCost",
    "NDCGLoss1",
    "NDCGLoss2",
    "NDCGLoss2PP",
    "NeuralNDCG",
    "PListMLE",
    "PairCost",
    "PairWeights",
    "PairwiseDCGHinge",
    "PairwiseExponential",
    "PairwiseHinge",
    "PairwiseLoss",
    "PairwiseMSE",
    "PairwiseSoftZeroOne",
    "Penalized",
    "PermutationCrossEntropy",
    "PiRank",
    "PointwiseHuber",
    "PointwiseMSE",
    "PointwiseOrdinal",
    "PointwiseSigmoid",
    "PolyOneSoftmax",
    "PositionBias",
    "QuantileLoss",
    "RankNet",
    "RankingLoss",
    "SoftERR",
    "SoftMAP",
    "SoftMRR",
    "SoftNDCG",
    "SoftPrecision",
    "SoftRecall",
    "SoftZeroOneCost",
    "SoftmaxLoss",
    "SpearmanLoss",
    "SquaredCost",
    "TopKCrossEntropy",
    "TopKLoss",
    "Unbiased",
    "UniqueSoftmax",
    "approx_ndcg_loss",
    "calibrated_softmax_loss",
    "distillation_loss",
    "exposure_parity_loss",
    "inverse_propensity_weights",
    "knn_loss",
    "lambda_loss",
    "lambdarank_loss",
    "least_quantile_loss",
    "least_trimmed_loss",
    "list_mle_loss",
    "listnet_loss",
    "moving_cut",
    "neural_ndcg_loss",
    "p_list_mle_loss",
    "pairwise_dcg_hinge_loss",
    "pairwise_exponential_loss",
    "pairwise_hinge_loss",
    "pairwise_loss",
    "pairwise_mse_loss",
    "pairwise_soft_zero_one_loss",
    "penalized_loss",
    "permutation_cross_entropy",
    "pirank_loss",
    "pointwise_huber_loss",
    "pointwise_mse_loss",
    "pointwise_ordinal_loss",
    "pointwise_sigmoid_loss",
    "poly_one_softmax_loss",
    "quantile_loss",
    "ranknet_loss",
    "soft_err_loss",
    "soft_map_loss",
    "soft_mrr_loss",
    "soft_ndcg_loss",
    "soft_precision_loss",
    "soft_recall_loss",
    "softmax_loss",
    "spearman_loss",
    "top_k_cross_entropy",
    "top_k_loss",
    "unbiased_loss",
    "unique_softmax_loss",
    "xe_ndcg_loss",
]


if not TYPE_CHECKING:  # with `__getattr__`, a type checker would accept any name

    def __getattr__(name: str) -> Any:
        raise no_attribute(__name__, name, __all__)
