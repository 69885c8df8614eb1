"""Callbacks that keep the best weights and the last state.

These callbacks extend Lightning's, and write to the folder of a run. They restore only numbers from
a checkpoint: no path in a checkpoint is opened, written or removed.
"""

import os
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch.callbacks as lightning_callbacks
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy, Strategy
from lightning.pytorch.utilities import rank_zero_only

from ltr.models import RankingModel


def is_first_process() -> bool:
    """Return whether this process writes the files; valid even before processes are connected."""
    return getattr(rank_zero_only, "rank", 0) == 0


def train_steps(trainer: Trainer) -> int:
    """Return the number of training steps so far.

    With manual optimization, Lightning counts a step for each optimizer. The result is then the
    number of batches.
    """
    if trainer.lightning_module.automatic_optimization:
        return trainer.global_step
    return trainer.fit_loop.epoch_loop.total_batch_idx + 1


class _RunCheckpoint(lightning_callbacks.ModelCheckpoint):
    """Keeps a file in a run's folder `checkpoints`."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Set the folder, which is the same in all processes."""
        self.dirpath = checkpoint_folder(trainer)
        super().setup(trainer, pl_module, stage)


class BestCheckpoint(_RunCheckpoint):
    """Keeps the best epoch of a run: `checkpoints/best.ckpt`, and a folder `model` for a `Ranker`.

    Both are in the Trainer's `default_root_dir`. The Trainer tests with `best.ckpt`.
    `RankingModel.load` reads the folder `model`. The monitored value is compared after each
    validation; without validation, after each epoch. A run that resumes in another folder begins
    without a best value. Strategies for sharded models write no `model`.

    Args:
        monitor: the logged value to watch; or "epoch", which with mode="max" keeps the last epoch.
        mode: whether the largest ("max") or the smallest ("min") value is best.

    Raises:
        MisconfigurationException: `mode` is neither "max" nor "min"; after a validation, no value
            with the name `monitor` is logged.

    >>> BestCheckpoint(monitor="val_mrr").state_dict()
    {'best': None}
    """

    def __init__(self, monitor: str = "val_ndcg_10", mode: Literal["max", "min"] = "max") -> None:
        super().__init__(filename="best", monitor=monitor, mode=mode, enable_version_counter=False)

    @property
    def model_path(self) -> Path:
        """The folder of the model."""
        return Path(str(self.dirpath)).with_name("model")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare the value if there is no validation, or one in each epoch; save if it is best."""
        before = self.best_model_score
        super().on_train_epoch_end(trainer, pl_module)
        self._save_model(before, trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare the value, unless `on_train_epoch_end` does so; save if it is best."""
        before = self.best_model_score
        super().on_validation_end(trainer, pl_module)
        self._save_model(before, trainer, pl_module)

    def _save_model(self, before: Any, trainer: Trainer, module: LightningModule) -> None:
        whole = writes_whole_models(trainer.strategy)
        if self.best_model_score is before or not (whole and trainer.is_global_zero):
            return
        if isinstance(model := getattr(module, "model", None), RankingModel):
            model.save(self.model_path)

    def state_dict(self) -> dict[str, Any]:
        """Return the best value, for the checkpoint."""
        return {"best": None if self.best_model_score is None else float(self.best_model_score)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best value, if this run has a `best.ckpt`."""
        path = self.format_checkpoint_name({})
        if state_dict["best"] is not None and os.path.isfile(path):
            self.best_model_score = torch.tensor(float(state_dict["best"]), dtype=torch.float64)
            self.kth_value = self.best_model_score
            self.best_model_path = self.kth_best_model_path = path
            self.best_k_models = {path: self.best_model_score}


class LastCheckpoint(_RunCheckpoint):
    """Keeps `checkpoints/last.ckpt` in the folder of the run; a killed run resumes from this file.

    The file is saved at the end of each epoch, after all other callbacks have updated their states.
    To save more often, make epochs shorter with `trainer.limit_train_batches`. Each epoch draws its
    own order of the lists, so later epochs use other lists.
    """

    def __init__(self) -> None:
        super().__init__(
            filename="last", save_on_train_epoch_end=True, enable_version_counter=False
        )

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the logs, so that a killed run does not lose them; then save the checkpoint."""
        _save_logs(trainer)
        super().on_train_epoch_end(trainer, pl_module)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the logs again: Lightning logs `train_loss` only after `on_train_epoch_end`."""
        _save_logs(trainer)

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state: there is nothing to restore, as the path of the file is fixed."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Ignore the empty state."""


def _save_logs(trainer: Trainer) -> None:
    for logger in trainer.loggers:
        logger.save()


def writes_whole_models(strategy: Strategy) -> bool:
    """Return whether each process has all weights: strategies for sharded models split them."""
    return isinstance(strategy, SingleDeviceStrategy | DDPStrategy)


def checkpoint_folder(trainer: Trainer) -> str:
    """Return the folder where a run keeps `best.ckpt` and `last.ckpt`."""
    return str(Path(trainer.default_root_dir).expanduser().resolve() / "checkpoints")
