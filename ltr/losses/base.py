"""The contract of losses, and the one place where lists become a number."""

from typing import Literal

import torch
from torch import Tensor, nn

from ltr._shapes import check_lists, upcast
from ltr.kernels import check_lengths, pad_lists

Reduction = Literal["mean", "sum", "none"]


class RankingLoss(nn.Module):
    """scores, labels, mask=None, weights=None -> a scalar; one number a list with reduction="none".

    A new loss is one subclass with `per_list`. What every loss keeps to:

    - all arguments are (..., n); labels are graded relevance >= 0; mask is bool, True for a real
      item; what lies under the mask, NaN included, reaches neither the value nor the gradient;
    - it is positive and falls to 0; a list that defines no loss (no relevant item, no pair, all
      masked) counts 0, with a graph; a NaN score makes that list's loss NaN, and no other's;
    - half-precision scores are computed in float32.

    Args:
        reduction: "mean" over the lists that have a real item, "sum", or "none".

    Raises:
        ValueError: reduction is unknown; shapes differ; mask is not bool.

    >>> class Spread(RankingLoss):
    ...     def per_list(self, scores, labels, mask, weights):
    ...         return scores.amax(-1) - scores.amin(-1)
    >>> Spread()(torch.tensor([[1.0, 3.0], [0.0, 4.0]]), torch.zeros(2, 2))
    tensor(3.)
    """

    def __init__(self, reduction: Reduction = "mean"):
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
        self.reduction: Reduction = reduction

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """One number a list: (..., n) each -> (...), or with more axes in front (samples)."""
        raise NotImplementedError(f"{type(self).__name__} must define per_list")

    def per_ragged_list(
        self, scores: Tensor, labels: Tensor, lengths: Tensor, weights: Tensor | None
    ) -> Tensor:
        """One number a ragged list: (N,) each and lengths (R,) -> (R,); pads, unless overridden."""
        mask, *padded = pad_lists(lengths, scores, labels, *([] if weights is None else [weights]))
        return self.per_list(padded[0], padded[1], mask, None if weights is None else padded[2])

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """The loss of scores (..., n) against labels (..., n); mask and weights (..., n).

        Ragged lists come flat, one after the other, as scores, labels and weights (N,), with
        their `lengths` (R,) int64 in place of a mask; with reduction="none" the result is (R,).
        """
        if lengths is not None:
            return self._forward_ragged(scores, labels, mask, weights, lengths)
        check_lists(scores, labels=labels, mask=mask, weights=weights)
        scores = upcast(scores)
        labels = labels.to(scores.dtype)
        weights = None if weights is None else weights.to(scores.dtype)
        per_list = self.per_list(scores, labels, mask, weights)
        samples = per_list.dim() - (labels.dim() - 1)
        if samples:
            per_list = per_list.mean(tuple(range(samples)))
        return self._reduce(per_list, scores, mask)

    def _forward_ragged(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
        lengths: Tensor,
    ) -> Tensor:
        if mask is not None:
            raise ValueError("mask must be None where lengths are given: ragged lists have none")
        check_lists(scores, labels=labels, weights=weights)
        check_lengths(scores, lengths)
        scores = upcast(scores)
        labels = labels.to(scores.dtype)
        weights = None if weights is None else weights.to(scores.dtype)
        per_list = self.per_ragged_list(scores, labels, lengths, weights)
        if per_list.dim() > 1:
            per_list = per_list.mean(tuple(range(per_list.dim() - 1)))
        if self.reduction == "mean":
            return per_list.sum() / (lengths > 0).sum().clamp(min=1)
        return per_list if self.reduction == "none" else per_list.sum()

    def _reduce(self, per_list: Tensor, scores: Tensor, mask: Tensor | None) -> Tensor:
        if self.reduction == "none":
            return per_list
        if self.reduction == "sum":
            return per_list.sum()
        real = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
        return per_list.sum() / real.any(-1).sum().clamp(min=1)

    def extra_repr(self) -> str:
        """The reduction, where it is not the default."""
        return "" if self.reduction == "mean" else f"reduction={self.reduction!r}"
