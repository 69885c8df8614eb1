"""NeuralSort's rows on the CPU, compiled by numba: each goes from its diagonal out to its cut.

Everything is in float64. Rows whose points are tied or near each other are computed in blocks
(`row_blocks`). The others are computed one by one, in a buffer for one row of P.
"""

import numpy as np
import torch
from torch import Tensor

from ltr.kernels.cpu.jit import entry, jit, run_parallel
from ltr.kernels.cpu.row_blocks import (
    FIRST,
    LEAST,
    Points,
    add_spread,
    block_log_sums,
    block_products,
    block_vjp,
    find_block,
    new_work,
    open_block,
)
from ltr.kernels.cpu.vectors import dot, exp, total_of
from ltr.kernels.reference.rows import row_cut


@jit
def _one(points, row):
    return Points(points.t[row], points.rate, points.lengths[row], points.cut)


@jit
def _weights(points, i, row, scale):
    # the exponentials of row i's logits, at row[n - left : n + right + 1], and their sum; the
    # points have any dtype
    t, rate, m, cut = points
    middle = len(t)
    row[middle] = 0.0
    logit, odd, right = 0.0, 1.0, 0
    for j in range(i, m - 1):
        logit -= odd * ((np.float64(t[j]) - np.float64(t[j + 1])) * rate)
        if not logit >= -cut:
            break
        odd += 2.0
        right += 1
        row[middle + right] = logit
    logit, odd, left = 0.0, 1.0, 0
    for j in range(i - 1, -1, -1):
        logit -= odd * ((np.float64(t[j]) - np.float64(t[j + 1])) * rate)
        if not logit >= -cut:
            break
        odd += 2.0
        left += 1
        row[middle - left] = logit
    P = row[middle - left : middle + right + 1]
    exp(P, scale[: len(P)])
    return left, right, total_of(P)


@jit
def _row_products(points, columns, steps, transposed, span, vectors, out):
    # points, columns and out are of this list
    middle = len(points.t)
    buffer, scale, _ = vectors
    for i in range(span[0], span[1]):
        left, right, total = _weights(points, i, buffer, scale)
        P, share = buffer[middle - left : middle + right + 1], 1.0 / total
        for k in range(len(P)):
            P[k] *= share
        level = 0
        for c in range(len(steps)):
            while level < steps[c]:  # they rise
                for k in range(len(P)):
                    P[k] *= k - left
                level += 1
            if transposed:
                w = columns[c, i]
                Z = out[c, i - left : i + right + 1]
                for k in range(len(P)):
                    Z[k] += w * P[k]
            else:
                out[c, i] = dot(P, columns[c, i - left : i + right + 1])


@entry
@jit
def _products(points, columns, steps, transposed, pieces, out, begin, stop):
    # if transposed, each piece adds to its own out[piece]; else the pieces of a list share out[row]
    n = points.t.shape[1]
    vectors, work = (np.empty(2 * n), np.empty(2 * n), np.empty(0)), new_work(n)
    for piece in range(begin, stop):
        row, first, last = pieces[piece]
        one, half = _one(points, row), FIRST
        last, into = min(last, one.lengths), out[piece] if transposed else out[row]
        while first < last:
            block, half = find_block(one, first, last, half, work)
            count, left, right = block.size, block.left, block.right
            if not count:
                end = min(first + LEAST, last)
                _row_products(one, columns[row], steps, transposed, (first, end), vectors, into)
                first = end
                continue
            open_block(block, work)
            for c in range(len(steps)):
                if transposed:
                    w, ones = columns[row, c, first : first + count], work.ones[: right - left]
                    add_spread(w, steps[c], block, work, ones, into[c, left:right])
                else:
                    values, some = columns[row, c, left:right], into[c, first : first + count]
                    block_products(values, steps[c], block, work, some)
            first += count


@jit
def _row_vjp(points, G, V, steps, span, vectors, out):
    # points, G, V and out are of this list
    middle = len(points.t)
    buffer, scale, means = vectors
    for i in range(span[0], span[1]):
        left, right, total = _weights(points, i, buffer, scale)
        P, share = buffer[middle - left : middle + right + 1], 1.0 / total
        M = means[: len(P)]
        M[:] = 0.0
        level = 0
        for c in range(len(steps) - 1, -1, -1):  # by Horner's rule in k - left
            while level > steps[c]:
                for k in range(len(P)):
                    M[k] *= k - left
                level -= 1
            level = steps[c]
            g = np.float64(G[c, i])
            values = V[c, i - left : i + right + 1]
            for k in range(len(P)):
                M[k] += g * values[k]
        while level > 0:
            for k in range(len(P)):
                M[k] *= k - left
            level -= 1
        r = dot(P, M) * share
        near = out[0, i - left : i + right + 1]
        far = out[1, i - left : i + right + 1]
        for k in range(len(P)):
            D = share * P[k] * (M[k] - r)
            near[k] += D
            far[k] += (k - left) * D


@entry
@jit
def _vjp(points, G, V, steps, pieces, out, begin, stop):
    n = points.t.shape[1]
    vectors, work = (np.empty(2 * n), np.empty(2 * n), np.empty(2 * n)), new_work(n)
    for piece in range(begin, stop):
        row, first, last = pieces[piece]
        one, half = _one(points, row), FIRST
        last = min(last, one.lengths)
        while first < last:
            block, half = find_block(one, first, last, half, work)
            if not block.size:
                end = min(first + LEAST, last)
                _row_vjp(one, G[row], V[row], steps, (first, end), vectors, out[piece])
                first = end
                continue
            open_block(block, work)
            block_vjp(G[row], V[row], steps, block, work, out[piece, 0], out[piece, 1])
            first += block.size


@entry
@jit
def _log_sums(points, pieces, out, begin, stop):
    n = points.t.shape[1]
    buffer, scale, work = np.empty(2 * n), np.empty(2 * n), new_work(n)
    for piece in range(begin, stop):
        row, first, last = pieces[piece]
        one, half = _one(points, row), FIRST
        last = min(last, one.lengths)
        while first < last:
            block, half = find_block(one, first, last, half, work)
            count = block.size
            if count:
                open_block(block, work)
                block_log_sums(count, work, out[row, first : first + count])
                first += count
                continue
            end = min(first + LEAST, last)
            for i in range(first, end):
                out[row, i] = np.log(_weights(one, i, buffer, scale)[2])
            first = end


def _pieces(lists: int, rows: int) -> np.ndarray:
    # return list, first row and last row + 1 of each piece; there are enough pieces for all threads
    each = max(1, min(-(-torch.get_num_threads() // lists), rows // 64))
    edges = [rows * k // each for k in range(each + 1)]
    found = [(row, edges[k], edges[k + 1]) for row in range(lists) for k in range(each)]
    return np.array(found, np.int64)


def together(out: np.ndarray, lists: int) -> Tensor:
    """Return the sums over the pieces of each list: (pieces, ...) -> (lists, ...)."""
    pieces = torch.from_numpy(out)
    return pieces if len(out) == lists else pieces.view(lists, -1, *out.shape[1:]).sum(1)


def by_column(x: Tensor, places: np.ndarray) -> np.ndarray:
    """Return x (B, rows, d) as (B, d, rows) with columns in the order of `places`.

    It does not copy if the layout is right already.
    """
    x = x.mT if len(places) == 1 else x.mT[:, torch.from_numpy(places)]
    return np.ascontiguousarray(x.numpy())


def _points(points: Tensor, lengths: Tensor, temperature: float) -> Points:
    t = np.ascontiguousarray(points.numpy())
    return Points(t, 1 / temperature, lengths.numpy(), row_cut(points, None))


def _steps(blocks: list[int]) -> tuple[np.ndarray, np.ndarray]:
    # return the power of j - i of each column, rising, and the columns in that order
    steps = np.repeat(np.array(blocks[1::3], np.int64), np.array(blocks[::3], np.int64))
    rising = np.argsort(steps, kind="stable")
    return steps[rising], rising


def row_products(
    points: Tensor,
    lengths: Tensor,
    columns: Tensor,
    temperature: float,
    rows: int,
    blocks: list[int],
    transposed: bool,
) -> Tensor:
    """Compute `ltr.kernels.rows.row_products` of points (B, n), columns (B, ., d), NeuralSort."""
    B, n = points.shape
    steps, rising = _steps(blocks)
    values = by_column(columns, rising)
    pieces = _pieces(B, rows)
    shape = (len(pieces), len(steps), n) if transposed else (B, len(steps), rows)
    out = np.zeros(shape)
    arguments = _points(points, lengths, temperature), values, steps
    run_parallel(
        lambda a, b: _products(*arguments, transposed, pieces, out, a, b),
        len(pieces),
        B * rows * min(n, 64) * (4 + len(steps)),
    )
    result = torch.empty((B, out.shape[-1], len(rising)), dtype=points.dtype)
    for place, column in zip(rising, together(out, B).unbind(1), strict=True):
        result[..., place] = column
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
    """Compute `ltr.kernels.rows.row_vjp` of points (B, n), for NeuralSort."""
    B, n = points.shape
    steps, rising = _steps(blocks)
    columns = by_column(G, rising), by_column(V, rising)
    pieces = _pieces(B, rows)
    out = np.zeros((len(pieces), 2, n))
    arguments = _points(points, lengths, temperature), *columns, steps
    run_parallel(
        lambda a, b: _vjp(*arguments, pieces, out, a, b),
        len(pieces),
        B * rows * min(n, 64) * (6 + 2 * len(steps)),
    )
    return torch.empty((B, n, 2), dtype=points.dtype).copy_(together(out, B).mT)


def row_log_sums(points: Tensor, lengths: Tensor, temperature: float, rows: int) -> Tensor:
    """Compute `ltr.kernels.rows.row_log_sums` of points (B, n), for NeuralSort."""
    pieces = _pieces(len(points), rows)
    out = np.zeros((len(points), rows))
    given = _points(points, lengths, temperature)
    run_parallel(
        lambda a, b: _log_sums(given, pieces, out, a, b),
        len(pieces),
        len(points) * rows * min(points.shape[-1], 64) * 4,
    )
    return torch.from_numpy(out).to(points.dtype)
