"""The kernel sums on the CPU, compiled by numba: which sweep, on how many threads."""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ltr.kernels._jit import run_parallel
from ltr.kernels._lanes import CHUNK, LANES, chain, cut, ends, sums
from ltr.kernels._line import one_node

LONG = 512
"""From this mean length on a single real node is swept along the list, else across lists."""


def kernel_sums(
    scores: Tensor,
    order: Tensor | None,
    starts: Tensor,
    lengths: Tensor,
    columns: list[Tensor],
    scale: float,
    nodes: list[float],
    rows: list[float],
    sources: list[int],
) -> list[Tensor]:
    """As `ltr::kernel_sums`, for CPU tensors: scores (..., N), starts (..., R)."""
    used, weights, *rest = _plan(tuple(nodes), tuple(rows), tuple(sources))
    n, count, outputs = scores.shape[-1], int(nodes[4]), len(sources)
    x = _rows(scores)
    item = np.empty((0, 0), np.int64) if order is None else _rows(order)
    first, size = _rows(starts), _rows(lengths)
    wanted = [columns[source] for source in used]
    # a column that is one number everywhere is not written out
    is_number = [not any(column.stride()) for column in wanted]
    slots = np.where(is_number, -1, np.cumsum(np.invert(is_number)) - 1)
    fills = np.array(
        [c[(0,) * c.dim()].item() if f else 0.0 for c, f in zip(wanted, is_number, strict=True)]
    )
    values = np.empty((len(used) - sum(is_number), *x.shape), x.dtype)
    for column, slot in zip(wanted, slots, strict=True):
        if slot >= 0:
            values[slot] = column.numpy().reshape(-1, n)
    total = int(size.sum())
    if not total:
        return [torch.zeros_like(scores) for _ in sources]
    out = (np.empty if total == scores.numel() else np.zeros)((outputs, *x.shape), x.dtype)
    work = total * (2 + count) * (len(used) + outputs)
    columns_of = x, item, values, slots, fills
    if count == 1 and total >= LONG * size.size and not (rest[2] or rest[1][2]):
        ties = rest[1][0]
        run_parallel(
            lambda a, b: one_node(
                *columns_of, out, first, size, scale * nodes[0], weights, ties, a, b
            ),
            size.size,
            work,
        )
        return [torch.from_numpy(y.reshape(scores.shape)) for y in out]
    chunks = cut(first, size, min(CHUNK, max(16, total // LANES)))
    lanes = chunks
    if len(chunks) > LANES and (chunks[:, 2] != chunks[0, 2]).any():
        by_length = np.argsort(-chunks[:, 2], kind="stable")  # lanes of a group end together
        lanes = chunks[by_length]
        chunks[by_length, 5] = np.arange(len(chunks))
    given = scale, tuple(nodes), weights, *rest
    states = np.empty((2, 0, len(used), 3 + 2 * count))
    if (chunks[:, 3] >= 0).any():
        states = np.empty((2, len(chunks), len(used), 3 + 2 * count))
        run_parallel(
            lambda a, b: ends(*columns_of, lanes, states, *given, a, b),
            len(lanes),
            work,
            LANES,
        )
        chain(x, item, chunks, states, scale, tuple(nodes))
    run_parallel(
        lambda a, b: sums(*columns_of, out, lanes, states, *given, a, b),
        len(lanes),
        work,
        LANES,
    )
    return [torch.from_numpy(y.reshape(scores.shape)) for y in out]


@lru_cache
def _plan(nodes: tuple[float, ...], rows: tuple[float, ...], sources: tuple[int, ...]) -> Any:
    # the columns in use, the weights [side, output] = (column, constant, linear, tie, nodes) with
    # (column, own) as a third side, each column's first output, which states are needed
    count, outputs = int(nodes[4]), len(sources)
    used = sorted(set(sources))
    weights = np.zeros((3, outputs, 4 + 2 * count))
    weights[:, :, 0] = [used.index(source) for source in sources]
    table = np.array(rows).reshape(outputs, -1)
    weights[2, :, 1] = table[:, 0]
    weights[0, :, 1:] = table[:, 1 : 4 + 2 * count]
    weights[1, :, 1:] = table[:, 4 + 2 * count :]
    leads = np.array([sources.index(source) for source in used])
    linear = bool(weights[:2, :, 2].any())
    uses = bool(weights[:2, :, 3].any()), linear or bool(weights[:2, :, 1].any()), linear
    is_complex = nodes[1] != 0 or nodes[3] != 0 or (count > 1 and nodes[0] != nodes[2])
    return used, weights, leads, uses, is_complex


def _rows(x: Tensor) -> Any:
    return np.ascontiguousarray(x.numpy()).reshape(-1, x.shape[-1])
