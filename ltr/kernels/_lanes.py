"""Sweeps over many lists, or many pieces of long ones, side by side in vector lanes.

A list is cut into chunks of at most CHUNK items; LANES chunks are swept side by side, position by
position, so that the inner loops run over lanes and become vector instructions. The states at the
chunks' ends are found first (`_ends`), then chained within a list (`_chain`), then the sums are
taken with the right states to start from (`_sums`). A list that is one chunk needs the last alone.

States of one direction and one column, for the items already passed: the sum of those tied with
the last one, the count, the linear sum, and one complex number a node. Everything is float64.
"""

import math

import numpy as np

from ltr.kernels._jit import jit

LANES = 64
CHUNK = 256
FARTHEST = 745.0  # exp(-745) is the smallest double


@jit
def exp(x, out, exponents):  # out = exp(x) for x in [-745, 0], to the last digit or two
    for lane in range(LANES):
        y = x[lane]
        k = math.floor(y * 1.4426950408889634 + 0.5)
        r = (y - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10
        p = 1.6059043836821613e-10
        p = p * r + 2.08767569878681e-09
        p = p * r + 2.505210838544172e-08
        p = p * r + 2.755731922398589e-07
        p = p * r + 2.7557319223985893e-06
        p = p * r + 2.48015873015873e-05
        p = p * r + 0.0001984126984126984
        p = p * r + 0.001388888888888889
        p = p * r + 0.008333333333333333
        p = p * r + 0.041666666666666664
        p = p * r + 0.16666666666666666
        p = p * r + 0.5
        p = p * r + 1.0
        out[lane] = p * r + 1.0
        exponents[lane] = np.int64(max(k, -1022.0)) + 1023 << 52
    scale = exponents.view(np.float64)
    for lane in range(LANES):
        out[lane] *= scale[lane]


@jit
def _turn(size, angle, real, imaginary):  # size * exp(-i angle), angle >= 0 not too large
    for lane in range(LANES):
        y = angle[lane]
        k = math.floor(y * 0.15915494309189535 + 0.5)
        r = ((y - k * 6.283185307179586) - k * 2.4492935982947064e-16) * 0.25
        z = r * r
        s = -7.647163731819816e-13
        s = s * z + 1.6059043836821613e-10
        s = s * z - 2.505210838544172e-08
        s = s * z + 2.7557319223985893e-06
        s = s * z - 0.0001984126984126984
        s = s * z + 0.008333333333333333
        s = s * z - 0.16666666666666666
        s = s * z * r + r
        c = 4.779477332387385e-14
        c = c * z - 1.1470745597729725e-11
        c = c * z + 2.08767569878681e-09
        c = c * z - 2.755731922398589e-07
        c = c * z + 2.48015873015873e-05
        c = c * z - 0.001388888888888889
        c = c * z + 0.041666666666666664
        c = c * z * z - 0.5 * z + 1.0
        s, c = 2.0 * s * c, 1.0 - 2.0 * s * s
        s, c = 2.0 * s * c, 1.0 - 2.0 * s * s
        long = size[lane]  # `real` may be `size` itself
        real[lane], imaginary[lane] = long * c, -long * s


@jit
def item_at(order, row, place):
    return order[row, place] if len(order) else place


@jit
def _load(tile, x, order, columns, slots, fills, chunks, group, halo, scale, nodes):
    # points[p] and values[c, p]: p = 0 and past the end are neighbours, with value 0. Then the
    # gaps and decays between p - 1 and p. Returns the longest chunk's length.
    points, values, gaps, decays, _ = tile
    first_re, first_im, step_re, step_im, _ = nodes
    lanes = min(LANES, len(chunks) - group)
    longest = 0
    for lane in range(lanes):
        longest = max(longest, chunks[group + lane, 2])
    points[: longest + 2] = 0.0
    values[:, : longest + 2] = 0.0
    for lane in range(lanes):
        row, begin, length, before, after, _ = chunks[group + lane]
        for p in range(length):
            item = item_at(order, row, begin + p)
            point = x[row, item]
            known = math.isfinite(point)
            points[p + 1, lane] = point if known else 0.0
            for c in range(len(values)):
                slot = slots[c]
                value = columns[slot, row, item] if slot >= 0 else fills[c]
                values[c, p + 1, lane] = value if known else math.nan  # which spoils its list
        near, far = points[1, lane], points[length, lane]
        if halo and before >= 0:
            near = x[row, item_at(order, row, before)]
        if halo and after >= 0:
            far = x[row, item_at(order, row, after)]
        points[0, lane] = near
        points[length + 1 : longest + 2, lane] = far
    clipped, exponents = np.empty(LANES), np.empty(LANES, np.int64)
    angle = np.empty(LANES)
    for p in range(1, longest + 2):
        for lane in range(LANES):
            gap = (points[p - 1, lane] - points[p, lane]) * scale
            gaps[p, lane] = gap
            clipped[lane] = -min(first_re * gap, FARTHEST)
        exp(clipped, decays[0, p], exponents)
        if first_im != 0.0:
            for lane in range(LANES):
                angle[lane] = first_im * min(gaps[p, lane], FARTHEST)
            _turn(decays[0, p], angle, decays[0, p], decays[1, p])
        if len(decays) == 4:
            for lane in range(LANES):
                clipped[lane] = -min(step_re * gaps[p, lane], FARTHEST)
            exp(clipped, decays[2, p], exponents)
            for lane in range(LANES):
                angle[lane] = step_im * min(gaps[p, lane], FARTHEST)
            _turn(decays[2, p], angle, decays[2, p], decays[3, p])
    return longest


@jit
def _advance(state, result, tile, p, came, weights, leads, uses, count, is_complex):
    # The states at position p, from those at `came`, its neighbour on the side of the sweep, and
    # result[o] += the outputs' weights times the states, if there is a result. A column's first
    # output (its lead) is added up while its states are at hand: one loop over lanes a node.
    _, values, gaps, decays, power = tile
    between = max(p, came)
    ties, sums, linear = uses
    last = len(state) - 1
    for c in range(len(state)):
        if ties:
            for lane in range(LANES):
                tied = state[c, 0, lane] + values[c, came, lane]
                state[c, 0, lane] = tied if gaps[between, lane] == 0.0 else 0.0
        if linear:
            for lane in range(LANES):
                passed = state[c, 1, lane] + values[c, came, lane]
                state[c, 2, lane] += passed * gaps[between, lane]
        if sums:
            for lane in range(LANES):
                state[c, 1, lane] += values[c, came, lane]
    for o in range(len(result)):
        c = np.int64(weights[o, 0])
        if ties:
            for lane in range(LANES):
                result[o, lane] += weights[o, 3] * state[c, 0, lane]
        if sums:
            for lane in range(LANES):
                result[o, lane] += weights[o, 1] * state[c, 1, lane]
        if linear:
            for lane in range(LANES):
                result[o, lane] += weights[o, 2] * state[c, 2, lane]
    if count == 0:
        return
    for lane in range(LANES):
        power[0, lane] = decays[0, between, lane]
    if is_complex:
        for lane in range(LANES):
            power[1, lane] = decays[1, between, lane]
    for m in range(count):
        k = 3 + count + m
        for c in range(len(state)):
            o = leads[c]
            if is_complex and len(result) == 0:
                for lane in range(LANES):
                    x, y = power[0, lane], power[1, lane]
                    re, im = state[c, 3 + m, lane] + values[c, came, lane], state[c, k, lane]
                    state[c, 3 + m, lane] = x * re - y * im
                    state[c, k, lane] = x * im + y * re
            elif is_complex:
                a, b = weights[o, 4 + m], weights[o, 4 + count + m]
                for lane in range(LANES):
                    x, y = power[0, lane], power[1, lane]
                    re, im = state[c, 3 + m, lane] + values[c, came, lane], state[c, k, lane]
                    now, turned = x * re - y * im, x * im + y * re
                    state[c, 3 + m, lane] = now
                    state[c, k, lane] = turned
                    result[o, lane] += a * now - b * turned
            elif len(result) == 0:
                for lane in range(LANES):
                    passed = state[c, 3 + m, lane] + values[c, came, lane]
                    state[c, 3 + m, lane] = power[0, lane] * passed
            elif c < last:
                a = weights[o, 4 + m]
                for lane in range(LANES):
                    now = power[0, lane] * (state[c, 3 + m, lane] + values[c, came, lane])
                    state[c, 3 + m, lane] = now
                    result[o, lane] += a * now
            else:
                a = weights[o, 4 + m]
                for lane in range(LANES):
                    now = power[0, lane] * (state[c, 3 + m, lane] + values[c, came, lane])
                    state[c, 3 + m, lane] = now
                    result[o, lane] += a * now
                    power[0, lane] *= decays[0, between, lane]
        if not is_complex and len(result) == 0:
            for lane in range(LANES):
                power[0, lane] *= decays[0, between, lane]
        if is_complex:
            for lane in range(LANES):
                x, y = power[0, lane], power[1, lane]
                a, b = decays[2, between, lane], decays[3, between, lane]
                power[0, lane] = x * a - y * b
                power[1, lane] = x * b + y * a
        for o in range(len(result)):
            c = np.int64(weights[o, 0])
            if leads[c] != o:
                a, b = weights[o, 4 + m], weights[o, 4 + count + m]
                for lane in range(LANES):
                    result[o, lane] += a * state[c, 3 + m, lane]
                if is_complex:
                    for lane in range(LANES):
                        result[o, lane] -= b * state[c, k, lane]


@jit
def _tile(columns, size, is_complex):
    points = np.empty((size + 2, LANES))
    gaps = np.empty((size + 2, LANES))
    values = np.empty((columns, size + 2, LANES))
    decays = np.empty((4 if is_complex else 1, size + 2, LANES))
    return points, values, gaps, decays, np.empty((2, LANES))


@jit
def ends(
    x,
    order,
    columns,
    slots,
    fills,
    chunks,
    states,
    scale,
    nodes,
    weights,
    leads,
    uses,
    is_complex,
    begin,
    stop,
):
    """states[side, chunk]: what a chunk that is one of several adds, seen from its end."""
    count = np.int64(nodes[4])
    tile = _tile(len(slots), chunks[:, 2].max(), is_complex)
    result = np.empty((0, LANES))
    state = np.empty((len(slots), 3 + 2 * count, LANES))
    for group in range(begin, stop, LANES):
        lanes = min(LANES, len(chunks) - group)
        several = False
        for lane in range(lanes):
            several |= chunks[group + lane, 3] >= 0 or chunks[group + lane, 4] >= 0
        if not several:
            continue
        longest = _load(tile, x, order, columns, slots, fills, chunks, group, False, scale, nodes)
        state[:] = 0.0
        for p in range(1, longest + 2):
            _advance(state, result, tile, p, p - 1, weights[0], leads, uses, count, is_complex)
        for lane in range(lanes):
            states[0, group + lane] = state[:, :, lane]
        state[:] = 0.0
        for p in range(longest, -1, -1):
            _advance(state, result, tile, p, p + 1, weights[1], leads, uses, count, is_complex)
        for lane in range(lanes):
            states[1, group + lane] = state[:, :, lane]


@jit
def _join(into, add, distance, nodes):
    # into = add + the states `into` seen from `distance` further on
    count = np.int64(nodes[4])
    for c in range(len(into)):
        tied = into[c, 0] if distance == 0.0 else 0.0
        into[c, 0] = add[c, 0] + tied
        into[c, 2] = add[c, 2] + into[c, 2] + into[c, 1] * distance
        into[c, 1] = add[c, 1] + into[c, 1]
        for m in range(count):
            far = (nodes[0] + m * nodes[2]) * distance
            size = math.exp(-far) if far < FARTHEST else 0.0
            angle = (nodes[1] + m * nodes[3]) * distance if far < FARTHEST else 0.0
            a, b = size * math.cos(angle), -size * math.sin(angle)
            re, im = into[c, 3 + m], into[c, 3 + count + m]
            into[c, 3 + m] = add[c, 3 + m] + a * re - b * im
            into[c, 3 + count + m] = add[c, 3 + count + m] + a * im + b * re


@jit
def chain(x, order, chunks, states, scale, nodes):
    """From the ends of each chunk alone to the states where each chunk begins, on both sides."""
    kept = np.zeros(states.shape[2:])
    for number in range(len(chunks)):
        row, begin, length, before, _, chunk = chunks[number]
        if before < 0:
            kept[:] = 0.0
        own = states[0, chunk].copy()
        states[0, chunk] = kept
        near = x[row, item_at(order, row, begin if before < 0 else before)]
        _join(kept, own, (near - x[row, item_at(order, row, begin + length - 1)]) * scale, nodes)
    for number in range(len(chunks) - 1, -1, -1):
        row, begin, length, _, after, chunk = chunks[number]
        if after < 0:
            kept[:] = 0.0
        own = states[1, chunk].copy()
        states[1, chunk] = kept
        near = x[row, item_at(order, row, begin + length - 1 if after < 0 else after)]
        _join(kept, own, (x[row, item_at(order, row, begin)] - near) * scale, nodes)


@jit
def sums(
    x,
    order,
    columns,
    slots,
    fills,
    out,
    chunks,
    states,
    scale,
    nodes,
    weights,
    leads,
    uses,
    is_complex,
    begin,
    stop,
):
    """out[o, row, item]: the kernel sums of the chunks from `begin` to `stop`."""
    count = np.int64(nodes[4])
    size = chunks[:, 2].max()
    tile = _tile(len(slots), size, is_complex)
    state = np.empty((len(slots), 3 + 2 * count, LANES))
    result = np.empty((size + 2, len(out), LANES))
    for group in range(begin, stop, LANES):
        lanes = min(LANES, len(chunks) - group)
        longest = _load(tile, x, order, columns, slots, fills, chunks, group, True, scale, nodes)
        values = tile[1]
        for p in range(1, longest + 1):
            for o in range(len(out)):
                c = np.int64(weights[2, o, 0])
                for lane in range(LANES):
                    result[p, o, lane] = weights[2, o, 1] * values[c, p, lane]
        for side in range(2):
            state[:] = 0.0
            if states.shape[1]:
                for lane in range(lanes):
                    state[:, :, lane] = states[side, group + lane]
            for k in range(1, longest + 1):
                p = k if side == 0 else longest + 1 - k
                came = p - 1 if side == 0 else p + 1
                _advance(
                    state, result[p], tile, p, came, weights[side], leads, uses, count, is_complex
                )
        for lane in range(lanes):
            row, start, length, _, _, _ = chunks[group + lane]
            for p in range(length):
                item = item_at(order, row, start + p)
                for o in range(len(out)):
                    out[o, row, item] = result[p + 1, o, lane]


@jit
def cut(starts, lengths, size):
    """Chunks of lists (B, R): row, begin, length, the positions before and after it, its number.

    A list's chunks differ in length by one item at most. Positions are -1 at a list's ends.
    """
    total = 0
    for row in range(len(lengths)):
        for r in range(lengths.shape[1]):
            total += (lengths[row, r] + size - 1) // size
    chunks = np.empty((total, 6), np.int64)
    number = 0
    for row in range(len(lengths)):
        for r in range(lengths.shape[1]):
            length, start = lengths[row, r], starts[row, r]
            pieces = (length + size - 1) // size
            begin = start
            for piece in range(pieces):
                end = start + length * (piece + 1) // pieces
                chunks[number, 0] = row
                chunks[number, 1] = begin
                chunks[number, 2] = end - begin
                chunks[number, 3] = begin - 1 if piece else -1
                chunks[number, 4] = end if piece < pieces - 1 else -1
                chunks[number, 5] = number
                begin = end
                number += 1
    return chunks
