"""Sums over pairs of items with different grades, and their gradients, compiled by numba.

A list is swept downwards and upwards. A state, for one grade and one node, is the sum of
exp(-node * distance) over the items of this grade passed so far. There are up to four such states
for each grade and node, in which an item counts as 1, as its discount, as its weight, or as its
discount times its weight. So there is no work per pair, and the total time is about that of a sort.
Since each grade has its own states, pairs of items with equal grades need not be subtracted.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ltr.kernels.cpu.jit import entry, jit
from ltr.kernels.cpu.vectors import sums_jit

# A row has room for the states of this many nodes. Softplus has at most 18 nodes, which are padded
# to 20. The distance between rows is a constant, so that LLVM puts several rows into one vector
# loop.
ROW = 24


class Lists(NamedTuple):
    """The arrays (B, n) of B lists; `mask`, `items` and `gains` are empty if not given."""

    x: Any
    order: Any
    labels: Any
    mask: Any
    items: Any
    """The item weights."""
    gains: Any


class PairRule(NamedTuple):
    """The weight and the cost of a pair."""

    discounts: Any
    """(n,), the discounts of the ranks, or empty."""
    ideal: Any
    """(n,), the discounts of the ideal DCG, or empty."""
    upper: int
    last: int
    """`upper` and `last` are as in `ltr.kernels.pairs.GradedWeights`."""
    scale: float
    """1 / temperature."""
    fit: Any
    """(2, nodes), the weights of softplus and its derivative; a multiple of 4 nodes, <= `ROW`."""
    most: int
    """The most grades of a list."""


class ItemSums(NamedTuple):
    """The arrays (B, n) and (B,) that `lower_costs` fills with its results."""

    costs: Any
    ideal: Any
    flags: Any


class PairTotals(NamedTuple):
    """The arrays that `graded_pairs` fills with its results."""

    total: Any
    """(B,), the sums of weight times cost."""
    weight: Any
    """(B,), the sums of the weights."""
    slopes: Any
    """(B, n), the gradients of `total` by the scores."""
    flags: Any
    """(B,), above 0 if the results are invalid."""


@entry
@jit
def graded_pairs(lists, rule, results, begin, stop):
    """Fill `total`, `weight` and `slopes` (gradients) for the lists `begin` to `stop` - 1.

    `flags[begin]` is set to 1 if a list has more than `most` grades, or a score or label that is
    not finite; the results are then invalid. See `ltr.kernels.pairs`.
    """
    x, order, labels, mask, items, gains = lists
    discounts, ideal, upper, last, scale, fit, most = rule
    total, weight, slopes, flags = results
    n = x.shape[1]
    by_rank, by_item = len(discounts) > 0, len(items) > 0
    columns = (2 if by_rank else 1) * (2 if by_item else 1)
    gap, decay = np.zeros(n + 1), np.zeros(n + 1)
    grade = np.empty(n, np.int64)
    values, worth = np.empty(most + 1), np.empty(most + 1)
    count = np.empty(most + 1, np.int64)
    each = np.ones(n)
    slope = np.empty(n)
    apart = np.empty((most, most))
    state = np.empty(most * columns * ROW)
    passed, linear = np.empty(most * columns), np.empty(most * columns)
    share, came = np.empty(most * columns), np.empty(columns)
    work = state, came, passed, linear, share, np.empty(2 * ROW)
    for row in range(begin, stop):
        m = _length(mask, row, n)
        grades = _grades(labels, order, row, m, most, values)
        if grades < 0:
            flags[begin] = 1
            return
        total[row] = 0.0
        weight[row] = 0.0
        slopes[row, :] = 0.0
        count[:] = 0
        for p in range(m):
            item = order[row, p]
            grade[p] = _position(values, grades, labels[row, item])
            count[grade[p]] += 1
            worth[grade[p]] = gains[row, item] if len(gains) else 1.0
            if by_item:
                each[p] = items[row, item]
        if not _gaps(x, order, row, m, scale, gap, decay):
            flags[begin] = 1
            return
        if grades < 2:
            continue
        over = _ideal(worth, count, grades, ideal) if len(ideal) else 1.0
        for g in range(grades):
            for h in range(grades):
                if len(gains):
                    apart[g, h] = abs(worth[g] - worth[h]) / over
                else:
                    apart[g, h] = 0.0 if g == h else 1.0
        m = min(m, last)
        slope[:m] = 0.0
        for side in range(2):
            kinds, positions = (
                (upper, by_rank, by_item),
                (gap, decay, grade, each, discounts, apart),
            )
            sums = _sweep(side, m, grades, kinds, positions, fit, work, slope)
            if side == 0:
                total[row], weight[row] = sums
        for p in range(m):
            slopes[row, order[row, p]] = slope[p] * scale


@entry
@jit
def lower_costs(lists, rule, results, begin, stop):
    """Fill `costs` and `ideal` (ranks) for the lists `begin` to `stop` - 1.

    The cost of an item is the sum of log(1 + exp(x)) over the items of lower grades, where x is
    their score minus the item's score, times `rule.scale`. Its ideal rank is 1 + the number of
    items of higher grades, and of its own grade before it in the order. `flags` is as in
    `graded_pairs`.
    """
    x, order, labels, mask = lists[:4]
    scale, fit, most = rule.scale, rule.fit, rule.most
    costs, ideal, flags = results
    n = x.shape[1]
    gap, decay, cost = np.zeros(n + 1), np.zeros(n + 1), np.empty(n)
    grade = np.empty(n, np.int64)
    values, following = np.empty(most + 1), np.empty(most + 1)
    state, scratch = np.empty(most * ROW), np.empty(2 * ROW)
    passed, linear, share = np.empty(most), np.empty(most), np.empty(most)
    work = state, np.empty(1), passed, linear, share, scratch
    for row in range(begin, stop):
        m = _length(mask, row, n)
        grades = _grades(labels, order, row, m, most, values)
        if grades < 0 or not _gaps(x, order, row, m, scale, gap, decay):
            flags[begin] = 1
            return
        costs[row, :] = 0.0
        ideal[row, :] = m + 1
        following[:] = 0.0
        for p in range(m):
            grade[p] = _position(values, grades, labels[row, order[row, p]])
            for g in range(grade[p]):
                following[g] += 1
        for p in range(m):
            following[grade[p]] += 1
            ideal[row, order[row, p]] = following[grade[p]]
        if grades < 2:
            continue
        cost[:m] = 0.0
        for side in range(2):
            _lower_sweep(side, m, grades, (gap, decay, grade), fit, work, cost)
        for p in range(m):
            costs[row, order[row, p]] = cost[p]


@jit
def _length(mask, row, n):
    # Return the number of real items of a list.
    if not len(mask):
        return n
    m = 0
    for p in range(n):
        m += mask[row, p]
    return m


@jit
def _gaps(x, order, row, m, scale, gap, decay):
    # Fill `gap` with the scaled differences of neighboring scores, and `decay` with exp(-gap).
    # Return whether all scores and differences are finite.
    for p in range(m):
        score = x[row, order[row, p]]
        if p:
            gap[p] = (np.float64(x[row, order[row, p - 1]]) - score) * scale
            decay[p] = math.exp(-gap[p])
        if not (math.isfinite(score) and math.isfinite(gap[p])):
            return False
    return True


@jit
def _lower_sweep(side, m, grades, positions, fit, work, cost):
    # Side 0 goes from the top down, side 1 from the bottom up. Add to cost[p] the costs of the item
    # at p with the items of lower grades that were passed.
    gap, decay, grade = positions
    state, came, passed, linear, share, scratch = work
    state[: grades * ROW] = 0.0
    passed[:grades] = 0.0
    linear[:grades] = 0.0
    came[0] = 0.0
    at = 0
    for k in range(m):
        p = k if side == 0 else m - 1 - k
        far = e = 0.0
        if k:
            between = p if side == 0 else p + 1
            far, e = gap[between], decay[between]
        line = 0.0
        for h in range(grades):
            share[h] = 1.0 if h < grade[p] else 0.0
            linear[h] += passed[h] * far
            line += share[h] * linear[h]
        _advance(state, came, share[:grades], e, at, scratch, fit.shape[1])
        smooth, _ = _products(fit, scratch[ROW:])
        cost[p] += smooth + line if side == 0 else smooth
        at = grade[p]
        came[0] = 1.0
        passed[at] += 1.0


@jit
def _grades(labels, order, row, m, most, values):
    # Fill `values` with the distinct labels of a list in ascending order. Return their number, or
    # -1 if there are more than `most` or a label is not finite.
    grades = 0
    for p in range(m):
        y = np.float64(labels[row, order[row, p]])
        if not math.isfinite(y):
            return -1
        at = _position(values, grades, y)
        if at < grades and values[at] == y:
            continue
        if grades == most:
            return -1
        for k in range(grades, at, -1):
            values[k] = values[k - 1]
        values[at] = y
        grades += 1
    return grades


@jit
def _position(values, grades, y):
    at = 0
    while at < grades and values[at] < y:
        at += 1
    return at


@jit
def _ideal(worth, count, grades, ideal):
    # Return the ideal DCG, for which the grades are sorted by descending gain and each item has the
    # discount of its position. Return 1 if the sum is not positive.
    total, first = 0.0, 0
    done = np.zeros(grades, np.bool_)
    for _ in range(grades):
        best = -1
        for g in range(grades):
            if not done[g] and (best < 0 or worth[g] > worth[best]):
                best = g
        done[best] = True
        for p in range(first, first + count[best]):
            total += worth[best] * ideal[p]
        first += count[best]
    return total if total > 0 else 1.0


@jit
def _advance(state, came, share, e, own, scratch, nodes):
    # Add `came` to the rows from `own` on, then multiply each row by (e^1, e^2, ...). The second
    # row of `scratch` becomes the sum of all rows, each multiplied by its `share`.
    powers, total = scratch, scratch[ROW:]
    square = e * e
    first, step = e, square * square
    for k in range(0, nodes, 4):  # the four products do not wait for each other
        powers[k] = first
        powers[k + 1] = first * e
        powers[k + 2] = first * square
        powers[k + 3] = first * (square * e)
        first *= step
    for k in range(nodes):
        total[k] = 0.0
    for c in range(len(came)):
        part, v = state[(own + c) * ROW :], came[c]
        for k in range(nodes):
            part[k] += v
    whole = len(share) - len(share) % 4
    for r in range(0, whole, 4):  # four rows share one vector loop
        part = state[r * ROW :]
        a, b, c, d = share[r], share[r + 1], share[r + 2], share[r + 3]
        for k in range(nodes):
            x = powers[k]
            w, y, z = part[k] * x, part[ROW + k] * x, part[2 * ROW + k] * x
            last = part[3 * ROW + k] * x
            part[k], part[ROW + k], part[2 * ROW + k], part[3 * ROW + k] = w, y, z, last
            total[k] += a * w + b * y + c * z + d * last
    for r in range(whole, len(share)):
        part, a = state[r * ROW :], share[r]
        for k in range(nodes):
            part[k] *= powers[k]
            total[k] += a * part[k]


@sums_jit
def _products(fit, total):
    # Return the sums of fit[0] * total and of fit[1] * total.
    smooth = falls = 0.0
    for k in range(fit.shape[1]):
        smooth += fit[0, k] * total[k]
        falls += fit[1, k] * total[k]
    return smooth, falls


@jit
def _sweep(side, m, grades, kinds, positions, fit, work, slope):
    # Side 0 goes from the top down and pairs each item with the items above it. So this side
    # meets each pair once, and it adds up costs and weights. Side 1 goes from the bottom up. Both
    # sides add to slope[p] the gradient with respect to the score of the item at p.
    upper, by_rank, by_item = kinds
    gap, decay, grade, each, discounts, apart = positions
    state, came, passed, linear, share, scratch = work
    half = 2 if by_rank else 1
    columns = 2 * half if by_item else half
    rows = grades * columns
    turn = 1.0 if side == 0 else -1.0
    total = weight = 0.0
    state[: rows * ROW] = 0.0
    passed[:rows] = 0.0
    came[:] = 0.0
    at = 0
    linear[:rows] = 0.0
    for k in range(m):
        p = k if side == 0 else m - 1 - k
        own, mine = grade[p], each[p]
        far = e = 0.0
        if k:
            between = p if side == 0 else p + 1
            far, e = gap[between], decay[between]
        counted = 1.0 if side == 0 or p < upper else 0.0
        own_discount = 1.0
        if by_rank:
            own_discount = -discounts[p] if side == 0 else discounts[p]
        line = wrong = 0.0
        for h in range(grades):
            # There is no branch here, because the processor could not predict whether h is the
            # lower grade.
            lower = 1.0 if h < own else 0.0
            out = lower if side == 0 else 1.0 - lower
            factor = apart[own, h] * counted
            r = h * columns
            # A pair has the item weight of its item with the higher grade.
            low = factor * lower * mine if by_item else factor
            share[r] = low * own_discount
            if by_rank:
                share[r + 1] = low * turn
            if by_item:
                high = factor * (1.0 - lower)
                share[r + half] = high * own_discount
                if by_rank:
                    share[r + 3] = high * turn
            for c in range(r, r + columns):
                linear[c] += passed[c] * far
                counts = share[c] * passed[c]
                weight += counts
                wrong += out * counts
                line += out * share[c] * linear[c]
        _advance(state, came, share[:rows], e, at, scratch, fit.shape[1])
        smooth, falls = _products(fit, scratch[ROW:])
        if side == 0:
            total += smooth + line
            slope[p] -= falls + wrong
        else:
            slope[p] += falls + wrong
        came[:] = 0.0
        if side == 0 and p >= upper:
            continue  # this item is the upper item of no pair that counts
        at = own * columns
        for c in range(columns):
            v = discounts[p] if by_rank and c % 2 else 1.0
            if c >= half:
                v *= mine
            came[c] = v
            passed[at + c] += v
    return total, weight
