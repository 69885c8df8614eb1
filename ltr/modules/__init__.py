"""Lightning modules: `Ranker`, which trains a scorer on a ranking loss and tests it by metrics."""

from ltr.modules.callbacks import SeedSteps
from ltr.modules.classifier import ImageClassifier
from ltr.modules.knn import SharedStochastic, SoftNearestNeighbours
from ltr.modules.knn_baselines import AutoencoderNeighbours, PixelNeighbours
from ltr.modules.matrix_sorter import MatrixSorter
from ltr.modules.portable import PortableModule
from ltr.modules.published_sorts import PublishedNeuralSort, PublishedSoftSort
from ltr.modules.quantile import QuantileRegressor
from ltr.modules.ranker import Ranker
from ltr.modules.regressor import Regressor
from ltr.modules.speed import SpeedTask

__all__ = [
    "AutoencoderNeighbours",
    "ImageClassifier",
    "MatrixSorter",
    "PixelNeighbours",
    "PortableModule",
    "PublishedNeuralSort",
    "PublishedSoftSort",
    "QuantileRegressor",
    "Ranker",
    "Regressor",
    "SeedSteps",
    "SharedStochastic",
    "SoftNearestNeighbours",
    "SpeedTask",
]
