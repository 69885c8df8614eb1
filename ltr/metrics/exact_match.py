"""Exact match: the fraction of lists whose whole order is correct."""

from typing import Unpack

from torch import Tensor

from ltr.kernels.lists import Lengths
from ltr.metrics.base import Options, RankingMetric
from ltr.metrics.batches import Batch
from ltr.metrics.ranked import Ranked
from ltr.metrics.values import ListValues, Reduction, list_values


def exact_match(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    qid: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Exact match: whether every item is above all items with a lower label.

    Equal labels may be in either order.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        scores: (..., n), not NaN. A tie between different labels is not a match.

    Returns:
        A scalar, or (...) of 0 and 1 with reduction="none". A list of one item, or of equal labels,
        has the value 1. A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    >>> import torch
    >>> exact_match(torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]]),
    ...             torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 2.0]]))
    tensor(0.5000)
    """
    batch = Batch(scores, labels, mask, lengths=lengths, qid=qid)
    return batch.measure(_exact_match, reduction)


def _exact_match(lists: Ranked) -> ListValues:
    higher, lower = lists.labels[..., :-1], lists.labels[..., 1:]
    parted = (higher > lower) & (lists.scores[..., :-1] > lists.scores[..., 1:])
    good = (higher == lower) | parted
    if lists.mask is not None:
        good = good | ~lists.mask[..., 1:]
    values = good.all(-1).to(lists.scores.dtype)
    return list_values(values, lists.lengths > 0, lists, "skip")


class ExactMatch(RankingMetric):
    """Exact match: the fraction of lists whose whole order is correct.

    The arguments are those of `functional.exact_match`.

    >>> import torch
    >>> ExactMatch()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 0.0, 0.0]]))
    tensor(1.)
    """

    function = staticmethod(exact_match)
    core = staticmethod(_exact_match)

    def __init__(self, **options: Unpack[Options]):
        super().__init__(**options)
