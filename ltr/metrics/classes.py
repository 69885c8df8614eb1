"""The metric classes by name, all in one place."""

from ltr.metrics.base import RankingMetric
from ltr.metrics.gains import ARP, DCG, ERR, NDCG, RBP, AlphaNDCG
from ltr.metrics.rankings import OPA, RBO, ElementsInPlace, KendallTau, PerfectOrder, Spearman
from ltr.metrics.relevant import (
    MAP,
    MRR,
    BPref,
    HitRate,
    Precision,
    Recall,
    RPrecision,
    TopKAccuracy,
)

__all__ = [
    "ARP",
    "DCG",
    "ERR",
    "MAP",
    "MRR",
    "NDCG",
    "OPA",
    "RBO",
    "RBP",
    "AlphaNDCG",
    "BPref",
    "ElementsInPlace",
    "HitRate",
    "KendallTau",
    "PerfectOrder",
    "Precision",
    "RPrecision",
    "RankingMetric",
    "Recall",
    "Spearman",
    "TopKAccuracy",
]
