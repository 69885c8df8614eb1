"""Average precision, and its geometric mean."""

from typing import Literal, Unpack

from torch import Tensor

from ltr.kernels.sorting import runs
from ltr.metrics.core import BinaryArguments, BinaryCore, measured_by
from ltr.metrics.ranked import ListValues, Ranked, list_values
from ltr.metrics.ties import before, positions_of, run_sums, within
from ltr.shapes import check_choice, positions

Divisor = Literal["attainable", "relevant"]

LEAST_PRECISION = 1e-5
"""Smaller average precisions count as this value in the geometric mean, as in trec_eval."""


class MAPCore(BinaryCore):
    """The arithmetic of `average_precision`."""

    divisor: Divisor = "attainable"

    def __post_init__(self) -> None:
        check_choice("divisor", self.divisor, "attainable", "relevant")
        super().__post_init__()

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        if self.ties == "worst":
            lists = lists.tied_by(self.hits(lists))[0]
        hits = self.hits(lists)
        total = hits.sum(-1)
        if self.top_k is not None and self.divisor == "attainable":
            total = total.clamp(max=self.top_k)
        above = _expected(hits, lists) if self.ties == "expected" else hits * hits.cumsum(-1)
        # This is not a matrix product, since autocast would compute it in half precision.
        values = (above * (within(hits, self.top_k) / positions(hits))).sum(-1)
        values = values / total.clamp(min=1)
        return list_values(values, total > 0, lists, self.empty)


@measured_by(MAPCore)
def average_precision(
    scores: Tensor,
    labels: Tensor,
    *,
    divisor: Divisor = "attainable",
    **shared: Unpack[BinaryArguments],
) -> Tensor:
    """Average precision: the mean precision at the ranks of the relevant items.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        top_k: k; only the relevant items among the first k count. Default: the whole list.
        divisor: "attainable" divides by min(k, number of relevant items), so that a perfect top k
            gets 1; "relevant" divides by the number of relevant items, as trec_eval's map_cut does.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Buckley and Voorhees, "Evaluating evaluation measure stability", 2000; McSherry and
    Najork, "Computing information retrieval performance measures efficiently in the presence of
    tied scores", 2008.

    >>> import torch
    >>> average_precision(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]))
    tensor(0.8333)
    """
    ...


class GMAPCore(MAPCore):
    """The arithmetic of `gmap`."""

    is_geometric = True

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the average precision of each list, at least 1e-5."""
        precisions = super().per_list(lists)
        return precisions._replace(values=precisions.values.clamp(min=LEAST_PRECISION))


@measured_by(GMAPCore)
def gmap(
    scores: Tensor,
    labels: Tensor,
    *,
    divisor: Divisor = "attainable",
    **shared: Unpack[BinaryArguments],
) -> Tensor:
    """Geometric mean average precision: the geometric mean of the average precision of the lists.

    It is exp of the mean of log(max(average precision, 1e-5)), like trec_eval's `gm_map`. For a
    single list, trec_eval prints the logarithm.

    `ltr.metrics.functional` describes the arguments that all metrics share. `average_precision`
    describes the other arguments.

    Returns:
        A scalar, the geometric mean. reduction="none" gives the average precision of each list
        (...), at least 1e-5, and "sum" gives the sum of these values. A fully masked list is left
        out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Robertson, "On GMAP: and other transformations", CIKM 2006.

    >>> import torch
    >>> labels = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> gmap(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), labels)
    tensor(0.7071)
    """
    ...


def _expected(hits: Tensor, lists: Ranked) -> Tensor:
    """Return the mean of hit * (number of hits so far) at each position, over all orders of ties.

    Each position of a run of g tied items with r hits holds a hit with probability r / g. If it
    does, each of the t earlier positions of the run holds a hit with probability (r - 1) / (g - 1).
    """
    starts, ends = runs(lists.scores, lists.mask)
    size, tied_hits = ends - starts, run_sums(hits, starts, ends)
    earlier = before(hits).gather(-1, starts)
    beside = (tied_hits - 1) / (size - 1).clamp(min=1) * (positions_of(hits) - starts)
    return (tied_hits / size * (earlier + 1 + beside)).to(hits.dtype)
