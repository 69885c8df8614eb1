"""The first layer of a network, which gets categories as codes."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ltr.datasets.coded import Coded


class CodedLinear(nn.Linear):
    """A linear layer that also takes `Coded`, at the price of a lookup for each code.

    It gives what `nn.Linear` gives for `Coded.dense()`, to rounding: a product with one-hot codes
    is the sum of some columns of the weight. Weights, their names and their first values are those
    of `nn.Linear`, and so are the gradients.

    Cost: k products with each row of the weight instead of k + w, for k numbers and w levels.

    >>> layer = CodedLinear(4, 2)
    >>> coded = Coded(torch.tensor([[0.5]]), torch.tensor([[0, 2]]), width=3)
    >>> torch.allclose(layer(coded), layer(coded.dense()))
    True
    """

    def forward(self, input: Tensor | Coded) -> Tensor:
        """Return (..., n, out_features) for (..., n, in_features)."""
        if isinstance(input, Tensor):
            return super().forward(input)
        numbers, levels = self.weight.split([self.in_features - input.width, input.width], dim=1)
        out = functional.linear(input.numbers, numbers, self.bias)
        found = level_rows(levels.t().to(out.dtype), input.codes)
        if input.values is not None:
            found = [x * value for x, value in zip(found, input.values.split(1, -1), strict=True)]
        return sum(found, out)


def level_rows(rows: Tensor, codes: Tensor) -> list[Tensor]:
    """Return for each category the rows (..., n, k) of its levels, of rows (w, k); 0 for none."""
    padded = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
    return [functional.embedding(one, padded) for one in codes.unbind(-1)]
