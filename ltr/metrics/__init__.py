"""Exact ranking metrics: `torchmetrics.Metric` classes here, functions in `functional`.

The function `compare` is in the module of that name, `from ltr.metrics.compare import compare`.
All names are loaded when they are first asked for: the classes import torchmetrics, which takes a
second that the functions, the comparisons and TREC's files need not wait for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ltr.metrics.classes import (
        ARP,
        DCG,
        ERR,
        MAP,
        MRR,
        NDCG,
        OPA,
        RBO,
        RBP,
        AlphaNDCG,
        BPref,
        ElementsInPlace,
        HitRate,
        KendallTau,
        PerfectOrder,
        Precision,
        RankingMetric,
        Recall,
        RPrecision,
        Spearman,
        TopKAccuracy,
    )
    from ltr.metrics.compare import Comparison, Interval, ModelResult, holm, mean_interval
    from ltr.metrics.trec import JoinedRun, join, read_qrels, read_run, write_qrels, write_run

_COMPARE = ("Comparison", "Interval", "ModelResult", "holm", "mean_interval")
_TREC = ("JoinedRun", "join", "read_qrels", "read_run", "write_qrels", "write_run")

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
    "Comparison",
    "ElementsInPlace",
    "HitRate",
    "Interval",
    "JoinedRun",
    "KendallTau",
    "ModelResult",
    "PerfectOrder",
    "Precision",
    "RPrecision",
    "RankingMetric",
    "Recall",
    "Spearman",
    "TopKAccuracy",
    "holm",
    "join",
    "mean_interval",
    "read_qrels",
    "read_run",
    "write_qrels",
    "write_run",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # one class brings all: a recipe finds them by name among the subclasses of RankingMetric
    home = "compare" if name in _COMPARE else "trec" if name in _TREC else "classes"
    value = getattr(import_module(f"ltr.metrics.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
