"""Tied items: the runs of ties in ranked lists, and means over the orders of tied items."""

from typing import Literal

import torch
from torch import Tensor

from ltr.kernels.sorting import runs
from ltr.metrics.ranked import Ranked
from ltr.shapes import check_choice, positions

Ties = Literal["stable", "expected", "worst"]
TieOrder = Literal["stable", "worst"]
"""The ties of metrics without a closed form of the mean over all orders of tied items."""


def check_ties(ties: Ties) -> Ties:
    """Return `ties`, or raise `ValueError` if it is not an option.

    >>> check_ties("worst")
    'worst'
    """
    check_choice("ties", ties, "stable", "expected", "worst")
    return ties


def positions_of(values: Tensor) -> Tensor:
    """Return 0, 1, ..., n - 1 in the shape of `values` (..., n), int64."""
    n = values.shape[-1]
    return torch.arange(n, device=values.device).expand(values.shape)


def before(values: Tensor) -> Tensor:
    """Return the sum of the values before each position, and the total: (..., n + 1) float64."""
    total = torch.zeros(*values.shape[:-1], values.shape[-1] + 1, dtype=torch.float64)
    total = total.to(values.device)
    total[..., 1:] = values.double().cumsum(-1)
    return total


def run_sums(values: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """Return the sum of the values over the run of each position, (..., n) float64."""
    total = before(values)
    return total.gather(-1, ends) - total.gather(-1, starts)


def tied_means(values: Tensor, scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean of the values over the run of each position, (..., n), in the scores' dtype.

    >>> tied_means(torch.tensor([4.0, 2.0, 1.0]), torch.tensor([1.0, 1.0, 0.0]), None)
    tensor([3., 3., 1.])
    """
    starts, ends = runs(scores, mask)
    means = run_sums(values.expand(scores.shape), starts, ends) / (ends - starts)
    return means.to(scores.dtype)


def placed_sum(values: Tensor, gains: Tensor, ranked: Ranked, ties: Ties) -> Tensor:
    """Return the sum over items of the gain (..., n) * the position's value, (n,) or (..., n).

    "expected" gives the mean over all orders of tied items. Since the sum is linear in the values,
    it is enough to give each position of a run of ties the mean value of the run. "worst" puts tied
    items in ascending order of gain, which gives the smallest sum if the values descend.
    """
    if ties == "worst":
        gains = gains.gather(-1, ranked.tied_by(gains)[1])
    elif ties == "expected":
        values = tied_means(values, ranked.scores, ranked.mask)
    return (gains * values).sum(-1)


def first_hit(hits: Tensor, ranked: Ranked, ties: Ties) -> Tensor:
    """Return the probability that the first hit is at each position, (..., n); 0 without any hit.

    If r of g tied items are hits, the first j of the g positions have no hit with probability
    C(g - j, r) / C(g, r). This ratio is a product over the first j positions.
    """
    if ties == "worst":
        hits = hits.gather(-1, ranked.tied_by(hits.to(ranked.scores.dtype))[1])
    if ties != "expected":
        return (hits & (hits.cumsum(-1) == 1)).to(ranked.scores.dtype)
    starts, ends = runs(ranked.scores, ranked.mask)
    earlier = before(hits).gather(-1, starts)
    tied_hits = run_sums(hits, starts, ends)
    position = positions_of(hits)
    none_yet = (ends - position - tied_hits).clamp(min=0) / (ends - position).double()
    left = torch.where((earlier == 0) & (tied_hits > 0), none_yet, 1.0).cumprod(-1)
    missed = torch.cat([torch.ones_like(left[..., :1]), left], -1)
    return (missed[..., :-1] - missed[..., 1:]).to(ranked.scores.dtype)


def within(scores: Tensor, top_k: int | None) -> Tensor:
    """Return 1 at the first `top_k` positions and 0 after them, (n,)."""
    position = positions(scores)
    return torch.ones_like(position) if top_k is None else (position <= top_k).to(scores.dtype)
