"""Average relevance position."""

from typing import Unpack

from torch import Tensor

from ltr.metrics.core import EmptyCore, TiesArguments, TiesCore, measured_by
from ltr.metrics.ranked import ListValues, Ranked, list_values
from ltr.metrics.ties import placed_sum
from ltr.shapes import positions


class ARPCore(TiesCore, EmptyCore):
    """The arithmetic of `arp`."""

    takes_weights = True
    higher_is_better = False

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        gains = lists.labels if lists.weights is None else lists.labels * lists.weights
        total = gains.sum(-1)
        values = placed_sum(positions(gains), gains, lists, self.ties) / total.where(total > 0, 1.0)
        return list_values(values, total > 0, lists, self.empty)


@measured_by(ARPCore)
def arp(scores: Tensor, labels: Tensor, **shared: Unpack[TiesArguments]) -> Tensor:
    """Average relevance position: the mean rank, weighted by the labels. Lower is better.

    `ltr.metrics.functional` describes the arguments that all metrics share.
    The weights multiply the labels.

    Args:
        ties: "stable" (in list order), "worst" (in the order with the largest value) or "expected"
            (the mean over all orders of tied items: each tied item counts at the mean of the tied
            positions).

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Wang et al., "Learning to rank with selection bias in personal search", SIGIR 2016.

    >>> import torch
    >>> arp(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 1.0]))
    tensor(2.)
    """
    ...
