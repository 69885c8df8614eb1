"""Checks of scores and gradients in training, and their messages."""

from collections.abc import Iterable
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from ltr.ragged import list_ids

_ADVICE = "if training diverged, a smaller learning rate helps"
_NAMED = 5  # a message names at most this many lists


def check_scores(
    scores: Tensor,
    batch: dict[str, Any],
    *,
    finite: bool = False,
) -> None:
    """Raise an error that names the list if a score of a real document is NaN.

    The check waits for the device, as metrics do.

    Args:
        scores: (N,) if the batch has `lengths`, else (B, n).
        batch: the batch that has these scores: `features` (N, ...) with `lengths` (B,), or
            `features` (B, n, ...) with `mask` (B, n); and `qid` if the lists have names.
        finite: whether an infinite score is an error too.

    Raises:
        ValueError: a score is NaN or, with `finite`, infinite. The message says whether the list's
            features are finite, and so whether the data or the model is the cause.

    >>> batch = {"features": torch.ones(2, 1, 3), "qid": ["a", "b"]}
    >>> check_scores(torch.tensor([[0.5], [float("nan")]]), batch)
    Traceback (most recent call last):
    ValueError: scores must not be NaN, got 1 of 1 in list 'b'; its features are finite, so the \
model is the cause: if training diverged, a smaller learning rate helps
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
        cause = f"; its features are finite, so the model is the cause: {_ADVICE}"
        if missing:
            cause = f"; {missing} of its features are not finite"
    wanted = "be finite" if finite else "not be NaN"
    count = f"{int((bad & own).sum())} of {int(own.sum())}"
    raise ValueError(f"scores must {wanted}, got {count} in {name}{cause}")


def all_finite(loss: Tensor, gradients: Iterable[Tensor] = ()) -> Tensor:
    """Return whether a loss and gradients are finite: a bool tensor on the loss's device.

    >>> bool(all_finite(torch.tensor(1.0), [torch.ones(2), torch.tensor([0.0, float("nan")])]))
    False
    """
    # The maximum norm is finite if all values are; the squares in a Euclidean norm could overflow.
    dense = [x.coalesce().values() if x.is_sparse else x for x in gradients]
    largest = get_total_norm([x for x in dense if x.numel()], inf)
    return loss.isfinite().all() & largest.isfinite().to(loss.device)


def not_finite(loss: Tensor, batch: Any, *, epoch: int, batch_idx: int) -> ValueError:
    """Return the error for a batch whose loss or gradients are not finite.

    Args:
        loss: the loss of the batch.
        batch: the batch, with `qid` if its lists have names.
        epoch: the index of the epoch, from 0.
        batch_idx: the index of the batch within the epoch, from 0.

    >>> print(not_finite(torch.tensor(torch.inf), {"qid": ["a", "b"]}, epoch=0, batch_idx=6))
    loss must be finite, got inf in epoch 1, batch 7 (qid a, b): \
if training diverged, a smaller learning rate helps
    """
    what = "gradients must be finite, got NaN or inf"
    if not bool(loss.isfinite().all()):
        what = f"loss must be finite, got {loss.sum().item()}"
    position = f"epoch {epoch + 1}, batch {batch_idx + 1}{_qids(batch)}"
    return ValueError(f"{what} in {position}: {_ADVICE}")


def _qids(batch: Any) -> str:
    """Return the first qids of a batch for a message; lists that fill the batch have none."""
    qids = batch.get("qid") if isinstance(batch, dict) else None
    if not isinstance(qids, list):
        return ""
    real = batch["lengths"].tolist() if "lengths" in batch else [1] * len(qids)
    names = [str(qid) for qid, length in zip(qids, real, strict=True) if length]
    return f" (qid {', '.join(names[:_NAMED])}{', ...' * (len(names) > _NAMED)})"
