"""Callbacks for training: keep the best weights and the last state, and stop early."""

import io
import math
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch.callbacks as lightning_callbacks
import torch
from lightning.fabric.plugins.io import TorchCheckpointIO
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_only, rank_zero_warn
from torch import Tensor

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
    """Return the number of training steps so far; in manual optimization, of batches.

    Lightning counts a step for each optimizer there.
    """
    if trainer.lightning_module.automatic_optimization:
        return trainer.global_step
    return trainer.fit_loop.epoch_loop.total_batch_idx + 1


class BestCheckpoint(Checkpoint):
    """Keeps `checkpoints/best.ckpt`: the weights with the best value so far.

    The value is compared after each validation; without validation, after each epoch. The
    callback's state is the best value. A run that resumes from the checkpoint of another run copies
    the file `best.ckpt` beside that checkpoint; if there is none, it begins without a best value.

    Args:
        monitor: the logged value to watch, or "epoch", whose largest value is the last one.
        mode: whether the largest ("max") or the smallest ("min") value is best.

    Raises:
        ValueError: mode is neither; in training, no value of this name is logged.

    Attributes:
        best_model_score: the best value so far, or None.
        best_model_path: the file; "" if none is written yet.

    >>> BestCheckpoint(monitor="val_mrr").state_dict()
    {'best': None}
    >>> BestCheckpoint(mode="most")
    Traceback (most recent call last):
    ValueError: mode must be 'max' or 'min', got 'most'
    """

    option = "best_checkpoint"

    def __init__(self, monitor: str = "val_ndcg_10", mode: Literal["max", "min"] = "max") -> None:
        super().__init__()
        if mode not in ("max", "min"):
            raise ValueError(f"mode must be 'max' or 'min', got {mode!r}")
        self.monitor = monitor
        self.mode = mode
        self.best_model_score: float | None = None
        self._path = Path()
        self._has_file = False
        self._compared_at = 0
        self._validated = False

    @property
    def state_key(self) -> str:
        """The key of the state in a checkpoint: a run that monitors another value starts over."""
        return f"{type(self).__qualname__}({self.monitor}, {self.mode})"

    @property
    def best_model_path(self) -> str:
        """The file, for Lightning (`trainer.test(ckpt_path="best")`)."""
        return "" if self.best_model_score is None else str(self._path)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Set the path of the file, the same in all processes."""
        folder = checkpoint_folder(trainer.default_root_dir)
        self._path = trainer.strategy.broadcast(folder / "best.ckpt")

    def state_dict(self) -> dict[str, Any]:
        """Return the best value, for the checkpoint."""
        return {"best": self.best_model_score}

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Copy `best.ckpt` from the folder of the checkpoint that the user named."""
        known = self.state_key in checkpoint["callbacks"]
        if known and trainer.state.fn == TrainerFn.FITTING and trainer.is_global_zero:
            beside = Path(str(trainer.ckpt_path)).expanduser().with_name("best.ckpt")
            other = beside.resolve() != self._path.resolve()
            if other and beside.is_file() and not beside.is_symlink():
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with atomic_write(self._path) as part:
                    shutil.copyfile(beside, part)
        self._has_file = trainer.strategy.broadcast(self._path.is_file())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best value so far, if its weights exist.

        Raises:
            ValueError: it is not a number.
        """
        best = state_dict["best"]
        if best is not None:
            best = check_number("best", best, float)
        self.best_model_score = best if self._has_file else None

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare the value after an epoch with one validation at its end, or with none."""
        if self._compares_at_epoch_end(trainer):
            self._compare(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare the value if an epoch has several validations, or fewer than one."""
        self._validated = self._validated or not trainer.sanity_checking
        if not (trainer.sanity_checking or self._compares_at_epoch_end(trainer)):
            self._compare(trainer)

    def _compares_at_epoch_end(self, trainer: Trainer) -> bool:
        once = trainer.val_check_interval == 1.0 and trainer.check_val_every_n_epoch == 1
        return once or not any(trainer.num_val_batches)

    def _compare(self, trainer: Trainer) -> None:
        light = trainer.fast_dev_run  # pyright: ignore[reportAttributeAccessIssue]
        fits = trainer.state.fn == TrainerFn.FITTING and not light
        if not fits or self._compared_at == trainer.global_step:
            return
        known = {"epoch": trainer.current_epoch, **trainer.callback_metrics}
        if self.monitor not in known:
            names = ", ".join(sorted(trainer.callback_metrics))
            text = f"{self.option}.monitor must be one of {names}, got {self.monitor!r}"
            if self._validated:
                raise ValueError(text)
            rank_zero_warn(f"{text}: no best.ckpt is written")
            return
        value, best = float(known[self.monitor]), self.best_model_score
        better = best is None or (value > best if self.mode == "max" else value < best)
        if trainer.strategy.reduce_boolean_decision(better):  # the same in all processes
            # any later number is better than NaN
            worst = -math.inf if self.mode == "max" else math.inf
            self.best_model_score = worst if math.isnan(value) else value
            trainer.save_checkpoint(self._path, weights_only=False)
            self._compared_at = trainer.global_step


class LastCheckpoint(Checkpoint):
    """Keeps `checkpoints/last.ckpt`, from which a killed run resumes (`--ckpt_path last`).

    It is saved at the end of each epoch. To save more often, make epochs shorter, with
    `trainer.limit_train_batches`: each epoch has an order of its own.

    Attributes:
        seconds: the seconds of training so far, including those before a resume.
    """

    def __init__(self) -> None:
        super().__init__()
        self._before = 0.0
        self._begun: float | None = None

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
        """Restore the seconds.

        Raises:
            ValueError: they are not a number.
        """
        self._before = check_number("seconds", state_dict["seconds"], float)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._begun = time.monotonic()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock."""
        self._before, self._begun = self.seconds, None

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save; Lightning calls checkpoint callbacks last, so the state of the others is final."""
        for logger in trainer.loggers:  # a killed run must not lose what it logged
            logger.save()
        trainer.save_checkpoint(self.path, weights_only=False)


class EarlyStopping(lightning_callbacks.EarlyStopping):
    """Stops the training when a logged value no longer improves.

    It works like Lightning's callback, with two differences: a resumed run uses the patience of its
    own configuration, and trains no further epoch if it had already stopped. A step without the
    value, such as one that ends a training before the first validation, does not count;
    `CheckMonitors` refuses wrong names.

    Args:
        monitor: the logged value to watch.
        mode: whether the largest ("max") or the smallest ("min") value is best.
        patience: training stops after this many validations in a row without a new best value; None
            for never.
        min_delta: the smallest improvement that counts as a new best value.

    Raises:
        ValueError: patience is < 1.

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
        most = sys.maxsize if patience is None else patience
        super().__init__(monitor, min_delta, most, mode=mode, strict=False)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the count, but keep the patience of this run's configuration.

        Raises:
            ValueError: a count or the best value is not a number.
        """
        for name in ("wait_count", "stopped_epoch"):
            check_number(name, state_dict[name], int)
        best = state_dict["best_score"]
        if not isinstance(best, Tensor) or best.dim() or not best.is_floating_point():
            raise ValueError(f"best_score must be a number, got {best!r}")
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop a resumed run that had stopped early, before it trains another epoch."""
        if self.wait_count >= self.patience:
            trainer.should_stop = True


class WholeCheckpoints(TorchCheckpointIO):
    """Writes each checkpoint beside its final path, and moves it there when it is complete.

    Lightning itself writes checkpoints to the folder for temporary files. If that is on another
    disk, the file is then copied, and a run killed meanwhile leaves an incomplete checkpoint.
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


def check_number(name: str, value: Any, kind: type[int] | type[float]) -> Any:
    """Return a number from a callback's state, or raise a ValueError that names it.

    >>> check_number("seconds", "/etc/passwd", float)
    Traceback (most recent call last):
    ValueError: seconds must be a number, got '/etc/passwd'
    """
    if type(value) not in {int, kind}:
        raise ValueError(f"{name} must be a number, got {value!r}")
    return value
