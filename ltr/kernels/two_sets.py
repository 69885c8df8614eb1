"""Kernel sums at targets other than the sources: shifted scores, thresholds, quadrature nodes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ltr.kernels.kernel import Kernel
from ltr.kernels.lists import SortedLists, sort_lists
from ltr.kernels.sums import kernel_sums


def merge(
    queries: Tensor, scores: Tensor, query_mask: Tensor | None = None, mask: Tensor | None = None
) -> tuple[Tensor, SortedLists]:
    """Return scores, then queries, as one set of points (..., n + q), and their sorted lists.

    >>> points, lists = merge(torch.tensor([1.5]), torch.tensor([1.0, 2.0]))
    >>> points, lists.order
    (tensor([1.0000, 2.0000, 1.5000]), tensor([1, 2, 0]))
    """
    points = torch.cat([scores, queries], -1)
    if mask is None and query_mask is None:
        return points, sort_lists(points)
    mask = scores.new_ones(scores.shape, dtype=torch.bool) if mask is None else mask
    if query_mask is None:
        query_mask = queries.new_ones(queries.shape, dtype=torch.bool)
    return points, sort_lists(points, torch.cat([mask, query_mask], -1))


def kernel_sums_at(
    queries: Tensor,
    scores: Tensor,
    columns: Sequence[Tensor],
    outputs: Sequence[tuple[int, Kernel]],
    temperature: float = 1.0,
    query_mask: Tensor | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Return, for each output (c, k), y_i = sum_j k((q_i - s_j) / tau) v_cj at queries q_i.

    Queries here are points at which sums are wanted, not the queries of lists. They join the
    sources (the scores) as points with value 0. So one call of `kernel_sums` computes all sums.

    Args:
        queries: (..., q), float32 or float64, in any order.
        scores: (..., n), with the batch shape and dtype of the queries.
        columns: the v_c, (..., n) each.
        outputs: pairs of a column's index and a `Kernel`, all with the same nodes.
        temperature: tau > 0, in units of the scores.
        query_mask: (..., q) bool, True = a real query. Default: all are real.
        mask: (..., n) bool, True = a real item. Default: all are real.

    Returns:
        One tensor (..., q) per output, in the queries' order; 0 for masked queries. All sums of a
        list with a NaN or an infinite query or score are NaN. The sums are differentiable in
        queries, scores and columns, to any order. A query tied with a source counts as below the
        source. Cost: O(q + n) per node, column and output, after the sort.

    Raises:
        ValueError: queries have another batch shape or dtype than scores; see also `kernel_sums`.

    >>> from ltr.kernels.named import laplace
    >>> q, s = torch.tensor([0.5, 3.0]), torch.tensor([0.0, 2.0, 1.0])
    >>> y, = kernel_sums_at(q, s, [torch.ones(3)], [(0, laplace())])
    >>> torch.allclose(y, torch.exp(-(q.unsqueeze(-1) - s).abs()).sum(-1))
    True
    """
    if queries.shape[:-1] != scores.shape[:-1] or queries.dtype != scores.dtype:
        raise ValueError(
            f"queries must have the batch shape and dtype of scores {tuple(scores.shape)} "
            f"{scores.dtype}, got {tuple(queries.shape)} {queries.dtype}"
        )
    points, lists = merge(queries, scores, query_mask, mask)
    nothing = torch.zeros_like(queries)
    sources = [torch.cat([column, nothing], -1) for column in columns]
    sums = kernel_sums(points, sources, outputs, lists, temperature)
    return tuple(y[..., scores.shape[-1] :] for y in sums)
