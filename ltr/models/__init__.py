"""Scorers: `scorer(features, mask=None)`, features (..., n, *item) -> scores (..., n).

A scorer made without `num_features` gets the width of the data from `build`, which
`ltr.modules.Ranker` calls. So one configuration serves any data set.
"""

from typing import TYPE_CHECKING, Any

from ltr.models.additive import AdditiveScorer
from ltr.models.attention import AttentionScorer
from ltr.models.cross import CrossScorer
from ltr.models.ensemble import Ensemble
from ltr.models.linear import LinearScorer
from ltr.models.mlp import MLPScorer
from ltr.models.scorer import FeatureScorer, Scorer
from ltr.names import no_attribute

__all__ = [
    "AdditiveScorer",
    "AttentionScorer",
    "CrossScorer",
    "Ensemble",
    "FeatureScorer",
    "LinearScorer",
    "MLPScorer",
    "Scorer",
]


if not TYPE_CHECKING:  # a type checker would accept any name otherwise

    def __getattr__(name: str) -> Any:
        raise no_attribute(__name__, name, __all__)
