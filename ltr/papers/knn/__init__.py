"""Differentiable k nearest neighbors (Grover et al. 2019), and its baselines."""

from ltr.papers.knn.episodes import EpisodeDataModule
from ltr.papers.knn.knn import SharedStochastic, SoftNearestNeighbours
from ltr.papers.knn.knn_baselines import AutoencoderNeighbours, PixelNeighbours

__all__ = [
    "AutoencoderNeighbours",
    "EpisodeDataModule",
    "PixelNeighbours",
    "SharedStochastic",
    "SoftNearestNeighbours",
]
