"""The additive model: a score is a sum of functions of one feature each."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from ltr.models.dropout import Dropout
from ltr.models.mlp import MLPScorer
from ltr.models.scorer import FeatureScorer


class AdditiveScorer(FeatureScorer):
    """Additive model: the score is a sum of small networks, one for each feature.

    The score is b + sum over j of f_j(feature j), where b is a learned bias and each f_j is a small
    network.

    f_j holds all that the model has learned about feature j. `ltr.estimators.contributions` returns
    f_j minus its mean over the background documents. An additive model ranks worse than others if
    features matter only in combination.

    Each column of the transform's output has its own network. If the transform splits columns, as
    `PiecewiseLinearBins` does, the model stays additive in the columns of the table. The initial
    biases of all hidden layers are uniform in (-1, 1).

    Args:
        num_features: d, the number of features. Default: taken from the data (`Scorer.build`).
        hidden: widths of the hidden layers of each f_j. With (), each f_j is linear; after
            `PiecewiseLinearBins` the score is then piecewise linear in each column.
        dropout: probability of dropping a hidden unit in training, in [0, 1).

    Raises:
        ValueError: `num_features` or a width is < 1; `dropout` is not in [0, 1).

    Cost: one call of each of the d networks for each document.

    Reference: Zhuang et al., "Interpretable ranking with generalized additive models", 2021. This
    model leaves out the paper's weights of the f_j, which depend on features of the query.

    >>> scorer = AdditiveScorer(num_features=46)
    >>> features = torch.randn(8, 20, 46)
    >>> parts = scorer.parts(features)
    >>> torch.allclose(scorer(features), scorer.layers.bias + parts.sum(-1), atol=1e-5)
    True
    """

    def __init__(
        self,
        num_features: int | None = None,
        hidden: Sequence[int] = (16, 8),
        dropout: float = 0.0,
    ):
        MLPScorer(hidden=hidden, dropout=dropout)  # this checks `hidden` and `dropout`
        self.hidden = tuple(map(int, hidden))
        self.dropout = dropout
        super().__init__(num_features)

    def make_layers(self, num_features: int) -> nn.Module:
        """Return the networks, whose outputs are summed."""
        return _Sum(num_features, self.hidden, self.dropout)

    def parts(self, features: Tensor) -> Tensor:
        """Return what each feature adds to the score: features (..., n, d) -> (..., n, d)."""
        layers = self.ready(features)
        assert isinstance(layers, _Sum)
        return layers.parts(features)


class _Sum(nn.Module):
    """A bias and the sum of the networks' outputs."""

    def __init__(self, num_features: int, hidden: Sequence[int], dropout: float):
        super().__init__()
        sizes = [*pairwise([1, *hidden, 1])]
        self.bias = nn.Parameter(torch.zeros(1))
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()  # the last layers have no biases: `bias` is enough
        for i, (width, out) in enumerate(sizes):
            last = i == len(sizes) - 1
            # The weights are drawn like those of nn.Linear. All last layers together count as one
            # layer.
            bound = (width * (num_features if last else 1)) ** -0.5
            draw = torch.empty(num_features, out, width).uniform_(-bound, bound)
            self.weights.append(nn.Parameter(draw))
            if not last:
                self.biases.append(nn.Parameter(torch.empty(num_features, out).uniform_(-1, 1)))
        self.dropout = Dropout(dropout)

    def parts(self, features: Tensor) -> Tensor:
        x = features.unsqueeze(-1)  # (..., d, 1)
        for i, weight in enumerate(self.weights):
            x = torch.einsum("...dw,dow->...do", x, weight)
            if i < len(self.biases):
                x = self.dropout(torch.relu(x + self.biases[i]))
        return x.squeeze(-1)

    def forward(self, features: Tensor) -> Tensor:
        return self.bias + self.parts(features).sum(-1, keepdim=True)
