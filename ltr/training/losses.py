"""The loss of a batch: its side inputs, the weights of its lists, the checks of its value."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ltr.losses.base import Loss

_COLUMNS = ("position", "protected")  # a table may have these side inputs


class ScoredLists(NamedTuple):
    """A batch of lists with their scores.

    Attributes:
        scores: (B, n), or (N,) with `lengths`.
        labels: the labels, in the shape of the scores, with one more axis if there are several.
        mask: (B, n) bool, True = a real item; None: all items are real.
        weights: weights of the lists or items, in the form that the loss takes; None: all equal.
        lengths: (B,) int64, the number of items of each list, if the lists are ragged; else None.
        side_inputs: further arguments of the loss by name, each in the shape of the scores.

    >>> labels = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    >>> mask = torch.tensor([[True, True, False], [False, False, False]])
    >>> ScoredLists(torch.zeros(2, 3), labels, mask).real()
    tensor(1)
    """

    scores: Tensor
    labels: Tensor
    mask: Tensor | None
    weights: Tensor | None = None
    lengths: Tensor | None = None
    side_inputs: Mapping[str, Tensor] = MappingProxyType({})

    def real(self) -> Tensor:
        """Return the number of lists with a real item; a filler of a `ListDataset` has none."""
        if self.lengths is not None:
            return (self.lengths > 0).sum()
        if self.mask is None:
            return torch.tensor(len(self.scores), device=self.scores.device)
        return self.mask.any(-1).sum()


def side_inputs(loss: Loss, batch: dict[str, Any]) -> dict[str, Tensor]:
    """Return those side inputs of a loss that are in a batch.

    >>> from ltr.losses import Unbiased
    >>> side_inputs(Unbiased(), {"position": torch.tensor([2, 1]), "protected": torch.ones(2)})
    {'position': tensor([2, 1])}
    """
    return {name: batch[name] for name in getattr(loss, "side_inputs", ()) if name in batch}


def batch_loss(loss: Loss, lists: ScoredLists, *, of_lists: bool = False) -> Tensor:
    """Return the loss of a batch, a scalar.

    Args:
        loss: the loss. Its reduction is "none" if `of_lists`, and otherwise "mean" or "sum".
        lists: the lists.
        of_lists: whether the weights, one for each row of ragged lists, are those of the lists. The
            result is then the weighted sum of the lists' losses over the number of real lists.

    Raises:
        ValueError: a side input is missing, or the loss gives more than one number.

    >>> from ltr.losses import PointwiseMSE
    >>> scores, labels = torch.tensor([0.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, 0.0])
    >>> weights, lengths = torch.tensor([2.0, 2.0, 1.0]), torch.tensor([2, 1])
    >>> given = ScoredLists(scores, labels, None, weights, lengths)
    >>> batch_loss(PointwiseMSE(reduction="none"), given, of_lists=True)
    tensor(3.)
    """
    for name in getattr(loss, "side_inputs", ()):
        if name not in lists.side_inputs:
            raise _lacks(loss, name)
    scores, labels, mask, weights, lengths, side = lists
    arguments = {**side} if lengths is None else {**side, "lengths": lengths}
    if of_lists and weights is not None and lengths is not None:
        losses = loss(scores, labels, mask, **arguments)
        starts = (lengths.cumsum(0) - lengths).clamp(max=len(weights) - 1)
        value = (losses * weights[starts]).sum() / lists.real().clamp(min=1)
    else:
        value = loss(scores, labels, mask, weights, **arguments)
    if value.dim():
        raise ValueError(
            f"loss must give one number per batch, got shape {tuple(value.shape)}: its "
            'reduction must be "mean" or "sum"'
        )
    return value


def check_gradient(loss: Loss, value: Tensor) -> Tensor:
    """Return the value of a loss in training, which must have a gradient.

    Raises:
        ValueError: the value has no gradient.
    """
    if not value.requires_grad:
        raise ValueError(
            "loss must have a gradient, got one without: hard ranks, such as those of "
            f"HardRank, have none ({loss})"
        )
    return value


def _lacks(loss: Loss, name: str) -> ValueError:
    how = f"give batches the key {name!r}"
    if name in _COLUMNS:
        how = f"name its column ({name}= of TableDataModule, --data.{name}), or {how}"
    return ValueError(f"{type(loss).__name__} needs the side input {name!r}, got none: {how}")
