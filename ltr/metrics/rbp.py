"""Rank-biased precision, and its residual: how much unjudged items could add to it."""

from typing import Literal, Unpack

import torch
from torch import Tensor

from ltr.gains import stop_probabilities
from ltr.metrics.core import (
    BinaryArguments,
    BinaryCore,
    CutoffCore,
    ListArguments,
    measured_by,
)
from ltr.metrics.ranked import ListValues, Ranked, check_labels, list_values
from ltr.metrics.ties import Ties, placed_sum, within
from ltr.shapes import (
    check_choice,
    check_fraction,
    check_positive,
    largest,
    masked_fill,
    positions,
)

RBPGain = Literal["binary", "linear", "exp2"]


class RBPCore(BinaryCore):
    """The arithmetic of `rbp`."""

    p: float = 0.8
    gain: RBPGain = "binary"
    max_label: float | None = None

    def __post_init__(self) -> None:
        self.p = check_fraction("p", self.p)
        check_choice("gain", self.gain, "binary", "linear", "exp2")
        self.max_label = check_positive("max_label", self.max_label)
        super().__post_init__()

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        if self.gain != "binary":
            lists = check_labels(lists, self.max_label)
        gains = self._gains(lists)
        weight = (1 - self.p) * torch.pow(self.p, positions(gains) - 1) * within(gains, self.top_k)
        values = placed_sum(weight, gains, lists, self.ties)
        relevant = lists.relevant(self.relevant_from).any(-1)
        return list_values(values, relevant, lists, self.empty)

    def _gains(self, lists: Ranked) -> Tensor:
        hits = self.hits(lists)
        if self.gain == "binary":
            return hits
        if self.gain == "exp2":
            return hits * stop_probabilities(lists.labels, lists.mask, self.max_label)
        if self.max_label is not None:
            return hits * lists.labels / self.max_label
        top = largest(lists.labels).unsqueeze(-1)
        return hits * lists.labels / top.where(top > 0, 1.0)


@measured_by(RBPCore)
def rbp(
    scores: Tensor,
    labels: Tensor,
    *,
    p: float = 0.8,
    gain: RBPGain = "binary",
    max_label: float | None = None,
    **shared: Unpack[BinaryArguments],
) -> Tensor:
    """Rank-biased precision: the mean gain per item of a reader who continues with probability p.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        top_k: k. Default: the whole list.
        p: the probability that a reader continues to the next item, in (0, 1).
        gain: "binary" is 1 for a relevant item. Two graded gains are in [0, 1]: "linear" is
            label / max_label, and "exp2" is (2^label - 1) / 2^max_label, as in ERR.
        relevant_from: the least label of a relevant item, > 0. An item with a lower label has the
            gain 0, even with a graded gain. Default: any label above 0.
        max_label: the highest grade of the scale, for a graded gain; a label above it is an error.
            Default: the largest label of each list.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Moffat and Zobel, "Rank-biased precision for measurement of retrieval effectiveness",
    TOIS 2008.

    >>> import torch
    >>> rbp(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 1.0]), p=0.5)
    tensor(0.6250)
    """
    ...


class RBPResidualCore(CutoffCore):
    """The arithmetic of `rbp_residual`."""

    higher_is_better = False

    p: float = 0.8

    def __post_init__(self) -> None:
        self.p = check_fraction("p", self.p)
        super().__post_init__()

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        judged = torch.ones_like(lists.scores)
        judged = judged if lists.judged is None else lists.judged.to(judged.dtype)
        judged = masked_fill(judged, lists.mask)
        weight = (1 - self.p) * torch.pow(self.p, positions(judged) - 1)
        known = placed_sum(weight * within(judged, self.top_k), judged, lists, self.ties)
        return list_values(1 - known, torch.ones_like(known, dtype=torch.bool), lists, "skip")


@measured_by(RBPResidualCore)
def rbp_residual(
    scores: Tensor,
    labels: Tensor,
    *,
    judged: Tensor | None = None,
    top_k: int | None = None,
    p: float = 0.8,
    ties: Ties = "stable",
    **lists: Unpack[ListArguments],
) -> Tensor:
    """The residual of rank-biased precision: the weight of the positions without a judged item.

    If no unjudged item is relevant, the rank-biased precision is `rbp`. If all unjudged items are
    relevant, it is `rbp` + residual. The positions after the end of the list, and after k, count as
    not judged: if all n items are judged, the residual is p^n. Lower is better. The labels do not
    matter.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        judged: (..., n) bool, True = a judged item. Default: all are judged.
        top_k: k, as in `rbp`. Default: the whole list.
        p: the probability that a reader continues to the next item, in (0, 1), as in `rbp`.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Moffat and Zobel, "Rank-biased precision for measurement of retrieval effectiveness",
    TOIS 2008, section 4.

    >>> import torch
    >>> judged = torch.tensor([True, False, True])
    >>> rbp_residual(torch.tensor([3.0, 2.0, 1.0]), torch.ones(3), judged=judged, p=0.5)
    tensor(0.3750)
    """
    ...
