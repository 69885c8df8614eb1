"""Exact match: the fraction of lists whose whole order is correct."""

from typing import Unpack

from torch import Tensor

from ltr.metrics.core import ListArguments, MetricCore, measured_by
from ltr.metrics.ranked import ListValues, Ranked, list_values


class ExactMatchCore(MetricCore):
    """The arithmetic of `exact_match`."""

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        higher, lower = lists.labels[..., :-1], lists.labels[..., 1:]
        parted = (higher > lower) & (lists.scores[..., :-1] > lists.scores[..., 1:])
        in_order = (higher == lower) | parted
        if lists.mask is not None:
            in_order = in_order | ~lists.mask[..., 1:]
        values = in_order.all(-1).to(lists.scores.dtype)
        return list_values(values, lists.lengths > 0, lists, "skip")


@measured_by(ExactMatchCore)
def exact_match(scores: Tensor, labels: Tensor, **lists: Unpack[ListArguments]) -> Tensor:
    """Exact match: whether every item is above all items with a lower label.

    Items with equal labels may be in either order.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        scores: (..., n), not NaN. A tie between items with different labels is not a match.

    Returns:
        A scalar, or (...) of 0 and 1 with reduction="none". A list with one item, or with only
        equal labels, has the value 1. A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    >>> import torch
    >>> exact_match(torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]]),
    ...             torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 2.0]]))
    tensor(0.5000)
    """
    ...
