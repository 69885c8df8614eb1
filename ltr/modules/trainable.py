"""Base of the modules with one optimizer."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable, ReduceLROnPlateau
from torch import Tensor, nn

from ltr.modules.callbacks import SeedSteps
from ltr.modules.list_mean import ListMean
from ltr.modules.portable import PortableModule
from ltr.modules.watching import CheckFinite, CheckMonitors


class TrainableModule(PortableModule):
    """A portable module with one optimizer, a scheduler, its callbacks and a mean training loss.

    The callbacks are `SeedSteps`, `CheckFinite` and `CheckMonitors`.

    A checkpoint names its optimizer's class. Resuming with another class raises `ValueError`;
    Lightning would load the state of one into the other. The checkpoint also keeps the mean of the
    loss so far. So an epoch that is resumed halfway logs the mean over the whole epoch. With
    several processes it logs the mean over the rest of the epoch.

    Args:
        optimizer: a function from the parameters to the optimizer.
        scheduler: a function from the optimizer to the scheduler; None: a constant learning rate.

    Attributes:
        scheduler_interval: when the scheduler is stepped, after each "epoch" (the default) or
            "step"; Lightning checks it.

    Raises:
        ValueError: in training, there are no parameters, or the optimizer's class is not the
            checkpoint's.
    """

    scheduler_interval = "epoch"

    def __init__(self, optimizer: OptimizerCallable, scheduler: LRSchedulerCallable | None):
        super().__init__()
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._resumed: list[str] | None = None  # the optimizers of a checkpoint
        self.train_loss = ListMean()

    def nothing_to_train(self) -> str:
        """Return the message for a module without parameters."""
        return (
            f"{type(self).__name__} must have parameters to train, got none: without a data "
            "module that knows the shape of its data, give the shape to the network"
        )

    def configure_optimizers(self) -> Any:
        """Return the optimizer with its scheduler.

        Raises:
            ValueError: there are no parameters.
        """
        parameters = [p for p in self.parameters() if p.requires_grad]
        if not parameters:
            raise ValueError(self.nothing_to_train())
        optimizer = self._optimizer(parameters)
        if self._scheduler is None:
            return optimizer
        scheduler = self._scheduler(optimizer)
        config: dict[str, Any] = {"scheduler": scheduler, "interval": self.scheduler_interval}
        if isinstance(scheduler, ReduceLROnPlateau):
            config["monitor"] = scheduler.monitor
        return {"optimizer": optimizer, "lr_scheduler": config}

    def configure_callbacks(self) -> list[Callback]:
        """Return `SeedSteps`, `CheckFinite` and `CheckMonitors`, except those the Trainer has."""
        return missing_callbacks(self, SeedSteps, CheckFinite, CheckMonitors)

    def logged_names(self) -> set[str]:
        """Return the names of the values that training and validation log.

        A callback or scheduler that watches another name raises an error before the first epoch. A
        subclass that logs more values adds their names.
        """
        return {"train_loss"}

    def weigh_processes(self, loss: Tensor, lists: Tensor, reduction: str = "mean") -> Tensor:
        """Scale a process's loss so that every list of a step has the same weight in all processes.

        Lightning averages the gradients of the processes, so a list of a process with few lists
        would weigh more. With the scale, n processes train like one process with batches n times as
        large. A single process gets its loss back unchanged.

        Args:
            loss: a scalar.
            lists: the number of lists in this process; a scalar.
            reduction: whether the loss is the "mean" or the "sum" over the lists.
        """
        ready = torch.distributed.is_available() and torch.distributed.is_initialized()
        if not ready or (processes := torch.distributed.get_world_size()) == 1:
            return loss
        if reduction == "sum":
            return loss * processes
        own = lists.to(loss.device, loss.dtype)
        torch.distributed.all_reduce(every := own.clone())
        return loss * (processes * own / every.clamp(min=1))

    def on_train_start(self) -> None:
        """Raise `ValueError` if the checkpoint's state belongs to another optimizer."""
        now = [type(one).__name__ for one in self.trainer.optimizers]
        if self._resumed not in (None, now):
            raise ValueError(
                f"optimizer must be {', '.join(self._resumed or ())}, as in the checkpoint to "
                f"resume from, got {', '.join(now)}"
            )

    def on_train_epoch_start(self) -> None:
        """Reset the mean of the loss; Lightning calls this only at the start of an epoch."""
        self.train_loss.reset()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the optimizer's class and the mean of the loss so far."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["optimizers"] = [type(one).__name__ for one in self.trainer.optimizers]
        checkpoint["train_loss"] = self.train_loss.sums()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the optimizer's class, and restore the mean of the loss."""
        super().on_load_checkpoint(checkpoint)
        self._resumed = checkpoint.get("optimizers")
        sums = checkpoint.get("train_loss")
        if sums is not None and self.global_rank == 0:  # they are those of all processes
            self.train_loss.go_on(sums)


def missing_callbacks(module: LightningModule, *kinds: type[Callback]) -> list[Callback]:
    """Return a callback of each class that the module's Trainer lacks."""
    there = getattr(module.trainer, "callbacks", [])
    return [kind() for kind in kinds if not any(isinstance(one, kind) for one in there)]


def check_part(name: str, value: Any) -> None:
    """Check that a network or loss is an object or None.

    Raises:
        ValueError: it is something else, such as a class.
    """
    if value is not None and not isinstance(value, nn.Module):
        raise ValueError(f"{name} must be an object, such as {name}=Name(), got {value!r}")
