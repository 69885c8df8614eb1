"""Labeled images in batches, for training: a Lightning data module for any `ImageSource`."""

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.utils.data import Dataset

from ltr.datasets.loaders import SplitDataModule
from ltr.datasets.samplers import ListSampler
from ltr.papers.images.images import DigitImages, Images, ImageSource, split_validation
from ltr.shapes import check_at_least

_PADDING = 4

# streams of the draws of each epoch, by [seed, epoch, stream]; stream 0 is the images' order
CROPS, CANDIDATES, CANDIDATE_CROPS = 1, 2, 3


class ImageDataModule(SplitDataModule):
    """Batches `{"images": float32 (B, C, H, W), "targets": int64 (B,)}` of a source's images.

    The order of the training images depends on (seed, epoch) alone. Their crops and flips, if any,
    depend on (seed, epoch, image) alone. So a run that is resumed within an epoch sees the same
    batches as an uninterrupted run. All processes get the same number of images: empty images with
    the target -1, which count nowhere, fill up the last ones.

    Args:
        images: the source. Default: `DigitImages()`.
        root: the folder of the source's files, or a folder that holds one for each data set:
            `mnist`, `fashion-mnist`, `cifar-10`, `cifar-100`.
        batch_size: images in a batch, in each process.
        val_count: training images held out for validation, drawn by `seed`. Default: the usual
            number for the source.
        normalize: whether to scale pixels, from 0 to 1, to mean 0 and deviation 1 by channel: by
            the source's numbers, or by the training images' if it has none.
        augment: whether to pad training images by 4 black pixels on each side, crop them to their
            size at random, and flip half of them left to right.
        seed: seed of the validation images, the order and the crops, >= 0. Default: see
            `SplitDataModule`.

    Attributes:
        splits: the `Images` "train", "val" and "test", uint8; after `setup`.
        shape: (C, H, W) of an image, after `setup`.
        classes: the number of classes, after `setup`.

    Raises:
        ValueError: an argument is out of range; in `setup`, a file is missing or damaged, or
            val_count leaves nothing to train on.

    >>> data = ImageDataModule(DigitImages(), batch_size=32)
    >>> data.setup("fit")
    >>> batch = next(iter(data.val_dataloader()))
    >>> batch["images"].shape, batch["targets"].shape
    (torch.Size([32, 1, 8, 8]), torch.Size([32]))
    """

    shape: tuple[int, int, int]
    classes: int

    def __init__(
        self,
        images: ImageSource | None = None,
        root: str | Path | None = None,
        batch_size: int = 100,
        val_count: int | None = None,
        normalize: bool = True,
        augment: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__(batch_size, seed=seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*already saved during checkpointing.*")
            self.save_hyperparameters(logger=False)  # names may be the model's too
        if val_count is not None:
            check_at_least("val_count", val_count, 1)
        self.source = DigitImages() if images is None else images
        if not isinstance(self.source, ImageSource):
            raise ValueError(f"images must be an object, such as images=MNIST(), got {images!r}")
        self.root = root
        self.val_count = self.source.val_count if val_count is None else val_count
        self.normalize = normalize
        self.augment = augment
        self.splits: dict[str, Images] = {}
        self._shift: Tensor | None = None
        self._scale: Tensor | None = None

    def setup(self, stage: str | None = None) -> None:
        """Read the files once and hold out the validation images.

        Raises:
            ValueError: see the class.
        """
        if self.splits:
            return
        loaded = self.source.load(self.root)
        if not self.val_count < len(loaded["train"]):
            raise ValueError(
                f"val_count must be below the {len(loaded['train'])} training images, "
                f"got {self.val_count}"
            )
        train, val = split_validation(loaded["train"], self.val_count, self.seed)
        rank_zero_info(
            f"val: {self.val_count} of the {len(loaded['train'])} training images are held out for "
            f"validation (seed {self.seed})"
        )
        self.splits = {"train": train, "val": val, "test": loaded["test"]}
        self.shape, self.classes = self.source.shape, self.source.classes
        mean, sd = (0.0,), (1.0,)
        if self.normalize:
            mean, sd = self.source.mean, self.source.sd
        if mean is None or sd is None:
            mean, sd = channel_moments(train.pixels)
        self._shift = torch.tensor(mean).view(-1, 1, 1)
        self._scale = 1 / torch.tensor(sd).clamp(min=1e-6).view(-1, 1, 1)
        counts = ", ".join(f"{name} {len(part)}" for name, part in self.splits.items())
        rank_zero_info(f"{self.source!r}, images: {counts}")

    def to_float(self, pixels: Tensor) -> Tensor:
        """Return pixels (..., C, H, W) uint8 as float32, normalized if `normalize` is set.

        Raises:
            ValueError: before `setup`.
        """
        if self._shift is None or self._scale is None:
            raise ValueError("setup must be called before to_float")
        shift, scale = self._shift.to(pixels.device), self._scale.to(pixels.device)
        return pixels.float().div_(255).sub_(shift).mul_(scale)

    def dataset(self, split: str) -> Dataset[Any]:
        """Return the images of a split; "predict" is the test split.

        Raises:
            ValueError: before `setup`.
        """
        if not self.splits:
            raise ValueError("setup must be called before the loaders are made")
        images = ImageBatches(self.splits["test" if split == "predict" else split], self.to_float)
        if split == "train" and self.augment:
            images.augment = self.augmentation(images, CROPS)
        return images

    def sampler(self, split: str, dataset: Any) -> ListSampler:
        """Return the sampler of the images; the data set follows its epoch."""
        sampler = super().sampler(split, dataset)
        dataset.epoch = lambda: sampler.epoch
        return sampler

    def augmentation(self, images: "ImageBatches", stream: int) -> "Augmentation":
        """Return the function that crops and flips these images in their current epoch."""
        return lambda pixels, rows: crop_and_flip(
            pixels, rows, len(images), self.seed, images.epoch(), stream
        )


Augmentation = Callable[[Tensor, Tensor], Tensor]
"""A function: pixels (B, C, H, W) uint8 and their indices (B,) -> other pixels."""


class ImageBatches(Dataset[dict[str, Tensor]]):
    """Images by index; a `DataLoader` takes a whole batch by `__getitems__`.

    Attributes:
        epoch: a function that returns the number of the epoch.
        augment: a function applied to the images, if any.
    """

    def __init__(self, images: Images, to_float: Callable[[Tensor], Tensor]) -> None:
        self.images = images
        self.to_float = to_float
        self.epoch: Callable[[], int] = lambda: 0
        self.augment: Augmentation | None = None

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: values[0] for name, values in self.__getitems__([index]).items()}

    def __getitems__(self, indices: Sequence[int]) -> dict[str, Tensor]:
        rows = torch.tensor(indices)
        part = self.images[rows]
        pixels = part.pixels if self.augment is None else self.augment(part.pixels, rows)
        images, targets, filler = self.to_float(pixels), part.labels, rows < 0
        if filler.any():
            images = torch.where(filler.view(-1, 1, 1, 1), 0, images)
            targets = torch.where(filler, -1, targets)
        return {"images": images, "targets": targets}


def crop_and_flip(
    images: Tensor, rows: Tensor, count: int, seed: int, epoch: int, stream: int = CROPS
) -> Tensor:
    """Return images padded by 4 zero pixels on each side, cropped at random, half of them flipped.

    Args:
        images: (B, C, H, W).
        rows: (B,) int64, the images' indices; index and epoch determine the draws.
        count: the number of images in the data set.
        seed: seed of the draws.
        epoch: epoch of the training.
        stream: tells these draws from others of the epoch, > 0.

    Returns:
        As many images of the same size and type.

    >>> images = torch.ones(2, 3, 8, 8)
    >>> crop_and_flip(images, torch.tensor([7, 1]), count=9, seed=0, epoch=1).shape
    torch.Size([2, 3, 8, 8])
    """
    corners, flip = (drawn[rows] for drawn in _crops_and_flips(count, seed, epoch, stream))
    height, width = images.shape[-2:]
    down = corners[:, :1] + torch.arange(height)
    ahead = torch.arange(width).expand(len(rows), -1)
    across = corners[:, 1:] + torch.where(flip.unsqueeze(-1), ahead.flip(-1), ahead)
    padded = torch.nn.functional.pad(images, (_PADDING,) * 4)
    which = torch.arange(len(rows)).view(-1, 1, 1)
    return padded[which, :, down.unsqueeze(-1), across.unsqueeze(-2)].movedim(-1, 1)


@lru_cache(maxsize=4)  # queries and candidates, of this epoch and the next
def _crops_and_flips(count: int, seed: int, epoch: int, stream: int) -> tuple[Tensor, Tensor]:
    draws = np.random.default_rng([seed, epoch, stream])
    corners = draws.integers(0, 2 * _PADDING + 1, (count, 2))
    return torch.from_numpy(corners), torch.from_numpy(draws.random(count) < 0.5)


def channel_moments(pixels: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation by channel of pixels (N, C, H, W) uint8, scaled to [0, 1].

    They are exact, computed from counts of the 256 values.

    >>> channel_moments(torch.tensor([0, 255, 255, 0], dtype=torch.uint8).view(1, 1, 2, 2))
    ((0.5,), (0.5,))
    """
    values = torch.arange(256, dtype=torch.float64) / 255
    means, sds = [], []
    for channel in pixels.unbind(1):
        counts = channel.flatten().bincount(minlength=256).double()
        mean = (counts * values).sum() / counts.sum()
        variance = (counts * (values - mean).square()).sum() / counts.sum()
        means.append(mean.item())
        sds.append(variance.sqrt().item())
    return tuple(means), tuple(sds)
