"""The callbacks that act on each step of a training: seeds and cutoffs."""

import os
from contextlib import ExitStack
from typing import Any, Literal

from lightning.pytorch import Callback, LightningModule, Trainer

from ltr.modules.steps import CUTOFF_STEPS, moved_cutoffs, seed_batch
from ltr.shapes import check_at_least


class SeedSteps(Callback):
    """Seeds torch, numpy and random before each batch, from (seed, epoch, batch, process).

    So a resumed run, also one resumed within an epoch, has the same dropout and Gumbel noise as an
    uninterrupted run. How often a run validates does not change its training, nor the reverse.
    Tests and predictions are not seeded. Every `Ranker` adds this callback to its Trainer, unless
    the Trainer has one already.

    Args:
        seed: >= 0. Default: the seed of `seed_everything`, or 0 without it. A checkpoint keeps the
            seed, and a resumed run uses it.

    Raises:
        ValueError: seed < 0.

    >>> SeedSteps(seed=3).state_dict()
    {'seed': 3}
    """

    def __init__(self, seed: int | None = None):
        self.seed = None if seed is None else check_at_least("seed", seed, 0)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the default of the seed."""
        if self.seed is None:
            self.seed = int(os.environ.get("PL_GLOBAL_SEED", "0"))

    def state_dict(self) -> dict[str, Any]:
        """Return the seed, for the checkpoint."""
        return {"seed": self.seed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the checkpoint's seed."""
        self.seed = state_dict["seed"]

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Seed before a training step."""
        self._start(trainer, "train", batch_idx, 0)

    def on_validation_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Seed before a validation step."""
        self._start(trainer, "validate", batch_idx, dataloader_idx)

    def _start(
        self, trainer: Trainer, stage: Literal["train", "validate"], batch: int, loader: int
    ) -> None:
        place = {"loader": loader, "process": trainer.global_rank}
        seed_batch(self.seed or 0, stage, trainer.current_epoch, batch, **place)


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

    def __init__(self, steps: int = CUTOFF_STEPS) -> None:
        self.steps = check_at_least("steps", steps, 0)
        self._step = ExitStack()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Set the cutoff of this step."""
        self._step.enter_context(moved_cutoffs(pl_module, trainer.global_step, self.steps))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """Give the loss its own cutoff back."""
        self._step.close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Give the loss its own cutoff back, also if the step failed."""
        self._step.close()
