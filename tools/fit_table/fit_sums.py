"""Fit the half-line profiles of the kernels, with their derivatives, for `tools/fit_table`."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mpmath
import numpy as np
from fit_minimax import Array, Wide, evaluate, fit_row, line_nodes, rounded, up
from scipy.optimize import minimize

GOALS = {"float32": 2e-8, "float64": 1e-12}
"""The largest errors of f, f' and f''. The fit takes the fewest nodes that reach them. They are a
third of float32's rounding, and what doubles allow for f'', whose weights sum to a thousand."""

PRICE = {"float32": 2.0**-36, "float64": 2.0**-53}
"""The cost of a unit of the sum of abs(w) in the choice of a vertical line: its rounding in
doubles, and more at level float32, for sums in float32."""


class Target(NamedTuple):
    """f, f', f'' on x >= 0, their values at 0, and where the search of a vertical line starts."""

    rows: Callable[[Array], list[Array]]
    at_zero: tuple[float, ...]
    slope: float | None  # f'(0), if the fit of f must have this slope
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
    """Return Phi(-x) for x >= 0, to all digits of the wide type."""
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
    """Return `count` points on [0, 1], dense at both ends."""
    return (1 - np.cos(np.pi * np.arange(count, dtype=Wide) / (count - 1))) / 2


def grid(line: bool) -> Array:
    """Return the points of a fit: up to x = 14 for a line, in u = exp(-x) for the nodes 1..M."""
    if line:
        return 14 * chebyshev(400)
    return -np.log(chebyshev(400)[:0:-1])


def fine_grid() -> Array:
    """Return the points at which errors are measured: 0 to 60, dense at 0, and far beyond."""
    far = [75.0, 1e2, 2e2, 5e2, 745.0, 1e3, 1e4]
    return np.concatenate([60 * np.linspace(0, 1, 6001, dtype=Wide) ** 2, np.array(far, Wide)])


def fit_rows(name: str, nodes: Array, minimax: bool = True) -> tuple[list[Array], list[float]]:
    """Return weights and maximum errors of f, f', f''; on the grid of the fit unless `minimax`."""
    target = TARGETS[name]
    x = grid(target.line is not None)
    slopes = (target.slope, None, None)
    rows = [
        fit_row(nodes, x, f, at_zero, slope, minimax)
        for f, at_zero, slope in zip(target.rows(x), target.at_zero, slopes, strict=True)
    ]
    if minimax:
        rows, x = [rounded(*pair) for pair in zip(rows, target.at_zero, strict=True)], fine_grid()
    exact = target.rows(x)
    errors = [
        float(np.abs(evaluate(nodes, w, x) - f).max()) for w, f in zip(rows, exact, strict=True)
    ]
    return rows, errors


def search_line(name: str, pairs: int, price: float) -> Array:
    """Return the vertical line of `pairs` nodes with the least worst error, including rounding."""

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
    """Return a table entry with the fewest nodes, from `fewest` on, that reach the level's goal."""
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
    """Return nodes, weights and errors as the file stores them; complex numbers as [re, im]."""
    return {
        "first": _pair(nodes[0]),
        "step": _pair(nodes[0].real if nodes[0].imag == 0 else 2j * nodes[0].imag),
        "count": len(nodes),
        "weights": [[_pair(w) for w in row] for row in rows],
        "errors": [up(e) for e in errors],
    }


def _pair(z: complex) -> list[float]:
    return [float(np.real(z)), float(np.imag(z))]


def fit_sums() -> dict[str, Any]:
    """Return the four fitted kernels at both levels; softplus uses logistic's nodes and weights."""
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
