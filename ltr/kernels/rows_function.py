"""Row-softmax matrices of sorted scores as differentiable functions, in O(n) memory.

The products of P and of its transpose with weighted columns, and the logarithm of the row sums.
All derivatives are such products again (of columns with weights one step higher), so that they
exist to any order, forward and backward, and nothing of the size of P is ever kept. The first ones
are also taken in one sweep (`row_vjp`), which is what a training step needs.

For a scalar that changes by M_ij for each P_ij, that by L_ij is P_ij (M_ij - r_i), with r_i the
mean of M_i under P_i. For a power L_ij depends on x = t_i - t_j. NeuralSort's is linear, with the
places i and j and what `slack` holds: L_ij = (2 (j - i) t_j - slack_j + slack_i) / temperature.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ltr.kernels.row_terms import ONE, Block, flat, folded, sloped, slopes
from ltr.kernels.rows import row_log_sums, row_products, row_vjp


class RowSoftmax:
    """The matrix P of falling points, or its first rows; only what it is made of is kept.

    Args:
        points: (..., n), falling.
        slack: (..., n), for NeuralSort's derivatives (only they count); None for a power.
        lengths: (...) int64, how many of the points are real.
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
        """P V: V (..., n, d) -> (..., rows, d), with the batch axes of the points."""
        return self.products(V, ((V.shape[-1], 0, 0),), transposed=False)

    def transposed_matmul(self, W: Tensor) -> Tensor:
        """P^T W: W (..., rows, d) -> (..., n, d), with the batch axes of the points."""
        return self.products(W, ((W.shape[-1], 0, 0),), transposed=True)

    def products(self, columns: Tensor, blocks: tuple[Block, ...], transposed: bool) -> Tensor:
        """The sums over j (over i if transposed) of w_ij P_ij times the columns."""
        return _products()(columns, *self.arguments(), blocks, transposed)

    def log_sums(self) -> Tensor:
        """The log of the sum over j of exp(L_ij), (..., rows): log P_ij = L_ij - this."""
        return _log_sums()(*self.arguments())

    def arguments(self) -> tuple[Any, ...]:
        """What the constructor takes."""
        return (
            self.points,
            self.slack,
            self.lengths,
            self.temperature,
            self.power,
            self.rows,
        )

    # What the derivatives are made of.

    def at_once(self, *wanted: tuple[Tensor, tuple[Block, ...]], transposed: bool) -> list[Tensor]:
        """`products` of several columns with their blocks, in one sweep."""
        columns = torch.cat([columns for columns, _ in wanted], -1)
        blocks = tuple(block for _, blocks in wanted for block in blocks)
        out = self.products(columns, blocks, transposed)
        return list(out.split([columns.shape[-1] for columns, _ in wanted], -1))

    def sloped(
        self, columns: Tensor, blocks: tuple[Block, ...]
    ) -> tuple[Tensor, tuple[Block, ...]]:
        """The columns and blocks of `slopes`; `folded` adds up their products."""
        return sloped(columns, slopes(blocks, self.temperature, self.power))

    def folded(self, products: Tensor, blocks: tuple[Block, ...]) -> Tensor:
        """The products of `sloped` columns, summed for each column."""
        return folded(products, slopes(blocks, self.temperature, self.power))

    def vjp(self, G: Tensor, V: Tensor, blocks: tuple[Block, ...]) -> tuple[Tensor, Tensor | None]:
        """The gradients by points and slack of the sum over i, j, c of w_ijc P_ij G_ic V_jc.

        Args:
            G: (..., rows, d).
            V: (..., n, d).
            blocks: of the columns.
        """
        if torch.compiler.is_compiling():  # which takes no Function inside a backward
            found = self.vjp_by_products(G, V, blocks)
        else:
            found = _Vjp.apply(G, V, *self.arguments(), blocks)
        if self.power is not None:
            return found[..., 0], None
        near, far = found.unbind(-1)
        return far * (2 / self.temperature), near / -self.temperature

    def vjp_by_products(self, G: Tensor, V: Tensor, blocks: tuple[Block, ...]) -> Tensor:
        """What `ltr.kernels.rows.row_vjp` gives, made of what is differentiable."""
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
        """Fill x (..., rows) up with 0 for the other rows, (..., n)."""
        return torch.nn.functional.pad(x, (0, self.points.shape[-1] - self.rows))

    def mean_change(self, points: Tensor | None, slack: Tensor | None) -> Tensor:
        """The row means (..., rows, 1) of the change of L_ij, with these tangents."""
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
        """What `products` (`out`) change by, with tangents of points and slack."""
        mean = self.mean_change(points, slack)
        if not transposed:
            return self._changes(columns, blocks, points, slack) - mean * out
        change = -self.products(mean * columns, blocks, True)
        if points is not None:
            t = points.unsqueeze(-1)
            by_slope, block = self.sloped(columns, blocks)
            across = t * self.folded(self.products(by_slope, block, True), blocks)
            if self.power is not None:
                rows = t[..., : self.rows, :]
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
        # sums over j of the changes of w_ij and of P_ij (but for its row's mean) times V_j
        change = None
        if points is not None:
            t = points.unsqueeze(-1)
            by_slope, block = self.sloped(t * V, blocks)
            change = self.folded(self.products(by_slope, block, False), blocks)
            if self.power is not None:
                by_slope, block = self.sloped(V, blocks)
                own = self.folded(self.products(by_slope, block, False), blocks)
                change = t[..., : self.rows, :] * own - change
        if slack is not None:
            part = self.products(slack.unsqueeze(-1) * V, blocks, False) / self.temperature
            change = -part if change is None else change - part
        return torch.zeros(()) if change is None else change


def _products() -> Callable[..., Tensor]:
    return (_Products if torch.compiler.is_compiling() else _ForwardProducts).apply


def _log_sums() -> Callable[..., Tensor]:
    return (_LogSums if torch.compiler.is_compiling() else _ForwardLogSums).apply


def _in_front(
    info: Any, in_dims: Sequence[Any], tensors: Sequence[Tensor | None]
) -> list[Tensor | None]:
    # vmap's axis comes first, and all have it
    moved: list[Tensor | None] = []
    for x, dim in zip(tensors, in_dims, strict=False):
        if x is None:
            moved.append(None)
        elif dim is None:
            moved.append(x.expand(info.batch_size, *x.shape))
        else:
            moved.append(x.movedim(dim, 0))
    return moved


class _Products(torch.autograd.Function):
    """`RowSoftmax.products`, for the compiler, which takes no Function with a jvp."""

    @staticmethod
    def forward(
        columns: Tensor,
        points: Tensor,
        slack: Tensor | None,
        lengths: Tensor,
        temperature: float,
        power: float | None,
        rows: int,
        blocks: tuple[Block, ...],
        transposed: bool,
    ) -> Tensor:
        return row_products(
            points, lengths, columns, temperature, power, rows, flat(blocks), transposed
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        columns, points, slack, lengths, *ctx.numbers, ctx.blocks, ctx.transposed = inputs
        ctx.save_for_backward(columns, points, slack, lengths)
        ctx.save_for_forward(columns, points, slack, lengths, output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        columns, points, slack, lengths = ctx.saved_tensors
        (g,) = grads
        P = RowSoftmax(points, slack, lengths, *ctx.numbers)
        to_columns = to_points = to_slack = None
        if ctx.needs_input_grad[0]:
            to_columns = P.products(g, ctx.blocks, not ctx.transposed)
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            sides = (columns, g) if ctx.transposed else (g, columns)
            to_points, to_slack = P.vjp(*sides, ctx.blocks)
        return to_columns, to_points, to_slack, *[None] * 6

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> tuple[Tensor, int]:
        return _products()(*_in_front(info, in_dims, arguments[:4]), *arguments[4:]), 0


class _ForwardProducts(_Products):
    """The same with forward mode."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        columns, points, slack, lengths, out = ctx.saved_tensors
        by_columns, by_points, by_slack = tangents[:3]
        P = RowSoftmax(points, slack, lengths, *ctx.numbers)
        change = torch.zeros_like(out)
        if by_columns is not None:
            change = P.products(by_columns, ctx.blocks, ctx.transposed)
        if by_points is not None or by_slack is not None:
            by_matrix = P.jvp(columns, ctx.blocks, ctx.transposed, by_points, by_slack, out)
            change = change + by_matrix
        return change


class _Vjp(torch.autograd.Function):
    """`RowSoftmax.vjp_by_products` in one sweep; its own derivatives are those of the products."""

    @staticmethod
    def forward(
        G: Tensor,
        V: Tensor,
        points: Tensor,
        slack: Tensor | None,
        lengths: Tensor,
        temperature: float,
        power: float | None,
        rows: int,
        blocks: tuple[Block, ...],
    ) -> Tensor:
        return row_vjp(points, lengths, G, V, temperature, power, rows, flat(blocks))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        G, V, points, slack, lengths, *ctx.numbers, ctx.blocks = inputs
        ctx.save_for_backward(G, V, points, slack, lengths)
        ctx.save_for_forward(G, V, points, slack, lengths)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        function, arguments = _Vjp.plain(ctx)
        found = torch.func.vjp(function, *arguments)[1](*grads)
        return *found, *[None] * (9 - len(found))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        function, arguments = _Vjp.plain(ctx)
        pairs = zip(arguments, tangents, strict=False)
        changes = tuple(torch.zeros_like(x) if dx is None else dx for x, dx in pairs)
        return torch.func.jvp(function, arguments, changes)[1]

    @staticmethod
    def plain(ctx: Any) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
        """The function of the saved tensors that can be differentiated, and these tensors."""
        *tensors, slack, lengths = ctx.saved_tensors

        def function(G: Tensor, V: Tensor, points: Tensor, slack: Tensor | None = None) -> Tensor:
            P = RowSoftmax(points, slack, lengths, *ctx.numbers)
            return P.vjp_by_products(G, V, ctx.blocks)

        return function, tuple(tensors) if slack is None else (*tensors, slack)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> tuple[Tensor, int]:
        return _Vjp.apply(*_in_front(info, in_dims, arguments[:5]), *arguments[5:]), 0


class _LogSums(torch.autograd.Function):
    """`RowSoftmax.log_sums`, for the compiler."""

    @staticmethod
    def forward(
        points: Tensor,
        slack: Tensor | None,
        lengths: Tensor,
        temperature: float,
        power: float | None,
        rows: int,
    ) -> Tensor:
        return row_log_sums(points, lengths, temperature, power, rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        points, slack, lengths, *ctx.numbers = inputs
        ctx.save_for_backward(points, slack, lengths)
        ctx.save_for_forward(points, slack, lengths)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        points, slack, lengths = ctx.saved_tensors
        P = RowSoftmax(points, slack, lengths, *ctx.numbers)
        r = grads[0].unsqueeze(-1)
        if P.power is None:
            by_slope, each = P.at_once(P.sloped(r, ONE), (r, ONE), transposed=True)
            to_slack = (P.all_rows(grads[0]) - each.squeeze(-1)) / P.temperature
            # rows past the real ones have the sum 0, whatever the points
            real = torch.arange(points.shape[-1], device=points.device) < lengths.unsqueeze(-1)
            return by_slope.squeeze(-1), torch.where(real, to_slack, 0.0), *[None] * 4
        below = P.products(*P.sloped(r, ONE), True).squeeze(-1)
        ones = torch.ones_like(points).unsqueeze(-1)
        above = grads[0] * P.products(*P.sloped(ones, ONE), False).squeeze(-1)
        return P.all_rows(above) - below, None, *[None] * 4

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> tuple[Tensor, int]:
        return _log_sums()(*_in_front(info, in_dims, arguments[:3]), *arguments[3:]), 0


class _ForwardLogSums(_LogSums):
    """The same with forward mode."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        points, slack, lengths = ctx.saved_tensors
        P = RowSoftmax(points, slack, lengths, *ctx.numbers)
        change = P.mean_change(*tangents[:2]).squeeze(-1)
        if tangents[1] is not None:
            own = tangents[1][..., : P.rows] / P.temperature
            real = torch.arange(P.rows, device=points.device) < lengths.unsqueeze(-1)
            change = change + torch.where(real, own, 0.0)
        return change
