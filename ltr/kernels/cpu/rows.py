"""NeuralSort's rows on the CPU, compiled by numba, in float64 and in a buffer for one row of P.

Neighboring rows differ by a factor for each column: exp(L_ij) exp(2 (t_i - t_j) / temperature) is
exp(L_(i + 1)j), up to a constant for the row. So several rows together need only two exponentials
for each column. Their columns range from the left cutoff of the first row to the right cutoff of
the last. Narrow rows are computed one by one.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ltr.kernels.cpu.jit import entry, jit, run_parallel
from ltr.kernels.cpu.vectors import dot, exp, total_of
from ltr.kernels.reference.rows import row_cutoff

TOGETHER = 16
"""The rows that follow from one another by a factor for each column."""

DEEPEST = 100.0
"""The logarithms of their entries, before the softmax's division, are at most this far from 0."""


class Points(NamedTuple):
    """The points of lists, or of one list with its length."""

    t: Any
    """(lists, n) or (n,), descending."""
    rate: float
    """1 / temperature."""
    lengths: Any
    """The number of real points."""
    cut: float
    """The largest -L_ij that counts."""


@jit
def _one(points, row):
    return Points(points.t[row], points.rate, points.lengths[row], points.cut)


@jit
def _weights(points, i, count, work):
    # Compute exp(L_ij) of row i at buffer[n - left : n + right + 1], and the factors from one row
    # to the next there, and return left and right. The columns are those of `count` rows. If these
    # would leave the range of `DEEPEST`, left is -1. The points have any dtype.
    t, rate, m, cut = points
    buffer, factors, scale = work
    middle, last = len(t), i + count - 1
    buffer[middle] = factors[middle] = 0.0
    logit, odd, slope, top, right = 0.0, 1.0, 0.0, 0.0, 0
    for j in range(i, m - 1):
        gap = (np.float64(t[j]) - np.float64(t[j + 1])) * rate
        logit -= odd * gap
        slope += 2.0 * gap
        own = logit + (count - 1) * slope  # the last row's logit, up to a constant
        if j + 1 <= last:
            top = own
        elif not own - top >= -cut:
            break
        if count > 1 and not (logit >= -DEEPEST and own <= DEEPEST):
            return -1, 0
        odd += 2.0
        right += 1
        buffer[middle + right] = logit
        factors[middle + right] = slope
    logit, odd, slope, left = 0.0, 1.0, 0.0, 0
    for j in range(i - 1, -1, -1):
        gap = (np.float64(t[j]) - np.float64(t[j + 1])) * rate
        logit -= odd * gap
        if not logit >= -cut:
            break
        slope -= 2.0 * gap
        odd += 2.0
        left += 1
        buffer[middle - left] = logit
        factors[middle - left] = slope
    P = buffer[middle - left : middle + right + 1]
    exp(P, scale[: len(P)])
    if count > 1:
        exp(factors[middle - left : middle + right + 1], scale[: len(P)])
    return left, right


@jit
def _open(points, i, stop, work):
    # return how many rows from i on fit, their first column, row i of P before the softmax's
    # division, and the factors to the next row
    count = min(TOGETHER, stop - i)
    left, right = _weights(points, i, count, work)
    if left < 0:
        count = 1
        left, right = _weights(points, i, count, work)
    middle = len(points.t)
    some = slice(middle - left, middle + right + 1)
    return count, i - left, work[0][some], work[1][some]


@jit
def _step(P, factors):
    for k in range(len(P)):
        P[k] *= factors[k]


@jit
def _multiply(W, start, times):
    # multiply by the column minus the row, some times
    for _ in range(times):
        for k in range(len(W)):
            W[k] *= k + start


@jit
def _row_products(points, columns, steps, transposed, span, vectors, out):
    # points, columns and out are of this list
    work, scratch = vectors
    i, stop = span
    while i < stop:
        count, first, P, factors = _open(points, i, stop, work)
        W = scratch[: len(P)]
        for row in range(i, i + count):
            if row > i:
                _step(P, factors)
            share = 1.0 / total_of(P)
            for k in range(len(P)):
                W[k] = P[k] * share
            level = 0
            for c in range(len(steps)):
                _multiply(W, first - row, steps[c] - level)  # they rise
                level = steps[c]
                if transposed:
                    w = columns[c, row]
                    Z = out[c, first : first + len(P)]
                    for k in range(len(P)):
                        Z[k] += w * W[k]
                else:
                    out[c, row] = dot(W, columns[c, first : first + len(P)])
        i += count


@entry
@jit
def _products(points, columns, steps, transposed, chunks, out, begin, stop):
    # if transposed, each chunk adds to its own out[chunk]; else the chunks of a list share out[row]
    n = points.t.shape[1]
    work = np.empty(2 * n), np.empty(2 * n), np.empty(2 * n)
    for chunk in range(begin, stop):
        row, first, last = chunks[chunk]
        one, into = _one(points, row), out[chunk] if transposed else out[row]
        span = first, min(last, one.lengths)
        _row_products(one, columns[row], steps, transposed, span, (work, np.empty(n)), into)


@jit
def _row_vjp(points, G, V, steps, span, vectors, out):
    # points, G, V and out are of this list
    work, means = vectors
    i, stop = span
    while i < stop:
        count, first, P, factors = _open(points, i, stop, work)
        M = means[: len(P)]
        near, far = out[0, first : first + len(P)], out[1, first : first + len(P)]
        for row in range(i, i + count):
            if row > i:
                _step(P, factors)
            share = 1.0 / total_of(P)
            M[:] = 0.0
            level = 0
            for c in range(len(steps) - 1, -1, -1):  # by Horner's rule in j - row
                _multiply(M, first - row, level - steps[c])
                level = steps[c]
                g = np.float64(G[c, row])
                values = V[c, first : first + len(P)]
                for k in range(len(P)):
                    M[k] += g * values[k]
            _multiply(M, first - row, level)
            r = dot(P, M) * share
            for k in range(len(P)):
                D = share * P[k] * (M[k] - r)
                near[k] += D
                far[k] += (k + first - row) * D
        i += count


@entry
@jit
def _vjp(points, G, V, steps, chunks, out, begin, stop):
    n = points.t.shape[1]
    vectors = (np.empty(2 * n), np.empty(2 * n), np.empty(2 * n)), np.empty(n)
    for chunk in range(begin, stop):
        row, first, last = chunks[chunk]
        one = _one(points, row)
        span = first, min(last, one.lengths)
        _row_vjp(one, G[row], V[row], steps, span, vectors, out[chunk])


@entry
@jit
def _log_sums(points, chunks, out, begin, stop):
    n = points.t.shape[1]
    work = np.empty(2 * n), np.empty(2 * n), np.empty(2 * n)
    for chunk in range(begin, stop):
        row, first, last = chunks[chunk]
        one = _one(points, row)
        i, last = first, min(last, one.lengths)
        while i < last:
            count, left, P, factors = _open(one, i, last, work)
            for k in range(i, i + count):
                if k > i:
                    _step(P, factors)
                out[row, k] = np.log(total_of(P) / P[k - left])  # with L_kk = 0
            i += count


def _chunks(lists: int, rows: int) -> np.ndarray:
    # return list, first row and last row + 1 of each chunk; there are enough chunks for all threads
    each = max(1, min(-(-torch.get_num_threads() // lists), rows // 64))
    edges = [rows * k // each for k in range(each + 1)]
    found = [(row, edges[k], edges[k + 1]) for row in range(lists) for k in range(each)]
    return np.array(found, np.int64)


def _together(out: np.ndarray, lists: int) -> Tensor:
    # return the sums over the chunks of each list: (chunks, ...) -> (lists, ...)
    chunks = torch.from_numpy(out)
    return chunks if len(out) == lists else chunks.view(lists, -1, *out.shape[1:]).sum(1)


def _by_column(x: Tensor, positions: np.ndarray) -> np.ndarray:
    # Return x (B, rows, d) as (B, d, rows) with columns in the order of `positions`. It does not
    # copy if the layout is right already.
    x = x.mT if len(positions) == 1 else x.mT[:, torch.from_numpy(positions)]
    return np.ascontiguousarray(x.numpy())


def _points(points: Tensor, lengths: Tensor, temperature: float) -> Points:
    t = np.ascontiguousarray(points.numpy())
    return Points(t, 1 / temperature, lengths.numpy(), row_cutoff(points))


def _steps(blocks: list[int]) -> tuple[np.ndarray, np.ndarray]:
    # return the power of j - i of each column, ascending, and the columns in that order
    steps = np.repeat(np.array(blocks[1::2], np.int64), np.array(blocks[::2], np.int64))
    ascending = np.argsort(steps, kind="stable")
    return steps[ascending], ascending


def row_products(
    points: Tensor,
    lengths: Tensor,
    columns: Tensor,
    temperature: float,
    rows: int,
    blocks: list[int],
    transposed: bool,
) -> Tensor:
    """Compute `ltr.kernels.rows.row_products` of points (B, n) and columns (B, ., d)."""
    B, n = points.shape
    steps, ascending = _steps(blocks)
    values = _by_column(columns, ascending)
    chunks = _chunks(B, rows)
    shape = (len(chunks), len(steps), n) if transposed else (B, len(steps), rows)
    out = np.zeros(shape)
    arguments = _points(points, lengths, temperature), values, steps
    run_parallel(
        lambda a, b: _products(*arguments, transposed, chunks, out, a, b),
        len(chunks),
        B * rows * min(n, 64) * (4 + len(steps)),
    )
    result = torch.empty((B, out.shape[-1], len(ascending)), dtype=points.dtype)
    for position, column in zip(ascending, _together(out, B).unbind(1), strict=True):
        result[..., position] = column
    return result


def row_vjp(
    points: Tensor,
    lengths: Tensor,
    G: Tensor,
    V: Tensor,
    temperature: float,
    rows: int,
    blocks: list[int],
) -> Tensor:
    """Compute `ltr.kernels.rows.row_vjp` of points (B, n)."""
    B, n = points.shape
    steps, ascending = _steps(blocks)
    columns = _by_column(G, ascending), _by_column(V, ascending)
    chunks = _chunks(B, rows)
    out = np.zeros((len(chunks), 2, n))
    arguments = _points(points, lengths, temperature), *columns, steps
    run_parallel(
        lambda a, b: _vjp(*arguments, chunks, out, a, b),
        len(chunks),
        B * rows * min(n, 64) * (6 + 2 * len(steps)),
    )
    return torch.empty((B, n, 2), dtype=points.dtype).copy_(_together(out, B).mT)


def row_log_sums(points: Tensor, lengths: Tensor, temperature: float, rows: int) -> Tensor:
    """Compute `ltr.kernels.rows.row_log_sums` of points (B, n)."""
    chunks = _chunks(len(points), rows)
    out = np.zeros((len(points), rows))
    given = _points(points, lengths, temperature)
    run_parallel(
        lambda a, b: _log_sums(given, chunks, out, a, b),
        len(chunks),
        len(points) * rows * min(points.shape[-1], 64) * 4,
    )
    return torch.from_numpy(out).to(points.dtype)
