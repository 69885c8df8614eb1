"""Scorers: `scorer(features, mask=None)`, features (..., n, *item) -> scores (..., n).

A scorer made without `num_features` takes the width of the data from `build`, which
`ltr.modules.Ranker` calls; so one configuration serves any data set.
"""

from ltr.models.linear import LinearScorer
from ltr.models.mlp import MLPScorer
from ltr.models.scorer import FeatureScorer, Scorer

__all__ = ["FeatureScorer", "LinearScorer", "MLPScorer", "Scorer"]
