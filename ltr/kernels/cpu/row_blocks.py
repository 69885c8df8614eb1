"""NeuralSort's rows, many at a time: rows of tied or nearly tied points share one Taylor series.

Let c be the middle row of a block of 2 h + 1 rows. Up to a factor per row,
exp(L_ij) = exp(L_cj) exp(x_i y_j), with x_i = (i - c) / h in [-1, 1] and
y_j = 2 h (t_c - t_j) / temperature. If all |y_j| in the rows' bands are small, a short Taylor
series in x y gives the whole block. The columns are summed once for each power of y, and each row
is a polynomial in x. If all points are tied, one block with one term is the whole matrix.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ltr.kernels.cpu.jit import jit
from ltr.kernels.cpu.vectors import dot, exp, total_of

WIDEST = 4.0
"""The largest |y|. The terms of the series stay below 11, and rounding below 1e-15 of the sum."""

LEAST = 16
"""The fewest rows of a block. Fewer rows are computed one by one."""

FIRST = 64
"""The half-width of a block to try first."""

LONG = 256
"""The shortest list with blocks. In shorter lists blocks save no time."""

TERMS = 64
"""Room for the terms of a series, at most 32."""


class Work(NamedTuple):
    """The work arrays of a block: vectors over columns, then over rows, then over terms.

    `logits` and `y` hold the block's middle row in their own middle; the others begin at 0. So
    memory is touched as far as blocks are wide, not as far as the list is long.
    """

    logits: Any
    y: Any
    e: Any
    p: Any
    q: Any
    x: Any
    shares: Any
    r: Any
    found: Any
    ones: Any
    moments: Any


class Points(NamedTuple):
    """The points of lists, or of one list with its length."""

    t: Any
    """(lists, n) or (n,), falling."""
    rate: float
    """1 / temperature."""
    lengths: Any
    """The number of real points."""
    cut: float
    """The largest -L_ij that counts."""


class Block(NamedTuple):
    """Rows that share an expansion around their middle."""

    first: int
    size: int
    """Their number; 0: take the next `LEAST` rows one by one."""
    left: int
    right: int
    """Their bands have the columns left to right - 1."""
    terms: int
    """The terms of the series."""


@jit
def new_work(n):
    """Make the vectors of a block of any size in a list of n points."""
    n = n if n >= LONG else 0
    return Work(
        np.empty(2 * n + 1),
        np.empty(2 * n + 1),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(TERMS),
    )


@jit
def _walk(t, middle, side, steps, h, rate, cut, work):
    # Return how many columns of one side are in the band of some row of the block, or -1 if |y|
    # gets too large. No row's logit of a column is above L + |y|, which falls from h steps on.
    logit, odd, top, before = 0.0, 1.0, np.float64(t[middle]), np.float64(t[middle])
    own = len(work.y) // 2
    for k in range(1, steps + 1):
        j = middle + side * k
        here = np.float64(t[j])
        logit -= odd * (abs(before - here) * rate)
        odd += 2.0
        before = here
        across = 2.0 * h * (abs(top - here) * rate)
        if k > h and logit + across < -cut:
            return k - 1
        if not across <= WIDEST:
            return -1
        work.logits[own + side * k] = logit
        work.y[own + side * k] = side * across
    return steps


@jit
def find_block(points, first, last, half, work):
    """Find rows from `first` on, before `last`, that share an expansion around their middle.

    Returns:
        The `Block`, and the half-width to try next.
    """
    t, rate, m, cut = points
    shrunk, own = m < LONG, len(work.y) // 2
    half = min(half, m) if m >= LONG else 0
    while True:
        count = min(2 * half + 1, last - first)
        if count < LEAST:
            return Block(first, 0, 0, 0, 0), LEAST
        h = count // 2
        middle = first + h
        work.logits[own] = work.y[own] = 0.0
        right = _walk(t, middle, 1, m - 1 - middle, h, rate, cut, work)
        left = _walk(t, middle, -1, middle, h, rate, cut, work) if right >= 0 else -1
        if left < 0:
            shrunk, half = True, h // 2
            continue
        widest = max(abs(work.y[own + right]), abs(work.y[own - left]))
        if not shrunk and 4 * widest < WIDEST and first + count < last:
            half *= 4 if 16 * widest < WIDEST else 2
            continue
        terms = _count_terms(widest, cut)
        return Block(first, count, middle - left, middle + right + 1, terms), half


@jit
def _count_terms(widest, cut):
    # the rest of the series is below rounding, or below the entries beyond the cut
    small, term, terms = math.exp(-min(cut, 37.0)), 1.0, 1
    while True:
        term *= widest / terms
        if term <= small:
            return terms
        terms += 1


@jit
def _columns(block, work):
    # return the columns' e, y and a work vector for them
    first, count, left, right, _ = block
    width, start = right - left, len(work.y) // 2 + left - (first + count // 2)
    return work.e[:width], work.y[start : start + width], work.p[:width]


@jit
def open_block(block, work):
    """Compute the columns' e = exp(L_cj), the rows' x, and 1 / the sum over j of exp(L_ij)."""
    first, count, left, _, terms = block
    h = count // 2
    for i in range(count):
        work.x[i] = (i - h) / max(h, 1)
    e, y, p = _columns(block, work)
    start = len(work.y) // 2 + left - (first + h)
    e[:] = work.logits[start : start + len(e)]
    exp(e, p)
    work.ones[: len(e)] = 1.0
    p[:] = e
    for k in range(terms):
        work.moments[k] = total_of(p)
        _next(p, y, k)
    _polynomial(work.moments, terms, work.x[:count], work.shares[:count])
    for i in range(count):
        work.shares[i] = 1.0 / work.shares[i]


@jit
def _next(p, y, k):
    step = 1.0 / (k + 1)
    for j in range(len(p)):
        p[j] *= y[j] * step


@jit
def _polynomial(coefficients, terms, x, out):
    out[:] = coefficients[terms - 1]
    for k in range(terms - 2, -1, -1):
        c = coefficients[k]
        for i in range(len(x)):
            out[i] = out[i] * x[i] + c


@jit
def _binomial(u, v):
    out = 1.0
    for k in range(v):
        out = out * (u - k) / (k + 1)
    return out


@jit
def block_products(values, u, block, work, out):
    """Set out_i to the sum over j of (j - i)^u P_ij V_j, for the columns' `values` V."""
    first, count, left, _, terms = block
    h = count // 2
    e, y, p = _columns(block, work)
    x, found = work.x[:count], work.found[:count]
    out[:] = 0.0
    for v in range(u + 1):  # (j - i)^u by the powers of j - c and c - i
        p[:] = e
        for _ in range(v):
            for j in range(len(p)):
                p[j] *= left + j - (first + h)
        for k in range(terms):
            work.moments[k] = dot(p, values)
            _next(p, y, k)
        _polynomial(work.moments, terms, x, found)
        factor = _binomial(u, v)
        for i in range(count):
            out[i] = out[i] * (h - i) + factor * found[i]
    for i in range(count):
        out[i] *= work.shares[i]


@jit
def block_spread(values, s, block, work, out):
    """Set out_j to the sum over i of (c - i)^s P_ij W_i, for the rows' `values` W."""
    count, terms = block.size, block.terms
    h = count // 2
    p, x = work.found[:count], work.x[:count]
    for i in range(count):
        p[i] = values[i] * work.shares[i]
    for _ in range(s):
        for i in range(count):
            p[i] *= h - i
    step = 1.0
    for k in range(terms):
        work.moments[k] = total_of(p) * step
        step /= k + 1
        for i in range(count):
            p[i] *= x[i]
    e, y, _ = _columns(block, work)
    _polynomial(work.moments, terms, y, out)
    for j in range(len(e)):
        out[j] *= e[j]


@jit
def add_spread(values, u, block, work, factors, out):
    """Add factor_j times the sum over i of (j - i)^u P_ij W_i to out_j, for rows' `values` W."""
    first, count, left, right, _ = block
    middle = first + count // 2
    total, q = work.q[: right - left], work.p[: right - left]
    total[:] = 0.0
    for v in range(u, -1, -1):  # by Horner's rule in j - c
        block_spread(values, u - v, block, work, q)
        factor = _binomial(u, v)
        for j in range(len(q)):
            total[j] = total[j] * (left + j - middle) + factor * q[j]
    for j in range(len(q)):
        out[j] += factors[j] * total[j]


@jit
def block_vjp(G, V, steps, block, work, near, far):
    """Add to near_j and far_j the sums over i of D_ij and of (j - i) D_ij."""
    first, count, left, right, _ = block
    r, found = work.r[:count], work.logits[:count]  # the logits are no longer needed
    r[:] = 0.0
    for c in range(len(steps)):
        g, values = G[c, first : first + count], V[c, left:right]
        block_products(values, steps[c], block, work, found)
        for i in range(count):
            r[i] -= g[i] * found[i]
        add_spread(g, steps[c], block, work, values, near[left:right])
        add_spread(g, steps[c] + 1, block, work, values, far[left:right])
    ones = work.ones[: right - left]
    add_spread(r, 0, block, work, ones, near[left:right])
    add_spread(r, 1, block, work, ones, far[left:right])


@jit
def block_log_sums(count, work, out):
    """Set out_i to the logarithm of the sum over j of exp(L_ij), with L_ii = 0."""
    start = len(work.y) // 2 - count // 2
    for i in range(count):
        own = work.logits[start + i] + work.x[i] * work.y[start + i]
        out[i] = -math.log(work.shares[i]) - own
