"""Hit rate at k."""

from torch import Tensor

from ltr.kernels import Lengths
from ltr.metrics.base import RankingMetric
from ltr.metrics.batches import measure
from ltr.metrics.ranked import Ranked
from ltr.metrics.ties import Ties, check_ties, first_place, places_in_order, within
from ltr.metrics.values import Empty, ListValues, Reduction, list_values
from ltr.shapes import check_top_k


def hit_rate(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
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
        lengths: (R,) whole numbers, in place of a mask. The lists are then ragged, one after the
            other: scores (N,), and all others likewise; the result has (R,) in place of (...).
        top_k: k. Default: the whole list.
        empty: the value of a list without a relevant item: a number, "skip" or "error".
        ties: "stable" (list order), "worst" or "expected": the mean over all orders of tied items,
            in closed form (a hypergeometric probability).
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.4.

    >>> import torch
    >>> hit_rate(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 2.0]), top_k=1)
    tensor(0.)
    """
    return measure(
        lambda lists: _hit_rate(lists, top_k, empty, ties),
        scores,
        labels,
        mask,
        lengths=lengths,
        first=places_in_order(top_k, ties),
        reduction=reduction,
    )


def _hit_rate(lists: Ranked, top_k: int | None, empty: Empty, ties: Ties) -> ListValues:
    check_ties(ties)
    check_top_k(top_k)
    first = first_place(lists.labels > 0, lists, ties)
    values = (first * within(first, top_k)).sum(-1)
    return list_values(values, (lists.labels > 0).any(-1), lists, empty)


class HitRate(RankingMetric):
    """Hit rate, or success, at k; arguments as of `functional.hit_rate`.

    >>> import torch
    >>> HitRate(top_k=1)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.)
    """

    function = staticmethod(hit_rate)
    core = staticmethod(_hit_rate)
    first_only = True
