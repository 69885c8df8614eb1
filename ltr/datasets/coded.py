"""Numeric features followed by one-hot codes, stored without the zeros of the codes."""

from typing import NamedTuple

import torch
from torch import Tensor


class Coded(NamedTuple):
    """Numeric features followed by one-hot codes, which are stored as the indices of their 1s.

    For each item, a category with 1,000 levels takes one integer in `codes`, and 1,000 values in
    `dense()`. A linear layer needs only the weights at the stored indices; see
    `ltr.models.coded.CodedLinear`.

    Attributes:
        numbers: (..., n, k), the numeric features, floating point.
        codes: (..., n, c) int64, for each category, the index of its 1 among the w columns of the
            one-hot codes, or w if the category has no 1.
        width: w, the number of columns of the one-hot codes of all categories together.
        values: (..., n, c), the values that replace the 1s. Default: None, which keeps the 1s.

    >>> coded = Coded(torch.tensor([[0.5], [0.7]]), torch.tensor([[0, 2], [1, 3]]), width=3)
    >>> coded.shape
    torch.Size([2, 4])
    >>> coded.dense()
    tensor([[0.5000, 1.0000, 0.0000, 1.0000],
            [0.7000, 0.0000, 1.0000, 0.0000]])
    """

    numbers: Tensor
    codes: Tensor
    width: int
    values: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        """The shape (..., n, k + w) of `dense()`."""
        return torch.Size((*self.numbers.shape[:-1], self.numbers.shape[-1] + self.width))

    def dim(self) -> int:
        """Return the number of axes of `dense()`."""
        return self.numbers.dim()

    def is_floating_point(self) -> bool:
        """Return whether `numbers` is floating point."""
        return self.numbers.is_floating_point()

    def to(self, dtype: torch.dtype) -> "Coded":
        """Return a copy whose floating-point values have another type."""
        values = None if self.values is None else self.values.to(dtype)
        return self._replace(numbers=self.numbers.to(dtype), values=values)

    def where(self, real: Tensor) -> "Coded":
        """Return a copy in which all values of an item are 0 if its `real` (..., n, 1) is False."""
        numbers = torch.where(real, self.numbers, 0)
        codes = torch.where(real, self.codes, self.width)
        return self._replace(numbers=numbers, codes=codes)

    def dense(self) -> Tensor:
        """Return the numeric features followed by the full one-hot codes, (..., n, k + w)."""
        hot = self.numbers.new_zeros((*self.codes.shape[:-1], self.width + 1))
        ones = torch.ones_like(self.codes, dtype=hot.dtype)
        hot = hot.scatter(-1, self.codes, ones if self.values is None else self.values)
        return torch.cat([self.numbers, hot[..., : self.width]], dim=-1)
