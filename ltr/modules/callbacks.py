"""Random numbers that depend only on the position in the training, so that runs can resume."""

import os
import random
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from ltr.shapes import check_at_least

_TRAIN, _VALIDATE = 0, 1


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
        self._start(trainer, _TRAIN, batch_idx, 0)

    def on_validation_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Seed before a validation step."""
        self._start(trainer, _VALIDATE, batch_idx, dataloader_idx)

    def _start(self, trainer: Trainer, stage: int, batch: int, loader: int) -> None:
        place = [self.seed or 0, stage, trainer.current_epoch, batch, loader, trainer.global_rank]
        words = np.random.SeedSequence(place).generate_state(3, np.uint32).tolist()
        if torch.accelerator.is_available():
            torch.manual_seed(words[0])
        else:  # torch.manual_seed would note this stack for each absent device: 0.7 ms
            torch.default_generator.manual_seed(words[0])
        # the global generators too: a user's scorer or loss may draw from them
        np.random.seed(words[1])  # noqa: NPY002
        random.seed(words[2])
