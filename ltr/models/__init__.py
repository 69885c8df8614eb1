"""Scorers: `scorer(features, mask=None)`, features (..., n, *item) -> scores (..., n).

`RankingModel` combines a scorer, the transform of its features and the schema of its tables.

A scorer made without `num_features` gets the number of features from `build`, which
`ltr.modules.Ranker` calls. So one configuration works for data sets with any number of features.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ltr.models.additive import AdditiveScorer
from ltr.models.attention import AttentionScorer
from ltr.models.cross import CrossScorer
from ltr.models.ensemble import Ensemble
from ltr.models.linear import LinearScorer
from ltr.models.mlp import MLPScorer
from ltr.models.monotone import MonotoneScorer
from ltr.models.scorer import FeatureScorer, Scorer
from ltr.names import no_attribute

if TYPE_CHECKING:
    from ltr.models.ranking_model import RankingModel

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

    def __getattr__(name: str) -> Any:
        if name == "RankingModel":  # its module imports libraries that read tables
            value = globals()[name] = import_module("ltr.models.ranking_model").RankingModel
            return value
        raise no_attribute(__name__, name, __all__)
