"""Lightning modules: `Ranker`, which trains a scorer on a ranking loss and tests it by metrics.

All names are loaded on first use, because Lightning takes seconds to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ltr.names import no_attribute

if TYPE_CHECKING:
    from ltr.modules.base import ListMean, ScoredLists, ScoringModule, TrainableModule
    from ltr.modules.callbacks import CheckFinite, SeedSteps
    from ltr.modules.checkpoints import BestCheckpoint
    from ltr.modules.ranker import Ranker

_FILES = {
    "BestCheckpoint": "checkpoints",
    "CheckFinite": "callbacks",
    "ListMean": "base",
    "Ranker": "ranker",
    "ScoredLists": "base",
    "ScoringModule": "base",
    "SeedSteps": "callbacks",
    "TrainableModule": "base",
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

    def __getattr__(name: str) -> Any:
        if name not in _FILES:
            raise no_attribute(__name__, name, __all__)
        value = getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
