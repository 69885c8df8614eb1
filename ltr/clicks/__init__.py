"""Clicks: simulate users, estimate position bias from a log, and evaluate new rankers on a log.

All functions take arrays with one value for each row of a table of documents or clicks.
"""

from typing import TYPE_CHECKING, Any

from ltr.clicks.evaluation import evaluate_log
from ltr.clicks.simulation import Cascade, DependentClick, PositionBased, simulate_clicks
from ltr.losses import PositionBias
from ltr.names import no_attribute

__all__ = [
    "Cascade",
    "DependentClick",
    "PositionBased",
    "PositionBias",
    "evaluate_log",
    "simulate_clicks",
]


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any name

    def __getattr__(name: str) -> Any:
        raise no_attribute(__name__, name, __all__)
