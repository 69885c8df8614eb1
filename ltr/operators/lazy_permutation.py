"""Permutations that store scores, and compute what is asked of them without the matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from ltr.kernels.choice import prefers_dense
from ltr.kernels.kernel import Kernel
from ltr.kernels.lists import Lengths, SortedLists, in_order, places_in_lists, sort_ragged
from ltr.kernels.named import gaussian, laplace, level_of, sign
from ltr.kernels.rows_function import RowSoftmax
from ltr.kernels.softsort_ranks import compiled_ranks, fused
from ltr.kernels.sums import kernel_sums
from ltr.kernels.thresholds import Operator
from ltr.operators.by_lists import by_lists
from ltr.operators.hard import descending_order
from ltr.operators.pairwise import abs_power, descending, descending_scores, inverse, with_masked
from ltr.operators.permutation import (
    SoftPermutation,
    check_axis,
    check_order,
    kept_rows,
    take_along,
)
from ltr.shapes import count, masked_fill, positions, upcast, widened


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

    @property
    def is_short(self) -> bool:
        """Return whether the matrix takes less time than the sums: see `prefers_dense`."""
        return prefers_dense(thresholds_of(self.power), self.scores)

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


class KernelPermutation(
    LazyPermutation, tensors=("scores", "mask", "order"), static=("temperature", "power", "kept")
):
    """The matrix of `SoftSort` with power 1 or 2, which is never built.

    In sorted order it is diag(1 / c) K, where K is the kernel exp(-|t_i - t_j|^power / temperature)
    of the sorted scores and c = K 1. Products, ranks, sorted values and `log_prob` cost O(n) time
    and memory after the sort, forward and backward, to any order. Only `log_dense` and
    `dense` build the matrix, and products of lists that are short (`ltr.kernels.use`). A
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
        check_order(order, self.rows)
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
        return descending(self.scores, self.order, self.mask)

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
    tops = descending_scores(P.scores, P.mask)
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
    """Return ranks (N,) of ragged lists: those of `SoftSort` or of `SoftSortRank`.

    Args:
        scores: (N,), one list after the other.
        lengths: (R,) whole numbers.
        temperature: > 0.
        power: 1 or 2.
        by_item: Whether the kernel is normalized for each item (`SoftSortRank`) or for each
            position (`SoftSort`).

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


FEW = 1 << 14
"""Up to this many entries NeuralSort's softmax is in float64: it takes less time than rounding."""

FEW_GAPS = 1 << 17
"""Up to this many pairs NeuralSort adds up their gaps: it takes less time than prefix sums."""


class TiledPermutation(
    LazyPermutation, tensors=("scores", "mask", "order"), static=("temperature", "power", "kept")
):
    """The matrix of `NeuralSort`, or of `SoftSort` with any power, which is never built.

    Products, ranks, sorted values and `log_prob` cost O(n) memory, forward and backward, to any
    order. Tiles of rows are computed, used, and computed again for the derivatives. A row ends
    where its entries are too small to change a sum. Only `log_dense` and `dense` build the matrix,
    and products of lists that are short (`ltr.kernels.use`). A list with a score that is
    not finite gives NaN.

    Args:
        scores: (..., n).
        mask: (..., n) bool, or None.
        order: (..., n) int64, the hard order, or None: see `LazyPermutation`.
        temperature: > 0.
        power: SoftSort's, > 0; None for NeuralSort.
        kept: the number of rows, or None for all n.

    >>> scores = torch.tensor([0.1, 0.9, 0.4])
    >>> P = TiledPermutation(scores, None, torch.tensor([1, 2, 0]), temperature=0.2, power=3.0)
    >>> P.ranks()
    tensor([2.3110, 1.1834, 2.5056])
    """

    def logits(self) -> Tensor:
        """Return the logits (..., rows, n), of any size; NeuralSort's may be in float64.

        Those of many entries are relative to the row's own item, and in the scores' dtype.
        """
        if self.power is not None:
            return power_logits(self)
        # The terms are n times as large as their differences, which float64 keeps.
        s, tau = widened(self.scores), self.temperature
        factors = _factors(s, self.mask, self.rows).unsqueeze(-1)
        sums = self._gap_sums(s).unsqueeze(-2)
        logits = torch.addcmul(sums / -tau, factors, s.unsqueeze(-2), value=1 / tau)
        if logits.numel() <= FEW:
            return logits
        own = logits.detach().gather(-1, self.order[..., : self.rows].unsqueeze(-1))
        return (logits - own).to(self.scores.dtype)

    def mv(self, v: Tensor) -> Tensor:
        """Return P v: v (..., n) -> (..., rows)."""
        check_axis("v", v, -1, self.scores.shape[-1])
        v = v.to(torch.promote_types(v.dtype, self.scores.dtype))
        if self.is_short:
            return super().mv(v)
        v = take_along(masked_fill(v, self.mask), self.order, -1)
        return self._spoil(self._softmax(v.unsqueeze(-1)).matmul(v.unsqueeze(-1)).squeeze(-1), 1)

    def matmul(self, V: Tensor) -> Tensor:
        """Return P V by torch.matmul's rules: V (..., n, d) -> (..., rows, d)."""
        check_axis("V", V, -2, self.scores.shape[-1])
        if V.dim() == 1:
            return self.mv(V.to(self.scores.dtype))
        V = V.to(self.scores.dtype)
        if self.is_short:
            return super().matmul(V)
        if self.mask is not None:
            V = masked_fill(V, self.mask.unsqueeze(-1))
        V = take_along(V, self.order.unsqueeze(-1), -2)
        return self._spoil(self._softmax(V).matmul(V), 2)

    def log_prob(self, order: Tensor) -> Tensor:
        """Return the log-probabilities log P[i, order[i]]: order (..., rows) int64 -> (..., rows).

        Rows past the real items give 0.

        Raises:
            ValueError: order is not int64 (..., rows).
        """
        check_order(order, self.rows)
        if self.is_short:
            return super().log_prob(order)
        column = take_along(inverse(self.order), order, -1)
        t, lengths = self._points()
        at = take_along(t, column, -1)
        if self.power is None:
            logits = _gap_logits_at(t.detach(), column)
            slack, place = _slack(t, lengths.unsqueeze(-1)), positions(t, self.rows)
            linear = 2 * (column + 1 - place) * at - take_along(slack, column, -1)
            linear = linear + slack[..., : self.rows]
            logits = logits + (linear - linear.detach())
        else:
            logits = -abs_power(t[..., : self.rows] - at, self.power)
        log_p = logits / self.temperature - self._softmax(None).log_sums()
        if self.mask is not None:
            log_p = torch.where(column < lengths.unsqueeze(-1), log_p, -torch.inf)
        return masked_fill(self._spoil(log_p, 1), self.row_mask())

    def _transposed_mv(self, w: Tensor) -> Tensor:
        w = w.to(torch.promote_types(w.dtype, self.scores.dtype))
        if self.is_short:
            return super()._transposed_mv(w)
        w = masked_fill(w, self.row_mask()).unsqueeze(-1)
        return self._to_items(w).squeeze(-1)

    def _transposed_matmul(self, W: Tensor) -> Tensor:
        W = W.to(self.scores.dtype)
        if W.dim() == 1:
            return self._transposed_mv(W)
        if self.is_short:
            return super()._transposed_matmul(W)
        rows = self.row_mask()
        return self._to_items(W if rows is None else masked_fill(W, rows.unsqueeze(-1)))

    def _to_items(self, W: Tensor) -> Tensor:
        batch = torch.broadcast_shapes(W.shape[:-2], self.scores.shape[:-1])
        W = W.expand(*batch, *W.shape[-2:])
        Z = self._softmax(W).transposed_matmul(W)
        order = self.order.unsqueeze(-1).expand(Z.shape)  # back to the order of the items
        return self._spoil(torch.empty_like(Z).scatter(-2, order, Z), 2)

    def _gap_sums(self, s: Tensor) -> Tensor:
        # return A_j, the sum over k of |s_j - s_k|, with the slope 0 at ties
        if s.numel() * s.shape[-1] <= FEW_GAPS:
            gaps = (s.unsqueeze(-1) - s.unsqueeze(-2)).abs()
            return masked_fill(gaps, None if self.mask is None else self.mask.unsqueeze(-2)).sum(-1)
        # the higher and the lower scores are the ends of the sorted list
        m = count(s, self.mask)
        real = positions(s) <= m
        points = torch.where(real, s.gather(-1, self.order), 0.0)
        keys = torch.where(real, -points.detach(), torch.inf)
        found = -s.detach().contiguous()
        higher = torch.searchsorted(keys, found)
        others = torch.searchsorted(keys, found, right=True)  # those that are not lower
        total = torch.nn.functional.pad(points.cumsum(-1), (1, 0))
        lower_sum = total[..., -1:] - total.gather(-1, others)
        return (m - others - higher) * s - lower_sum + total.gather(-1, higher)

    def _points(self) -> tuple[Tensor, Tensor]:
        # Return the scores in descending order and the number of real ones, (...). `_spoil` handles
        # lists with a score that is not finite.
        t = descending(self.scores, self.order, self.mask)
        lengths = count(t, self.mask).long().squeeze(-1)
        return torch.where(self._broken(), 0.0, t), lengths

    def _softmax(self, columns: Tensor | None) -> RowSoftmax:
        # the row softmax, with the batch axes and the dtype of its columns (..., rows or n, d)
        t, lengths = self._points()
        if columns is not None:
            t = t.to(columns.dtype).expand(*columns.shape[:-2], t.shape[-1])
            lengths = lengths.expand(columns.shape[:-2])
        slack = None
        if self.power is None:
            slack = _slack(t, lengths.unsqueeze(-1))
        return RowSoftmax(t, slack, lengths, self.temperature, self.power, self.rows)

    def _broken(self) -> Tensor:
        return ~self.scores.isfinite().all(-1, keepdim=True)

    def _spoil(self, y: Tensor, axes: int) -> Tensor:
        broken = self._broken()
        return torch.where(broken if axes == 1 else broken.unsqueeze(-1), torch.nan, y)


def _factors(s: Tensor, mask: Tensor | None, rows: int) -> Tensor:
    # return m + 1 - 2 i for the rows i = 1, 2, ...
    if mask is not None:
        return count(s, mask) + 1 - 2 * positions(s, rows)
    first = s.shape[-1] - 1
    return torch.arange(first, first - 2 * rows, -2, dtype=s.dtype, device=s.device)


def _slack(t: Tensor, m: Tensor) -> Tensor:
    # Return A_j - (m + 1 - 2 j) t_j of descending t, with A_j = sum over k of |t_j - t_k|.
    # NeuralSort's logit is (2 (j - i) t_j - this) / temperature. The slack is computed as the sum
    # over k of sign(t_j - t_k) (t_j - t_k). Without ties its derivative by t_j is 0, so nothing
    # cancels in gradients. With ties it has the formula's derivative, with sign(0) = 0.
    if not t.shape[-1]:
        return t
    lists = SortedLists(None, torch.zeros_like(m), m)
    one = t.new_ones(()).expand(t.shape)
    points, outputs = t.detach(), [(0, sign())]
    (balance,) = kernel_sums(points, [one], outputs, lists)
    balance = balance - (m + 1 - 2 * positions(t))
    return balance * t - kernel_sums(points, [t], outputs, lists)[0]


def _gap_logits_at(t: Tensor, column: Tensor) -> Tensor:
    # For descending t the logit of column j in row i, relative to column i, is minus the sum of
    # (2 |l - i| + 1) (t_l - t_(l+1)) over the gaps l between them, counted from i outwards. Here
    # it is for one column of each row, (..., rows), by prefix sums.
    gaps = widened(t[..., :-1] - t[..., 1:])
    place = torch.arange(t.shape[-1], device=t.device)
    zero = torch.nn.functional.pad(gaps.cumsum(-1), (1, 0))
    one = torch.nn.functional.pad((gaps * place[:-1]).cumsum(-1), (1, 0))
    rows = column.shape[-1]
    slope = 2 * place[:rows] - 1
    far = 2 * (take_along(one, column, -1) - one[..., :rows])
    far = far - slope * (take_along(zero, column, -1) - zero[..., :rows])
    return -far.clamp(min=0).to(t.dtype)
