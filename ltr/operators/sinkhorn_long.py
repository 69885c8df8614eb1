"""The result of SinkhornSort for long lists: a coupling that is never an array of rows x items."""

from __future__ import annotations

import torch
from torch import Tensor

from ltr.operators.permutation import check_axis, register_permutation, take_along
from ltr.operators.sinkhorn_permutation import SinkhornPermutation
from ltr.operators.sinkhorn_solver import Line, Transport, log_kernel
from ltr.operators.sinkhorn_strips import log_normalizers, mix, spread
from ltr.shapes import check_whole, masked_fill


class LongSinkhornPermutation(SinkhornPermutation):
    """A `SinkhornPermutation` that stores potentials instead of its matrix.

    Products, ranks, sorted values and `log_prob` cost O(rows n) time and O(rows + n) memory,
    forward and backward, to any order: strips of the matrix are computed, used, and computed again
    for the derivatives. The strips take 5 MiB at any size, and vectors some 300 bytes for each row
    and each item (benchmarks/sinkhorn.py). Only `log_dense` and `dense` build the matrix.

    Args:
        items: (..., n) float64 potentials; -inf deletes an item.
        places: (..., rows) float64, the milestones on the line.
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
        places: Tensor,
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
        self.places = places
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
    def rows(self) -> int:
        """Return the number of rows."""
        return self.places.shape[-1]

    @property
    def log_matrix(self) -> Tensor:
        """Return the logarithm of the matrix, (..., rows, n), in O(rows n) memory."""
        kernel = log_kernel(self.places, self.points, self._line)
        log_p = (self.items.unsqueeze(-2) + kernel).log_softmax(-1).to(self.scores.dtype)
        return torch.where(self._no_rows.unsqueeze(-1), -torch.inf, log_p)

    def top(self, k: int) -> LongSinkhornPermutation:
        """Return the first k rows, or all rows if there are fewer."""
        k = check_whole("k", k)
        return LongSinkhornPermutation(
            self.items,
            self.places[..., :k],
            self.points,
            self.scores,
            self.mask,
            self.order,
            self.item_weights,
            self.row_weights[..., :k],
            self.all_rows,
            self.power,
            self.epsilon,
        )

    def mv(self, v: Tensor) -> Tensor:
        """Return P v: v (..., n) -> (..., rows)."""
        check_axis("v", v, -1, self.scores.shape[-1])
        return self._mixed(v.unsqueeze(-2)).squeeze(-2)

    def matmul(self, V: Tensor) -> Tensor:
        """Return P V by torch.matmul's rules: V (..., n, d) -> (..., rows, d)."""
        check_axis("V", V, -2, self.scores.shape[-1])
        return self.mv(V) if V.dim() == 1 else self._mixed(V.mT).mT

    def log_prob(self, order: Tensor) -> Tensor:
        """Return the log-probabilities log P[i, order[i]]: order (..., rows) int64 -> (..., rows).

        Rows past the real items give 0.

        Raises:
            ValueError: order is not int64 (..., rows).
        """
        check_axis("order", order, -1, self.rows)
        if order.dtype != torch.int64:
            raise ValueError(f"order must be int64, got {order.dtype}")
        at, potential = take_along(self.points, order, -1), take_along(self.items, order, -1)
        places = self.places.expand(at.shape).unsqueeze(-1)
        gaps = log_kernel(places, at.unsqueeze(-1), self._line).squeeze((-1, -2))
        found = gaps + potential - log_normalizers(self._transport, self._line, self.items)
        return masked_fill(found.to(self.scores.dtype), self.row_mask())

    def _transposed_mv(self, w: Tensor) -> Tensor:
        return self._spread(w.unsqueeze(-2)).squeeze(-2)

    def _transposed_matmul(self, W: Tensor) -> Tensor:
        return self._transposed_mv(W) if W.dim() == 1 else self._spread(W.mT).mT

    @property
    def _line(self) -> Line:
        return Line(self.power, self.epsilon)

    @property
    def _transport(self) -> Transport:
        return Transport(self.places, self.points, self.item_weights, self.row_weights)

    @property
    def _no_rows(self) -> Tensor:
        return self.row_weights == 0

    def _mixed(self, V: Tensor) -> Tensor:
        # P V^T, transposed: V (..., d, n) -> (..., d, rows)
        V = V if self.mask is None else masked_fill(V, self.mask.unsqueeze(-2))
        t, items, V = self._expanded(V)
        found = mix(t, self._line, items, V).to(self.scores.dtype)
        return torch.where(self._no_rows.unsqueeze(-2), 0.0, found)

    def _spread(self, W: Tensor) -> Tensor:
        W = torch.where(self._no_rows.unsqueeze(-2), 0.0, W)
        t, items, W = self._expanded(W)
        return spread(t, self._line, items, W).to(self.scores.dtype)

    def _expanded(self, V: Tensor) -> tuple[Transport, Tensor, Tensor]:
        # all with the same batch axes, and float64
        batch = torch.broadcast_shapes(V.shape[:-2], self.scores.shape[:-1])
        t = Transport(*(x.expand(*batch, x.shape[-1]) for x in self._transport))
        items = self.items.expand(*batch, self.items.shape[-1])
        return t, items, V.to(items.dtype).expand(*batch, *V.shape[-2:])


register_permutation(
    LongSinkhornPermutation,
    (
        "items",
        "places",
        "points",
        "scores",
        "mask",
        "order",
        "item_weights",
        "row_weights",
    ),
    ("all_rows", "power", "epsilon"),
)
