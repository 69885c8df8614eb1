"""Exact ranking metrics: `torchmetrics.Metric` classes here, functions in `functional`.

Import the function `compare` from its module: `from ltr.metrics.compare import compare`.
Each name is loaded on first use. The classes import torchmetrics, which takes a second.
The names for comparisons and for TREC files load without torchmetrics.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ltr.metrics.alpha_ndcg import AlphaNDCG
    from ltr.metrics.arp import ARP
    from ltr.metrics.average_precision import GMAP, MAP
    from ltr.metrics.base import RankingMetric
    from ltr.metrics.bpref import BPref
    from ltr.metrics.collection import RankingMetrics
    from ltr.metrics.compare import Comparison, Interval, ModelResult, holm, mean_interval
    from ltr.metrics.elementwise_accuracy import ElementwiseAccuracy
    from ltr.metrics.err import ERR
    from ltr.metrics.exact_match import ExactMatch
    from ltr.metrics.hits import F1, FBeta, HitRate, Precision, Recall, RPrecision, TopKAccuracy
    from ltr.metrics.interpolated import InterpolatedPrecision
    from ltr.metrics.judged import Judged
    from ltr.metrics.kendall import KendallTau
    from ltr.metrics.mrr import MRR
    from ltr.metrics.ndcg import DCG, NDCG
    from ltr.metrics.opa import OPA
    from ltr.metrics.rbo import RBO
    from ltr.metrics.rbp import RBP, RBPResidual
    from ltr.metrics.sets import SetFBeta, SetPrecision, SetRecall
    from ltr.metrics.spearman import Spearman
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
    "holm",
    "join",
    "mean_interval",
    "read_qrels",
    "read_run",
    "write_qrels",
    "write_run",
]

_COMPARE = ("Comparison", "Interval", "ModelResult", "holm", "mean_interval")
_TREC = ("JoinedRun", "join", "read_qrels", "read_run", "write_qrels", "write_run")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    others = {"compare": _COMPARE, "trec": _TREC}
    if home := next((module for module, names in others.items() if name in names), None):
        homes = [import_module(f"ltr.metrics.{home}")]
    else:
        # If one class is asked for, all are imported, because a recipe finds a class by its name
        # among the subclasses of RankingMetric.
        functional = import_module("ltr.metrics.functional")
        functions = [getattr(functional, function) for function in functional.__all__]
        homes = [sys.modules[function.__module__] for function in functions]
        homes += [import_module("ltr.metrics.base"), import_module("ltr.metrics.collection")]
    value = next(getattr(home, name) for home in homes if hasattr(home, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
