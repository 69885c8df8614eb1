"""The table of exponential sums: constants from tools/fit_table, read from table.json."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ltr.kernels.powers import power_sum
from ltr.kernels.profiles import profile_weights

__all__ = [
    "Nodes",
    "Sum",
    "discount_powers",
    "exponential_sum",
    "power_sum",
    "softrank_nodes",
    "softrank_weights",
]

Array = np.ndarray[Any, Any]
Kernel = Literal["laplace", "logistic", "softplus", "gaussian", "normal"]
Level = Literal["float32", "float64"]

PATH = Path(__file__).with_name("table.json")


@dataclass(frozen=True)
class Nodes:
    """The nodes of a sum, an arithmetic progression: lambda_m = first + m step, m = 0..count-1.

    So all decays follow from one exponential and powers of one factor. A complex node stands for
    itself and its conjugate.

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
    of the fitted sum would be less accurate. The real parts of a row sum to the exact value at 0.

    Args:
        nodes: the lambda_m of all orders.
        weights: One row per order.
        errors: One per order: the maximum error over x >= 0 of the sum in exact arithmetic. In
            doubles, rounding adds up to 1e-16 times the sum of abs(w).
    """

    nodes: Nodes
    weights: tuple[tuple[complex, ...], ...]
    errors: tuple[float, ...]


def exponential_sum(name: Kernel, dtype_level: Level) -> Sum:
    """Return the exponential sum of a kernel's profile.

    Args:
        name: "laplace" exp(-x), exact with one node; "logistic" 1/(1 + exp(x)); "softplus"
            log(1 + exp(-x)), on the logistic's nodes, its derivative minus the logistic to the
            last bit; "gaussian" exp(-x^2), with f'(0) = 0 (no kink at a tie); "normal" Phi(-x).
        dtype_level: "float32", f, f' and f'' to 2e-8, or "float64", to 1e-12.

    Raises:
        ValueError: an unknown name or level.

    >>> total = exponential_sum("logistic", "float32")
    >>> total.nodes
    Nodes(first=(1+0j), step=(1+0j), count=12)
    >>> sum(w.real for w in total.weights[0])
    0.5
    """
    _check_level(dtype_level, "dtype_level")
    if name == "laplace":
        return Sum(Nodes(1 + 0j, 0j, 1), ((1,), (-1,), (1,)), (0.0, 0.0, 0.0))
    sums = _sums()
    if name not in sums:
        raise ValueError(f"name must be one of {['laplace', *sums]}, got {name!r}")
    return sums[name][dtype_level]


def discount_powers(n: int, error: float) -> tuple[Array, Array, float]:
    """Return the discount 1/log2(2 + r), r = 0..n-1, as sum_m c_m z_m^r.

    Args:
        n: the longest list, >= 0.
        error: The largest accepted absolute error, > 0. The table has 1e-6 and 1e-9 up to n = 1e6.
            Beyond it `power_sum` fits, and may return more powers and a larger error.

    Returns:
        z (m,) in (0, 1), ascending; c (m,), positive from the table; the maximum absolute error.

    Raises:
        ValueError: n < 0 or error <= 0.

    >>> z, c, error = discount_powers(100, 1e-6)
    >>> len(z), error < 1e-6, bool(abs(c @ z**6 - 1 / 3) <= error)
    (8, True, True)
    """
    found = _powers("log2", n, error)
    return power_sum(1 / np.log2(2 + np.arange(max(n, 1))), error) if found is None else found


def softrank_nodes(level: Level) -> Nodes:
    """Return the nodes of `softrank_weights`: a vertical line, shared by all powers z.

    Raises:
        ValueError: an unknown level.

    >>> softrank_nodes("float32").count
    10
    """
    _check_level(level, "level")
    return _nodes(_table()["softrank"][level])


def softrank_weights(z: Any, level: Level, order: int = 0) -> Array:
    """Return SoftRank's two profiles for given powers z, as sums over `softrank_nodes(level)`.

    For items at distance x = abs(s_i - s_j) / (sqrt(2) sigma), log E[z^rank_j] is a sum of
    a(x) = log(1 + (1 - z) / z Phi(-x)) over the items i above j (plus log z each) and of
    b(x) = log(1 - (1 - z) Phi(-x)) over those below.

    Args:
        z: (k,), the powers, in (0, 1]; anything `numpy.asarray` takes.
        level: "float32" or "float64". It sets the number of nodes; `softrank_errors` returns the
            errors.
        order: 0 for a and b, 1 and 2 for their derivatives by x, which have separate fits.

    Returns:
        (2, k, count) complex: a's weights, then b's. The real parts sum to the exact value at 0.

    Raises:
        ValueError: z not one-dimensional or not in (0, 1], an unknown level or order.

    Cost: a millisecond. The first call caches a QR decomposition.

    Reference: Taylor, Guiver, Robertson and Minka, "SoftRank: optimizing non-smooth rank
    metrics", WSDM 2008. The sums give the generating function of its rank distribution.

    >>> softrank_weights([0.5], "float32").real.sum(-1)
    array([[ 0.40546511],
           [-0.28768207]])
    """
    z = np.asarray(z, dtype=np.float64)
    if z.ndim != 1 or not ((z > 0) & (z <= 1)).all():
        raise ValueError(f"z must be one number in (0, 1] per power, got {z}")
    if order not in (0, 1, 2):
        raise ValueError(f"order must be 0, 1 or 2, got {order}")
    nodes = softrank_nodes(level)
    return profile_weights(z, order, nodes.first.real, nodes.step.imag, nodes.count)


def _check_level(level: str, argument: str) -> None:
    if level not in ("float32", "float64"):
        raise ValueError(f"{argument} must be 'float32' or 'float64', got {level!r}")


def _powers(name: str, n: int, error: float) -> tuple[Array, Array, float] | None:
    if n < 0:
        raise ValueError(f"n must be >= 0, got {n}")
    if not error > 0:
        raise ValueError(f"error must be > 0, got {error}")
    good = [e for e in _table()["discounts"][name] if e["n"] >= n and e["error"] <= error]
    if not good:
        return None
    entry = min(good, key=lambda e: len(e["z"]))
    return np.array(entry["z"]), np.array(entry["c"]), entry["error"]


@cache
def _table() -> dict[str, Any]:
    return json.loads(PATH.read_text())


@cache
def _sums() -> dict[str, dict[str, Sum]]:
    return {
        name: {level: _sum(entry) for level, entry in levels.items()}
        for name, levels in _table()["sums"].items()
    }


def _sum(entry: dict[str, Any]) -> Sum:
    weights = tuple(tuple(complex(*w) for w in row) for row in entry["weights"])
    return Sum(_nodes(entry), weights, tuple(entry["errors"]))


def _nodes(entry: dict[str, Any]) -> Nodes:
    return Nodes(complex(*entry["first"]), complex(*entry["step"]), entry["count"])
