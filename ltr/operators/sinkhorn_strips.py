"""Entropic optimal transport between points on a line, in strips: no array of rows x items.

This solves the problem of `sinkhorn_transport` for the cost |y - x|^power, with derivatives. The
matrix is computed strip by strip, all rows of a few items. Only the contributions of a strip to the
sums are kept. So memory is O(rows + items): some vectors, and some arrays of 512 KiB for one strip.

Newton's equations are solved by conjugate gradients, list by list. Their preconditioner is exact
for steps between groups of neighboring rows. The first potentials are those of a problem with fewer
rows and items. Items are taken in order, so that those of a strip share their mass among a window
of rows, and the Hessian needs no others. `over_tiles` makes the derivatives.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ltr.kernels.autodiff import Maybe, Rule, differentiable
from ltr.operators.pairwise import abs_power
from ltr.operators.sinkhorn_transport import MOST_STEPS, newton, safe_log, scaled_laplacian
from ltr.operators.tiles import Tiles, over_tiles, tiles

GROUPS = 256
"""The most groups of rows of the preconditioner, and the most rows that are solved densely."""

COARSER = 4
"""The factor by which rows and items get fewer from one problem to the coarser one."""

MOST_ITERATIONS = 1000
"""The most iterations of the conjugate gradients."""

LEAST = -600.0
"""The smallest argument of exp: where the result underflows, it takes six times as long."""

NONE = 1e-30
"""The largest share of a row, to that of an item's first row, that counts as none in a Hessian."""


class Transport(NamedTuple):
    """The transport of items' mass to rows. Here it is one list; elsewhere there may be more axes.

    Args:
        row_points: (rows,) float64, descending: the rows on the line.
        points: (n,) float64: the items on the line.
        a: (n,) item weights, summing to 1; 0 deletes an item.
        b: (rows,) row weights, summing to 1; 0 deletes a row.
    """

    row_points: Tensor
    points: Tensor
    a: Tensor
    b: Tensor


class Line(NamedTuple):
    """The cost |row point - point|^power, and epsilon, the strength of the entropy."""

    power: float
    epsilon: float


class State(NamedTuple):
    """The results of one pass over the strips for given row potentials."""

    rows: Tensor  # the row potentials
    items: Tensor  # minus the log-sum-exp of each item
    sums: Tensor  # of the rows
    value: Tensor  # of the function that is minimized
    windows: list[slice]  # for each strip of items, the rows that share their mass


def log_kernel(row_points: Tensor, points: Tensor, line: Line) -> Tensor:
    """Return minus the cost / epsilon, (..., rows, n): row_points (..., rows), points (..., n).

    >>> log_kernel(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 3.0]), Line(2, 0.5))
    tensor([[ -2.,  -8.],
            [ -0., -18.]])
    """
    return abs_power(row_points.unsqueeze(-1) - points.unsqueeze(-2), line.power).mul(
        -1 / line.epsilon
    )


def solve(t: Transport, line: Line, threshold: float, iterations: int) -> tuple[Tensor, Tensor]:
    """Return the row potentials (rows,) and the preconditioner's inverse (groups, groups).

    Args:
        t: the problem.
        line: the cost.
        threshold: of the sum over rows of |row sum - b|. One more step follows.
        iterations: the number of Sinkhorn iterations, or 0 for Newton's method.
    """
    kept, live = t.b > 0, t.a > 0
    groups = min(GROUPS, len(t.b))
    if not (t.points.isfinite().all() and kept.any() and live.any()):
        return torch.full_like(t.b, torch.nan), t.b.new_full((groups, groups), torch.nan)
    order = t.points.argsort(descending=True)
    order = order[live[order]]
    small = t._replace(
        row_points=t.row_points[kept], points=t.points[order], a=t.a[order], b=t.b[kept]
    )
    found = _iterated(small, line, iterations) if iterations else _newton(small, line, threshold)
    rows = torch.full_like(t.b, -torch.inf)
    rows[kept] = found
    t = t._replace(points=t.points[order], a=t.a[order])
    return rows, coarse_inverse(t, line, _pass(t, line, rows))


def solve_hessian(t: Transport, line: Line, rows: Tensor, inverse: Tensor, right: Tensor) -> Tensor:
    """Return v (rows,) with H v = right, H the Hessian at the potentials `rows`.

    `right` must sum to 0, as H v does. `inverse` is the preconditioner's, see `solve`.
    """
    order = t.points.argsort(descending=True)
    t = t._replace(points=t.points[order], a=t.a[order])
    state = _pass(t, line, rows)
    return _conjugate_gradients(t, line, state, inverse, right, 1e-13)


def _iterated(t: Transport, line: Line, iterations: int) -> Tensor:
    log_a, rows = t.a.log(), torch.zeros_like(t.b)
    for _ in range(iterations - 1):
        rows = _extended(t, line, log_a + _pass(t, line, rows).items)
    return rows


def _extended(t: Transport, line: Line, items: Tensor) -> Tensor:
    # the row potentials for which the coupling has the row sums b: one half-step
    rows = t.b.log()
    for s in tiles(len(t.b), len(t.a)):
        rows[s] -= (items + log_kernel(t.row_points[s], t.points, line)).logsumexp(-1)
    return rows


def _newton(t: Transport, line: Line, threshold: float) -> Tensor:
    if max(len(t.b), len(t.a)) <= GROUPS:
        kernel = log_kernel(t.row_points, t.points, line)
        return newton(kernel, t.a, t.b, t.b.log(), threshold)
    rough = t._replace(
        **_fewer(t.points, t.a, "points", "a"), **_fewer(t.row_points, t.b, "row_points", "b")
    )
    start = _newton(rough, line, 1e-3)
    items = rough.a.log() + _pass(rough, line, start).items
    state = _pass(t, line, _extended(rough._replace(row_points=t.row_points, b=t.b), line, items))
    goal = max(
        threshold,
        2e-15 * float((t.row_points[0] - t.points).abs().max()) ** line.power / line.epsilon,
    )
    for _ in range(MOST_STEPS):
        lack = t.b - state.sums
        error = float(lack.abs().sum())
        inverse = coarse_inverse(t, line, state)
        accuracy = min(0.1, max(error, 1e-7))
        state = _step(t, line, state, _conjugate_gradients(t, line, state, inverse, lack, accuracy))
        if not error > goal:
            break
    return state.rows


def _step(t: Transport, line: Line, state: State, step: Tensor) -> State:
    # the longest of a few steps that descends; a step of log(1 + range) / range is sure to do so
    span = step.max() - step.min()
    if span < 0.1:
        return _pass(t, line, state.rows + step)
    sure = float(span.log1p() / span)
    for length in (1.0, sure**0.5, sure):
        found = _pass(t, line, state.rows + length * step)
        if found.value <= state.value:
            break
    return found


def _fewer(points: Tensor, weights: Tensor, *names: str) -> dict[str, Tensor]:
    # the points in groups of neighbors, if they are many: their means and their weights
    if len(points) <= GROUPS:
        return dict(zip(names, (points, weights), strict=True))
    groups = max(GROUPS, len(points) // COARSER)
    total = _grouped(weights, groups)
    return dict(zip(names, (_grouped(weights * points, groups) / total, total), strict=True))


def _grouped(x: Tensor, groups: int) -> Tensor:
    # the sums (..., groups) of neighbors in x (..., n); groups differ in size by one at most
    if x.shape[-1] == groups:
        return x
    return x.new_zeros((*x.shape[:-1], groups)).index_add_(-1, _groups(x, groups), x)


def _groups(x: Tensor, groups: int) -> Tensor:
    # the group of each position of x (..., n)
    return torch.arange(x.shape[-1], device=x.device) * groups // x.shape[-1]


def _pass(t: Transport, line: Line, rows: Tensor) -> State:
    items, sums, windows = torch.empty_like(t.a), torch.zeros_like(t.b), []
    for s in tiles(len(t.a), len(t.b)):
        shares = log_kernel(t.points[s], t.row_points, line).add_(rows)
        most = shares.amax(-1, keepdim=True)
        shares = shares.sub_(most).clamp_(min=LEAST).exp_()
        total = shares.sum(-1)
        sums += (t.a[s] / total) @ shares
        items[s] = -(most.squeeze(-1) + total.log())
        taking = (shares.amax(0) > NONE).nonzero()
        windows.append(slice(int(taking[0]), int(taking[-1]) + 1) if len(taking) else slice(0))
    real = t.b > 0
    value = -(t.a * items).sum() - torch.where(real, t.b * rows, 0.0).sum()
    return State(rows, items, sums, value, windows)


def _shares(t: Transport, line: Line, state: State) -> Iterator[tuple[slice, slice, Tensor]]:
    # for each strip of items, how their mass is shared among a window of rows, (items, window)
    for s, window in zip(tiles(len(t.a), len(t.b)), state.windows, strict=True):
        logits = log_kernel(t.points[s], t.row_points[window], line).add_(state.rows[window])
        logits.add_(state.items[s].unsqueeze(-1)).clamp_(min=LEAST)
        yield s, window, logits.exp_()


def coarse_inverse(t: Transport, line: Line, state: State) -> Tensor:
    """Return the inverse (groups, groups) of the Hessian between groups of rows."""
    groups = min(GROUPS, len(t.b))
    links, group = t.b.new_zeros(groups, groups), _groups(t.b, groups)
    for s, window, shares in _shares(t, line, state):
        total = shares.new_zeros(len(shares), groups).index_add_(-1, group[window], shares)
        links += total.mT @ (t.a[s].unsqueeze(-1) * total)
    hessian, scale = scaled_laplacian(links, _grouped(t.b, groups))
    inverse = torch.linalg.inv_ex(hessian).inverse
    return inverse * scale.unsqueeze(-1) * scale


def _conjugate_gradients(
    t: Transport, line: Line, state: State, inverse: Tensor, right: Tensor, accuracy: float
) -> Tensor:
    groups = len(inverse)
    weight = torch.where(t.b > 0, t.b, torch.inf)  # of the diagonal
    total = _grouped(t.b, groups)
    total = torch.where(total > 0, total, torch.inf)
    group = _groups(t.b, groups)

    def within(r: Tensor) -> Tensor:  # what steps of whole groups cannot change
        return (r / weight) - (_grouped(r, groups) / total)[group]

    def precondition(r: Tensor) -> Tensor:
        return (inverse @ _grouped(r, groups))[group] + within(r)

    def apply(v: Tensor) -> Tensor:
        found = state.sums * v
        for s, window, shares in _shares(t, line, state):
            found[window] -= (t.a[s] * (shares @ v[window])) @ shares
        return found

    v, left = torch.zeros_like(right), right - right.sum() * t.b
    z = precondition(left)
    direction, size = z, left @ z
    goal = accuracy**2 * size
    for _ in range(MOST_ITERATIONS):
        if not size > goal:
            break
        along = apply(direction)
        length = size / (direction @ along)
        v, left = v + length * direction, left - length * along
        z = precondition(left)
        size, before = left @ z, size
        direction = z + size / before * direction
    return torch.where(t.b > 0, v, 0.0)


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


def log_normalizers(t: Transport, line: Line, items: Tensor) -> Tensor:
    """Return the logarithms (..., rows) of the sums over items of exp(item + log K)."""

    def part(whole: Sequence[Tensor], tiled: Sequence[Tensor]) -> tuple[Any, Any]:
        items, points = whole
        return [], [(items.unsqueeze(-2) + log_kernel(tiled[0], points, line)).logsumexp(-1)]

    (found,) = over_tiles(Tiles(part, 2, 0, 1, items.shape[-1]), items, t.points, t.row_points)
    return found


def _columns(line: Line, t: Transport, rows: Tensor) -> tuple[Tensor, Tensor]:
    # the row sums (..., rows) of the coupling with item weights a, and the log-sum-exp of each item

    def part(whole: Sequence[Tensor], tiled: Sequence[Tensor]) -> tuple[Any, Any]:
        (rows, row_points), (points, a) = whole, tiled
        logits = rows.unsqueeze(-2) + log_kernel(points, row_points, line)
        sums = logits.logsumexp(-1)
        shares = (logits - sums.unsqueeze(-1)).exp()
        return [(a.unsqueeze(-2) @ shares).squeeze(-2)], [sums]

    task = Tiles(part, 2, 1, 1, rows.shape[-1])
    sums, items = over_tiles(task, rows, t.row_points, t.points, t.a)
    return sums, items


class _Solved(Rule):
    # H^-1 right, for a fixed Hessian, which is symmetric

    def __init__(self, line: Line) -> None:
        self.line = line

    def values(self, right: Tensor, *fixed: Tensor, **_: Any) -> tuple[Tensor, ...]:
        return (solve_hessians(right, list(fixed), *self.line),)

    def gradients(
        self, needed: Sequence[bool], given: Sequence[Maybe], *saved: Any
    ) -> Sequence[Maybe]:
        _, *fixed = saved
        return (*differentiable(self, given[0], *fixed), *(None for _ in fixed))

    def tangents(self, tangents: Sequence[Maybe], *saved: Any) -> tuple[Maybe, ...]:
        _, *fixed = saved
        return differentiable(self, tangents[0], *fixed)


# ops, so that a trace such as `make_fx` records a call and not the solvers' numbers
@torch.library.custom_op("ltr::sinkhorn_lists", mutates_args=())
def solve_lists(
    row_points: Tensor,
    points: Tensor,
    a: Tensor,
    b: Tensor,
    power: float,
    epsilon: float,
    threshold: float,
    iterations: int,
) -> tuple[Tensor, Tensor]:
    """Return row potentials (..., rows) and the preconditioners (..., groups, groups) of lists.

    See `sinkhorn_solve`; it takes the lists one by one.
    """
    line, found = Line(power, epsilon), []
    for one in zip(*(x.reshape(-1, x.shape[-1]) for x in (row_points, points, a, b)), strict=True):
        found.append(solve(Transport(*one), line, threshold, iterations))
    rows, inverse = (torch.stack(parts) for parts in zip(*found, strict=True))
    return rows.view(b.shape), inverse.view(*b.shape[:-1], *inverse.shape[-2:])


@solve_lists.register_fake
def _(row_points: Tensor, points: Tensor, a: Tensor, b: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    groups = min(GROUPS, b.shape[-1])
    return torch.empty_like(b), b.new_empty((*b.shape[:-1], groups, groups))


@torch.library.custom_op("ltr::sinkhorn_hessians", mutates_args=())
def solve_hessians(right: Tensor, fixed: list[Tensor], power: float, epsilon: float) -> Tensor:
    """Return the solutions (..., rows) of the Hessians' equations, list by list.

    The fixed tensors are the potentials, the preconditioners and a `Transport`.
    """
    rows, inverse, *vectors = fixed
    matrices = inverse.reshape(-1, *inverse.shape[-2:])
    lists = [x.reshape(-1, x.shape[-1]) for x in (right, rows, *vectors)]
    found = [
        solve_hessian(Transport(*t), Line(power, epsilon), potentials, matrix, side)
        for matrix, side, potentials, *t in zip(matrices, *lists, strict=True)
    ]
    return torch.stack(found).view(right.shape)


@solve_hessians.register_fake
def _(right: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(right)


def _batched(size: int, in_dims: Sequence[int | None], tensors: Sequence[Tensor]) -> list[Tensor]:
    return [
        x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
        for x, dim in zip(tensors, in_dims, strict=True)
    ]


def _solve_batches(info, in_dims, *arguments):
    tensors = _batched(info.batch_size, in_dims[:4], arguments[:4])
    return solve_lists(*tensors, *arguments[4:]), (0, 0)


solve_lists.register_vmap(_solve_batches)
