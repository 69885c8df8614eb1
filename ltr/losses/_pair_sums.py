"""The sums over pairs in bounded memory: blocks of pairs, slopes taken on the way."""

from typing import Any

import torch
from torch import Tensor

from ltr.losses.pairs import (
    PairCost,
    PairWeights,
    RankedLists,
    block_sums,
    rank_lists,
    rank_matrix,
)

BLOCK = {"cpu": 2**16, "cuda": 2**24}
"""Pairs in one block: what the processor's cache holds; on a GPU what fills it."""


def pair_sums(
    cost: PairCost,
    pair_weights: PairWeights,
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`all_pairs` of each list, (...) each: the sum of weight * cost and the sum of the weights.

    The one place through which every pairwise loss goes, where a faster way for a cost and
    weights that have one can be chosen. Time O(n^2), half of the n x n pairs; memory O(n) a list
    and one block, in the backward too.
    """
    lists = rank_lists(scores, labels, mask, weights, pair_weights)
    slopes = scores.requires_grad and torch.is_grad_enabled()
    total, weight, _ = _PairSums.apply(cost, pair_weights, slopes, *lists[:4], *lists.columns)
    return total, weight


class _PairSums(torch.autograd.Function):
    """Forward: the sums and, block by block, the slopes; backward: the slopes."""

    @staticmethod
    def forward(cost: PairCost, pair_weights: PairWeights, slopes: bool, *tensors: Any) -> Any:
        batch, n = tensors[0].shape[:-1], tensors[0].shape[-1]
        lists = _lists(tensors).map(lambda x: x.reshape(batch.numel(), n))
        s = lists.scores
        size = BLOCK.get(s.device.type, BLOCK["cuda"])
        # thin blocks leave out more of the half that is not needed, thick ones are fewer
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
        return total.view(batch), weight.view(batch), gradient.view(*batch, n)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.cost, ctx.pair_weights, _, *tensors = inputs
        ctx.save_for_backward(output[2], *tensors)
        ctx.save_for_forward(output[2], *tensors)
        ctx.mark_non_differentiable(output[1], output[2])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        gradient, *tensors = ctx.saved_tensors
        nothing = [None] * (len(tensors) - 1)
        if grads[0] is None:
            return None, None, None, None, *nothing
        if torch.is_grad_enabled():  # for second derivatives
            gradient = _plain_slopes(ctx.cost, ctx.pair_weights, tensors)
        return None, None, None, grads[0].unsqueeze(-1) * gradient, *nothing

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        _, *tensors = ctx.saved_tensors
        slopes = _plain_slopes(ctx.cost, ctx.pair_weights, tensors)
        return (slopes * tangents[3]).sum(-1), None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        def in_front(x: Any, dim: int | None) -> Any:
            if not isinstance(x, Tensor):
                return x
            return x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)

        outputs = _PairSums.apply(*map(in_front, inputs, in_dims))
        return outputs, (0, 0, 0)


def _plain_slopes(cost: PairCost, pair_weights: PairWeights, tensors: Any) -> Tensor:
    """The derivative of `total` by the scores, by the plain definition: differentiable."""
    lists, whole = _lists(tensors), slice(None)
    by_rank = rank_matrix(pair_weights, lists.scores, whole, whole)
    found = block_sums(cost, pair_weights, lists, whole, whole, by_rank, True)
    assert found.rows is not None
    assert found.columns is not None
    return found.rows + found.columns


def _lists(tensors: Any) -> RankedLists:
    scores, labels, valid, weights, *columns = tensors
    return RankedLists(scores, labels, valid, weights, tuple(columns))
