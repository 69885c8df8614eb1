"""What modules with one optimizer share."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable, ReduceLROnPlateau
from torch import Tensor, nn

from ltr.modules.callbacks import SeedSteps
from ltr.modules.finite import CheckFinite
from ltr.modules.list_mean import ListMean
from ltr.modules.monitors import CheckMonitors
from ltr.modules.portable import PortableModule


class TrainableModule(PortableModule):
    """A portable module with one optimizer, a scheduler, its callbacks and a mean training loss.

    The callbacks are `SeedSteps`, `CheckFinite` and `CheckMonitors`.

    A checkpoint names its optimizer's class; going on with another one is refused, where Lightning
    would load the state of the one into the other. It has the mean of the loss so far, too, so that
    an epoch in whose midst a run is resumed has the mean of all of it; not so with several
    processes, where it is that of the rest.

    Args:
        optimizer: parameters -> optimizer.
        scheduler: optimizer -> scheduler, stepped once an epoch; None: a constant learning rate.
        scheduler_interval: "epoch", or "step" to step it after each batch.

    Raises:
        ValueError: scheduler_interval is neither; in training: there are no parameters, or the
            optimizer is of another class than the one in the checkpoint.
    """

    def __init__(
        self,
        optimizer: OptimizerCallable,
        scheduler: LRSchedulerCallable | None,
        scheduler_interval: str = "epoch",
    ):
        super().__init__()
        if scheduler_interval not in ("epoch", "step"):
            raise ValueError(
                f"scheduler_interval must be 'epoch' or 'step', got {scheduler_interval!r}"
            )
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._interval = scheduler_interval
        self._resumed: list[str] | None = None  # the optimizers of a checkpoint
        self.train_loss = ListMean()

    def nothing_to_train(self) -> str:
        """What is said where there are no parameters."""
        return (
            f"{type(self).__name__} must have parameters to train, got none: without a data "
            "module that tells the shape of its data, give the shape to the network"
        )

    def configure_optimizers(self) -> Any:
        """The optimizer, with its scheduler.

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
        config: dict[str, Any] = {"scheduler": scheduler, "interval": self._interval}
        if isinstance(scheduler, ReduceLROnPlateau):
            config["monitor"] = scheduler.monitor
        return {"optimizer": optimizer, "lr_scheduler": config}

    def configure_callbacks(self) -> list[Callback]:
        """Return `SeedSteps`, `CheckFinite` and `CheckMonitors`, those that the Trainer lacks."""
        return missing_callbacks(self, SeedSteps, CheckFinite, CheckMonitors)

    def logged_names(self) -> set[str]:
        """Return the names of the values that training and validation log.

        A callback or scheduler that watches another name is refused before the first epoch. A
        subclass that logs more in training adds their names.
        """
        return {"train_loss"}

    def weigh_processes(self, loss: Tensor, lists: Tensor, reduction: str = "mean") -> Tensor:
        """Scale a process's loss so that every list of a step weighs the same in all processes.

        Lightning takes the mean of the processes' gradients, in which a list of a process with few
        lists would weigh more. Scaled, n processes train as one does whose batches are n times as
        large. One process gets its loss back.

        Args:
            loss: a scalar.
            lists: how many lists it is of, in this process; a scalar.
            reduction: whether the loss is the "mean" or the "sum" over them.
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
        """Refuse the state of another optimizer, which a checkpoint may have brought along."""
        now = [type(one).__name__ for one in self.trainer.optimizers]
        if self._resumed not in (None, now):
            raise ValueError(
                f"optimizer must be {', '.join(self._resumed or ())}, as in the checkpoint to go "
                f"on from, got {', '.join(now)}"
            )

    def on_train_epoch_start(self) -> None:
        """Empty the mean of the loss; Lightning does not call this in the midst of an epoch."""
        self.train_loss.reset()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the optimizer's class and the mean of the loss so far."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["optimizers"] = [type(one).__name__ for one in self.trainer.optimizers]
        if self.trainer.world_size == 1:
            checkpoint["train_loss"] = self.train_loss.sums()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Remember the optimizer's class, go on with the mean of the loss."""
        super().on_load_checkpoint(checkpoint)
        self._resumed = checkpoint.get("optimizers")
        if (sums := checkpoint.get("train_loss")) is not None:
            self.train_loss.go_on(sums)


def missing_callbacks(module: LightningModule, *kinds: type[Callback]) -> list[Callback]:
    """Return a callback of each class of which the module's Trainer has none."""
    there = getattr(module.trainer, "callbacks", [])
    return [kind() for kind in kinds if not any(isinstance(one, kind) for one in there)]


def check_part(name: str, value: Any) -> None:
    """A network or loss must be an object, if it is given.

    Raises:
        ValueError: it is another thing, such as a class.
    """
    if value is not None and not isinstance(value, nn.Module):
        raise ValueError(f"{name} must be an object, such as {name}=Name(), got {value!r}")
