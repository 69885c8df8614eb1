"""A hard permutation, stored as an order."""

from __future__ import annotations

import torch
from torch import Tensor

from ltr.operators.permutation import (
    SoftPermutation,
    check_axis,
    kept_rows,
    register_permutation,
    take_along,
)
from ltr.shapes import masked_fill


class HardPermutation(SoftPermutation):
    """A hard permutation, stored as an order: every product is a gather, in O(n).

    A list with a NaN among its scores gives NaN everywhere.

    Args:
        order: (..., n) int64: item `order[..., i]` stands at position i; masked items come last.
        scores: (..., n).
        mask: (..., n) bool, or None.
        kept: The number of rows, or None for all n.

    >>> P = HardPermutation(torch.tensor([1, 2, 0]), torch.tensor([0.1, 0.9, 0.4]))
    >>> P.sort()
    tensor([0.9000, 0.4000, 0.1000])
    >>> P.ranks()
    tensor([3., 1., 2.])
    """

    def __init__(
        self, order: Tensor, scores: Tensor, mask: Tensor | None = None, kept: int | None = None
    ):
        self.order = order
        self.scores = scores
        self.mask = mask
        self.kept = kept

    @property
    def rows(self) -> int:
        """Return the number of rows: n, or k after `top(k)`."""
        return self.scores.shape[-1] if self.kept is None else self.kept

    def top(self, k: int) -> HardPermutation:
        """Return the first k rows, or all rows if there are fewer."""
        return HardPermutation(self.order, self.scores, self.mask, kept_rows(self, k))

    def log_dense(self) -> Tensor:
        """Return the logarithm of the matrix, (..., rows, n): 0 or -inf."""
        n = self.scores.shape[-1]
        items = torch.arange(n, device=self.scores.device)
        chosen = self.order[..., : self.rows].unsqueeze(-1) == items
        log_p = self._spoil(torch.where(chosen, 0.0, -torch.inf).to(self.scores.dtype), 2)
        rows = self.row_mask()
        return log_p if rows is None else masked_fill(log_p, rows.unsqueeze(-1), -torch.inf)

    def mv(self, v: Tensor) -> Tensor:
        """Return P v: v (..., n) -> (..., rows)."""
        check_axis("v", v, -1, self.scores.shape[-1])
        v = masked_fill(_promote(v, self.scores), self.mask)
        return self._spoil(take_along(v, self.order[..., : self.rows], -1), 1)

    def matmul(self, V: Tensor) -> Tensor:
        """Return P V by torch.matmul's rules: V (..., n, d) -> (..., rows, d)."""
        check_axis("V", V, -2, self.scores.shape[-1])
        if V.dim() == 1:
            return self.mv(V)
        V = V.to(self.scores.dtype)
        if self.mask is not None:
            V = masked_fill(V, self.mask.unsqueeze(-1))
        order = self.order[..., : self.rows].unsqueeze(-1)
        return self._spoil(take_along(V, order, -2), 2)

    def hard(self) -> Tensor:
        """Return the order (..., n) int64."""
        self._needs_all_rows("hard")
        return self.order

    def _transposed_mv(self, w: Tensor) -> Tensor:
        w = _pad_rows(masked_fill(_promote(w, self.scores), self.row_mask()), self)
        return self._spoil(take_along(w, self._inverse(), -1), 1)

    def _transposed_matmul(self, W: Tensor) -> Tensor:
        if W.dim() == 1:
            return self._transposed_mv(W)
        rows, W = self.row_mask(), W.to(self.scores.dtype)
        W = _pad_rows((W if rows is None else masked_fill(W, rows.unsqueeze(-1))).mT, self).mT
        return self._spoil(take_along(W, self._inverse().unsqueeze(-1), -2), 2)

    def _inverse(self) -> Tensor:
        places = torch.arange(self.order.shape[-1], device=self.order.device)
        return torch.zeros_like(self.order).scatter(-1, self.order, places.expand_as(self.order))

    def _spoil(self, y: Tensor, axes: int) -> Tensor:
        # a list with a NaN score has no order
        broken = self.scores.isnan().any(-1)
        return torch.where(broken[(..., *[None] * axes)], torch.nan, y)


def _promote(v: Tensor, scores: Tensor) -> Tensor:
    return v.to(torch.promote_types(v.dtype, scores.dtype))


def _pad_rows(w: Tensor, P: SoftPermutation) -> Tensor:
    # rows that `top` cut off count as 0
    return torch.nn.functional.pad(w, (0, P.scores.shape[-1] - P.rows))


register_permutation(HardPermutation, ("order", "scores", "mask"), ("kept",))
