"""The kernel sums on the CPU: chunks and constants for the compiled sweeps, and their threads."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ltr.kernels.cpu.jit import run_parallel
from ltr.kernels.cpu.lanes import (
    CHUNK,
    LANE_ITEMS,
    LANES,
    WIDTH,
    Data,
    Plan,
    chain,
    cut,
    ends,
    sums,
)
from ltr.kernels.interface import SumNumbers
from ltr.kernels.lists import SortedLists

FEW_LISTS = 256
"""For up to this many lists, the chunks are cached for later calls with the same lengths."""

NO_ORDER = np.empty((0, 0), np.int64)


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
