"""The Lightning module that classifies images, by a loss on the ranking of the classes."""

from collections.abc import Mapping
from typing import Any, Literal, cast

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torchmetrics import Metric

from ltr.losses import RankingLoss, TopKLoss
from ltr.metrics import RankingMetric, TopKAccuracy
from ltr.models.image_network import ImageNetwork
from ltr.models.vanilla_cnn import VanillaCNN
from ltr.modules.list_mean import ListMean
from ltr.modules.trainable import TrainableModule


class ImageClassifier(TrainableModule):
    """Trains a network to give the true class of an image the highest score.

    The classes' scores are a list whose labels are 1 for the true class and 0 for the others: so
    any ranking loss trains it. `TopKLoss` is the soft 0/1 loss, `SoftmaxLoss` the cross-entropy.

    Batches are `{"images": (B, C, H, W), "targets": (B,)}`, as `ImageDataModule`'s; a target below
    0 marks an image that counts nowhere. From the data module it takes the images' shape and the
    number of classes, for a network that was made without. Images come as the data module
    normalises them: who loads a checkpoint to classify other images does the same to them.

    Logged, one value an epoch: `train_loss`, `val_loss`, and `val_<name>` and `test_<name>` for
    each metric. Random numbers, checkpoints and resuming are as in `Ranker`.

    Args:
        network: gives the classes' scores. Default: `VanillaCNN()`.
        loss: what is minimised. Default: `TopKLoss()`, the soft 0/1 loss by `SigmoidRank`.
        metrics: by the name under which they are logged. Default: `accuracy` and `top_5`, the
            `TopKAccuracy` of 1 and 5 classes, equal scores in the mean over their orders.
        optimizer: parameters -> optimiser. Default: Adam.
        scheduler: optimiser -> scheduler. Default: a constant learning rate.
        scheduler_interval: whether the scheduler is stepped after each "epoch" or each "step".

    Raises:
        ValueError: a part is a class, not an object; a metric has the name "loss". In training:
            the loss has no gradient.

    Reference: Cuturi, Teboul and Vert, NeurIPS 2019, section 5.

    >>> model = ImageClassifier(VanillaCNN(out=10, shape=(1, 8, 8)))
    >>> model(torch.zeros(4, 1, 8, 8)).shape
    torch.Size([4, 10])
    """

    def __init__(
        self,
        network: ImageNetwork | None = None,
        loss: RankingLoss | None = None,
        metrics: dict[str, RankingMetric] | None = None,
        optimizer: OptimizerCallable = torch.optim.Adam,
        scheduler: LRSchedulerCallable | None = None,
        scheduler_interval: Literal["epoch", "step"] = "epoch",
    ):
        super().__init__(optimizer, scheduler, scheduler_interval)
        _check_parts(network, loss, metrics)
        self.save_hyperparameters()
        self.network = VanillaCNN() if network is None else network
        self.loss = TopKLoss() if loss is None else loss
        chosen = _default_metrics() if metrics is None else metrics
        self.val_metrics = nn.ModuleDict({name: m.clone() for name, m in chosen.items()})
        self.test_metrics = nn.ModuleDict({name: m.clone() for name, m in chosen.items()})
        self.train_loss = ListMean()
        self.val_loss = ListMean()

    def forward(self, images: Tensor) -> Tensor:
        """Scores (..., classes) of images (..., C, H, W), as the data module normalises them."""
        return self.network(images)

    def setup(self, stage: str) -> None:
        """Take over what the data module knows: the images' shape, the number of classes."""
        data = getattr(self.trainer, "datamodule", None)
        if (shape := getattr(data, "shape", None)) is not None:
            self.network.build(shape, getattr(data, "classes", None))

    def on_train_epoch_start(self) -> None:
        """Empty the mean of the loss."""
        self.train_loss.reset()

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The loss of a batch."""
        loss = self._loss(*self._lists(batch), self.train_loss)
        if not loss.requires_grad:
            raise ValueError(
                f"loss must have a gradient to train by, got one without ({self.loss})"
            )
        self.log("train_loss", self.train_loss, on_step=False, on_epoch=True, prog_bar=True)
        return loss

    def on_validation_epoch_start(self) -> None:
        """Empty the metrics."""
        for metric in (self.val_loss, *self.val_metrics.values()):
            cast(Metric, metric).reset()

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Log the loss and the metrics."""
        lists = self._lists(batch)
        self._loss(*lists, self.val_loss)
        self.log("val_loss", self.val_loss, prog_bar=True)
        self._update("val", self.val_metrics, *lists)

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Log the metrics."""
        self._update("test", self.test_metrics, *self._lists(batch))

    def predict_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """`scores` (B, classes), and `targets`."""
        return {"scores": self(batch["images"]), "targets": batch["targets"]}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the images' shape and the number of classes."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["network"] = {"shape": self.network.shape, "out": self.network.out}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Make the layers that the checkpoint's state is for."""
        super().on_load_checkpoint(checkpoint)
        sizes = checkpoint.get("network", {})
        if sizes.get("shape") is not None:
            self.network.build(sizes["shape"], sizes["out"])

    def _lists(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor | None]:
        """Scores, labels and mask, (B, classes) each; no mask where no image is a filler."""
        scores, targets = self(batch["images"]), batch["targets"]
        mask = None
        if self.trainer.world_size > 1:
            mask = (targets >= 0).unsqueeze(-1).expand(scores.shape)
            targets = targets.clamp(min=0)
        return scores, nn.functional.one_hot(targets, scores.shape[-1]).to(scores.dtype), mask

    def _loss(self, scores: Tensor, labels: Tensor, mask: Tensor | None, mean: ListMean) -> Tensor:
        loss = self.loss(scores, labels, mask)
        if loss.dim():
            raise ValueError(
                f"loss must give one number a batch, got shape {tuple(loss.shape)}: "
                'its reduction must be "mean" or "sum"'
            )
        images = torch.tensor(len(scores)) if mask is None else mask.any(-1).sum()
        mean.update(loss.detach(), images.to(loss.device))
        return loss

    def _update(
        self,
        split: str,
        metrics: nn.ModuleDict,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None,
    ) -> None:
        for name, module in metrics.items():
            metric = cast(RankingMetric, module)
            metric.update(scores, labels, mask=mask)
            self.log(f"{split}_{name}", metric, prog_bar=name == "accuracy")


def _check_parts(network: Any, loss: Any, metrics: Any) -> None:
    for name, value in (("network", network), ("loss", loss)):
        if value is not None and not isinstance(value, nn.Module):
            raise ValueError(f"{name} must be an object, such as {name}=Name(), got {value!r}")
    if metrics is not None and (not isinstance(metrics, Mapping) or "loss" in metrics):
        raise ValueError(f"metrics must be metrics by names other than loss, got {metrics!r}")


def _default_metrics() -> dict[str, RankingMetric]:
    return {
        "accuracy": TopKAccuracy(top_k=1, ties="expected"),
        "top_5": TopKAccuracy(top_k=5, ties="expected"),
    }
