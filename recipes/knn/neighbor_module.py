"""Base classes of the Lightning modules that classify by the nearest training images."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor

from ltr.modules import ListMean, TrainableModule
from ltr.shapes import check_whole
from recipes.images import Images
from recipes.knn.neighbors import Neighbors, Weighting
from recipes.networks import ImageNetwork

_CHUNK = 1000  # training images embedded at once


class NeighborModule(TrainableModule):
    """Base of modules that classify by a vote of the k nearest training images.

    A subclass defines `embed`. The data module must hold images, such as `EpisodeDataModule`. Each
    validation and test embeds all training images with the current weights, without crops or flips.
    A checkpoint holds none of them. If several k or weightings are given, each validation and test
    takes those with the highest accuracy on the validation images, the first of equal ones. In
    tests and predictions the validation images then vote too.

    Logged: `val_accuracy` and `test_accuracy`, the share of images whose class wins the vote (see
    `recipes.knn.neighbors.vote`). If there was a choice, a test also logs the chosen
    `test_top_k` and `test_weighting` (0 uniform, 1 by distance), and their accuracy,
    `test_val_accuracy`.

    Args:
        top_k: k, how many neighbors vote, or several to choose from.
        weightings: weightings of the votes to choose from: "uniform", "distance" or both.
        optimizer: parameters -> optimizer.
        scheduler: optimizer -> scheduler, stepped once an epoch; None: a constant rate.

    Cost: O(B N d) time and O(B N) memory for a batch of B images and N training images.

    Raises:
        ValueError: a k is < 1, a weighting is unknown, or there is nothing to choose from.
    """

    def __init__(
        self,
        top_k: int | Sequence[int],
        weightings: Sequence[Weighting] = ("uniform",),
        optimizer: OptimizerCallable = torch.optim.SGD,
        scheduler: LRSchedulerCallable | None = None,
    ):
        super().__init__(optimizer, scheduler)
        several = [top_k] if isinstance(top_k, int) else list(top_k)
        for weighting in weightings:
            if weighting not in ("uniform", "distance"):
                raise ValueError(
                    f"weightings must be of 'uniform' and 'distance', got {weightings!r}"
                )
        for name, values in (("top_k", several), ("weightings", weightings)):
            if not values:
                raise ValueError(f"{name} must be values to choose from, got {values!r}")
        self.choices: list[tuple[int, Weighting]] = [
            (check_whole("top_k", k), w) for w, k in product(weightings, several)
        ]
        self.top_k: int
        self.weighting: Weighting
        self.top_k, self.weighting = self.choices[0]
        self.chosen: dict[str, float] = {}
        self.val_accuracy = ListMean()
        self.test_accuracy = ListMean()
        self._known: Neighbors | None = None

    def embed(self, images: Tensor) -> Tensor:
        """Return points (B, d) of images (B, C, H, W), between which distances are taken."""
        raise NotImplementedError(f"{type(self).__name__} must define embed")

    def forward(self, images: Tensor) -> Tensor:
        """Return the points (B, d) of images (B, C, H, W)."""
        return self.embed(images)

    def classify(self, images: Tensor) -> Tensor:
        """Return the classes (B,) of images (B, C, H, W); embed the training images if needed."""
        if self._known is None:  # here, not in a hook, to be under autocast as the queries are
            self._known, self.chosen = self.prepare()
        return self._known.classify(self.embed(images), self.top_k, self.weighting)

    def prepare(self) -> tuple[Neighbors, dict[str, float]]:
        """Return the training images' points, after the choice of `top_k` and `weighting`.

        Returns:
            The points with their classes, and what was chosen, by its logged name.
        """
        known = self.know()
        chosen = self.choose(known) if len(self.choices) > 1 else {}
        return self.with_validation(known), chosen

    def with_validation(self, known: Neighbors) -> Neighbors:
        """Return the training images' points; with the validation images' unless in validation."""
        if not (self.trainer.testing or self.trainer.predicting):
            return known
        val = self._data.splits["val"]
        return known.with_more(self.points(val), val.labels.to(self.device))

    def know(self) -> Neighbors:
        """Return the training images' points, with their classes."""
        data = self._data
        train = data.splits["train"]
        return Neighbors(self.points(train), train.labels.to(self.device), data.classes)

    def choose(self, known: Neighbors) -> dict[str, float]:
        """Choose the `top_k` and `weighting` that do best on the validation images.

        Returns:
            What was chosen, and its accuracy.
        """
        val = self._data.splits["val"]
        accuracies = known.accuracies(self.points(val), val.labels.to(self.device), self.choices)
        best = max(accuracies)
        self.top_k, self.weighting = self.choices[accuracies.index(best)]
        by_distance = float(self.weighting == "distance")
        return {"top_k": self.top_k, "weighting": by_distance, "val_accuracy": best}

    def points(self, images: Images) -> Tensor:
        """Return points (N, d) of N images, embedded in chunks."""
        chunks = images.pixels.split(_CHUNK)
        floats = (self._data.to_float(chunk.to(self.device)) for chunk in chunks)
        return torch.cat([self.embed(chunk) for chunk in floats])

    def on_validation_epoch_start(self) -> None:
        """Forget the points, which other weights made."""
        self._known = None
        self.val_accuracy.reset()

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Log the accuracy."""
        self._count(batch, self.val_accuracy)
        self.log("val_accuracy", self.val_accuracy, prog_bar=True)

    def on_validation_epoch_end(self) -> None:
        """Free the points' memory."""
        self._known = None

    def on_test_epoch_start(self) -> None:
        """Forget the points, which other weights made."""
        self._known = None
        self.test_accuracy.reset()

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Log the accuracy."""
        self._count(batch, self.test_accuracy)
        self.log("test_accuracy", self.test_accuracy)

    def on_test_epoch_end(self) -> None:
        """Log what was chosen, and give the memory back."""
        self._known = None
        self.log_dict({f"test_{name}": float(value) for name, value in self.chosen.items()})

    def on_predict_epoch_start(self) -> None:
        """Forget the points, which other weights made."""
        self._known = None

    def predict_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Tensor]:
        """Return `classes` (B,) of a batch, with its `targets`."""
        return {"classes": self.classify(batch["images"]), "targets": batch["targets"]}

    @property
    def _data(self) -> Any:
        data = getattr(self.trainer, "datamodule", None)
        if not hasattr(data, "splits"):
            raise ValueError(
                f"datamodule must hold the training images, as EpisodeDataModule does, got {data}"
            )
        return data

    def _count(self, batch: dict[str, Any], accuracy: ListMean) -> None:
        # images that only fill up a distributed epoch have the target -1
        targets, real = batch["targets"], batch["targets"] >= 0
        right = (self.classify(batch["images"]) == targets).sum()
        accuracy.update(right / real.sum().clamp(min=1), real.sum())


class TrainedNeighbors(NeighborModule):
    """Base of the `NeighborModule`s that are trained: `embed` is a network.

    Args:
        network: images (B, C, H, W) -> points (B, d). It takes the images' shape from the data
            module.
        top_k: k, how many neighbors vote, or several to choose from.
        weightings: weightings of the votes to choose from.
        optimizer: parameters -> optimizer.
        scheduler: optimizer -> scheduler, stepped once an epoch. Default: a constant rate.
    """

    def __init__(
        self,
        network: ImageNetwork,
        top_k: int | Sequence[int],
        weightings: Sequence[Weighting],
        optimizer: OptimizerCallable,
        scheduler: LRSchedulerCallable | None,
    ):
        super().__init__(top_k, weightings, optimizer, scheduler)
        if not isinstance(network, ImageNetwork):
            raise ValueError(f"network must be an ImageNetwork, got {network!r}")
        self.network = network

    def setup(self, stage: str) -> None:
        """Make the network's layers for the images of the data module."""
        shape = getattr(getattr(self.trainer, "datamodule", None), "shape", None)
        if shape is not None:
            self.network.build(shape)

    def embed(self, images: Tensor) -> Tensor:
        """Return the network's output."""
        return self.network(images)

    def log_loss(self, loss: Tensor, batch: dict[str, Any]) -> Tensor:
        """Log the loss of a batch, a mean over its images, and return it to train by."""
        images = (batch["targets"] >= 0).sum()
        self.train_loss.update(loss.detach(), images)
        self.log("train_loss", self.train_loss, on_step=False, on_epoch=True, prog_bar=True)
        return self.weigh_processes(loss, images)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the images' shape."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["shape"] = self.network.shape

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Make the layers that the checkpoint has weights for."""
        super().on_load_checkpoint(checkpoint)
        if (shape := checkpoint.get("shape")) is not None:
            self.network.build(tuple(shape))
