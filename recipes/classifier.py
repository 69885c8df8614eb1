"""The Lightning module that classifies images, by a loss on the ranking of the classes."""

from typing import Any, Literal

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn

from ltr.losses import RankingLoss, TopKLoss
from ltr.metrics import RankingMetric, TopKAccuracy
from ltr.modules import ScoredLists, ScoringModule
from recipes.networks import ImageNetwork, VanillaCNN


class ImageClassifier(ScoringModule):
    """Trains a network to give the true class of an image the highest score.

    The classes' scores are a list whose labels are 1 for the true class and 0 for the others. So
    any ranking loss trains it: `TopKLoss` is the soft 0/1 loss, `SoftmaxLoss` the cross-entropy.

    Batches are `{"images": (B, C, H, W), "targets": (B,)}`, as from `ImageDataModule`. A target
    below 0 marks an image that counts nowhere. A network made without sizes takes the images' shape
    and the number of classes from the data module. The data module normalizes the images: normalize
    other images in the same way before a loaded checkpoint classifies them.

    Logged, one value an epoch: `train_loss`, `val_loss`, and `val_<name>` and `test_<name>` for
    each metric. Random numbers, checkpoints and resuming are as in `Ranker`.

    Args:
        network: scores the classes. Default: `VanillaCNN()`.
        loss: the loss to minimize. Default: `TopKLoss()`, the soft 0/1 loss by `SigmoidRank`.
        metrics: by the name under which they are logged. Default: `accuracy` and `top_5`, the
            `TopKAccuracy` of 1 and 5 classes, as the mean over the orders of equal scores.
        optimizer: parameters -> optimizer. Default: Adam.
        scheduler: optimizer -> scheduler. Default: a constant learning rate.
        scheduler_interval: step the scheduler after each "epoch" or after each "step".

    Raises:
        ValueError: a part is a class, not an object, or a metric has the name "loss"; in training,
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
        self.check_part("network", network)
        super().__init__(
            TopKLoss() if loss is None else loss,
            _default_metrics() if metrics is None else metrics,
            optimizer,
            scheduler,
        )
        if scheduler_interval not in ("epoch", "step"):
            raise ValueError(
                f"scheduler_interval must be 'epoch' or 'step', got {scheduler_interval!r}"
            )
        self.scheduler_interval = scheduler_interval
        self.network = VanillaCNN() if network is None else network

    def forward(self, images: Tensor) -> Tensor:
        """Return scores (..., classes) of images (..., C, H, W), normalized by the data module."""
        return self.network(images)

    def setup(self, stage: str) -> None:
        """Take the images' shape and the number of classes from the data module."""
        data = getattr(self.trainer, "datamodule", None)
        if (shape := getattr(data, "shape", None)) is not None:
            self.network.build(shape, getattr(data, "classes", None))

    def score_batch(self, batch: dict[str, Any]) -> ScoredLists:
        """Return the classes of each image as a list, masked only if there may be fillers."""
        scores, targets = self(batch["images"]), batch["targets"]
        mask = None
        if self.trainer.world_size > 1:
            mask = (targets >= 0).unsqueeze(-1).expand(scores.shape)
            targets = targets.clamp(min=0)
        labels = nn.functional.one_hot(targets, scores.shape[-1]).to(scores.dtype)
        return ScoredLists(scores, labels, mask)

    def predict_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Return `scores` (B, classes), and `targets`."""
        return {"scores": self(batch["images"]), "targets": batch["targets"]}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the images' shape and the number of classes."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["network"] = {"shape": self.network.shape, "out": self.network.out}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Make the layers that the checkpoint has weights for."""
        super().on_load_checkpoint(checkpoint)
        sizes = checkpoint.get("network", {})
        if sizes.get("shape") is not None:
            self.network.build(sizes["shape"], sizes["out"])


def _default_metrics() -> dict[str, RankingMetric]:
    return {
        "accuracy": TopKAccuracy(top_k=1, ties="expected"),
        "top_5": TopKAccuracy(top_k=5, ties="expected"),
    }
