"""A cutoff that moves in at the start of training."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from ltr.losses import SoftNDCG, moving_cutoff
from ltr.shapes import check_at_least


class MoveCutoff(Callback):
    """Trains `SoftNDCG(top_k=k)` without a cutoff at first, and then moves the cutoff in to k.

    The first steps have the cutoff of `ltr.losses.moving_cutoff`, which says why. Between steps the
    loss has its own cutoff. So validation, checkpoints and all later steps are those of the loss as
    it was given. The number of steps so far decides, so a resumed run continues where it was.

    The modules of `ltr` that train on a ranking loss add this callback to their Trainer, unless it
    has one already; `MoveCutoff(steps=0)` leaves the cutoff where it is.

    Args:
        steps: how many steps it takes until the cutoff has arrived, >= 0.

    Raises:
        ValueError: steps < 0.

    >>> MoveCutoff(steps=40).steps
    40
    """

    def __init__(self, steps: int = 40) -> None:
        self.steps = check_at_least("steps", steps, 0)
        self._cutoffs: list[tuple[SoftNDCG, int]] = []

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Set the cut of this step."""
        if trainer.global_step >= self.steps:
            return
        for part in pl_module.modules():
            if isinstance(part, SoftNDCG) and part.top_k is not None:
                self._cutoffs.append((part, part.top_k))
                part.top_k = moving_cutoff(trainer.global_step, part.top_k, self.steps)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """Give the loss its own cut back."""
        self._restore()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Give the loss its own cut back, also if the step failed."""
        self._restore()

    def _restore(self) -> None:
        for part, top_k in self._cutoffs:
            part.top_k = top_k
        self._cutoffs.clear()
