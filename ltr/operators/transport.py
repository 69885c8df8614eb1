"""The parts of SinkhornSort around its solver: weights, squashing, costs, the hard coupling."""

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor

from ltr.shapes import check_whole, count, masked_fill, widened

LEAST = 1e-30
"""Added to every weight, so that an item of weight 0 has a rank but moves no other item."""


def numbers(name: str, values: Sequence[float]) -> Tensor:
    """Return the values (R,) as float64, or raise a ValueError that names the argument.

    >>> numbers("milestones", [1, 0.5])
    tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    try:
        return torch.tensor([float(value) for value in values], dtype=torch.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers, got {values!r}") from None


def milestone_shares(
    milestones: int | Sequence[float] | None, weights: Sequence[float] | None
) -> Tensor | None:
    """Return the milestones' shares (R,), which sum to 1; None for one milestone per item.

    >>> milestone_shares(2, [1.0, 3.0])
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    if milestones is None and weights is None:
        return None
    if isinstance(milestones, (int, Integral)):
        rows = check_whole("milestones", milestones)
    elif milestones is not None:
        rows = len(milestones)
        if not rows:
            raise ValueError(f"milestones must not be empty, got {milestones!r}")
    else:
        rows = len(weights or ())
    b = torch.ones(rows).double() if weights is None else numbers("milestone_weights", weights)
    if b.shape != (rows,) or rows == 0 or not (b > 0).all() or not b.isfinite().all():
        raise ValueError(
            f"milestone_weights must be {max(rows, 1)} positive numbers, got {weights!r}"
        )
    return b / b.sum()


def item_weights(scores: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
    """Return weights (..., n) that sum to the number of real items; 0 where masked.

    >>> item_weights(torch.zeros(2), None, torch.tensor([1.0, 3.0]))
    tensor([0.5000, 1.5000])
    """
    if weights is None:
        return masked_fill(torch.ones_like(scores), mask)
    weights = masked_fill(weights.to(scores.dtype) + LEAST, mask)
    total = weights.sum(-1, keepdim=True)
    return weights * (count(scores, mask) / torch.where(total == 0, 1.0, total))


def squashed(scores: Tensor, share: Tensor, squash: str | None) -> Tensor:
    """Standardize scores by mean and deviation under the shares (..., n), then squash to [0, 1].

    This is the paper's algorithm 2.

    The result is in float64, where the device has it.

    >>> squashed(torch.tensor([-3.0, 3.0]), torch.tensor([0.5, 0.5]), "arctan")
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    least = torch.finfo(scores.dtype).tiny
    scores = widened(scores)
    if squash is None:
        return scores
    centered = scores - (share * scores).sum(-1, keepdim=True)
    variance = (share * centered.square()).sum(-1, keepdim=True)
    # Scores that are equal up to rounding have no scale: 1 keeps the gradient finite. The same
    # holds where the gradient, one over the scale, would overflow the scores' dtype.
    digits = torch.finfo(scores.dtype)
    floor = (8 * digits.eps) ** 2 * (share * scores.square()).sum(-1, keepdim=True)
    flat = variance <= floor + max(least, digits.tiny**0.5)
    z = centered / torch.where(flat, 1.0, variance).sqrt()
    return z.sigmoid() if squash == "logistic" else 0.5 + z.arctan() / torch.pi


def sorted_coupling(a: Tensor, b: Tensor, order: Tensor) -> Tensor:
    """Return the unregularized transport, which matches masses in falling order; rows sum to 1.

    Args:
        a: (..., n) item weights.
        b: (..., R) row weights, with the same sum as a.
        order: (..., n) int64, the items in falling order.

    Returns:
        (..., R, n).

    >>> sorted_coupling(torch.ones(3), torch.tensor([1.5, 1.5]), torch.tensor([2, 0, 1]))
    tensor([[0.3333, 0.0000, 0.6667],
            [0.3333, 0.6667, 0.0000]])
    """
    item_end = a.gather(-1, order).cumsum(-1).unsqueeze(-2)
    row_end = b.cumsum(-1).unsqueeze(-1)
    item_start = torch.nn.functional.pad(item_end, (1, 0))[..., :-1]
    row_start = torch.nn.functional.pad(row_end, (0, 0, 1, 0))[..., :-1, :]
    shared = torch.minimum(item_end, row_end) - torch.maximum(item_start, row_start)
    shared = shared.clamp(min=0) / torch.where(b == 0, 1.0, b).unsqueeze(-1)
    places = order.unsqueeze(-2).expand(shared.shape)
    return torch.zeros_like(shared).scatter(-1, places, shared)
