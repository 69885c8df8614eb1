"""Discounts as sums of powers z^rank, with the kernels that give SoftRank's mean of each power."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ltr.kernels import Kernel, Profile
from ltr.kernels.table import discount_powers, power_sum, softrank_nodes, softrank_weights

Discount = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Power:
    """c z^r, with the kernel whose sum is log E[z^rank]."""

    c: float
    z: float
    kernel: Kernel


def powers_of(discount: Discount, n: int, double: bool) -> tuple[Power, ...] | None:
    """Return the discount of ranks 1..n as a sum of powers, or None if few powers do not fit it.

    The error is at most 1e-6 of the largest discount; in doubles 1e-8 (1e-9 for 1/log2(1 + r)).

    >>> [(round(p.c, 6), round(p.z, 6)) for p in powers_of(lambda r: 0.5**r, 20, True)]
    [(0.5, 0.5)]
    >>> powers_of(lambda r: (r <= 10).double(), 100, False) is None
    True
    """
    values = discount(torch.arange(1, n + 1, dtype=torch.float64))
    if not n or values.requires_grad:
        return None
    return _constant_powers(values.expand(n), double)


def _constant_powers(values: Tensor, double: bool) -> tuple[Power, ...] | None:
    try:
        table = values.cpu().numpy()
    except RuntimeError:  # in a wrapper of torch.func, which tolist looks through
        table = np.array(values.tolist())
    return _kept_fit(table.astype(np.float64, copy=False), double)


# what torch.compiler.assume_constant_result does, which loads the whole compiler
_constant_powers._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]


@lru_cache(16)
def _kept(digest: bytes, double: bool) -> list[tuple[Power, ...] | None]:
    # the cache entry of a table of values: empty at first
    return []


def _kept_fit(table: Any, double: bool) -> tuple[Power, ...] | None:
    # the cache does not hold the table itself, which may have millions of ranks
    kept = _kept(hashlib.sha256(np.ascontiguousarray(table).data).digest(), double)
    if not kept:
        kept.append(_fit(table, double))
    return kept[0]


def _fit(table: Any, double: bool) -> tuple[Power, ...] | None:
    if not np.isfinite(table).all():
        return None
    tolerance, accepted = (1e-9, 1e-8) if double else (1e-6, 1e-6)
    largest = np.abs(table).max() or 1.0
    log2 = table[0] / np.log2(2 + np.arange(len(table)))
    if np.abs(table - log2).max() <= tolerance / 10 * largest:
        z, c, error = discount_powers(len(table), tolerance)
        c, error = c * table[0], error * largest
    else:
        z, c, error = power_sum(table, tolerance * largest)
    if error > accepted * largest:
        return None
    return tuple(Power(float(a), b, k) for a, b, k in zip(c, z.tolist(), _kernels(z), strict=True))


def _kernels(z: Any) -> list[Kernel]:
    # log E[z^[i above j]] = log z + a(x) for i above, b(x) for i below: see softrank_weights. These
    # are the float64 nodes: the float32 ones give an item above thousands an error of 1e-5.
    nodes = softrank_nodes("float64")
    weights = [softrank_weights(z, "float64", order).tolist() for order in range(3)]

    def profile(side: int, m: int, constant: float) -> Profile:
        value, *slopes = (tuple(w[side][m]) for w in weights)
        return Profile(value, tuple(slopes), constant)

    return [
        Kernel(nodes, profile(0, m, math.log(z[m])), profile(1, m, 0.0)).ready()
        for m in range(len(z))
    ]
