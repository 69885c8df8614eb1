"""Element-wise accuracy: the fraction of items in the correct position."""

from typing import Unpack

import torch
from torch import Tensor

from ltr.kernels.sorting import runs
from ltr.metrics.core import ListArguments, MetricCore, measured_by
from ltr.metrics.ranked import ListValues, Ranked, list_values
from ltr.metrics.ties import positions_of, run_sums


class ElementwiseAccuracyCore(MetricCore):
    """The arithmetic of `elementwise_accuracy`."""

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        # The padding has label 0, so it comes last or among the real items with label 0.
        due = lists.labels.sort(-1, descending=True).values
        starts, ends = runs(lists.scores, lists.mask)
        new = torch.zeros_like(lists.labels)
        new[..., 1:] = (lists.labels[..., 1:] != lists.labels[..., :-1]).to(new.dtype)
        # The first item of a run is not compared with the item before it.
        inside = positions_of(new) > starts
        mixed = run_sums(torch.where(inside, new, 0.0), starts, ends) > 0
        correct = (lists.labels == due) & ~mixed
        if lists.mask is not None:
            correct = correct & lists.mask
        values = correct.sum(-1).to(lists.scores.dtype) / lists.lengths.clamp(min=1)
        return list_values(values, lists.lengths > 0, lists, "skip")


@measured_by(ElementwiseAccuracyCore)
def elementwise_accuracy(scores: Tensor, labels: Tensor, **lists: Unpack[ListArguments]) -> Tensor:
    """Element-wise accuracy: the fraction of items in the correct position.

    A position is correct if the item at this position by score has the same label as the item at
    this position by label. Items with equal labels may be in either order. If tied items have
    different labels, none of them is in a correct position. So the value of a list is 1 if and only
    if `exact_match` is 1.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Returns:
        A scalar, or (...) with reduction="none". A list with one item, or with only equal labels,
        has the value 1. A fully masked list is left out. Cost: two sorts.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Grover, Wang, Zweig and Ermon, ICLR 2019, section 6.1; Prillo and Eisenschlos, ICML
    2020, the values in brackets in Table 1.

    >>> elementwise_accuracy(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[2.0, 1.0, 0.0]]))
    tensor(0.3333)
    """
    ...
