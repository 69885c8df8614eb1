"""Exact ranking metrics: `torchmetrics.Metric` classes here, functions in `functional`.

Each name is loaded on first use. The classes import torchmetrics, which takes a second.
The functions, and the names for comparisons and for TREC files, load without torchmetrics.
"""

from typing import TYPE_CHECKING

from ltr.names import package_names

if TYPE_CHECKING:
    from ltr.metrics.base import RankingMetric
    from ltr.metrics.classes import (
        ARP,
        DCG,
        ERR,
        F1,
        GMAP,
        MAP,
        MRR,
        NDCG,
        OPA,
        RBO,
        RBP,
        AlphaNDCG,
        BPref,
        ElementwiseAccuracy,
        ExactMatch,
        FBeta,
        HitRate,
        InterpolatedPrecision,
        Judged,
        KendallTau,
        Precision,
        RBPResidual,
        Recall,
        RPrecision,
        SetFBeta,
        SetPrecision,
        SetRecall,
        Spearman,
        TopKAccuracy,
    )
    from ltr.metrics.collection import RankingMetrics
    from ltr.metrics.comparison import (
        Comparison,
        Interval,
        ModelResult,
        compare,
        holm,
        mean_interval,
    )
    from ltr.metrics.trec import JoinedRun, join, read_qrels, read_run, write_qrels, write_run

__all__ = [
    "ARP",
    "DCG",
    "ERR",
    "F1",
    "GMAP",
    "MAP",
    "MRR",
    "NDCG",
    "OPA",
    "RBO",
    "RBP",
    "AlphaNDCG",
    "BPref",
    "Comparison",
    "ElementwiseAccuracy",
    "ExactMatch",
    "FBeta",
    "HitRate",
    "InterpolatedPrecision",
    "Interval",
    "JoinedRun",
    "Judged",
    "KendallTau",
    "ModelResult",
    "Precision",
    "RBPResidual",
    "RPrecision",
    "RankingMetric",
    "RankingMetrics",
    "Recall",
    "SetFBeta",
    "SetPrecision",
    "SetRecall",
    "Spearman",
    "TopKAccuracy",
    "compare",
    "holm",
    "join",
    "mean_interval",
    "read_qrels",
    "read_run",
    "write_qrels",
    "write_run",
]

_COMPARISON = ("Comparison", "Interval", "ModelResult", "compare", "holm", "mean_interval")
_TREC = ("JoinedRun", "join", "read_qrels", "read_run", "write_qrels", "write_run")


# `RankingMetric` comes with the classes: a configuration finds a class by its name among the
# subclasses that are loaded.
_LAZY = {
    **dict.fromkeys(__all__, "ltr.metrics.classes"),
    **dict.fromkeys(_COMPARISON, "ltr.metrics.comparison"),
    **dict.fromkeys(_TREC, "ltr.metrics.trec"),
    "RankingMetrics": "ltr.metrics.collection",
}


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any name
    __getattr__, __dir__ = package_names(__name__, __all__, _LAZY)
