"""The fraction of judged items."""

from typing import Unpack

from torch import Tensor

from ltr.metrics.core import CutoffArguments, CutoffCore, RetrievedCore, measured_by
from ltr.metrics.ranked import ListValues, Ranked, list_values
from ltr.metrics.ties import placed_sum, within


class JudgedCore(RetrievedCore, CutoffCore):
    """The arithmetic of `judged`."""

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        retrieved = self.retrieved(lists)
        known = retrieved if lists.judged is None else retrieved * lists.judged
        judged_items = placed_sum(within(known, self.top_k), known, lists, self.ties)
        count = (retrieved * within(retrieved, self.top_k)).sum(-1)
        return list_values(judged_items / count.clamp(min=1), count > 0, lists, self.empty)


@measured_by(JudgedCore)
def judged(
    scores: Tensor,
    labels: Tensor,
    *,
    judged: Tensor | None = None,
    threshold: float | None = None,
    **shared: Unpack[CutoffArguments],
) -> Tensor:
    """Judged@k: the fraction of judged items among the first k retrieved items.

    If a list has fewer than k retrieved items, the divisor is the number of retrieved items, as in
    ir_measures. The labels do not matter.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        judged: (..., n) bool, True = a judged item. Default: all are judged.
        top_k: k. Default: the whole list.
        threshold: items with a score above it are retrieved. Default: all items. A `JoinedRun`
            sets the threshold itself.
        empty: the value of a list without a retrieved item: a number, "skip" or "error".

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    >>> import torch
    >>> scores, known = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([True, False, True])
    >>> judged(scores, torch.ones(3), judged=known, top_k=2)
    tensor(0.5000)
    """
    ...
