"""Scorers: `scorer(features, mask=None)`, features (..., n, *item) -> scores (..., n).

`RankingModel` combines a scorer, the transform of its features and the schema of its tables.

A scorer made without `num_features` gets the number of features from `build`, which
`ltr.modules.Ranker` calls. So one configuration works for data sets with any number of features.
"""

from typing import TYPE_CHECKING

from ltr.models.additive import AdditiveScorer
from ltr.models.attention import AttentionScorer
from ltr.models.cross import CrossScorer
from ltr.models.ensemble import Ensemble
from ltr.models.linear import LinearScorer
from ltr.models.mlp import MLPScorer
from ltr.models.monotone import MonotoneScorer
from ltr.models.scorer import FeatureScorer, Scorer
from ltr.names import package_names

if TYPE_CHECKING:
    from ltr.models.ranking_model import RankingModel

# The module of RankingModel imports libraries that read tables.
_LAZY = {"RankingModel": "ltr.models.ranking_model"}

__all__ = [
    "AdditiveScorer",
    "AttentionScorer",
    "CrossScorer",
    "Ensemble",
    "FeatureScorer",
    "LinearScorer",
    "MLPScorer",
    "MonotoneScorer",
    "RankingModel",
    "Scorer",
]


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any name
    __getattr__, __dir__ = package_names(__name__, __all__, _LAZY)
