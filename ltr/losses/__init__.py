"""Losses for learning to rank: `loss(scores, labels, mask=None, weights=None)`.

Each loss takes tensors only, so it fits any training loop. The last axis holds the items of a list;
any number of axes may come before it. A loss on soft ranks takes an operator from `ltr.operators`.
"""

from typing import TYPE_CHECKING

from ltr.clicks.position_bias import PositionBias, inverse_propensity_weights
from ltr.losses.base import (
    RankingLoss,
)
from ltr.losses.fairness import (
    ExposureParity,
    Penalized,
)
from ltr.losses.knn import (
    KNNLoss,
)
from ltr.losses.listmle import (
    ListMLE,
    PListMLE,
)
from ltr.losses.ndcg import ApproxNDCG, NeuralNDCG, PiRank, SoftNDCG
from ltr.losses.pair_costs import (
    ExponentialCost,
    HingeCost,
    LogisticCost,
    PairCost,
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
    PairWeights,
)
from ltr.losses.pairwise import (
    LambdaLoss,
    LambdaRank,
    PairwiseDCGHinge,
    PairwiseExponential,
    PairwiseHinge,
    PairwiseLoss,
    PairwiseMSE,
    PairwiseSoftZeroOne,
    RankNet,
)
from ltr.losses.permutation import (
    PermutationCrossEntropy,
)
from ltr.losses.pointwise import (
    PointwiseHuber,
    PointwiseMSE,
    PointwiseOrdinal,
    PointwiseSigmoid,
)
from ltr.losses.quantile import QuantileLoss
from ltr.losses.several import SeveralLabels
from ltr.losses.soft_metrics import (
    ADRMSE,
    SoftERR,
    SoftMAP,
    SoftMRR,
    SoftPrecision,
    SoftRecall,
    SpearmanLoss,
)
from ltr.losses.softmax import (
    XENDCG,
    CalibratedSoftmax,
    Distillation,
    ListNet,
    PolyOneSoftmax,
    SoftmaxLoss,
    SoftmaxLossAtK,
    UniqueSoftmax,
)
from ltr.losses.topk import (
    TopKCrossEntropy,
    TopKLoss,
)
from ltr.losses.unbiased import Unbiased
from ltr.names import package_names

__all__ = [
    "ADRMSE",
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
    "SeveralLabels",
    "SoftERR",
    "SoftMAP",
    "SoftMRR",
    "SoftNDCG",
    "SoftPrecision",
    "SoftRecall",
    "SoftZeroOneCost",
    "SoftmaxLoss",
    "SoftmaxLossAtK",
    "SpearmanLoss",
    "SquaredCost",
    "TopKCrossEntropy",
    "TopKLoss",
    "Unbiased",
    "UniqueSoftmax",
    "inverse_propensity_weights",
]


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any name
    __getattr__, __dir__ = package_names(__name__, __all__)
