"""Callbacks of a training: best weights, last state, early stopping."""

import io
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch.callbacks as lightning_callbacks
import torch
from lightning.fabric.plugins.io import TorchCheckpointIO
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import SIGTERMException

from ltr.files import atomic_write


def checkpoint_folder(run: str | os.PathLike[str]) -> Path:
    """Return the folder where a run keeps `best.ckpt` and `last.ckpt`.

    >>> checkpoint_folder("/runs/digits/1").as_posix()
    '/runs/digits/1/checkpoints'
    """
    return Path(run).expanduser().resolve() / "checkpoints"


def is_first_process() -> bool:
    """Return whether this process writes the files; works before the processes are connected."""
    return getattr(rank_zero_only, "rank", 0) == 0


def train_steps(trainer: Trainer) -> int:
    """Return the training steps so far; in manual optimization, the batches.

    Lightning counts a step for each optimizer there.
    """
    if trainer.lightning_module.automatic_optimization:
        return trainer.global_step
    return trainer.fit_loop.epoch_loop.total_batch_idx + 1


class BestCheckpoint(ModelCheckpoint):
    """Keeps `checkpoints/best.ckpt`: the weights with the best value so far.

    Args:
        monitor: the logged value to watch.
        mode: whether the largest ("max") or the smallest ("min") value is best.

    Raises:
        ValueError: in training, no value of this name is logged.

    >>> BestCheckpoint(monitor="val_mrr").filename
    'best'
    """

    option = "best_checkpoint"

    def __init__(self, monitor: str = "val_ndcg_10", mode: Literal["max", "min"] = "max") -> None:
        super().__init__(
            filename="best", monitor=monitor, mode=mode, save_top_k=1, enable_version_counter=False
        )

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Set the folder of the checkpoint."""
        self.dirpath = str(checkpoint_folder(trainer.default_root_dir))
        super().setup(trainer, pl_module, stage)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare the value, if there is no validation."""
        with monitor_named("best_checkpoint", self.monitor, trainer):
            super().on_train_epoch_end(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare the value."""
        with monitor_named("best_checkpoint", self.monitor, trainer):
            super().on_validation_end(trainer, pl_module)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best value so far, also if the run's folder has changed."""
        here, there = str(self.dirpath), state_dict["dirpath"]
        state = dict(state_dict)
        if here != there:
            best = state["best_model_path"]
            if best and os.path.isfile(best) and is_first_process():
                os.makedirs(here, exist_ok=True)
                with atomic_write(_moved(best, here)) as part:
                    shutil.copyfile(best, part)
            for key in ("best_model_path", "kth_best_model_path", "last_model_path"):
                state[key] = _moved(state[key], here)
            models = state["best_k_models"].items()
            state["best_k_models"] = {_moved(path, here): score for path, score in models}
            state["dirpath"] = here
        super().load_state_dict(state)


def _moved(path: str, folder: str) -> str:
    return os.path.join(folder, os.path.basename(path)) if path else path


class LastCheckpoint(Checkpoint):
    """Keeps `checkpoints/last.ckpt`, from which a killed run resumes (`--ckpt_path last`).

    It is saved at the end of each epoch, within an epoch as the arguments say, and when SIGINT
    (Ctrl+C) or SIGTERM ends the run: after the current training step or validation. A second signal
    ends the run at once.

    Args:
        every_n_train_steps: save also after this many steps; None for never.
        every_seconds: save also after this many seconds; None for never.

    Raises:
        ValueError: an argument is not > 0.

    >>> LastCheckpoint(every_seconds=0)
    Traceback (most recent call last):
    ValueError: every_seconds must be > 0 or None, got 0
    """

    def __init__(
        self, every_n_train_steps: int | None = None, every_seconds: float | None = 60.0
    ) -> None:
        super().__init__()
        if every_n_train_steps is not None and every_n_train_steps < 1:
            raise ValueError(f"every_n_train_steps must be >= 1 or None, got {every_n_train_steps}")
        if every_seconds is not None and not every_seconds > 0:
            raise ValueError(f"every_seconds must be > 0 or None, got {every_seconds}")
        self.every_n_train_steps = every_n_train_steps
        self.every_seconds = every_seconds
        self._saved_at = time.monotonic()
        self._before = 0.0
        self._begun: float | None = None
        self._signal: int | None = None
        self._handlers: dict[int, Any] = {}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Set the path of the file, the same in all processes."""
        folder = checkpoint_folder(trainer.default_root_dir)
        self.path: Path = trainer.strategy.broadcast(folder / "last.ckpt")

    @property
    def seconds(self) -> float:
        """The seconds of training so far, including those before a resume."""
        return self._before + (0.0 if self._begun is None else time.monotonic() - self._begun)

    def state_dict(self) -> dict[str, Any]:
        """Return the seconds, for the checkpoint."""
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the seconds."""
        self._before = state_dict["seconds"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock; from now on a signal takes effect at the end of a step."""
        self._saved_at = self._begun = time.monotonic()
        self._signal = None
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._note)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock."""
        self._before, self._begun = self.seconds, None
        self._restore_handlers()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Restore the signal handlers."""
        self._restore_handlers()

    def _note(self, number: int, frame: Any) -> None:
        self._signal = number
        self._restore_handlers()

    def _restore_handlers(self) -> None:
        while self._handlers:
            number, handler = self._handlers.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _stop_if_told(self, trainer: Trainer) -> None:
        """End the run, in all processes, if one of them got a signal."""
        if trainer.strategy.reduce_boolean_decision(self._signal is not None, all=False):
            self._restore_handlers()
            raise KeyboardInterrupt if self._signal == signal.SIGINT else SIGTERMException

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """Save if it is due, unless a validation or the end of the epoch comes next.

        A run resumed before that validation would skip it. So the callback saves after it.
        """
        done = trainer.fit_loop.epoch_loop.batch_progress.current.ready
        validates = trainer.val_check_batch is not None and done % trainer.val_check_batch == 0
        if not (trainer.is_last_batch or validates):
            self._save_if_due(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save if it is due within an epoch."""
        if not (trainer.sanity_checking or trainer.is_last_batch):
            self._save_if_due(trainer)

    def _save_if_due(self, trainer: Trainer) -> None:
        steps = self.every_n_train_steps
        due = steps is not None and train_steps(trainer) % steps == 0
        if self.every_seconds is not None and not due:
            due = time.monotonic() - self._saved_at >= self.every_seconds
        due = due or self._signal is not None
        if trainer.strategy.reduce_boolean_decision(due, all=False):  # their clocks differ
            self._save(trainer)
            self._stop_if_told(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save; Lightning calls checkpoint callbacks last, so the state of the others is final."""
        self._save(trainer)
        self._stop_if_told(trainer)

    def _save(self, trainer: Trainer) -> None:
        for logger in trainer.loggers:  # a killed run must not lose what it logged
            logger.save()
        trainer.save_checkpoint(self.path, weights_only=False)
        self._saved_at = time.monotonic()


class EarlyStopping(lightning_callbacks.EarlyStopping):
    """Stops the training when a logged value no longer improves.

    Args:
        monitor: the logged value to watch.
        mode: whether the largest ("max") or the smallest ("min") value is best.
        patience: how many validations in a row without a new best value stop the training; None
            for never.
        min_delta: by how much a new best value must be better.

    Raises:
        ValueError: patience is < 1; in training, no value of this name is logged.

    >>> EarlyStopping(patience=0)
    Traceback (most recent call last):
    ValueError: patience must be >= 1 or None, got 0
    """

    option = "early_stopping"

    def __init__(
        self,
        monitor: str = "val_ndcg_10",
        mode: Literal["max", "min"] = "max",
        patience: int | None = 10,
        min_delta: float = 0.0,
    ) -> None:
        if patience is not None and patience < 1:
            raise ValueError(f"patience must be >= 1 or None, got {patience}")
        self.validated = False
        super().__init__(
            monitor=monitor,
            mode=mode,
            patience=sys.maxsize if patience is None else patience,
            min_delta=min_delta,
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the count, but keep the patience of this run's configuration."""
        patience = self.patience
        super().load_state_dict(state_dict)
        self.patience = patience

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop a resumed run that had stopped early, before it trains another epoch."""
        if self.wait_count >= self.patience:
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare the value after an epoch with one validation, unless `max_steps` cut it off."""
        cut_off = not self.validated and any(trainer.num_val_batches)
        if not cut_off:
            with monitor_named("early_stopping", self.monitor, trainer):
                super().on_train_epoch_end(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare the value, if an epoch has several validations, or less than one."""
        self.validated = self.validated or not trainer.sanity_checking
        with monitor_named("early_stopping", self.monitor, trainer):
            super().on_validation_end(trainer, pl_module)


class WholeCheckpoints(TorchCheckpointIO):
    """Writes checkpoints beside their place, and puts them there once they are complete.

    Lightning's own way writes them to the folder for temporary files. If that is on another disk,
    a checkpoint is copied into its place, and a run killed meanwhile leaves half of it.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Save a checkpoint; one on remote storage as Lightning does."""
        if "://" in str(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        content = io.BytesIO()  # torch.save gives no reason if it cannot write a file
        torch.save(checkpoint, content)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with atomic_write(path) as part:
            part.write_bytes(content.getbuffer())


@contextmanager
def monitor_named(group: str, monitor: str | None, trainer: Trainer) -> Iterator[None]:
    """Name the logged values in the error of a callback that does not find its own.

    Args:
        group: the name of the callback's options.
        monitor: the name of the value.
        trainer: the Trainer, which knows the logged values.

    Raises:
        ValueError: there is no value of this name.
    """
    try:
        yield
    except (RuntimeError, MisconfigurationException) as error:
        names = trainer.callback_metrics
        if monitor in names:
            raise
        turn_off = "; early_stopping.patience null turns early stopping off"
        raise ValueError(
            f"{group}.monitor must be one of {', '.join(sorted(names))}, got {monitor!r}"
            f"{turn_off if group == 'early_stopping' else ''}"
        ) from error
