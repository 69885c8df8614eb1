"""Rank-biased overlap."""

from typing import Literal

import torch
from torch import Tensor

from ltr._shapes import check_top_k, count, hide, positions
from ltr.metrics.functional._lists import Empty, Reduction, check_empty, list_values, reduce_lists
from ltr.metrics.functional._ranking import Ranked, places_of, rank, ties_of
from ltr.metrics.functional.rbp import check_persistence
from ltr.operators import descending_order

RBOTies = Literal["stable", "expected"]


def check_rbo_ties(ties: RBOTies) -> RBOTies:
    """`ties` as it is, or a ValueError.

    >>> check_rbo_ties("stable")
    'stable'
    """
    if ties not in ("stable", "expected"):
        raise ValueError(f"ties must be 'stable' or 'expected', got {ties!r}")
    return ties


def rbo(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    top_k: int | None = None,
    p: float = 0.9,
    empty: Empty = 0,
    ties: RBOTies = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """Rank-biased overlap of the rankings by score and by label, extrapolated (RBO_ext).

    (1 - p) / p * sum over depths d = 1..k of A_d p^d, + A_k p^k, where A_d is the share of the
    first d items that the two rankings have in common. Over the whole list A_k is 1.

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), >= 0: the other ranking, the highest label first.
        mask: (..., n) bool, True = a real item. Default: all are real.
        top_k: the depth that is looked at; min(k, length) for a shorter list. Default: all.
        p: how likely a reader goes on to the next depth, in (0, 1).
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order, in both rankings) or "expected": the mean over all orders of
            equal scores and of equal labels, in closed form. There is no "worst".
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". All masked: no list, left out. Cost: two sorts;
        O(n k) time for "expected".

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Webber, Moffat and Zobel, "A similarity measure for indefinite rankings", TOIS 2010.

    >>> rbo(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([2.0, 1.0, 0.0]))
    tensor(1.)
    """
    check_empty(empty)
    check_top_k(top_k)
    check_persistence(p)
    check_rbo_ties(ties)
    # stable: both rankings from the list's own order, so no use of what is sorted already
    lists = rank(scores, labels, mask)
    order = descending_order(lists.labels, lists.mask)
    if ties == "stable":
        own = descending_order(hide(scores, mask), mask)
        order = descending_order(hide(labels, mask), mask)
        places = places_of(order).expand(order.shape)
        by_score = torch.empty_like(order).scatter(-1, own, places)
        by_label = torch.empty_like(order).scatter(-1, order, places)
        deeper = torch.maximum(by_score, by_label)
        new = torch.zeros_like(lists.scores, dtype=torch.float64)
        real = torch.ones_like(new) if mask is None else mask.double()
        common = new.scatter_add(-1, deeper, real).cumsum(-1)
    else:
        swapped = Ranked(lists.labels.gather(-1, order), lists.labels, lists.mask, None)
        common = _expected(lists, swapped, order)
    depth = positions(common)
    k = count(common, lists.mask)
    k = k if top_k is None else k.clamp(max=top_k)
    share = torch.where(depth <= k, common / depth, 0.0)
    powers = torch.pow(torch.full_like(depth, p), depth)
    values = (1 - p) / p * (share * powers).sum(-1)
    values = values + (torch.where(depth == k, share, 0.0) * powers).sum(-1)
    values = values.to(lists.scores.dtype)
    relevant = (lists.labels > 0).any(-1)
    return reduce_lists(list_values(values, relevant, lists.scores, lists.mask, empty), reduction)


def _expected(lists: Ranked, swapped: Ranked, order: Tensor) -> Tensor:
    """The mean number of common items at each depth, (..., n) float64.

    The two orders are drawn independently: an item of a run of ties from s to e is among the first
    d of one ranking with probability (d - s) / (e - s), in [0, 1].
    """
    starts, ends = ties_of(lists)
    label_starts, label_ends = (torch.empty_like(x).scatter(-1, order, x) for x in ties_of(swapped))
    depths = []
    for d in range(1, starts.shape[-1] + 1):
        by_score = ((d - starts).double() / (ends - starts)).clamp(0, 1)
        by_label = ((d - label_starts).double() / (label_ends - label_starts)).clamp(0, 1)
        depths.append(hide(by_score * by_label, lists.mask).sum(-1))
    return torch.stack(depths, -1) if depths else torch.zeros_like(lists.scores).double()
