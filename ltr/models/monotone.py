"""A network whose score can only rise, or only fall, with some of the features."""

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ltr.datasets.coded import Coded
from ltr.models.mlp import MLPScorer, hidden_layers
from ltr.models.scorer import FeatureScorer


class MonotoneScorer(FeatureScorer):
    """Scores each item so that the score never falls, or never rises, with chosen features.

    Let m be the monotone features, multiplied by their directions, and u the other features. The
    score is

        f(u) + sum over k of a_k(u) phi_k(sum over j of |w_kj| m_j + b_k(u)).

    The w_kj are learned weights. One MLP of u gives f, the biases b_k and the factors a_k > 0. Each
    a_k is a softplus, divided by the number of units. phi_k(z) is max(z, 0) for one half of the
    units and min(z, 0) for the other half. The |w_kj| and the a_k are >= 0 and phi_k never falls,
    so the score never falls with m_j, whatever the weights are. Only rounding may lower the score,
    in its last digits. The score may depend on u in any way. After `PiecewiseLinearBins`, the score
    bends at the bin edges of each monotone column.

    Args:
        directions: for each feature, 1 if the score must not fall with the feature, -1 if the score
            must not rise with it, and 0 if the feature is unconstrained.
        hidden: widths of the hidden layers of the MLP of u, at least one width. The last is also
            the number of monotone units.
        dropout: probability of dropping a hidden unit of the MLP in training, in [0, 1).

    Raises:
        ValueError: a direction is not 1, 0 or -1; all directions are 0; `hidden` is empty or has a
            width < 1; `dropout` is not in [0, 1).

    Cost: that of the MLP, and one product of m with the weights w.

    Reference: non-negative weights as in Sill, "Monotonic Networks", 1997; units that bend both
    ways as in Runje and Shankaranarayana, "Constrained Monotonic Neural Networks", 2023.

    >>> scorer = MonotoneScorer([1, 0])
    >>> scorer.build(2)
    >>> low, high = torch.tensor([[0.1, 0.5], [0.9, 0.5]]).unsqueeze(1)
    >>> bool(scorer(low) <= scorer(high))
    True
    """

    takes_codes = True

    def __init__(
        self, directions: Sequence[int], hidden: Sequence[int] = (128, 64), dropout: float = 0.1
    ):
        MLPScorer(hidden=hidden, dropout=dropout)  # this checks `hidden` and `dropout`
        if not hidden:
            raise ValueError("hidden must have at least one width, got ()")
        given = list(directions) if isinstance(directions, Iterable) else []
        if not all(direction in (-1, 0, 1) for direction in given) or not any(given):
            raise ValueError(f"directions must be 1, 0 or -1, and not all 0, got {directions!r}")
        self.directions = [int(direction) for direction in given]
        self.hidden = tuple(map(int, hidden))
        self.dropout = dropout
        super().__init__()

    def make_layers(self, num_features: int) -> nn.Module:
        """Return the network: the MLP of the unconstrained features, and the monotone units."""
        if num_features != len(self.directions):
            raise ValueError(
                f"num_features must be {len(self.directions)}, one for each of the directions, "
                f"got {num_features}"
            )
        return _Monotone(self.directions, self.hidden, self.dropout)


class _Monotone(nn.Module):
    """The MLP and the monotone units."""

    free: Tensor
    columns: Tensor
    signs: Tensor

    def __init__(self, directions: Sequence[int], hidden: Sequence[int], dropout: float):
        super().__init__()
        signs = torch.tensor(directions, dtype=torch.float32)
        columns = signs.nonzero().flatten()
        # These buffers follow from the scorer's arguments, so they are not part of its state.
        self.register_buffer("free", signs == 0, persistent=False)
        self.register_buffer("columns", columns, persistent=False)
        self.register_buffer("signs", signs[columns], persistent=False)
        self.units = hidden[-1]
        layers = hidden_layers(len(directions), hidden, dropout)
        self.context = nn.Sequential(*layers, nn.Linear(hidden[-1], 1 + 2 * self.units))
        bound = len(columns) ** -0.5
        self.weight = nn.Parameter(torch.empty(self.units, len(columns)).uniform_(-bound, bound))

    def forward(self, features: Tensor | Coded) -> Tensor:
        coded = features if isinstance(features, Coded) else None
        numbers = cast(Tensor, features) if coded is None else coded.numbers
        ordered = numbers.index_select(-1, self.columns) * self.signs.to(numbers.dtype)
        others = torch.where(self.free[: numbers.shape[-1]], numbers, 0)
        known = others if coded is None else coded._replace(numbers=others)
        context, k = self.context(known), self.units
        # These are slices, because onnx cannot convert a split of opset 18 to a lower opset.
        base, gates, biases = context[..., :1], context[..., 1 : k + 1], context[..., k + 1 :]
        inner = functional.linear(ordered, self.weight.abs()) + biases
        above, below = inner[..., : k // 2], inner[..., k // 2 :]
        bent = torch.cat([above.clamp(min=0), below.clamp(max=0)], dim=-1)
        # This is the mean over the units: with a sum, wide layers would start with large scores.
        return base + (functional.softplus(gates) * bent).sum(-1, keepdim=True) / k
