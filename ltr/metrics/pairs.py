"""Count pairs of items in O(n log n) time."""

import torch
from torch import Tensor

from ltr.kernels.sorting import in_list_order, runs
from ltr.metrics.ties import positions_of, run_sums

COMPARED_LENGTH = 32
"""For lists up to this length, the pairs are counted one by one, which is faster."""


def dense_ranks(values: Tensor) -> Tensor:
    """Return 0 for the smallest value of each list, 1 for the next larger one, ...: (..., n) int64.

    >>> dense_ranks(torch.tensor([2.0, 5.0, 2.0]))
    tensor([0, 1, 0])
    """
    ordered, order = values.sort(dim=-1)
    new = torch.zeros_like(order)
    new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    return in_list_order(new.cumsum(-1), order)


def rising_pairs(ranks: Tensor, early: Tensor | None, late: Tensor) -> Tensor:
    """Return the sum of early_i + late_j over pairs of positions i < j with ranks_i < ranks_j.

    Args:
        ranks: (..., n) int64 from 0 to n - 1.
        early: (..., n); None means 0.
        late: (..., n).

    Returns:
        (...) float64. Cost: O(n log n) time, O(n) memory. In short lists, each pair is compared. In
        longer lists, the pairs are counted by the bits of the ranks, from the highest bit down. At
        each bit, ranks with equal higher bits are next to each other, in their original order.
        Among these, a rank with bit 1 forms a pair with each earlier rank with bit 0. Then these
        ranks are sorted by the bit.

    >>> rising_pairs(torch.tensor([1, 0, 2]), None, torch.ones(3))
    tensor(2., dtype=torch.float64)
    """
    n = ranks.shape[-1]
    late = late.double()
    early = None if early is None else early.double()
    if n <= COMPARED_LENGTH:
        ascending = (ranks.unsqueeze(-1) < ranks.unsqueeze(-2)).double().triu(1)
        pairs = (ascending.sum(-2) * late).sum(-1)
        return pairs if early is None else pairs + (ascending.sum(-1) * early).sum(-1)
    total = ranks.new_zeros(ranks.shape[:-1], dtype=torch.float64)
    for level in reversed(range((n - 1).bit_length())):
        starts, ends = runs(ranks >> (level + 1))
        high = (ranks >> level) & 1
        low = 1 - high
        zeros = _earlier(low, starts)
        total = total + (high * zeros * late).sum(-1)
        if early is not None:
            total = total + (high * _earlier(low * early, starts)).sum(-1)
        position = positions_of(ranks)
        lows = run_sums(low, starts, ends)
        target = torch.where(high == 1, starts + lows + (position - starts - zeros), starts + zeros)
        target = target.long()
        ranks, late = in_list_order(ranks, target), in_list_order(late, target)
        early = None if early is None else in_list_order(early, target)
    return total


def _earlier(values: Tensor, starts: Tensor) -> Tensor:
    """Return the sum of the earlier values in the run of each position, float64."""
    sums = values.double().cumsum(-1) - values
    return sums - sums.gather(-1, starts)
