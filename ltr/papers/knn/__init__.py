"""Differentiable k nearest neighbors (Grover et al. 2019), and its baselines."""

from ltr.papers.knn.episodes import EpisodeDataModule
from ltr.papers.knn.knn import SharedStochastic, SoftNearestNeighbors
from ltr.papers.knn.knn_baselines import AutoencoderNeighbors, PixelNeighbors

__all__ = [
    "AutoencoderNeighbors",
    "EpisodeDataModule",
    "PixelNeighbors",
    "SharedStochastic",
    "SoftNearestNeighbors",
]
