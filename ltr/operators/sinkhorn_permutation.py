"""The result of SinkhornSort: a coupling of items with milestones, as a soft permutation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from ltr.operators.lazy_permutation import LazyPermutation
from ltr.operators.permutation import DensePermutation
from ltr.operators.sinkhorn_strips import Line, log_kernel
from ltr.shapes import check_whole, count


@dataclass(eq=False, repr=False)
class SinkhornPermutation(
    DensePermutation,
    tensors=("log_matrix", "scores", "mask", "order", "item_weights", "row_weights"),
    static=("all_rows",),
):
    """A `SoftPermutation` with one row per milestone, and weights of the rows and of the items.

    P is diag(1 / b) T, where T is the coupling with row sums b and column sums a. The rows of P
    sum to 1 after any number of iterations. T has the column sums a once it has converged. With as
    many milestones as items and equal weights P is doubly stochastic.

    Args:
        log_matrix: (..., rows, n).
        scores: (..., n).
        mask: (..., n) bool, or None.
        order: (..., n) int64 or None, as for `DensePermutation`.
        item_weights: a (..., n), summing to the number m of real items; 0 where masked.
        row_weights: b (..., rows), summing to m before `top`; 0 on rows past the real items.
        all_rows: the number of rows before `top`.

    >>> from ltr.operators import SinkhornSort
    >>> P = SinkhornSort(epsilon=1e-3, milestones=2).permutation(torch.tensor([1.0, 4, 3, 2]))
    >>> P.dense().round(decimals=2)
    tensor([[0.0000, 0.5000, 0.5000, 0.0000],
            [0.5000, 0.0000, 0.0000, 0.5000]])
    """

    item_weights: Tensor = field(kw_only=True)
    row_weights: Tensor = field(kw_only=True)
    all_rows: int = field(kw_only=True)

    def row_mask(self) -> Tensor | None:
        """Return which rows have weight, (..., rows) bool; None without a mask."""
        return None if self.mask is None else self.row_weights > 0

    def top(self, k: int) -> Self:
        """Return the first k rows, or all rows if there are fewer."""
        k = check_whole("k", k)
        log_matrix, row_weights = self.log_matrix[..., :k, :], self.row_weights[..., :k]
        return self._replaced(log_matrix=log_matrix, row_weights=row_weights)

    def spread(self, v: Tensor) -> Tensor:
        """Return each item's mean of the rows' values, T^T v / a: v (..., rows) -> (..., n).

        This is the R operator of Cuturi et al. 2019; `mv` is their S. Masked items get 0.
        """
        gone = self.item_weights == 0
        got = self.mT.mv(v * self.row_weights) / torch.where(gone, 1.0, self.item_weights)
        return torch.where(gone, 0.0, got)

    def ranks(self) -> Tensor:
        """Return soft ranks (..., n): each item's mean of the cumulative row weights.

        With equal weights this is the transpose applied to 1..n. Masked items get m + 1.

        Raises:
            ValueError: rows are missing, after `top(k)`.
        """
        if self.rows != self.all_rows:
            raise ValueError(
                f"ranks needs all {self.all_rows} rows of the permutation, got {self.rows}"
            )
        ranks = self.spread(self.row_weights.cumsum(-1))
        if self.mask is None:
            return ranks
        return torch.where(self.mask, ranks, count(ranks, self.mask) + 1)


class LongSinkhornPermutation(
    LazyPermutation,
    SinkhornPermutation,
    tensors=(
        "items",
        "row_points",
        "points",
        "scores",
        "mask",
        "order",
        "item_weights",
        "row_weights",
    ),
    static=("all_rows", "power", "epsilon"),
):
    """A `SinkhornPermutation` that stores potentials instead of its matrix.

    Products, ranks, sorted values and `log_prob` cost O(rows n) time and O(rows + n) memory,
    forward and backward, to any order: tiles of the matrix are computed, used, and computed again
    for the derivatives. The tiles take 17 MiB at any size, and vectors some 300 bytes for each row
    and each item (benchmarks/sinkhorn.py). Only `log_dense` and `dense` build the matrix.

    Args:
        items: (..., n) float64 potentials; -inf deletes an item.
        row_points: (..., rows) float64, the milestones on the line.
        points: (..., n) float64, the items on the line.
        scores: (..., n).
        mask: (..., n) bool, or None.
        order: (..., n) int64, the hard order.
        item_weights: a (..., n), summing to the number m of real items; 0 where masked.
        row_weights: b (..., rows), summing to m before `top`; 0 on rows past the real items.
        all_rows: the number of rows before `top`.
        power: the exponent of the cost.
        epsilon: the entropy's strength.

    >>> from ltr.kernels import use
    >>> from ltr.operators import SinkhornSort
    >>> with use("sums"):
    ...     P = SinkhornSort(epsilon=1e-3).permutation(torch.tensor([1.0, 4, 3, 2]))
    >>> P.sort()
    tensor([4., 3., 2., 1.])
    """

    def __init__(
        self,
        items: Tensor,
        row_points: Tensor,
        points: Tensor,
        scores: Tensor,
        mask: Tensor | None,
        order: Tensor | None,
        item_weights: Tensor,
        row_weights: Tensor,
        all_rows: int,
        power: float,
        epsilon: float,
    ):
        self.items = items
        self.row_points = row_points
        self.points = points
        self.scores = scores
        self.mask = mask
        self.order = order
        self.item_weights = item_weights
        self.row_weights = row_weights
        self.all_rows = all_rows
        self.power = power
        self.epsilon = epsilon

    @property
    def is_short(self) -> bool:
        """Return False: the products never build the whole matrix."""
        return False

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return self.row_points.shape[-1]

    def row_mask(self) -> Tensor:
        """Return which rows have weight, (..., rows) bool."""
        return self.row_weights > 0

    def row_numbers(self) -> Tensor:
        """Return the milestones on the line, (..., rows)."""
        return self.row_points

    def item_numbers(self) -> list[Tensor]:
        """Return the items on the line, and their potentials."""
        return [self.points, self.items]

    def logits_of(self, rows: Tensor, *items: Tensor) -> Tensor:
        """Return the logarithms of the coupling, up to a constant for each row."""
        points, potentials = items
        kernel = log_kernel(rows, points, Line(self.power, self.epsilon))
        return kernel + potentials.unsqueeze(-2)

    def top(self, k: int) -> Self:
        """Return the first k rows, or all rows if there are fewer."""
        k = check_whole("k", k)
        return self._replaced(
            row_points=self.row_points[..., :k], row_weights=self.row_weights[..., :k]
        )
