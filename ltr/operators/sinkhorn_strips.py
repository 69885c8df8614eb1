"""Entropic optimal transport between points on a line, with derivatives, in O(rows + n) memory.

These are the functions of `sinkhorn_transport` for the cost |y - x|^power, without the array of
rows x items: see `sinkhorn_solver` and `over_strips`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ltr.kernels.autodiff import Maybe, Rule, differentiable
from ltr.operators import sinkhorn_solver as solver
from ltr.operators.over_strips import Strips, over_strips
from ltr.operators.sinkhorn_solver import Line, Transport, log_kernel
from ltr.operators.sinkhorn_transport import safe_log


def row_potentials(
    t: Transport,
    line: Line,
    *,
    iterations: int | None = None,
    threshold: float = 1e-9,
    implicit: bool = True,
) -> Tensor:
    """Return `sinkhorn_transport.row_potentials` (..., rows) of a `Transport`."""
    if not implicit:
        rows, log_a = torch.where(t.b == 0, -torch.inf, 0.0), safe_log(t.a)
        for _ in range((iterations or 1) - 1):
            items = log_a - _columns(line, t, rows)[1]
            rows = safe_log(t.b) - log_normalizers(t, line, items)
        return rows
    fixed = Transport(*(x.detach() for x in t))
    rows, inverse = solve_lists(*fixed, line.power, line.epsilon, threshold, iterations or 0)
    start = rows
    for _ in range(2):  # see `sinkhorn_transport.row_potentials`
        residual = _columns(line, t, rows)[0] - t.b
        change = residual - residual.detach()
        rows = rows - differentiable(_Solved(line), change, start, inverse, *fixed)[0]
    return rows


def item_potentials(t: Transport, line: Line, rows: Tensor) -> Tensor:
    """Return the item potentials (..., n) for which the coupling has the item weights a."""
    return safe_log(t.a) - _columns(line, t, rows)[1]


def mix(t: Transport, line: Line, items: Tensor, V: Tensor) -> Tensor:
    """Return P V^T for the row softmax P of the items' potentials: V (..., d, n) -> (..., d, rows).

    >>> t = Transport(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), *torch.ones(2, 2) / 2)
    >>> mix(t, Line(2, 0.1), torch.zeros(2), torch.tensor([[3.0, 7.0]])).round()
    tensor([[7., 3.]])
    """

    def part(whole: Sequence[Tensor], cut: Sequence[Tensor]) -> tuple[Any, Any]:
        items, points, V = whole
        return [], [V @ _softmax(line, cut[0], points, items).mT]

    (found,) = over_strips(Strips(part, 3, 0, 1, V.shape[-1]), items, t.points, V, t.places)
    return found


def spread(t: Transport, line: Line, items: Tensor, W: Tensor) -> Tensor:
    """Return P^T W^T for the row softmax P of `mix`: W (..., d, rows) -> (..., d, n)."""

    def part(whole: Sequence[Tensor], cut: Sequence[Tensor]) -> tuple[Any, Any]:
        items, points = whole
        return [cut[1] @ _softmax(line, cut[0], points, items)], []

    (found,) = over_strips(Strips(part, 2, 1, 0, t.points.shape[-1]), items, t.points, t.places, W)
    return found


def _softmax(line: Line, places: Tensor, points: Tensor, items: Tensor) -> Tensor:
    return (items.unsqueeze(-2) + log_kernel(places, points, line)).softmax(-1)


def log_normalizers(t: Transport, line: Line, items: Tensor) -> Tensor:
    """Return the logarithms (..., rows) of the sums over items of exp(item + log K)."""

    def part(whole: Sequence[Tensor], cut: Sequence[Tensor]) -> tuple[Any, Any]:
        items, points = whole
        return [], [(items.unsqueeze(-2) + log_kernel(cut[0], points, line)).logsumexp(-1)]

    (found,) = over_strips(Strips(part, 2, 0, 1, items.shape[-1]), items, t.points, t.places)
    return found


def _columns(line: Line, t: Transport, rows: Tensor) -> tuple[Tensor, Tensor]:
    # the row sums (..., rows) of the coupling with item weights a, and the log-sum-exp of each item

    def part(whole: Sequence[Tensor], cut: Sequence[Tensor]) -> tuple[Any, Any]:
        (rows, places), (points, a) = whole, cut
        logits = rows.unsqueeze(-2) + log_kernel(points, places, line)
        sums = logits.logsumexp(-1)
        shares = (logits - sums.unsqueeze(-1)).exp()
        return [(a.unsqueeze(-2) @ shares).squeeze(-2)], [sums]

    task = Strips(part, 2, 1, 1, rows.shape[-1])
    sums, items = over_strips(task, rows, t.places, t.points, t.a)
    return sums, items


class _Solved(Rule):
    # H^-1 right, for a fixed Hessian, which is symmetric

    def __init__(self, line: Line) -> None:
        self.line = line

    def values(self, right: Tensor, *fixed: Tensor, **_: Any) -> tuple[Tensor, ...]:
        return (solve_hessians(self.line, right, *fixed),)

    def gradients(
        self, needed: Sequence[bool], given: Sequence[Maybe], *saved: Any
    ) -> Sequence[Maybe]:
        _, *fixed = saved
        return (*differentiable(self, given[0], *fixed), *(None for _ in fixed))

    def tangents(self, moved: Sequence[Maybe], *saved: Any) -> tuple[Maybe, ...]:
        _, *fixed = saved
        return differentiable(self, moved[0], *fixed)


@torch.library.custom_op("ltr::sinkhorn_lists", mutates_args=())
def solve_lists(
    places: Tensor,
    points: Tensor,
    a: Tensor,
    b: Tensor,
    power: float,
    epsilon: float,
    threshold: float,
    iterations: int,
) -> tuple[Tensor, Tensor]:
    """Return row potentials (..., rows) and the preconditioners (..., groups, groups) of lists.

    See `sinkhorn_solver.solve`; it takes the lists one by one.
    """
    line, found = Line(power, epsilon), []
    for one in zip(*(x.reshape(-1, x.shape[-1]) for x in (places, points, a, b)), strict=True):
        found.append(solver.solve(Transport(*one), line, threshold, iterations))
    rows, inverse = (torch.stack(parts) for parts in zip(*found, strict=True))
    return rows.view(b.shape), inverse.view(*b.shape[:-1], *inverse.shape[-2:])


def solve_hessians(line: Line, right: Tensor, *fixed: Tensor) -> Tensor:
    """Return the solutions (..., rows) of the Hessians' equations, list by list.

    The other tensors are the potentials, the preconditioners and a `Transport`.
    """
    rows, inverse, *vectors = fixed
    matrices = inverse.reshape(-1, *inverse.shape[-2:])
    lists = [x.reshape(-1, x.shape[-1]) for x in (right, rows, *vectors)]
    found = [
        solver.solve_hessian(Transport(*t), line, potentials, matrix, side)
        for matrix, side, potentials, *t in zip(matrices, *lists, strict=True)
    ]
    return torch.stack(found).view(right.shape)


def _batched(size: int, in_dims: Sequence[int | None], tensors: Sequence[Tensor]) -> list[Tensor]:
    return [
        x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
        for x, dim in zip(tensors, in_dims, strict=True)
    ]


def _solve_batches(info, in_dims, *arguments):
    tensors = _batched(info.batch_size, in_dims[:4], arguments[:4])
    return solve_lists(*tensors, *arguments[4:]), (0, 0)


solve_lists.register_vmap(_solve_batches)
