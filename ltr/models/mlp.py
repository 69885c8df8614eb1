"""The multi-layer perceptron, applied to each item."""

from collections.abc import Sequence
from itertools import pairwise
from numbers import Integral
from typing import Any

from torch import nn

from ltr.models.coded import CodedLinear
from ltr.models.dropout import Dropout
from ltr.models.scorer import FeatureScorer
from ltr.shapes import check_fraction


class MLPScorer(FeatureScorer):
    """Scores each item by itself with a multi-layer perceptron.

    Each hidden layer is a linear layer, an activation and dropout. The output layer, which is also
    linear, gives one score.

    With `norm`, a layer norm follows the linear layer of each hidden layer, and normalizes each
    item by itself. On tables of features, layer norm made rankings worse in every measurement, so
    it is off by default. Batch norm is not offered, because padding and other lists would change an
    item's score.

    Args:
        num_features: d, the number of features. Default: taken from the data (`Scorer.build`).
        hidden: widths of the hidden layers; () for none.
        dropout: probability of dropping a hidden unit in training, in [0, 1).
        activation: the class of the activation, a subclass of `nn.Module`, made without arguments.
        norm: whether the hidden layers have a layer norm. Default: False.

    Raises:
        ValueError: `num_features` or a width is < 1; `dropout` is not in [0, 1); `activation` is
            not a subclass of `nn.Module`.

    >>> import torch
    >>> scorer = MLPScorer(num_features=46, hidden=(64, 32))
    >>> scorer(torch.randn(8, 20, 46)).shape
    torch.Size([8, 20])
    """

    takes_codes = True

    def __init__(
        self,
        num_features: int | None = None,
        hidden: Sequence[int] = (256, 128, 64),
        dropout: float = 0.1,
        activation: type[nn.Module] = nn.ReLU,
        norm: bool = False,
    ):
        if not isinstance(hidden, Sequence) or not all(map(_is_width, hidden)):
            raise ValueError(f"hidden must be widths >= 1, got {hidden!r}")
        check_fraction("dropout", dropout, zero=True)
        if not isinstance(activation, type) or not issubclass(activation, nn.Module):
            raise ValueError(f"activation must be a class such as nn.ReLU, got {activation!r}")
        # These values are set first, because `super().__init__` makes the layers from them. This is
        # allowed, since none of them is a module.
        self.hidden = tuple(map(int, hidden))
        self.dropout = dropout
        self.activation = activation
        self.norm = norm
        super().__init__(num_features)

    def make_layers(self, num_features: int) -> nn.Module:
        """Return the hidden layers and the output layer, which gives one score."""
        layers = hidden_layers(
            num_features, self.hidden, self.dropout, self.activation, norm=self.norm
        )
        last = nn.Linear(self.hidden[-1], 1) if self.hidden else CodedLinear(num_features, 1)
        return nn.Sequential(*layers, last)


def hidden_layers(
    num_features: int,
    widths: Sequence[int],
    dropout: float,
    activation: type[nn.Module] = nn.ReLU,
    *,
    norm: bool = False,
) -> list[nn.Module]:
    """Return the layers of an MLP without its output layer.

    Each hidden layer is a linear layer, a layer norm if `norm` is set, an activation, and dropout
    if its probability is not 0. The first linear layer also takes `Coded`.
    """
    layers: list[nn.Module] = []
    for width, out in pairwise([num_features, *widths]):
        layers.append(nn.Linear(width, out) if layers else CodedLinear(width, out))
        if norm:
            layers.append(nn.LayerNorm(out))
        layers.append(activation())
        if dropout:
            layers.append(Dropout(dropout))
    return layers


def _is_width(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1
