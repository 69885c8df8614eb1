"""Lists in sorted order: the length of each list, and its items by descending score."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ltr.kernels.sorting import descending_order
from ltr.shapes import check_lists, count


@dataclass(frozen=True)
class SortedLists:
    """Lists along the last axis of scores (..., n), one per row, and the order of their items.

    Args:
        order: (..., n) int64, the items (their indices in the row) by descending score, and the
            masked items last; None if the scores themselves are in that order.
        lengths: (..., 1) int64, the number of real items of each list. Sums are 0 for all others.
    """

    order: Tensor | None
    lengths: Tensor


def sort_lists(scores: Tensor, mask: Tensor | None = None) -> SortedLists:
    """Sort padded lists (..., n) with a mask (..., n) bool. Cost: one sort.

    Raises:
        ValueError: scores are not floating point, or the mask is not bool or has another shape.

    >>> import torch
    >>> sort_lists(torch.tensor([[0.1, 0.9, 0.5]])).order
    tensor([[1, 2, 0]])
    """
    check_lists(scores, mask=mask)
    order = descending_order(scores.detach(), mask)
    return SortedLists(order, count(order, mask))


def in_order(points: Tensor, mask: Tensor | None = None) -> SortedLists:
    """Return the lists of points (..., n) that are already descending, with masked points last.

    Only the number of real items in the mask matters, not their positions.

    >>> import torch
    >>> in_order(torch.tensor([3.0, 2.0, 0.0]), torch.tensor([True, False, True])).lengths
    tensor([2])
    """
    if mask is None:
        lengths = points.new_full((*points.shape[:-1], 1), points.shape[-1], dtype=torch.int64)
    else:
        lengths = mask.sum(-1, keepdim=True)
    return SortedLists(None, lengths)
