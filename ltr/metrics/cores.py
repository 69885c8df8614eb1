"""The arithmetic of every metric, found by name; torch alone is needed."""

from ltr.metrics.alpha_ndcg import AlphaNDCGCore
from ltr.metrics.arp import ARPCore
from ltr.metrics.average_precision import GMAPCore, MAPCore
from ltr.metrics.bpref import BPrefCore
from ltr.metrics.core import MetricCore, metric_name
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

_ALL = (
    ARPCore,
    AlphaNDCGCore,
    BPrefCore,
    DCGCore,
    ERRCore,
    ElementwiseAccuracyCore,
    ExactMatchCore,
    F1Core,
    FBetaCore,
    GMAPCore,
    HitRateCore,
    InterpolatedPrecisionCore,
    JudgedCore,
    KendallTauCore,
    MAPCore,
    MRRCore,
    NDCGCore,
    OPACore,
    PrecisionCore,
    RBOCore,
    RBPCore,
    RBPResidualCore,
    RPrecisionCore,
    RecallCore,
    SetFBetaCore,
    SetPrecisionCore,
    SetRecallCore,
    SpearmanCore,
    TopKAccuracyCore,
)
CORES: dict[str, type[MetricCore]] = {metric_name(core): core for core in _ALL}
"""Maps the names of the classes in `ltr.metrics` to their arithmetic."""
