"""A base class of relaxed permutations that store scores, and compute what is asked of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from ltr.kernels import prefers_dense
from ltr.kernels.thresholds import Operator
from ltr.operators.by_lists import by_lists
from ltr.operators.hard import descending_order
from ltr.operators.pairwise import with_masked
from ltr.operators.permutation import SoftPermutation, kept_rows
from ltr.shapes import masked_fill, positions


class LazyPermutation(SoftPermutation):
    """A base class of permutations that store scores and their order instead of a matrix.

    Short lists take the methods of `SoftPermutation`, which build the matrix, some lists at a time:
    see `is_short`. A subclass defines `logits`, and the methods for long lists.

    Args:
        scores: (..., n).
        mask: (..., n) bool, or None.
        order: (..., n) int64, the hard order. If None, scores of long lists are sorted here, and
            those of short lists by each method that needs their order, which few do.
        temperature: > 0.
        power: The power of the distance, or None if there is no power.
        kept: The number of rows, or None for all n.
    """

    def __init__(
        self,
        scores: Tensor,
        mask: Tensor | None,
        order: Tensor | None,
        temperature: float,
        power: float | None,
        kept: int | None = None,
    ):
        self.scores = scores
        self.mask = mask
        self.temperature = temperature
        self.power = power
        self.kept = kept
        self._order = order
        if order is None and not self.is_short:
            self._order = descending_order(scores, mask)

    @property
    def order(self) -> Tensor:
        """Return the hard order, (..., n) int64. Most matrices of short lists do not need it."""
        if self._order is None:
            return descending_order(self.scores, self.mask)
        return self._order

    def logits(self) -> Tensor:
        """Return the logits (..., rows, n), whatever the mask; NaN for a broken list.

        They may be in float64.
        """
        raise NotImplementedError(f"{type(self).__name__} must define logits")

    def operator(self) -> Operator:
        """Return the name of its thresholds."""
        raise NotImplementedError(f"{type(self).__name__} must define operator")

    @property
    def is_short(self) -> bool:
        """Return whether the matrix takes less time than the sums: see `prefers_dense`."""
        return prefers_dense(self.operator(), self.scores)

    def dense(self) -> Tensor:
        """Return the matrix itself, (..., rows, n), in O(n^2) memory."""
        logits, rows = self._masked_logits()
        return masked_fill(torch.softmax(logits, -1).to(self.scores.dtype), rows)

    def log_dense(self) -> Tensor:
        """Return the logarithm of the matrix, (..., rows, n), in O(n^2) memory."""
        logits, rows = self._masked_logits()
        return masked_fill(torch.log_softmax(logits, -1).to(self.scores.dtype), rows, -torch.inf)

    def ranks(self) -> Tensor:
        """Return soft ranks (..., n): the transpose applied to 1..n; m + 1 where masked.

        Raises:
            ValueError: rows are missing, after `top(k)`.
        """
        if not self.is_short:
            return super().ranks()
        self._needs_all_rows("ranks")
        return with_masked(self._by_lists(_positions_of), self.mask)

    def mv(self, v: Tensor) -> Tensor:
        """Return P v: v (..., n) -> (..., rows)."""
        return self._by_lists(SoftPermutation.mv, (v, 1))

    def matmul(self, V: Tensor) -> Tensor:
        """Return P V by torch.matmul's rules: V (..., n, d) -> (..., rows, d)."""
        return self._by_lists(SoftPermutation.matmul, (V, 2))

    def log_prob(self, order: Tensor) -> Tensor:
        """Return the log-probabilities log P[i, order[i]]: order (..., rows) -> (..., rows)."""
        return self._by_lists(SoftPermutation.log_prob, (order, 1))

    def _transposed_mv(self, w: Tensor) -> Tensor:
        return self._by_lists(SoftPermutation._transposed_mv, (w, 1))

    def _transposed_matmul(self, W: Tensor) -> Tensor:
        return self._by_lists(SoftPermutation._transposed_matmul, (W, 2))

    def _by_lists(self, method: Callable[..., Tensor], *more: tuple[Tensor, int]) -> Tensor:
        # a method that builds the matrix, for some lists at a time
        def compute(
            scores: Tensor, mask: Tensor | None, order: Tensor | None, *arguments: Tensor
        ) -> Tensor:
            fixed = self.temperature, self.power, self.kept
            return method(type(self)(scores, mask, order, *fixed), *arguments)

        scores = self.scores
        if more:
            batches = (x.shape[: x.dim() - own] for x, own in more)
            batch = torch.broadcast_shapes(scores.shape[:-1], *batches)
            scores = scores.expand(*batch, scores.shape[-1])
        return by_lists(compute, self.rows, scores, (self.mask, 1), (self._order, 1), *more)

    def _masked_logits(self) -> tuple[Tensor, Tensor | None]:
        # the logits, -inf for masked items, and which rows are real (..., rows, 1)
        logits, rows = self.logits(), self.row_mask()
        if self.mask is None or rows is None:
            return logits, None
        # rows past the real items keep finite logits until the softmax is done
        rows = rows.unsqueeze(-1)
        return torch.where(self.mask.unsqueeze(-2) | ~rows, logits, -torch.inf), rows

    @property
    def rows(self) -> int:
        """Return the number of rows: n, or k after `top(k)`."""
        return self.scores.shape[-1] if self.kept is None else self.kept

    def top(self, k: int) -> Self:
        """Return the first k rows, or all rows if there are fewer."""
        kept = kept_rows(self, k)
        return type(self)(self.scores, self.mask, self._order, self.temperature, self.power, kept)

    def hard(self) -> Tensor:
        """Return the order (..., n) int64."""
        self._needs_all_rows("hard")
        return self.order


def _positions_of(P: LazyPermutation) -> Tensor:
    # the transpose applied to 1..n; the matrix is 0 in rows past the real items
    matrix = P.dense()
    return (matrix * positions(matrix).unsqueeze(-1)).sum(-2)
