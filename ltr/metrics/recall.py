"""Recall at k."""

from torch import Tensor

from ltr.kernels import Lengths
from ltr.metrics.base import RankingMetric
from ltr.metrics.batches import measure
from ltr.metrics.ranked import Ranked
from ltr.metrics.ties import Ties, check_ties, hits_of, placed_sum, places_in_order, within
from ltr.metrics.values import Empty, ListValues, Reduction, list_values
from ltr.shapes import check_top_k


def recall(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
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
        weights: (..., n), >= 0, weights of the relevant items. Default: 1.
        lengths: (R,) whole numbers, in place of a mask. The lists are then ragged, one after the
            other: scores (N,), and all others likewise; the result has (R,) in place of (...).
        top_k: k. Default: the whole list.
        empty: the value of a list without a relevant item: a number, "skip" or "error".
        ties: "stable" (list order), "worst" or "expected": the mean over all orders of tied items,
            in closed form: the mean value of their places.
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.3.

    >>> import torch
    >>> recall(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]), top_k=1)
    tensor(0.5000)
    """
    return measure(
        lambda lists: _recall(lists, top_k, empty, ties),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        first=places_in_order(top_k, ties),
        reduction=reduction,
    )


def _recall(lists: Ranked, top_k: int | None, empty: Empty, ties: Ties) -> ListValues:
    check_ties(ties)
    check_top_k(top_k)
    hits = hits_of(lists)
    total = hits.sum(-1)
    values = placed_sum(within(hits, top_k), hits, lists, ties) / total.where(total > 0, 1.0)
    return list_values(values, total > 0, lists, empty)


class Recall(RankingMetric):
    """Recall at k; arguments as of `functional.recall`.

    >>> import torch
    >>> Recall(top_k=2)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """

    function = staticmethod(recall)
    core = staticmethod(_recall)
    first_only = True
