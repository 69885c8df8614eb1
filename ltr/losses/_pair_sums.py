"""The sums over pairs, with their slopes: in sort time, or in blocks of bounded memory."""

from typing import Any

import torch
from torch import Tensor

from ltr.kernels import descending_order
from ltr.kernels._eager import apply
from ltr.kernels.pairs import graded_pair_sums
from ltr.losses.pairs import (
    PairCost,
    PairWeights,
    all_pairs,
    block_sums,
    rank_lists,
    rank_matrix,
)

BLOCK = {"cpu": 2**16, "cuda": 2**24}
"""The number of pairs in one block: it fits the cache of a CPU, or fills a GPU."""


def pair_sums(
    cost: PairCost,
    pair_weights: PairWeights,
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the sum of weight * cost and the sum of weights of each list: (...) each.

    All pairwise losses go through this function. The result is that of `all_pairs`. On the CPU it
    takes sort time for a logistic cost with weights that have a form `PairWeights.graded`, if a
    list has few grades. Otherwise the time is O(n^2), for half of the n x n pairs. Memory is O(n)
    for each list plus one block, in the backward too. Under `torch.compile` it calls `all_pairs`.
    """
    # `torch.compile` takes no Function with a jvp, and fuses all pairs into a few kernels
    if torch.compiler.is_compiling():
        weights = None if weights is None else weights.detach()
        return all_pairs(cost, pair_weights, scores, labels.detach(), mask, weights)
    slopes = scores.requires_grad and torch.is_grad_enabled()
    inputs = cost, pair_weights, slopes, scores, labels, mask, weights
    total, weight, _ = apply(_PairSums, *inputs)
    return total, weight


def _graded_sums(
    cost: PairCost,
    pair_weights: PairWeights,
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return sums, weights and slopes in sort time, or None if that is not possible."""
    temperature = cost.logistic_temperature
    if temperature is None or scores.device.type != "cpu":
        return None
    graded = pair_weights.graded(labels, mask)
    if graded is None:
        return None
    return graded_pair_sums(scores, labels, mask, weights, graded, temperature)


def _block_sums(
    cost: PairCost,
    pair_weights: PairWeights,
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    slopes: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return sums, weights and, if `slopes`, slopes over all pairs, block by block."""
    batch, n = scores.shape[:-1], scores.shape[-1]
    order = descending_order(scores, mask)
    lists = rank_lists(scores, labels, mask, weights, pair_weights, order)
    lists = lists.map(lambda x: x.reshape(batch.numel(), n))
    s = lists.scores
    size = BLOCK.get(s.device.type, BLOCK["cuda"])
    # thin blocks compute less of the half that is not needed; thick blocks are fewer
    height = min(max(n // 3 + 1, 16), 64) if s.device.type == "cpu" else max(n, 1)
    once = rank_matrix(pair_weights, s, slice(None), slice(None)) if n * n <= size else None
    total, weight = s.new_zeros(s.shape[0]), s.new_zeros(s.shape[0])
    gradient = torch.zeros_like(s)
    for top in range(0, n, height):
        rows, columns = slice(top, min(top + height, n)), slice(top, n)
        if once is None:
            by_rank = rank_matrix(pair_weights, s, rows, columns)
        else:
            by_rank = once[rows, columns]
        together = max(size // by_rank.numel(), 1)
        for first in range(0, s.shape[0], together):
            some = slice(first, first + together)
            chunk = lists.map(lambda x, some=some: x[some])
            found = block_sums(cost, pair_weights, chunk, rows, columns, by_rank, slopes)
            total[some] += found.total
            weight[some] += found.weight
            if found.rows is not None and found.columns is not None:
                gradient[some, rows] += found.rows
                gradient[some, columns] += found.columns
    gradient = gradient.view(*batch, n)
    if slopes:
        gradient = torch.zeros_like(gradient).scatter(-1, order, gradient)
    return total.view(batch), weight.view(batch), gradient


class _PairSums(torch.autograd.Function):
    """The sums over pairs: the forward computes the slopes too, which the backward uses."""

    @staticmethod
    def forward(
        cost: PairCost, pair_weights: PairWeights, slopes: bool, *lists: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        scores, labels, mask, weights = lists
        found = _graded_sums(cost, pair_weights, scores, labels, mask, weights)
        if found is None:
            found = _block_sums(cost, pair_weights, scores, labels, mask, weights, slopes)
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.cost, ctx.pair_weights, _, *lists = inputs
        ctx.save_for_backward(output[2], *lists)
        ctx.save_for_forward(output[2], *lists)
        ctx.mark_non_differentiable(output[1], output[2])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        gradient, *lists = ctx.saved_tensors
        if grads[0] is None:
            return (None,) * 7
        if torch.is_grad_enabled():  # for second derivatives
            gradient = _plain_slopes(ctx.cost, ctx.pair_weights, *lists)
        return None, None, None, grads[0].unsqueeze(-1) * gradient, None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        _, *lists = ctx.saved_tensors
        slopes = _plain_slopes(ctx.cost, ctx.pair_weights, *lists)
        return (slopes * tangents[3]).sum(-1), None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        def in_front(x: Any, dim: int | None) -> Any:
            if not isinstance(x, Tensor):
                return x
            return x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)

        outputs = _PairSums.apply(*map(in_front, inputs, in_dims))
        return outputs, (0, 0, 0)


def _plain_slopes(
    cost: PairCost,
    pair_weights: PairWeights,
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
) -> Tensor:
    """Return the derivative of `total` by the scores, by definition, so it is differentiable."""
    order = descending_order(scores.detach(), mask)
    lists, whole = rank_lists(scores, labels, mask, weights, pair_weights, order), slice(None)
    by_rank = rank_matrix(pair_weights, lists.scores, whole, whole)
    found = block_sums(cost, pair_weights, lists, whole, whole, by_rank, True)
    assert found.rows is not None
    assert found.columns is not None
    slopes = found.rows + found.columns
    return torch.zeros_like(slopes).scatter(-1, order, slopes)
