"""The mean of a discount under SoftRank's rank distribution, in sort time.

A rank is 1 plus a sum of independent events. So the mean of z^rank is a product, and its logarithm
is a kernel sum. A discount that is a short sum of powers z^rank needs one kernel sum per power. The
plain definition is `rank_distribution`.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ltr.kernels.autodiff import Maybe, Rule, differentiable
from ltr.kernels.kernel import Kernel, Profile
from ltr.kernels.lists import SortedLists, sort_lists
from ltr.kernels.sums import inner_sums
from ltr.kernels.table import discount_powers, power_sum, softrank_nodes, softrank_weights
from ltr.kernels.two_sets import merge
from ltr.shapes import check_lists, masked_fill, upcast, widened

Discount = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Power:
    """c z^r, with the kernel whose sum is log E[z^rank]."""

    c: float
    z: float
    kernel: Kernel


def powers_of(discount: Discount, n: int, double: bool) -> tuple[Power, ...] | None:
    """Return the discount of ranks 1..n as a sum of powers, or None if few powers do not fit it.

    The error is at most 1e-6 of the largest discount; with float64 it is 1e-8 (1e-9 for 1/log2(1 +
    r)).

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


NUMBERS = 1 << 20
"""The most numbers of one kind in memory at a time: it sets how many powers form a group."""

POINTS = 1 << 17
"""The exact distribution's copies of a batch are computed in groups of at most this many points."""


@dataclass(frozen=True)
class Plan:
    """The powers whose sum is a discount, and the noise of the item itself.

    Args:
        powers: Their sum is the discount of rank r + 1.
        temperature: the temperature of the kernels, in units of the scores.
        noise: the quadrature nodes of the item's own noise, in units of `temperature`; none for the
            paper's distribution, which draws new noise for each comparison.
        chances: their weights.
    """

    powers: tuple[Power, ...]
    temperature: float
    noise: tuple[float, ...] = ()
    chances: tuple[float, ...] = ()


def expected_discounts(
    discount: Discount,
    scores: Tensor,
    mask: Tensor | None = None,
    *,
    temperature: float,
    noise: tuple[float, ...] = (),
    chances: tuple[float, ...] = (),
) -> Tensor | None:
    """Return E[discount(rank)] (..., n), 0 where masked; None if too many powers are needed.

    Args:
        discount: maps ranks (n,) to discounts (n,). It is called on the CPU in float64, and must
            not depend on anything that has a gradient.
        scores: (..., n), any floating dtype; half precision gives float32.
        mask: (..., n) bool, or None.
        temperature: sigma, the deviation of one score, > 0.
        noise: the exact distribution's quadrature nodes in units of sigma; none is the paper's
            distribution.
        chances: their weights.

    Cost: O(M n) time after the sort, with M some 350 multiply-adds (15 powers on 22 nodes), and a
    few times that for the backward pass; O(n) memory. The exact distribution's copies multiply the
    time.

    >>> expected_discounts(lambda rank: 0.5**rank, torch.zeros(20), temperature=0.1)[:2]
    tensor([0.0021, 0.0021])
    """
    check_lists(scores, mask=mask)
    n = len(range(scores.shape[-1]))  # a plain number: the powers are constants of a graph
    powers = powers_of(discount, n, upcast(scores).dtype == torch.float64)
    if powers is None:
        return None
    width = temperature if noise else 2**0.5 * temperature
    plan = Plan(powers, width, noise, chances)
    x = upcast(masked_fill(scores, mask))
    # a log-mean of many terms that cancel
    exact = widened(x)
    order = None if noise else sort_lists(x, mask).order
    (means,) = differentiable(_Means(plan), exact, mask, order)
    return masked_fill(means.to(x.dtype), mask)


@dataclass(frozen=True)
class _Copies:
    """Points that hold the scores once, or twice: as sources and, shifted, as targets."""

    points: Tensor
    column: Tensor  # 1 where a point is a source
    lists: SortedLists
    noise: tuple[float, ...]
    chances: tuple[float, ...]

    def weights(self, power: Power, x: Tensor) -> Tensor:
        # (copies, 1): the probability of the noise, divided by the item's term in its own sum
        own = [0.5 * math.erfc(noise / 2**0.5) for noise in self.noise]
        both = zip(self.chances, own, strict=True)
        found = [power.c * c / (1 - (1 - power.z) * p) for c, p in both]
        return torch.tensor(found, dtype=x.dtype, device=x.device).unsqueeze(-1)

    def targets(self, power: Power, logs: Tensor) -> Tensor:
        """Return a power's contribution to the mean at the targets: (..., copies, n) or (..., n).

        It overwrites `logs` unless autograd records.
        """
        if not self.noise:
            return power.c * logs.exp() if torch.is_grad_enabled() else logs.exp_().mul_(power.c)
        copies = logs.unflatten(-1, (1 + len(self.noise), -1))[..., 1:, :]
        return copies.exp() * self.weights(power, logs)

    def spread(self, x: Tensor) -> Tensor:
        """Return x (..., copies, n) or (..., n) at all points, with 0 at sources."""
        if not self.noise:
            return x
        nothing = torch.zeros_like(x[..., :1, :])
        return torch.cat([nothing, x], -2).flatten(-2)

    def fold(self, x: Tensor) -> Tensor:
        """Return the sum over all copies of each item."""
        return x.unflatten(-1, (1 + len(self.noise), -1)).sum(-2) if self.noise else x

    def sources(self, x: Tensor) -> Tensor:
        """Return the values at the sources."""
        return x.unflatten(-1, (1 + len(self.noise), -1))[..., 0, :] if self.noise else x

    def groups(self, plan: Plan) -> Iterator[tuple[Power, ...]]:
        """Yield the powers in groups that fit in memory."""
        size = max(1, NUMBERS // self.points.numel())
        for first in range(0, len(plan.powers), size):
            yield plan.powers[first : first + size]


def _copies(
    scores: Tensor, mask: Tensor | None, order: Tensor | None, plan: Plan
) -> Iterator[_Copies]:
    if not scores.numel():
        return
    one = scores.new_ones(()).expand(scores.shape)
    if not plan.noise:
        starts = torch.zeros_like(scores[..., :1], dtype=torch.int64)
        lengths = starts + scores.shape[-1] if mask is None else mask.sum(-1, keepdim=True)
        yield _Copies(scores, one, SortedLists(order, starts, lengths), (), ())
        return
    size = max(1, POINTS // scores.numel())
    for first in range(0, len(plan.noise), size):
        noise, chances = (x[first : first + size] for x in (plan.noise, plan.chances))
        queries = torch.cat([scores + plan.temperature * x for x in noise], -1)
        masks = None if mask is None else torch.cat([mask] * len(noise), -1)
        points, lists = merge(queries, scores, masks, mask)
        column = torch.cat([one, torch.zeros_like(queries)], -1)
        yield _Copies(points, column, lists, noise, chances)


def _means(scores: Tensor, mask: Tensor | None, order: Tensor | None, plan: Plan) -> Tensor:
    total = torch.zeros_like(scores)
    for copies in _copies(scores, mask, order, plan):
        for powers in copies.groups(plan):
            _add_means(total, copies, powers, plan.temperature)
    return total


def _add_means(
    total: Tensor, copies: _Copies, powers: tuple[Power, ...], temperature: float
) -> None:
    # a separate function, so that its tensors are freed before the next group of powers
    outputs = [(0, power.kernel) for power in powers]
    logs = inner_sums(copies.points, [copies.column], outputs, copies.lists, temperature)
    for power, each in zip(powers, logs, strict=True):
        part = copies.targets(power, each)
        total += part.sum(-2) if copies.noise else part


def _gradient(
    g: Tensor,
    scores: Tensor,
    mask: Tensor | None,
    order: Tensor | None,
    plan: Plan,
) -> Tensor:
    # The gradient of sum_j g_j y_j: with G_j = g_j times a power's part of y_j, it is the sum over
    # powers of G_i (k' 1)_i - (k'^T G)_i.
    total = None
    g = g.unsqueeze(-2) if plan.noise else g
    for copies in _copies(scores, mask, order, plan):
        for powers in copies.groups(plan):
            total = _add_gradient(total, g, copies, powers, plan.temperature)
    return torch.zeros_like(scores) if total is None else total


def _add_gradient(
    total: Tensor | None,
    g: Tensor,
    copies: _Copies,
    powers: tuple[Power, ...],
    temperature: float,
) -> Tensor | None:
    common = copies.lists, temperature
    outputs = [(0, k) for p in powers for k in (p.kernel, p.kernel.derivative)]
    found = list(inner_sums(copies.points, [copies.column], outputs, *common))
    cotangents = []
    for power in powers:
        part = copies.targets(power, found.pop(0))
        cotangents.append(copies.spread(part * g))
        total = _add(total, copies.fold(cotangents[-1] * found.pop(0)))
    outputs = [(m, p.kernel.derivative.transpose) for m, p in enumerate(powers)]
    for others in inner_sums(copies.points, cotangents, outputs, *common):
        total = _add(total, copies.sources(others), -1.0)
    return total


def _add(total: Tensor | None, more: Tensor, factor: float = 1.0) -> Tensor:
    # the first product depends on every input that vmap may batch: it can be added to in place
    return more if total is None else total.add_(more, alpha=factor)


@dataclass(frozen=True, eq=False)
class _Means(Rule):
    """sum_m c_m E[z_m^rank] with derivatives that store O(n) numbers and no graph."""

    plan: Plan

    def values(self, scores: Tensor, mask: Maybe, order: Maybe) -> tuple[Tensor, ...]:
        return (_means(scores, mask, order, self.plan),)

    def gradients(
        self, needed: Sequence[bool], given: Sequence[Maybe], *saved: Any
    ) -> tuple[Maybe, ...]:
        gradient = given[0]
        assert gradient is not None
        scores, mask, order = saved
        return _gradient(gradient, scores, mask, order, self.plan), None, None
