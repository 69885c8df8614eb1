"""The metric classes: each wraps the arithmetic of a metric in a `torchmetrics.Metric`.

A constructor takes the fields of both base classes.
"""

from ltr.metrics.alpha_ndcg import AlphaNDCGCore
from ltr.metrics.arp import ARPCore
from ltr.metrics.average_precision import GMAPCore, MAPCore
from ltr.metrics.base import RankingMetric
from ltr.metrics.bpref import BPrefCore
from ltr.metrics.elementwise_accuracy import ElementwiseAccuracyCore
from ltr.metrics.err import ERRCore
from ltr.metrics.exact_match import ExactMatchCore
from ltr.metrics.hits import (
    F1Core,
    FBetaCore,
    HitRateCore,
    PrecisionCore,
    RecallCore,
    RPrecisionCore,
    TopKAccuracyCore,
)
from ltr.metrics.interpolated import InterpolatedPrecisionCore
from ltr.metrics.judged import JudgedCore
from ltr.metrics.kendall import KendallTauCore
from ltr.metrics.mrr import MRRCore
from ltr.metrics.ndcg import DCGCore, NDCGCore
from ltr.metrics.opa import OPACore
from ltr.metrics.rbo import RBOCore
from ltr.metrics.rbp import RBPCore, RBPResidualCore
from ltr.metrics.sets import SetFBetaCore, SetPrecisionCore, SetRecallCore
from ltr.metrics.spearman import SpearmanCore


class AlphaNDCG(RankingMetric, AlphaNDCGCore):
    """Alpha-NDCG: NDCG over topics, in which a topic counts less each time it is seen again.

    The arguments are those of `functional.alpha_ndcg`.

    >>> import torch
    >>> AlphaNDCG()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[[1, 0], [1, 0], [0, 1]]]))
    tensor(0.9652)
    """


class ARP(RankingMetric, ARPCore):
    """Average relevance position: the mean rank, weighted by the labels. Lower is better.

    The arguments are those of `functional.arp`.

    >>> import torch
    >>> ARP()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(2.)
    """


class MAP(RankingMetric, MAPCore):
    """Mean average precision: the mean precision at the ranks of the relevant items.

    The arguments are those of `functional.average_precision`.

    >>> import torch
    >>> MAP()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 2.0]]))
    tensor(0.8333)
    """


class GMAP(RankingMetric, GMAPCore):
    """Geometric mean average precision, which depends most on the lists with the lowest values.

    The arguments are those of `functional.gmap`.

    >>> import torch
    >>> labels = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> GMAP()(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), labels)
    tensor(0.7071)
    """


class BPref(RankingMetric, BPrefCore):
    """Binary preference: high if few items judged irrelevant are above the relevant items.

    The arguments are those of `functional.bpref`.

    >>> import torch
    >>> BPref()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(0.5000)
    """


class ElementwiseAccuracy(RankingMetric, ElementwiseAccuracyCore):
    """Element-wise accuracy: the fraction of items in the correct position.

    The arguments are those of `functional.elementwise_accuracy`.

    >>> import torch
    >>> ElementwiseAccuracy()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 0.0, 1.0]]))
    tensor(0.3333)
    """


class ERR(RankingMetric, ERRCore):
    """Expected reciprocal rank: the mean of 1 / rank of the item at which a reader stops.

    The arguments are those of `functional.err`.

    >>> import torch
    >>> ERR(max_label=1)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.3333)
    """


class ExactMatch(RankingMetric, ExactMatchCore):
    """Exact match: the fraction of lists whose whole order is correct.

    The arguments are those of `functional.exact_match`.

    >>> import torch
    >>> ExactMatch()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 0.0, 0.0]]))
    tensor(1.)
    """


class Precision(RankingMetric, PrecisionCore):
    """Precision@k: the fraction of relevant items among the first k.

    The arguments are those of `functional.precision`.

    >>> import torch
    >>> Precision(top_k=2)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """


class Recall(RankingMetric, RecallCore):
    """Recall@k: the fraction of the relevant items that are among the first k.

    The arguments are those of `functional.recall`.

    >>> import torch
    >>> Recall(top_k=2)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """


class FBeta(RankingMetric, FBetaCore):
    """F-beta@k: the weighted harmonic mean of precision and recall at k.

    The arguments are those of `functional.f_beta`.

    >>> import torch
    >>> FBeta(top_k=2, beta=2)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """


class F1(RankingMetric, F1Core):
    """F1@k: the harmonic mean of precision and recall at k.

    The arguments are those of `functional.f1`.

    >>> import torch
    >>> F1(top_k=2)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """


class RPrecision(RankingMetric, RPrecisionCore):
    """R-precision: the precision at rank R, where R is the number of relevant items.

    The arguments are those of `functional.r_precision`.

    >>> import torch
    >>> RPrecision()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """


class HitRate(RankingMetric, HitRateCore):
    """Hit rate, or success@k: whether a relevant item is among the first k.

    The arguments are those of `functional.hit_rate`.

    >>> import torch
    >>> HitRate(top_k=1)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.)
    """


class TopKAccuracy(RankingMetric, TopKAccuracyCore):
    """Top-k accuracy: whether an item with the largest label is among the first k.

    The arguments are those of `functional.top_k_accuracy`.

    >>> import torch
    >>> TopKAccuracy()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(1.)
    """


class InterpolatedPrecision(RankingMetric, InterpolatedPrecisionCore):
    """Interpolated precision: the largest precision at any rank with at least a given recall.

    The arguments are those of `functional.interpolated_precision`.

    >>> import torch
    >>> metric = InterpolatedPrecision(recall=1.0)
    >>> metric(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(0.6667)
    """


class Judged(RankingMetric, JudgedCore):
    """Judged@k: the fraction of judged items among the first k.

    The arguments are those of `functional.judged`.

    >>> import torch
    >>> metric, judged = Judged(top_k=2), torch.tensor([[True, False, True]])
    >>> metric.update(torch.tensor([[3.0, 2.0, 1.0]]), torch.ones(1, 3), judged=judged)
    >>> metric.compute()
    tensor(0.5000)
    """


class KendallTau(RankingMetric, KendallTauCore):
    """Kendall's tau: the rank correlation of scores and labels, from the order of pairs.

    The arguments are those of `functional.kendall_tau`.

    >>> import torch
    >>> KendallTau()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 1.0, 0.0]]))
    tensor(1.)
    """


class MRR(RankingMetric, MRRCore):
    """Mean reciprocal rank: the mean of 1 / rank of the first relevant item.

    The arguments are those of `functional.mrr`.

    >>> import torch
    >>> MRR()(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.5000)
    """


class DCG(RankingMetric, DCGCore):
    """DCG: the sum of the items' gains, discounted by their ranks.

    The arguments are those of `functional.dcg`.

    >>> import torch
    >>> DCG()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 0.0]]))
    tensor(0.6309)
    """


class NDCG(RankingMetric, NDCGCore):
    """NDCG: the DCG of the ranking, divided by the DCG of the best order.

    The arguments are those of `functional.ndcg`.

    >>> import torch
    >>> NDCG(top_k=1)(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 1.0]]))
    tensor(1.)
    """


class OPA(RankingMetric, OPACore):
    """Ordered pair accuracy: the fraction of pairs of items that are in the right order.

    Only pairs of items with different labels count. The arguments are those of `functional.opa`.

    >>> import torch
    >>> OPA()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 2.0, 0.0]]))
    tensor(0.6667)
    """


class RBO(RankingMetric, RBOCore):
    """Rank-biased overlap: the top-weighted similarity of the orders by score and by label.

    The arguments are those of `functional.rbo`.

    >>> import torch
    >>> RBO()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 1.0, 0.0]]))
    tensor(1.)
    """


class RBP(RankingMetric, RBPCore):
    """Rank-biased precision: the mean gain per item of a reader who continues with probability p.

    The arguments are those of `functional.rbp`.

    >>> import torch
    >>> RBP(p=0.5)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(0.6250)
    """


class RBPResidual(RankingMetric, RBPResidualCore):
    """The residual of rank-biased precision: how much unjudged items could add to it.

    The arguments are those of `functional.rbp_residual`. Lower is better.

    >>> import torch
    >>> RBPResidual(p=0.5)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(0.1250)
    """


class SetPrecision(RankingMetric, SetPrecisionCore):
    """Set precision: the fraction of relevant items among the retrieved items.

    The arguments are those of `functional.set_precision`.

    >>> import torch
    >>> SetPrecision(threshold=0.0)(torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([[1, 0, 0]]))
    tensor(0.5000)
    """


class SetRecall(RankingMetric, SetRecallCore):
    """Set recall: the fraction of the relevant items that were retrieved.

    The arguments are those of `functional.set_recall`.

    >>> import torch
    >>> SetRecall(threshold=0.0)(torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([[1, 0, 1]]))
    tensor(0.5000)
    """


class SetFBeta(RankingMetric, SetFBetaCore):
    """F-beta of the retrieved items: the weighted harmonic mean of their precision and recall.

    The arguments are those of `functional.set_f_beta`.

    >>> import torch
    >>> SetFBeta(threshold=0.0)(torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([[1, 0, 0]]))
    tensor(0.6667)
    """


class Spearman(RankingMetric, SpearmanCore):
    """Spearman's rho: the correlation of the ranks by score and by label.

    The arguments are those of `functional.spearman`.

    >>> import torch
    >>> Spearman()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 1.0, 0.0]]))
    tensor(1.)
    """
