"""Row-softmax matrices of sorted scores as differentiable functions, in O(n) memory.

The functions are the products of P and of its transpose with weighted columns, and the logarithm of
the row sums. All derivatives are such products again, of columns with weights one step higher. So
they exist to any order, forward and backward, and nothing of the size of P is stored. One sweep
(`row_vjp`) computes the first derivatives, which a training step needs.

If a scalar has the derivatives M_ij by P_ij, its derivatives by L_ij are P_ij (M_ij - r_i), with
r_i the mean of M_i under P_i. For a power, L_ij depends on x = t_i - t_j. For NeuralSort it is
linear in the points and `slack`: L_ij = (2 (j - i) t_j - slack_j + slack_i) / temperature.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ltr.kernels.autodiff import Maybe, Rule, differentiable
from ltr.kernels.row_terms import ONE, Block, flat, folded, sloped, slopes
from ltr.kernels.rows import row_log_sums, row_products, row_vjp

Numbers = tuple[float, float | None, int]
"""The temperature, the power (None for NeuralSort) and the number of rows."""


class RowSoftmax:
    """The matrix P of falling points, or its first rows, stored as the points alone.

    Args:
        points: (..., n), falling.
        slack: (..., n), for NeuralSort: only its derivatives are used; None for a power.
        lengths: (...) int64, the number of real points.
        temperature: > 0.
        power: > 0, or None for NeuralSort.
        rows: the number of rows.
    """

    def __init__(
        self,
        points: Tensor,
        slack: Tensor | None,
        lengths: Tensor,
        temperature: float,
        power: float | None,
        rows: int,
    ):
        self.points = points
        self.slack = slack
        self.lengths = lengths
        self.temperature = temperature
        self.power = power
        self.rows = rows

    def matmul(self, V: Tensor) -> Tensor:
        """Return P V: V (..., n, d) -> (..., rows, d), with the batch axes of the points."""
        return self.products(V, ((V.shape[-1], 0, 0),), transposed=False)

    def transposed_matmul(self, W: Tensor) -> Tensor:
        """Return P^T W: W (..., rows, d) -> (..., n, d), with the batch axes of the points."""
        return self.products(W, ((W.shape[-1], 0, 0),), transposed=True)

    def products(self, columns: Tensor, blocks: tuple[Block, ...], transposed: bool) -> Tensor:
        """Return the sums over j (over i if transposed) of w_ij P_ij times the columns."""
        rule = _Products(self.numbers, blocks, transposed)
        return differentiable(rule, columns, *self.tensors)[0]

    def log_sums(self) -> Tensor:
        """Return the log of the sum over j of exp(L_ij), (..., rows): log P_ij = L_ij - this."""
        return differentiable(_LogSums(self.numbers), *self.tensors)[0]

    @property
    def tensors(self) -> tuple[Tensor, Maybe, Tensor]:
        """Return points, slack and lengths."""
        return self.points, self.slack, self.lengths

    @property
    def numbers(self) -> Numbers:
        """Return temperature, power and number of rows."""
        return self.temperature, self.power, self.rows

    # The parts of the derivatives.

    def at_once(self, *wanted: tuple[Tensor, tuple[Block, ...]], transposed: bool) -> list[Tensor]:
        """Return the `products` of several columns with their blocks, in one sweep."""
        columns = torch.cat([columns for columns, _ in wanted], -1)
        blocks = tuple(block for _, blocks in wanted for block in blocks)
        out = self.products(columns, blocks, transposed)
        return list(out.split([columns.shape[-1] for columns, _ in wanted], -1))

    def sloped(
        self, columns: Tensor, blocks: tuple[Block, ...]
    ) -> tuple[Tensor, tuple[Block, ...]]:
        """Return the columns and blocks of `slopes`; `folded` adds up their products."""
        return sloped(columns, slopes(blocks, self.temperature, self.power))

    def folded(self, products: Tensor, blocks: tuple[Block, ...]) -> Tensor:
        """Return the products of `sloped` columns, summed for each column."""
        return folded(products, slopes(blocks, self.temperature, self.power))

    def vjp(self, G: Tensor, V: Tensor, blocks: tuple[Block, ...]) -> tuple[Tensor, Tensor | None]:
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
        if self.power is not None:
            return found[..., 0], None
        near, far = found.unbind(-1)
        return far * (2 / self.temperature), near / -self.temperature

    def vjp_by_products(self, G: Tensor, V: Tensor, blocks: tuple[Block, ...]) -> Tensor:
        """Return `ltr.kernels.rows.row_vjp`, computed by differentiable functions."""
        if self.power is None:
            raised = tuple((size, u + 1, v) for size, u, v in blocks)
            near = self.at_once((G, blocks), (G, raised), transposed=True)
            r = (G * self.products(V, blocks, False)).sum(-1, keepdim=True)
            mean = self.products(torch.cat([r, r], -1), ((1, 0, 0), (1, 1, 0)), True)
            return torch.stack([(V * Z).sum(-1) for Z in near], -1) - mean
        ones = torch.ones_like(V[..., :1])
        above, by_mean, own = self.at_once(
            self.sloped(V, blocks), self.sloped(ones, ONE), (V, blocks), transposed=False
        )
        r = (G * own).sum(-1, keepdim=True)
        above = (G * self.folded(above, blocks)).sum(-1, keepdim=True) - r * by_mean
        below, by_mean = self.at_once(self.sloped(G, blocks), self.sloped(r, ONE), transposed=True)
        below = (V * self.folded(below, blocks)).sum(-1, keepdim=True) - by_mean
        return self.all_rows(above.squeeze(-1)).unsqueeze(-1) - below

    def all_rows(self, x: Tensor) -> Tensor:
        """Pad x (..., rows) with 0 for the other rows, (..., n)."""
        return torch.nn.functional.pad(x, (0, self.points.shape[-1] - self.rows))

    def mean_change(self, points: Tensor | None, slack: Tensor | None) -> Tensor:
        """Return the row means (..., rows, 1) of the change of L_ij for these tangents."""
        return self._changes(torch.ones_like(self.points).unsqueeze(-1), ONE, points, slack)

    def jvp(
        self,
        columns: Tensor,
        blocks: tuple[Block, ...],
        transposed: bool,
        points: Tensor | None,
        slack: Tensor | None,
        out: Tensor,
    ) -> Tensor:
        """Return the change of `products` (`out`) for tangents of points and slack."""
        mean = self.mean_change(points, slack)
        if not transposed:
            return self._changes(columns, blocks, points, slack) - mean * out
        change = -self.products(mean * columns, blocks, True)
        if points is not None:
            t = points.unsqueeze(-1)
            by_slope, block = self.sloped(columns, blocks)
            across = t * self.folded(self.products(by_slope, block, True), blocks)
            if self.power is not None:
                rows = t.narrow(-2, 0, self.rows)
                by_slope, block = self.sloped(rows * columns, blocks)
                across = self.folded(self.products(by_slope, block, True), blocks) - across
            change = change + across
        if slack is not None:
            change = change - slack.unsqueeze(-1) * out / self.temperature
        return change

    def _changes(
        self,
        V: Tensor,
        blocks: tuple[Block, ...],
        points: Tensor | None,
        slack: Tensor | None,
    ) -> Tensor:
        # return sums over j of the changes of w_ij P_ij, without the row's mean, times V_j
        change = None
        if points is not None:
            t = points.unsqueeze(-1)
            by_slope, block = self.sloped(t * V, blocks)
            change = self.folded(self.products(by_slope, block, False), blocks)
            if self.power is not None:
                by_slope, block = self.sloped(V, blocks)
                own = self.folded(self.products(by_slope, block, False), blocks)
                change = t.narrow(-2, 0, self.rows) * own - change
        if slack is not None:
            part = self.products(slack.unsqueeze(-1) * V, blocks, False) / self.temperature
            change = -part if change is None else change - part
        return torch.zeros(()) if change is None else change


@dataclass(frozen=True, eq=False)
class _Products(Rule):
    """`RowSoftmax.products` of columns, points, slack and lengths."""

    numbers: Numbers
    blocks: tuple[Block, ...]
    transposed: bool
    kept = (0,)

    def values(
        self, columns: Tensor, points: Tensor, slack: Maybe, lengths: Tensor
    ) -> tuple[Tensor, ...]:
        given = *self.numbers, flat(self.blocks), self.transposed
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

    def tangents(self, moved: Sequence[Maybe], *saved: Any) -> tuple[Maybe, ...]:
        columns, points, slack, lengths, out = saved
        by_columns, by_points, by_slack, _ = moved
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
    blocks: tuple[Block, ...]

    def values(
        self, G: Tensor, V: Tensor, points: Tensor, slack: Maybe, lengths: Tensor
    ) -> tuple[Tensor, ...]:
        return (row_vjp(points, lengths, G, V, *self.numbers, flat(self.blocks)),)

    def gradients(self, needed: Sequence[bool], given: Sequence[Maybe], *saved: Any) -> list[Maybe]:
        function, arguments = self.plain(*saved)
        found = torch.func.vjp(function, *arguments)[1](given[0])
        return [*found, *[None] * (5 - len(found))]

    def tangents(self, moved: Sequence[Maybe], *saved: Any) -> tuple[Maybe, ...]:
        function, arguments = self.plain(*saved)
        pairs = zip(arguments, moved, strict=False)
        changes = tuple(torch.zeros_like(x) if dx is None else dx for x, dx in pairs)
        return (torch.func.jvp(function, arguments, changes)[1],)

    def plain(self, *saved: Any) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
        """Return a differentiable function of the saved tensors, and these tensors."""
        *tensors, slack, lengths = saved

        def function(G: Tensor, V: Tensor, points: Tensor, slack: Maybe = None) -> Tensor:
            P = RowSoftmax(points, slack, lengths, *self.numbers)
            return P.vjp_by_products(G, V, self.blocks)

        return function, tuple(tensors) if slack is None else (*tensors, slack)


@dataclass(frozen=True, eq=False)
class _LogSums(Rule):
    """`RowSoftmax.log_sums` of points, slack and lengths."""

    numbers: Numbers

    def values(self, points: Tensor, slack: Maybe, lengths: Tensor) -> tuple[Tensor, ...]:
        return (row_log_sums(points, lengths, *self.numbers),)

    def gradients(
        self, needed: Sequence[bool], given: Sequence[Maybe], *saved: Any
    ) -> tuple[Maybe, ...]:
        points, slack, lengths = saved
        P, g = RowSoftmax(points, slack, lengths, *self.numbers), given[0]
        assert g is not None
        r = g.unsqueeze(-1)
        if P.power is None:
            by_slope, each = P.at_once(P.sloped(r, ONE), (r, ONE), transposed=True)
            to_slack = (P.all_rows(g) - each.squeeze(-1)) / P.temperature
            # rows past the real ones have the sum 0 for any points
            real = positions_below(P.points.shape[-1], P.lengths)
            return by_slope.squeeze(-1), torch.where(real, to_slack, 0.0), None
        below = P.products(*P.sloped(r, ONE), True).squeeze(-1)
        ones = torch.ones_like(P.points).unsqueeze(-1)
        above = g * P.products(*P.sloped(ones, ONE), False).squeeze(-1)
        return P.all_rows(above) - below, None, None

    def tangents(self, moved: Sequence[Maybe], *saved: Any) -> tuple[Maybe, ...]:
        points, slack, lengths = saved
        P = RowSoftmax(points, slack, lengths, *self.numbers)
        by_points, by_slack, _ = moved
        change = P.mean_change(by_points, by_slack).squeeze(-1)
        if by_slack is not None:
            own = by_slack.narrow(-1, 0, P.rows) / P.temperature
            change = change + torch.where(positions_below(P.rows, P.lengths), own, 0.0)
        return (change,)


def positions_below(n: int, lengths: Tensor) -> Tensor:
    """Return whether each of the places 0..n-1 is real, (..., n), for lengths (...).

    >>> positions_below(3, torch.tensor([2]))
    tensor([[ True,  True, False]])
    """
    return torch.arange(n, device=lengths.device) < lengths.unsqueeze(-1)
