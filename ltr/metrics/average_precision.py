"""Average precision."""

from typing import Literal, Unpack

from torch import Tensor

from ltr.metrics.base import CutoffMetric, ListArguments, Options
from ltr.metrics.ranked import Ranked
from ltr.metrics.ties import Ties, before, positions_of, run_sums, tied_runs, within
from ltr.metrics.values import Empty, ListValues, list_values
from ltr.shapes import check_choice, positions

Divisor = Literal["attainable", "relevant"]


class MAP(CutoffMetric):
    """Mean average precision: the mean precision at the ranks of the relevant items.

    The arguments are those of `functional.average_precision`.

    >>> import torch
    >>> MAP()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 2.0]]))
    tensor(0.8333)
    """

    def __init__(
        self,
        top_k: int | None = None,
        divisor: Divisor = "attainable",
        empty: Empty = 0,
        ties: Ties = "stable",
        **options: Unpack[Options],
    ):
        check_choice("divisor", divisor, "attainable", "relevant")
        self.divisor: Divisor = divisor
        super().__init__(top_k, empty, ties, **options)

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        if self.ties == "worst":
            lists = lists.tied_by((lists.labels > 0).to(lists.scores.dtype))[0]
        hits = (lists.labels > 0).to(lists.scores.dtype)
        total = hits.sum(-1)
        if self.top_k is not None and self.divisor == "attainable":
            total = total.clamp(max=self.top_k)
        found = _expected(hits, lists) if self.ties == "expected" else hits * hits.cumsum(-1)
        values = found @ (within(hits, self.top_k) / positions(hits)) / total.clamp(min=1)
        return list_values(values, total > 0, lists, self.empty)


def average_precision(
    scores: Tensor,
    labels: Tensor,
    *,
    top_k: int | None = None,
    divisor: Divisor = "attainable",
    empty: Empty = 0,
    ties: Ties = "stable",
    **lists: Unpack[ListArguments],
) -> Tensor:
    """Average precision: the mean over the relevant items of the precision at their ranks.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        top_k: k; only the relevant items among the first k count. Default: the whole list.
        divisor: "attainable" divides by min(k, number of relevant items), so that a perfect top k
            gets 1; "relevant" divides by the number of relevant items, as trec_eval's map_cut does.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Buckley and Voorhees, "Evaluating evaluation measure stability", 2000; McSherry and
    Najork, "Computing information retrieval performance measures efficiently in the presence of
    tied scores", 2008.

    >>> import torch
    >>> average_precision(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]))
    tensor(0.8333)
    """
    metric = MAP(top_k, divisor, empty, ties, running=False)
    return metric.measure(scores, labels, **lists)


def _expected(hits: Tensor, lists: Ranked) -> Tensor:
    """Return the mean at each position of hit * hits up to it, over the orders of tied items.

    A position in a run of g tied items with r hits holds a hit with probability r / g. Each of the
    t positions of the run before it then holds one with probability (r - 1) / (g - 1).
    """
    starts, ends = tied_runs(lists.scores, lists.mask)
    size, found = ends - starts, run_sums(hits, starts, ends)
    earlier = before(hits).gather(-1, starts)
    beside = (found - 1) / (size - 1).clamp(min=1) * (positions_of(hits) - starts)
    return (found / size * (earlier + 1 + beside)).to(hits.dtype)
