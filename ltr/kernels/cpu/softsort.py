"""SoftSort's ranks for power 1 and their gradient, each in one compiled call."""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ltr.kernels.cpu.jit import entry, jit, run_parallel
from ltr.kernels.cpu.lanes import LANES
from ltr.kernels.cpu.vectors import FARTHEST, exp


@jit
def _decays(x, order, n, scale, t, d):
    # fill the scores in order, and exp(-gap) from place p - 1 to p, 0 at the ends; return whether
    # all scores are finite
    finite = True
    for p in range(n):
        t[p] = x[order[p]]
        finite &= math.isfinite(t[p])
    scratch = np.empty(LANES)
    for begin in range(1, n, LANES):
        end = min(begin + LANES, n)
        for p in range(begin, end):
            d[p] = -min((np.float64(t[p - 1]) - t[p]) * scale, FARTHEST)
        exp(d[begin:end], scratch)
    d[0] = 0.0
    d[n] = 0.0
    return finite


class Lists(NamedTuple):
    """Scores and order (lists, n), lengths (lists,), and 1 / temperature."""

    x: Any
    order: Any
    lengths: Any
    scale: float


@entry
@jit
def forward(lists, ranks, sums, begin, stop):
    """Compute ranks K (rho / c) and sums c = K 1, in sorted order, of rows `begin` to `stop`."""
    x, order, lengths, scale = lists
    size = x.shape[1]
    t, d = np.empty(size, x.dtype), np.empty(size + 1)
    u, below = np.empty(size), np.empty(size)
    for row in range(begin, stop):
        n, items, c = lengths[row], order[row], sums[row]
        for p in range(n, size):
            ranks[row, items[p]] = n + 1
            c[p] = 1.0
        if not n:
            continue
        if not _decays(x[row], items, n, scale, t, d):
            for p in range(n):
                ranks[row, items[p]] = math.nan
                c[p] = math.nan
            continue
        up, down = 0.0, 0.0
        for p in range(n):  # both sides at once: two recurrences that do not wait for each other
            q = n - 1 - p
            u[p] = d[p] * up
            below[q] = d[q + 1] * down
            up, down = d[p] * up + 1.0, d[q + 1] * down + 1.0
        for p in range(n):
            c[p] = 1.0 + u[p] + below[p]
            u[p] = (p + 1) / np.float64(c[p])
        down = 0.0
        for p in range(n - 1, -1, -1):
            below[p] = d[p + 1] * down
            down = d[p + 1] * down + u[p]
        up = 0.0
        for p in range(n):
            ranks[row, items[p]] = u[p] + d[p] * up + below[p]
            up = d[p] * up + u[p]


@entry
@jit
def backward(lists, sums, gradients, out, begin, stop):
    """Fill out with dLoss/dscores, from gradients = dLoss/dranks = h.

    See `ltr.kernels.softsort_ranks`. S v is the sum above minus the sum below, without tied items.
    """
    x, order, lengths, scale = lists
    size = x.shape[1]
    t, h, d = np.empty(size, x.dtype), np.empty(size, x.dtype), np.empty(size + 1)
    steep_u, steep_h, steep_1 = np.empty(size), np.empty(size), np.empty(size)
    grad_c = np.empty(size)
    for row in range(begin, stop):
        n, items, c = lengths[row], order[row], sums[row]
        for p in range(n, size):
            out[row, items[p]] = 0.0
        if not n:
            continue
        if not _decays(x[row], items, n, scale, t, d):
            for p in range(n):
                out[row, items[p]] = math.nan
            continue
        for p in range(n):
            h[p] = gradients[row, items[p]]
        of_u, of_h, of_1 = 0.0, 0.0, 0.0  # states of all passed, and of the tied alone
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
            grad_c[p] = -(v + of_h + grad_c[p]) * u / c[p]  # dLoss/dc
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
    scores: Tensor, order: Tensor, lengths: Tensor | None, temperature: float
) -> tuple[Tensor, Tensor]:
    """Compute the ranks (..., n) and, in sorted order, the sums c."""
    lists = _lists(scores, order, lengths, temperature)
    found, sums = np.empty_like(lists.x), np.empty_like(lists.x)
    _each_row(forward, lists, found, sums)
    return _tensor(found, scores), _tensor(sums, scores)


def gradient(
    scores: Tensor,
    order: Tensor,
    lengths: Tensor | None,
    sums: Tensor,
    given: Tensor,
    temperature: float,
) -> Tensor:
    """Compute the gradient by the scores from the one by the ranks, `given`."""
    lists, n = _lists(scores, order, lengths, temperature), scores.shape[-1]
    found = np.empty_like(lists.x)
    _each_row(backward, lists, _rows(sums, n), _rows(given, n), found)
    return _tensor(found, scores)


def _lists(scores: Tensor, order: Tensor, lengths: Tensor | None, temperature: float) -> Lists:
    # each array in one layout, so that numba compiles once
    n = scores.shape[-1]
    x = _rows(scores, n)
    sizes = _all(*x.shape) if lengths is None else _rows(lengths, 1)[:, 0]
    return Lists(x, _rows(order, n), sizes, 1 / temperature)


@lru_cache(16)
def _all(lists: int, n: int) -> Any:
    lengths = np.full((lists, 1), n)  # numpy's array is writable, like the others
    return lengths[:, 0]


def _rows(x: Tensor, n: int) -> Any:
    return np.ascontiguousarray(x.numpy()).reshape(-1, n)


def _tensor(x: Any, like: Tensor) -> Tensor:
    return torch.from_numpy(x.reshape(like.shape))  # numpy reshapes in a fraction of torch's time


def _each_row(function: Any, lists: Lists, *rest: Any) -> None:
    run_parallel(lambda a, b: function(lists, *rest, a, b), len(lists.x), 8 * lists.x.size)
