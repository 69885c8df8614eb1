"""NeuralSort and SoftSort as in their authors' code, to be timed beside the library's."""

from __future__ import annotations

import torch
from torch import Tensor

from ltr.operators import SoftPermutation, SortOperator
from ltr.shapes import check_number, check_whole


class MatrixPermutation(SoftPermutation, tensors=("matrix", "scores")):
    """A `SoftPermutation` that keeps the matrix of a softmax, as published code does.

    It takes logarithms of the probabilities, so entries that underflow have no gradient.
    `DensePermutation` keeps the logarithms.

    Args:
        matrix: (..., rows, n); its rows sum to 1.
        scores: (..., n).

    >>> P = MatrixPermutation(torch.tensor([[0.25, 0.75], [0.75, 0.25]]), torch.tensor([0.0, 1.0]))
    >>> P.log_prob(torch.tensor([1, 0])).exp()
    tensor([0.7500, 0.7500])
    """

    def __init__(self, matrix: Tensor, scores: Tensor):
        self.matrix = matrix
        self.scores = scores
        self.mask = None

    @property
    def rows(self) -> int:
        """The number of rows: n, or k after `top(k)`."""
        return self.matrix.shape[-2]

    def dense(self) -> Tensor:
        """Return the matrix itself, (..., rows, n)."""
        return self.matrix

    def log_dense(self) -> Tensor:
        """Return the logarithm of the matrix, (..., rows, n)."""
        return self.matrix.log()

    def top(self, k: int) -> MatrixPermutation:
        """Return the first k rows, or all rows if there are fewer."""
        return MatrixPermutation(self.matrix[..., : check_whole("k", k), :], self.scores)

    def log_prob(self, order: Tensor) -> Tensor:
        """Return log P[i, order[i]], (..., rows), of an order (..., rows) int64."""
        if order.shape[-1:] != (self.rows,):
            raise ValueError(f"order must be a tensor (..., {self.rows}), got {tuple(order.shape)}")
        return self.matrix.gather(-1, order.unsqueeze(-1)).squeeze(-1).log()


class PublishedNeuralSort(SortOperator):
    """NeuralSort by its equation 3, as the published code computes it: O(n^3) time.

    Row i of the matrix is softmax over j of ((n + 1 - 2i) s_j - A_j) / temperature with
    A_j = sum over k of |s_j - s_k|. The published code, in both of its frameworks, computes the
    sums A_j for every row at once: it multiplies the n x n matrix of differences by an n x n matrix
    of ones, with n^3 multiplications. `fixed` multiplies by a vector of ones instead, with n^2
    multiplications and the same values. `ltr.operators.NeuralSort` computes A from one sort and
    builds no matrix.

    Args:
        temperature: tau, in units of the scores, > 0. Default 1.
        fixed: sum the rows by a vector of ones, in O(n^2).

    Cost: O(n^3) time, O(n^2) with `fixed`; O(n^2) memory, seven matrices in a training step.
    A mask and weights raise `ValueError`, since the published code supports neither.

    Reference: Grover, Wang, Zweig and Ermon, ICLR 2019, equation 3 and the code published with it.

    >>> PublishedNeuralSort(temperature=0.01)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    """

    def __init__(self, temperature: float = 1.0, fixed: bool = False):
        super().__init__()
        self.temperature = check_number("temperature", temperature, minimum=0.0, strict=True)
        self.fixed = fixed

    def soft_permutation(
        self, scores: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> MatrixPermutation:
        """Return the soft permutation of scores (..., n)."""
        _refuse_mask(self, mask)
        n = scores.shape[-1]
        s = scores.unsqueeze(-1)
        ones = torch.ones(n, 1, dtype=s.dtype, device=s.device)
        differences = (s - s.mT).abs()
        if self.fixed:
            sums = torch.matmul(torch.matmul(differences, ones), ones.mT)
        else:
            sums = torch.matmul(differences, torch.matmul(ones, ones.mT))
        factors = n + 1 - 2 * torch.arange(1, n + 1, device=s.device)
        logits = (torch.matmul(s, factors.to(s.dtype).unsqueeze(0)) - sums).mT
        return MatrixPermutation(torch.softmax(logits / self.temperature, -1), scores)

    def extra_repr(self) -> str:
        """Return the hyper-parameters, for `print`."""
        return f"temperature={self.temperature:g}, fixed={self.fixed}"


class PublishedSoftSort(SortOperator):
    """SoftSort as the published code computes it, in three lines: O(n^2) time and memory.

    Row i of the matrix is softmax over j of -|s_[i] - s_j|^power / temperature, s_[i] the i-th
    highest score. `ltr.operators.SoftSort` has the same rows and builds no matrix.

    Args:
        temperature: tau, in units of score^power, > 0. Default 0.1.
        power: exponent of the distance, > 0. Default 2, as in the published speed comparison.

    Cost: O(n^2) time and memory, five matrices in a training step. A mask and weights raise
    `ValueError`, since the published code supports neither.

    Reference: Prillo and Eisenschlos, ICML 2020, equation 4 and the code published with it.

    >>> PublishedSoftSort(temperature=0.001)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    """

    def __init__(self, temperature: float = 0.1, power: float = 2.0):
        super().__init__()
        self.temperature = check_number("temperature", temperature, minimum=0.0, strict=True)
        self.power = check_number("power", power, minimum=0.0, strict=True)

    def soft_permutation(
        self, scores: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> MatrixPermutation:
        """Return the soft permutation of scores (..., n)."""
        _refuse_mask(self, mask)
        tops = scores.sort(-1, descending=True).values
        gaps = tops.unsqueeze(-1) - scores.unsqueeze(-2)
        distances = gaps.square() if self.power == 2 else gaps.abs() ** self.power
        return MatrixPermutation(torch.softmax(-distances / self.temperature, -1), scores)

    def extra_repr(self) -> str:
        """Return the hyper-parameters, for `print`."""
        return f"temperature={self.temperature:g}, power={self.power:g}"


def _refuse_mask(operator: SortOperator, mask: Tensor | None) -> None:
    if mask is not None:
        raise ValueError(f"mask must be None: {type(operator).__name__} does not support masks")
