"""Lightning modules: `Ranker`, which trains a scorer on a ranking loss and tests it by metrics.

All names are loaded on first use, because Lightning takes seconds to import.
"""

from typing import TYPE_CHECKING

from ltr.names import package_names

if TYPE_CHECKING:
    from ltr.modules.base import ListMean, ScoredLists, ScoringModule, TrainableModule
    from ltr.modules.callbacks import CheckFinite, SeedSteps
    from ltr.modules.checkpoints import BestCheckpoint
    from ltr.modules.ranker import Ranker

_LAZY = {
    "BestCheckpoint": "ltr.modules.checkpoints",
    "CheckFinite": "ltr.modules.callbacks",
    "ListMean": "ltr.modules.base",
    "Ranker": "ltr.modules.ranker",
    "ScoredLists": "ltr.modules.base",
    "ScoringModule": "ltr.modules.base",
    "SeedSteps": "ltr.modules.callbacks",
    "TrainableModule": "ltr.modules.base",
}

__all__ = [
    "BestCheckpoint",
    "CheckFinite",
    "ListMean",
    "Ranker",
    "ScoredLists",
    "ScoringModule",
    "SeedSteps",
    "TrainableModule",
]


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any name
    __getattr__, __dir__ = package_names(__name__, __all__, _LAZY)
