"""SoftSort's ranks for power 1 and their gradient, each in one compiled call."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ltr.kernels.cpu.jit import entry, jit, run_parallel
from ltr.kernels.cpu.vectors import FARTHEST, exp
from ltr.kernels.sorting import on_cpu

FEW_PAIRS = 1 << 18
"""For up to this many pairs of items, a sort that compares all of them is faster than numpy's."""


@jit
def _real(mask, row, size):
    # Return the number of real items. An empty mask masks no item.
    return mask[row].sum() if len(mask) else size


@jit
def _sort(x, mask, row, order):
    # Fill `order` with the descending order of a list, where masked items come last. The position
    # of an item is the number of items above it, plus the number of tied items before it. In a list
    # with a NaN all ranks are NaN, so its real items stay in the order of the list.
    size = len(order)
    keys, positions = np.empty(size, x.dtype), np.zeros(size, x.dtype)
    items, ties = np.empty(size, np.int64), np.zeros(size, np.int64)
    n, last, comparable = 0, size, True
    for i in range(size):
        if not len(mask) or mask[row, i]:
            keys[n], items[n] = x[row, i], i
            comparable &= keys[n] == keys[n]
            n += 1
    for i in range(size - 1, -1, -1):
        if len(mask) and not mask[row, i]:
            last -= 1
            order[last] = i
    one, zero = x.dtype.type(1), x.dtype.type(0)
    for i in range(n):
        key = keys[i]
        for j in range(n):  # all values have one dtype, so that LLVM can vectorize this loop
            positions[j] += one if key > keys[j] else zero
    for i in range(n):
        position = int(positions[i])
        order[position + ties[position] if comparable else i] = items[i]
        ties[position] += 1


@jit
def _decays(x, order, n, scale, t, d, scratch):
    # Fill t with the scores in order, and d[p] with exp(-gap), for the gap between positions p - 1
    # and p; d is 0 at both ends. Return whether all scores are finite.
    finite = True
    for p in range(n):
        t[p] = x[order[p]]
        finite &= math.isfinite(t[p])
    for p in range(1, n):
        d[p] = -min((np.float64(t[p - 1]) - t[p]) * scale, FARTHEST)
    exp(d[1:n], scratch)
    d[0] = 0.0
    d[n] = 0.0
    return finite


@jit
def _sides(d, v, n, above, below):
    # Fill `above` and `below` with the decayed sums of v over the items above and below each
    # position.
    up, down = 0.0, 0.0
    for p in range(n):  # the recurrences of the two sides do not wait for each other
        q = n - 1 - p
        up, down = d[p] * up, d[q + 1] * down
        above[p], below[q] = up, down
        up, down = up + v[p], down + v[q]


class Lists(NamedTuple):
    """Arrays (lists, n): scores, mask (no rows if all are real) and order; and 1 / temperature."""

    x: Any
    mask: Any
    order: Any
    scale: float


@entry
@jit
def forward(lists, ranks, sums, is_sorted, begin, stop):
    """Compute the ranks K (rho / c), and c = K 1 in sorted order, of lists `begin` to `stop` - 1.

    The symbols are those of `ltr.kernels.softsort_ranks`. Unless `is_sorted`, `lists.order` is
    filled first.
    """
    x, mask, order, scale = lists
    size = x.shape[1]
    t, d, u = np.empty(size, x.dtype), np.empty(size + 1), np.empty(size)
    above, below = np.empty(size), np.empty(size)
    for row in range(begin, stop):
        n, items, c = _real(mask, row, size), order[row], sums[row]
        if not is_sorted:
            _sort(x, mask, row, items)
        for p in range(n, size):
            ranks[row, items[p]] = n + 1
            c[p] = 1.0
        if not n:
            continue
        if not _decays(x[row], items, n, scale, t, d, above):
            for p in range(n):
                ranks[row, items[p]] = math.nan
                c[p] = math.nan
            continue
        u[:n] = 1.0
        _sides(d, u, n, above, below)
        for p in range(n):
            c[p] = above[p] + 1.0 + below[p]
            u[p] = (p + 1) / np.float64(c[p])
        _sides(d, u, n, above, below)
        for p in range(n):
            ranks[row, items[p]] = above[p] + u[p] + below[p]


@entry
@jit
def backward(lists, sums, gradients, out, begin, stop):
    """Fill `out` with dLoss/dscores, from `gradients`, which is h = dLoss/dranks.

    The symbols are those of `ltr.kernels.softsort_ranks`. S v is the decayed sum of v over the
    items above, minus the decayed sum over the items below; tied items are in neither.
    """
    x, mask, order, scale = lists
    size = x.shape[1]
    t, h, d = np.empty(size, x.dtype), np.empty(size, x.dtype), np.empty(size + 1)
    steep_u, steep_h, steep_1 = np.empty(size), np.empty(size), np.empty(size)
    grad_c = np.empty(size)
    for row in range(begin, stop):
        n, items, c = _real(mask, row, size), order[row], sums[row]
        for p in range(n, size):
            out[row, items[p]] = 0.0
        if not n:
            continue
        if not _decays(x[row], items, n, scale, t, d, grad_c):
            for p in range(n):
                out[row, items[p]] = math.nan
            continue
        for p in range(n):
            h[p] = gradients[row, items[p]]
        # `of_*` are decayed sums over the items passed so far. `tied_*` are sums over the passed
        # items that are tied with the item at p.
        of_u, of_h, of_1 = 0.0, 0.0, 0.0
        tied_u, tied_h, tied_1 = 0.0, 0.0, 0.0
        for p in range(n - 1, -1, -1):
            of_u, of_h, of_1 = d[p + 1] * of_u, d[p + 1] * of_h, d[p + 1] * of_1
            grad_c[p] = of_h
            if p == n - 1 or t[p + 1] != t[p]:
                tied_u, tied_h, tied_1 = 0.0, 0.0, 0.0
            steep_u[p], steep_h[p], steep_1[p] = tied_u - of_u, tied_h - of_h, tied_1 - of_1
            u, v = (p + 1) / np.float64(c[p]), np.float64(h[p])
            of_u, of_h, of_1 = of_u + u, of_h + v, of_1 + 1.0
            tied_u, tied_h, tied_1 = tied_u + u, tied_h + v, tied_1 + 1.0
        of_u, of_h, of_1 = 0.0, 0.0, 0.0
        for p in range(n):
            of_u, of_h, of_1 = d[p] * of_u, d[p] * of_h, d[p] * of_1
            if p == 0 or t[p - 1] != t[p]:
                tied_u, tied_h, tied_1 = 0.0, 0.0, 0.0
            u, v = (p + 1) / np.float64(c[p]), np.float64(h[p])
            # This is the derivative of the loss with respect to c[p].
            grad_c[p] = -(v + of_h + grad_c[p]) * u / c[p]
            moved = v * (steep_u[p] + of_u - tied_u) + u * (steep_h[p] + of_h - tied_h)
            steep_u[p] = moved + grad_c[p] * (steep_1[p] + of_1 - tied_1)
            of_u, of_h, of_1 = of_u + u, of_h + v, of_1 + 1.0
            tied_u, tied_h, tied_1 = tied_u + u, tied_h + v, tied_1 + 1.0
        state, tied = 0.0, 0.0
        for p in range(n - 1, -1, -1):
            state = d[p + 1] * state
            if p == n - 1 or t[p + 1] != t[p]:
                tied = 0.0
            steep_u[p] += tied - state
            state, tied = state + grad_c[p], tied + grad_c[p]
        state, tied = 0.0, 0.0
        for p in range(n):
            state = d[p] * state
            if p == 0 or t[p - 1] != t[p]:
                tied = 0.0
            out[row, items[p]] = (steep_u[p] + state - tied) * scale
            state, tied = state + grad_c[p], tied + grad_c[p]


def ranks(
    scores: Tensor, mask: Tensor | None, order: Tensor | None, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the ranks (..., n), the sums c in sorted order, and the order."""
    n = scores.shape[-1]
    is_sorted = order is not None or scores.numel() * n > FEW_PAIRS
    if order is not None:
        order = order.clone()
    elif is_sorted:
        order = on_cpu(scores, mask)
    else:
        order = torch.empty(scores.shape, dtype=torch.int64)
    lists = _lists(scores, mask, order, temperature)
    ranks_of_rows, sums = np.empty_like(lists.x), np.empty_like(lists.x)
    _each_row(forward, lists, ranks_of_rows, sums, is_sorted)
    return _tensor(ranks_of_rows, scores), _tensor(sums, scores), order


def gradient(
    scores: Tensor,
    mask: Tensor | None,
    order: Tensor,
    sums: Tensor,
    given: Tensor,
    temperature: float,
) -> Tensor:
    """Return the gradient by the scores, from the gradient by the ranks."""
    lists, n = _lists(scores, mask, order, temperature), scores.shape[-1]
    slopes = np.empty_like(lists.x)
    _each_row(backward, lists, _rows(sums, n), _rows(given, n), slopes)
    return _tensor(slopes, scores)


NO_MASK = np.empty((0, 0), bool)


def _lists(scores: Tensor, mask: Tensor | None, order: Tensor, temperature: float) -> Lists:
    # The layout of each array is always the same, so that numba compiles once.
    n = scores.shape[-1]
    items = NO_MASK if mask is None else _rows(mask, n)
    return Lists(_rows(scores, n), items, _rows(order, n), 1 / temperature)


def _rows(x: Tensor, n: int) -> Any:
    return np.ascontiguousarray(x.detach().numpy()).reshape(-1, n)


def _tensor(x: Any, like: Tensor) -> Tensor:
    return torch.from_numpy(x.reshape(like.shape))  # numpy reshapes in a fraction of torch's time


def _each_row(function: Any, lists: Lists, *rest: Any) -> None:
    run_parallel(function, (lists, *rest), len(lists.x), 8 * lists.x.size)
