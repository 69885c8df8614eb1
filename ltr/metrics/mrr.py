"""Reciprocal rank."""

from typing import Unpack

from torch import Tensor

from ltr.metrics.core import BinaryArguments, BinaryCore, measured_by
from ltr.metrics.ranked import ListValues, Ranked, list_values
from ltr.metrics.ties import first_hit, within
from ltr.shapes import positions


class MRRCore(BinaryCore):
    """The arithmetic of `mrr`."""

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        hits = lists.relevant(self.relevant_from)
        if self.ties == "stable" and hits.shape[-1]:  # the first hit has the largest 1 / rank
            values = (hits * (within(lists.scores, self.top_k) / positions(lists.scores))).amax(-1)
        else:
            first = first_hit(hits, lists, self.ties)
            values = (first * within(first, self.top_k) / positions(first)).sum(-1)
        return list_values(values, hits.any(-1), lists, self.empty)


@measured_by(MRRCore)
def mrr(scores: Tensor, labels: Tensor, **shared: Unpack[BinaryArguments]) -> Tensor:
    """Reciprocal rank: 1 / rank of the first relevant item.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        top_k: k; the value is 0 if the first relevant item is below rank k. Default: the whole
            list.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Voorhees, "The TREC-8 question answering track report", 1999.

    >>> import torch
    >>> mrr(torch.tensor([[3.0, 1.0, 2.0], [1.0, 2.0, 3.0]]), torch.tensor([[0, 0, 1], [0, 0, 0]]))
    tensor(0.2500)
    >>> mrr(torch.zeros(2), torch.tensor([0, 1]), ties="expected")
    tensor(0.7500)
    """
    ...
