"""Binary preference."""

from dataclasses import KW_ONLY
from typing import Unpack

from torch import Tensor

from ltr.metrics.core import BinaryCore, RelevantArguments, measured_by
from ltr.metrics.ranked import ListValues, Ranked, list_values
from ltr.metrics.ties import TieOrder, within
from ltr.shapes import check_choice, masked_fill


class BPrefCore(BinaryCore):
    """The arithmetic of `bpref`."""

    _: KW_ONLY
    ties: TieOrder = "stable"  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self) -> None:
        check_choice("ties", self.ties, "stable", "worst")
        super().__post_init__()

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        if self.ties == "worst":
            lists = lists.tied_by(self._judged_hits(lists))[0]
        hits = self._judged_hits(lists)
        others = masked_fill(1 - self.hits(lists), lists.mask)
        if lists.judged is not None:
            others = others * lists.judged
        relevant = hits.sum(-1)
        most = relevant.minimum(others.sum(-1)).unsqueeze(-1)
        above = (others.cumsum(-1) - others).minimum(most)
        values = (hits * (1 - above / most.clamp(min=1)) * within(hits, self.top_k)).sum(-1)
        return list_values(values / relevant.clamp(min=1), relevant > 0, lists, self.empty)

    def _judged_hits(self, lists: Ranked) -> Tensor:
        hits = self.hits(lists)
        return hits if lists.judged is None else hits * lists.judged


@measured_by(BPrefCore)
def bpref(
    scores: Tensor,
    labels: Tensor,
    *,
    judged: Tensor | None = None,
    top_k: int | None = None,
    ties: TieOrder = "stable",
    **shared: Unpack[RelevantArguments],
) -> Tensor:
    """Binary preference: high if few items judged irrelevant are above the relevant items.

    It is the mean over the R relevant items of 1 - min(M, R) / min(N, R). Here N is the number of
    judged items that are not relevant, and M is the number of these N items that are above the
    relevant item. If N is 0, the fraction is 0. This is trec_eval's definition.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        judged: (..., n) bool, True = a judged item. An item that is not judged only takes up a
            position. Default: all are judged.
        top_k: k; relevant items below rank k count as 0. Default: the whole list.
        ties: "stable" (in list order) or "worst" (relevant items last). There is no "expected".

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Buckley and Voorhees, "Retrieval evaluation with incomplete information", SIGIR 2004.

    >>> import torch
    >>> bpref(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 1.0, 0.0]))
    tensor(0.7500)
    """
    ...
