"""Rows of a power's softmax on the CPU, compiled by numba, for the powers 1/2, 1, 3/2, ...

For these powers |x|^power is a product and at most one square root. Everything is in float64.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ltr.kernels.cpu.jit import entry, jit, run_parallel
from ltr.kernels.cpu.neuralsort_rows import _pieces, by_column, together
from ltr.kernels.cpu.vectors import dot, exp, total_of
from ltr.kernels.reference.rows import row_cut


@jit
def _band(t, i, m, reach, low, high):
    # return the columns low to high - 1 of row i, given those of the row before
    while low < i and not t[low] - t[i] <= reach:
        low += 1
    high = max(high, i + 1)
    while high < m and t[i] - t[high] <= reach:
        high += 1
    return low, high


@jit
def _row(t, point, halves, scale, work):
    # Fill the row of P of one point, over the columns t, and x, |x|^power and 1 / |x| (0 at x = 0).
    # Return the logarithm of the row's sum.
    x, raised, inverse, P, bits = work
    for k in range(len(t)):
        x[k] = point - t[k]
    for k in range(len(t)):
        inverse[k] = 0.0 if x[k] == 0.0 else 1.0 / abs(x[k])
    if halves % 2:
        for k in range(len(t)):
            raised[k] = math.sqrt(abs(x[k]))
    else:
        raised[:] = 1.0
    for _ in range(halves // 2):
        for k in range(len(t)):
            raised[k] *= abs(x[k])
    for k in range(len(t)):
        P[k] = -raised[k] * scale
    exp(P, bits)
    total = total_of(P)
    for k in range(len(t)):
        P[k] /= total
    return math.log(total)


@jit
def _weigh(P, u, v, halves, work, out):
    # out = P times the weight (u, v); each step stays in range
    x, raised, inverse, _, _ = work
    out[:] = P
    if (u == 0 and v == 0) or (halves == 4 and v == 2 * u):  # x^0, smooth at 0
        return
    for step in range(max(u, v)):
        if step < u:
            for k in range(len(P)):
                out[k] *= raised[k]
        if step < v:
            for k in range(len(P)):
                out[k] *= inverse[k]
    if v % 2:
        for k in range(len(P)):
            out[k] = math.copysign(out[k], out[k] * x[k])
    for k in range(len(P)):
        out[k] = 0.0 if x[k] == 0.0 else out[k]


@jit
def _cut(work, size):
    x, raised, inverse, P, bits = work
    return x[:size], raised[:size], inverse[:size], P[:size], bits[:size]


@jit
def _work(n):
    return np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)


class Points(NamedTuple):
    """The points of lists, and the power of their distances."""

    t: Any
    """(lists, n), falling."""
    lengths: Any
    """(lists,), the number of real points."""
    halves: int
    """Twice the power."""
    scale: float
    """1 / temperature."""
    reach: float
    """The largest distance that counts."""


@entry
@jit
def _products(points, columns, weights, transposed, pieces, out, begin, stop):
    # if transposed, each piece adds to its own out[piece]; else the pieces of a list share out[row]
    t, lengths, halves, scale, reach = points
    whole, spare = _work(t.shape[1]), np.empty(t.shape[1])
    for piece in range(begin, stop):
        row, first, last = pieces[piece]
        low, high = 0, 0
        for i in range(first, min(last, lengths[row])):
            low, high = _band(t[row], i, lengths[row], reach, low, high)
            work = _cut(whole, high - low)
            _row(t[row, low:high], t[row, i], halves, scale, work)
            Q = spare[: high - low]
            for c in range(len(weights)):
                u, v = weights[c]
                if c == 0 or weights[c - 1, 0] != u or weights[c - 1, 1] != v:
                    _weigh(work[3], u, v, halves, work, Q)
                if transposed:
                    w = columns[row, c, i]
                    Z = out[piece, c, low:high]
                    for k in range(len(Q)):
                        Z[k] += w * Q[k]
                else:
                    out[row, c, i] = dot(Q, columns[row, c, low:high])


@entry
@jit
def _vjp(points, G, V, weights, pieces, out, begin, stop):
    t, lengths, halves, scale, reach = points
    n = t.shape[1]
    whole, spare, means, slopes = _work(n), np.empty(n), np.empty(n), np.empty(n)
    for piece in range(begin, stop):
        row, first, last = pieces[piece]
        low, high = 0, 0
        for i in range(first, min(last, lengths[row])):
            low, high = _band(t[row], i, lengths[row], reach, low, high)
            work = _cut(whole, high - low)
            _row(t[row, low:high], t[row, i], halves, scale, work)
            P, Q = work[3], spare[: high - low]
            D, X = means[: high - low], slopes[: high - low]
            D[:] = 0.0
            X[:] = 0.0
            for c in range(len(weights)):
                u, v = weights[c]
                g, values = np.float64(G[row, c, i]), V[row, c, low:high]
                _weigh(P, u, v, halves, work, Q)
                for k in range(len(Q)):
                    D[k] += g * values[k] * Q[k]
                factor = 0.5 * u * halves - v
                if factor != 0.0:  # the weight depends on x too
                    _weigh(P, u, v + 1, halves, work, Q)
                    for k in range(len(Q)):
                        X[k] += factor * g * values[k] * Q[k]
            r = total_of(D)
            for k in range(len(Q)):
                D[k] -= P[k] * r
            _weigh(D, 1, 1, halves, work, Q)
            rate = -0.5 * halves * scale
            Z = out[piece, low:high]
            for k in range(len(Q)):
                X[k] += rate * Q[k]
                Z[k] -= X[k]
            out[piece, i] += total_of(X)


@entry
@jit
def _log_sums(points, pieces, out, begin, stop):
    t, lengths, halves, scale, reach = points
    whole = _work(t.shape[1])
    for piece in range(begin, stop):
        row, first, last = pieces[piece]
        low, high = 0, 0
        for i in range(first, min(last, lengths[row])):
            low, high = _band(t[row], i, lengths[row], reach, low, high)
            work = _cut(whole, high - low)
            out[row, i] = _row(t[row, low:high], t[row, i], halves, scale, work)


def takes(power: float | None) -> bool:
    """Return whether this module supports the power."""
    return power is not None and power <= 16 and float(2 * power).is_integer()


def _points(points: Tensor, lengths: Tensor, temperature: float, power: float) -> Points:
    reach = (row_cut(points, power) * temperature) ** (1 / power)
    t = points.double().numpy()
    return Points(t, lengths.numpy(), int(2 * power), 1 / temperature, reach)


def _weights(blocks: list[int]) -> np.ndarray:
    table = np.array(blocks, np.int64).reshape(-1, 3)
    return np.repeat(table[:, 1:], table[:, 0], axis=0)


def row_products(
    points: Tensor,
    lengths: Tensor,
    columns: Tensor,
    temperature: float,
    power: float,
    rows: int,
    blocks: list[int],
    transposed: bool,
) -> Tensor:
    """Compute `ltr.kernels.rows.row_products` of points (B, n) and columns (B, ., d)."""
    B, n = points.shape
    weights, pieces = _weights(blocks), _pieces(B, rows)
    values = by_column(columns, np.arange(len(weights)))
    shape = (len(pieces), len(weights), n) if transposed else (B, len(weights), rows)
    out = np.zeros(shape)
    arguments = _points(points, lengths, temperature, power), values, weights
    run_parallel(
        lambda a, b: _products(*arguments, transposed, pieces, out, a, b),
        len(pieces),
        B * rows * n * (4 + len(weights)) // 2,
    )
    return together(out, B).mT.to(points.dtype).contiguous()


def row_vjp(
    points: Tensor,
    lengths: Tensor,
    G: Tensor,
    V: Tensor,
    temperature: float,
    power: float,
    rows: int,
    blocks: list[int],
) -> Tensor:
    """Compute `ltr.kernels.rows.row_vjp` of points (B, n)."""
    B, n = points.shape
    weights, pieces = _weights(blocks), _pieces(B, rows)
    columns = [by_column(x, np.arange(len(weights))) for x in (G, V)]
    out = np.zeros((len(pieces), n))
    arguments = _points(points, lengths, temperature, power), columns[0], columns[1], weights
    run_parallel(
        lambda a, b: _vjp(*arguments, pieces, out, a, b),
        len(pieces),
        B * rows * n * (4 + 2 * len(weights)) // 2,
    )
    return together(out, B).to(points.dtype).unsqueeze(-1)


def row_log_sums(
    points: Tensor, lengths: Tensor, temperature: float, power: float, rows: int
) -> Tensor:
    """Compute `ltr.kernels.rows.row_log_sums` of points (B, n)."""
    pieces, out = _pieces(len(points), rows), np.zeros((len(points), rows))
    given = _points(points, lengths, temperature, power)
    run_parallel(
        lambda a, b: _log_sums(given, pieces, out, a, b),
        len(pieces),
        len(points) * rows * points.shape[-1] * 2,
    )
    return torch.from_numpy(out).to(points.dtype)
