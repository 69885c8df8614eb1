"""Sums over the pairs of a list: what a pair costs, what it counts, and the plain definition."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ltr._shapes import check_top_k, masked_fill, positions
from ltr.kernels import descending_order
from ltr.kernels.pairs import GradedWeights

Truncation = Literal["metric", "any", "both"]


class PairCost(nn.Module):
    """What one pair costs, cost(t, gap), and its slope in t.

    t is the score of the item with the higher label minus that of the other, gap > 0 the
    difference of their labels. Both methods are elementwise and finite for any finite t.
    """

    uses_gap: bool = True
    """False: the cost does not look at `gap`, which then need not be right."""

    @property
    def logistic_temperature(self) -> float | None:
        """tau, of a cost that is log(1 + exp(-t / tau)): its sums can take sort time."""
        return None

    def forward(self, t: Tensor, gap: Tensor) -> Tensor:
        """The cost of each pair."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def slope(self, t: Tensor, gap: Tensor) -> Tensor:
        """Its derivative in t, itself made of differentiable operations."""
        raise NotImplementedError(f"{type(self).__name__} must define slope")

    def both(self, t: Tensor, gap: Tensor, slopes: bool) -> tuple[Tensor, Tensor | None]:
        """The cost and, if `slopes`, the slope, for a cost that gets them cheaper together."""
        return self(t, gap), self.slope(t, gap) if slopes else None

    def reversed(
        self, t: Tensor, gap: Tensor, cost: Tensor, slope: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """`both` at -t, for a cost that gets them cheaper from those at t, which is >= 0."""
        return self.both(-t, gap, slope is not None)


class PairWeights(nn.Module):
    """What a pair counts, from the labels and from the ranks that the scores give now.

    The items come in the order of their scores, the highest first (ties in the order of the
    list), so an item's place is its rank. A pair (i, j) has i < j; its weight is
    `by_rank` times `by_item`, and 0 for equal labels, whatever those say. Weights have no
    gradient. A subclass defines one of the two methods, or both.

    Args:
        top_k: cut at rank k. Default: none.
        truncation: how, where `top_k` is given. "metric": the weights of the metric at k, as the
            subclass says; "any": as without a cut, for the pairs with an item among the first k;
            "both": for the pairs with both there.

    Raises:
        ValueError: top_k or truncation is none of these.

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
    """True: `by_item` gives two weights, of "the upper item should be above" and of "the lower
    one should"; every pair then counts in both orders, that of equal labels too."""

    def __init__(self, top_k: int | None = None, truncation: Truncation = "metric"):
        super().__init__()
        self.top_k = check_top_k(top_k)
        if truncation not in ("metric", "any", "both"):
            raise ValueError(f"truncation must be 'metric', 'any' or 'both', got {truncation!r}")
        self.truncation: Truncation = truncation

    @property
    def metric_k(self) -> int | None:
        """`top_k` where it is the metric that is cut, else None."""
        return self.top_k if self.truncation == "metric" else None

    def columns(self, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        """What `by_item` needs of each item, (..., n) each; labels are 0 under the mask."""
        return ()

    def by_rank(self, i: Tensor, j: Tensor) -> Tensor | None:
        """The part that the ranks i (a, 1) and j (1, b) alone decide: (a, b); None for 1."""
        return None

    def by_item(self, upper: Sequence[Tensor], lower: Sequence[Tensor]) -> Any:
        """The rest, >= 0: columns (..., a, 1) and (..., 1, b) -> (..., a, b); None for 1."""
        return None

    def kept(self, i: Tensor, j: Tensor) -> Tensor:
        """Each pair once, and of those what "any" or "both" leaves: (a, b) bool."""
        once = i < j
        if self.top_k is None or self.truncation == "metric":
            return once
        return once & ((i if self.truncation == "any" else j) <= self.top_k)

    def graded(self, labels: Tensor, mask: Tensor | None) -> GradedWeights | None:
        """The same weights as gains and discounts, for the sums in sort time; None for none such.

        Labels (..., n) in the order of the list. What overrides another method overrides this one
        too, or its sums are those over all pairs.
        """
        return self.cut_pairs(GradedWeights()) if self.has_methods_of(PairWeights) else None

    def has_methods_of(self, kind: "type[PairWeights]") -> bool:
        """Whether the weights are still those of that class: no method of it is overridden."""
        names = ("columns", "by_rank", "by_item", "kept", "both_orders")
        return all(getattr(type(self), name) is getattr(kind, name) for name in names)

    def cut_pairs(self, weights: GradedWeights) -> GradedWeights:
        """Those weights, without the pairs that "any" or "both" leaves out."""
        if self.top_k is None or self.truncation == "metric":
            return weights
        if self.truncation == "any":
            return weights._replace(upper=self.top_k)
        return weights._replace(last=self.top_k)

    def extra_repr(self) -> str:
        """The cut, where there is one."""
        return "" if self.top_k is None else f"top_k={self.top_k}, truncation={self.truncation!r}"


class RankedLists(NamedTuple):
    """Lists in the order of their scores, padding last: (..., n) each, 0 under the mask."""

    scores: Tensor
    labels: Tensor
    valid: Tensor | None
    weights: Tensor | None
    columns: tuple[Tensor, ...]

    def map(self, function) -> "RankedLists":
        """The same of each tensor."""
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
    """Lists (..., n) by falling score, with the columns that the pair weights need.

    One sort, or none where `order` (..., n) is its result.
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
    """Sums over a block of pairs: of weight * cost, of the weights, and the slopes."""

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
    """The plain definition, for the pairs of items `rows` with items `columns`.

    Over pairs i < j of places in the order of the scores, with sign = 1 where item i has the
    higher label, -1 where j has, and d = s_i - s_j,

        total = sum of w_ij * cost(sign * d, |y_i - y_j|),    weight = sum of w_ij

    where w_ij = by_rank * by_item * |sign|, times the item weight of the one with the higher
    label. `by_rank` (a, b) is `rank_matrix`'s. A pair with padding counts 0 by `valid`. O(a b) a
    list. With rows and columns slice(None) it is the whole sum, and differentiable.
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
    """Sums of (..., a, b); `valid` (..., b) is 0 for padding, which no row but padding precedes."""
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
    """`by_rank` of each kept pair (a, b), for lists such as `like` (..., n)."""
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
    """The plain definition of a list's two sums, (...) each: of weight * cost, and of weights.

    It builds the n x n pairs of all lists and keeps them for the backward; `pair_sums` gives the
    same in bounded memory.
    """
    lists = rank_lists(scores, labels, mask, weights, pair_weights)
    whole = slice(None)
    by_rank = rank_matrix(pair_weights, scores, whole, whole)
    return block_sums(cost, pair_weights, lists, whole, whole, by_rank, False)[:2]
