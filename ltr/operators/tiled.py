"""Permutations that are row softmaxes of sorted scores, computed tile by tile in O(n) memory."""

from __future__ import annotations

import torch
from torch import Tensor

from ltr.kernels import SortedLists, kernel_sums
from ltr.kernels.named import sign
from ltr.kernels.rows_function import RowSoftmax
from ltr.kernels.thresholds import Operator
from ltr.operators.kernel_permutation import power_logits, thresholds_of
from ltr.operators.lazy_permutation import LazyPermutation
from ltr.operators.pairwise import abs_power, falling, inverse
from ltr.operators.permutation import check_axis, register_permutation, take_along
from ltr.shapes import count, masked_fill, positions, widened

FEW = 1 << 14
"""Up to this many entries NeuralSort's softmax is in float64: it takes less time than rounding."""

FEW_GAPS = 1 << 17
"""Up to this many pairs NeuralSort adds up their gaps: it takes less time than prefix sums."""


class TiledPermutation(LazyPermutation):
    """The matrix of `neuralsort`, or of `softsort` with any power, which is never built.

    Products, ranks, sorted values and `log_prob` cost O(n) memory, forward and backward, to any
    order. Tiles of rows are computed, used, and computed again for the derivatives. A row ends
    where its entries are too small to change a sum. Only `log_dense` and `dense` build the matrix,
    and products of lists that are short (`ltr.kernels.prefers_dense`). A list with a score that is
    not finite gives NaN.

    Args:
        scores: (..., n).
        mask: (..., n) bool, or None.
        order: (..., n) int64, the hard order, or None: see `LazyPermutation`.
        temperature: > 0.
        power: softsort's, > 0; None for NeuralSort.
        kept: the number of rows, or None for all n.

    >>> scores = torch.tensor([0.1, 0.9, 0.4])
    >>> P = TiledPermutation(scores, None, torch.tensor([1, 2, 0]), temperature=0.2, power=3.0)
    >>> P.ranks()
    tensor([2.3110, 1.1834, 2.5056])
    """

    def operator(self) -> Operator:
        """Return the name of its thresholds."""
        return thresholds_of(self.power)

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
        check_axis("order", order, -1, self.rows)
        if order.dtype != torch.int64:
            raise ValueError(f"order must be int64, got {order.dtype}")
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
        # Return the scores in falling order and the number of real ones, (...). `_spoil` handles
        # lists with a score that is not finite.
        t = falling(self.scores, self.order, self.mask)
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


register_permutation(
    TiledPermutation, ("scores", "mask", "order"), ("temperature", "power", "kept")
)


def _factors(s: Tensor, mask: Tensor | None, rows: int) -> Tensor:
    # return m + 1 - 2 i for the rows i = 1, 2, ...
    if mask is not None:
        return count(s, mask) + 1 - 2 * positions(s, rows)
    first = s.shape[-1] - 1
    return torch.arange(first, first - 2 * rows, -2, dtype=s.dtype, device=s.device)


def _slack(t: Tensor, m: Tensor) -> Tensor:
    # Return A_j - (m + 1 - 2 j) t_j of falling t, with A_j = sum over k of |t_j - t_k|.
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
    # For falling t the logit of column j in row i, relative to column i, is minus the sum of
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
