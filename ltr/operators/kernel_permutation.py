"""SoftSort's permutation for powers 1 and 2, in sort time: its rows are kernel sums."""

from __future__ import annotations

import torch
from torch import Tensor

from ltr.kernels import (
    Lengths,
    gaussian,
    in_order,
    kernel_sums,
    laplace,
    level_of,
    places_in_lists,
    sort_ragged,
)
from ltr.kernels.kernel import Kernel
from ltr.kernels.softsort_ranks import compiled_ranks, fused
from ltr.kernels.thresholds import Operator
from ltr.operators.lazy_permutation import LazyPermutation
from ltr.operators.pairwise import abs_power, falling, falling_scores
from ltr.operators.permutation import check_axis, register_permutation, take_along
from ltr.shapes import count, masked_fill, positions, upcast


class KernelPermutation(LazyPermutation):
    """The matrix of `softsort` with power 1 or 2, which is never built.

    In sorted order it is diag(1 / c) K, where K is the kernel exp(-|t_i - t_j|^power / temperature)
    of the sorted scores and c = K 1. Products, ranks, sorted values and `log_prob` cost O(n) time
    and memory after the sort, forward and backward, to any order. Only `log_dense` and
    `dense` build the matrix, and products of lists that are short (`ltr.kernels.prefers_dense`). A
    list with a score that is not finite gives NaN.

    Args:
        scores: (..., n).
        mask: (..., n) bool, or None.
        order: (..., n) int64, the hard order, or None: see `LazyPermutation`.
        temperature: > 0.
        power: 1 or 2.
        kept: the number of rows, or None for all n.

    >>> scores = torch.tensor([0.1, 0.9, 0.4])
    >>> P = KernelPermutation(scores, None, torch.tensor([1, 2, 0]), temperature=0.2, power=1)
    >>> P.ranks()
    tensor([2.7751, 1.0788, 2.1461])
    """

    power: float

    def operator(self) -> Operator:
        """Return the name of its thresholds."""
        return thresholds_of(self.power)

    def logits(self) -> Tensor:
        """Return minus the distances / temperature, (..., rows, n)."""
        return power_logits(self)

    def mv(self, v: Tensor) -> Tensor:
        """Return P v: v (..., n) -> (..., rows)."""
        check_axis("v", v, -1, self.scores.shape[-1])
        if self.is_short:
            return super().mv(self._typed(v))
        (found,) = self._rows_of([v])
        return found

    def matmul(self, V: Tensor) -> Tensor:
        """Return P V by torch.matmul's rules: V (..., n, d) -> (..., rows, d)."""
        check_axis("V", V, -2, self.scores.shape[-1])
        if V.dim() == 1:
            return self.mv(V)
        if self.is_short:
            return super().matmul(V)
        if not V.shape[-1]:
            return V.new_zeros((*V.shape[:-2], self.rows, 0)) + 0 * self.mv(V.sum(-1)).unsqueeze(-1)
        return torch.stack(self._rows_of(V.unbind(-1)), -1)

    def log_prob(self, order: Tensor) -> Tensor:
        """Return the log-probabilities log P[i, order[i]]: order (..., rows) int64 -> (..., rows).

        Rows past the real items give 0.

        Raises:
            ValueError: order is not int64 (..., rows).
        """
        check_axis("order", order, -1, self.rows)
        if order.dtype != torch.int64:
            raise ValueError(f"order must be int64, got {order.dtype}")
        if self.is_short:
            return super().log_prob(order)
        points = self._points()
        picked = take_along(self.scores, order, -1)
        gaps = abs_power(points[..., : self.rows] - picked, self.power)
        found = -gaps / self.temperature - self._normalizers(points)[..., : self.rows].log()
        if self.mask is not None:  # a masked item has probability 0
            found = torch.where(take_along(self.mask, order, -1), found, -torch.inf)
        return masked_fill(found, self.row_mask())

    def ranks(self) -> Tensor:
        """Return soft ranks (..., n): the transpose applied to 1..n; m + 1 where masked.

        Raises:
            ValueError: rows are missing, after `top(k)`.
        """
        if self.power != 1 or self.kept is not None or not fused(self.scores):
            return super().ranks()
        return compiled_ranks(self.scores, self.mask, self._order, self.temperature)

    def _points(self) -> Tensor:
        return falling(self.scores, self.order, self.mask)

    def _sums(self, points: Tensor, columns: list[Tensor]) -> tuple[Tensor, ...]:
        kernel, scale = kernel_of(self.power, self.temperature, points.dtype)
        outputs = [(i, kernel) for i in range(len(columns))]
        batch = torch.broadcast_shapes(points.shape, *(column.shape for column in columns))
        columns = [column.expand(batch) for column in columns]
        lists = in_order(
            points.expand(batch), None if self.mask is None else self.mask.expand(batch)
        )
        return kernel_sums(points.expand(batch), columns, outputs, lists, scale)

    def _normalizers(self, points: Tensor) -> Tensor:
        # return c (..., n): at least 1 for real items, 1 for others
        (c,) = self._sums(points, [points.new_ones(())])
        return c if self.mask is None else torch.where(self._real(points), c, 1.0)

    def _real(self, points: Tensor) -> Tensor:
        return positions(points) <= count(points, self.mask)

    def _rows_of(self, columns: list[Tensor] | tuple[Tensor, ...]) -> list[Tensor]:
        points = self._points()
        inside = [take_along(self._typed(v), self.order, -1) for v in columns]
        *found, c = self._sums(points, [*inside, points.new_ones(())])
        if self.mask is not None:
            c = torch.where(self._real(points), c, 1.0)
        return [(y / c)[..., : self.rows] for y in found]

    def _typed(self, v: Tensor) -> Tensor:
        return masked_fill(v.to(self.scores.dtype), self.mask)

    def _transposed_mv(self, w: Tensor) -> Tensor:
        if self.is_short:
            return super()._transposed_mv(w.to(self.scores.dtype))
        (found,) = self._columns_of([w])
        return found

    def _transposed_matmul(self, W: Tensor) -> Tensor:
        if W.dim() == 1:
            return self._transposed_mv(W)
        if self.is_short:
            return super()._transposed_matmul(W)
        if not W.shape[-1]:
            n = self.scores.shape[-1]
            return (
                W.new_zeros((*W.shape[:-2], n, 0)) + 0 * self._transposed_mv(W.sum(-1))[..., None]
            )
        return torch.stack(self._columns_of(W.unbind(-1)), -1)

    def _columns_of(self, columns: list[Tensor] | tuple[Tensor, ...]) -> list[Tensor]:
        points, rows = self._points(), self.row_mask()
        c = self._normalizers(points)
        columns = [masked_fill(w.to(points.dtype), rows) for w in columns]
        if self.kept is not None:
            missing = (0, self.scores.shape[-1] - self.rows)
            columns = [torch.nn.functional.pad(w, missing) for w in columns]
        found = self._sums(points, [w / c for w in columns])
        # put the results back in the order of the items
        order = self.order.expand(found[0].shape)
        return [torch.empty_like(y).scatter(-1, order, y) for y in found]


register_permutation(
    KernelPermutation, ("scores", "mask", "order"), ("temperature", "power", "kept")
)


def thresholds_of(power: float | None) -> Operator:
    """Return the name of the thresholds of rows by a power of the distance; None is NeuralSort.

    >>> thresholds_of(1.5)
    'softsort'
    """
    if power is None:
        return "neuralsort"
    return "softsort 1" if power == 1 else "softsort 2" if power == 2 else "softsort"


def power_logits(P: LazyPermutation) -> Tensor:
    """Return the logits -|s_[i] - s_j|^power / temperature of a permutation, (..., rows, n).

    >>> scores = torch.tensor([0.0, 1.0])
    >>> power_logits(KernelPermutation(scores, None, torch.tensor([1, 0]), 0.25, 1))
    tensor([[-4., -0.],
            [-0., -4.]])
    """
    assert P.power is not None
    tops = falling_scores(P.scores, P.mask)
    tops = masked_fill(tops[..., : P.rows], P.row_mask())
    return abs_power(tops.unsqueeze(-1) - P.scores.unsqueeze(-2), P.power) / -P.temperature


def kernel_of(power: float, temperature: float, dtype: torch.dtype) -> tuple[Kernel, float]:
    """Return the kernel exp(-|x|^power) and its scale, temperature^(1/power), for power 1 or 2.

    >>> kernel_of(2, 0.01, torch.float32)[1]
    0.1
    """
    if power == 1:
        return laplace(), temperature
    return gaussian(level_of(dtype)), temperature**0.5


def ragged_ranks(
    scores: Tensor, lengths: Lengths, temperature: float, power: float, *, by_item: bool
) -> Tensor:
    """Return ranks (N,) of ragged lists: `softsort`'s transpose at 1..n, or `softsort_ranks`.

    Args:
        scores: (N,), one list after the other.
        lengths: (R,) whole numbers.
        temperature: > 0.
        power: 1 or 2.
        by_item: Whether the kernel is normalized for each item (`softsort_ranks`) or for each
            position (`softsort`).

    >>> ragged_ranks(torch.tensor([0.0, 9.0]), torch.tensor([2]), 0.1, 1, by_item=True)
    tensor([2., 1.])
    """
    scores = upcast(scores)
    lists = sort_ragged(scores, lengths)
    kernel, scale = kernel_of(power, temperature, scores.dtype)
    place, one = places_in_lists(lists, scores), scores.new_ones(()).expand(scores.shape)
    if by_item:
        y, c = kernel_sums(scores, [place, one], [(0, kernel), (1, kernel)], lists, scale)
        return y / c
    (c,) = kernel_sums(scores, [one], [(0, kernel)], lists, scale)
    return kernel_sums(scores, [place / c], [(0, kernel)], lists, scale)[0]
