"""Exact ranking metrics: `torchmetrics.Metric` classes here, functions in `functional`.

Each name is loaded on first use. The classes import torchmetrics, which takes a second.
The functions, and the names for comparisons and for TREC files, load without torchmetrics.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ltr.names import no_attribute

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


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise no_attribute(__name__, name, __all__)
        homes = {**dict.fromkeys(_COMPARISON, "comparison"), **dict.fromkeys(_TREC, "trec")}
        homes |= {"RankingMetric": "base", "RankingMetrics": "collection"}
        if homes.get(name, "classes") in ("base", "collection", "classes"):
            # A recipe finds a class by its name among the subclasses of RankingMetric.
            import_module("ltr.metrics.classes")
        value = getattr(import_module(f"ltr.metrics.{homes.get(name, 'classes')}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
