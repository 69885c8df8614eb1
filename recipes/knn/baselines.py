"""Baselines of the differentiable nearest neighbors: pixels, PCA, an autoencoder."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor

from ltr.shapes import check_whole
from recipes.knn.autoencoder import DenseAutoencoder, ImageAutoencoder
from recipes.knn.neighbor_module import NeighborModule, TrainedNeighbors
from recipes.knn.neighbors import Neighbors, Weighting


class PixelNeighbors(NeighborModule):
    """Nearest neighbors of the pixels, or of their first principal components; nothing to train.

    scikit-learn's `PCA` fits the components to the training images when a test begins. k, the
    weighting and the number of components are those with the highest accuracy on the validation
    images (see `NeighborModule`). The number of components is logged as `test_components`.

    Args:
        components: numbers of principal components to choose from; () for the pixels themselves.
        top_k: numbers of neighbors to choose from.
        weightings: "uniform", "distance" or both, to choose from.

    Raises:
        ValueError: a number is < 1, or there is nothing to choose from; in a test, there are more
            components than pixels; in training, always.

    Reference: Grover et al., ICLR 2019, section 6.3: 50 components, k of 1, 3, 5 and 9, both
    weightings.

    >>> PixelNeighbors(components=[20, 50])(torch.zeros(3, 1, 28, 28)).shape
    torch.Size([3, 784])
    """

    def __init__(
        self,
        components: Sequence[int] = (),
        top_k: Sequence[int] = (1, 3, 5, 9),
        weightings: Sequence[Weighting] = ("uniform", "distance"),
    ):
        super().__init__(top_k, weightings)
        self.components = [check_whole("components", number) for number in components]
        self._axes: Tensor | None = None

    def embed(self, images: Tensor) -> Tensor:
        """Return the pixels (B, C H W), or their chosen components."""
        pixels = images.flatten(1)
        if self._axes is None:
            return pixels
        # the mean is not subtracted, since it does not change the distances
        with torch.autocast(pixels.device.type, enabled=False):
            return pixels @ self._axes

    def prepare(self) -> tuple[Neighbors, dict[str, float]]:
        """Fit the components, and choose their number, `top_k` and `weighting`."""
        self._axes = None
        if not self.components:
            return super().prepare()
        axes = principal_axes(self.points(self._data.splits["train"]), max(self.components))
        found = []
        for number in self.components:
            self._axes = axes[:, :number]
            known = self.know()
            chosen = {**self.choose(known), "components": float(number)}
            found.append((known, chosen, self._axes, self.top_k, self.weighting))
        known, chosen, *kept = max(found, key=lambda one: one[1]["val_accuracy"])  # the first best
        self._axes, self.top_k, self.weighting = kept
        return self.with_validation(known), chosen

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Raise `ValueError`: there is nothing to train."""
        raise ValueError(f"{type(self).__name__} has nothing to train: use `ltr test`")

    def configure_optimizers(self) -> Any:
        """Raise `ValueError`: there is nothing to train."""
        raise ValueError(f"{type(self).__name__} has nothing to train: use `ltr test`")


class AutoencoderNeighbors(TrainedNeighbors):
    """Nearest neighbors of an autoencoder's codes; the autoencoder is trained without classes.

    The loss is the mean squared error of the decoded pixels. Batches must hold pixels from 0 to 1:
    set `normalize` of the data module to false.

    Args:
        network: the autoencoder. Default: `DenseAutoencoder()`.
        top_k: k, how many neighbors vote, or several to choose from (see `NeighborModule`).
        weightings: weightings of the votes to choose from.
        optimizer: parameters -> optimizer. Default: Adam.
        scheduler: optimizer -> scheduler, stepped once an epoch. Default: a constant rate.

    Raises:
        ValueError: a k is < 1, or the network is not an `ImageAutoencoder`; in training, the data
            module normalizes.

    Reference: Grover et al., ICLR 2019, appendix D.3, which names the layers, but neither the loss
    nor the optimizer.

    >>> module = AutoencoderNeighbors(DenseAutoencoder(shape=(1, 28, 28)))
    >>> module(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 50])
    """

    def __init__(
        self,
        network: ImageAutoencoder | None = None,
        top_k: int | Sequence[int] = (1, 3, 5, 9),
        weightings: Sequence[Weighting] = ("uniform", "distance"),
        optimizer: OptimizerCallable = torch.optim.Adam,
        scheduler: LRSchedulerCallable | None = None,
    ):
        chosen = DenseAutoencoder() if network is None else network
        if not isinstance(chosen, ImageAutoencoder):
            raise ValueError(f"network must be an ImageAutoencoder, got {network!r}")
        super().__init__(chosen, top_k, weightings, optimizer, scheduler)

    @property
    def autoencoder(self) -> ImageAutoencoder:
        """The network."""
        return cast(ImageAutoencoder, self.network)

    def setup(self, stage: str) -> None:
        """Make the layers for the images of the data module."""
        super().setup(stage)
        data = getattr(self.trainer, "datamodule", None)
        if stage == "fit" and getattr(data, "normalize", False):
            raise ValueError("normalize must be False for an autoencoder's data, got True")

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        images, real = batch["images"], batch["targets"] >= 0
        decoded = self.autoencoder.decode(self.autoencoder(images))
        losses = (decoded - images).square().flatten(1).mean(-1)
        return self.log_loss((losses * real).sum() / real.sum().clamp(min=1), batch)


def principal_axes(points: Tensor, count: int) -> Tensor:
    """Return the first principal axes (d, count) of points (N, d), by scikit-learn's `PCA`.

    Raises:
        ValueError: count is larger than N or d.

    >>> axes = principal_axes(torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]), count=1)
    >>> axes.abs()
    tensor([[0.6000],
            [0.8000]])
    """
    if count > min(points.shape):
        raise ValueError(f"components must be <= {min(points.shape)}, got {count}")
    from sklearn.decomposition import PCA

    # the eigenvectors of the covariance are exact and need no random numbers
    fitted = PCA(count, svd_solver="covariance_eigh").fit(points.double().cpu().numpy())
    return torch.from_numpy(fitted.components_).T.to(points)
