"""Exact ranking metrics: `torchmetrics.Metric` classes here, functions in `functional`."""

from ltr.metrics.base import RankingMetric
from ltr.metrics.classes import MAP, MRR, NDCG, KendallTau, PerfectOrder

__all__ = ["MAP", "MRR", "NDCG", "KendallTau", "PerfectOrder", "RankingMetric"]
