"""A linear layer that takes categories as codes: the first layer of a network."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ltr.datasets.coded import Coded


class CodedLinear(nn.Linear):
    """A linear layer that also takes `Coded` features, with one lookup for each code.

    Its output equals that of `nn.Linear` for `Coded.dense()`, up to rounding, because a product
    with one-hot codes is a sum of columns of the weight matrix. The weights, their names, their
    initial values and their gradients are also those of `nn.Linear`.

    Cost: for k numeric features and categories with w one-hot values in total, k multiplications
    for each output, instead of k + w.

    >>> layer = CodedLinear(4, 2)
    >>> coded = Coded(torch.tensor([[0.5]]), torch.tensor([[0, 2]]), width=3)
    >>> torch.allclose(layer(coded), layer(coded.dense()))
    True
    """

    def forward(self, input: Tensor | Coded) -> Tensor:
        """Return the output (..., n, out_features) for the input (..., n, in_features)."""
        if isinstance(input, Tensor):
            return super().forward(input)
        numbers, levels = self.weight.split([self.in_features - input.width, input.width], dim=1)
        out = functional.linear(input.numbers, numbers, self.bias)
        rows = level_rows(levels.t().to(out.dtype), input.codes)
        if input.values is not None:
            rows = [x * value for x, value in zip(rows, input.values.split(1, -1), strict=True)]
        return sum(rows, out)


def level_rows(rows: Tensor, codes: Tensor) -> list[Tensor]:
    """Return for each category the rows of `rows` (w, k) at its codes: (..., n, k), 0 at code w."""
    padded = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
    return [functional.embedding(column, padded) for column in codes.unbind(-1)]
