"""Interpolated precision at levels of recall."""

from dataclasses import KW_ONLY
from typing import Unpack

import torch
from torch import Tensor

from ltr.metrics.core import RelevantCore, RetrievedCore, SetArguments, measured_by
from ltr.metrics.ranked import ListValues, Ranked, list_values
from ltr.metrics.ties import TieOrder
from ltr.shapes import check_choice, check_number, largest, positions

_ELEVEN = [level / 10 for level in range(11)]


class InterpolatedPrecisionCore(RelevantCore, RetrievedCore):
    """The arithmetic of `interpolated_precision`."""

    recall: float | None = None
    _: KW_ONLY
    ties: TieOrder = "stable"
    relevant_from: float | None = None

    def __post_init__(self) -> None:
        recall = self.recall
        if recall is not None and check_number("recall", recall, minimum=0.0) > 1:
            raise ValueError(f"recall must be <= 1, got {recall!r}")
        check_choice("ties", self.ties, "stable", "worst")
        super().__post_init__()

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        if self.ties == "worst":
            hits = lists.relevant(self.relevant_from)
            lists = lists.tied_by(hits.to(lists.scores.dtype))[0]
        hits = lists.relevant(self.relevant_from).to(lists.scores.dtype)
        total = hits.sum(-1)
        hits_so_far = (hits * self.retrieved(lists)).cumsum(-1)
        precision = hits_so_far / positions(hits_so_far)
        values = torch.zeros_like(total)
        levels = _ELEVEN if self.recall is None else [self.recall]
        for level in levels:
            # trec_eval rounds up in this way. In floats, 0.07 * 100 > 7, so `ceil` would give 8.
            least = (level * total.double() + 0.9).floor().to(hits_so_far.dtype).unsqueeze(-1)
            values = values + largest(precision * (hits_so_far >= least))
        return list_values(values / len(levels), total > 0, lists, self.empty)


@measured_by(InterpolatedPrecisionCore)
def interpolated_precision(
    scores: Tensor,
    labels: Tensor,
    *,
    recall: float | None = None,
    ties: TieOrder = "stable",
    **shared: Unpack[SetArguments],
) -> Tensor:
    """Interpolated precision: the largest precision at any rank with at least a given recall.

    This is trec_eval's `iprec_at_recall` and ir_measures' `IPrec@recall`. A rank reaches the recall
    if at least floor(recall * R + 0.9) of the R relevant items are at this rank or above, as in
    trec_eval 9. trec_eval 10 rounds recall * R to the nearest number instead.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        recall: the level of recall, in [0, 1]. Default: the value is the mean over the levels 0,
            0.1, ..., 1, which is trec_eval's `11pt_avg`.
        threshold: items with a score above it are retrieved; other items add no recall. Default:
            all items. A `JoinedRun` sets the threshold itself.
        ties: "stable" (in list order) or "worst" (relevant items last). There is no "expected".

    Returns:
        A scalar, or (...) with reduction="none"; 0 if the recall is never reached. A fully masked
        list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Manning, Raghavan and Schütze, "Introduction to information retrieval", 2008, 8.4.

    >>> import torch
    >>> scores, labels = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 1.0])
    >>> interpolated_precision(scores, labels, recall=0.5)
    tensor(1.)
    >>> interpolated_precision(scores, labels)
    tensor(0.8485)
    """
    ...
