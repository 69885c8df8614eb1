"""Discounts as sums of powers sum_m c_m z_m^r, with fitted coefficients c and powers z."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

SMALLEST = 0.027
"""The smallest z: SoftRank's profiles are fitted down to it."""

COUNTS = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 32)
"""The numbers of powers that `power_sum` tries."""


def power_sum(values: Any, tolerance: float) -> tuple[Array, Array, float]:
    """Return a few powers whose sum fits the given table: values[r] ~ sum_m c_m z_m^r.

    Discounts that decrease smoothly (1/log2(2 + r), 1/(1 + r), 0.9^r, 1 - r/n) need 1 to 20 powers.
    A cutoff is not such a sum: the returned error then stays far above the tolerance.

    Args:
        values: (n,), the discount of rank r + 1 at r = 0..n-1; anything `numpy.asarray` takes.
        tolerance: The largest accepted absolute error, > 0. The first number of powers that reaches
            it is returned, else the best of up to 32. For values near 1 the fit reaches 1e-6, but
            not always 1e-9: check the returned error.

    Returns:
        z (m,) in [0.027, 1), ascending; c (m,), of any sign; and the maximum of the absolute error
        over all r.

    Raises:
        ValueError: values not one-dimensional, empty or not finite, or tolerance <= 0.

    Cost: about 10 ms and O(n) memory. Nodes are fitted by nonlinear least squares on about 160
    ranks, spaced logarithmically.

    >>> z, c, error = power_sum([1, 0.5, 0.25, 0.125], 1e-9)
    >>> z.round(6), c.round(6), error < 1e-9
    (array([0.5]), array([1.]), True)
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 1 or table.size == 0 or not np.isfinite(table).all():
        raise ValueError(
            f"values must have one finite number for each rank, got shape {table.shape}"
        )
    if not tolerance > 0:
        raise ValueError(f"tolerance must be > 0, got {tolerance}")
    r = spaced_ranks(len(table), 180)
    f, best = table[r], (np.zeros(0), np.zeros(0), np.inf)
    largest = float(np.abs(f).max())
    ridge = tolerance / (100 * largest + 1e-300)
    counts = [*[count for count in COUNTS if count < len(r)], min(len(r), COUNTS[-1])]
    while counts:
        count = counts.pop(0)
        logs = refine(r, f, spread(len(table), count), ridge=ridge, steps=10)
        z = np.sort(np.exp(-np.exp(logs)))
        c = solve(powers(z, r), f, ridge)
        error = largest_error(z, c, table)
        if error < best[2]:
            best = z, c, error
        if error <= tolerance or (count >= 16 and error > largest / 20):
            break  # found, or a step in the table that more powers cannot fit
        for far in (1e3, 1e5):  # then the next count cannot reach the tolerance
            if error > far * tolerance and count >= 4 and len(counts) > 1:
                counts.pop(0)
    return best


def spaced_ranks(n: int, count: int) -> Array:
    """Return about `count` of the ranks 0..n-1: dense at first, then sparser, and the last one."""
    first = np.arange(min(n, count // 3))
    return np.unique(np.r_[first, np.geomspace(1, max(n - 1, 1), count).round()]).astype(int)[:n]


def spread(n: int, count: int) -> Array:
    """Return initial logarithms of rates s = -log z: a geometric progression from 1/n to 3."""
    if count == 1:
        return np.log([2 / (n + 1)])
    return np.linspace(np.log(0.3 / n), np.log(3.0), count)


def powers(z: Array, r: Array) -> Array:
    """Return the powers z_m^r, (len(r), len(z))."""
    return np.exp(np.outer(r, np.log(z)))


def solve(E: Array, f: Array, ridge: float = 0.0) -> Array:
    """Return the coefficients c that minimize the mean square of E c - f plus that of ridge c."""
    more = ridge * len(f) ** 0.5 * np.eye(E.shape[1])
    return np.linalg.lstsq(np.r_[E, more], np.r_[f, np.zeros(len(more))], rcond=1e-15)[0]


def refine(
    r: Array,
    f: Array,
    logs: Array,
    weight: Array | None = None,
    ridge: float = 0.0,
    steps: int = 50,
) -> Array:
    """Return the logarithms of the rates that best fit f at r in (weighted) least squares.

    It uses variable projection: every step solves for the coefficients, so the search is only over
    the rates. It uses Kaufman's Jacobian and the damping of Levenberg and Marquardt.

    Reference: Golub and Pereyra, "Separable nonlinear least squares", Inverse Problems 2003.
    """
    root = np.ones(len(r)) if weight is None else np.sqrt(weight)
    low, high = np.log(1e-8 / (r[-1] + 1)), np.log(-np.log(SMALLEST))
    more, damping = ridge * len(r) ** 0.5 * np.eye(len(logs)), 1e-3
    f, r, root = np.r_[f * root, 0 * logs], np.r_[r, 0 * logs], np.r_[root, 0 * logs]

    def project(logs: Array) -> tuple[Array, Array, Array]:
        E = np.exp(-np.outer(r, np.exp(logs))) * root[:, None]
        E[-len(logs) :] = more
        q = np.linalg.qr(E)[0]
        rest = f - q @ (q.T @ f)
        return E, q, rest - q @ (q.T @ rest)

    E, q, rest = project(logs)
    for _ in range(steps):
        turn = E * np.outer(r, np.exp(logs)) * solve(E, f)
        turn -= q @ (q.T @ turn)
        size = np.linalg.norm(turn, axis=0) + 1e-300
        u, d, v = np.linalg.svd(turn / size, full_matrices=False)
        while True:
            step = -(v.T @ (d / (d**2 + damping**2) * (u.T @ rest))) / size
            step = np.clip(logs + step / max(1.0, np.abs(step).max()), low, high) - logs
            found = project(logs + step)
            old, new = rest @ rest, found[2] @ found[2]
            gain = (old - new) / (old - np.square(rest + turn @ step).sum() + 1e-300)
            if gain > 0.2:
                break
            damping *= 10
            if damping > 1e3:
                return logs
        logs, (E, q, rest), damping = logs + step, found, damping / 10
        if new > (1 - 1e-3) * old and damping < 1e-9:
            break
    return logs


def largest_error(z: Array, c: Array, table: Array) -> float:
    """Return the maximum of abs(table[r] - sum c z^r) over all r, in chunks of 4096."""
    found, block = 0.0, powers(z, np.arange(min(len(table), 4096)))
    for start in range(0, len(table), 4096):
        chunk = table[start : start + 4096]
        total = block[: len(chunk)] @ (c * np.exp(start * np.log(z)))
        found = max(found, float(np.abs(chunk - total).max()))
    return found
