"""Fit the table of exponential sums: `python -m ltr.kernels.fit` writes table.json."""

import json
import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import numpy as np
from scipy.optimize import least_squares, linprog, minimize

from ltr.kernels.powers import largest_error, powers, spaced_ranks
from ltr.kernels.profiles import profile_weights, profiles

PATH = Path(__file__).with_name("table.json")
Wide = np.longdouble
"""Fits are refined in 80 bits where the machine has them (x86); 64 do for the float32 level."""

Array = np.ndarray[Any, Any]

GOALS = {"float32": 2e-8, "float64": 1e-12}
"""Fewest nodes that bring f, f' and f'' to this: a third of float32's rounding, and what doubles
allow f'' (its weights sum to a thousand)."""

PRICE = {"float32": 2.0**-36, "float64": 2.0**-53}
"""What a unit of sum of abs(w) counts in the choice of a vertical line: its rounding in doubles;
more at the float32 level, for those who add up in float32."""


class Target(NamedTuple):
    """f, f', f'' on x >= 0, their values at 0, and where the search of a vertical line starts."""

    rows: Callable[[Array], list[Array]]
    at_zero: tuple[float, ...]
    slope: float | None  # f'(0), where the fit of f itself must have it
    line: Callable[[int], tuple[float, float]] | None  # pairs -> (a, b); None: the nodes 1..M


def _logistic(x: Array) -> list[Array]:
    s = np.exp(-x) / (1 + np.exp(-x))
    return [s, -s * (1 - s), s * (1 - s) * (1 - 2 * s)]


def _softplus(x: Array) -> list[Array]:
    value, slope, _ = _logistic(x)
    return [np.log1p(np.exp(-x)), -value, -slope]


def _gaussian(x: Array) -> list[Array]:
    g = np.exp(-x * x)
    return [g, -2 * x * g, (4 * x * x - 2) * g]


def _normal(x: Array) -> list[Array]:
    g = np.exp(-x * x / 2) / _wide(mpmath.sqrt(2 * mpmath.pi))
    return [normal_tail(x), -g, x * g]


def normal_tail(x: Array) -> Array:
    """Phi(-x) for x >= 0, to all digits of the wide type."""
    root = mpmath.sqrt(2)
    tail = [_wide(mpmath.erfc(mpmath.mpf(str(v)) / root) / 2) if v < 75 else Wide(0) for v in x]
    return np.array(tail, Wide)


def _wide(x: Any) -> Any:
    return Wide(mpmath.nstr(x, 25))


TARGETS = {
    "logistic": Target(_logistic, (0.5, -0.25, 0.0), None, None),
    "softplus": Target(_softplus, (math.log(2), -0.5, 0.25), None, None),
    "gaussian": Target(
        _gaussian, (1.0, 0.0, -2.0), 0.0, lambda pairs: (3.0 + 0.1 * pairs, 4.0 / pairs**0.65)
    ),
    "normal": Target(
        _normal, (0.5, -1 / math.sqrt(2 * math.pi), 0.0), None,
        lambda pairs: (2.0 + 0.1 * pairs, 2.7 / pairs**0.65),
    ),
}  # fmt: skip


def chebyshev(count: int) -> Array:
    """`count` points on [0, 1], dense at both ends."""
    return (1 - np.cos(np.pi * np.arange(count, dtype=Wide) / (count - 1))) / 2


def grid(line: bool) -> Array:
    """Where a fit is made: to x = 14 for a vertical line, in u = exp(-x) for the nodes 1..M."""
    if line:
        return 14 * chebyshev(400)
    return -np.log(chebyshev(400)[:0:-1])


def fine_grid() -> Array:
    """Where a fit is measured: 0 to 60, dense at 0, and far beyond."""
    far = [75.0, 1e2, 2e2, 5e2, 745.0, 1e3, 1e4]
    return np.concatenate([60 * np.linspace(0, 1, 6001, dtype=Wide) ** 2, np.array(far, Wide)])


def line_nodes(pairs: int, a: float, b: float) -> Array:
    """The vertical line a + i b (m + 1/2), m = 0..pairs-1; a conjugate pair each."""
    return complex(a, b / 2) + np.arange(pairs) * complex(0, b)


def columns(nodes: Array, x: Array) -> Array:
    """Real columns (len(x), K): exp(-a x) cos(b x) of every node, then exp(-a x) sin(b x)."""
    phase, decay = np.outer(x, nodes.imag.astype(Wide)), np.outer(x, nodes.real.astype(Wide))
    decay = np.exp(-decay)
    return np.concatenate([decay * np.cos(phase), (decay * np.sin(phase))[:, nodes.imag != 0]], 1)


def evaluate(nodes: Array, weights: Array, x: Array) -> Array:
    """Re sum_m w_m exp(-lambda_m x), in the wide type."""
    turning = nodes.imag != 0
    return columns(nodes, x) @ np.concatenate([weights.real, weights.imag[turning]]).astype(Wide)


def best(A: Array, f: Array, minimax: bool = True) -> Array:
    """W of the least maximum of abs(A w - f), or of the least squares: refined in the wide type.

    A linear programme in an orthonormal basis of A, for the residual of the least squares in
    units of itself: so the solver's own tolerance of 1e-7 is relative to the error.
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
            raise ArithmeticError(f"the linear programme failed: {found.message}")
        w = w + size * root * (back @ found.x[:-1].astype(Wide))
    return w


def fit_row(
    nodes: Array, x: Array, f: Array, at_zero: float, slope: float | None, minimax: bool = True
) -> Array:
    """Complex weights of f on the nodes; sum of Re w is f(0), and the slope at 0 is given or free.

    The constraints are solved for one weight each, which leaves a plain fit in the others.
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
    """The weights in doubles, sum of Re w exactly `at_zero`.

    All but the smallest real part are multiples of one unit, such that no partial sum needs more
    than 53 bits. Where `at_zero` is such a multiple too (1/2, -2), any order of summation gives
    it exactly; always `math.fsum` does.
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


def fit_rows(name: str, nodes: Array, minimax: bool = True) -> tuple[list[Array], list[float]]:
    """Weights and maximum errors of f, f', f''; on the fit's own grid unless `minimax`."""
    target = TARGETS[name]
    x = grid(target.line is not None)
    slopes = (target.slope, None, None)
    rows = [
        fit_row(nodes, x, f, *ends, minimax)
        for f, *ends in zip(target.rows(x), target.at_zero, slopes, strict=True)
    ]
    if minimax:
        rows, x = [rounded(*pair) for pair in zip(rows, target.at_zero, strict=True)], fine_grid()
    exact = target.rows(x)
    errors = [
        float(np.abs(evaluate(nodes, w, x) - f).max()) for w, f in zip(rows, exact, strict=True)
    ]
    return rows, errors


def search_line(name: str, pairs: int, price: float) -> Array:
    """The vertical line of `pairs` nodes whose worst error, rounding included, is least."""

    def cost(line: Array) -> float:
        rows, errors = fit_rows(name, line_nodes(pairs, *line), minimax=False)
        sums = [float(np.abs(w).sum()) for w in rows]
        return math.log(max(e + price * s for e, s in zip(errors, sums, strict=True)))

    line = TARGETS[name].line
    assert line is not None
    a, b = line(pairs)
    starts = [(a + da, b * f) for da in (-0.6, -0.3, 0.0, 0.3, 0.6) for f in (0.85, 0.92, 1, 1.1)]
    options = {"xatol": 1e-3, "fatol": 1e-2}
    first = min(starts, key=lambda s: cost(np.array(s)))
    found = minimize(cost, first, method="Nelder-Mead", options=options).x
    return line_nodes(pairs, *[round(float(v), 4) for v in found])


def fit_sum(name: str, level: str, fewest: int = 3) -> dict[str, Any]:
    """One entry of the table: the fewest nodes, from `fewest` on, that reach the level's goal."""
    target, count = TARGETS[name], fewest
    while True:
        if target.line is None:
            nodes = np.arange(1, count + 1) + 0j
        else:
            nodes = search_line(name, count, PRICE[level])
        rows, errors = fit_rows(name, nodes)
        if max(errors) <= GOALS[level]:
            return entry(nodes, rows, errors)
        count += 1


def entry(nodes: Array, rows: Sequence[Array], errors: Sequence[float]) -> dict[str, Any]:
    """Nodes, weights and errors as they stand in the file; complex numbers as [re, im]."""
    return {
        "first": _pair(nodes[0]),
        "step": _pair(nodes[0].real if nodes[0].imag == 0 else 2j * nodes[0].imag),
        "count": len(nodes),
        "weights": [[_pair(w) for w in row] for row in rows],
        "errors": [_up(e) for e in errors],
    }


def _pair(z: complex) -> list[float]:
    return [float(np.real(z)), float(np.imag(z))]


def _up(error: float) -> float:
    # two digits, never below what was measured
    exponent = math.floor(math.log10(error)) - 1
    return float(f"{math.ceil(error / 10.0**exponent)}e{exponent}")


def fit_sums() -> dict[str, Any]:
    """The four fitted kernels at both levels; softplus on logistic's nodes, with its weights."""
    found: dict[str, Any] = {name: {} for name in TARGETS}
    for level in GOALS:
        for name in ("logistic", "gaussian", "normal"):
            found[name][level] = fit_sum(name, level)
        logistic = found["logistic"][level]
        nodes = np.arange(1, logistic["count"] + 1) + 0j
        rows, errors = fit_rows("softplus", nodes)
        slopes = [-np.array([complex(*w) for w in row]) for row in logistic["weights"][:2]]
        found["softplus"][level] = entry(
            nodes, [rows[0], *slopes], [errors[0], *logistic["errors"][:2]]
        )
    return found


DISCOUNTS: dict[str, Callable[[Array], Array]] = {
    "log2": lambda r: 1 / np.log2(2 + r),
    "log2 gap": lambda r: 1 / np.log2(2 + r) - 1 / np.log2(3 + r),
}
"""Discounts of rank r + 1; and how much they fall from the next rank to the one after it."""


LENGTHS = (100, 1000, 10_000, 100_000, 1_000_000)


def fit_powers(name: str, n: int, goal: float) -> dict[str, Any]:
    """The fewest powers whose sum is the discount to `goal` at all r < n; all c are positive."""
    table = DISCOUNTS[name](np.arange(n))
    r = spaced_ranks(n, 400)
    f, logs = table[r], np.log([1 / n, 1.0])
    while True:
        logs = np.sort(_rates(r, f, logs, np.ones(len(r))))
        z, c = _lawson(r, f, logs)
        error = largest_error(z, c, table)
        if (c > 0).all() and error <= goal:
            break
        steps, end = np.linspace(0, 1, len(logs) + 1), 0.3 * np.diff(logs).mean()
        logs = np.interp(steps, np.linspace(0, 1, len(logs)), logs) + end * (2 * steps - 1)
    found = {"z": [float(v) for v in z[::-1]], "c": [float(v) for v in c[::-1]]}
    return {"n": n, "error": _up(error), **found}


def _rates(r: Array, f: Array, logs: Array, weight: Array, rounds: int = 3) -> Array:
    # log(-log z) of the weighted least squares, the coefficients solved for at every step
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

    tight = {"xtol": 1e-12, "ftol": 1e-12, "gtol": 1e-12, "max_nfev": 100}
    for _ in range(rounds):
        size = size * np.abs(rest(logs)).max()  # so that the solver sees errors near 1
        logs = least_squares(rest, logs, slopes, method="lm", **tight).x
    return logs


def _lawson(r: Array, f: Array, logs: Array) -> tuple[Array, Array]:
    # least squares, weighted by the errors that they leave, again and again: nearly the minimax
    weight, least = np.ones(len(r)), np.inf
    best = np.zeros(0), np.zeros(0)
    for step in range(30):
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
"""Errors of SoftRank's profiles; of their slopes five times as much."""

PROFILE_POWERS = {"float32": (0.054, 0.1, 0.3, 0.9), "float64": (0.027, 0.1, 0.3, 0.9)}
"""Where the vertical line is to be good: the smallest z of the discounts to 1e-6 and to 1e-9."""

SHOWN_POWERS = (1e-4, 1e-3, 0.01, 0.027, 0.054, 0.1, 0.3, 0.5, 0.9, 0.99, 0.999, 1 - 1e-6)


def profile_errors(z: Array, a: float, b: float, pairs: int, order: int) -> tuple[Array, Array]:
    """The larger of both profiles' errors, and of their sums of abs(w), (len(z),) each."""
    x = 60 * np.linspace(0, 1, 3001) ** 2
    weights = profile_weights(z, order, a, b, pairs)
    decays = np.exp(-np.outer(x, line_nodes(pairs, a, b)))
    error = np.abs((weights @ decays.T).real - profiles(z, x, order)).max(-1)
    return error.max(0), np.abs(weights).sum(-1).max(0)


def fit_profiles(level: str, fewest: int) -> dict[str, Any]:
    """SoftRank's vertical line, the fewest pairs from `fewest` on; and errors over z."""
    wanted, pairs = np.array(PROFILE_POWERS[level]), fewest
    room = PROFILE_GOALS[level] * np.array([1.0, 5.0])

    def worst(line: Array, price: float) -> float:
        found = [profile_errors(wanted, *map(float, line), pairs, order) for order in (0, 1)]
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
        "errors": [[_up(e) for e in row] for row in errors],
    }


def text(table: Any) -> str:
    """JSON, the innermost lists on one line.

    >>> print(text({"a": [[1.0, 0.5], [2.0, 0.0]]}))
    {
     "a": [
      [1.0, 0.5],
      [2.0, 0.0]
     ]
    }
    """
    flat = json.dumps(table, indent=1)
    return re.sub(r"\[[^\[\]{}]*\]", _one_line, flat)


def _one_line(found: re.Match[str]) -> str:
    return " ".join(found[0].split()).replace("[ ", "[").replace(" ]", "]")


def fit() -> dict[str, Any]:
    """The whole table."""
    return {
        "sums": fit_sums(),
        "discounts": {
            name: [fit_powers(name, n, goal) for goal in (1e-6, 1e-9) for n in LENGTHS]
            for name in DISCOUNTS
        },
        "softrank": {
            level: fit_profiles(level, fewest)
            for level, fewest in (("float32", 8), ("float64", 21))
        },
    }


if __name__ == "__main__":
    PATH.write_text(text(fit()) + "\n")
