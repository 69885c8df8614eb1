"""The cross network: products of features, followed by a multi-layer perceptron."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ltr.datasets.coded import Coded
from ltr.models.coded import CodedLinear, level_rows
from ltr.models.mlp import MLPScorer, hidden_layers
from ltr.models.scorer import FeatureScorer
from ltr.shapes import check_whole


class CrossScorer(FeatureScorer):
    """Scores each item by layers that multiply features with each other, followed by an MLP.

    Each cross layer computes x <- x_0 * (U V x + b) + x, where * multiplies element by element, x_0
    are the features, and V (rank, d), U (d, rank) and b (d,) are learned. The first layer gives
    products of two features; each further layer gives products with one more factor. An MLP needs
    many documents to learn such products. On generated tables whose labels depend on products of
    features, this scorer needs fewer documents than an MLP.

    Args:
        num_features: d, the number of features. Default: taken from the data (`Scorer.build`).
        hidden: widths of the hidden layers of the MLP; () for none.
        crosses: the number of cross layers, >= 1.
        rank: the rank of U V, >= 1.
        dropout: probability of dropping a hidden unit of the MLP in training, in [0, 1).

    Raises:
        ValueError: `num_features`, a width, `crosses` or `rank` is < 1; `dropout` is not in [0, 1).

    Cost: 2 * crosses * rank * d multiplications per document, besides those of the MLP. Here d
    counts a category as one feature, however many levels it has.

    Reference: Wang et al., "DCN V2: Improved Deep & Cross Network and Practical Lessons for
    Web-scale Learning to Rank Systems", 2021: the stacked structure of section 3.4, with
    matrices of low rank as in section 3.5.

    >>> scorer = CrossScorer(num_features=46, hidden=(64, 32))
    >>> scorer(torch.randn(8, 20, 46)).shape
    torch.Size([8, 20])
    """

    takes_codes = True

    def __init__(
        self,
        num_features: int | None = None,
        hidden: Sequence[int] = (128, 64),
        crosses: int = 2,
        rank: int = 32,
        dropout: float = 0.1,
    ):
        MLPScorer(hidden=hidden, dropout=dropout)  # this checks `hidden` and `dropout`
        self.hidden = tuple(map(int, hidden))
        self.crosses = check_whole("crosses", crosses)
        self.rank = check_whole("rank", rank)
        self.dropout = dropout
        super().__init__(num_features)

    def make_layers(self, num_features: int) -> nn.Module:
        """Return the cross layers, followed by the MLP."""
        crosses = [_Cross(num_features, self.rank) for _ in range(self.crosses)]
        layers = hidden_layers(num_features, self.hidden, self.dropout)
        last = nn.Linear(self.hidden[-1], 1) if self.hidden else CodedLinear(num_features, 1)
        return _Stacked(crosses, nn.Sequential(*layers, last))


class _Cross(nn.Module):
    """One cross layer."""

    def __init__(self, width: int, rank: int):
        super().__init__()
        # In the formula of `CrossScorer`, V is the weight of `down`, and U and b are the weight and
        # the bias of `up`.
        self.down = CodedLinear(width, rank, bias=False)
        self.up = nn.Linear(rank, width)

    def forward(self, first: Tensor | Coded, x: Tensor | Coded) -> Tensor | Coded:
        inner = self.down(x)
        if not isinstance(first, Coded) or not isinstance(x, Coded):
            return torch.addcmul(cast(Tensor, x), cast(Tensor, first), self.up(inner))
        # One-hot values stay 0 except at the codes, so only the codes' rows of U and b are needed.
        k, bias = first.numbers.shape[-1], self.up.bias.unsqueeze(1)
        outer = functional.linear(inner, self.up.weight[:k], self.up.bias[:k])
        numbers = torch.addcmul(x.numbers, first.numbers, outer)
        rows = level_rows(torch.cat([self.up.weight, bias], 1)[k:].to(inner.dtype), first.codes)
        changes = [(row[..., :-1] * inner).sum(-1) + row[..., -1] for row in rows]
        change = torch.stack(changes, -1)
        return x._replace(numbers=numbers, values=change + (1 if x.values is None else x.values))


class _Stacked(nn.Module):
    """Cross layers, followed by other layers. Each cross layer also gets the original features."""

    def __init__(self, crosses: Sequence[_Cross], deep: nn.Module):
        super().__init__()
        self.crosses = nn.ModuleList(crosses)
        self.deep = deep

    def forward(self, features: Tensor | Coded) -> Tensor:
        x = features
        for cross in self.crosses:
            x = cross(features, x)
        return self.deep(x)
