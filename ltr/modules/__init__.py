"""Lightning modules: `Ranker`, which trains a scorer on a ranking loss and tests it by metrics."""

from ltr.modules.callbacks import SeedSteps
from ltr.modules.cutoffs import MoveCutoff
from ltr.modules.finite import CheckFinite
from ltr.modules.monitors import CheckMonitors
from ltr.modules.portable import PortableModule
from ltr.modules.ranker import Ranker
from ltr.modules.temperatures import CheckTemperature

__all__ = [
    "CheckFinite",
    "CheckMonitors",
    "CheckTemperature",
    "MoveCutoff",
    "PortableModule",
    "Ranker",
    "SeedSteps",
]
