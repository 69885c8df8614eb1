"""Labeled images in batches, from their publishers' files: MNIST, Fashion-MNIST and CIFAR."""

import codecs
import gzip
import io
import pickle
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.utils.data import Dataset

from ltr.datasets import ListSampler, SplitDataModule
from ltr.shapes import check_at_least

_UINT8 = 0x08
_GZIP = b"\x1f\x8b"


def find_idx(folder: Path, name: str, dims: int) -> Path:
    """Return the file `name-idx{dims}-ubyte` or `name.idx{dims}-ubyte` of a folder, plain or `.gz`.

    Raises:
        ValueError: there is no such file.
    """
    for joint in "-.":
        for suffix in ("", ".gz"):
            path = folder / f"{name}{joint}idx{dims}-ubyte{suffix}"
            if path.is_file():
                return path
    raise ValueError(f"root must hold {name}-idx{dims}-ubyte or the same with .gz, got {folder}")


def read_idx(path: Path, dims: int) -> np.ndarray:
    """Return the uint8 array with `dims` axes in an idx file, which may be compressed by gzip.

    Raises:
        ValueError: the file is damaged, holds other types or axes, or is too short or too long.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".gz" or data.startswith(_GZIP):
            data = gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path}: not a whole gzip file ({error})") from error
    start = 4 + 4 * dims
    if data[:4] != bytes([0, 0, _UINT8, dims]) or len(data) < start:
        raise ValueError(
            f"{path}: not an idx file of bytes with {dims} axes (starts with {data[:4].hex()!r})"
        )
    shape = np.frombuffer(data, ">u4", count=dims, offset=4).tolist()
    size = int(np.prod(shape, dtype=object))
    if len(data) - start != size:
        raise ValueError(
            f"{path}: {size} bytes of shape {tuple(shape)} expected, got {len(data) - start}"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


_ARRAY = np.empty(0).__reduce__()[0]  # the function that rebuilds an array; its module varies
_CORES = ("numpy.core.multiarray", "numpy._core.multiarray")
# a damaged pickle may raise any of these
_DAMAGE = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    ImportError,
    OverflowError,
    MemoryError,
)


@dataclass(frozen=True)
class Batch:
    """One file: pixels (N, 3, 32, 32) uint8, labels (N,) int64, and its name for messages."""

    pixels: np.ndarray
    labels: np.ndarray
    file: str


def read_cifar(
    root: Path, folder: str, archive: str, names: list[str], label_key: str
) -> dict[str, Batch]:
    """Return the batches called `names`, from `root`, `root`/`folder` or the archive.

    Raises:
        ValueError: there is no such folder or archive, or a batch is missing, damaged or of
            another kind.
    """
    if root.is_file():
        found = _from_archive(root, folder, names)
    elif not root.is_dir():
        raise ValueError(f"root must be a folder or a .tar.gz, got {root}")
    elif (root / folder).is_dir():
        found = _from_folder(root / folder, names)
    elif (root / archive).is_file():
        found = _from_archive(root / archive, folder, names)
    elif (root / names[0]).exists():
        found = _from_folder(root, names)
    else:
        raise ValueError(f"root must hold {folder} or {archive}, got {root}")
    return {name: _batch(data, label_key, file) for name, file, data in found}


def _from_folder(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, str, bytes]]:
    for name in names:
        path = folder / name
        if not path.is_file():
            raise ValueError(f"root must hold {name}, got {folder}")
        yield name, str(path), path.read_bytes()


def _from_archive(
    path: Path, folder: str, names: Iterable[str]
) -> Iterator[tuple[str, str, bytes]]:
    missing = set(names)
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:  # in the archive's order, since reading backwards is slow
                name = member.name.removeprefix("./").removeprefix(f"{folder}/")
                file = archive.extractfile(member) if name in missing else None
                if file is not None:
                    missing.remove(name)
                    yield name, f"{path}:{member.name}", file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        cause = " ".join(str(error).split())
        raise ValueError(f"{path}: not a whole .tar.gz ({cause})") from error
    if missing:
        raise ValueError(f"{path}: no {', '.join(sorted(missing))} in {folder}")


def _batch(data: bytes, label_key: str, file: str) -> Batch:
    try:
        batch = _Unpickler(io.BytesIO(data), encoding="latin1").load()
    except _DAMAGE as error:
        raise ValueError(f"{file}: not a batch of images ({error or type(error).__name__})") from (
            error
        )
    if not isinstance(batch, dict) or not {"data", label_key} <= batch.keys():
        raise ValueError(f"{file}: a batch must have data and {label_key}")
    pixels, labels = batch["data"], batch[label_key]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2:
        raise ValueError(f"{file}: data must be uint8 of shape (N, 3072)")
    if pixels.shape[1] != 3 * 32 * 32:
        raise ValueError(f"{file}: data must be uint8 of shape (N, 3072), got {pixels.shape}")
    if not isinstance(labels, list) or not all(
        type(label) is int and abs(label) < 2**31 for label in labels
    ):
        raise ValueError(f"{file}: {label_key} must be a list of integers")
    return Batch(pixels.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64), file)


class _Unpickler(pickle.Unpickler):
    """Unpickler that allows only the functions and classes that rebuild an array of numbers."""

    def find_class(self, module: str, name: str) -> Any:
        if module in _CORES and name == "_reconstruct":
            return _ARRAY
        if module == "numpy" and name == "ndarray":
            return np.ndarray
        if module == "numpy" and name == "dtype":
            return _number_type
        if module == "_codecs" and name == "encode":
            return _encode
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed")


def _number_type(name: Any, *options: Any) -> Any:
    kind = np.dtype(name, *options)
    if kind.kind not in "iu":
        raise pickle.UnpicklingError(f"arrays of {kind} are not allowed")
    return kind


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":  # how Python 3 writes bytes in the old protocols
        raise pickle.UnpicklingError(f"encoding {encoding} is not allowed")
    return codecs.encode(text, encoding)


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


_PADDING = 4

# streams of the draws of each epoch, by [seed, epoch, stream]; stream 0 is the images' order
CROPS, CANDIDATES, CANDIDATE_CROPS = 1, 2, 3


class ImageDataModule(SplitDataModule):
    """Batches `{"images": float32 (B, C, H, W), "targets": int64 (B,)}` of a source's images.

    The order of the training images depends on (seed, epoch) alone. Their crops and flips, if any,
    depend on (seed, epoch, image) alone. So a resumed run sees the same batches as an uninterrupted
    run. All processes get the same number of images: empty images with the target -1, which count
    nowhere, fill up the last ones.

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
