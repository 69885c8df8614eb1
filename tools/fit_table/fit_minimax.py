"""Best linear fits by exponentials, beyond double precision, for `tools/fit_table`."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import linprog

Wide = np.longdouble
"""Fits are refined in 80 bits if the machine has them (x86). 64 are enough for level float32."""

Array = np.ndarray[Any, Any]


def line_nodes(pairs: int, a: float, b: float) -> Array:
    """Return the vertical line a + i b (m + 1/2), m = 0..pairs-1; each node is a conjugate pair."""
    return complex(a, b / 2) + np.arange(pairs) * complex(0, b)


def columns(nodes: Array, x: Array) -> Array:
    """Return real columns (len(x), K): exp(-a x) cos(b x) of all nodes, then exp(-a x) sin(b x)."""
    phase, decay = np.outer(x, nodes.imag.astype(Wide)), np.outer(x, nodes.real.astype(Wide))
    decay = np.exp(-decay)
    return np.concatenate([decay * np.cos(phase), (decay * np.sin(phase))[:, nodes.imag != 0]], 1)


def evaluate(nodes: Array, weights: Array, x: Array) -> Array:
    """Return Re sum_m w_m exp(-lambda_m x), in the wide type."""
    turning = nodes.imag != 0
    return columns(nodes, x) @ np.concatenate([weights.real, weights.imag[turning]]).astype(Wide)


def best(A: Array, f: Array, minimax: bool = True) -> Array:
    """Return the w with the least maximum of abs(A w - f), or the least squares, in the wide type.

    It solves a linear program in an orthonormal basis of A. The program is for the residual of the
    least squares, scaled to 1. So the solver's tolerance of 1e-7 is relative to the error.
    """
    q, r = np.linalg.qr(A.astype(float))
    back = np.linalg.inv(r).astype(Wide)
    w = np.zeros(A.shape[1], Wide)
    for _ in range(4):
        w = w + back @ (q.T.astype(Wide) @ (f - A @ w))
    if minimax:
        residual = f - A @ w
        size, root, one = np.abs(residual).max(), Wide(len(f)) ** 0.5, np.ones((len(f), 1))
        basis, scaled = (A @ back * root).astype(float), (residual / size).astype(float)
        found = linprog(
            np.r_[np.zeros(A.shape[1]), 1.0],
            np.block([[basis, -one], [-basis, -one]]),
            np.r_[scaled, -scaled],
            bounds=[(None, None)] * A.shape[1] + [(0, None)],
            method="highs-ds",
        )
        if not found.success:
            raise ArithmeticError(f"the linear program failed: {found.message}")
        w = w + size * root * (back @ found.x[:-1].astype(Wide))
    return w


def fit_row(
    nodes: Array, x: Array, f: Array, at_zero: float, slope: float | None, minimax: bool = True
) -> Array:
    """Return complex weights of f on the nodes, with sum of Re w = f(0) and a given or free slope.

    Each constraint is solved for one weight, which leaves a plain fit in the others.
    """
    A, turning = columns(nodes, x), nodes.imag != 0
    still, turns = len(nodes), int(turning.sum())
    want, rows = [at_zero], [np.r_[np.ones(still), np.zeros(turns)]]
    if slope is not None:
        want, rows = [*want, slope], [*rows, np.r_[-nodes.real, nodes.imag[turning]]]
    C, pivots = np.array(rows, Wide), [0, still + turns - 1][: len(rows)]
    free = [k for k in range(still + turns) if k not in pivots]
    inverse = np.linalg.inv(C[:, pivots].astype(float)).astype(Wide)
    inverse = inverse @ (2 * np.eye(len(rows)) - C[:, pivots] @ inverse)  # Newton: to 80 bits
    start, rest = np.zeros(still + turns, Wide), np.zeros((still + turns, len(free)), Wide)
    start[pivots] = inverse @ np.array(want, Wide)
    rest[pivots], rest[free] = -inverse @ C[:, free], np.eye(len(free))
    w = start + rest @ best(A @ rest, f - A @ start, minimax)
    weights = np.zeros(still, np.clongdouble)
    weights.real, weights.imag[turning] = w[:still], w[still:]
    return weights


def rounded(weights: Array, at_zero: float) -> Array:
    """Return the weights in doubles, with the sum of Re w exactly `at_zero`.

    All real parts except the smallest are multiples of one unit, such that no partial sum needs
    more than 53 bits. If `at_zero` is such a multiple too (1/2, -2), any order of summation gives
    it exactly. `math.fsum` always gives it exactly.
    """
    real = weights.real
    largest = max(float(real[real > 0].sum()), -float(real[real < 0].sum()))  # partial sum
    unit = Fraction(2) ** (math.frexp(largest)[1] - 53)
    parts = [round(Fraction(str(w)) / unit) * unit for w in real]
    least = int(np.argmin(np.abs(real)))
    parts[least] += Fraction(at_zero) - sum(parts)
    found = np.array([float(p) for p in parts]) + 1j * weights.imag.astype(float)
    assert math.fsum(found.real) == at_zero  # a bug here, not a user's input
    return found


def up(error: float) -> float:
    """Return the number rounded up to two digits.

    >>> up(1.204e-9)
    1.3e-09
    """
    exponent = math.floor(math.log10(error)) - 1
    return float(f"{math.ceil(error / 10.0**exponent)}e{exponent}")
