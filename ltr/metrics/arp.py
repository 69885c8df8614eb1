"""Average relevance position."""

from typing import Unpack

from torch import Tensor

from ltr.kernels.lists import Lengths
from ltr.metrics.base import Options, RankingMetric
from ltr.metrics.batches import Batch
from ltr.metrics.ranked import Ranked
from ltr.metrics.ties import Ties, check_ties, placed_sum
from ltr.metrics.values import Empty, ListValues, Reduction, list_values
from ltr.shapes import positions


def arp(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    qid: Tensor | None = None,
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """Average relevance position: the mean rank, weighted by the labels. Lower is better.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        weights: (..., n), >= 0, factors of the labels. Default: 1.
        ties: "stable" (list order), "worst" (largest) or "expected": the mean over all orders of
            tied items, in closed form: the mean value of their positions.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Wang et al., "Learning to rank with selection bias in personal search", SIGIR 2016.

    >>> import torch
    >>> arp(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 1.0]))
    tensor(2.)
    """
    batch = Batch(scores, labels, mask, weights, lengths=lengths, qid=qid)
    return batch.measure(lambda lists: _arp(lists, empty, ties), reduction)


def _arp(lists: Ranked, empty: Empty, ties: Ties) -> ListValues:
    check_ties(ties)
    gains = lists.labels if lists.weights is None else lists.labels * lists.weights
    total = gains.sum(-1)
    values = placed_sum(positions(gains), gains, lists, ties) / total.where(total > 0, 1.0)
    return list_values(values, total > 0, lists, empty)


class ARP(RankingMetric):
    """Average relevance position: the mean rank of the relevant items. Lower is better.

    The arguments are those of `functional.arp`.

    >>> import torch
    >>> ARP()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(2.)
    """

    function = staticmethod(arp)
    core = staticmethod(_arp)
    takes_weights = True
    higher_is_better = False

    def __init__(
        self,
        empty: Empty = 0,
        ties: Ties = "stable",
        **options: Unpack[Options],
    ):
        super().__init__(empty=empty, ties=ties, **options)
