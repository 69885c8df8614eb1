"""Precision, recall, hit rate and R-precision."""

from torch import Tensor

from ltr._shapes import check_top_k, count, positions
from ltr.metrics.functional._lists import Empty, Reduction, check_empty, list_values, reduce_lists
from ltr.metrics.functional._ranking import (
    Ties,
    check_ties,
    first_place,
    placed_sum,
    rank,
    within,
)


def precision(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    top_k: int | None = None,
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """Precision@k: the share of relevant items among the first k.

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), >= 0; above 0 is relevant.
        mask: (..., n) bool, True = a real item. Default: all are real.
        weights: (..., n), >= 0, of the relevant items. Default: 1.
        top_k: k, which is the divisor for a list with fewer items too, as trec_eval has it.
            Default: the length of each list.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "worst" or "expected": the mean over all orders of tied items,
            in closed form: the mean value of their places.
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". All masked: no list, left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.3.

    >>> import torch
    >>> precision(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]), top_k=2)
    tensor(0.5000)
    """
    check_empty(empty)
    check_ties(ties)
    check_top_k(top_k)
    lists = rank(scores, labels, mask, weights)
    hits = _hits(lists.labels, lists.weights)
    divisor = top_k or count(hits, lists.mask).squeeze(-1).clamp(min=1)
    values = placed_sum(within(hits, top_k), hits, lists, ties) / divisor
    return reduce_lists(
        list_values(values, hits.any(-1), lists.scores, lists.mask, empty), reduction
    )


def recall(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    top_k: int | None = None,
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """Recall@k: the share of the relevant items that stand among the first k.

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), >= 0; above 0 is relevant.
        mask: (..., n) bool, True = a real item. Default: all are real.
        weights: (..., n), >= 0, of the relevant items. Default: 1.
        top_k: k. Default: the whole list.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "worst" or "expected": the mean over all orders of tied items,
            in closed form: the mean value of their places.
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". All masked: no list, left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.3.

    >>> import torch
    >>> recall(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]), top_k=1)
    tensor(0.5000)
    """
    check_empty(empty)
    check_ties(ties)
    check_top_k(top_k)
    lists = rank(scores, labels, mask, weights)
    hits = _hits(lists.labels, lists.weights)
    total = hits.sum(-1)
    values = placed_sum(within(hits, top_k), hits, lists, ties) / total.where(total > 0, 1.0)
    return reduce_lists(list_values(values, total > 0, lists.scores, lists.mask, empty), reduction)


def hit_rate(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    top_k: int | None = None,
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """Hit rate, or success@k: whether a relevant item is among the first k.

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), >= 0; above 0 is relevant.
        mask: (..., n) bool, True = a real item. Default: all are real.
        top_k: k. Default: the whole list.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "worst" or "expected": the mean over all orders of tied items,
            in closed form: hypergeometric.
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". All masked: no list, left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.4.

    >>> import torch
    >>> hit_rate(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 2.0]), top_k=1)
    tensor(0.)
    """
    check_empty(empty)
    check_ties(ties)
    check_top_k(top_k)
    lists = rank(scores, labels, mask)
    first = first_place(lists.labels > 0, lists, ties)
    values = (first * within(first, top_k)).sum(-1)
    return reduce_lists(
        list_values(values, (lists.labels > 0).any(-1), lists.scores, lists.mask, empty), reduction
    )


def r_precision(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    top_k: int | None = None,
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """R-precision: the precision among the first R, the number of relevant items.

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), >= 0; above 0 is relevant.
        mask: (..., n) bool, True = a real item. Default: all are real.
        top_k: items behind rank k count as not relevant, R stays. Default: the whole list.
        empty: what a list without a relevant item counts: a number, "skip" or "error".
        ties: "stable" (list order), "worst" or "expected": the mean over all orders of tied items,
            in closed form: the mean value of their places.
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". All masked: no list, left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.4.

    >>> import torch
    >>> r_precision(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]))
    tensor(0.5000)
    """
    check_empty(empty)
    check_ties(ties)
    check_top_k(top_k)
    lists = rank(scores, labels, mask)
    hits = _hits(lists.labels, None)
    total = hits.sum(-1)
    first = (positions(hits) <= total.unsqueeze(-1)) * within(hits, top_k)
    values = placed_sum(first, hits, lists, ties) / total.clamp(min=1)
    return reduce_lists(list_values(values, total > 0, lists.scores, lists.mask, empty), reduction)


def _hits(labels: Tensor, weights: Tensor | None) -> Tensor:
    hits = (labels > 0).to(labels.dtype)
    return hits if weights is None else hits * weights
