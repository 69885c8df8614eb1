"""Clicks: simulated users, the propensities that a log tells, and new rankers from a log.

All functions take and return arrays, one value for each row of a log.
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


if not TYPE_CHECKING:  # if it saw __getattr__, a type checker would accept any name

    def __getattr__(name: str) -> Any:
        raise no_attribute(__name__, name, __all__)
