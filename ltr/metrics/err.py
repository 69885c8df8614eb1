"""Expected reciprocal rank."""

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor

from ltr.gains import stop_probabilities
from ltr.metrics.core import CutoffCore, ListArguments, measured_by
from ltr.metrics.ranked import Empty, ListValues, Ranked, check_labels, list_values
from ltr.metrics.ties import Ties, tied_runs, within
from ltr.shapes import check_positive, positions


@dataclass(eq=False, repr=False)
class ERRCore(CutoffCore):
    """The arithmetic of `err`."""

    max_label: float | None = None

    def __post_init__(self) -> None:
        self.max_label = check_positive("max_label", self.max_label)
        super().__post_init__()

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        lists = check_labels(lists, self.max_label)
        if self.ties == "worst":
            lists = lists.tied_by(lists.labels)[0]
        stops = stop_probabilities(lists.labels, lists.mask, self.max_label)
        each = within(stops, self.top_k) / positions(stops)
        if self.ties == "expected" and stops.shape[-1]:
            values = _expected(stops, each, lists)
        else:
            reached = (1 - stops).cumprod(-1).roll(1, -1)
            reached[..., :1] = 1
            values = (each * stops * reached).sum(-1)
        return list_values(values, (lists.labels > 0).any(-1), lists, self.empty)


@measured_by(ERRCore)
def err(
    scores: Tensor,
    labels: Tensor,
    *,
    top_k: int | None = None,
    max_label: float | None = None,
    empty: Empty = 0,
    ties: Ties = "stable",
    **lists: Unpack[ListArguments],
) -> Tensor:
    """ERR@k (expected reciprocal rank): the mean of 1 / rank of the item at which a reader stops.

    It is the sum over items i of R_i / rank_i * (the product over items j before i of 1 - R_j),
    where R = (2^label - 1) / 2^max_label is the probability that a reader stops at an item.

    `ltr.metrics.functional` describes the arguments that all metrics share.

    Args:
        top_k: k. Default: the whole list.
        max_label: the highest grade of the scale, such as 4; a label above it is an error. Default:
            the largest label of each list.
        ties: "stable" (list order), "worst" or "expected": the mean over all orders of tied items,
            in closed form (means of products over subsets), in O(n^2) per list.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong.

    Reference: Chapelle, Metzler, Zhang and Grinspan, "Expected reciprocal rank for graded
    relevance", CIKM 2009.

    >>> err(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 1.0]), max_label=1)  # 1/4 + 1/12
    tensor(0.3333)
    """
    ...


def _expected(stops: Tensor, each: Tensor, lists: Ranked) -> Tensor:
    """Return the mean ERR of each list over all orders of tied items.

    For a run of tied items, M_j is the mean over all subsets of j items of the product of 1 - R. A
    reader who reaches the run stops at position j of the run with probability M_(j-1) - M_j. The
    M_j are updated item by item: item t of the run changes M_j to
    ((t - j) M_j + j (1 - R_t) M_(j-1)) / t, computed from the values for the first t - 1 items.
    """
    n = stops.shape[-1]
    starts, ends = (x.reshape(-1, n) for x in tied_runs(lists.scores, lists.mask))
    go_on = 1 - stops.reshape(-1, n)
    # With zeros after the list, `padded[start + j - 1]` exists for every start and every j <= n.
    padded = torch.cat([each.expand(n), each.new_zeros(n)])
    j = positions(go_on)
    means = go_on.new_zeros(len(go_on), n + 1)
    means[:, 0] = 1
    reach, values = go_on.new_ones(len(go_on)), go_on.new_zeros(len(go_on))
    for i in range(n):
        start, x = starts[:, i], go_on[:, i : i + 1]
        t = (i + 1 - start).unsqueeze(-1).to(x.dtype)
        kept = means[:, 1:] * (t > 1)  # the first item of a run discards the M_j of the run before
        mixed = ((t - j).clamp(min=0) * kept + j * x * means[:, :-1].where(t > 1, _one(means))) / t
        means[:, 1:] = mixed * (j <= t)
        last = ends[:, i] == i + 1
        stop = (means[:, :-1] - means[:, 1:]) * (j <= t)
        gained = (stop * padded[start.unsqueeze(-1) + j.long() - 1]).sum(-1)
        values = values + torch.where(last, reach * gained, 0.0)
        through = means.gather(-1, t.long()).squeeze(-1)
        reach = torch.where(last, reach * through, reach)
    return values.view(stops.shape[:-1])


def _one(means: Tensor) -> Tensor:
    """Return the M_j of a run without items: 1 for j = 0, otherwise 0."""
    row = torch.zeros_like(means[:1, :-1])
    row[:, :1] = 1
    return row
