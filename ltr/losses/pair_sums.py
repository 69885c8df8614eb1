"""Sums over pairs and their derivatives: in the time of a sort, or in tiles to limit memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ltr.kernels.autodiff import Maybe, Rule, differentiable
from ltr.kernels.pairs import graded_pair_sums
from ltr.kernels.sorting import descending_order, in_list_order
from ltr.losses.base import finite_if_removed
from ltr.losses.pair_costs import LogisticCost, PairCost
from ltr.losses.pair_weights import PairWeights
from ltr.operators.tiles import tiles
from ltr.shapes import masked_fill, positions


def pair_sums(
    cost: PairCost,
    pair_weights: PairWeights,
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return each list's sums, over its pairs, of weight * cost and of the weights: (...) each.

    All pairwise losses call this function. The result is that of `all_pairs`. On the CPU the
    function takes the time of a sort if the cost is logistic, `PairWeights.graded` returns the
    weights, and no list has more than 32 distinct labels. Otherwise the time is O(n^2), and half of
    the n x n pairs are computed. Memory is O(n) for each list plus one tile, in the backward too.
    In `torch.compile` this function calls `all_pairs`.
    """
    scores = finite_if_removed(scores, labels)
    # `torch.compile` fuses the computation of all pairs into a few kernels.
    if torch.compiler.is_compiling():
        weights = None if weights is None else weights.detach()
        return all_pairs(cost, pair_weights, scores, labels.detach(), mask, weights)
    # `scores.requires_grad` is False inside `vmap`, even if a gradient is needed outside.
    rule = _PairSums(cost, pair_weights, slopes=torch.is_grad_enabled())
    total, weight, _ = differentiable(rule, scores, labels, mask, weights)
    return total, weight


@dataclass(frozen=True, eq=False)
class _PairSums(Rule):
    """The `Rule` of the sums over pairs, whose forward also computes the gradients."""

    cost: PairCost
    pair_weights: PairWeights
    slopes: bool
    saved_outputs = (2,)
    constant = (1, 2)

    def values(
        self, scores: Tensor, labels: Tensor, mask: Maybe, weights: Maybe
    ) -> tuple[Tensor, ...]:
        sums = self._graded_sums(scores, labels, mask, weights)
        return self._tile_sums(scores, labels, mask, weights) if sums is None else sums

    def gradients(
        self, needed: Sequence[bool], cotangents: Sequence[Maybe], *saved: Any
    ) -> tuple[Maybe, ...]:
        *lists, gradient = saved
        g = cotangents[0]
        if g is None:
            return (None,) * 4
        if torch.is_grad_enabled():  # second derivatives need a graph
            gradient = self._plain_slopes(*lists)
        return g.unsqueeze(-1) * gradient, None, None, None

    def _graded_sums(
        self, scores: Tensor, labels: Tensor, mask: Maybe, weights: Maybe
    ) -> tuple[Tensor, ...] | None:
        """Return the sums of `_tile_sums` in the time of a sort; None where that is impossible."""
        temperature = logistic_temperature(self.cost)
        graded = None if temperature is None else self.pair_weights.graded(labels, mask)
        if temperature is None or graded is None:
            return None
        sums = graded_pair_sums(scores, labels, mask, weights, graded, temperature)
        if sums is None:
            return None
        total, weight, slopes = sums
        has_pair = weight > 0  # without a pair, rounding errors remain in the other two results
        return (
            torch.where(has_pair, total, 0),
            weight,
            torch.where(has_pair.unsqueeze(-1), slopes, 0),
        )

    def _tile_sums(
        self, scores: Tensor, labels: Tensor, mask: Maybe, weights: Maybe
    ) -> tuple[Tensor, ...]:
        """Return the sums of `pair_sums` and the gradient of the first sum, tile by tile.

        The gradient with respect to the scores is (..., n), and 0 if `slopes` is False.
        """
        lists = rank_lists(scores, labels, mask, weights, self.pair_weights)
        s = lists.scores
        total, weight = s.new_zeros(s.shape[:-1]), s.new_zeros(s.shape[:-1])
        gradient = torch.zeros_like(s)
        for rows, columns in half_tiles(s):
            tile = block_sums(self.cost, self.pair_weights, lists, rows, columns, self.slopes)
            total += tile.total
            weight += tile.weight
            if tile.rows is not None and tile.columns is not None:
                gradient[..., rows] += tile.rows
                gradient[..., columns] += tile.columns
        if self.slopes:
            gradient = in_list_order(gradient, lists.order)
        return total, weight, gradient

    def _plain_slopes(self, scores: Tensor, labels: Tensor, mask: Maybe, weights: Maybe) -> Tensor:
        """Return the gradient of the sum of weight * cost over all pairs, differentiable too."""
        lists = rank_lists(scores, labels, mask, weights, self.pair_weights)
        whole = slice(None)
        sums = block_sums(self.cost, self.pair_weights, lists, whole, whole, True)
        assert sums.rows is not None
        assert sums.columns is not None
        return in_list_order(sums.rows + sums.columns, lists.order)


def logistic_temperature(cost: PairCost) -> float | None:
    """Return the tau of a cost log(1 + exp(-t / tau)); None for another cost.

    A subclass of `LogisticCost` may define another cost.

    >>> logistic_temperature(LogisticCost(0.5))
    0.5
    """
    return cost.temperature if type(cost) is LogisticCost else None


def pair_curvature(
    temperature: float,
    pair_weights: PairWeights,
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the second derivatives (..., n) of logistic pair sums, and the sums of weights (...).

    The pair sum of a list is its sum of w_ij * cost, with the scores s and the pair weights w. Its
    second derivative with respect to s_i is the sum, over the pairs with item i, of w_ij q (1 - q)
    / temperature^2, with q = sigmoid((s_i - s_j) / temperature). The weights have no derivative.
    The arguments are those of `pair_sums`, except that the cost is `LogisticCost(temperature)`.
    Cost: O(n^2) time, for half of the n x n pairs; memory O(n) for each list plus one tile.

    >>> scores, labels = torch.zeros(3), torch.tensor([1.0, 0.0, 0.0])
    >>> pair_curvature(1.0, PairWeights(), scores, labels)
    (tensor([0.5000, 0.2500, 0.2500]), tensor(2.))
    """
    lists = rank_lists(scores, labels, mask, weights, pair_weights)
    s, y, valid = lists[:3]
    curvature, weight = torch.zeros_like(s), s.new_zeros(s.shape[:-1])
    for rows, columns in half_tiles(s):
        sign = (y[..., rows, None] - y[..., None, columns]).sign()
        w, other = tile_weights(pair_weights, lists, rows, columns, sign)
        w = w.abs() if other is None else w + other
        w = w if valid is None else w * valid[..., None, columns]
        q = torch.sigmoid((s[..., rows, None] - s[..., None, columns]) / temperature)
        each = w * q * (1 - q)
        curvature[..., rows] += each.sum(-1)
        curvature[..., columns] += each.sum(-2)
        weight += w.sum((-1, -2))
    return in_list_order(curvature, lists.order) / temperature**2, weight


def half_tiles(scores: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield the rows and the columns of tiles of the pairs (..., n, n), each pair once.

    Pairs i < j are enough, so the columns of a tile begin at its rows.
    """
    n = scores.shape[-1]
    for rows in tiles(n, scores.numel()):
        yield rows, slice(rows.start, n)


class RankedLists(NamedTuple):
    """Lists with their items by descending score, padding last: (..., n) each.

    `columns` are the inputs of `PairWeights.by_item`, and `order` is the index of each item in the
    list. The other tensors are 0 for padding.
    """

    scores: Tensor
    labels: Tensor
    valid: Tensor | None
    weights: Tensor | None
    columns: tuple[Tensor, ...]
    order: Tensor


def rank_lists(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    pair_weights: PairWeights,
) -> RankedLists:
    """Return the lists (..., n) by descending score, with the columns of the pair weights.

    Cost: one sort.
    """
    order = descending_order(scores, mask)
    mask = None if mask is None else mask.gather(-1, order)
    labels = masked_fill(labels.gather(-1, order), mask)
    return RankedLists(
        masked_fill(scores.gather(-1, order), mask),
        labels,
        None if mask is None else mask.to(scores.dtype),
        None if weights is None else masked_fill(weights.gather(-1, order), mask),
        tuple(column.detach() for column in pair_weights.columns(labels, mask)),
        order,
    )


class PairSums(NamedTuple):
    """The sum of weight * cost over a tile of pairs, the sum of the weights, and the gradients."""

    total: Tensor  # (...)
    weight: Tensor  # (...)
    # `rows` and `columns` are the gradients of `total` with respect to the rows' and the columns'
    # scores.
    rows: Tensor | None  # (..., a)
    columns: Tensor | None  # (..., b)


def block_sums(
    cost: PairCost,
    pair_weights: PairWeights,
    lists: RankedLists,
    rows: slice,
    columns: slice,
    slopes: bool,
) -> PairSums:
    """Return the sums over the pairs of an item in `rows` and an item in `columns`, by definition.

    The items are at positions i and j, i < j, by descending score. With the scores s and the labels
    y, let d = s_i - s_j, and sign = 1 if item i has the higher label, -1 if item j has the higher
    label, and 0 if the labels are equal. The sums over the pairs are

        total = sum of w_ij * cost(sign * d, |y_i - y_j|),    weight = sum of w_ij

    Here w_ij is by_rank * by_item * |sign| times the item weight of the item with the higher label.
    If `both_orders` is True, each pair has two terms instead: with sign = 1 and the item weight of
    i, and with sign = -1 and the item weight of j. `by_rank`, `by_item` and `both_orders` are those
    of `pair_weights`. Pairs with padding have weight 0. If `slopes` is True, the gradients of
    `total` are computed too. Cost: O(a b) for each list. With slice(None) for `rows` and `columns`,
    the sums are over all pairs and are differentiable.
    """
    s, y, valid = lists[:3]
    d, difference = (x[..., rows, None] - x[..., None, columns] for x in (s, y))
    gap = difference.abs() if cost.uses_gap else difference
    v = None if valid is None else valid[..., columns]
    sign = difference.sign()
    weight, other = tile_weights(pair_weights, lists, rows, columns, sign)
    if other is not None:
        right, slope = cost.both(d, gap, slopes)
        wrong, steeper = cost.reversed(d, gap, right, slope)
        if slope is not None and steeper is not None:
            slope = weight * slope - other * steeper
        return _sums(weight * right + other * wrong, weight + other, slope, v)
    each, slope = cost.both(sign * d, gap, slopes)
    slope = None if slope is None else slope * weight
    weight = weight.abs()
    return _sums(weight * each, weight, slope, v)


def tile_weights(
    pair_weights: PairWeights, lists: RankedLists, rows: slice, columns: slice, sign: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Return the weights (..., a, b) of a tile of pairs, without regard to padding.

    They have the sign of the difference of the labels, and the second result is None; if
    `both_orders` is True, the results are the weights of the two orders.
    """
    s, u, items = lists.scores, lists.weights, lists.columns
    by_rank = rank_matrix(pair_weights, s, rows, columns)
    upper = [column[..., rows, None] for column in items]
    lower = [column[..., None, columns] for column in items]
    by_item = pair_weights.by_item(upper, lower)
    u_i, u_j = (None, None) if u is None else (u[..., rows, None], u[..., None, columns])
    if pair_weights.both_orders:
        above, below = (by_rank * w for w in by_item)
        return (above, below) if u_i is None or u_j is None else (above * u_i, below * u_j)
    signed = sign * by_rank
    signed = signed if by_item is None else signed * by_item
    if u_i is not None and u_j is not None:
        signed = signed * torch.where(sign > 0, u_i, u_j)
    return signed, None


def _sums(each: Tensor, weight: Tensor, slope: Tensor | None, valid: Tensor | None) -> PairSums:
    """Return the sums of tensors (..., a, b); `valid` (..., b) is 1, or 0 for padding.

    Padding is last, so the second item of a pair with padding is always padding.
    """
    if valid is None:
        sums = each.sum((-1, -2)), weight.sum((-1, -2))
    else:
        sums = (each.sum(-2) * valid).sum(-1), (weight.sum(-2) * valid).sum(-1)
    if slope is None:
        return PairSums(*sums, None, None)
    if valid is None:
        return PairSums(*sums, slope.sum(-1), -slope.sum(-2))
    return PairSums(*sums, (slope @ valid.unsqueeze(-1)).squeeze(-1), -slope.sum(-2) * valid)


def rank_matrix(pair_weights: PairWeights, like: Tensor, rows: slice, columns: slice) -> Tensor:
    """Return `by_rank` (a, b) for lists of length n, with 0 for pairs that do not count.

    The tensor `like` (..., n) gives the length, dtype and device.
    """
    rank = positions(like)
    i, j = rank[rows, None], rank[None, columns]
    kept, by_rank = pair_weights.kept(i, j), pair_weights.by_rank(i, j)
    if by_rank is None:
        return kept.to(rank.dtype)
    return torch.where(kept, by_rank, torch.zeros_like(by_rank))


def all_pairs(
    cost: PairCost,
    pair_weights: PairWeights,
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return each list's sums of weight * cost and of the weights, by definition: (...) each.

    This function builds the n x n pairs of all lists and keeps them for the backward. `pair_sums`
    gives the same result with less memory.
    """
    lists = rank_lists(scores, labels, mask, weights, pair_weights)
    whole = slice(None)
    return block_sums(cost, pair_weights, lists, whole, whole, False)[:2]
