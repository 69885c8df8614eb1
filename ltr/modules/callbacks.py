"""The callbacks that each module of ltr adds to its Trainer: seeds, and finite values."""

import os
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from ltr.config.folder import check_finite
from ltr.shapes import check_at_least
from ltr.training.finite import all_finite, not_finite
from ltr.training.seeds import seed_batch


class SeedSteps(Callback):
    """Seeds torch, numpy and random before each batch, from (seed, epoch, batch, process).

    So a resumed run has the same dropout and Gumbel noise as an uninterrupted run. Training and
    validation do not influence each other's random numbers. Tests and predictions are not seeded.
    Every `Ranker` adds this callback to its Trainer, unless the Trainer already has one.

    Args:
        seed: the seed, >= 0. Default: the seed of `seed_everything`, or 0 without it. A checkpoint
            keeps the seed, and a resumed run uses the seed of its checkpoint.

    Raises:
        ValueError: `seed` is < 0.

    >>> SeedSteps(seed=3).state_dict()
    {'seed': 3}
    """

    def __init__(self, seed: int | None = None):
        self.seed = None if seed is None else check_at_least("seed", seed, 0)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Set the seed if none was given."""
        if self.seed is None:
            self.seed = int(os.environ.get("PL_GLOBAL_SEED", "0"))

    def state_dict(self) -> dict[str, Any]:
        """Return the seed, for the checkpoint."""
        return {"seed": self.seed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the seed from the checkpoint."""
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
        position = {"loader": loader, "process": trainer.global_rank}
        seed_batch(self.seed or 0, stage, trainer.current_epoch, batch, **position)


class CheckFinite(Callback):
    """Stops training at the first batch whose loss or gradient is not finite.

    The error names the epoch, the batch and its lists. Parameters that are not finite are never
    saved, so the last good checkpoint stays.

    For each batch the callback reads one value from the device. With a gradient scaler (precision
    16-mixed) only the loss is checked, because scaled gradients may overflow, and the scaler skips
    the steps in which they do. With manual optimization the check comes at the end of the batch.

    The modules of `ltr` add this callback to their Trainer, unless the Trainer already has one.

    Raises:
        ValueError: in training, the loss or a gradient is not finite; when a checkpoint is saved,
            a parameter is not finite, or a buffer has NaN.
    """

    def __init__(self) -> None:
        self._batch: Any = None
        self._batch_idx = 0
        self._loss: Tensor | None = None

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Keep the batch for the message."""
        self._batch, self._batch_idx, self._loss = batch, batch_idx, None

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: Tensor
    ) -> None:
        """Keep the loss; with manual optimization, the sum of the batch's losses."""
        loss = loss.detach()
        self._loss = loss if self._loss is None else self._loss + loss

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """With automatic optimization, check the loss and the gradients."""
        if pl_module.automatic_optimization:
            self._check(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """With manual optimization, check the loss and the gradients of the whole batch."""
        if not pl_module.automatic_optimization:
            self._check(trainer)
        self._batch = self._loss = None

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Raise `ValueError` for a parameter that is not finite; the previous checkpoint stays."""
        step, epoch = trainer.global_step, trainer.current_epoch + 1
        check_finite(pl_module, f"the checkpoint after step {step} in epoch {epoch}: ")

    def _check(self, trainer: Trainer) -> None:
        if self._loss is None:
            return
        gradients: list[Tensor] = []
        if getattr(trainer.precision_plugin, "scaler", None) is None:
            groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
            gradients = [p.grad for group in groups for p in group["params"] if p.grad is not None]
        bad = ~all_finite(self._loss, gradients)
        # All processes stop, because one that continued would wait for the others.
        if trainer.world_size > 1:
            torch.distributed.all_reduce(bad := bad.to(torch.int32))
        if bad:
            where = {"epoch": trainer.current_epoch, "batch_idx": self._batch_idx}
            raise not_finite(self._loss, self._batch, **where)
