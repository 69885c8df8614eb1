"""Clicks: simulated users over judged lists, and the propensities that a log tells.

All functions take and return arrays, one value for each row of a log.
"""

from typing import TYPE_CHECKING, Any

from ltr.clicks.simulation import Cascade, DependentClick, PositionBased, simulate_clicks
from ltr.losses import PositionBias
from ltr.names import no_attribute

__all__ = [
    "Cascade",
    "DependentClick",
    "PositionBased",
    "PositionBias",
    "simulate_clicks",
]


if not TYPE_CHECKING:  # a type checker would accept any name otherwise

    def __getattr__(name: str) -> Any:
        raise no_attribute(__name__, name, __all__)
