"""Rank-biased overlap."""

from typing import Literal, Unpack

import torch
from torch import Tensor

from ltr.kernels.lists import Lengths
from ltr.metrics.base import Options, RankingMetric
from ltr.metrics.batches import Batch
from ltr.metrics.ranked import Ranked
from ltr.metrics.ties import positions_of, tied_runs
from ltr.metrics.values import Empty, ListValues, Reduction, list_values
from ltr.operators import descending_order
from ltr.shapes import check_persistence, check_top_k, masked_fill, positions

RBOTies = Literal["stable", "expected"]


def rbo(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    qid: Tensor | None = None,
    top_k: int | None = None,
    p: float = 0.9,
    empty: Empty = 0,
    ties: RBOTies = "stable",
    reduction: Reduction = "mean",
) -> Tensor:
    """Rank-biased overlap of the rankings by score and by label, extrapolated (RBO_ext).

    (1 - p) / p * sum over depths d = 1..k of A_d p^d, + A_k p^k, where A_d is the fraction of the
    first d items that the two rankings have in common. Over the whole list A_k is 1.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        labels: (..., n), >= 0: the other ranking, the highest label first.
        top_k: k, the depth of the comparison; a shorter list is compared in full. Default: the
            whole list.
        p: the probability that a reader continues to the next depth, in (0, 1).
        ties: "stable" (list order, in both rankings) or "expected": the mean over all orders of
            equal scores and of equal labels, in closed form. There is no "worst".

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: two sorts;
        O(n k) time for "expected".

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Webber, Moffat and Zobel, "A similarity measure for indefinite rankings", TOIS 2010.

    >>> rbo(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([2.0, 1.0, 0.0]))
    tensor(1.)
    """
    batch = Batch(scores, labels, mask, lengths=lengths, qid=qid)
    return batch.measure(lambda lists: _rbo(lists, top_k, p, empty, ties), reduction)


def _rbo(lists: Ranked, top_k: int | None, p: float, empty: Empty, ties: RBOTies) -> ListValues:
    check_top_k(top_k)
    check_persistence(p)
    if ties not in ("stable", "expected"):
        raise ValueError(f"ties must be 'stable' or 'expected', got {ties!r}")
    common = _common(lists) if ties == "stable" else _expected_common(lists)
    depth = positions(common)
    k = lists.lengths.unsqueeze(-1).double()
    k = k if top_k is None else k.clamp(max=top_k)
    share = torch.where(depth <= k, common / depth, 0.0)
    powers = torch.pow(torch.full_like(depth, p), depth)
    values = (1 - p) / p * (share * powers).sum(-1)
    values = values + (torch.where(depth == k, share, 0.0) * powers).sum(-1)
    relevant = (lists.labels > 0).any(-1)
    return list_values(values.to(lists.scores.dtype), relevant, lists, empty)


class RBO(RankingMetric):
    """Rank-biased overlap: how similar the orders by score and by label are, above all at the top.

    The arguments are those of `functional.rbo`.

    >>> import torch
    >>> RBO()(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[2.0, 1.0, 0.0]]))
    tensor(1.)
    """

    function = staticmethod(rbo)
    core = staticmethod(_rbo)

    def __init__(
        self,
        top_k: int | None = None,
        p: float = 0.9,
        empty: Empty = 0,
        ties: RBOTies = "stable",
        **options: Unpack[Options],
    ):
        super().__init__(top_k=top_k, p=p, empty=empty, ties=ties, **options)


def _common(lists: Ranked) -> Tensor:
    """Return how many items both rankings have at each depth, (..., n) float64.

    Equal labels keep the order of the list, whatever the scores are.
    """
    labels = lists.in_list_order(lists.labels)
    real = None if lists.mask is None else lists.in_list_order(lists.mask)
    order = descending_order(labels, real)
    positions = positions_of(order)
    by_label = lists.order.new_empty(order.shape).scatter(-1, order, positions)
    deeper = torch.maximum(positions, by_label.gather(-1, lists.order))
    new = torch.zeros_like(lists.scores, dtype=torch.float64)
    ones = torch.ones_like(new) if lists.mask is None else lists.mask.double()
    return new.scatter_add(-1, deeper, ones).cumsum(-1)


def _expected_common(lists: Ranked) -> Tensor:
    """Return the mean number of common items at each depth, (..., n) float64.

    The two orders are drawn independently: an item of a run of ties from s to e is among the first
    d of one ranking with probability (d - s) / (e - s), in [0, 1].
    """
    order = descending_order(lists.labels, lists.mask)
    starts, ends = tied_runs(lists.scores, lists.mask)
    label_starts, label_ends = (
        torch.empty_like(x).scatter(-1, order, x)
        for x in tied_runs(lists.labels.gather(-1, order), lists.mask)
    )
    depths = []
    for d in range(1, starts.shape[-1] + 1):
        by_score = ((d - starts).double() / (ends - starts)).clamp(0, 1)
        by_label = ((d - label_starts).double() / (label_ends - label_starts)).clamp(0, 1)
        depths.append(masked_fill(by_score * by_label, lists.mask).sum(-1))
    return torch.stack(depths, -1) if depths else torch.zeros_like(lists.scores).double()
