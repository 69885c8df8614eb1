"""Top-k accuracy."""

from torch import Tensor

from ltr.kernels import Lengths
from ltr.metrics.base import RankingMetric
from ltr.metrics.batches import measure
from ltr.metrics.ranked import Ranked
from ltr.metrics.ties import Ties, check_ties, first_place, within
from ltr.metrics.values import Empty, ListValues, Reduction, list_values
from ltr.shapes import check_whole, largest


def top_k_accuracy(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    top_k: int = 1,
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """Top-k accuracy: whether an item with the largest label of its list is among the first k.

    With one-hot labels the items are classes and this is a classifier's top-k accuracy.

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), >= 0. An item with the largest label counts if that label is above 0.
        mask: (..., n) bool, True = a real item. Default: all are real.
        lengths: (R,) whole numbers, in place of a mask. The lists are then ragged, one after the
            other: scores (N,), and all others likewise; the result has (R,) in place of (...).
        top_k: k.
        empty: the value of a list without a relevant item: a number, "skip" or "error".
        ties: "stable" (list order), "worst" or "expected": the mean over all orders of tied items,
            in closed form (a hypergeometric probability).
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Russakovsky et al., "ImageNet large scale visual recognition challenge", 2015.

    >>> import torch
    >>> top_k_accuracy(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 2.0, 0.0]), top_k=2)
    tensor(1.)
    """
    return measure(
        lambda lists: _top_k_accuracy(lists, top_k, empty, ties),
        scores,
        labels,
        mask,
        lengths=lengths,
        reduction=reduction,
    )


def _top_k_accuracy(lists: Ranked, top_k: int, empty: Empty, ties: Ties) -> ListValues:
    check_ties(ties)
    check_whole("top_k", top_k)
    best = (lists.labels > 0) & (lists.labels == largest(lists.labels).unsqueeze(-1))
    first = first_place(best, lists, ties)
    values = (first * within(first, top_k)).sum(-1)
    return list_values(values, best.any(-1), lists, empty)


class TopKAccuracy(RankingMetric):
    """Top-k accuracy; arguments as of `functional.top_k_accuracy`.

    >>> import torch
    >>> TopKAccuracy()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(1.)
    """

    function = staticmethod(top_k_accuracy)
    core = staticmethod(_top_k_accuracy)
