"""The callback that seeds each step of training."""

import os
from typing import Any, Literal

from lightning.pytorch import Callback, LightningModule, Trainer

from ltr.shapes import check_at_least
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
