"""The metric classes: each wraps the arithmetic of a metric in a `torchmetrics.Metric`."""

from ltr.metrics import cores
from ltr.metrics.base import BinaryMetric, CutoffMetric, RankingMetric, RetrievedMetric


class AlphaNDCG(cores.AlphaNDCGCore, RankingMetric):
    """Alpha-NDCG: NDCG over topics, in which a topic counts less each time it is seen again.

    The arguments are those of `functional.alpha_ndcg`.

    >>> import torch
    >>> AlphaNDCG()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[[1, 0], [1, 0], [0, 1]]]))
    tensor(0.9652)
    """


class ARP(cores.ARPCore, RankingMetric):
    """Average relevance position: the mean rank, weighted by the labels. Lower is better.

    The arguments are those of `functional.arp`.

    >>> import torch
    >>> ARP()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(2.)
    """


class MAP(cores.MAPCore, BinaryMetric):
    """Mean average precision: the mean precision at the ranks of the relevant items.

    The arguments are those of `functional.average_precision`.

    >>> import torch
    >>> MAP()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 2.0]]))
    tensor(0.8333)
    """


class GMAP(cores.GMAPCore, MAP):
    """Geometric mean average precision, which depends most on the lists with the lowest values.

    The arguments are those of `functional.gmap`.

    >>> import torch
    >>> labels = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> GMAP()(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), labels)
    tensor(0.7071)
    """


class BPref(cores.BPrefCore, BinaryMetric):
    """Binary preference: high if few items judged irrelevant are above the relevant items.

    The arguments are those of `functional.bpref`.

    >>> import torch
    >>> BPref()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(0.5000)
    """


class ElementwiseAccuracy(cores.ElementwiseAccuracyCore, RankingMetric):
    """Element-wise accuracy: the fraction of items in the correct position.

    The arguments are those of `functional.elementwise_accuracy`.

    >>> import torch
    >>> ElementwiseAccuracy()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 0.0, 1.0]]))
    tensor(0.3333)
    """


class ERR(cores.ERRCore, CutoffMetric):
    """Expected reciprocal rank: the mean of 1 / rank of the item at which a reader stops.

    The arguments are those of `functional.err`.

    >>> import torch
    >>> ERR(max_label=1)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.3333)
    """


class ExactMatch(cores.ExactMatchCore, RankingMetric):
    """Exact match: the fraction of lists whose whole order is correct.

    The arguments are those of `functional.exact_match`.

    >>> import torch
    >>> ExactMatch()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 0.0, 0.0]]))
    tensor(1.)
    """


class Precision(cores.PrecisionCore, BinaryMetric):
    """Precision@k: the fraction of relevant items among the first k.

    The arguments are those of `functional.precision`.

    >>> import torch
    >>> Precision(top_k=2)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """


class Recall(cores.RecallCore, BinaryMetric):
    """Recall@k: the fraction of the relevant items that are among the first k.

    The arguments are those of `functional.recall`.

    >>> import torch
    >>> Recall(top_k=2)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """


class FBeta(cores.FBetaCore, BinaryMetric):
    """F-beta@k: the weighted harmonic mean of precision and recall at k.

    The arguments are those of `functional.f_beta`.

    >>> import torch
    >>> FBeta(top_k=2, beta=2)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """


class F1(cores.F1Core, BinaryMetric):
    """F1@k: the harmonic mean of precision and recall at k.

    The arguments are those of `functional.f1`.

    >>> import torch
    >>> F1(top_k=2)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """


class RPrecision(cores.RPrecisionCore, BinaryMetric):
    """R-precision: the precision at rank R, where R is the number of relevant items.

    The arguments are those of `functional.r_precision`.

    >>> import torch
    >>> RPrecision()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """


class HitRate(cores.HitRateCore, BinaryMetric):
    """Hit rate, or success@k: whether a relevant item is among the first k.

    The arguments are those of `functional.hit_rate`.

    >>> import torch
    >>> HitRate(top_k=1)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.)
    """


class TopKAccuracy(cores.TopKAccuracyCore, CutoffMetric):
    """Top-k accuracy: whether an item with the largest label is among the first k.

    The arguments are those of `functional.top_k_accuracy`.

    >>> import torch
    >>> TopKAccuracy()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(1.)
    """


class InterpolatedPrecision(cores.InterpolatedPrecisionCore, RetrievedMetric):
    """Interpolated precision: the largest precision at any rank with at least a given recall.

    The arguments are those of `functional.interpolated_precision`.

    >>> import torch
    >>> metric = InterpolatedPrecision(recall=1.0)
    >>> metric(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(0.6667)
    """


class Judged(cores.JudgedCore, RetrievedMetric):
    """Judged@k: the fraction of judged items among the first k.

    The arguments are those of `functional.judged`.

    >>> import torch
    >>> metric, judged = Judged(top_k=2), torch.tensor([[True, False, True]])
    >>> metric.update(torch.tensor([[3.0, 2.0, 1.0]]), torch.ones(1, 3), judged=judged)
    >>> metric.compute()
    tensor(0.5000)
    """


class KendallTau(cores.KendallTauCore, RankingMetric):
    """Kendall's tau: the rank correlation of scores and labels, from the order of pairs.

    The arguments are those of `functional.kendall_tau`.

    >>> import torch
    >>> KendallTau()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 1.0, 0.0]]))
    tensor(1.)
    """


class MRR(cores.MRRCore, BinaryMetric):
    """Mean reciprocal rank: the mean of 1 / rank of the first relevant item.

    The arguments are those of `functional.mrr`.

    >>> import torch
    >>> MRR()(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.5000)
    """


class DCG(cores.DCGCore, CutoffMetric):
    """DCG: the sum of the items' gains, discounted by their ranks.

    The arguments are those of `functional.dcg`.

    >>> import torch
    >>> DCG()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 0.0]]))
    tensor(0.6309)
    """


class NDCG(cores.NDCGCore, DCG):
    """NDCG: the DCG of the ranking, divided by the DCG of the best order.

    The arguments are those of `functional.ndcg`.

    >>> import torch
    >>> NDCG(top_k=1)(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 1.0]]))
    tensor(1.)
    """


class OPA(cores.OPACore, RankingMetric):
    """Ordered pair accuracy: the fraction of pairs of items that are in the right order.

    Only pairs of items with different labels count. The arguments are those of `functional.opa`.

    >>> import torch
    >>> OPA()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 2.0, 0.0]]))
    tensor(0.6667)
    """


class RBO(cores.RBOCore, RankingMetric):
    """Rank-biased overlap: the top-weighted similarity of the orders by score and by label.

    The arguments are those of `functional.rbo`.

    >>> import torch
    >>> RBO()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 1.0, 0.0]]))
    tensor(1.)
    """


class RBP(cores.RBPCore, BinaryMetric):
    """Rank-biased precision: the mean gain per item of a reader who continues with probability p.

    The arguments are those of `functional.rbp`.

    >>> import torch
    >>> RBP(p=0.5)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(0.6250)
    """


class RBPResidual(cores.RBPResidualCore, RankingMetric):
    """The residual of rank-biased precision: how much unjudged items could add to it.

    The arguments are those of `functional.rbp_residual`. Lower is better.

    >>> import torch
    >>> RBPResidual(p=0.5)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(0.1250)
    """


class SetPrecision(cores.SetPrecisionCore, RetrievedMetric):
    """Set precision: the fraction of relevant items among the retrieved items.

    The arguments are those of `functional.set_precision`.

    >>> import torch
    >>> SetPrecision(threshold=0.0)(torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([[1, 0, 0]]))
    tensor(0.5000)
    """


class SetRecall(cores.SetRecallCore, RetrievedMetric):
    """Set recall: the fraction of the relevant items that were retrieved.

    The arguments are those of `functional.set_recall`.

    >>> import torch
    >>> SetRecall(threshold=0.0)(torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([[1, 0, 1]]))
    tensor(0.5000)
    """


class SetFBeta(cores.SetFBetaCore, RetrievedMetric):
    """F-beta of the retrieved items: the weighted harmonic mean of their precision and recall.

    The arguments are those of `functional.set_f_beta`.

    >>> import torch
    >>> SetFBeta(threshold=0.0)(torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([[1, 0, 0]]))
    tensor(0.6667)
    """


class Spearman(cores.SpearmanCore, RankingMetric):
    """Spearman's rho: the correlation of the ranks by score and by label.

    The arguments are those of `functional.spearman`.

    >>> import torch
    >>> Spearman()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 1.0, 0.0]]))
    tensor(1.)
    """
