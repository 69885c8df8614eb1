"""The linear scorer."""

from torch import nn

from ltr.models.coded import CodedLinear
from ltr.models.scorer import FeatureScorer


class LinearScorer(FeatureScorer):
    """Linear model: the score is a weighted sum of the features.

    score = w . features + b, with learned weights w and a learned bias b.

    The ranking does not depend on b. Losses that fit scores to the values of labels need b.

    Args:
        num_features: d, the number of features. Default: taken from the data (`Scorer.build`).

    Raises:
        ValueError: `num_features` is < 1.

    >>> import torch
    >>> scorer = LinearScorer(num_features=46)
    >>> scorer(torch.randn(8, 20, 46)).shape
    torch.Size([8, 20])
    """

    takes_codes = True

    def make_layers(self, num_features: int) -> nn.Module:
        """Return one linear layer."""
        return CodedLinear(num_features, 1)
