"""Labelled images in batches, for training: a Lightning data module for any `ImageSource`."""

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

from ltr._shapes import check_at_least
from ltr.datasets.loaders import SplitDataModule
from ltr.datasets.samplers import ListSampler
from ltr.papers.images.images import DigitImages, Images, ImageSource, split_validation

_PADDING = 4

# what is drawn anew in each epoch, by [seed, epoch, one of these]; the order of the images is 0
CROPS, CANDIDATES, CANDIDATE_CROPS = 1, 2, 3


class ImageDataModule(SplitDataModule):
    """Batches `{"images": float32 (B, C, H, W), "targets": int64 (B,)}` of a source's images.

    Training images come in an order that (seed, epoch) alone decide, and are moved and flipped, if
    they are to be, by draws that (seed, epoch, image) alone decide: so a run that is resumed in
    the middle of an epoch sees what an unbroken one sees. Several processes get the same number
    of images, the last ones filled up by empty images with the target -1, which counts nowhere.

    Args:
        images: the source. Default: `DigitImages()`.
        root: the folder of its files, or one of several data sets' folders: `mnist`,
            `fashion-mnist`, `cifar-10`, `cifar-100`.
        batch_size: images in a batch, in each process.
        val_count: training images held out for validation, drawn by `seed`. Default: what is usual
            for the source.
        normalize: whether pixels, from 0 to 1, get mean 0 and deviation 1 by channel: with the
            source's numbers or, where it has none, those of the training images.
        augment: whether training images are cropped to their size out of 4 more black pixels on
            each side, and every second one is flipped left to right.
        seed: of the validation images, the order and the crops, >= 0.

    Attributes:
        splits: the `Images` "train", "val" and "test", uint8; after `setup`.
        shape: (C, H, W) of an image, after `setup`.
        classes: how many there are, after `setup`.

    Raises:
        ValueError: at construction for an argument out of range, in `setup` for files that are
            missing or damaged, and for a val_count that leaves nothing to train on.

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
        seed: int = 0,
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
        """Read the files, once, and hold out the validation images.

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
        """Pixels (..., C, H, W) uint8 as the network sees them: float32, normalized if they are.

        Raises:
            ValueError: before `setup`.
        """
        if self._shift is None or self._scale is None:
            raise ValueError("setup must be called before to_float")
        shift, scale = self._shift.to(pixels.device), self._scale.to(pixels.device)
        return pixels.float().div_(255).sub_(shift).mul_(scale)

    def dataset(self, split: str) -> Dataset[Any]:
        """The images of a split; what is to be scored is the test split.

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
        """The order of the images, whose data set follows the sampler's epoch."""
        sampler = super().sampler(split, dataset)
        dataset.epoch = lambda: sampler.epoch
        return sampler

    def augmentation(self, images: "ImageBatches", stream: int) -> "Augmentation":
        """Crops and flips of these images in the epoch that they are in."""
        return lambda pixels, rows: crop_and_flip(
            pixels, rows, len(images), self.seed, images.epoch(), stream
        )


Augmentation = Callable[[Tensor, Tensor], Tensor]
"""Pixels (B, C, H, W) uint8 and their places (B,) -> other pixels."""


class ImageBatches(Dataset[dict[str, Tensor]]):
    """Images by their places; a `DataLoader` asks for a batch at once by `__getitems__`.

    Attributes:
        epoch: gives the number of the epoch.
        augment: what is done to the images, if anything.
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
    """Images (B, C, H, W) cropped to their size out of 4 more pixels of 0 around, half flipped.

    Args:
        images: the images.
        rows: (B,) int64, their numbers; image and epoch decide the draws.
        count: how many images there are.
        seed: of the draws.
        epoch: of the training.
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


@lru_cache(maxsize=4)  # queries and candidates, of one epoch and the next
def _crops_and_flips(count: int, seed: int, epoch: int, stream: int) -> tuple[Tensor, Tensor]:
    draws = np.random.default_rng([seed, epoch, stream])
    corners = draws.integers(0, 2 * _PADDING + 1, (count, 2))
    return torch.from_numpy(corners), torch.from_numpy(draws.random(count) < 0.5)


def channel_moments(pixels: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation by channel of pixels (N, C, H, W) uint8, taken from 0 to 1.

    Exact: from counts of the 256 values.

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
