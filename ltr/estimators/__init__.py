"""Estimators as in scikit-learn: `NeuralRanker().fit(X, y, qid=qid)`, `Blend`, and explanations.

Neither Lightning nor torchmetrics is needed.
"""

from typing import TYPE_CHECKING

from ltr.estimators.blend import Blend
from ltr.estimators.calibration import Calibrated
from ltr.estimators.contributions import Contributions, contributions
from ltr.estimators.importance import Importance, importance
from ltr.estimators.neural_ranker import NeuralRanker
from ltr.estimators.reliability import Reliability, reliability
from ltr.estimators.trade_offs import TradeOff, TradeOffs, trade_offs
from ltr.names import package_names

__all__ = [
    "Blend",
    "Calibrated",
    "Contributions",
    "Importance",
    "NeuralRanker",
    "Reliability",
    "TradeOff",
    "TradeOffs",
    "contributions",
    "importance",
    "reliability",
    "trade_offs",
]


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any name
    __getattr__, __dir__ = package_names(__name__, __all__)
