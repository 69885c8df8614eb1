"""NeuralSort's matrices of sorted scores as differentiable functions, in O(n) memory.

The functions are the products of P and of its transpose with weighted columns, and the logarithm of
the row sums. All derivatives are such products too, of columns whose weights have one more factor.
So they exist to any order, forward and backward, and nothing of the size of P is stored. One sweep
(`row_vjp`) computes the first derivatives, which a training step needs.

If a scalar has the derivatives M_ij by P_ij, its derivatives by L_ij are P_ij (M_ij - r_i), with
r_i the mean of M_i under P_i. L_ij is linear in the points and in `slack`:
L_ij = (2 (j - i) t_j - slack_j + slack_i) / temperature.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ltr.kernels.autodiff import Maybe, Rule, differentiable
from ltr.kernels.rows import row_log_sums, row_products, row_vjp

Blocks = tuple[tuple[int, int], ...]
"""Numbers of adjacent columns, and the power u of (j - i) that is their weight."""

ONE: Blocks = ((1, 0),)
"""A column of weight 1."""

Numbers = tuple[float, int]
"""The temperature and the number of rows."""


def raised(blocks: Blocks) -> Blocks:
    """Return the blocks with one more factor j - i in their weights.

    >>> raised(ONE)
    ((1, 1),)
    """
    return tuple((size, u + 1) for size, u in blocks)


class RowSoftmax:
    """The matrix P of descending points, or its first rows, stored only as the points.

    Args:
        points: (..., n), descending.
        slack: (..., n), of which only the derivatives are used.
        lengths: (...) int64, the number of real points.
        temperature: > 0.
        rows: the number of rows.
    """

    def __init__(
        self, points: Tensor, slack: Tensor, lengths: Tensor, temperature: float, rows: int
    ):
        self.points = points
        self.slack = slack
        self.lengths = lengths
        self.temperature = temperature
        self.rows = rows

    def matmul(self, V: Tensor) -> Tensor:
        """Return P V: V (..., n, d) -> (..., rows, d), with the batch axes of the points."""
        return self.products(V, ((V.shape[-1], 0),), transposed=False)

    def transposed_matmul(self, W: Tensor) -> Tensor:
        """Return P^T W: W (..., rows, d) -> (..., n, d), with the batch axes of the points."""
        return self.products(W, ((W.shape[-1], 0),), transposed=True)

    def products(self, columns: Tensor, blocks: Blocks, transposed: bool) -> Tensor:
        """Return the sums over j (over i if transposed) of w_ij P_ij times the columns."""
        rule = _Products(self.numbers, blocks, transposed)
        return differentiable(rule, columns, *self.tensors)[0]

    def log_sums(self) -> Tensor:
        """Return the log of the sum over j of exp(L_ij), (..., rows): log P_ij = L_ij - this."""
        return differentiable(_LogSums(self.numbers), *self.tensors)[0]

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return points, slack and lengths."""
        return self.points, self.slack, self.lengths

    @property
    def numbers(self) -> Numbers:
        """Return the temperature and the number of rows."""
        return self.temperature, self.rows

    # The parts of the derivatives.

    def at_once(self, *wanted: tuple[Tensor, Blocks], transposed: bool) -> list[Tensor]:
        """Return the `products` of several columns with their blocks, in one sweep."""
        columns = torch.cat([columns for columns, _ in wanted], -1)
        blocks = tuple(block for _, blocks in wanted for block in blocks)
        out = self.products(columns, blocks, transposed)
        return list(out.split([columns.shape[-1] for columns, _ in wanted], -1))

    def vjp(self, G: Tensor, V: Tensor, blocks: Blocks) -> tuple[Tensor, Tensor]:
        """Return the gradients by points and slack of the sum over i, j, c of w_ijc P_ij G_ic V_jc.

        Args:
            G: (..., rows, d).
            V: (..., n, d).
            blocks: The blocks of the columns.
        """
        if torch.compiler.is_compiling():  # it supports no Function inside a backward
            found = self.vjp_by_products(G, V, blocks)
        else:
            (found,) = differentiable(_Vjp(self.numbers, blocks), G, V, *self.tensors)
        near, far = found.unbind(-1)
        return far * (2 / self.temperature), near / -self.temperature

    def vjp_by_products(self, G: Tensor, V: Tensor, blocks: Blocks) -> Tensor:
        """Return `ltr.kernels.rows.row_vjp`, computed by differentiable functions."""
        near = self.at_once((G, blocks), (G, raised(blocks)), transposed=True)
        r = (G * self.products(V, blocks, False)).sum(-1, keepdim=True)
        mean = self.products(torch.cat([r, r], -1), ((1, 0), (1, 1)), True)
        return torch.stack([(V * Z).sum(-1) for Z in near], -1) - mean

    def all_rows(self, x: Tensor) -> Tensor:
        """Pad x (..., rows) with 0 for the other rows, (..., n)."""
        return torch.nn.functional.pad(x, (0, self.points.shape[-1] - self.rows))

    def jvp(
        self,
        columns: Tensor,
        blocks: Blocks,
        transposed: bool,
        points: Maybe,
        slack: Maybe,
        out: Tensor,
    ) -> Tensor:
        """Return the tangent of `products` (`out`) for tangents of points and slack."""
        mean = self.mean_change(points, slack)
        if not transposed:
            return self._changes(columns, blocks, points, slack) - mean * out
        change = -self.products(mean * columns, blocks, True)
        if points is not None:
            by_slope = self.products(columns, raised(blocks), True)
            change = change + points.unsqueeze(-1) * by_slope * (2 / self.temperature)
        if slack is not None:
            change = change - slack.unsqueeze(-1) * out / self.temperature
        return change

    def mean_change(self, points: Maybe, slack: Maybe) -> Tensor:
        """Return the row means (..., rows, 1) of the tangent of L_ij for these tangents."""
        return self._changes(torch.ones_like(self.points).unsqueeze(-1), ONE, points, slack)

    def _changes(self, V: Tensor, blocks: Blocks, points: Maybe, slack: Maybe) -> Tensor:
        # return sums over j of the changes of w_ij P_ij, without the row's mean, times V_j
        change = torch.zeros((), dtype=V.dtype, device=V.device)
        if points is not None:
            columns = points.unsqueeze(-1) * V * (2 / self.temperature)
            change = change + self.products(columns, raised(blocks), False)
        if slack is not None:
            columns = slack.unsqueeze(-1) * V / self.temperature
            change = change - self.products(columns, blocks, False)
        return change


@dataclass(frozen=True, eq=False)
class _Products(Rule):
    """`RowSoftmax.products` of columns, points, slack and lengths."""

    numbers: Numbers
    blocks: Blocks
    transposed: bool
    kept = (0,)

    def values(
        self, columns: Tensor, points: Tensor, slack: Tensor, lengths: Tensor
    ) -> tuple[Tensor, ...]:
        given = *self.numbers, _flat(self.blocks), self.transposed
        return (row_products(points, lengths, columns, *given),)

    def gradients(
        self, needed: Sequence[bool], given: Sequence[Maybe], *saved: Any
    ) -> tuple[Maybe, ...]:
        columns, points, slack, lengths, _ = saved
        g = given[0]
        assert g is not None
        P = RowSoftmax(points, slack, lengths, *self.numbers)
        to_columns = to_points = to_slack = None
        if needed[0]:
            to_columns = P.products(g, self.blocks, not self.transposed)
        if needed[1] or needed[2]:
            sides = (columns, g) if self.transposed else (g, columns)
            to_points, to_slack = P.vjp(*sides, self.blocks)
        return to_columns, to_points, to_slack, None

    def tangents(self, tangents: Sequence[Maybe], *saved: Any) -> tuple[Maybe, ...]:
        columns, points, slack, lengths, out = saved
        by_columns, by_points, by_slack, _ = tangents
        P = RowSoftmax(points, slack, lengths, *self.numbers)
        change = torch.zeros_like(out)
        if by_columns is not None:
            change = P.products(by_columns, self.blocks, self.transposed)
        if by_points is not None or by_slack is not None:
            by_matrix = P.jvp(columns, self.blocks, self.transposed, by_points, by_slack, out)
            change = change + by_matrix
        return (change,)


@dataclass(frozen=True, eq=False)
class _Vjp(Rule):
    """`RowSoftmax.vjp_by_products` in one sweep; its own derivatives are those of the products."""

    numbers: Numbers
    blocks: Blocks

    def values(
        self, G: Tensor, V: Tensor, points: Tensor, slack: Tensor, lengths: Tensor
    ) -> tuple[Tensor, ...]:
        return (row_vjp(points, lengths, G, V, *self.numbers, _flat(self.blocks)),)

    def gradients(self, needed: Sequence[bool], given: Sequence[Maybe], *saved: Any) -> list[Maybe]:
        function, arguments = self.plain(*saved)
        return [*torch.func.vjp(function, *arguments)[1](given[0]), None]

    def tangents(self, tangents: Sequence[Maybe], *saved: Any) -> tuple[Maybe, ...]:
        function, arguments = self.plain(*saved)
        pairs = zip(arguments, tangents, strict=False)
        changes = tuple(torch.zeros_like(x) if dx is None else dx for x, dx in pairs)
        return (torch.func.jvp(function, arguments, changes)[1],)

    def plain(self, *saved: Any) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
        """Return a differentiable function of the saved tensors, and these tensors."""
        *tensors, lengths = saved

        def function(G: Tensor, V: Tensor, points: Tensor, slack: Tensor) -> Tensor:
            P = RowSoftmax(points, slack, lengths, *self.numbers)
            return P.vjp_by_products(G, V, self.blocks)

        return function, tuple(tensors)


@dataclass(frozen=True, eq=False)
class _LogSums(Rule):
    """`RowSoftmax.log_sums` of points, slack and lengths."""

    numbers: Numbers

    def values(self, points: Tensor, slack: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        return (row_log_sums(points, lengths, *self.numbers),)

    def gradients(
        self, needed: Sequence[bool], given: Sequence[Maybe], *saved: Any
    ) -> tuple[Maybe, ...]:
        points, slack, lengths = saved
        P, g = RowSoftmax(points, slack, lengths, *self.numbers), given[0]
        assert g is not None
        r = g.unsqueeze(-1)
        by_slope, each = P.at_once((r, raised(ONE)), (r, ONE), transposed=True)
        to_slack = (P.all_rows(g) - each.squeeze(-1)) / P.temperature
        # rows past the real ones have the sum 0 for any points
        real = positions_below(P.points.shape[-1], P.lengths)
        to_points = by_slope.squeeze(-1) * (2 / P.temperature)
        return to_points, torch.where(real, to_slack, 0.0), None

    def tangents(self, tangents: Sequence[Maybe], *saved: Any) -> tuple[Maybe, ...]:
        points, slack, lengths = saved
        P = RowSoftmax(points, slack, lengths, *self.numbers)
        by_points, by_slack, _ = tangents
        change = P.mean_change(by_points, by_slack).squeeze(-1)
        if by_slack is not None:
            own = by_slack.narrow(-1, 0, P.rows) / P.temperature
            change = change + torch.where(positions_below(P.rows, P.lengths), own, 0.0)
        return (change,)


def _flat(blocks: Blocks) -> list[int]:
    return [number for block in blocks for number in block]


def positions_below(n: int, lengths: Tensor) -> Tensor:
    """Return whether each of the positions 0..n-1 is real, (..., n), for lengths (...).

    >>> positions_below(3, torch.tensor([2]))
    tensor([[ True,  True, False]])
    """
    return torch.arange(n, device=lengths.device) < lengths.unsqueeze(-1)
