"""Reciprocal rank."""

from torch import Tensor

from ltr.kernels import Lengths
from ltr.metrics.base import RankingMetric
from ltr.metrics.batches import measure
from ltr.metrics.ranked import Ranked
from ltr.metrics.ties import Ties, check_ties, first_place, places_in_order, within
from ltr.metrics.values import Empty, ListValues, Reduction, list_values
from ltr.shapes import check_top_k, positions


def mrr(
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
    """Reciprocal rank: 1 / rank of the first item with a label above 0.

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), >= 0; above 0 is relevant.
        mask: (..., n) bool, True = a real item. Default: all are real.
        lengths: (R,) whole numbers, in place of a mask. The lists are then ragged, one after the
            other: scores (N,), and all others likewise; the result has (R,) in place of (...).
        top_k: k; a first relevant item below rank k counts 0. Default: the whole list.
        empty: the value of a list without a relevant item: a number, "skip" or "error".
        ties: "stable" (list order), "worst" or "expected": the mean over all orders of tied items,
            in closed form, from the distribution of the first of r relevant among g tied items.
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Voorhees, "The TREC-8 question answering track report", 1999.

    >>> import torch
    >>> mrr(torch.tensor([[3.0, 1.0, 2.0], [1.0, 2.0, 3.0]]), torch.tensor([[0, 0, 1], [0, 0, 0]]))
    tensor(0.2500)
    >>> mrr(torch.zeros(2), torch.tensor([0, 1]), ties="expected")
    tensor(0.7500)
    """
    return measure(
        lambda lists: _mrr(lists, top_k, empty, ties),
        scores,
        labels,
        mask,
        lengths=lengths,
        first=places_in_order(top_k, ties),
        reduction=reduction,
    )


def _mrr(lists: Ranked, top_k: int | None, empty: Empty, ties: Ties) -> ListValues:
    check_ties(ties)
    check_top_k(top_k)
    hits = lists.labels > 0
    if ties == "stable" and hits.shape[-1]:  # the largest hit / rank: faster than finding the first
        values = (hits * (within(lists.scores, top_k) / positions(lists.scores))).amax(-1)
    else:
        first = first_place(hits, lists, ties)
        values = (first * within(first, top_k) / positions(first)).sum(-1)
    return list_values(values, hits.any(-1), lists, empty)


class MRR(RankingMetric):
    """Mean reciprocal rank; arguments as of `functional.mrr`.

    >>> import torch
    >>> MRR()(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.5000)
    """

    function = staticmethod(mrr)
    core = staticmethod(_mrr)
    first_only = True
