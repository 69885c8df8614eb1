"""Rank-biased precision."""

import torch
from torch import Tensor

from ltr._shapes import check_top_k, positions
from ltr.metrics.functional._lists import Empty, Reduction, check_empty, list_values, reduce_lists
from ltr.metrics.functional._ranking import Ties, check_ties, placed_sum, rank, within


def rbp(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    top_k: int | None = None,
    p: float = 0.8,
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """Rank-biased precision: (1 - p) * sum over the relevant items of p^(rank - 1).

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), >= 0; above 0 is relevant.
        mask: (..., n) bool, True = a real item. Default: all are real.
        top_k: k. Default: the whole list.
        p: how likely a reader goes on to the next item, in (0, 1).
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "worst" or "expected": the mean over all orders of tied items,
            in closed form: the mean value of their places.
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". All masked: no list, left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Moffat and Zobel, "Rank-biased precision for measurement of retrieval effectiveness",
    TOIS 2008.

    >>> import torch
    >>> rbp(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 1.0]), p=0.5)
    tensor(0.6250)
    """
    check_empty(empty)
    check_ties(ties)
    check_top_k(top_k)
    check_persistence(p)
    lists = rank(scores, labels, mask)
    hits = (lists.labels > 0).to(lists.scores.dtype)
    weight = (1 - p) * torch.pow(p, positions(hits) - 1) * within(hits, top_k)
    values = placed_sum(weight, hits, lists, ties)
    return reduce_lists(
        list_values(values, hits.any(-1), lists.scores, lists.mask, empty), reduction
    )


def check_persistence(p: float) -> float:
    """`p` if it is in (0, 1), else a ValueError.

    >>> check_persistence(0.8)
    0.8
    """
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 < p < 1:
        raise ValueError(f"p must lie in (0, 1), got {p!r}")
    return float(p)
