"""Sums over the pairs of a list: costs and weights of pairs, and the plain definition."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ltr.kernels import descending_order
from ltr.kernels.pairs import GradedWeights
from ltr.shapes import check_top_k, masked_fill, positions

Truncation = Literal["metric", "any", "both"]


class PairCost(nn.Module):
    """The cost of a pair, cost(t, gap), and its slope by t.

    t is the score of the item with the higher label minus the score of the other item. gap > 0 is
    the difference of their labels. Both methods are elementwise and finite for any finite t.
    """

    uses_gap: bool = True
    """Whether the cost depends on `gap`. If False, any values may be passed as `gap`."""

    @property
    def logistic_temperature(self) -> float | None:
        """The tau of a cost log(1 + exp(-t / tau)), which can be summed in sort time; else None."""
        return None

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the cost of each pair."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def slope(self, t: Tensor, gap: Tensor) -> Tensor:
        """Return the derivative of the cost by t, computed by differentiable operations."""
        raise NotImplementedError(f"{type(self).__name__} must define slope")

    def both(self, t: Tensor, gap: Tensor, slopes: bool) -> tuple[Tensor, Tensor | None]:
        """Return the cost and, if `slopes`, the slope.

        A subclass overrides this if computing both together is cheaper.
        """
        return self(t, gap), self.slope(t, gap) if slopes else None

    def reversed(
        self, t: Tensor, gap: Tensor, cost: Tensor, slope: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return `both` at -t, given cost and slope at t >= 0.

        A subclass overrides this if computing them from those at t is cheaper.
        """
        return self.both(-t, gap, slope is not None)


class PairWeights(nn.Module):
    """The weight of a pair, from the labels and from the ranks by the current scores.

    The items are in the order of their scores, the highest first (ties in the order of the list),
    so the place of an item is its rank. A pair (i, j) has i < j. Its weight is `by_rank` times
    `by_item`, except that a pair of equal labels always has weight 0. Weights have no gradient. A
    subclass defines one of the two methods, or both.

    Args:
        top_k: the rank k of the cut. Default: no cut.
        truncation: the kind of cut, if `top_k` is given. "metric": the weights of the metric at k,
            which the subclass documents. "any": the weights without a cut, but only for pairs with
            an item among the first k. "both": the same, but only for pairs with both items there.

    Raises:
        ValueError: top_k or truncation has none of these values.

    >>> from ltr.losses import LambdaLoss, PairWeights
    >>> class Gap(PairWeights):
    ...     def columns(self, labels, mask):
    ...         return (labels,)
    ...     def by_item(self, upper, lower):
    ...         return (upper[0] - lower[0]).abs()
    >>> LambdaLoss(Gap())(torch.zeros(3), torch.tensor([2.0, 0.0, 1.0]))
    tensor(0.6931)
    """

    both_orders: bool = False
    """Whether every pair counts in both orders, pairs of equal labels included. If True, `by_item`
    returns two weights: of "the upper item should be above", and of "the lower item should"."""

    def __init__(self, top_k: int | None = None, truncation: Truncation = "metric"):
        super().__init__()
        self.top_k = check_top_k(top_k)
        if truncation not in ("metric", "any", "both"):
            raise ValueError(f"truncation must be 'metric', 'any' or 'both', got {truncation!r}")
        self.truncation: Truncation = truncation

    @property
    def metric_k(self) -> int | None:
        """The `top_k` of truncation "metric", else None."""
        return self.top_k if self.truncation == "metric" else None

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """Return the inputs of `by_item`, (..., n) each. Labels are 0 under the mask."""
        return ()

    def by_rank(self, i: Tensor, j: Tensor) -> Tensor | None:
        """Return the factor by the ranks i (a, 1) and j (1, b) only: (a, b), or None for 1."""
        return None

    def by_item(self, upper: Sequence[Tensor], lower: Sequence[Tensor]) -> Any:
        """Return the other factor, >= 0, or None for 1.

        The columns (..., a, 1) of the upper and (..., 1, b) of the lower items give (..., a, b).
        """
        return None

    def kept(self, i: Tensor, j: Tensor) -> Tensor:
        """Return True for the pairs that count: each once, if the cut keeps it: (a, b) bool."""
        once = i < j
        if self.top_k is None or self.truncation == "metric":
            return once
        return once & ((i if self.truncation == "any" else j) <= self.top_k)

    def graded(self, labels: Tensor, mask: Tensor | None) -> GradedWeights | None:
        """Return the same weights as gains and discounts, for sums in sort time, or None.

        Labels (..., n) are in the order of the list. None means that these weights have no such
        form. A subclass that overrides another method should override this one too; otherwise its
        sums go over all pairs.
        """
        return self.cut_pairs(GradedWeights()) if self.has_methods_of(PairWeights) else None

    def has_methods_of(self, kind: "type[PairWeights]") -> bool:
        """Return whether the weights are those of `kind`: no method that defines them differs."""
        names = ("columns", "by_rank", "by_item", "kept", "both_orders")
        return all(getattr(type(self), name) is getattr(kind, name) for name in names)

    def cut_pairs(self, weights: GradedWeights) -> GradedWeights:
        """Return `weights` without the pairs that "any" or "both" leaves out."""
        if self.top_k is None or self.truncation == "metric":
            return weights
        if self.truncation == "any":
            return weights._replace(upper=self.top_k)
        return weights._replace(last=self.top_k)

    def extra_repr(self) -> str:
        """Return the cut, if there is one."""
        return "" if self.top_k is None else f"top_k={self.top_k}, truncation={self.truncation!r}"


class RankedLists(NamedTuple):
    """Lists in the order of their scores, padding last: (..., n) each, 0 under the mask."""

    scores: Tensor
    labels: Tensor
    valid: Tensor | None
    weights: Tensor | None
    columns: tuple[Tensor, ...]

    def map(self, function) -> "RankedLists":
        """Return `function` of each tensor."""
        scores, labels, valid, weights, columns = self
        valid, weights = (None if x is None else function(x) for x in (valid, weights))
        columns = tuple(function(column) for column in columns)
        return RankedLists(function(scores), function(labels), valid, weights, columns)


def rank_lists(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    pair_weights: PairWeights,
    order: Tensor | None = None,
) -> RankedLists:
    """Return lists (..., n) in the order of falling scores, with the columns of the pair weights.

    Cost: one sort, or none if its result is given as `order` (..., n).
    """
    if order is None:
        order = descending_order(scores.detach(), mask)
    mask = None if mask is None else mask.gather(-1, order)
    labels = masked_fill(labels.gather(-1, order), mask)
    return RankedLists(
        masked_fill(scores.gather(-1, order), mask),
        labels,
        None if mask is None else mask.to(scores.dtype),
        None if weights is None else masked_fill(weights.gather(-1, order), mask),
        tuple(column.detach() for column in pair_weights.columns(labels, mask)),
    )


class PairSums(NamedTuple):
    """The sum of weight * cost, the sum of weights, and the slopes of a block of pairs."""

    total: Tensor  # (...)
    weight: Tensor  # (...)
    rows: Tensor | None  # (..., a), the derivative of `total` by the scores of the rows
    columns: Tensor | None  # (..., b)


def block_sums(
    cost: PairCost,
    pair_weights: PairWeights,
    lists: RankedLists,
    rows: slice,
    columns: slice,
    by_rank: Tensor,
    slopes: bool,
) -> PairSums:
    """Return the sums over the pairs of items `rows` with items `columns`, by definition.

    The sums go over pairs i < j of places in the order of the scores. With sign = 1 if item i has
    the higher label, -1 if j has it, and d = s_i - s_j, they are

        total = sum of w_ij * cost(sign * d, |y_i - y_j|),    weight = sum of w_ij

    Here w_ij is by_rank * by_item * |sign| times the item weight of the item with the higher label.
    `by_rank` (a, b) comes from `rank_matrix`. Pairs with padding have weight 0, by `valid`. Cost:
    O(a b) for each list. With slice(None) for rows and columns the result is the whole sum, and
    it is differentiable.
    """
    s, y, valid, u, items = lists
    s_i, s_j = s[..., rows, None], s[..., None, columns]
    d, difference = s_i - s_j, y[..., rows, None] - y[..., None, columns]
    gap = difference.abs() if cost.uses_gap else difference
    v = None if valid is None else valid[..., columns]
    u_i = None if u is None else u[..., rows, None]
    u_j = None if u is None else u[..., None, columns]
    upper = [column[..., rows, None] for column in items]
    lower = [column[..., None, columns] for column in items]
    by_item = pair_weights.by_item(upper, lower)
    if pair_weights.both_orders:
        above, below = (by_rank * w for w in by_item)
        if u_i is not None and u_j is not None:
            above, below = above * u_i, below * u_j
        right, slope = cost.both(d, gap, slopes)
        wrong, steeper = cost.reversed(d, gap, right, slope)
        if slope is not None and steeper is not None:
            slope = above * slope - below * steeper
        return _sums(above * right + below * wrong, above + below, slope, v)
    sign = difference.sign()
    signed = sign * by_rank
    signed = signed if by_item is None else signed * by_item
    if u_i is not None and u_j is not None:
        signed = signed * torch.where(sign > 0, u_i, u_j)
    each, slope = cost.both(sign * d, gap, slopes)
    weight = signed.abs()
    return _sums(weight * each, weight, None if slope is None else slope * signed, v)


def _sums(each: Tensor, weight: Tensor, slope: Tensor | None, valid: Tensor | None) -> PairSums:
    """Return the sums of (..., a, b). `valid` (..., b) is 0 for padding.

    Padding is last, so a pair with padding always has padding as its second item.
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
    """Return `by_rank` (a, b), with 0 for pairs that do not count, for lists of length n.

    `like` (..., n) says the length, dtype and device.
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
    """Return the sum of weight * cost and the sum of weights of each list, by definition: (...).

    This builds the n x n pairs of all lists and keeps them for the backward. `pair_sums` gives the
    same result in bounded memory.
    """
    lists = rank_lists(scores, labels, mask, weights, pair_weights)
    whole = slice(None)
    by_rank = rank_matrix(pair_weights, scores, whole, whole)
    return block_sums(cost, pair_weights, lists, whole, whole, by_rank, False)[:2]
