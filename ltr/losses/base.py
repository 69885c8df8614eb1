"""The contract of losses, and the one place where lists become a number."""

from contextlib import AbstractContextManager, nullcontext
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
    - half-precision scores are computed in float32, and nothing by `torch.autocast`.

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
        """One number a list: (..., n) each -> (...), or with more axes in front (samples).

        A loss that takes more tensors (..., n), such as `groups`, names them here after `weights`,
        None by default; `forward` hands them on.
        """
        raise NotImplementedError(f"{type(self).__name__} must define per_list")

    def per_ragged_list(
        self,
        scores: Tensor,
        labels: Tensor,
        lengths: Tensor,
        weights: Tensor | None,
        **extra: Tensor,
    ) -> Tensor:
        """One number a ragged list: (N,) each and lengths (R,) -> (R,); pads, unless overridden.

        Who overrides `per_list` of a loss that has this too, as `SoftNDCG`, overrides both.
        """
        given = extra if weights is None else {"weights": weights, **extra}
        mask, scores, labels, *padded = pad_lists(lengths, scores, labels, *given.values())
        named = {"weights": None, **dict(zip(given, padded, strict=True))}
        return self.per_list(scores, labels, mask, **named)

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        **extra: Tensor | None,
    ) -> Tensor:
        """The loss of scores (..., n) against labels (..., n); mask and weights (..., n).

        Ragged lists come flat, one after the other, as scores, labels and weights (N,), with
        their `lengths` (R,) int64 in place of a mask; with reduction="none" the result is (R,).
        `extra` are the further tensors that `per_list` names, of the shape of the scores.
        """
        if lengths is not None and mask is not None:
            raise ValueError("mask must be None where lengths are given: ragged lists have none")
        check_lists(scores, labels=labels, mask=mask, weights=weights, **extra)
        scores = upcast(scores)
        labels = labels.to(scores.dtype)
        weights = None if weights is None else weights.to(scores.dtype)
        more = {k: x.to(scores.dtype) for k, x in extra.items() if x is not None}
        with _full_precision(scores):
            if lengths is None:
                per_list = self.per_list(scores, labels, mask, weights, **more)
                samples = per_list.dim() - (labels.dim() - 1)
            else:
                check_lengths(scores, lengths)
                per_list = self.per_ragged_list(scores, labels, lengths, weights, **more)
                samples = per_list.dim() - 1
        if samples:
            per_list = per_list.mean(tuple(range(samples)))
        if self.reduction == "none":
            return per_list
        if self.reduction == "sum":
            return per_list.sum()
        if lengths is not None:
            counted = (lengths > 0).sum().clamp(min=1)
        elif mask is not None:
            counted = mask.any(-1).sum().clamp(min=1)
        else:  # all lists, if they have items
            counted = max(1, per_list.numel() if scores.shape[-1] else 0)
        return per_list.sum() / counted

    def extra_repr(self) -> str:
        """The reduction, where it is not the default."""
        return "" if self.reduction == "mean" else f"reduction={self.reduction!r}"


def _full_precision(x: Tensor) -> AbstractContextManager[object]:
    # autocast would round the sums of a loss, and gradients with them, to half precision
    device = x.device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)
