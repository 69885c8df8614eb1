"""Check scores for NaN and inf, and name the lists that have them."""

from typing import Any

import torch
from torch import Tensor

from ltr.kernels.lists import list_ids


def check_scores(scores: Tensor, batch: dict[str, Any], *, finite: bool = False) -> None:
    """Raise an error that names the list if a score of a real document is NaN.

    Waits for the device, as metrics do.

    Args:
        scores: (N,) if the batch has `lengths`, else (B, n).
        batch: the batch of these lists: `features` (N, ...) with `lengths` (B,), or (B, n, ...)
            with `mask` (B, n); `qid` if present.
        finite: whether an infinite score is an error too.

    Raises:
        ValueError: a score is NaN; the message tells whether the list's features are finite, and
            so whether the data or the model is the cause.

    >>> batch = {"features": torch.ones(2, 1, 3), "qid": ["a", "b"]}
    >>> check_scores(torch.tensor([[0.5], [float("nan")]]), batch)
    Traceback (most recent call last):
    ValueError: scores must not be NaN, got 1 of 1 in list 'b'; its features are finite, so the \
model is the cause
    """
    mask, lengths = batch.get("mask"), batch.get("lengths")
    bad = ~scores.isfinite() if finite else scores.isnan()
    if mask is not None:
        bad = bad & mask
    if not bool(bad.any()):
        return
    if lengths is None:
        row = int(bad.any(-1).nonzero()[0])
        own = torch.zeros_like(bad)
        own[row] = True if mask is None else mask[row]
    else:
        ids = list_ids(scores, lengths)
        row = int(ids[bad][0])
        own = ids == row
    name = f"list {batch['qid'][row]!r}" if "qid" in batch else f"list {row} of the batch"
    cause = ""
    if isinstance(features := batch.get("features"), Tensor):
        missing = int((~features[own].isfinite()).sum())
        cause = "; its features are finite, so the model is the cause"
        if missing:
            cause = f"; {missing} of its features are not finite"
    wanted = "be finite" if finite else "not be NaN"
    count = f"{int((bad & own).sum())} of {int(own.sum())}"
    raise ValueError(f"scores must {wanted}, got {count} in {name}{cause}")
