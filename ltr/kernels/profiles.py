"""SoftRank's two profiles as exponential sums, fitted at run time for any powers z."""

import math
from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

REACH, POINTS = 10.0, 300
"""The fit's grid on x >= 0, of Chebyshev points; beyond it both profiles are below 1e-19 / z."""


def profiles(z: Array, x: Array, order: int) -> Array:
    """Return the derivatives of order 0, 1 or 2 of SoftRank's two profiles, (2, len(z), len(x)).

    a(x) = log(1 + (1 - z) / z Phi(-x)) for the items above and b(x) = log(1 - (1 - z) Phi(-x))
    for those below, x >= 0.
    """
    tail = np.array([math.erfc(v / math.sqrt(2)) / 2 for v in x])
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    rise = np.stack([(1 - z) / z, z - 1])[..., None]
    inside = 1 + rise * tail
    if order == 0:
        return np.log1p(rise * tail)
    slope = -rise * density / inside
    return slope if order == 1 else -x * slope - slope**2


def profile_weights(z: Array, order: int, a: float, b: float, pairs: int) -> Array:
    """Return complex weights (2, len(z), pairs) on the vertical line a + i b (m + 1/2).

    They are the least squares fit on a grid, from one QR decomposition for all z. The real parts of
    a row sum exactly to the profile at 0.
    """
    x, q, triangle, B, first = _basis(a, b, pairs)
    f = profiles(z, x, order)
    want = f - f[..., :1] * first
    rest, w = want, np.zeros((*f.shape[:-1], B.shape[1]))
    for _ in range(2):  # the second step removes the rounding of the first
        w = w + np.linalg.solve(triangle, q.T @ rest.reshape(-1, len(x)).T).T.reshape(w.shape)
        rest = want - w @ B.T
    real = np.concatenate([(f[..., 0] - w[..., : pairs - 1].sum(-1))[..., None], w], -1)
    return _exact(real[..., :pairs], f[..., :1]) + 1j * real[..., pairs:]


@cache
def _basis(a: float, b: float, pairs: int) -> tuple[Array, ...]:
    # return the columns that are 0 at x = 0 (cosines minus the first cosine, and sines), and the
    # first cosine
    x = REACH * (1 - np.cos(np.pi * np.arange(POINTS) / (POINTS - 1))) / 2
    phase = np.outer(x, b * (np.arange(pairs) + 0.5))
    decay = np.exp(-a * x)[:, None]
    cosines = decay * np.cos(phase)
    B = np.concatenate([cosines[:, 1:] - cosines[:, :1], decay * np.sin(phase)], 1)
    return x, *np.linalg.qr(B), B, cosines[:, 0]


def _exact(real: Array, total: Array) -> Array:
    # round to multiples of a unit, so that no partial sum rounds; the smallest entry absorbs the
    # difference from the total
    largest = np.maximum(np.maximum(real, 0).sum(-1), -np.minimum(real, 0).sum(-1))
    unit = np.exp2(np.frexp(largest)[1] - 53.0)[..., None]
    real = np.round(real / unit) * unit
    least = np.abs(real).argmin(-1)[..., None]
    np.put_along_axis(real, least, 0.0, -1)
    np.put_along_axis(real, least, total - real.sum(-1, keepdims=True), -1)
    return real
