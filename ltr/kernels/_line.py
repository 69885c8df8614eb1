"""A single real exponential along long lists, block by block, in little memory.

The first sweep goes from the bottom up and stores the state at the end of each block. The second
goes from the top down, so that both states of a block are known. Within a block the exponentials
are vector instructions, and a recurrence is one fused multiply-add per item.
"""

import math

import numpy as np

from ltr.kernels._jit import entry, jit
from ltr.kernels._lanes import FARTHEST, LANES, exp, item_at

BLOCK = 16 * LANES


@entry
@jit
def one_node(
    x, order, columns, slots, fills, out, starts, lengths, scale, weights, ties, begin, stop
):
    """Compute the kernel sums of the lists from `begin` to `stop`, counted over all rows.

    `weights` are the plan's weights. `scale` includes the node's rate. `ties` says whether some
    outputs leave tied items out.
    """
    gaps, decay = np.zeros(BLOCK + LANES, x.dtype), np.empty(BLOCK + LANES)
    value = np.empty((len(slots), BLOCK))
    above, below, found = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    equal_above, equal_below = np.zeros(BLOCK), np.zeros(BLOCK)
    places = np.empty(BLOCK + 1, np.int64)
    buffers = gaps, decay, np.empty(BLOCK + LANES, np.int64), value
    counted = weights[:2, :, 1].any()
    per_row = lengths.shape[1]
    for number in range(begin, stop):
        row, r = number // per_row, number % per_row
        n, start = lengths[row, r], starts[row, r]
        blocks = (n + BLOCK - 1) // BLOCK
        # the states of the item below each block, with its own value: exponential, tied
        carry = np.zeros((blocks + 1, len(slots), 2))
        finite = True
        for block in range(blocks - 1, -1, -1):
            first = start + block * BLOCK
            size = min(BLOCK, start + n - first)
            end = start + n
            place = row, start, first, size, end
            finite &= _load(buffers, x, order, columns, slots, fills, place, scale)
            for c in range(len(slots)):
                down = carry[block + 1, c, 0]
                for p in range(size - 1, -1, -1):
                    down = decay[p + 1] * down + value[c, p]
                carry[block, c, 0] = down
                if ties:  # the run of equal scores at the start of the block
                    p, equal = 1, value[c, 0]
                    while p < size and gaps[p] == 0.0:
                        equal += value[c, p]
                        p += 1
                    if p == size and gaps[size] == 0.0:
                        equal += carry[block + 1, c, 1]
                    carry[block, c, 1] = equal
        kept = np.zeros((len(slots), 4))  # of the items above: exponential, tied, sum; all items
        if not finite:
            carry[:] = math.nan  # makes the whole list NaN
            kept[:] = math.nan
        elif counted:
            for c in range(len(slots)):
                kept[c, 3] = _total(columns, slots, fills, order, row, start, n, c)
        for block in range(blocks):
            first = start + block * BLOCK
            size = min(BLOCK, start + n - first)
            place = row, start, first, size, start + n
            _load(buffers, x, order, columns, slots, fills, place, scale)
            tied = 0
            if ties:
                for p in range(size + 1):
                    if gaps[p] == 0.0:
                        places[tied] = p
                        tied += 1
            for c in range(len(slots)):
                v = value[c]
                up, down = kept[c, 0], carry[block + 1, c, 0]
                for p in range(size):
                    q = size - 1 - p
                    above[p] = decay[p] * up
                    below[q] = decay[q + 1] * down
                    up = decay[p] * up + v[p]
                    down = decay[q + 1] * down + v[q]
                kept[c, 0] = up
                for k in range(tied):  # usually few places
                    p, q = places[k], places[tied - 1 - k] - 1
                    if p < size:
                        equal_above[p] = equal_above[p - 1] + v[p - 1] if p else kept[c, 1]
                    if q >= 0:
                        last = q == size - 1
                        equal = 0.0 if last else equal_below[q + 1] + v[q + 1]
                        equal_below[q] = carry[block + 1, c, 1] if last else equal
                kept[c, 1] = equal_above[size - 1] + v[size - 1]
                for o in range(len(out)):
                    if weights[0, o, 0] != c:
                        continue
                    own, one, two = weights[2, o, 1], weights[0, o, 4], weights[1, o, 4]
                    for p in range(size):
                        found[p] = own * v[p] + one * above[p] + two * below[p]
                    one, two = weights[0, o, 3], weights[1, o, 3]
                    if one != 0.0 or two != 0.0:
                        for p in range(size):
                            found[p] += one * equal_above[p] + two * equal_below[p]
                    one, two = weights[0, o, 1], weights[1, o, 1]
                    if one != 0.0 or two != 0.0:
                        passed = kept[c, 2]
                        for p in range(size):
                            found[p] += one * passed + two * (kept[c, 3] - passed - v[p])
                            passed += v[p]
                    if len(order):
                        for p in range(size):
                            out[o, row, order[row, first + p]] = found[p]
                    else:
                        for p in range(size):
                            out[o, row, first + p] = found[p]
                for k in range(tied):
                    equal_above[min(places[k], size - 1)] = 0.0
                    equal_below[max(places[k] - 1, 0)] = 0.0
                if counted:
                    for p in range(size):
                        kept[c, 2] += v[p]


@jit
def _fall_single(gaps, decay, exponents, size):
    # decay = exp(-gap) for float32 gaps, as 2^k (1 + q). q has the digits of float32, and so has
    # 1 - decay where it is small. A product of n decays needs these digits.
    for p in range(size):
        y = -min(gaps[p], np.float32(104.0))
        k = np.floor(y * np.float32(1.44269504) + np.float32(0.5))
        r = (y - k * np.float32(0.693359375)) + k * np.float32(2.12194440e-4)
        q = np.float32(1 / 5040)
        q = q * r + np.float32(1 / 720)
        q = q * r + np.float32(1 / 120)
        q = q * r + np.float32(1 / 24)
        q = q * r + np.float32(1 / 6)
        q = q * r + np.float32(0.5)
        q = q * r * r + r
        exponents[p] = np.int64(k) + 1023 << 52
        decay[p] = q
    scale = exponents.view(np.float64)
    for p in range(size):
        decay[p] = scale[p] + scale[p] * decay[p]


@jit
def _load(buffers, x, order, columns, slots, fills, place, scale):
    # Load the values of the block's items, and the gaps and decays from place p - 1 to p for
    # p = 0..size. A list begins and ends with an infinite gap. Return whether all scores are
    # finite.
    gaps, decay, exponents, value = buffers
    row, start, first, size, end = place
    finite = True
    if len(order):
        last = x[row, order[row, first - 1 if first > start else first]]
        for p in range(min(size + 1, end - first)):
            point = x[row, order[row, first + p]]
            gaps[p] = (last - point) * scale
            finite &= math.isfinite(point)
            last = point
    else:
        gaps[0] = (x[row, first - 1] - x[row, first]) * scale if first > start else 0.0
        for p in range(1, min(size + 1, end - first)):
            gaps[p] = (x[row, first + p - 1] - x[row, first + p]) * scale
        for p in range(size):
            finite &= math.isfinite(x[row, first + p])
    if first + size == end:
        gaps[size] = math.inf
    if gaps.itemsize == 4:
        _fall_single(gaps, decay, exponents, size + 1)
    else:
        clipped = np.empty(LANES)
        for begin in range(0, size + 1, LANES):
            for lane in range(LANES):
                clipped[lane] = -min(gaps[begin + lane], FARTHEST)
            exp(clipped, decay[begin : begin + LANES], exponents[:LANES])
    for c in range(len(slots)):
        slot = slots[c]
        if slot < 0:
            value[c, :size] = fills[c]
        elif len(order):
            for p in range(size):
                value[c, p] = columns[slot, row, order[row, first + p]]
        else:
            value[c, :size] = columns[slot, row, first : first + size]
    return finite


@jit
def _total(columns, slots, fills, order, row, start, n, c):
    if slots[c] < 0:
        return fills[c] * n
    total = 0.0
    for p in range(n):
        total += columns[slots[c], row, item_at(order, row, start + p)]
    return total
