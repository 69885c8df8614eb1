"""Spearman's rank correlation."""

import torch
from torch import Tensor

from ltr._shapes import hide, positions
from ltr.metrics.functional._lists import Empty, Reduction, check_empty, list_values, reduce_lists
from ltr.metrics.functional._ranking import Ranked, rank, run_means
from ltr.operators import descending_order


def spearman(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    empty: Empty = 0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Spearman's rho: the correlation of the ranks by score and by label, equal ones averaged.

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), >= 0.
        mask: (..., n) bool, True = a real item. Default: all are real.
        empty: what a list without a value counts (one item; all labels or all
            scores equal): a number, "skip" or "error".
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar in [-1, 1], or (...) with reduction="none". All masked: no list, left out.
        Ties need no option here: the definition counts them. Cost: two sorts.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Spearman, "The proof and measurement of association between two things", 1904.

    >>> spearman(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([2.0, 0.0, 1.0]))
    tensor(1.)
    """
    check_empty(empty)
    lists = rank(scores, labels, mask)
    order = descending_order(lists.labels, lists.mask)
    by_label = Ranked(lists.labels.gather(-1, order), lists.labels, lists.mask, None)
    x, y = _centred(lists), _centred(by_label)
    y = torch.empty_like(y).scatter(-1, order, y)
    size = x.square().sum(-1).sqrt() * y.square().sum(-1).sqrt()
    values = ((x * y).sum(-1) / size.where(size > 0, 1.0)).clamp(-1, 1).to(lists.scores.dtype)
    return reduce_lists(list_values(values, size > 0, lists.scores, lists.mask, empty), reduction)


def _centred(lists: Ranked) -> Tensor:
    """Ranks less their mean, float64, 0 in the padding; equal ones averaged, so exact in halves."""
    ranks = run_means(positions(lists.scores.double()), lists)
    n = ranks.shape[-1] if lists.mask is None else lists.mask.sum(-1, keepdim=True)
    return hide(ranks.double() - (n + 1) / 2, lists.mask)
