"""NeuralSort's rows on the CPU, compiled by numba: each walks out from its diagonal to its cut.

Everything is in float64. Products are taken row by row from a buffer that holds one row of P.
"""

import numpy as np
import torch
from torch import Tensor

from ltr.kernels._jit import compiler, entry, jit, run_parallel
from ltr.kernels._rows_torch import row_cut

sums_jit = compiler("reassoc", "contract", "nsz")
"""As `jit`, but sums may be taken in any order, and so in vector lanes."""

SHIFT = 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest whole number in the low bits
BIAS = 1023 << 52


@jit
def _exp(x, scale):  # x = exp(x) for x in [-600, 0], to the last digit or two
    for k in range(len(x)):
        shifted = x[k] * 1.4426950408889634 + SHIFT
        scale[k] = shifted
        whole = shifted - SHIFT
        r = (x[k] - whole * 0.693147180369123816490) - whole * 1.90821492927058770002e-10
        p = 1.6059043836821613e-10
        p = p * r + 2.08767569878681e-09
        p = p * r + 2.505210838544172e-08
        p = p * r + 2.755731922398589e-07
        p = p * r + 2.7557319223985893e-06
        p = p * r + 2.48015873015873e-05
        p = p * r + 0.0001984126984126984
        p = p * r + 0.001388888888888889
        p = p * r + 0.008333333333333333
        p = p * r + 0.041666666666666664
        p = p * r + 0.16666666666666666
        p = p * r + 0.5
        p = p * r + 1.0
        x[k] = p * r + 1.0
    bits = scale.view(np.int64)
    for k in range(len(x)):
        bits[k] = (bits[k] << 52) + BIAS  # two to that number
    for k in range(len(x)):
        x[k] *= scale[k]


@jit
def _walk(t, i, m, rate, cut, row, middle):
    # the logits of row i, at row[middle - left : middle + right + 1], from points of any dtype
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
    return left, right


@sums_jit
def _sum(x):
    total = 0.0
    for k in range(len(x)):
        total += x[k]
    return total


@sums_jit
def _dot(x, y):
    total = 0.0
    for k in range(len(x)):
        total += x[k] * y[k]
    return total


@entry
@jit
def _products(t, rate, lengths, columns, steps, cut, transposed, pieces, out, begin, stop):
    # out[piece] is added to if transposed, and shared by the pieces of a list else
    n = t.shape[1]
    buffer, scale = np.empty(2 * n), np.empty(2 * n)
    for piece in range(begin, stop):
        row, first, last = pieces[piece]
        m = lengths[row]
        for i in range(first, min(last, m)):
            left, right = _walk(t[row], i, m, rate, cut, buffer, n)
            P = buffer[n - left : n + right + 1]
            _exp(P, scale[: len(P)])
            share = 1.0 / _sum(P)
            for k in range(len(P)):
                P[k] *= share
            level = 0
            for c in range(len(steps)):
                while level < steps[c]:  # they rise
                    for k in range(len(P)):
                        P[k] *= k - left
                    level += 1
                if transposed:
                    w = columns[row, c, i]
                    Z = out[piece, c, i - left : i + right + 1]
                    for k in range(len(P)):
                        Z[k] += w * P[k]
                else:
                    out[row, c, i] = _dot(P, columns[row, c, i - left : i + right + 1])


@entry
@jit
def _pull(t, rate, lengths, G, V, steps, cut, pieces, out, begin, stop):
    n = t.shape[1]
    buffer, scale, means = np.empty(2 * n), np.empty(2 * n), np.empty(2 * n)
    for piece in range(begin, stop):
        row, first, last = pieces[piece]
        for i in range(first, min(last, lengths[row])):
            left, right = _walk(t[row], i, lengths[row], rate, cut, buffer, n)
            P = buffer[n - left : n + right + 1]
            _exp(P, scale[: len(P)])
            share = 1.0 / _sum(P)
            M = means[: len(P)]
            M[:] = 0.0
            level = 0
            for c in range(len(steps) - 1, -1, -1):  # by Horner's rule in k - left
                while level > steps[c]:
                    for k in range(len(P)):
                        M[k] *= k - left
                    level -= 1
                level = steps[c]
                g = np.float64(G[row, c, i])
                values = V[row, c, i - left : i + right + 1]
                for k in range(len(P)):
                    M[k] += g * values[k]
            while level > 0:
                for k in range(len(P)):
                    M[k] *= k - left
                level -= 1
            r = _dot(P, M) * share
            near = out[piece, 0, i - left : i + right + 1]
            far = out[piece, 1, i - left : i + right + 1]
            for k in range(len(P)):
                D = share * P[k] * (M[k] - r)
                near[k] += D
                far[k] += (k - left) * D


@entry
@jit
def _log_sums(t, rate, lengths, cut, pieces, out, begin, stop):
    n = t.shape[1]
    buffer, scale = np.empty(2 * n), np.empty(2 * n)
    for piece in range(begin, stop):
        row, first, last = pieces[piece]
        m = lengths[row]
        for i in range(first, min(last, m)):
            left, right = _walk(t[row], i, m, rate, cut, buffer, n)
            P = buffer[n - left : n + right + 1]
            _exp(P, scale[: len(P)])
            out[row, i] = np.log(_sum(P))


def _pieces(lists: int, rows: int) -> np.ndarray:
    # list, first row and last row + 1: as many pieces a list as keep all threads at work
    each = max(1, min(-(-torch.get_num_threads() // lists), rows // 64))
    edges = [rows * k // each for k in range(each + 1)]
    found = [(row, edges[k], edges[k + 1]) for row in range(lists) for k in range(each)]
    return np.array(found, np.int64)


def together(out: np.ndarray, lists: int) -> Tensor:
    """The sums over the pieces of each list: (pieces, ...) -> (lists, ...)."""
    pieces = torch.from_numpy(out)
    return pieces if len(out) == lists else pieces.view(lists, -1, *out.shape[1:]).sum(1)


def by_column(x: Tensor, places: np.ndarray) -> np.ndarray:
    """(B, rows, d) -> (B, d, rows), the columns in that order; no copy where it is none."""
    x = x.mT if len(places) == 1 else x.mT[:, torch.from_numpy(places)]
    return np.ascontiguousarray(x.numpy())


def _points(points: Tensor, temperature: float) -> tuple[np.ndarray, float]:
    return np.ascontiguousarray(points.numpy()), 1 / temperature


def _steps(blocks: list[int]) -> tuple[np.ndarray, np.ndarray]:
    # the power of j - i for each column, rising, and the columns in that order
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
    """`ltr.kernels.rows.row_products` of points (B, n) and columns (B, ., d), for NeuralSort."""
    B, n = points.shape
    steps, rising = _steps(blocks)
    values = by_column(columns, rising)
    pieces = _pieces(B, rows)
    shape = (len(pieces), len(steps), n) if transposed else (B, len(steps), rows)
    out = np.zeros(shape)
    arguments = *_points(points, temperature), lengths.numpy(), values, steps
    cut = row_cut(points, None)
    run_parallel(
        lambda a, b: _products(*arguments, cut, transposed, pieces, out, a, b),
        len(pieces),
        B * rows * min(n, 64) * (4 + len(steps)),
    )
    result = torch.empty((B, out.shape[-1], len(rising)), dtype=points.dtype)
    for place, column in zip(rising, together(out, B).unbind(1), strict=True):
        result[..., place] = column
    return result


def row_pull(
    points: Tensor,
    lengths: Tensor,
    G: Tensor,
    V: Tensor,
    temperature: float,
    rows: int,
    blocks: list[int],
) -> Tensor:
    """`ltr.kernels.rows.row_pull` of points (B, n), for NeuralSort."""
    B, n = points.shape
    steps, rising = _steps(blocks)
    columns = by_column(G, rising), by_column(V, rising)
    pieces = _pieces(B, rows)
    out = np.zeros((len(pieces), 2, n))
    arguments = *_points(points, temperature), lengths.numpy(), *columns, steps
    cut = row_cut(points, None)
    run_parallel(
        lambda a, b: _pull(*arguments, cut, pieces, out, a, b),
        len(pieces),
        B * rows * min(n, 64) * (6 + 2 * len(steps)),
    )
    return torch.empty((B, n, 2), dtype=points.dtype).copy_(together(out, B).mT)


def row_log_sums(points: Tensor, lengths: Tensor, temperature: float, rows: int) -> Tensor:
    """`ltr.kernels.rows.row_log_sums` of points (B, n), for NeuralSort."""
    pieces = _pieces(len(points), rows)
    out = np.zeros((len(points), rows))
    arguments = *_points(points, temperature), lengths.numpy(), row_cut(points, None)
    run_parallel(
        lambda a, b: _log_sums(*arguments, pieces, out, a, b),
        len(pieces),
        len(points) * rows * min(points.shape[-1], 64) * 4,
    )
    return torch.from_numpy(out).to(points.dtype)
