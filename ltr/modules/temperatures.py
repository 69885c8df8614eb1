"""A warning at a temperature that does not fit the scores."""

import warnings
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from ltr.kernels.lists import pad_lists
from ltr.operators import (
    GaussianRank,
    LaplaceRank,
    SigmoidRank,
    SoftRank,
    SoftSortRank,
    temperature_for,
)

_STEPS = 20  # scores of a new network differ by some hundredths, and grow quickly
_HOT, _COLD, _GOOD = 3, 100, 10  # standard deviations in one temperature
_CHECKED = (SigmoidRank, GaussianRank, LaplaceRank, SoftRank, SoftSortRank)


class CheckTemperature(Callback):
    """Warns once if a temperature in the loss does not fit the scores, and names one to try.

    Soft ranks are nearly linear in the scores where the temperature is more than a third of the
    scores' standard deviation within lists: who is first hardly counts. Below a hundredth of it
    most gradients vanish. Operators whose temperature is not in units of the scores are not
    checked: see `temperature_for`.

    The check comes at the end of an epoch, on its last training batch: of the first epoch with 20
    steps or more so far, since scores of a new network are nearly equal and no measure. It costs
    one call of the scorer.

    The modules of `ltr` that train on a ranking loss add this callback to their Trainer, unless it
    has one already. In a training loop of your own, compare with `temperature_for(scores)` after
    the first epoch.

    >>> trainer = Trainer(callbacks=[CheckTemperature()], logger=False)
    """

    def __init__(self) -> None:
        self._done = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a new run."""
        self._done = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Check after the last batch of an epoch."""
        if self._done or not trainer.is_last_batch or trainer.global_step < _STEPS:
            return
        self._done = True
        if not _checked(pl_module.loss):
            return
        modes = {part: part.training for part in pl_module.modules()}
        pl_module.eval()
        with torch.no_grad():
            lists = pl_module.score_batch(batch)
        for part, training in modes.items():  # some may be frozen
            part.training = training
        scores, mask = lists.scores, lists.mask
        if lists.lengths is not None:
            mask, scores = pad_lists(lists.lengths, scores)
        text = temperature_warning(pl_module.loss, scores, mask)
        if text and trainer.is_global_zero:
            warnings.warn(text, stacklevel=1)


def temperature_warning(loss: nn.Module, scores: Tensor, mask: Tensor | None = None) -> str | None:
    """Return what is wrong with a temperature in a loss, or None.

    Args:
        loss: with operators in it, or an operator.
        scores: (..., n), of a batch after some steps of training.
        mask: (..., n) bool, True = a real item. Default: all are real.

    Returns:
        A text that names the temperature and one to try. None if the temperatures fit, none is
        checked, or the scores are not finite or do not differ.

    >>> from ltr.losses import SoftNDCG
    >>> scores = torch.tensor([[-1.0, 0.0, 1.0]])
    >>> temperature_warning(SoftNDCG(SigmoidRank(0.1)), scores)
    >>> temperature_warning(SoftNDCG(SigmoidRank(0.5)), scores)
    'SigmoidRank has the temperature 0.5, more than a third of the standard deviation of the \
scores within lists, 1: its ranks hardly show who is first. Try SigmoidRank(temperature=0.1)'
    """
    try:
        width = temperature_for(scores, mask, sharpness=1)
    except ValueError:  # the scores are not finite or do not differ
        return None
    for operator in _checked(loss):
        temperature = operator.temperature
        if temperature * _HOT > width:
            limit, trouble = "more than a third", "its ranks hardly show who is first"
        elif temperature * _COLD < width:
            limit, trouble = "less than a hundredth", "most of its gradients vanish"
        else:
            continue
        name = type(operator).__name__
        return (
            f"{name} has the temperature {temperature:g}, {limit} of the standard deviation of the "
            f"scores within lists, {width:.2g}: {trouble}. "
            f"Try {name}(temperature={width / _GOOD:.1g})"
        )
    return None


def _checked(loss: nn.Module) -> list[Any]:
    """The operators of a loss that are checked, if their temperature is above 0."""
    return [
        part
        for part in loss.modules()
        if isinstance(part, _CHECKED) and part.temperature > 0 and getattr(part, "power", 1) == 1
    ]
