"""Callbacks that monitor training: finite values, names of logged values, memory.

None of them changes the result of training. `CheckFinite` and `CheckMonitors` stop a run that
fails, and `BatchInMemory` explains out-of-memory errors.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from ltr.config.folder import check_finite
from ltr.modules.callbacks import SeedSteps
from ltr.names import nearest, one_line
from ltr.training.finite import FailedStep, all_finite


class CheckFinite(Callback):
    """Stops training at the first step whose loss or gradient is not finite.

    The error names the epoch, the step, the lists and the first layer whose output is not finite.
    The batch is saved in the Trainer's `default_root_dir`. `torch.load` reads the file, a dict with
    the keys `batch`, `lists`, `epoch`, `step`, `batch_idx` and `loss`. To find the layer, the
    callback runs the batch once more with the same random numbers.

    Parameters that are not finite are never saved, so the last good checkpoint stays.

    In each step the callback reads one value from the device. With a gradient scaler (precision
    16-mixed) only the loss is checked, because scaled gradients may overflow, and the scaler skips
    the steps in which they do. With manual optimization the check comes at the end of the batch,
    and the error names no layer.

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
            self._check(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """With manual optimization, check the loss and the gradients of the whole batch."""
        if not pl_module.automatic_optimization:
            self._check(trainer, pl_module)
        self._batch = self._loss = None

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Raise `ValueError` for a parameter that is not finite; the previous checkpoint stays."""
        step, epoch = trainer.global_step, trainer.current_epoch + 1
        check_finite(pl_module, f"the checkpoint after step {step} in epoch {epoch}: ")

    def _check(self, trainer: Trainer, module: LightningModule) -> None:
        if self._loss is None:
            return
        gradients: list[Tensor] = []
        if getattr(trainer.precision_plugin, "scaler", None) is None:
            groups = [group for one in trainer.optimizers for group in one.param_groups]
            gradients = [p.grad for group in groups for p in group["params"] if p.grad is not None]
        bad = ~all_finite(self._loss, gradients)
        # All processes stop, because one that continued would wait for the others.
        if trainer.world_size > 1:
            torch.distributed.all_reduce(bad := bad.to(torch.int32))
        if bad:
            self._stop(trainer, module, self._loss)

    def _stop(self, trainer: Trainer, module: LightningModule, loss: Tensor) -> NoReturn:
        automatic = module.automatic_optimization
        step = trainer.global_step + int(automatic)
        failed = FailedStep(self._batch, loss, trainer.current_epoch + 1, step, self._batch_idx)
        if automatic:
            failed.find_layer(module, lambda: self._run_again(trainer, module))
        here = failed.found or not bool(loss.isfinite().all())
        source, together = 0, trainer.world_size > 1
        if together:  # a process whose own batch failed writes the message
            wrong: list[Any] = [None] * trainer.world_size
            torch.distributed.all_gather_object(wrong, here)
            source = wrong.index(True) if True in wrong else 0
        text = None
        if trainer.global_rank == source:
            failed.find_gradient(module)
            groups = [group for one in trainer.optimizers for group in one.param_groups]
            rate = max((float(group["lr"]) for group in groups), default=None)
            text = failed.report(trainer.default_root_dir, rate)
        if together:
            text = trainer.strategy.broadcast(text, src=source)
        raise ValueError(text)

    def _run_again(self, trainer: Trainer, module: LightningModule) -> None:
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, SeedSteps):
                callback.on_train_batch_start(trainer, module, self._batch, self._batch_idx)
        with trainer.precision_plugin.train_step_context():
            module.training_step(self._batch, self._batch_idx)


class CheckMonitors(Callback):
    """Raises an error if a monitored value is not logged.

    Values are monitored by callbacks with a `monitor` (early stopping, checkpoints) and by
    schedulers. A name that begins with "val" is checked after the sanity check, before the first
    epoch. All names are checked at the start of each epoch after the first validation.

    Raises:
        ValueError: no value with the monitored name is logged.
    """

    _validated = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """After the sanity check, check the names that begin with "val"."""
        if trainer.sanity_checking:
            _check_monitors(trainer, "val")
        self._validated = self._validated or not trainer.sanity_checking

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check all names, unless no validation has run yet."""
        if self._validated:
            _check_monitors(trainer)


def _check_monitors(trainer: Trainer, prefix: str = "") -> None:
    logged = trainer.callback_metrics
    for option, name in _watched(trainer):
        if name.startswith(prefix) and name not in {"epoch", "step", *logged}:
            raise ValueError(
                f"{option}.monitor must be a value that is logged, got {name!r}: "
                f"{nearest(name, logged)}"
            )


def _watched(trainer: Trainer) -> Iterator[tuple[str, str]]:
    """Yield the name of each callback or scheduler with a monitored value, and the value's name."""
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(monitor := getattr(callback, "monitor", None), str):
            yield getattr(callback, "option", type(callback).__name__), monitor
    for config in trainer.lr_scheduler_configs:
        if config.reduce_on_plateau and isinstance(config.monitor, str):
            yield "scheduler", config.monitor


class BatchInMemory(Callback):
    """Keeps the current batch, to describe it in an out-of-memory error."""

    batch: Any = None

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Keep the batch."""
        self.batch = batch

    on_validation_batch_start = on_test_batch_start = on_predict_batch_start = on_train_batch_start

    @contextmanager
    def explained(self, data: Any) -> Iterator[None]:
        """Turn an out-of-memory error into one line, with a batch size to try.

        Args:
            data: the data module, which may have a `batch_size`.

        Raises:
            ValueError: the memory was too small.
        """
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            told = self._describe(getattr(data, "batch_size", None))
            said = one_line(error).partition(". ")[0] or type(error).__name__
            raise ValueError(f"out of memory{told} ({said})") from error

    def _describe(self, batch_size: int | None) -> str:
        batch = self.batch if isinstance(self.batch, dict) else {}
        lengths, told = batch.get("lengths"), ""
        if "mask" in batch:
            lengths = batch["mask"].flatten(1).sum(1)
        if lengths is not None:
            longest, lists = int(lengths.argmax()), int((lengths > 0).sum())
            name = f" (qid {batch['qid'][longest]})" if "qid" in batch else ""
            told = f" at a batch of {lists} lists, the longest of {lengths[longest]} items{name}"
            batch_size = batch_size or len(lengths)
        if batch_size is not None and batch_size > 1:
            return f"{told}: try --data.batch_size {batch_size // 2}"
        return told and f"{told}: batch_size is 1 already, so shorten the lists"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the CPU or a device ran out of memory.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes differ"))
    (True, False)
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    said = str(error).lower()
    return "can't allocate memory" in said or "out of memory" in said
