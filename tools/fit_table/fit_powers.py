"""Fit discounts as sums of powers, for `tools/fit_table`."""

from collections.abc import Callable
from typing import Any

import numpy as np
from fit_minimax import Array, up
from scipy.optimize import least_squares

DISCOUNTS: dict[str, Callable[[Array], Array]] = {
    "log2": lambda r: 1 / np.log2(2 + r),
    "inverse log2": lambda r: np.log2(2 + r),
}
"""Discounts of rank r + 1. A discount that grows is a constant less a sum of powers."""


LENGTHS = (100, 1000, 10_000, 100_000, 1_000_000)


def fit_powers(name: str, n: int, goal: float) -> dict[str, Any]:
    """Return the fewest powers whose sum is the discount at all r < n, to `goal` of its largest.

    All c are positive; of a discount that grows, all but that of z = 1 are negative.
    """
    table = DISCOUNTS[name](np.arange(n))
    sign, goal = (-1.0 if table[-1] > table[0] else 1.0), goal * table.max()
    fit = _Fit(spaced_ranks(n, 400), table, constant=sign < 0)
    logs = np.log([1 / n, 1.0])
    while True:
        logs = np.sort(fit.rates(logs, np.ones(len(fit.r))))
        z, c = fit.lawson(logs, 1)
        if largest_error(z, c, table) < 8 * goal:  # close enough for the weights to help
            z, c = fit.lawson(logs, 30)
        error = largest_error(z, c, table)
        if (sign * c[: len(logs)] > 0).all() and error <= goal:
            break
        steps, end = np.linspace(0, 1, len(logs) + 1), 0.3 * np.diff(logs).mean()
        logs = np.interp(steps, np.linspace(0, 1, len(logs)), logs) + end * (2 * steps - 1)
    order = np.argsort(z)
    return {"n": n, "error": up(error), "z": z[order].tolist(), "c": c[order].tolist()}


class _Fit:
    """A table's values at ranks r, fitted by powers and perhaps a constant."""

    def __init__(self, r: Array, table: Array, constant: bool):
        self.r, self.f, self.constant = r, table[r], constant

    def basis(self, logs: Array) -> Array:
        """Return the powers at r, for log(-log z), and a column of ones for a constant."""
        E = np.exp(-np.outer(self.r, np.exp(logs)))
        return np.c_[E, np.ones(len(E))] if self.constant else E

    def rates(self, logs: Array, weight: Array, rounds: int = 3) -> Array:
        """Return log(-log z) of the weighted least squares; each step solves for c."""
        root = np.sqrt(weight)
        size, f = 1.0, self.f * root

        def split(logs: Array) -> tuple[Array, Array, Array]:
            E = self.basis(logs) * root[:, None]
            q, triangle = np.linalg.qr(E)
            return E, q, triangle

        def rest(logs: Array) -> Array:
            q = split(logs)[1]
            return (f - q @ (q.T @ f)) / size

        def slopes(logs: Array) -> Array:
            E, q, triangle = split(logs)
            c, k = np.linalg.solve(triangle, q.T @ f), len(logs)
            turn = E[:, :k] * np.outer(self.r, np.exp(logs)) * c[:k]
            return (turn - q @ (q.T @ turn)) / size

        how: Any = {"jac": slopes, "method": "lm", "xtol": 1e-12, "ftol": 1e-12, "gtol": 1e-12}
        for _ in range(rounds):
            size = size * np.abs(rest(logs)).max()  # so that the solver sees errors near 1
            logs = least_squares(rest, logs, max_nfev=100, **how).x
        return logs

    def lawson(self, logs: Array, rounds: int) -> tuple[Array, Array]:
        """Repeat least squares, weighted by the remaining errors: nearly the minimax."""
        weight, least = np.ones(len(self.r)), np.inf
        best = np.zeros(0), np.zeros(0)
        for step in range(rounds):
            if step:
                logs = np.sort(self.rates(logs, weight, rounds=1))
            E, root = self.basis(logs), np.sqrt(weight)
            c = np.linalg.lstsq(E * root[:, None], self.f * root)[0]
            rest = np.abs(self.f - E @ c)
            if rest.max() < least:
                z = np.exp(-np.exp(logs))
                best, least = (np.r_[z, 1.0] if self.constant else z, c), rest.max()
            weight *= rest / rest.max() + 1e-3
            weight /= weight.mean()
        return best


def spaced_ranks(n: int, count: int) -> Array:
    """Return about `count` of the ranks 0..n-1: dense at first, then sparser, and the last one."""
    first = np.arange(min(n, count // 3))
    return np.unique(np.r_[first, np.geomspace(1, max(n - 1, 1), count).round()]).astype(int)[:n]


def powers(z: Array, r: Array) -> Array:
    """Return the powers z_m^r, (len(r), len(z))."""
    return np.exp(np.outer(r, np.log(z)))


def largest_error(z: Array, c: Array, table: Array) -> float:
    """Return the maximum of abs(table[r] - sum c z^r) over all r, in chunks of 4096."""
    found, block = 0.0, powers(z, np.arange(min(len(table), 4096)))
    for start in range(0, len(table), 4096):
        chunk = table[start : start + 4096]
        total = block[: len(chunk)] @ (c * np.exp(start * np.log(z)))
        found = max(found, float(np.abs(chunk - total).max()))
    return found
