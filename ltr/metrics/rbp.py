"""Rank-biased precision."""

from typing import Literal, Unpack

import torch
from torch import Tensor

from ltr.gains import stop_probabilities
from ltr.kernels.lists import Lengths
from ltr.metrics.base import Options, RankingMetric
from ltr.metrics.batches import Batch
from ltr.metrics.ranked import Ranked, check_max_label
from ltr.metrics.ties import Ties, check_ties, placed_sum, within
from ltr.metrics.values import Empty, ListValues, Reduction, list_values
from ltr.shapes import check_persistence, check_top_k, largest, positions

RBPGain = Literal["binary", "linear", "exp2"]


def rbp(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    qid: Tensor | None = None,
    top_k: int | None = None,
    p: float = 0.8,
    gain: RBPGain = "binary",
    max_label: float | None = None,
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """Rank-biased precision: the gain per item for a reader who continues with probability p.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        top_k: k. Default: the whole list.
        p: the probability that a reader continues to the next item, in (0, 1).
        gain: "binary", 1 for a relevant item; or graded, in [0, 1]: "linear", label / max_label,
            or "exp2", (2^label - 1) / 2^max_label as in ERR.
        max_label: the highest grade of the scale, for a graded gain; a label above it is an error.
            Default: the largest label of each list.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Moffat and Zobel, "Rank-biased precision for measurement of retrieval effectiveness",
    TOIS 2008.

    >>> import torch
    >>> rbp(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 1.0]), p=0.5)
    tensor(0.6250)
    """
    batch = Batch(scores, labels, mask, lengths=lengths, qid=qid)
    return batch.measure(
        lambda lists: _rbp(lists, top_k, p, gain, max_label, empty, ties), reduction
    )


def _rbp(
    lists: Ranked,
    top_k: int | None,
    p: float,
    gain: RBPGain,
    max_label: float | None,
    empty: Empty,
    ties: Ties,
) -> ListValues:
    check_ties(ties)
    check_top_k(top_k)
    check_persistence(p)
    if gain != "binary":
        lists = check_max_label(max_label, lists)
    gains = _rbp_gains(lists, gain, max_label)
    weight = (1 - p) * torch.pow(p, positions(gains) - 1) * within(gains, top_k)
    values = placed_sum(weight, gains, lists, ties)
    return list_values(values, (lists.labels > 0).any(-1), lists, empty)


class RBP(RankingMetric):
    """Rank-biased precision: the gain per item for a reader who continues with probability p.

    The arguments are those of `functional.rbp`.

    >>> import torch
    >>> RBP(p=0.5)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(0.6250)
    """

    function = staticmethod(rbp)
    core = staticmethod(_rbp)

    def __init__(
        self,
        top_k: int | None = None,
        p: float = 0.8,
        gain: RBPGain = "binary",
        max_label: float | None = None,
        empty: Empty = 0,
        ties: Ties = "stable",
        **options: Unpack[Options],
    ):
        super().__init__(
            top_k=top_k, p=p, gain=gain, max_label=max_label, empty=empty, ties=ties, **options
        )


def _rbp_gains(lists: Ranked, gain: RBPGain, max_label: float | None) -> Tensor:
    if gain not in ("binary", "linear", "exp2"):
        raise ValueError(f"gain must be 'binary', 'linear' or 'exp2', got {gain!r}")
    if gain == "binary":
        return (lists.labels > 0).to(lists.scores.dtype)
    if gain == "exp2":
        return stop_probabilities(lists.labels, lists.mask, max_label)
    if max_label is not None:
        return lists.labels / max_label
    top = largest(lists.labels).unsqueeze(-1)
    return lists.labels / top.where(top > 0, 1.0)
