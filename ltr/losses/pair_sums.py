"""The sums over pairs, with their slopes: in sort time, or in blocks of bounded memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ltr.kernels import descending_order
from ltr.kernels.autodiff import Maybe, Rule, differentiable
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
    rule = _PairSums(cost, pair_weights, slopes)
    total, weight, _ = differentiable(rule, scores, labels, mask, weights)
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


@dataclass(frozen=True, eq=False)
class _PairSums(Rule):
    """The sums over pairs: the forward computes the slopes too, which the backward uses."""

    cost: PairCost
    pair_weights: PairWeights
    slopes: bool
    kept = (2,)
    constant = (1, 2)

    def values(
        self, scores: Tensor, labels: Tensor, mask: Maybe, weights: Maybe
    ) -> tuple[Tensor, ...]:
        lists = scores, labels, mask, weights
        found = _graded_sums(self.cost, self.pair_weights, *lists)
        if found is None:
            found = _block_sums(self.cost, self.pair_weights, *lists, self.slopes)
        return found

    def gradients(
        self, needed: Sequence[bool], given: Sequence[Maybe], *saved: Any
    ) -> tuple[Maybe, ...]:
        *lists, gradient = saved
        g = given[0]
        if g is None:
            return (None,) * 4
        if torch.is_grad_enabled():  # for second derivatives
            gradient = _plain_slopes(self.cost, self.pair_weights, *lists)
        return g.unsqueeze(-1) * gradient, None, None, None

    def tangents(self, moved: Sequence[Maybe], *saved: Any) -> tuple[Maybe, ...]:
        *lists, _ = saved
        change = moved[0]
        assert change is not None
        slopes = _plain_slopes(self.cost, self.pair_weights, *lists)
        return (slopes * change).sum(-1), None, None


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
