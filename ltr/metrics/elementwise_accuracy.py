"""Element-wise accuracy: the share of items that stand in their place."""

import torch
from torch import Tensor

from ltr.kernels import Lengths
from ltr.metrics.base import RankingMetric
from ltr.metrics.batches import measure
from ltr.metrics.ranked import Ranked
from ltr.metrics.ties import places_of, run_sums, tied_runs
from ltr.metrics.values import ListValues, Reduction, list_values


def elementwise_accuracy(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Element-wise accuracy: the share of places whose item has the label that belongs there.

    Items are in order of the scores. Equal labels may be in either order. An item whose score is
    tied with that of another label does not count as in place. So a list has the value 1 exactly
    where `exact_match` has.

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), >= 0.
        mask: (..., n) bool, True = a real item. Default: all are real.
        lengths: (R,) whole numbers, in place of a mask. The lists are then ragged, one after the
            other: scores (N,), and all others likewise; the result has (R,) in place of (...).
        reduction: "mean" (over the lists), "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". A list of one item, or of equal labels, has the
        value 1. A fully masked list is left out. Cost: two sorts.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Grover, Wang, Zweig and Ermon, ICLR 2019, section 6.1; Prillo and Eisenschlos, ICML
    2020, the numbers in brackets of Table 1.

    >>> elementwise_accuracy(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[2.0, 1.0, 0.0]]))
    tensor(0.3333)
    """
    return measure(
        _elementwise_accuracy,
        scores,
        labels,
        mask,
        lengths=lengths,
        reduction=reduction,
    )


def _elementwise_accuracy(lists: Ranked) -> ListValues:
    # the labels of the padding are 0, so it comes last, or among real items of label 0
    due = lists.labels.sort(-1, descending=True).values
    starts, ends = tied_runs(lists.scores, lists.mask)
    new = torch.zeros_like(lists.labels)
    new[..., 1:] = (lists.labels[..., 1:] != lists.labels[..., :-1]).to(new.dtype)
    inside = places_of(new) > starts  # the first of a run is not compared with the item before it
    mixed = run_sums(torch.where(inside, new, 0.0), starts, ends) > 0
    good = (lists.labels == due) & ~mixed
    if lists.mask is not None:
        good = good & lists.mask
    values = good.sum(-1).to(lists.scores.dtype) / lists.lengths.clamp(min=1)
    return list_values(values, lists.lengths > 0, lists, "skip")


class ElementwiseAccuracy(RankingMetric):
    """The share of items that stand in their place; `functional.elementwise_accuracy`.

    >>> import torch
    >>> ElementwiseAccuracy()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 0.0, 1.0]]))
    tensor(0.3333)
    """

    function = staticmethod(elementwise_accuracy)
    core = staticmethod(_elementwise_accuracy)
