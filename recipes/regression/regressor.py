"""The Lightning module for regression by losses on the sorted errors of a sample."""

from typing import Any, cast

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torchmetrics import Metric

from ltr.datasets import pad_batch
from ltr.losses import (
    PointwiseHuber,  # noqa: F401  (so that the command line finds it)
    RankingLoss,
)
from ltr.models import LinearScorer, Scorer
from ltr.modules import ListMean, TrainableModule
from recipes.regression.losses import LeastTrimmedSquares

METRICS = ("mae", "median_absolute_error", "rmse", "r2")


class Regressor(TrainableModule):
    """Fits a scorer's numbers to the labels of a sample, which is one list.

    `LeastTrimmedSquares` and `LeastQuantileRegression` softly sort the sample's squared errors and
    leave out the largest. So wrong labels do no harm if they are few enough. With `PointwiseMSE`
    this is least squares, with `PointwiseHuber` Huber's regression.

    The scorer's numbers are in units of `label_scale` around `label_center`, both taken from the
    data module. The loss is on that scale; predictions and metrics are on the labels' scale.

    Logged: `train_loss` once an epoch, and for the test sample `test_mae`,
    `test_median_absolute_error`, `test_rmse` and `test_r2`, each the mean over lists. There is no
    validation: training runs to the end, as a solver does. Random numbers, checkpoints and resuming
    are as in `Ranker`.

    Args:
        scorer: gives the numbers. Default: `LinearScorer()`.
        loss: the loss to minimize. Default: `LeastTrimmedSquares()`.
        optimizer: parameters -> optimizer. Default: Adam.
        scheduler: optimizer -> scheduler, stepped once an epoch. Default: a constant rate.

    Raises:
        ValueError: a part is a class, not an object; in training, the loss has no gradient.

    Reference: Cuturi, Teboul and Vert, NeurIPS 2019; Rousseeuw, 1984.

    >>> Regressor(LinearScorer(num_features=3))(torch.zeros(2, 5, 3)).shape
    torch.Size([2, 5])
    """

    label_center: Tensor
    label_scale: Tensor

    def __init__(
        self,
        scorer: Scorer | None = None,
        loss: RankingLoss | None = None,
        optimizer: OptimizerCallable = torch.optim.Adam,
        scheduler: LRSchedulerCallable | None = None,
    ):
        super().__init__(optimizer, scheduler)
        self.check_part("scorer", scorer)
        self.check_part("loss", loss)
        self.scorer = LinearScorer() if scorer is None else scorer
        self.loss = LeastTrimmedSquares() if loss is None else loss
        self.register_buffer("label_center", torch.tensor(0.0))
        self.register_buffer("label_scale", torch.tensor(1.0))
        self.test_metrics = nn.ModuleDict({name: ListMean() for name in METRICS})

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return predictions (..., n) of features (..., n, *item)."""
        return self.scorer(features, mask) * self.label_scale + self.label_center

    def setup(self, stage: str) -> None:
        """Take the number of features and the labels' scale from the data module."""
        data = getattr(self.trainer, "datamodule", None)
        if (num_features := getattr(data, "num_features", None)) is not None:
            self.scorer.build(num_features)
        if stage == "fit" and hasattr(data, "label_center"):
            self.label_center.fill_(data.label_center)  # pyright: ignore
            self.label_scale.fill_(data.label_scale)  # pyright: ignore

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the loss of a batch of samples."""
        batch = pad_batch(batch)
        mask, labels = batch.get("mask"), batch["labels"]
        scores = self.scorer(batch["features"], mask)
        targets = (labels - self.label_center) / self.label_scale
        loss = self.loss(scores, targets, mask, batch.get("weight"))
        if loss.dim() or not loss.requires_grad:
            raise ValueError(
                f"loss must give one number per batch, with a gradient to train by ({self.loss})"
            )
        lists = torch.tensor(len(labels)) if mask is None else mask.any(-1).sum()
        self.train_loss.update(loss.detach(), lists.to(loss.device))
        self.log("train_loss", self.train_loss, on_step=False, on_epoch=True, prog_bar=True)
        return self.weigh_processes(loss, lists, self.loss.reduction)

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Log the metrics."""
        batch = pad_batch(batch)
        mask, labels = batch.get("mask"), batch["labels"]
        predictions = self(batch["features"], mask)
        real = torch.ones_like(labels, dtype=torch.bool) if mask is None else mask
        for one, label, there in zip(predictions, labels, real, strict=True):
            values = regression_metrics(one[there], label[there]) if there.any() else {}
            for name, value in values.items():
                cast(ListMean, self.test_metrics[name]).update(value, torch.tensor(1))
        for name, metric in self.test_metrics.items():
            self.log(f"test_{name}", cast(Metric, metric))

    def predict_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Return `scores` (B, n): the predictions."""
        batch = pad_batch(batch)
        known = {key: batch[key] for key in ("qid", "doc_id", "mask") if key in batch}
        return {**known, "scores": self(batch["features"], batch.get("mask"))}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the number of features."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["num_features"] = getattr(self.scorer, "num_features", None)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Make the layers that the checkpoint has weights for."""
        super().on_load_checkpoint(checkpoint)
        if (num_features := checkpoint.get("num_features")) is not None:
            self.scorer.build(num_features)


def regression_metrics(predictions: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return mean and median absolute error, root mean squared error and R^2, float64.

    Args:
        predictions: (n,), n >= 1.
        labels: (n,).

    >>> found = regression_metrics(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([1.0, 3.0, 5.0]))
    >>> {name: round(value.item(), 3) for name, value in found.items()}
    {'mae': 1.667, 'median_absolute_error': 1.0, 'rmse': 2.38, 'r2': -1.125}
    """
    errors = predictions.double() - labels.double()
    spread = (labels.double() - labels.double().mean()).square().sum()
    return {
        "mae": errors.abs().mean(),
        "median_absolute_error": errors.abs().quantile(0.5),
        "rmse": errors.square().mean().sqrt(),
        "r2": 1 - errors.square().sum() / spread,
    }
