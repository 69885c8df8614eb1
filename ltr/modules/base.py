"""The base classes of the modules: `TrainableModule` and `ScoringModule`."""

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable, ReduceLROnPlateau
from torch import Tensor, nn
from torchmetrics import Metric

from ltr.losses import SeveralLabels
from ltr.losses.base import Loss, check_one_number
from ltr.metrics import RankingMetric, RankingMetrics
from ltr.metrics.base import measure_lists
from ltr.modules.callbacks import CheckFinite, SeedSteps
from ltr.ragged import sum_lists
from ltr.training.finite import check_scores
from ltr.training.losses import ScoredLists, batch_loss, check_gradient


class ListMean(Metric):
    """Mean over all lists, computed from the mean of each batch; NaN stays NaN.

    This mean is exact for batches and processes of different sizes. Lightning's own mean (2.6)
    rounds the mean number of lists per process to a whole number. torchmetrics' `MeanMetric` (1.9)
    ignores its weights if it is set to keep NaN.

    >>> mean = ListMean()
    >>> mean.update(torch.tensor(1.0), lists=torch.tensor(3))
    >>> mean.update(torch.tensor(5.0), lists=torch.tensor(1))
    >>> mean.compute()
    tensor(2.)
    """

    full_state_update = False

    total: Tensor
    lists: Tensor

    def __init__(self):
        super().__init__()
        for name in ("total", "lists"):
            zero = torch.zeros((), dtype=torch.float64)
            self.add_state(name, default=zero, dist_reduce_fx="sum")

    def update(self, value: Tensor, lists: Tensor) -> None:
        """Add a batch: the mean `value` over its lists, and their number `lists`, both scalars."""
        self.total += value.double() * lists
        self.lists += lists

    def compute(self) -> Tensor:
        """Return the mean, float32; NaN if there was no list."""
        return (self.total / self.lists).float()


class TrainableModule(LightningModule):
    """A module with one optimizer, a scheduler, callbacks and a mean training loss.

    The callbacks are `SeedSteps` and `CheckFinite`.

    A checkpoint names its optimizer's class. Resuming with another class raises `ValueError`.
    Without this check, Lightning would load the state of one optimizer into the other.

    Args:
        optimizer: a function from the parameters to the optimizer.
        scheduler: a function from the optimizer to the scheduler; None: a constant learning rate.

    Attributes:
        scheduler_interval: whether the scheduler is stepped after each "epoch" (the default) or
            after each "step"; Lightning checks the value.

    Raises:
        ValueError: in training, there are no parameters, or the optimizer's class is not the
            checkpoint's.

    >>> class Regression(TrainableModule):
    ...     def __init__(self, network, optimizer=torch.optim.Adam, scheduler=None):
    ...         super().__init__(optimizer, scheduler)
    ...         self.check_part("network", network)
    ...         self.network = network
    ...     def training_step(self, batch, batch_idx):
    ...         loss = (self.network(batch["features"]) - batch["labels"]).square().mean()
    ...         self.train_loss.update(loss.detach(), lists=torch.tensor(len(batch["labels"])))
    ...         self.log("train_loss", self.train_loss, on_step=False, on_epoch=True)
    ...         return loss
    >>> type(Regression(nn.Linear(3, 1)).configure_optimizers()).__name__
    'Adam'
    """

    scheduler_interval = "epoch"

    def __init__(self, optimizer: OptimizerCallable, scheduler: LRSchedulerCallable | None):
        super().__init__()
        self._optimizer = optimizer
        self._scheduler = scheduler
        # These are the names of the optimizer classes in the checkpoint to resume from.
        self._resumed: list[str] | None = None
        self.train_loss = ListMean()

    @staticmethod
    def check_part(name: str, value: Any) -> None:
        """Check that an argument, such as a network or a loss, is a module or None.

        Raises:
            ValueError: the value is something else, such as a class.
        """
        if value is not None and not isinstance(value, nn.Module):
            raise ValueError(f"{name} must be an object, such as {name}=Name(), got {value!r}")

    def configure_optimizers(self) -> Any:
        """Return the optimizer with its scheduler.

        Raises:
            ValueError: there are no parameters, or an option of the optimizer or the scheduler is
                out of its range.
        """
        parameters = [p for p in self.parameters() if p.requires_grad]
        if not parameters:
            raise ValueError(
                f"{type(self).__name__} must have parameters to train, got none: a scorer or other "
                "network takes its shape from the data module; without one, give it num_features"
            )
        try:
            optimizer = self._optimizer(parameters)
            scheduler = None if self._scheduler is None else self._scheduler(optimizer)
        except ValueError as error:
            raise ValueError(f"optimizer and scheduler must take their options: {error}") from error
        if scheduler is None:
            return optimizer
        config: dict[str, Any] = {"scheduler": scheduler, "interval": self.scheduler_interval}
        if isinstance(scheduler, ReduceLROnPlateau):
            config["monitor"] = scheduler.monitor
        return {"optimizer": optimizer, "lr_scheduler": config}

    def configure_callbacks(self) -> list[Callback]:
        """Return `SeedSteps` and `CheckFinite`, except those in the Trainer."""
        return missing_callbacks(self, SeedSteps, CheckFinite)

    def weigh_processes(self, loss: Tensor, lists: Tensor, reduction: str = "mean") -> Tensor:
        """Scale a process's loss so that every list of a step has the same weight in all processes.

        Lightning averages the gradients of the processes, so a list of a process with few lists
        would weigh more. With the scaling, n processes train like one process with batches n times
        as large. A single process gets its loss back unchanged.

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
        """Raise `ValueError` if the checkpoint's optimizer has another class."""
        now = [type(optimizer).__name__ for optimizer in self.trainer.optimizers]
        if self._resumed not in (None, now):
            raise ValueError(
                f"optimizer must be {', '.join(self._resumed or ())}, as in the checkpoint to "
                f"resume from, got {', '.join(now)}"
            )

    def on_train_epoch_start(self) -> None:
        """Reset the mean of the loss; not called if a run resumes in the middle of an epoch."""
        self.train_loss.reset()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the optimizer's class to the checkpoint."""
        checkpoint["optimizers"] = [
            type(optimizer).__name__ for optimizer in self.trainer.optimizers
        ]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the checkpoint's optimizer class, for `on_train_start`."""
        self._resumed = checkpoint.get("optimizers")


class ScoringModule(TrainableModule):
    """Base class of modules that score lists, train on a ranking loss and test by metrics.

    A subclass defines `score_batch`. The module logs once an epoch: `train_loss`, `val_loss`, and
    `val_<name>` and `test_<name>` for each metric, as means over lists.

    A loss that has side inputs (see `RankingLoss.side_inputs`) gets them from `score_batch`. A
    missing side input is an error in the first batch.

    Args:
        loss: the loss to minimize. With a `SeveralLabels`, each metric is logged for each label,
            such as `val_ndcg_10_click`, and `val_ndcg_10` is the loss's `quality` of them. After
            each epoch, the loss's `update` gets `ndcg_10`, or else the first metric.
        metrics: a dict from names to metrics; each metric is logged under its name. A name has only
            letters, digits and _.
        optimizer: a function from the parameters to the optimizer.
        scheduler: a function from the optimizer to the scheduler; None: a constant learning rate.

    Raises:
        ValueError: the loss is a class, not an object, or its reduction is "none"; a metric is not
            a `RankingMetric`, or its name is "loss" or has characters other than letters, digits
            and _; in training, the loss is not a scalar, or has no gradient, or lacks a side input.

    >>> from ltr.losses import ListNet
    >>> from ltr.metrics import NDCG
    >>> class Matches(ScoringModule):
    ...     def __init__(self, size):
    ...         super().__init__(ListNet(), {"ndcg": NDCG()}, torch.optim.Adam, None)
    ...         self.layer = nn.Linear(size, size)
    ...     def score_batch(self, batch):
    ...         scores = (batch["documents"] @ self.layer(batch["query"]).unsqueeze(-1)).squeeze(-1)
    ...         return ScoredLists(scores, batch["labels"], batch["mask"])
    >>> batch = {"query": torch.zeros(2, 4), "documents": torch.zeros(2, 3, 4), "mask": None}
    >>> Matches(4).score_batch(batch | {"labels": torch.ones(2, 3)}).scores.shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        loss: Loss,
        metrics: dict[str, RankingMetric],
        optimizer: OptimizerCallable,
        scheduler: LRSchedulerCallable | None,
    ):
        super().__init__(optimizer, scheduler)
        self.check_part("loss", loss)
        check_one_number(loss)
        for name in metrics if isinstance(metrics, Mapping) else ():
            if not isinstance(name, str) or not re.fullmatch(r"\w+", name) or name == "loss":
                raise ValueError(
                    "metrics must have names of letters, digits and _, other than loss, got "
                    f"{name!r}"
                )
        self.loss = loss
        self._names: list[str] = []  # those of the metrics, if each is of several labels
        if isinstance(loss, SeveralLabels):
            labels, names = loss.names, [*metrics]
            metrics = {f"{x}_{label}": deepcopy(metrics[x]) for label in labels for x in names}
            self._names = names
        self.val_metrics = RankingMetrics(deepcopy(metrics))
        self.test_metrics = RankingMetrics(deepcopy(metrics))
        self.val_loss = ListMean()

    def score_batch(self, batch: dict[str, Any]) -> ScoredLists:
        """Return the lists of a batch with their scores."""
        raise NotImplementedError(f"{type(self).__name__} must define score_batch")

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        lists = self.score_batch(batch)
        loss = check_gradient(self.loss, self.mean_loss(lists, self.train_loss))
        self.log("train_loss", self.train_loss, on_step=False, on_epoch=True, prog_bar=True)
        return self.weigh_processes(loss, lists.real(), getattr(self.loss, "reduction", "mean"))

    def on_validation_epoch_start(self) -> None:
        """Reset loss and metrics: `fit` cannot use the inference tensors that `validate` leaves."""
        self.val_loss.reset()
        self.val_metrics.reset()

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Log the loss and the metrics."""
        lists = self.score_batch(batch)
        check_scores(lists.scores, batch)
        self.mean_loss(lists, self.val_loss)
        self.log("val_loss", self.val_loss, prog_bar=True)
        self.measure("val", lists)

    def on_validation_epoch_end(self) -> None:
        """With several labels, log the mean of each metric, and update the floors."""
        if not isinstance(self.loss, SeveralLabels):
            return
        labels, metrics = self.loss.names, self.val_metrics.metrics
        means: dict[str, dict[str, float]] = {}
        for name in self._names:
            values = {label: float(metrics[f"{name}_{label}"].compute()) for label in labels}
            means[name] = values
            self.log(f"val_{name}", self.loss.quality(values), prog_bar=True)
        if means and not self.trainer.sanity_checking:
            self.loss.update(means.get("ndcg_10", means[self._names[0]]))

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Log the metrics."""
        lists = self.score_batch(batch)
        check_scores(lists.scores, batch)
        self.measure("test", lists)

    def mean_loss(self, lists: ScoredLists, mean: ListMean) -> Tensor:
        """Return the loss of a batch, a scalar, and add it to a mean over lists."""
        loss = batch_loss(self.loss, lists)
        mean.update(loss.detach(), lists.real())  # this is a mean over lists, not over batches
        return loss

    def measure(self, split: str, lists: ScoredLists) -> None:
        """Log the metrics of a batch of the split "val" or "test"."""
        metrics = self.val_metrics if split == "val" else self.test_metrics
        if isinstance(self.loss, SeveralLabels):
            for k, label in enumerate(self.loss.names):
                own = [metrics.metrics[f"{name}_{label}"] for name in self._names]
                scores, labels, mask, lengths = known_lists(lists, k)
                values = measure_lists(own, scores, labels, None, mask, lengths=lengths)
                for metric, of_lists in zip(own, values, strict=True):
                    metric.update(of_lists)
        else:
            metrics.update(lists.scores, lists.labels, mask=lists.mask, lengths=lists.lengths)
        for name, metric in metrics.metrics.items():
            self.log(f"{split}_{name}", metric, prog_bar=name == "accuracy")


def known_lists(
    lists: ScoredLists, label: int
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return scores, labels, mask and lengths of the items of which one label is known.

    Args:
        lists: lists with several labels.
        label: the index of the label.
    """
    labels = lists.labels[..., label]
    known = ~labels.isnan()
    if lists.lengths is None:
        mask = known if lists.mask is None else lists.mask & known
        return lists.scores, torch.where(known, labels, 0.0), mask, None
    lengths = sum_lists(known.long(), lists.lengths)
    return lists.scores[known], labels[known], None, lengths


def missing_callbacks(module: LightningModule, *kinds: type[Callback]) -> list[Callback]:
    """Return a new callback of each class, except the classes that the Trainer already has."""
    present = getattr(module.trainer, "callbacks", [])
    return [kind() for kind in kinds if not any(isinstance(callback, kind) for callback in present)]
