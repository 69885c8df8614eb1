"""Labeled images, read from their publishers' files: MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ltr.papers.images.cifar import read_cifar
from ltr.papers.images.idx import find_idx, read_idx
from ltr.shapes import check_at_least


@dataclass(frozen=True, eq=False)
class Images:
    """Images with their classes.

    Attributes:
        pixels: (N, C, H, W) uint8.
        labels: (N,) int64, from 0.

    Raises:
        ValueError: a tensor has another shape or type.

    >>> images = Images(torch.zeros(5, 1, 28, 28, dtype=torch.uint8), torch.arange(5))
    >>> len(images), images[torch.tensor([4, 0])].labels
    (5, tensor([4, 0]))
    """

    pixels: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.pixels.dtype != torch.uint8 or self.pixels.dim() != 4:
            raise ValueError(
                "pixels must be uint8 of shape (N, C, H, W), "
                f"got {self.pixels.dtype} {tuple(self.pixels.shape)}"
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != self.pixels.shape[:1]:
            raise ValueError(
                f"labels must be int64 of shape ({len(self.pixels)},), "
                f"got {self.labels.dtype} {tuple(self.labels.shape)}"
            )

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: Tensor | slice) -> "Images":
        return Images(self.pixels[index], self.labels[index])


class ImageSource:
    """Base class of the sources: a subclass defines `load` and the attributes.

    An object holds settings and no images.

    Attributes:
        classes: the number of classes; labels are 0 ... classes - 1.
        shape: (channels, height, width) of an image.
        val_count: how many training images are usually held out for validation.
        mean: the usual mean of the training pixels, from 0 to 1, by channel; None: computed.
        sd: their standard deviation; None: computed.
        subfolder: the data set's folder in a folder of several data sets; None: it has none.
    """

    classes: int
    shape: tuple[int, int, int]
    val_count: int = 5000
    subfolder: str | None = None
    mean: tuple[float, ...] | None = None
    sd: tuple[float, ...] | None = None

    def load(self, root: str | Path | None) -> dict[str, Images]:
        """Return the images of the splits "train" and "test".

        Args:
            root: the folder of the data set's files, or one that holds its `subfolder`.

        Raises:
            ValueError: a root is needed and not given, or a file is missing, damaged or of another
                kind; the message names it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define load")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def _make(
        self, pixels: np.ndarray, labels: np.ndarray, file: str, labels_file: str | None = None
    ) -> Images:
        if len(pixels) != len(labels):
            there = "" if labels_file is None else f" in {labels_file}"
            raise ValueError(f"{file}: {len(pixels)} images, but {len(labels)} labels{there}")
        if pixels.shape[1:] != self.shape:
            raise ValueError(f"{file}: images must be {self.shape}, got {pixels.shape[1:]}")
        if len(labels) == 0:
            raise ValueError(f"{file}: no images")
        if labels.min() < 0 or labels.max() >= self.classes:
            raise ValueError(
                f"{labels_file or file}: labels must be 0 to {self.classes - 1}, "
                f"got {labels.min()} to {labels.max()}"
            )
        return Images(
            torch.from_numpy(np.require(pixels, np.uint8, ["C", "W"])),
            torch.from_numpy(np.require(labels, np.int64, ["C", "W"])),
        )


class MNIST(ImageSource):
    """Handwritten digits, 60,000 + 10,000 of 28 x 28 pixels, as LeCun, Cortes and Burges ship them.

    `root`, or its folder `mnist`, holds `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`,
    `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, each plain or with `.gz`. After `images`
    and `labels` there may be a dot instead of the hyphen.

    >>> MNIST().shape, MNIST().classes
    ((1, 28, 28), 10)
    """

    classes = 10
    shape = (1, 28, 28)
    subfolder: str | None = "mnist"
    mean: tuple[float, ...] | None = (0.1307,)
    sd: tuple[float, ...] | None = (0.3081,)

    def load(self, root: str | Path | None) -> dict[str, Images]:
        """Read the four files."""
        folder = _need_root(self, root)
        if not folder.is_dir():
            raise ValueError(f"root must be a folder, got {root}")
        splits = {}
        for split, prefix in (("train", "train"), ("test", "t10k")):
            images = find_idx(folder, f"{prefix}-images", 3)
            labels = find_idx(folder, f"{prefix}-labels", 1)
            pixels = read_idx(images, 3)[:, None]
            splits[split] = self._make(pixels, read_idx(labels, 1), str(images), str(labels))
        return splits


class FashionMNIST(MNIST):
    """Zalando's articles, 60,000 + 10,000 of 28 x 28 pixels; the files have MNIST's names."""

    subfolder = "fashion-mnist"
    mean = (0.2860,)
    sd = (0.3530,)


class CIFAR10(ImageSource):
    """Tiny images of 10 classes, 50,000 + 10,000 of 3 x 32 x 32, in the "python version".

    `root` is `cifar-10-python.tar.gz` or `cifar-10-batches-py`, or a folder that holds one of them,
    itself or in a folder `cifar-10`. Nothing is unpacked to disk. The pickles may hold only arrays
    and plain values.

    >>> CIFAR10().load(None)
    Traceback (most recent call last):
    ...
    ValueError: root must be the folder of CIFAR10's files, got None
    """

    classes = 10
    shape = (3, 32, 32)
    subfolder: str | None = "cifar-10"
    mean: tuple[float, ...] | None = (0.4914, 0.4822, 0.4465)
    sd: tuple[float, ...] | None = (0.2470, 0.2435, 0.2616)
    folder = "cifar-10-batches-py"
    archive = "cifar-10-python.tar.gz"
    label_key = "labels"
    train_files: tuple[str, ...] = tuple(f"data_batch_{i}" for i in range(1, 6))
    test_files: tuple[str, ...] = ("test_batch",)

    def load(self, root: str | Path | None) -> dict[str, Images]:
        """Read the batches and join them."""
        path = _need_root(self, root)
        splits = {}
        names = [*self.train_files, *self.test_files]
        batches = read_cifar(path, self.folder, self.archive, names, self.label_key)
        for split, files in (("train", self.train_files), ("test", self.test_files)):
            parts = [
                self._make(batches[name].pixels, batches[name].labels, batches[name].file)
                for name in files
            ]
            splits[split] = Images(
                torch.cat([part.pixels for part in parts]),
                torch.cat([part.labels for part in parts]),
            )
        return splits


class CIFAR100(CIFAR10):
    """Tiny images of 100 classes (the fine labels), 50,000 + 10,000 of 3 x 32 x 32.

    As `CIFAR10`, with `cifar-100-python.tar.gz`, `cifar-100-python` and `cifar-100`.
    """

    classes = 100
    subfolder = "cifar-100"
    mean = (0.5071, 0.4865, 0.4409)
    sd = (0.2673, 0.2564, 0.2762)
    folder = "cifar-100-python"
    archive = "cifar-100-python.tar.gz"
    label_key = "fine_labels"
    train_files = ("train",)
    test_files = ("test",)


class DigitImages(ImageSource):
    """scikit-learn's bundled digits: 1,797 images of 8 x 8 pixels, of which 359 are the test split.

    The test images are always the same. `root` is ignored, since no files are needed. Pixels are
    scaled from 0 ... 16 to 0 ... 255.

    >>> splits = DigitImages().load(None)
    >>> len(splits["train"]), len(splits["test"]), splits["train"].pixels.shape[1:]
    (1438, 359, torch.Size([1, 8, 8]))
    """

    classes = 10
    shape = (1, 8, 8)
    val_count = 180

    def load(self, root: str | Path | None) -> dict[str, Images]:
        """Return the digits, split 80 : 20."""
        from sklearn.datasets import load_digits

        grey, digits = load_digits(return_X_y=True)
        pixels = np.rint(np.asarray(grey) * 255 / 16).astype(np.uint8).reshape(-1, 1, 8, 8)
        order = np.random.default_rng(0).permutation(len(pixels))
        parts = np.split(order, [len(order) - len(order) // 5])
        return {
            split: self._make(pixels[part], np.asarray(digits)[part], "scikit-learn's digits")
            for split, part in zip(("train", "test"), parts, strict=True)
        }


def split_validation(train: Images, count: int, seed: int) -> tuple[Images, Images]:
    """Hold out images for validation, drawn by `seed`. Both parts keep the images' order.

    Args:
        train: N images.
        count: how many to hold out, 1 <= count < N.
        seed: seed of the draw, >= 0.

    Returns:
        The training and the validation images.

    Raises:
        ValueError: count or seed is out of range.

    >>> train, val = split_validation(DigitImages().load(None)["train"], count=180, seed=0)
    >>> len(train), len(val)
    (1258, 180)
    """
    if not 1 <= count < len(train):
        raise ValueError(f"count must be from 1 to {len(train) - 1}, got {count}")
    order = np.random.default_rng(check_at_least("seed", seed, 0)).permutation(len(train))
    held, kept = np.sort(order[:count]), np.sort(order[count:])
    return train[torch.from_numpy(kept)], train[torch.from_numpy(held)]


def _need_root(source: ImageSource, root: str | Path | None) -> Path:
    if root is None:
        raise ValueError(f"root must be the folder of {type(source).__name__}'s files, got None")
    among_others = source.subfolder and Path(root) / source.subfolder
    return among_others if among_others and among_others.is_dir() else Path(root)
