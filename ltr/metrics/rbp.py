"""Rank-biased precision."""

from typing import Literal, Unpack

import torch
from torch import Tensor

from ltr.gains import stop_probabilities
from ltr.metrics.base import CutoffMetric, ListArguments, Options
from ltr.metrics.ranked import Ranked, check_labels, check_max_label
from ltr.metrics.ties import Ties, placed_sum, within
from ltr.metrics.values import Empty, ListValues, list_values
from ltr.shapes import check_choice, check_persistence, largest, positions

RBPGain = Literal["binary", "linear", "exp2"]


class RBP(CutoffMetric):
    """Rank-biased precision: the gain per item for a reader who continues with probability p.

    The arguments are those of `functional.rbp`.

    >>> import torch
    >>> RBP(p=0.5)(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    tensor(0.6250)
    """

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
        self.p = check_persistence(p)
        check_choice("gain", gain, "binary", "linear", "exp2")
        self.gain: RBPGain = gain
        self.max_label = check_max_label(max_label)
        super().__init__(top_k, empty, ties, **options)

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        if self.gain != "binary":
            lists = check_labels(lists, self.max_label)
        gains = self._gains(lists)
        weight = (1 - self.p) * torch.pow(self.p, positions(gains) - 1) * within(gains, self.top_k)
        values = placed_sum(weight, gains, lists, self.ties)
        return list_values(values, (lists.labels > 0).any(-1), lists, self.empty)

    def _gains(self, lists: Ranked) -> Tensor:
        if self.gain == "binary":
            return (lists.labels > 0).to(lists.scores.dtype)
        if self.gain == "exp2":
            return stop_probabilities(lists.labels, lists.mask, self.max_label)
        if self.max_label is not None:
            return lists.labels / self.max_label
        top = largest(lists.labels).unsqueeze(-1)
        return lists.labels / top.where(top > 0, 1.0)


def rbp(
    scores: Tensor,
    labels: Tensor,
    *,
    top_k: int | None = None,
    p: float = 0.8,
    gain: RBPGain = "binary",
    max_label: float | None = None,
    empty: Empty = 0,
    ties: Ties = "stable",
    **lists: Unpack[ListArguments],
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
    metric = RBP(top_k, p, gain, max_label, empty, ties, running=False)
    return metric.measure(scores, labels, **lists)
