"""A relaxed permutation that stores its matrix."""

from __future__ import annotations

from torch import Tensor

from ltr.operators.permutation import SoftPermutation, register_permutation
from ltr.shapes import check_whole


class DensePermutation(SoftPermutation):
    """A `SoftPermutation` that keeps the logarithm of its matrix: O(rows n) memory.

    Args:
        log_matrix: (..., rows, n), each real row with a log-sum-exp of 0.
        scores: (..., n).
        mask: (..., n) bool, or None.
        order: (..., n) int64, the hard order if the operator knows it; `hard` returns it.

    >>> import torch
    >>> matrix = torch.tensor([[0.1, 0.9], [0.9, 0.1]])
    >>> DensePermutation(matrix.log(), torch.tensor([1.0, 2.0])).sort()
    tensor([1.9000, 1.1000])
    """

    def __init__(
        self,
        log_matrix: Tensor,
        scores: Tensor,
        mask: Tensor | None = None,
        order: Tensor | None = None,
    ):
        self.log_matrix = log_matrix
        self.scores = scores
        self.mask = mask
        self.order = order

    def log_dense(self) -> Tensor:
        """Return the logarithm of the matrix, (..., rows, n)."""
        return self.log_matrix

    def top(self, k: int) -> DensePermutation:
        """Return the first k rows, or all rows if there are fewer.

        >>> import torch
        >>> from ltr.operators import SoftSort
        >>> P = SoftSort(temperature=0.1).permutation(torch.tensor([0.3, 0.1, 0.2]))
        >>> P.top(2).shape
        torch.Size([2, 3])
        """
        k = check_whole("k", k)
        return DensePermutation(self.log_matrix[..., :k, :], self.scores, self.mask, self.order)

    def hard(self) -> Tensor:
        """Return the order (..., n) int64: the operator's own order if it is known."""
        self._needs_all_rows("hard")
        return super().hard() if self.order is None else self.order


register_permutation(DensePermutation, ("log_matrix", "scores", "mask", "order"))
