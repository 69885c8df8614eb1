"""R-precision."""

from torch import Tensor

from ltr.kernels import Lengths
from ltr.metrics.base import RankingMetric
from ltr.metrics.batches import measure
from ltr.metrics.ranked import Ranked
from ltr.metrics.ties import Ties, check_ties, hits_of, placed_sum, within
from ltr.metrics.values import Empty, ListValues, Reduction, list_values
from ltr.shapes import check_top_k, positions


def r_precision(
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
    """R-precision: the precision at rank R, where R is the number of relevant items.

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), >= 0; above 0 is relevant.
        mask: (..., n) bool, True = a real item. Default: all are real.
        lengths: (R,) whole numbers, in place of a mask. The lists are then ragged, one after the
            other: scores (N,), and all others likewise; the result has (R,) in place of (...).
        top_k: k; items below rank k count as not relevant, but R stays. Default: the whole list.
        empty: the value of a list without a relevant item: a number, "skip" or "error".
        ties: "stable" (list order), "worst" or "expected": the mean over all orders of tied items,
            in closed form: the mean value of their places.
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.4.

    >>> import torch
    >>> r_precision(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]))
    tensor(0.5000)
    """
    return measure(
        lambda lists: _r_precision(lists, top_k, empty, ties),
        scores,
        labels,
        mask,
        lengths=lengths,
        reduction=reduction,
    )


def _r_precision(lists: Ranked, top_k: int | None, empty: Empty, ties: Ties) -> ListValues:
    check_ties(ties)
    check_top_k(top_k)
    hits = hits_of(lists)
    total = hits.sum(-1)
    first = (positions(hits) <= total.unsqueeze(-1)) * within(hits, top_k)
    values = placed_sum(first, hits, lists, ties) / total.clamp(min=1)
    return list_values(values, total > 0, lists, empty)


class RPrecision(RankingMetric):
    """R-precision; arguments as of `functional.r_precision`.

    >>> import torch
    >>> RPrecision()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    tensor(0.5000)
    """

    function = staticmethod(r_precision)
    core = staticmethod(_r_precision)
