"""Average precision."""

from typing import Literal, Unpack

from torch import Tensor

from ltr.kernels.lists import Lengths
from ltr.metrics.base import Options, RankingMetric
from ltr.metrics.batches import Batch
from ltr.metrics.ranked import Ranked
from ltr.metrics.ties import (
    Ties,
    before,
    check_ties,
    first_in_order,
    positions_of,
    run_sums,
    tied_runs,
    within,
)
from ltr.metrics.values import Empty, ListValues, Reduction, list_values
from ltr.shapes import check_top_k, positions

Divisor = Literal["attainable", "relevant"]


def average_precision(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    qid: Tensor | None = None,
    top_k: int | None = None,
    divisor: Divisor = "attainable",
    empty: Empty = 0,
    ties: Ties = "stable",
    reduction: Reduction = "mean",
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
    first = first_in_order(top_k, ties)
    batch = Batch(scores, labels, mask, lengths=lengths, qid=qid, first=first)
    return batch.measure(
        lambda lists: _average_precision(lists, top_k, divisor, empty, ties), reduction
    )


def _average_precision(
    lists: Ranked, top_k: int | None, divisor: Divisor, empty: Empty, ties: Ties
) -> ListValues:
    check_ties(ties)
    check_top_k(top_k)
    if divisor not in ("attainable", "relevant"):
        raise ValueError(f"divisor must be 'attainable' or 'relevant', got {divisor!r}")
    if ties == "worst":
        lists = lists.tied_by((lists.labels > 0).to(lists.scores.dtype))[0]
    hits = (lists.labels > 0).to(lists.scores.dtype)
    total = hits.sum(-1)
    if top_k is not None and divisor == "attainable":
        total = total.clamp(max=top_k)
    found = _expected(hits, lists) if ties == "expected" else hits * hits.cumsum(-1)
    values = found @ (within(hits, top_k) / positions(hits)) / total.clamp(min=1)
    return list_values(values, total > 0, lists, empty)


class MAP(RankingMetric):
    """Mean average precision: the mean precision at the ranks of the relevant items.

    The arguments are those of `functional.average_precision`.

    >>> import torch
    >>> MAP()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 2.0]]))
    tensor(0.8333)
    """

    function = staticmethod(average_precision)
    core = staticmethod(_average_precision)
    first_only = True

    def __init__(
        self,
        top_k: int | None = None,
        divisor: Divisor = "attainable",
        empty: Empty = 0,
        ties: Ties = "stable",
        **options: Unpack[Options],
    ):
        super().__init__(top_k=top_k, divisor=divisor, empty=empty, ties=ties, **options)


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
