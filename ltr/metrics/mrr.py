"""Reciprocal rank."""

from typing import Unpack

from torch import Tensor

from ltr.kernels.lists import Lengths
from ltr.metrics.base import Options, RankingMetric
from ltr.metrics.batches import Batch
from ltr.metrics.ranked import Ranked
from ltr.metrics.ties import Ties, check_ties, first_hit, first_in_order, within
from ltr.metrics.values import Empty, ListValues, Reduction, list_values
from ltr.shapes import check_top_k, positions


def mrr(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    qid: Tensor | None = None,
    top_k: int | None = None,
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """Reciprocal rank: 1 / rank of the first item with a label above 0.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        top_k: k; a first relevant item below rank k counts 0. Default: the whole list.

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
    first = first_in_order(top_k, ties)
    batch = Batch(scores, labels, mask, lengths=lengths, qid=qid, first=first)
    return batch.measure(lambda lists: _mrr(lists, top_k, empty, ties), reduction)


def _mrr(lists: Ranked, top_k: int | None, empty: Empty, ties: Ties) -> ListValues:
    check_ties(ties)
    check_top_k(top_k)
    hits = lists.labels > 0
    if ties == "stable" and hits.shape[-1]:  # the largest hit / rank: faster than finding the first
        values = (hits * (within(lists.scores, top_k) / positions(lists.scores))).amax(-1)
    else:
        first = first_hit(hits, lists, ties)
        values = (first * within(first, top_k) / positions(first)).sum(-1)
    return list_values(values, hits.any(-1), lists, empty)


class MRR(RankingMetric):
    """Mean reciprocal rank: the mean of 1 / rank of the first relevant item.

    The arguments are those of `functional.mrr`.

    >>> import torch
    >>> MRR()(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.5000)
    """

    function = staticmethod(mrr)
    core = staticmethod(_mrr)
    first_only = True

    def __init__(
        self,
        top_k: int | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        **options: Unpack[Options],
    ):
        super().__init__(top_k=top_k, empty=empty, ties=ties, **options)
