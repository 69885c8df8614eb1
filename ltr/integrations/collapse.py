"""A warning if the scores within each list become equal."""

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle
from transformers import TrainerCallback

from ltr.integrations.adapter import TextLoss, check_ranking_loss
from ltr.losses import RankingLoss
from ltr.losses.base import real_items
from ltr.ragged import Lengths, check_lengths, chunks, flatten_nested, group_columns
from ltr.shapes import check_lists, check_number, check_whole, upcast

ADVICE = (
    "Try a lower learning rate with a warm-up, `activation_fn=torch.nn.Identity()` instead of a "
    "sigmoid before the loss, another loss such as `SoftmaxLoss`, and lists with harder documents"
)


class CollapseAlarm(TrainerCallback):
    """Warns once if the scores within lists become nearly equal: the model may not rank any more.

    Make the alarm with the training loss, and pass it to a trainer as a callback. The loss is a
    `RankingLoss`, a `CrossEncoderLoss` or `EncoderLoss`, or what a `compute_loss_func` calls. From
    `on_train_begin` to `on_train_end` the alarm reads the scores and labels that the loss gets.
    Without a trainer, call `update` in every step.

    The spread is the standard deviation of the scores within a list, averaged over the lists with
    at least two documents and over `window` steps. The alarm warns if the spread is below
    `fraction` times its largest value so far, or below `least`. The warning says what to try, and
    how many lists have documents with different labels: a loss separates scores only in such lists.

    With several processes, only the first process checks, and only its own lists. The alarm waits
    for the device once every `window` steps.

    Args:
        loss: the loss whose scores and labels are read. None (default) if you call `update`.
        window: the number of steps over which the spread is averaged, >= 1. Default: 20.
        fraction: the least allowed fraction of the largest spread so far, in [0, 1]. Default: 0.01.
        least: the least allowed spread, in units of the scores, >= 0. Default: 1e-4.

    Raises:
        ValueError: an option is invalid, or `loss` is not one of these losses.

    >>> alarm, labels = CollapseAlarm(window=2), torch.tensor([0, 1, 1])
    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     for scale in (1.0, 1.0, 0.001, 0.001):
    ...         alarm.update(torch.tensor([0.0, scale, 3.0]), labels, lengths=[2, 1])
    >>> print(str(found[0].message).partition("; ")[0])
    scores within lists are nearly equal: their standard deviation is 0.0005, and was 0.5
    """

    def __init__(
        self,
        loss: RankingLoss | TextLoss | None = None,
        window: int = 20,
        fraction: float = 0.01,
        least: float = 1e-4,
    ):
        if isinstance(loss, TextLoss):
            loss = loss.loss
        if loss is not None:
            check_ranking_loss(loss)
        if check_number("fraction", fraction, minimum=0.0) > 1:
            raise ValueError(f"fraction must be from 0 to 1, got {fraction!r}")
        self.loss = loss
        self.window = check_whole("window", window)
        self.fraction = fraction
        self.least = check_number("least", least, minimum=0.0)
        self.warned = False
        self.largest = 0.0
        self._steps: list[Tensor] = []
        self._hook: RemovableHandle | None = None

    def update(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None = None,
        *,
        lengths: Lengths | None = None,
        qid: Tensor | None = None,
    ) -> None:
        """Take the scores of one training step; after `window` steps, warn if they have collapsed.

        Args:
            scores: (..., n), or (N,) with `lengths` or `qid`.
            labels: the labels, in the shape of the scores.
            mask: (..., n) bool, True for a real document. Default: all are real.
            lengths: (R,) whole numbers, the lengths of the lists, which follow one after the other.
            qid: (N,) integers, the query of each document; the documents may be in any order.

        Raises:
            ValueError: the shapes do not match.
        """
        if self.warned:
            return
        check_lists(scores, labels=labels, mask=mask)
        columns = {"scores": upcast(scores.detach()), "labels": labels.detach()}
        if qid is not None:
            columns, lengths = group_columns(columns, qid)
        lists = [(mask, [*columns.values()])]
        if lengths is not None:
            whole = chunks(check_lengths(scores, lengths), *columns.values())
            lists = [(mask, tensors) for _, mask, tensors in whole]
        self._steps.append(torch.stack([spreads(x, y, mask) for mask, (x, y) in lists]).sum(0))
        if len(self._steps) == self.window:
            steps = torch.stack(self._steps)
            self._steps.clear()
            total, lists, differing = steps.sum(0).tolist()
            if lists:
                self._judge(total / lists, int(lists), int(differing))

    def _judge(self, spread: float, lists: int, differing: int) -> None:
        """Warn if the mean spread over the lists of a window is too small."""
        if spread < max(self.least, self.fraction * self.largest):
            self.warned = True
            warnings.warn(
                "scores within lists are nearly equal: their standard deviation is "
                f"{spread:.2g}, and was {max(self.largest, spread):.2g}; {differing} of {lists} "
                f"lists have documents with different labels. {ADVICE}",
                stacklevel=3,
            )
        elif spread > self.largest:  # this is false for a NaN spread
            self.largest = spread

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin to read the scores from the loss."""
        if self.loss is not None and self._hook is None and state.is_world_process_zero:
            self._hook = self.loss.register_forward_pre_hook(self._read, with_kwargs=True)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop reading."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _read(self, loss: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Pass the loss's arguments to `update`, but not in evaluation, which has no gradients."""
        names = ("scores", "labels", "mask", "lengths", "qid")
        given = {**dict(zip(names[:3], args, strict=False)), **kwargs}
        if not given["scores"].requires_grad:
            return
        if given["scores"].is_nested:
            nested = {name: given[name] for name in ("scores", "labels")}
            given["scores"], others, given["lengths"] = flatten_nested(**nested)
            given |= others
        if given.get("padding") is not None:
            given["mask"] = real_items(given["labels"], given.get("mask"), given["padding"])
        self.update(**{name: given[name] for name in names if name in given})


def spreads(scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
    """Return three values for the lists (..., n) that have at least two items.

    The values are the sum of the scores' standard deviations over these lists, the number of the
    lists, and the number of lists whose labels differ.

    >>> spreads(torch.tensor([[1.0, 3.0], [2.0, 2.0]]), torch.tensor([[1, 1], [0, 1]]), None)
    tensor([1., 2., 1.])
    """
    real = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    several = real.sum(-1) > 1
    spread = torch.where(several, deviation(scores, real), 0.0).sum()
    unequal = several & (deviation(labels.to(scores.dtype), real) > 0)
    return torch.stack([spread, several.sum(), unequal.sum()])


def deviation(x: Tensor, real: Tensor) -> Tensor:
    """Return the standard deviation of the real items of each list: (..., n) -> (...).

    >>> deviation(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([True, True, False]))
    tensor(1.)
    """
    count = real.sum(-1, keepdim=True).clamp(min=1)
    mean = torch.where(real, x, 0.0).sum(-1, keepdim=True) / count
    return (torch.where(real, x - mean, 0.0).square().sum(-1) / count.squeeze(-1)).sqrt()
