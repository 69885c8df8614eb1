"""Periodic embeddings: smooth functions of each feature, learned with the model."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from ltr.datasets.transforms import Standardize
from ltr.shapes import check_number, check_whole

_CLIP = 3.0
"""A standardized value stays below this many standard deviations, by a smooth function."""

_FAR = 100.0
"""Beyond this many standard deviations all values are the same: 2.9987 after clipping."""


class PeriodicEmbedding(Standardize):
    """Adds to each feature smooth functions of it, which are learned with the model.

    A feature is standardized as in `Standardize`, and clipped smoothly: z / sqrt(1 + z^2 / 9) stays
    between -3 and 3. Each feature has k frequencies f of its own. The cosines and sines of
    2 pi f z go through a linear layer of the feature and a ReLU, which gives `size` outputs. The
    transform returns for each feature its clipped value, followed by these outputs.

    An MLP on standardized columns is nearly linear in each of them. With an embedding, its first
    layer gets bumps, waves and plateaus of each column, from fast to slow ones. That helps most
    where a label depends smoothly on many columns; `PiecewiseLinearBins` with thresholds helps more
    where it jumps.

    The frequencies, weights and biases are parameters. `fit` draws them, and training changes them.
    They start as normal numbers times a geometric row from `slowest` to `fastest`, so that some are
    slow and some are fast. Several members of a `NeuralRanker` share them, and then stop together.

    For missing values and categories, wrap it in `TableTransform`. The indicator of a missing value
    gives it a vector of its own in the next linear layer.

    Cost: k cosines, k sines and 2 k * size multiplications per feature and document.

    Args:
        size: the number of outputs of each feature, beside its value, >= 1.
        frequencies: k, the number of frequencies of each feature, >= 1.
        slowest: the standard deviation of the slowest frequency, in periods per standard deviation
            of the feature, > 0.
        fastest: that of the fastest frequency, >= `slowest`.
        num_features: d, the number of features, if it is already known.

    Attributes:
        out_features: d * (1 + size); None before d is known.

    Raises:
        ValueError: an argument is out of range.

    References: Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning",
    NeurIPS 2022, section 3.3; Holzmueller et al., "Better by Default: Strong Pre-Tuned MLPs and
    Boosted Trees on Tabular Data", NeurIPS 2024, whose networks also keep the value itself.

    >>> fitted = PeriodicEmbedding(size=2).fit(torch.tensor([[1.0], [3.0]]))
    >>> fitted(torch.tensor([[1.0], [99.0]])).shape
    torch.Size([2, 3])
    >>> values = fitted(torch.tensor([[2.0], [5.0], [1e30]]))[:, 0]  # 0, 3 and 1e30 deviations
    >>> [round(value, 4) for value in values.tolist()]
    [0.0, 2.1213, 2.9987]
    """

    angular: nn.Parameter
    weight: nn.Parameter
    bias: nn.Parameter

    def __init__(
        self,
        size: int = 6,
        frequencies: int = 8,
        slowest: float = 0.03,
        fastest: float = 0.8,
        num_features: int | None = None,
    ) -> None:
        super().__init__(num_features)
        self.size = check_whole("size", size)
        self.frequencies = check_whole("frequencies", frequencies)
        self.slowest = check_number("slowest", slowest, minimum=0, strict=True)
        self.fastest = check_number("fastest", fastest, minimum=self.slowest)
        self.angular = nn.Parameter(torch.zeros(0))
        self.weight = nn.Parameter(torch.zeros(0))
        self.bias = nn.Parameter(torch.zeros(0))

    @property
    def out_features(self) -> int | None:
        """The number of outputs, or None before d is known."""
        return None if self.num_features is None else self.num_features * (1 + self.size)

    def learn(self, features: np.ndarray, labels: np.ndarray | Tensor | None) -> None:
        """Learn the mean and the deviation of each feature, and draw the weights.

        Raises:
            ValueError: a feature is infinite in float32.
        """
        super().learn(features, labels)
        d, k = features.shape[1], self.frequencies
        ends = math.log(self.slowest), math.log(self.fastest)
        spread = torch.linspace(*ends, k).exp()
        with torch.no_grad():
            new = {
                "angular": 2 * math.pi * spread * torch.randn(d, k),
                "weight": torch.randn(d, 2 * k, self.size) / math.sqrt(2 * k),
                "bias": torch.zeros(d, self.size),
            }
        for name, value in new.items():
            setattr(self, name, nn.Parameter(value.to(getattr(self, name))))

    def transform(self, features: Tensor, mask: Tensor) -> Tensor:
        """Return the clipped values and the embeddings."""
        z = super().transform(features, mask)
        z = z.clamp(-_FAR, _FAR)  # so that no square overflows, in half precision neither
        z = z * (1 + (z / _CLIP).square()).rsqrt()
        columns = z.flatten(0, -2).t().unsqueeze(1)  # (d, 1, N)
        angles = columns.contiguous() * self.angular.unsqueeze(-1)
        waves = torch.cat([angles.cos(), angles.sin()], dim=1)  # (d, 2 k, N)
        weight = self.weight.transpose(1, 2)
        embedded = torch.baddbmm(self.bias.unsqueeze(-1), weight, waves).relu()
        both = torch.cat([columns, embedded], dim=1).flatten(0, 1)  # (d * (1 + size), N)
        return both.t().reshape(*z.shape[:-1], z.shape[-1] * (1 + self.size))

    def monotone_columns(self) -> Tensor:
        """Raise `ValueError`: an embedding rises and falls with its feature."""
        raise ValueError(
            "transform must not be a PeriodicEmbedding if monotone is given, since its outputs "
            "rise and fall with a column: use PiecewiseLinearBins or Standardize"
        )

    def source_columns(self) -> Tensor:
        """Return the feature of each output."""
        return torch.arange(self.num_features or 0).repeat_interleave(1 + self.size)
