"""The kernel sums on the CPU: sweeps over many lists, or chunks of long lists, in vector lanes.

`kernel_sums` prepares the chunks and the constants, and calls the compiled functions.

A list is split into chunks. Up to `LANES` chunks are swept side by side, position by position, so
that the inner loops run over lanes and become vector instructions. `ends` computes the state at the
end of each chunk. `chain` joins these states within a list. `sums` computes the sums from the
correct initial states. A list that is a single chunk needs only `sums`.

The state of one direction and one column describes the items already passed: the sum of the values
of those tied with the current item ("tied"), the sum of all values ("count"), the sum of all values
times their distances ("linear"), and a row for each real node, or a real and an imaginary row for
each complex node. All states are float64.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ltr.kernels.cpu.jit import entry, jit, run_parallel
from ltr.kernels.cpu.vectors import FARTHEST, exp
from ltr.kernels.interface import SumNumbers
from ltr.kernels.lists import SortedLists

# Lanes are faster than a simpler form, one sweep for each list with the nodes as the inner loop: a
# kernel has only 1 to 18 nodes, and LLVM makes no vector instructions from a loop over them. For
# forward and backward on one thread of an AMD EPYC, the CPU time of the simpler form was divided by
# that of the lanes. For SigmoidRank this ratio was 1.65 for 64 lists of 120 items, 1.31 for 16
# lists of 500 and 1.72 for one list of 1,000,000; for LaplaceRank 1.50, 1.17 and 1.54; for
# GaussianRank 1.38, 1.12 and 1.16.

WIDTH = 8
"""The number of lanes is a multiple of this: one vector, or two on CPUs with shorter vectors."""

LANES = 64
CHUNK = 256
# All lanes together hold at most this many items, which should fit the processor's cache.
LANE_ITEMS = LANES * CHUNK

# A row is longer than the number of lanes, because rows a power of two apart would share a cache
# set. All rows of a state are this long, so that LLVM knows their distance and puts several into
# one vector loop.
ROW = LANES + WIDTH

FEW_LISTS = 256
"""For up to this many lists, the chunks are cached for later calls with the same lengths."""

NO_ORDER = np.empty((0, 0), np.int64)


class Data(NamedTuple):
    """The scores and the columns to sum."""

    x: Any
    """The scores (rows, N)."""
    order: Any
    """The items (rows, N) in sorted order, or empty if the scores are sorted."""
    columns: Any
    """The columns (., rows, N), without the constant columns."""
    slots: Any
    """The index of each column in `columns`; -1 for a constant column."""
    fills: Any
    """The value of each constant column; 0 for other columns."""


class Plan(NamedTuple):
    """The constants of the kernels, and the temperature."""

    scale: float
    """1 / temperature."""
    nodes: tuple[float, ...]
    """As in `ltr.kernels.interface.SumNumbers`."""
    weights: Any
    """(3, outputs, 4 + rows). Sides 0 (above) and 1 (below) hold the column's index, `constant`,
    `linear`, `tie` and the weights of the nodes' rows. Side 2 holds that index and `own`."""
    uses: tuple[bool, bool, bool]
    """Whether the kernels use the tied sum, the sum of all values, and the linear sum."""
    is_general: bool
    """Whether the nodes are complex, or not multiples of the first node."""


@jit
def _turn(size, angle, real, imaginary):  # this sets real + i imaginary to size * exp(-i angle)
    for lane in range(len(size)):
        long, turned = size[lane], angle[lane]  # `real` may be `size` itself
        real[lane] = long * math.cos(turned)
        imaginary[lane] = -long * math.sin(turned)


@jit
def item_at(order, row, position):
    """Return the item at a position of a row; an empty order stands for 0, 1, ..."""
    return order[row, position] if len(order) else position


@jit
def _tile(columns, size, outputs, width, is_general):
    # A row is longer than the number of lanes: rows a power of two apart would share a cache set.
    row = width + WIDTH
    values = np.empty((columns, size + 2, row))
    gaps = np.empty((size + 2, row))
    decays = np.empty((4 if is_general else 1, size + 2, row))
    result = np.empty((size + 2, outputs, row))
    return values, gaps, decays, result


@jit
def _width(chunks):  # this returns the number of lanes
    return min(LANES, (len(chunks) + WIDTH - 1) // WIDTH * WIDTH)


@jit
def _load(tile, data, plan, chunks, group, halo):
    # Fill values[c, p] with the values of the items p = 1, 2, ... of each lane, and with 0
    # elsewhere. Fill gaps[p] and decays[., p] for the step from p - 1 to p. If `halo` is true,
    # also fill them for the steps from and to the neighboring chunks. Return the length of the
    # longest chunk.
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
                slot, fill = -1, math.nan  # one score that is not finite makes the whole list NaN
            if slot < 0:
                for p in range(length):
                    values[c, p + 1, lane] = fill
            else:
                for p in range(length):
                    item = item_at(order, row, begin + p)
                    values[c, p + 1, lane] = columns[slot, row, item]
    size = (longest + 1) * gaps.shape[1]
    far = np.empty(size)
    # First compute the decay of the first node, then the factor from each node to the next.
    for k in range(0, len(decays), 2):
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
def _real_nodes(nodes, work, count, width):
    # Set nodes[m] to (nodes[m] + arrived) * a^(m + 1) in all lanes, where a is the decay. The loop
    # takes six nodes at a time, so that the power stays in a register while one pass over the lanes
    # updates six rows.
    power, decay, arrived = work, work[ROW:], work[2 * ROW :]
    whole = count - count % 6
    for m in range(0, whole, 6):
        part = nodes[m * ROW :]
        for lane in range(width):
            x, a, v = power[lane], decay[lane], arrived[lane]
            part[lane] = x * (part[lane] + v)
            x *= a
            part[ROW + lane] = x * (part[ROW + lane] + v)
            x *= a
            part[2 * ROW + lane] = x * (part[2 * ROW + lane] + v)
            x *= a
            part[3 * ROW + lane] = x * (part[3 * ROW + lane] + v)
            x *= a
            part[4 * ROW + lane] = x * (part[4 * ROW + lane] + v)
            x *= a
            part[5 * ROW + lane] = x * (part[5 * ROW + lane] + v)
            power[lane] = x * a
    for m in range(whole, count):
        part = nodes[m * ROW :]
        for lane in range(width):
            x = power[lane]
            part[lane] = x * (part[lane] + arrived[lane])
            power[lane] = x * decay[lane]


@jit
def _complex_nodes(nodes, work, count, width):
    # This is `_real_nodes` for complex nodes, whose real and imaginary rows alternate. The factor
    # of the first node is x + i y. From one node to the next, the factor is multiplied by c + i d.
    x, y, arrived = work, work[ROW:], work[4 * ROW :]
    c, d = work[2 * ROW :], work[3 * ROW :]
    for m in range(count):
        part = nodes[2 * m * ROW :]
        for lane in range(width):
            re, im = part[lane] + arrived[lane], part[ROW + lane]
            long, turned = x[lane], y[lane]
            part[lane] = long * re - turned * im
            part[ROW + lane] = long * im + turned * re
            x[lane] = long * c[lane] - turned * d[lane]
            y[lane] = long * d[lane] + turned * c[lane]


@jit
def _add(total, nodes, weights, width):
    # Add the weights times the rows of the nodes to the total, four rows at a time.
    rows = len(weights)
    whole = rows - rows % 4
    for m in range(0, whole, 4):
        part = nodes[m * ROW :]
        a, b, c, d = weights[m], weights[m + 1], weights[m + 2], weights[m + 3]
        for lane in range(width):
            first_two = total[lane] + a * part[lane] + b * part[ROW + lane]
            total[lane] = first_two + c * part[2 * ROW + lane] + d * part[3 * ROW + lane]
    for m in range(whole, rows):
        part = nodes[m * ROW :]
        for lane in range(width):
            total[lane] += weights[m] * part[lane]


@jit
def _sweep(state, tile, plan, side, first, steps, width):
    # Advance the states by `steps` positions, beginning at `first`: downwards for side 0, upwards
    # for side 1. Add the weights of each output o times the states at position p to result[p, o].
    values, gaps, decays, result = tile
    weights = plan.weights
    ties, sums, linear = plan.uses
    rows, outputs = state.shape[1] // ROW - 3, result.shape[1]
    kinds = len(decays)
    work = np.empty((kinds + 3) * ROW)
    for k in range(steps):
        p, came = (first + k, first + k - 1) if side == 0 else (first - k, first - k + 1)
        at = max(p, came)
        for c in range(len(state)):
            tied, count, line = state[c], state[c, ROW:], state[c, 2 * ROW :]
            nodes = state[c, 3 * ROW :]
            if ties:
                for lane in range(width):
                    both = tied[lane] + values[c, came, lane]
                    tied[lane] = both if gaps[at, lane] == 0.0 else 0.0
            if linear:
                for lane in range(width):
                    line[lane] += (count[lane] + values[c, came, lane]) * gaps[at, lane]
            if sums:
                for lane in range(width):
                    count[lane] += values[c, came, lane]
            if kinds > 1:
                for row in range(kinds):
                    for lane in range(width):
                        work[row * ROW + lane] = decays[row, at, lane]
                for lane in range(width):
                    work[kinds * ROW + lane] = values[c, came, lane]
                _complex_nodes(nodes, work, rows // 2, width)
            else:
                for lane in range(width):
                    work[lane] = decays[0, at, lane]
                    work[ROW + lane] = decays[0, at, lane]
                    work[2 * ROW + lane] = values[c, came, lane]
                _real_nodes(nodes, work, rows, width)
        for o in range(outputs):
            c = np.int64(weights[side, o, 0])
            total = result[p, o]
            _add(total, state[c, 3 * ROW :], weights[side, o, 4:], width)
            if ties:
                for lane in range(width):
                    total[lane] += weights[side, o, 3] * state[c, lane]
            if sums:
                for lane in range(width):
                    total[lane] += weights[side, o, 1] * state[c, ROW + lane]
            if linear:
                for lane in range(width):
                    total[lane] += weights[side, o, 2] * state[c, 2 * ROW + lane]


@jit
def _copy(source, target):
    # For `target[:] = source` numba also compiles the text of the error that it may raise, which
    # takes a fifth of the time of all functions here.
    for c in range(source.shape[0]):
        for m in range(source.shape[1]):
            target[c, m] = source[c, m]


@entry
@jit
def ends(data, plan, chunks, states, begin, stop):
    """Compute states[side, chunk]: what each chunk adds to its list's state, at the chunk's end."""
    width = _width(chunks)
    columns = len(data.slots)
    tile = _tile(columns, chunks[:, 2].max(), 0, width, plan.is_general)
    state = np.empty((columns, states.shape[3] * ROW))
    lanes = state.reshape(columns, states.shape[3], ROW)
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
                _copy(lanes[:, :, lane], states[side, group + lane])


@jit
def _join(into, add, distance, nodes):
    # Shift the states in `into` to a point that is `distance` farther away, and then add `add`.
    count = np.int64(nodes[4])
    is_general = into.shape[1] > 3 + count
    for c in range(len(into)):
        tied = into[c, 0] if distance == 0.0 else 0.0
        into[c, 0] = add[c, 0] + tied
        into[c, 2] = add[c, 2] + into[c, 2] + into[c, 1] * distance
        into[c, 1] = add[c, 1] + into[c, 1]
        for m in range(count):
            far = (nodes[0] + m * nodes[2]) * distance
            a, b = math.exp(-far) if far < FARTHEST else 0.0, 0.0
            if not is_general:
                into[c, 3 + m] = add[c, 3 + m] + a * into[c, 3 + m]
                continue
            if a and (nodes[1] or nodes[3]):
                angle = (nodes[1] + m * nodes[3]) * distance
                a, b = a * math.cos(angle), -a * math.sin(angle)
            at = 3 + 2 * m
            re, im = into[c, at], into[c, at + 1]
            into[c, at] = add[c, at] + a * re - b * im
            into[c, at + 1] = add[c, at + 1] + a * im + b * re


@entry
@jit
def chain(x, order, chunks, states, scale, nodes):
    """Replace the states of `ends` with the states at the start of each chunk, for both sides."""
    kept = np.zeros(states.shape[2:])
    for number in range(len(chunks)):
        row, begin, length, before, _, chunk = chunks[number]
        if before < 0:
            kept[:] = 0.0
        own = states[0, chunk].copy()
        _copy(kept, states[0, chunk])
        near = x[row, item_at(order, row, begin if before < 0 else before)]
        _join(kept, own, (near - x[row, item_at(order, row, begin + length - 1)]) * scale, nodes)
    for number in range(len(chunks) - 1, -1, -1):
        row, begin, length, _, after, chunk = chunks[number]
        if after < 0:
            kept[:] = 0.0
        own = states[1, chunk].copy()
        _copy(kept, states[1, chunk])
        near = x[row, item_at(order, row, begin + length - 1 if after < 0 else after)]
        _join(kept, own, (x[row, item_at(order, row, begin)] - near) * scale, nodes)


@entry
@jit
def sums(data, plan, out, chunks, states, begin, stop):
    """Compute out[o, row, item], the kernel sums of the chunks `begin` to `stop` - 1."""
    width = _width(chunks)
    columns, order, weights = len(data.slots), data.order, plan.weights
    tile = _tile(columns, chunks[:, 2].max(), len(out), width, plan.is_general)
    values, result = tile[0], tile[3]
    state = np.empty((columns, states.shape[3] * ROW))
    lanes = state.reshape(columns, states.shape[3], ROW)
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
                    _copy(states[side, group + lane], lanes[:, :, lane])
            _sweep(state, tile, plan, side, first, longest, width)
        for lane in range(len(some)):
            row, start, length, _, _, _ = some[lane]
            for o in range(len(out)):
                for p in range(length):
                    out[o, row, item_at(order, row, start + p)] = result[p + 1, o, lane]


@entry
@jit
def cut(lengths, size):
    """Return the chunks (chunks, 6) of lists (B,): row, begin, length, before, after and index.

    A chunk has at most `size` items, and the chunks of a list differ in length by at most one item.
    "before" and "after" are the positions of the items next to the chunk, or -1 at the list's ends.
    """
    total = 0
    for row in range(len(lengths)):
        total += (lengths[row] + size - 1) // size
    chunks = np.empty((total, 6), np.int64)
    number = 0
    for row in range(len(lengths)):
        length = lengths[row]
        count = (length + size - 1) // size
        begin = 0
        for k in range(count):
            end = length * (k + 1) // count
            chunks[number, 0] = row
            chunks[number, 1] = begin
            chunks[number, 2] = end - begin
            chunks[number, 3] = begin - 1 if k else -1
            chunks[number, 4] = end if k < count - 1 else -1
            chunks[number, 5] = number
            begin = end
            number += 1
    return chunks


def kernel_sums(
    scores: Tensor,
    lists: SortedLists,
    columns: Sequence[Tensor],
    numbers: SumNumbers,
) -> list[Tensor]:
    """Compute `ltr.kernels.interface.Implementation.kernel_sums` for CPU tensors."""
    scale, nodes, rows, sources = numbers
    used, *weights = _plan(tuple(nodes), tuple(rows), tuple(sources))
    count, outputs = int(nodes[4]), len(sources)
    x = _rows(scores)
    item = NO_ORDER if lists.order is None else _rows(lists.order)
    # A constant column is passed as a single value.
    slots, fills, written = [], [], []
    for source in used:
        column = columns[source]
        is_number = not any(column.stride())
        slots.append(-1 if is_number else len(written))
        fills.append(column[(0,) * column.dim()].item() if is_number else 0.0)
        if not is_number:
            written.append(_rows(column))
    slots, fills = np.array(slots), np.array(fills)
    values = written[0][None] if len(written) == 1 else np.empty((len(written), *x.shape), x.dtype)
    if len(written) > 1:
        np.stack(written, out=values)
    lengths = lists.lengths.numpy().reshape(-1)
    few = len(lengths) <= FEW_LISTS
    layout = _cached_layout(lengths.tobytes()) if few else _new_layout(lengths)
    total, chunks, lanes, joined = layout
    if not total:
        return [torch.zeros_like(scores) for _ in sources]
    out = (np.empty if total == scores.numel() else np.zeros)((outputs, *x.shape), x.dtype)
    work = total * (2 + count) * (len(used) + outputs)
    data, plan = Data(x, item, values, slots, fills), Plan(scale, tuple(nodes), *weights)
    height = 3 + (2 * count if plan.is_general else count)
    states = np.empty((2, len(chunks) if joined else 0, len(used), height))
    if joined:
        run_parallel(ends, (data, plan, lanes, states), len(lanes), work, LANES)
        chain(x, item, chunks, states, scale, tuple(nodes))
    run_parallel(sums, (data, plan, out, lanes, states), len(lanes), work, LANES)
    return list(map(torch.from_numpy, out.reshape(outputs, *scores.shape)))


@lru_cache(64)
def _cached_layout(lengths: bytes) -> tuple[int, Any, Any, bool]:
    return _new_layout(np.frombuffer(lengths, np.int64).copy())


def _new_layout(lengths: Any) -> tuple[int, Any, Any, bool]:
    # Return the number of items, the chunks, the chunks in the order of the lanes, and whether any
    # list has more than one chunk.
    total = int(lengths.sum())
    chunks = cut(lengths, _chunk(total, len(lengths)))
    lanes = chunks
    if len(chunks) > LANES and (chunks[:, 2] != chunks[0, 2]).any():
        # Sort the chunks by length, so that the lanes of a group end at about the same position.
        by_length = np.argsort(-chunks[:, 2], kind="stable")
        lanes = chunks[by_length]
        chunks[by_length, 5] = np.arange(len(chunks))
    return total, chunks, lanes, bool((chunks[:, 3] >= 0).any())


def _chunk(total: int, lists: int) -> int:
    # Return the maximum number of items of a chunk. If there are more than WIDTH lists, and lists
    # of the mean length fit the cache side by side, such a list is one chunk. Otherwise, the
    # maximum lies between CHUNK // 2 and CHUNK, so that the chunks fill more lanes.
    whole = LANE_ITEMS // min(LANES, -(-lists // WIDTH) * WIDTH)
    if lists > WIDTH and total <= lists * whole:
        return whole
    return min(CHUNK, max(CHUNK // 2, total // LANES))


@lru_cache
def _plan(nodes: tuple[float, ...], rows: tuple[float, ...], sources: tuple[int, ...]) -> Any:
    # Return the columns in use, and the `weights`, `uses` and `is_general` of the `Plan`.
    count, outputs = int(nodes[4]), len(sources)
    used = sorted(set(sources))
    is_general = nodes[1] != 0 or nodes[3] != 0 or (count > 1 and nodes[0] != nodes[2])
    weights = np.zeros((3, outputs, 4 + (2 * count if is_general else count)))
    weights[:, :, 0] = [used.index(source) for source in sources]
    table = np.array(rows).reshape(outputs, -1)
    weights[2, :, 1] = table[:, 0]
    both = table[:, 1:].reshape(outputs, 2, -1).swapaxes(0, 1)
    weights[:2, :, 1:4] = both[:, :, :3]
    real, imaginary = both[:, :, 3 : 3 + count], both[:, :, 3 + count :]
    if is_general:
        weights[:2, :, 4::2] = real
        weights[:2, :, 5::2] = -imaginary  # the real part of w z is Re(w) Re(z) - Im(w) Im(z)
    else:
        weights[:2, :, 4:] = real
    linear = bool(weights[:2, :, 2].any())
    uses = bool(weights[:2, :, 3].any()), linear or bool(weights[:2, :, 1].any()), linear
    return used, weights, uses, is_general


def _rows(x: Tensor) -> Any:
    return np.ascontiguousarray(x.numpy()).reshape(-1, x.shape[-1])
