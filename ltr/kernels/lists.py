"""Lists in sorted order: where each begins, how long it is, and its items from the top down."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ltr.kernels.sorting import descending_order


@dataclass(frozen=True)
class SortedLists:
    """Lists along the last axis of scores (..., N), and the order of their items.

    Padded batches have one list a row: `starts` (..., 1) is 0 and `lengths` (..., 1) the number
    of real items. Ragged ones have all lists in one row.

    Args:
        order: (..., N) int64, the items (places in the row), list by list, falling scores; None
            where the scores themselves are in that order.
        starts: (..., R) int64, where in `order` each list begins.
        lengths: (..., R) int64, how many items it has. Items in no list get 0.
    """

    order: Tensor | None
    starts: Tensor
    lengths: Tensor


def sort_lists(scores: Tensor, mask: Tensor | None = None) -> SortedLists:
    """Padded lists (..., n) with their mask (..., n) bool, in sorted order. Cost: one sort.

    >>> import torch
    >>> sort_lists(torch.tensor([[0.1, 0.9, 0.5]])).order
    tensor([[1, 2, 0]])
    """
    order = descending_order(scores.detach(), mask)
    shape = (*order.shape[:-1], 1)
    starts = order.new_zeros(shape)
    if mask is None:
        return SortedLists(order, starts, order.new_full(shape, order.shape[-1]))
    return SortedLists(order, starts, mask.sum(-1, keepdim=True))


def in_order(points: Tensor, mask: Tensor | None = None) -> SortedLists:
    """Points (..., n) that fall already, the masked ones last; the mask may be in any order.

    >>> import torch
    >>> in_order(torch.tensor([3.0, 2.0, 0.0]), torch.tensor([True, False, True])).lengths
    tensor([2])
    """
    shape = (*points.shape[:-1], 1)
    starts = points.new_zeros(shape, dtype=torch.int64)
    if mask is None:
        return SortedLists(None, starts, starts + points.shape[-1])
    return SortedLists(None, starts, mask.sum(-1, keepdim=True))
