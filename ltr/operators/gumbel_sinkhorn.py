"""Gumbel-Sinkhorn (Mena et al. 2018): soft matchings from a score matrix."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ltr.operators.permutation import DensePermutation, assignment
from ltr.operators.sinkhorn_transport import log_matrix, row_potentials
from ltr.operators.stochastic import check_generator, gumbel_noise
from ltr.shapes import (
    check_number,
    check_temperature,
    check_top_k,
    check_whole,
    masked_fill,
    positions,
    upcast,
    widened,
)


@dataclass(eq=False, repr=False)
class Matching(DensePermutation, tensors=("log_matrix", "scores", "mask", "order", "real_rows")):
    """A soft matching of rows with columns: row i has a probability for each column.

    For a matching P, `P.ranks()` is the sum of the row numbers, counted from 1, times the
    probabilities in each column: the mean row number, if the column sums to 1. `P.mv(v)` moves each
    column's value to its row. `P.sort()` raises a ValueError, because a matching has no scores.

    Args:
        log_matrix: (..., rows, n).
        scores: (..., n), zeros.
        mask: (..., n) bool, the real columns, or None.
        order: (..., n) int64, the column of each row in the hard matching, or None if unknown.
        real_rows: (..., rows) bool, the real rows, or None.

    >>> matrix = torch.tensor([[0.0, 9.0], [8.0, 8.0]])
    >>> P = GumbelSinkhorn()(matrix)
    >>> P.hard()
    tensor([1, 0])
    >>> P.mv(torch.tensor([10.0, 20.0])).round()
    tensor([20., 10.])
    """

    real_rows: Tensor | None = None

    def row_mask(self) -> Tensor | None:
        """Return which rows are real, (..., rows) bool; None without masks."""
        return self.real_rows

    def top(self, k: int) -> "Matching":
        """Return the first k rows, or all rows if there are fewer."""
        k = check_whole("k", k)
        real = None if self.real_rows is None else self.real_rows[..., :k]
        return self._replaced(log_matrix=self.log_matrix[..., :k, :], real_rows=real)

    def sort(self) -> Tensor:
        """Raise a ValueError: a matching has no scores to sort; use `mv` to move values.

        Raises:
            ValueError: always.
        """
        raise ValueError("a Matching has no scores to sort: use mv with one value for each column")

    def hard(self) -> Tensor:
        """Return the most likely matching as order (..., n) int64: row i gets column order[i].

        The matching is the linear assignment with the largest sum of logarithms (scipy, on the
        CPU). With as many real rows as real columns, normalizing the rows and columns does not
        change this assignment. So the result is exactly the best matching of the score matrix,
        noise included, at any temperature and after any number of iterations. Masked rows get the
        masked columns in order.

        Raises:
            ValueError: rows are missing, after `top(k)`.
        """
        self._needs_all_rows("hard")
        if self.order is not None:
            return self.order
        return assignment(self.log_matrix, self.real_rows, self.mask)


def _check_matrix(matrix: Tensor, **masks: Tensor | None) -> None:
    if not isinstance(matrix, Tensor) or matrix.dim() < 2 or matrix.shape[-1] != matrix.shape[-2]:
        got = tuple(matrix.shape) if isinstance(matrix, Tensor) else type(matrix).__name__
        raise ValueError(f"matrix must be a tensor (..., n, n), got {got}")
    if not matrix.is_floating_point():
        raise ValueError(f"matrix must be floating point, got {matrix.dtype}")
    for name, mask in masks.items():
        if mask is None:
            continue
        if not isinstance(mask, Tensor):
            raise ValueError(f"{name} must be a tensor, got {type(mask).__name__}")
        if mask.shape != matrix.shape[:-1] or mask.dtype != torch.bool:
            raise ValueError(
                f"{name} must be bool {tuple(matrix.shape[:-1])}, "
                f"got {mask.dtype} {tuple(mask.shape)}"
            )


def _shares(x: Tensor, mask: Tensor | None, other: Tensor | None) -> Tensor:
    """Return 1/m for each of the m real items, (..., n); 1/n for all if nothing can be matched."""
    real = torch.ones_like(x, dtype=torch.bool) if mask is None else mask
    if mask is not None and other is not None:
        real = mask | ~(mask.any(-1, keepdim=True) & other.any(-1, keepdim=True))
    return real.to(x.dtype) / real.sum(-1, keepdim=True)


class GumbelSinkhorn(nn.Module):
    """Soft matchings between rows and columns, from a matrix of scores; deterministic or random.

    For a matrix X (..., n, n), the rows and columns of exp(X / temperature) are normalized in turn.
    The hard limit, as the temperature approaches 0, is
    `scipy.optimize.linear_sum_assignment(X, maximize=True)`. As the temperature grows, all elements
    tend to 1 / n. If `samples` is given, the module adds Gumbel noise to X, and the result has a
    first axis of samples. Like dropout, it adds noise in training mode only. With noise, the hard
    matchings are random permutations, and the soft matchings are relaxations of them.

    `GumbelSinkhorn` takes a matrix, so it is not a `RankOperator`. It returns a `Matching`, a
    `SoftPermutation` that matches rows with columns.

    Args:
        temperature: tau, in units of X, >= 0; 0 gives the hard matching (no gradient). Default: 1.
        iterations: the number of Sinkhorn iterations, in the log domain; derivatives go through all
            iterations. Each iteration normalizes the rows last: rows sum to 1 to the last digit,
            columns only in the limit. Default: 20. None: Newton's method, with implicit derivatives
            that are correct to second order.
        samples: the number of draws, or None for no noise (default).
        scale: the scale of the noise, in units of X. Default: 1.
        generator: the random number generator. Default: torch's own.

    Cost: O(n^2) per iteration and sample, in time and memory.

    Raises:
        ValueError: an argument is invalid; the message names it and its value.

    Reference: Mena, Belanger, Linderman and Snoek, "Learning Latent Permutations with
    Gumbel-Sinkhorn Networks", ICLR 2018. In the paper, each iteration normalizes the columns last.

    >>> GumbelSinkhorn(temperature=0.1)(torch.tensor([[0.0, 2.0], [1.0, 1.0]])).hard()
    tensor([1, 0])
    >>> GumbelSinkhorn()(torch.tensor([[0.0, 2.0], [1.0, 1.0]])).dense().round(decimals=3)
    tensor([[0.2690, 0.7310],
            [0.7310, 0.2690]])
    """

    def __init__(
        self,
        temperature: float = 1.0,
        iterations: int | None = 20,
        samples: int | None = None,
        scale: float = 1.0,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        self.temperature = check_temperature(temperature)
        self.iterations = check_top_k(iterations, "iterations")
        self.samples = check_top_k(samples, "samples")
        self.scale = check_number("scale", scale, minimum=0.0)
        self.generator = check_generator(generator)

    def forward(
        self, matrix: Tensor, mask: Tensor | None = None, row_mask: Tensor | None = None
    ) -> Matching:
        """Return the soft matching of a matrix, (..., n, n); with samples, (samples, ..., n, n).

        The matching is 0 in masked rows and columns. If r rows and c columns are real, each real
        row sums to 1, and each real column to r / c in the limit of many iterations. At temperature
        0, min(r, c) rows and columns are matched, and all others are 0.

        Args:
            matrix: X (..., n, n); X[i, j] says how well row i and column j match. A matrix in half
                precision is computed in float32.
            mask: (..., n) bool, the real columns. Default: all are real.
            row_mask: (..., n) bool, the real rows. Default: the first m rows, if m columns are
                real.

        Raises:
            ValueError: the matrix is not square or not floating point, or a mask has the wrong
                shape or dtype.
        """
        _check_matrix(matrix, mask=mask, row_mask=row_mask)
        if mask is not None and row_mask is None:
            row_mask = positions(mask.to(matrix.dtype)) <= mask.sum(-1, keepdim=True)
        elif mask is None and row_mask is not None:
            mask = torch.ones_like(row_mask)
        real = None
        if mask is not None and row_mask is not None:
            real = mask.unsqueeze(-2) & row_mask.unsqueeze(-1)
            matrix = masked_fill(matrix, real)
        matrix = upcast(matrix)
        if self.samples is not None and self.training:
            matrix = matrix + gumbel_noise(
                matrix, self.samples, scale=self.scale, generator=self.generator
            )
        shape = matrix.shape[:-1]
        mask, row_mask = (None if m is None else m.expand(shape) for m in (mask, row_mask))
        scores = matrix.new_zeros(shape)
        if self.temperature == 0:
            order = assignment(matrix, row_mask, mask)
            chosen = order.unsqueeze(-1) == torch.arange(shape[-1], device=matrix.device)
            log_p = torch.where(chosen, 0.0, -torch.inf).to(matrix.dtype)
            log_p = torch.where(matrix.isnan().any((-2, -1), keepdim=True), torch.nan, log_p)
            if real is not None:  # a row that is left over is matched with a masked column
                log_p = torch.where(real, log_p, -torch.inf)
            return Matching(log_p, scores, mask, order, row_mask)
        a, b = _shares(scores, mask, row_mask), _shares(scores, row_mask, mask)
        kernel = matrix / self.temperature
        # In float32, large logits have too few digits for Newton's method.
        if self.iterations is None:
            kernel, a, b = widened(kernel), widened(a), widened(b)
        rows = row_potentials(
            kernel, a, b, iterations=self.iterations, implicit=self.iterations is None
        )
        log_p = log_matrix(rows, kernel, a).to(matrix.dtype)
        if real is not None:
            log_p = torch.where(real, log_p, -torch.inf)
        return Matching(log_p, scores, mask, None, row_mask)

    def extra_repr(self) -> str:
        """Return the hyper-parameters, for `print`."""
        noise = "" if self.samples is None else f", samples={self.samples}, scale={self.scale:g}"
        return f"temperature={self.temperature:g}, iterations={self.iterations}{noise}"
