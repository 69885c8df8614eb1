"""The share of items that stand in their place."""

import torch
from torch import Tensor

from ltr._shapes import count
from ltr.metrics.functional._lists import Reduction, list_values, reduce_lists
from ltr.metrics.functional._ranking import places_of, rank, run_sums, ties_of


def elements_in_place(
    scores: Tensor, labels: Tensor, mask: Tensor | None = None, *, reduction: Reduction = "mean"
) -> Tensor:
    """The share of places whose item, in order of the scores, has the label that belongs there.

    Equal labels may stand either way round. Items that are tied with one of another label are
    in no place, so that a list has the value 1 exactly where `perfect_order` has.

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), >= 0.
        mask: (..., n) bool, True = a real item. Default: all are real.
        reduction: "mean" (over the lists), "sum", or "none" (NaN for one left out).

    Returns:
        A scalar, or (...) with reduction="none". One item, or all labels equal: 1. All masked: no
        list, left out. Cost: two sorts.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Grover, Wang, Zweig and Ermon, ICLR 2019, section 6.1; Prillo and Eisenschlos, ICML
    2020, Table 1: the numbers in brackets.

    >>> elements_in_place(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[2.0, 1.0, 0.0]]))
    tensor(0.3333)
    """
    lists = rank(scores, labels, mask)
    # the padding's labels are 0, so it comes last, or among real items of label 0
    due = lists.labels.sort(-1, descending=True).values
    starts, ends = ties_of(lists)
    new = torch.zeros_like(lists.labels)
    new[..., 1:] = (lists.labels[..., 1:] != lists.labels[..., :-1]).to(new.dtype)
    inside = places_of(new) > starts  # the first of its run has nothing to do with the one before
    mixed = run_sums(torch.where(inside, new, 0.0), starts, ends) > 0
    good = (lists.labels == due) & ~mixed
    if lists.mask is not None:
        good = good & lists.mask
    items = count(lists.scores, lists.mask).squeeze(-1)
    values = good.sum(-1).to(lists.scores.dtype) / items.clamp(min=1)
    return reduce_lists(list_values(values, items > 0, lists.scores, lists.mask, "skip"), reduction)
