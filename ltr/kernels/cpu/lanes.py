"""Sweeps over many lists, or many pieces of long ones, side by side in vector lanes.

A list is cut into chunks. Up to LANES chunks are swept side by side, position by position, so that
the inner loops run over lanes and become vector instructions. `ends` computes the state at the end
of each chunk. `chain` joins these states within a list. `sums` computes the sums from the correct
initial states. A list that is a single chunk needs only `sums`.

The state of one direction and one column describes the items already passed: the sum of those tied
with the last item, the count, the linear sum, and one complex number per node. Everything is
float64.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ltr.kernels.cpu.jit import entry, jit
from ltr.kernels.cpu.lanes_step import (
    WIDTH,
    add_states,
    complex_step,
    complex_step_alone,
    real_step,
    real_step_alone,
)
from ltr.kernels.cpu.vectors import FARTHEST, exp

LANES = 64
CHUNK = 256
ROOM = LANES * CHUNK  # positions of all lanes together: they should fit the processor's cache


class Data(NamedTuple):
    """What is summed."""

    x: Any
    """The scores (rows, N)."""
    order: Any
    """The items (rows, N) in order, or empty if the scores fall."""
    columns: Any
    """The columns (., rows, N) that are no single number."""
    slots: Any
    """Where each column is among these; -1 for a single number."""
    fills: Any
    """That number."""


class Plan(NamedTuple):
    """The kernels' numbers."""

    scale: float
    """1 / temperature."""
    nodes: tuple[float, ...]
    """As in `ltr.kernels.interface.SumNumbers`."""
    weights: Any
    """(3, outputs, 4 + 2 nodes): for both sides the column, constant, linear, tie and the weights
    of the nodes; as a third side the column and own."""
    leads: Any
    """The first output of each column."""
    uses: tuple[bool, bool, bool]
    """Whether ties, sums or linear parts are in use."""
    is_complex: bool
    """Whether the nodes are complex, or not multiples of the first."""


@jit
def _turn(size, angle, real, imaginary):  # size * exp(-i angle)
    for lane in range(len(size)):
        long, turned = size[lane], angle[lane]  # `real` may be `size` itself
        real[lane] = long * math.cos(turned)
        imaginary[lane] = -long * math.sin(turned)


@jit
def item_at(order, row, place):
    """Return the item at a place of a row; an empty order is 0, 1, ..."""
    return order[row, place] if len(order) else place


@jit
def _tile(columns, size, outputs, width, is_complex):
    # rows are longer than the lanes: rows a power of two apart would share a cache set
    row = width + WIDTH
    values = np.empty((columns, size + 2, row))
    gaps = np.empty((size + 2, row))
    decays = np.empty((4 if is_complex else 1, size + 2, row))
    result = np.empty((size + 2, outputs, row))
    return values, gaps, decays, result


@jit
def _width(chunks):  # the number of lanes
    return min(LANES, (len(chunks) + WIDTH - 1) // WIDTH * WIDTH)


@jit
def _load(tile, data, plan, chunks, group, halo):
    # Fill values[c, p] for the items p = 1, 2, ... of each lane, and 0 elsewhere. Fill the gaps and
    # decays between p - 1 and p; with a halo also those to the neighboring chunks. Return the
    # longest length.
    values, gaps, decays, _ = tile
    x, order, columns, slots, fills = data
    scale, nodes = plan.scale, plan.nodes
    some = chunks[group : group + _width(chunks)]
    longest = some[:, 2].max()
    gaps[1 : longest + 2] = 0.0
    values[:, : longest + 2] = 0.0
    for lane in range(len(some)):
        row, begin, length, before, after, _ = some[lane]
        near = before if halo and before >= 0 else begin
        far = after if halo and after >= 0 else begin + length - 1
        finite, last = True, np.float64(x[row, item_at(order, row, near)])
        for p in range(length):
            point = np.float64(x[row, item_at(order, row, begin + p)])
            gaps[p + 1, lane] = (last - point) * scale
            finite &= math.isfinite(point)
            last = point
        gaps[length + 1, lane] = (last - x[row, item_at(order, row, far)]) * scale
        for c in range(len(slots)):
            slot, fill = slots[c], fills[c]
            if not finite:
                slot, fill = -1, math.nan  # this spoils the whole list
            if slot < 0:
                for p in range(length):
                    values[c, p + 1, lane] = fill
            else:
                for p in range(length):
                    item = item_at(order, row, begin + p)
                    values[c, p + 1, lane] = columns[slot, row, item]
    size = (longest + 1) * gaps.shape[1]
    far = np.empty(size)
    for k in range(0, len(decays), 2):  # the decay of the first node, then that of a step
        rate, turn = (nodes[0], nodes[1]) if k == 0 else (nodes[2], nodes[3])
        flat = gaps[1 : longest + 2].reshape(-1)
        decay = decays[k, 1 : longest + 2].reshape(-1)
        for i in range(size):
            decay[i] = -min(rate * flat[i], FARTHEST)
        exp(decay, far)
        if len(decays) > 1:
            for i in range(size):
                far[i] = turn * min(flat[i], FARTHEST)
            _turn(decay, far, decay, decays[k + 1, 1 : longest + 2].reshape(-1))
    return longest


@jit
def _sweep(state, tile, plan, side, first, steps, width):
    # Advance the states by `steps` positions from `first` on, from the top (side 0) or the bottom.
    # With a result, result[p, o] += the outputs' weights times the states. The first output of a
    # column (its lead) is added in the same pass that updates the states.
    values, gaps, decays, result = tile
    weights, leads, is_complex = plan.weights, plan.leads, plan.is_complex
    ties, sums, linear = plan.uses
    count, outputs = (state.shape[1] - 3) // 2, result.shape[1]
    for k in range(steps):
        p, came = (first + k, first + k - 1) if side == 0 else (first - k, first - k + 1)
        at = max(p, came)
        for c in range(len(state)):
            if ties:
                for lane in range(width):
                    tied = state[c, 0, lane] + values[c, came, lane]
                    state[c, 0, lane] = tied if gaps[at, lane] == 0.0 else 0.0
            if linear:
                for lane in range(width):
                    passed = state[c, 1, lane] + values[c, came, lane]
                    state[c, 2, lane] += passed * gaps[at, lane]
            if sums:
                for lane in range(width):
                    state[c, 1, lane] += values[c, came, lane]
            places = side, c, p, came, at, leads[c], width, count
            if is_complex and outputs:
                complex_step(state, decays, values, result, weights, places)
            elif is_complex:
                complex_step_alone(state, decays, values, result, weights, places)
            elif outputs:
                real_step(state, decays, values, result, weights, places)
            else:
                real_step_alone(state, decays, values, result, weights, places)
        for o in range(outputs):
            c = np.int64(weights[side, o, 0])
            if leads[c] != o:
                both = 2 * count if is_complex else count
                add_states(state, result, weights, (side, c, p, o, width, both))
            if ties:
                for lane in range(width):
                    result[p, o, lane] += weights[side, o, 3] * state[c, 0, lane]
            if sums:
                for lane in range(width):
                    result[p, o, lane] += weights[side, o, 1] * state[c, 1, lane]
            if linear:
                for lane in range(width):
                    result[p, o, lane] += weights[side, o, 2] * state[c, 2, lane]


@entry
@jit
def ends(data, plan, chunks, states, begin, stop):
    """Compute states[side, chunk]: what one of a list's chunks adds, as seen from its end."""
    width = _width(chunks)
    columns = len(data.slots)
    tile = _tile(columns, chunks[:, 2].max(), 0, width, plan.is_complex)
    state = np.empty((columns, states.shape[3], width + WIDTH))
    for group in range(begin, stop, LANES):
        some = chunks[group : group + LANES]
        if (some[:, 3:5] < 0).all():
            continue
        longest = _load(tile, data, plan, chunks, group, False)
        for side in range(2):
            first = 1 if side == 0 else longest
            state[:] = 0.0
            _sweep(state, tile, plan, side, first, longest + 1, width)
            for lane in range(len(some)):
                states[side, group + lane] = state[:, :, lane]


@jit
def _join(into, add, distance, nodes):
    # into = add + the states `into` as seen `distance` further away
    count = np.int64(nodes[4])
    for c in range(len(into)):
        tied = into[c, 0] if distance == 0.0 else 0.0
        into[c, 0] = add[c, 0] + tied
        into[c, 2] = add[c, 2] + into[c, 2] + into[c, 1] * distance
        into[c, 1] = add[c, 1] + into[c, 1]
        for m in range(count):
            far = (nodes[0] + m * nodes[2]) * distance
            a, b = math.exp(-far) if far < FARTHEST else 0.0, 0.0
            if a and (nodes[1] or nodes[3]):
                angle = (nodes[1] + m * nodes[3]) * distance
                a, b = a * math.cos(angle), -a * math.sin(angle)
            re, im = into[c, 3 + m], into[c, 3 + count + m]
            into[c, 3 + m] = add[c, 3 + m] + a * re - b * im
            into[c, 3 + count + m] = add[c, 3 + count + m] + a * im + b * re


@entry
@jit
def chain(x, order, chunks, states, scale, nodes):
    """Turn the states that each chunk adds into the states at its beginning, on both sides."""
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


@entry
@jit
def sums(data, plan, out, chunks, states, begin, stop):
    """Compute out[o, row, item], the kernel sums of the chunks from `begin` to `stop`."""
    width = _width(chunks)
    columns, order, weights = len(data.slots), data.order, plan.weights
    tile = _tile(columns, chunks[:, 2].max(), len(out), width, plan.is_complex)
    values, result = tile[0], tile[3]
    state = np.empty((columns, states.shape[3], width + WIDTH))
    for group in range(begin, stop, LANES):
        some = chunks[group : group + LANES]
        longest = _load(tile, data, plan, chunks, group, True)
        for p in range(1, longest + 1):
            for o in range(len(out)):
                c = np.int64(weights[2, o, 0])
                for lane in range(width):
                    result[p, o, lane] = weights[2, o, 1] * values[c, p, lane]
        for side in range(2):
            first = 1 if side == 0 else longest
            state[:] = 0.0
            if states.shape[1]:
                for lane in range(len(some)):
                    state[:, :, lane] = states[side, group + lane]
            _sweep(state, tile, plan, side, first, longest, width)
        for lane in range(len(some)):
            row, start, length, _, _, _ = some[lane]
            for o in range(len(out)):
                for p in range(length):
                    out[o, row, item_at(order, row, start + p)] = result[p + 1, o, lane]


@entry
@jit
def cut(starts, lengths, size):
    """Return the chunks of lists (B, R): row, begin, length, positions before and after, number.

    The chunks of a list differ in length by at most one item. Positions are -1 at a list's ends.
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
