"""Clicks: read logs, simulate users, estimate position bias, and evaluate new rankers on a log.

All functions take arrays with one value for each row of a table of documents or clicks. Functions
are imported on their first use: `ltr.losses` needs `PositionBias` alone.
"""

from typing import TYPE_CHECKING

from ltr.clicks.position_bias import PositionBias
from ltr.names import package_names

if TYPE_CHECKING:
    from ltr.clicks.clickwise import evaluate_clickwise
    from ltr.clicks.evaluation import evaluate_log
    from ltr.clicks.simulation import Cascade, DependentClick, PositionBased, simulate_clicks
    from ltr.clicks.ubi import read_ubi

_LAZY = {
    "Cascade": "ltr.clicks.simulation",
    "DependentClick": "ltr.clicks.simulation",
    "PositionBased": "ltr.clicks.simulation",
    "evaluate_clickwise": "ltr.clicks.clickwise",
    "evaluate_log": "ltr.clicks.evaluation",
    "read_ubi": "ltr.clicks.ubi",
    "simulate_clicks": "ltr.clicks.simulation",
}

__all__ = [
    "Cascade",
    "DependentClick",
    "PositionBased",
    "PositionBias",
    "evaluate_clickwise",
    "evaluate_log",
    "read_ubi",
    "simulate_clicks",
]


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any name
    __getattr__, __dir__ = package_names(__name__, __all__, _LAZY)
