"""The result of SinkhornSort: a coupling of items with milestones, as a soft permutation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from ltr.operators.permutation import DensePermutation, check_axis
from ltr.shapes import check_whole, with_masked


@dataclass(eq=False, repr=False)
class SinkhornPermutation(
    DensePermutation,
    tensors=("log_matrix", "scores", "mask", "order", "item_weights", "row_weights"),
    static=("all_rows",),
):
    """A `SoftPermutation` with one row per milestone, and weights of the rows and of the items.

    P is diag(1 / b) T, where T is the coupling with row sums b and column sums a. The rows of P sum
    to 1 after any number of iterations. Once the iterations have converged, T has the column sums
    a. With as many milestones as items and equal weights, P is doubly stochastic.

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
        """Return whether each row has a weight > 0, (..., rows) bool; None without a mask."""
        return None if self.mask is None else self.row_weights > 0

    def top(self, k: int) -> Self:
        """Return the first k rows, or all rows if there are fewer."""
        k = check_whole("k", k)
        log_matrix, row_weights = self.log_matrix[..., :k, :], self.row_weights[..., :k]
        return self._replaced(log_matrix=log_matrix, row_weights=row_weights)

    def spread(self, v: Tensor) -> Tensor:
        """Return, for each item, the mean of v over the rows, T^T v / a: (..., rows) -> (..., n).

        This is the R operator of Cuturi et al. 2019; `mv` is their S. Masked items get 0.
        """
        check_axis("v", v, -1, self.rows)
        gone = self.item_weights == 0
        got = self.mT.mv(v * self.row_weights) / torch.where(gone, 1.0, self.item_weights)
        return torch.where(gone, 0.0, got)

    def ranks(self) -> Tensor:
        """Return soft ranks (..., n): for each item, the mean of the cumulative row weights.

        With equal weights and one row per item, the ranks are the transpose applied to 1..n. Masked
        items get m + 1.

        Raises:
            ValueError: rows are missing, after `top(k)`.
        """
        if self.rows != self.all_rows:
            raise ValueError(
                f"ranks needs all {self.all_rows} rows of the permutation, got {self.rows}"
            )
        return with_masked(self.spread(self.row_weights.cumsum(-1)), self.mask)
