"""Expected reciprocal rank."""

from dataclasses import KW_ONLY
from typing import Unpack

from torch import Tensor

from ltr.gains import stop_probabilities
from ltr.metrics.core import CutoffCore, EmptyArguments, EmptyCore, measured_by
from ltr.metrics.ranked import ListValues, Ranked, check_labels, list_values
from ltr.metrics.ties import TieOrder, within
from ltr.shapes import check_choice, check_positive, positions


class ERRCore(CutoffCore, EmptyCore):
    """The arithmetic of `err`."""

    max_label: float | None = None
    _: KW_ONLY
    ties: TieOrder = "stable"  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self) -> None:
        self.max_label = check_positive("max_label", self.max_label)
        check_choice("ties", self.ties, "stable", "worst")
        super().__post_init__()

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        lists = check_labels(lists, self.max_label)
        if self.ties == "worst":
            lists = lists.tied_by(lists.labels)[0]
        stops = stop_probabilities(lists.labels, lists.mask, self.max_label)
        reached = (1 - stops).cumprod(-1).roll(1, -1)
        reached[..., :1] = 1
        values = (within(stops, self.top_k) / positions(stops) * stops * reached).sum(-1)
        return list_values(values, (lists.labels > 0).any(-1), lists, self.empty)


@measured_by(ERRCore)
def err(
    scores: Tensor,
    labels: Tensor,
    *,
    top_k: int | None = None,
    max_label: float | None = None,
    ties: TieOrder = "stable",
    **shared: Unpack[EmptyArguments],
) -> Tensor:
    """ERR@k (expected reciprocal rank): the mean of 1 / rank of the item at which a reader stops.

    It is the sum over items i of R_i / rank_i * (the product over items j before i of 1 - R_j),
    where R = (2^label - 1) / 2^max_label is the probability that a reader stops at an item.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        top_k: k. Default: the whole list.
        max_label: the highest grade of the scale, such as 4; a label above it is an error. Default:
            the largest label of each list.
        ties: "stable" (in list order) or "worst" (in ascending order of label). There is no
            "expected".

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Chapelle, Metzler, Zhang and Grinspan, "Expected reciprocal rank for graded
    relevance", CIKM 2009.

    >>> import torch
    >>> err(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 1.0]), max_label=1)  # 1/4 + 1/12
    tensor(0.3333)
    """
    ...
