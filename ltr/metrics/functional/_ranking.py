"""Lists in ranked order, their ties, and what an item gets on the mean over orders of ties."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ltr._shapes import check_lists, positions
from ltr.metrics.functional._lists import check_values
from ltr.metrics.functional._scope import scope
from ltr.operators import descending_order

Ties = Literal["stable", "expected", "worst"]


def check_ties(ties: Ties) -> Ties:
    """`ties` as it is, or a ValueError.

    >>> check_ties("worst")
    'worst'
    """
    if ties not in ("stable", "expected", "worst"):
        raise ValueError(f"ties must be 'stable', 'expected' or 'worst', got {ties!r}")
    return ties


class Ranked(NamedTuple):
    """Lists in order of falling score, padding last: (..., n) each.

    Attributes:
        scores: falling; 0 in the padding.
        labels: of the items in this order, in the dtype of the scores; 0 in the padding.
        mask: the places that hold an item; None if all do.
        weights: in this order, 0 in the padding; None if there are none.
    """

    scores: Tensor
    labels: Tensor
    mask: Tensor | None
    weights: Tensor | None

    def reorder(self, order: Tensor) -> "Ranked":
        """The places in another order; the mask stays, so no item may go into the padding."""
        weights = None if self.weights is None else self.weights.gather(-1, order)
        scores, labels = self.scores.gather(-1, order), self.labels.gather(-1, order)
        return Ranked(scores, labels, self.mask, weights)

    def by_value(self, values: Tensor, descending: bool = False) -> tuple["Ranked", Tensor]:
        """Tied items by rising (falling) value, and the order that does it. Two sorts."""
        first = values.sort(dim=-1, descending=descending, stable=True).indices
        mask = None if self.mask is None else self.mask.gather(-1, first)
        order = first.gather(-1, descending_order(self.scores.gather(-1, first), mask))
        return self.reorder(order), order


def rank(
    scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None = None
) -> Ranked:
    """Check the lists and put them in ranked order, tied items in list order. One sort.

    Raises:
        ValueError: as `check_values`; a real weight is NaN, infinite or negative.

    >>> rank(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([5, 6, 7]), None).labels
    tensor([6., 7., 5.])
    """
    ready = scope.ranked
    if (
        ready is not None
        and scores is ready.scores
        and labels is ready.labels
        and mask is ready.mask
        and weights is ready.weights
    ):
        return ready
    check_lists(scores, labels=labels, mask=mask, weights=weights)
    scores, labels = check_values(scores, labels, mask)
    if weights is not None:
        weights = check_weights(weights, scores, mask)
    order = descending_order(scores, mask)
    real = None if mask is None else mask.gather(-1, order)
    weights = None if weights is None else weights.gather(-1, order)
    return Ranked(scores.gather(-1, order), labels.gather(-1, order), real, weights)


def check_weights(weights: Tensor, scores: Tensor, mask: Tensor | None) -> Tensor:
    """Weights in the dtype of the scores, 0 under the mask; a ValueError unless finite, >= 0."""
    weights = weights.to(scores.dtype)
    weights = weights if mask is None else torch.where(mask, weights, 0.0)
    bad = ~(weights.isfinite() & (weights >= 0))
    if bad.any():
        raise ValueError(f"weights must be finite and >= 0, got {weights[bad][0].item():g}")
    return weights


def places_of(values: Tensor) -> Tensor:
    """0, 1, ..., n - 1 in the shape of `values` (..., n), int64."""
    n = values.shape[-1]
    return torch.arange(n, device=values.device).expand(values.shape)


def runs(*columns: Tensor) -> tuple[Tensor, Tensor]:
    """First place of each place's run of equal values, and the one after its last: (..., n) int64.

    >>> runs(torch.tensor([5.0, 5.0, 2.0]))
    (tensor([0, 0, 2]), tensor([2, 2, 3]))
    """
    place = places_of(columns[0])
    n = place.shape[-1]
    if n == 0:
        return place, place
    new = torch.ones_like(columns[0], dtype=torch.bool)
    new[..., 1:] = False
    for column in columns:
        new[..., 1:] |= column[..., 1:] != column[..., :-1]
    starts = torch.where(new, place, 0).cummax(-1).values
    following = torch.where(new, place, n).roll(-1, -1)
    following[..., -1] = n
    ends = following.flip(-1).cummin(-1).values.flip(-1)
    return starts, ends


def ties_of(ranked: Ranked) -> tuple[Tensor, Tensor]:
    """`runs` of equal scores; the padding is a run of its own."""
    if ranked.mask is None:
        return runs(ranked.scores)
    return runs(ranked.scores, ranked.mask)


def before(values: Tensor) -> Tensor:
    """Sums of the places before each, and of all: (..., n) -> (..., n + 1) float64."""
    total = torch.zeros(*values.shape[:-1], values.shape[-1] + 1, dtype=torch.float64)
    total = total.to(values.device)
    total[..., 1:] = values.double().cumsum(-1)
    return total


def run_sums(values: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """The sum over each place's run, (..., n) float64."""
    total = before(values)
    return total.gather(-1, ends) - total.gather(-1, starts)


def run_means(values: Tensor, ranked: Ranked) -> Tensor:
    """The mean over the items tied with each, (..., n), in the dtype of the scores.

    >>> lists = rank(torch.tensor([1.0, 1.0, 0.0]), torch.zeros(3), None)
    >>> run_means(torch.tensor([4.0, 2.0, 1.0]), lists)
    tensor([3., 3., 1.])
    """
    starts, ends = ties_of(ranked)
    means = run_sums(values.expand(ranked.scores.shape), starts, ends) / (ends - starts)
    return means.to(ranked.scores.dtype)


def placed_sum(values: Tensor, gains: Tensor, ranked: Ranked, ties: Ties) -> Tensor:
    """Sum over the items of gain (..., n) * the value of the place, (n,) or (..., n).

    Linear in both, so the mean over all orders of tied items has the mean value of their places.
    "worst" puts tied items by rising gain, which is the least sum for falling values.
    """
    if ties == "worst":
        gains = gains.gather(-1, ranked.by_value(gains)[1])
    elif ties == "expected":
        values = run_means(values, ranked)
    return (gains * values).sum(-1)


def first_place(hits: Tensor, ranked: Ranked, ties: Ties) -> Tensor:
    """(..., n) how likely the first hit stands at each place; all 0 for a list without a hit.

    Of g tied items with r hits none is among the first j with probability C(g - j, r) / C(g, r),
    a product over the places.
    """
    if ties == "worst":
        hits = hits.gather(-1, ranked.by_value(hits.to(ranked.scores.dtype))[1])
    if ties != "expected":
        return (hits & (hits.cumsum(-1) == 1)).to(ranked.scores.dtype)
    starts, ends = ties_of(ranked)
    earlier = before(hits).gather(-1, starts)
    found = run_sums(hits, starts, ends)
    place = places_of(hits)
    none_yet = (ends - place - found).clamp(min=0) / (ends - place).double()
    left = torch.where((earlier == 0) & (found > 0), none_yet, 1.0).cumprod(-1)
    missed = torch.cat([torch.ones_like(left[..., :1]), left], -1)
    return (missed[..., :-1] - missed[..., 1:]).to(ranked.scores.dtype)


def within(scores: Tensor, top_k: int | None) -> Tensor:
    """(n,) 1 at the first k places, 0 behind them."""
    place = positions(scores)
    return torch.ones_like(place) if top_k is None else (place <= top_k).to(scores.dtype)
