"""Kendall's rank correlation between scores and labels."""

from typing import Literal

import torch
from torch import Tensor

from ltr._shapes import hide
from ltr.metrics.functional._lists import (
    Empty,
    Reduction,
    check_empty,
    check_values,
    list_values,
    reduce_lists,
)


def kendall_tau(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    *,
    variant: Literal["a", "b"] = "b",
    empty: Empty = 0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Kendall's tau: concordant minus discordant pairs, over all pairs or those without ties.

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), >= 0.
        mask: (..., n) bool, True = a real item. Default: all are real.
        variant: "a" divides by the number of pairs, "b" by sqrt(pairs not tied in the scores *
            pairs not tied in the labels), so that equal labels may stand either way round.
        empty: what a list without a value counts (one item; for "b" all labels or all scores
            equal): a number, "skip" or "error".
        reduction: "mean" over the lists that count, "sum", or "none" (NaN for one left out).

    Returns:
        A scalar in [-1, 1], or (...) with reduction="none". All masked: no list, left out.
        Cost: O(n^2) time and memory.

    Raises:
        ValueError: NaN scores, negative or NaN labels, shapes that differ, an unknown option.

    Reference: Kendall, "The treatment of ties in ranking problems", Biometrika 1945.

    >>> kendall_tau(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([2.0, 0.0, 0.0]))
    tensor(0.8165)
    """
    scores, labels = check_values(scores, labels, mask)
    check_empty(empty)
    if variant not in ("a", "b"):
        raise ValueError(f"variant must be 'a' or 'b', got {variant!r}")
    by_score, by_label = _signs(scores, mask), _signs(labels, mask)
    agreement = (by_score * by_label).sum((-1, -2))
    if variant == "a":
        n = scores.shape[-1] if mask is None else mask.sum(-1)
        pairs = torch.as_tensor(n * (n - 1), device=scores.device).to(scores.dtype)
    else:
        pairs = (by_score.abs().sum((-1, -2)) * by_label.abs().sum((-1, -2))).sqrt()
    pairs = pairs.expand(agreement.shape)
    values = agreement / pairs.clamp(min=1)
    return reduce_lists(list_values(values, pairs > 0, scores, mask, empty), reduction)


def _signs(x: Tensor, mask: Tensor | None) -> Tensor:
    # compared, not subtracted: inf - inf is NaN, and tiny differences underflow
    row, column = x.unsqueeze(-1), x.unsqueeze(-2)
    signs = (row > column).to(x.dtype) - (row < column).to(x.dtype)
    return signs if mask is None else hide(signs, mask.unsqueeze(-1) & mask.unsqueeze(-2))
