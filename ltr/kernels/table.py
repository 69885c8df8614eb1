"""The table of exponential sums: constants that `tools/fit_table` wrote to `table.json`."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

SumName = Literal["laplace", "logistic", "softplus", "gaussian", "normal"]
Level = Literal["float32", "float64"]

PATH = Path(__file__).with_name("table.json")


@dataclass(frozen=True)
class Nodes:
    """The nodes of a sum, an arithmetic progression: lambda_m = first + m step, m = 0..count-1.

    So all decays exp(-lambda_m x) are one exponential times the powers of another. A complex node
    stands for itself and its conjugate.

    >>> Nodes(1 + 1j, 2j, 3).values()
    ((1+1j), (1+3j), (1+5j))
    """

    first: complex
    step: complex
    count: int

    def values(self) -> tuple[complex, ...]:
        """Return all nodes."""
        return tuple(self.first + m * self.step for m in range(self.count))


@dataclass(frozen=True)
class Sum:
    """A profile f on x >= 0 and its derivatives, as Re sum_m w_m exp(-lambda_m x).

    Each derivative order 0, 1, 2 has separate weights, fitted to that derivative. The derivative
    of the fitted sum would be less accurate. For each order, the real parts of the weights sum to
    the exact value at 0.

    Args:
        nodes: the lambda_m of all orders.
        weights: the w_m, one row per order.
        errors: for each order, the maximum error of the sum for all x >= 0, in exact arithmetic. In
            float64, rounding adds an error of at most 1e-16 times the sum of abs(w).
    """

    nodes: Nodes
    weights: tuple[tuple[complex, ...], ...]
    errors: tuple[float, ...]


def exponential_sum(name: SumName, dtype_level: Level) -> Sum:
    """Return the exponential sum of a kernel's profile.

    Args:
        name: the profile f(x): "laplace" exp(-x), exact with one node; "logistic" 1/(1 + exp(x));
            "softplus" log(1 + exp(-x)), on the nodes of "logistic", with f' equal to minus
            "logistic" to the last bit; "gaussian" exp(-x^2), with f'(0) = 0 (no kink at a tie);
            "normal" Phi(-x).
        dtype_level: the accuracy. Errors of f, f' and f'' are at most 2e-8 for "float32" and 1e-12
            for "float64".

    Raises:
        ValueError: the name or the level is unknown.

    >>> total = exponential_sum("logistic", "float32")
    >>> total.nodes
    Nodes(first=(1+0j), step=(1+0j), count=12)
    >>> sum(w.real for w in total.weights[0])
    0.5
    """
    if dtype_level not in ("float32", "float64"):
        raise ValueError(f"dtype_level must be 'float32' or 'float64', got {dtype_level!r}")
    if name == "laplace":
        return Sum(Nodes(1 + 0j, 0j, 1), ((1,), (-1,), (1,)), (0.0, 0.0, 0.0))
    sums = _sums()
    if name not in sums:
        raise ValueError(f"name must be one of {['laplace', *sums]}, got {name!r}")
    return sums[name][dtype_level]


@cache
def _sums() -> dict[str, dict[str, Sum]]:
    return {
        name: {level: _sum(entry) for level, entry in levels.items()}
        for name, levels in json.loads(PATH.read_text()).items()
    }


def _sum(entry: dict[str, Any]) -> Sum:
    weights = tuple(tuple(complex(*w) for w in row) for row in entry["weights"])
    return Sum(_nodes(entry), weights, tuple(entry["errors"]))


def _nodes(entry: dict[str, Any]) -> Nodes:
    return Nodes(complex(*entry["first"]), complex(*entry["step"]), entry["count"])
