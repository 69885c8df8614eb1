"""Fit discounts as sums of powers and SoftRank's vertical line, for `tools/fit_table`."""

from collections.abc import Callable
from typing import Any

import numpy as np
from fit_minimax import Array, line_nodes, up
from fit_sums import PRICE
from scipy.optimize import least_squares, minimize

from ltr.kernels.powers import largest_error, powers, spaced_ranks
from ltr.kernels.profiles import profile_weights, profiles

DISCOUNTS: dict[str, Callable[[Array], Array]] = {
    "log2": lambda r: 1 / np.log2(2 + r),
}
"""Discounts of rank r + 1, and their differences from rank r + 1 to rank r + 2."""


LENGTHS = (100, 1000, 10_000, 100_000, 1_000_000)


def fit_powers(name: str, n: int, goal: float) -> dict[str, Any]:
    """Return the fewest powers whose sum is the discount to `goal` at all r < n, with c > 0."""
    table = DISCOUNTS[name](np.arange(n))
    r = spaced_ranks(n, 400)
    f, logs = table[r], np.log([1 / n, 1.0])
    while True:
        logs = np.sort(_rates(r, f, logs, np.ones(len(r))))
        z, c = _lawson(r, f, logs, 1)
        if largest_error(z, c, table) < 8 * goal:  # close enough for the weights to help
            z, c = _lawson(r, f, logs, 30)
        error = largest_error(z, c, table)
        if (c > 0).all() and error <= goal:
            break
        steps, end = np.linspace(0, 1, len(logs) + 1), 0.3 * np.diff(logs).mean()
        logs = np.interp(steps, np.linspace(0, 1, len(logs)), logs) + end * (2 * steps - 1)
    found = {"z": [float(v) for v in z[::-1]], "c": [float(v) for v in c[::-1]]}
    return {"n": n, "error": up(error), **found}


def _rates(r: Array, f: Array, logs: Array, weight: Array, rounds: int = 3) -> Array:
    # return log(-log z) of the weighted least squares; every step solves for the coefficients
    root = np.sqrt(weight)
    size = 1.0

    def split(logs: Array) -> tuple[Array, Array, Array]:
        E = np.exp(-np.outer(r, np.exp(logs))) * root[:, None]
        q, triangle = np.linalg.qr(E)
        return E, q, triangle

    def rest(logs: Array) -> Array:
        q = split(logs)[1]
        return (f * root - q @ (q.T @ (f * root))) / size

    def slopes(logs: Array) -> Array:
        E, q, triangle = split(logs)
        c = np.linalg.solve(triangle, q.T @ (f * root))
        turn = E * np.outer(r, np.exp(logs)) * c
        return (turn - q @ (q.T @ turn)) / size

    how: Any = {"jac": slopes, "method": "lm", "xtol": 1e-12, "ftol": 1e-12, "gtol": 1e-12}
    for _ in range(rounds):
        size = size * np.abs(rest(logs)).max()  # so that the solver sees errors near 1
        logs = least_squares(rest, logs, max_nfev=100, **how).x
    return logs


def _lawson(r: Array, f: Array, logs: Array, rounds: int) -> tuple[Array, Array]:
    # repeat least squares, weighted by the remaining errors: the result is nearly the minimax
    weight, least = np.ones(len(r)), np.inf
    best = np.zeros(0), np.zeros(0)
    for step in range(rounds):
        if step:
            logs = np.sort(_rates(r, f, logs, weight, rounds=1))
        z, root = np.exp(-np.exp(logs)), np.sqrt(weight)
        c = np.linalg.lstsq(powers(z, r) * root[:, None], f * root)[0]
        rest = np.abs(f - powers(z, r) @ c)
        if rest.max() < least:
            best, least = (z, c), rest.max()
        weight *= rest / rest.max() + 1e-3
        weight /= weight.mean()
    return best


PROFILE_GOALS = {"float32": 2e-7, "float64": 2e-11}
"""The largest errors of SoftRank's profiles; those of their slopes may be five times as large."""

PROFILE_POWERS = {"float32": (0.054, 0.1, 0.3, 0.9), "float64": (0.027, 0.1, 0.3, 0.9)}
"""Powers at which the vertical line must fit: the smallest z of the discounts to 1e-6 and 1e-9."""

SHOWN_POWERS = (1e-4, 1e-3, 0.01, 0.027, 0.054, 0.1, 0.3, 0.5, 0.9, 0.99, 0.999, 1 - 1e-6)


def profile_errors(z: Array, a: float, b: float, pairs: int, order: int) -> tuple[Array, Array]:
    """Return the larger of both profiles' errors, and of their sums of abs(w), (len(z),) each."""
    x = 60 * np.linspace(0, 1, 3001) ** 2
    weights = profile_weights(z, order, a, b, pairs)
    decays = np.exp(-np.outer(x, line_nodes(pairs, a, b)))
    error = np.abs(np.real(weights @ decays.T) - profiles(z, x, order)).max(-1)
    return error.max(0), np.abs(weights).sum(-1).max(0)


def fit_profiles(level: str, fewest: int) -> dict[str, Any]:
    """Return SoftRank's vertical line with the fewest pairs from `fewest` on, and errors over z."""
    wanted, pairs = np.array(PROFILE_POWERS[level]), fewest
    room = PROFILE_GOALS[level] * np.array([1.0, 5.0])

    def worst(line: Array, price: float) -> float:
        a, b = map(float, line)
        found = [profile_errors(wanted, a, b, pairs, order) for order in (0, 1)]
        return max(float((e + price * s).max() / r) for (e, s), r in zip(found, room, strict=True))

    while True:
        b = 2.0 * pairs**-0.3
        starts = [(a, b * f) for a in (2.3, 2.6, 2.9, 3.2) for f in (0.9, 0.95, 1.0, 1.05, 1.1)]
        price = PRICE[level]
        first = min(starts, key=lambda s: worst(np.array(s), price))
        options = {"xatol": 1e-3, "fatol": 1e-2, "maxfev": 60}
        line = minimize(worst, first, (price,), method="Nelder-Mead", options=options).x.round(4)
        if worst(line, 0.0) <= 1:
            break
        pairs += 1
    a, b = map(float, line)
    z = np.array(SHOWN_POWERS)
    errors = [profile_errors(z, a, b, pairs, order)[0] for order in range(3)]
    return {
        "first": [a, b / 2],
        "step": [0.0, b],
        "count": pairs,
        "z": list(SHOWN_POWERS),
        "errors": [[up(e) for e in row] for row in errors],
    }
