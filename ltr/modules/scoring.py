"""Base of the modules that score lists: they train by a ranking loss and test by metrics."""

import re
from collections.abc import Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor

from ltr.losses import RankingLoss
from ltr.metrics import RankingMetric, RankingMetrics
from ltr.modules.checks import check_scores
from ltr.modules.list_mean import ListMean
from ltr.modules.trainable import TrainableModule, check_part

_COLUMNS = ("position", "protected")  # the side inputs that a table may have


class ScoredLists(NamedTuple):
    """A batch of lists with their scores.

    Attributes:
        scores: (B, n), or (N,) with `lengths`.
        labels: in the shape of the scores.
        mask: (B, n) bool, True = a real item; None: all items are real.
        weights: weights of the lists or items, in the loss's form; None: all are equal.
        lengths: (B,) int64, the items of each list, if the lists are ragged.
        side_inputs: further arguments of the loss by their names, each in the shape of the scores.
    """

    scores: Tensor
    labels: Tensor
    mask: Tensor | None
    weights: Tensor | None = None
    lengths: Tensor | None = None
    side_inputs: Mapping[str, Tensor] = MappingProxyType({})

    def real(self) -> Tensor:
        """Return how many lists have a real item; empty lists may fill an epoch."""
        if self.lengths is not None:
            return (self.lengths > 0).sum()
        if self.mask is None:
            return torch.tensor(len(self.scores), device=self.scores.device)
        return self.mask.any(-1).sum()


class ScoringModule(TrainableModule):
    """Base class of modules that score lists, train on a ranking loss and test by metrics.

    A subclass defines `score_batch`. Logged once an epoch: `train_loss`, `val_loss`, and
    `val_<name>` and `test_<name>` for each metric, as means over lists.

    A loss that has side inputs (see `RankingLoss.side_inputs`) gets them from `score_batch`. A
    missing side input is an error in the first batch.

    Args:
        loss: the loss to minimize.
        metrics: a dict from names, of letters, digits and _, to metrics; they are logged by these
            names.
        optimizer: a function from the parameters to the optimizer.
        scheduler: a function from the optimizer to the scheduler; None: a constant learning rate.

    Raises:
        ValueError: a loss is a class, not an object; a metric is not a `RankingMetric`, or its name
            is "loss" or has characters other than letters, digits and _; in training, the loss is
            not a scalar, or has no gradient, or lacks a side input.
    """

    def __init__(
        self,
        loss: RankingLoss,
        metrics: dict[str, RankingMetric],
        optimizer: OptimizerCallable,
        scheduler: LRSchedulerCallable | None,
    ):
        super().__init__(optimizer, scheduler)
        check_part("loss", loss)
        _check_metrics(metrics)
        self.loss = loss
        self.val_metrics = RankingMetrics(deepcopy(metrics))
        self.test_metrics = RankingMetrics(deepcopy(metrics))
        self.val_loss = ListMean()

    def logged_names(self) -> set[str]:
        """Return the names of the losses and the metrics."""
        return {*super().logged_names(), "val_loss", *(f"val_{name}" for name in self.val_metrics)}

    def score_batch(self, batch: dict[str, Any]) -> ScoredLists:
        """Return the lists of a batch with their scores."""
        raise NotImplementedError(f"{type(self).__name__} must define score_batch")

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        lists = self.score_batch(batch)
        loss = self.mean_loss(lists, self.train_loss)
        if not loss.requires_grad:
            raise ValueError(
                "loss must have a gradient, got one without: hard ranks, such as those of "
                f"HardRank, have none ({self.loss})"
            )
        self.log("train_loss", self.train_loss, on_step=False, on_epoch=True, prog_bar=True)
        return self.weigh_processes(loss, lists.real(), getattr(self.loss, "reduction", "mean"))

    def on_validation_epoch_start(self) -> None:
        """Reset the metrics, since `validate` leaves inference tensors, which `fit` cannot use."""
        self.val_loss.reset()
        self.val_metrics.reset()

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Log the loss and the metrics."""
        lists = self.score_batch(batch)
        check_scores(lists.scores, batch)
        self.mean_loss(lists, self.val_loss)
        self.log("val_loss", self.val_loss, prog_bar=True)
        self.measure("val", lists)

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Log the metrics."""
        lists = self.score_batch(batch)
        check_scores(lists.scores, batch)
        self.measure("test", lists)

    def mean_loss(self, lists: ScoredLists, mean: ListMean) -> Tensor:
        """Return the loss of a batch, a scalar, and add it to a mean over lists."""
        for name in getattr(self.loss, "side_inputs", ()):
            if name not in lists.side_inputs:
                raise _lacks(self.loss, name)
        more = {} if lists.lengths is None else {"lengths": lists.lengths}
        more |= lists.side_inputs
        loss = self.loss(lists.scores, lists.labels, lists.mask, lists.weights, **more)
        if loss.dim():
            raise ValueError(
                f"loss must give one number per batch, got shape {tuple(loss.shape)}: its "
                'reduction must be "mean" or "sum"'
            )
        mean.update(loss.detach(), lists.real())  # over lists, not batches
        return loss

    def measure(self, split: str, lists: ScoredLists) -> None:
        """Log the metrics of a batch of "val" or "test"."""
        metrics = self.val_metrics if split == "val" else self.test_metrics
        metrics.update(lists.scores, lists.labels, mask=lists.mask, lengths=lists.lengths)
        for name, metric in metrics.metrics.items():
            self.log(f"{split}_{name}", metric, prog_bar=name == "accuracy")


def _lacks(loss: RankingLoss, name: str) -> ValueError:
    how = f"give batches the key {name!r}"
    if name in _COLUMNS:
        how = f"name its column ({name}= of TableDataModule, --data.{name}), or {how}"
    return ValueError(f"{type(loss).__name__} needs the side input {name!r}, got none: {how}")


def _check_metrics(metrics: Any) -> None:
    if not isinstance(metrics, Mapping):
        raise ValueError(f"metrics must be a dict of metrics by name, got {metrics!r}")
    for name, metric in metrics.items():
        if not isinstance(metric, RankingMetric):
            raise ValueError(f"metrics must be ranking metrics, got {metric!r} for {name!r}")
        if re.fullmatch(r"\w+", name) is None or name == "loss":
            raise ValueError(
                f"metrics must have names of letters, digits and _, other than loss, got {name!r}"
            )
