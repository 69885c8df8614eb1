"""Rank-biased overlap."""

from dataclasses import KW_ONLY
from typing import Literal, Unpack

import torch
from torch import Tensor

from ltr.kernels.sorting import descending_order, in_list_order
from ltr.metrics.core import EmptyArguments, EmptyCore, measured_by
from ltr.metrics.ranked import ListValues, Ranked, list_values
from ltr.metrics.ties import positions_of
from ltr.shapes import check_choice, check_fraction, check_top_k, positions

RBOTies = Literal["stable"]
"""The other orders of ties, which `evaluate` passes to its metrics, are an error."""


class RBOCore(EmptyCore):
    """The arithmetic of `rbo`."""

    top_k: int | None = None
    p: float = 0.9
    _: KW_ONLY
    ties: RBOTies = "stable"

    def __post_init__(self) -> None:
        self.top_k = check_top_k(self.top_k)
        self.p = check_fraction("p", self.p)
        check_choice("ties", self.ties, "stable")
        super().__post_init__()

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        common = _common(lists)
        depth = positions(common)
        k = lists.lengths.unsqueeze(-1).double()
        k = k if self.top_k is None else k.clamp(max=self.top_k)
        share = torch.where(depth <= k, common / depth, 0.0)
        powers = torch.pow(torch.full_like(depth, self.p), depth)
        values = (1 - self.p) / self.p * (share * powers).sum(-1)
        values = values + (torch.where(depth == k, share, 0.0) * powers).sum(-1)
        relevant = (lists.labels > 0).any(-1)
        return list_values(values.to(lists.scores.dtype), relevant, lists, self.empty)


@measured_by(RBOCore)
def rbo(
    scores: Tensor,
    labels: Tensor,
    *,
    top_k: int | None = None,
    p: float = 0.9,
    ties: RBOTies = "stable",
    **shared: Unpack[EmptyArguments],
) -> Tensor:
    """Rank-biased overlap of the rankings by score and by label, extrapolated (RBO_ext).

    It is (1 - p) / p * (the sum over depths d = 1..k of A_d p^d) + A_k p^k, where A_d is the
    fraction of the first d items that the two rankings have in common. For the whole list, A_k = 1.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        labels: (..., n), >= 0. They define the second ranking: the highest label is first.
        top_k: k, the depth of the comparison; a shorter list is compared in full. Default: the
            whole list.
        p: the probability that a reader continues to the next depth, in (0, 1).
        ties: only "stable": tied items are in list order, in both rankings.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: two sorts.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Webber, Moffat and Zobel, "A similarity measure for indefinite rankings", TOIS 2010.

    >>> rbo(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([2.0, 1.0, 0.0]))
    tensor(1.)
    """
    ...


def _common(lists: Ranked) -> Tensor:
    """Return how many items the two rankings have in common at each depth, (..., n) float64.

    Items with equal labels keep the order of the original list, whatever their scores are.
    """
    labels = lists.in_list_order(lists.labels)
    real = None if lists.mask is None else lists.in_list_order(lists.mask)
    order = descending_order(labels, real)
    by_score = positions_of(order)
    by_label = in_list_order(by_score, order)
    deeper = torch.maximum(by_score, by_label.gather(-1, lists.order))
    new = torch.zeros_like(lists.scores, dtype=torch.float64)
    ones = torch.ones_like(new) if lists.mask is None else lists.mask.double()
    return new.scatter_add(-1, deeper, ones).cumsum(-1)
