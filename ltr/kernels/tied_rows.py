"""NeuralSort's rows of lists whose points are all equal: each is 1 / m at the m real points.

A network that starts at zero gives all items equal scores. Then all rows are the same, and sums
over them come from sums of powers of the position, in O(n) time.
"""

import math

import torch
from torch import Tensor

from ltr.shapes import widened

SHORTEST = 256
"""Shorter lists are computed like any other: to look for ties would save no time."""


def are_tied(points: Tensor, lengths: Tensor) -> Tensor:
    """Return which lists have only equal points, (...): points (..., n) descending, lengths (...).

    >>> are_tied(torch.tensor([[2.0, 2.0, 0.0], [2.0, 1.0, 1.0]]), torch.tensor([2, 3]))
    tensor([ True, False])
    """
    last = points.gather(-1, (lengths - 1).clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return points[..., 0] - last == 0  # not if they are infinite


def row_products(
    lengths: Tensor, columns: Tensor, count: int, blocks: list[int], transposed: bool
) -> Tensor:
    """Compute `ltr.kernels.rows.row_products` of tied points for NeuralSort.

    Args:
        lengths: (...) int64, the number of real points.
        columns: (..., rows of the sum, d).
        count: The number of rows of the result.
        blocks: See `ltr.kernels.rows.row_products`.
        transposed: Whether to sum over rows of P instead of columns.
    """
    m, inputs = lengths[..., None, None], columns.shape[-2]
    position = torch.arange(max(inputs, count), device=m.device).unsqueeze(-1)
    # positions from the middle of the real ones
    centered, padding = widened(position) - widened(m - 1) / 2, position >= m
    offset, own = centered[..., :inputs, :], centered[..., :count, :]
    out = columns.new_empty((*columns.shape[:-2], count, columns.shape[-1]))
    start = 0
    for size, u in zip(blocks[::2], blocks[1::2], strict=True):
        V = widened(columns[..., start : start + size])
        V = V.masked_fill(padding[..., :inputs, :], 0.0)
        # (x - y)^u by the binomial theorem, x the offset in the sum and y the result's own
        total = torch.zeros_like(own)
        for k in range(u + 1):
            moment = (V * offset**k).sum(-2, keepdim=True) / m.clamp(min=1)
            total = math.comb(u, k) * moment - total * own
        out[..., start : start + size] = -total if transposed and u % 2 else total
        start += size
    return out.masked_fill_(padding[..., :count, :], 0.0)


def row_log_sums(points: Tensor, lengths: Tensor, rows: int) -> Tensor:
    """Compute `ltr.kernels.rows.row_log_sums` of tied points for NeuralSort."""
    m = lengths.unsqueeze(-1)
    real = torch.arange(rows, device=m.device) < m
    return torch.where(real, widened(m).log(), 0.0).to(points.dtype)


def row_vjp(lengths: Tensor, G: Tensor, V: Tensor, blocks: list[int]) -> Tensor:
    """Compute `ltr.kernels.rows.row_vjp` of tied points for NeuralSort."""
    n, rows = V.shape[-2], G.shape[-2]
    raised = blocks.copy()
    raised[1::2] = [u + 1 for u in blocks[1::2]]
    out = V.new_empty((*V.shape[:-1], 2))
    G, V = widened(G), widened(V)
    r = (G * row_products(lengths, V, rows, blocks, False)).sum(-1, keepdim=True)
    for u, by in enumerate((blocks, raised)):
        means = row_products(lengths, r, n, [1, u], True).squeeze(-1)
        out[..., u] = (V * row_products(lengths, G, n, by, True)).sum(-1) - means
    return out
