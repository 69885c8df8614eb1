"""Upper bounds on ranks in which only items of lower grades cost, for the tight regret of NDCG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ltr.kernels.autodiff import Maybe, Rule, differentiable
from ltr.kernels.pairs import graded_item_costs, graded_pair_sums
from ltr.kernels.sorting import in_list_order
from ltr.kernels.sums import prefers_dense
from ltr.losses.base import finite_if_removed
from ltr.losses.permutation import true_order
from ltr.operators.tiles import by_lists, tiles
from ltr.shapes import count, masked_fill, positions


def tight_ranks(
    scores: Tensor, grades: Tensor, mask: Tensor | None = None, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return bounds on the ranks, and the ranks of the best order that the bounds tend to.

    The bound of item i is t_i + the sum, over the items j of lower grades, of
    softplus((s_j - s_i) / temperature) / log 2. The ideal rank t_i is the rank by descending grade,
    with equal grades by descending score. At most t_i - 1 items of at least the grade of i are
    above i, and each item of a lower grade above i adds at least 1. So the bound is at least the
    hard rank. It tends to the ideal rank as i rises above all items of lower grades.

    Args:
        scores: (..., n), float32 or float64.
        grades: (..., n), >= 0.
        mask: (..., n) bool, True for a real item.
        temperature: > 0, in units of the scores.

    Returns:
        Bounds and ideal ranks, (..., n) each; both are m + 1 for the masked items of a list of m
        items. Only the bounds have gradients, by the scores. Cost: on the CPU one sort and
        O(n grades) time, if no list has more than 32 distinct grades; otherwise O(n^2) time. Memory
        is O(n).
        Short lists use n x n matrices (`ltr.kernels.use`).

    >>> tight_ranks(torch.tensor([40.0, 30.0, 0.0, 0.0]), torch.tensor([1.0, 1.0, 0.0, 0.0]))
    (tensor([1., 2., 3., 4.]), tensor([1., 2., 3., 4.]))
    """
    grades = masked_fill(grades.detach(), mask)
    scores = finite_if_removed(masked_fill(scores, mask), grades)
    if torch.compiler.is_compiling() or prefers_dense("softplus", scores.shape):

        def dense(scores: Tensor, grades: Tensor, mask: Maybe) -> Tensor:
            return _costs(scores, grades, mask, temperature, slice(None))

        costs = by_lists(dense, scores.shape[-1], scores, (grades, 1), (mask, 1))
        ideal = ranks_by_grade(scores, grades, mask)
    else:
        costs, ideal = differentiable(_LowerCosts(temperature), scores, grades, mask)
    unless_nan = 0 * scores.sum(-1, keepdim=True)  # NaN scores that no cost contains count too
    return ideal + costs / math.log(2) + unless_nan, ideal


def ranks_by_grade(scores: Tensor, grades: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the ranks (..., n) by descending grade; equal grades are in the order of the scores.

    Tied scores are in the order of the list. Masked items have rank m + 1. Cost: two sorts.

    >>> ranks_by_grade(torch.tensor([0.0, 1.0, 5.0]), torch.tensor([1.0, 1.0, 0.0]))
    tensor([2., 1., 3.])
    """
    ranks = positions(scores).expand(scores.shape)
    ideal = in_list_order(ranks, true_order(grades, scores, mask))
    return ideal if mask is None else torch.where(mask, ideal, count(scores, mask) + 1)


def _pairs(scores: Tensor, grades: Tensor, mask: Maybe, temperature: float, rows: slice) -> Tensor:
    """Return (s_j - s_i) / temperature for the items i in `rows`: (..., rows, n).

    The result is -inf where item j does not have a lower grade than item i.
    """
    lower = grades[..., rows, None] > grades[..., None, :]
    if mask is not None:
        lower = lower & mask[..., rows, None] & mask[..., None, :]
    gaps = (scores[..., None, :] - scores[..., rows, None]) / temperature
    return torch.where(lower, gaps, -torch.inf)


def _costs(scores: Tensor, grades: Tensor, mask: Maybe, temperature: float, rows: slice) -> Tensor:
    """Return the costs (..., rows) of the items in `rows`, by definition."""
    return softplus(_pairs(scores, grades, mask, temperature, rows), threshold=50).sum(-1)


@dataclass(frozen=True, eq=False)
class _LowerCosts(Rule):
    """The `Rule` of the costs and ideal ranks of `graded_item_costs`."""

    temperature: float
    constant = (1,)

    def values(self, scores: Tensor, grades: Tensor, mask: Maybe) -> tuple[Tensor, ...]:
        results = graded_item_costs(scores, grades, mask, self.temperature)
        if results is not None:
            return results
        costs, n = torch.zeros_like(scores), scores.shape[-1]
        for rows in tiles(n, scores.numel()):
            costs[..., rows] = _costs(scores, grades, mask, self.temperature, rows)
        return costs, ranks_by_grade(scores, grades, mask)

    def gradients(
        self, needed: Sequence[bool], cotangents: Sequence[Maybe], *saved: Any
    ) -> tuple[Maybe, ...]:
        scores, grades, mask = saved
        g = cotangents[0]
        if g is None:
            return None, None, None
        if torch.is_grad_enabled():  # second derivatives need a graph
            return _slopes(scores, grades, mask, g, self.temperature, slice(None)), None, None
        (slopes,) = differentiable(_LowerSlopes(self.temperature), scores, grades, mask, g)
        return slopes, None, None


@dataclass(frozen=True, eq=False)
class _LowerSlopes(Rule):
    """The gradient of `_LowerCosts` without grad mode: a `Rule`, so that it supports `vmap`."""

    temperature: float

    def values(self, scores: Tensor, grades: Tensor, mask: Maybe, g: Tensor) -> tuple[Tensor, ...]:
        sums = graded_pair_sums(scores, grades, mask, g, None, self.temperature)
        if sums is not None:
            return (sums[2],)
        total = torch.zeros_like(scores)
        for rows in tiles(scores.shape[-1], scores.numel()):
            total += _slopes(scores, grades, mask, g, self.temperature, rows)
        return (total,)


def _slopes(
    scores: Tensor, grades: Tensor, mask: Maybe, g: Tensor, temperature: float, rows: slice
) -> Tensor:
    """Return the gradient (..., n) of the sum of g * costs over the items in `rows`."""
    falls = _pairs(scores, grades, mask, temperature, rows).sigmoid()
    falls = falls * g[..., rows, None] / temperature
    own = torch.zeros_like(scores)
    items = torch.arange(scores.shape[-1], device=g.device)[rows]
    return falls.sum(-2) - own.index_add(-1, items, falls.sum(-1))
