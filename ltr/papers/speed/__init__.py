"""The speed task of the SoftSort paper (Prillo and Eisenschlos 2020)."""

from ltr.papers.speed.published_sorts import PublishedNeuralSort, PublishedSoftSort
from ltr.papers.speed.random_scores import RandomScoresDataModule
from ltr.papers.speed.speed import SpeedTask

__all__ = ["PublishedNeuralSort", "PublishedSoftSort", "RandomScoresDataModule", "SpeedTask"]
