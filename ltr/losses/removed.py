"""Removed items: irrelevant items with a score of -inf, as a filter of candidates gives.

In a loss that tends to a limit as such a score falls, the functions here give this limit, with
finite gradients. The differences and products of infinite scores would be NaN.
"""

import torch
from torch import Tensor


def without_removed(scores: Tensor, relevance: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mask (..., n), False also for the items of relevance 0 with a score of -inf.

    >>> scores = torch.tensor([1.0, -torch.inf, -torch.inf, torch.nan])
    >>> without_removed(scores, torch.tensor([0.0, 1.0, 0.0, 0.0]), None)
    tensor([ True,  True, False,  True])
    """
    kept = (scores != -torch.inf) | (relevance > 0)
    return kept if mask is None else mask & kept


def finite_if_removed(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the scores (..., n), with a very low number for removed items, without a gradient.

    The number is so large that sums over the pairs of 130,000 items stay finite.

    >>> scores = torch.tensor([1.0, -torch.inf, -torch.inf])
    >>> finite_if_removed(scores, torch.tensor([0.0, 1.0, 0.0]))
    tensor([ 1.0000e+00,        -inf, -1.9807e+28])
    """
    lowest = -torch.finfo(scores.dtype).max / 2**34
    return torch.where((scores == -torch.inf) & (labels <= 0), lowest, scores)
