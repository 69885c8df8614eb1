"""Lists of handwritten numbers, composed of images of digits: the papers' sorting data."""

import warnings
from collections.abc import Iterator, Sequence, Sized
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch.utils.data import Dataset

from ltr._shapes import check_at_least, check_whole
from ltr.datasets.loaders import SplitDataModule
from ltr.datasets.samplers import ListSampler
from ltr.papers.images.images import DigitImages, Images, ImageSource, split_validation

_SPLITS = ("train", "val", "test")
_NEEDED = {"fit": ("train", "val"), "validate": ("val",)}


class NumberLists(Dataset[dict[str, Any]]):
    """Lists of n numbers, each a column of images of its digits; drawn when they are asked for.

    List k is a function of (seed, name, k) alone, for any k >= 0: numbers drawn evenly from
    0 ... 10^digits - 1, with leading noughts, and for each digit one of its images, all equally
    likely. The same number may stand twice in a list. The list -1 has no numbers: it fills up
    the batches of several processes.

    Args:
        images: of digits, labelled 0 to 9, with some of each.
        n: numbers in a list.
        digits: of a number, at most 7, so that float32 tells numbers apart.
        count: lists in an epoch, what `len` gives.
        seed: of the lists, >= 0.
        name: "train", "val" or "test".

    Raises:
        ValueError: an argument is out of range, or a digit has no image.

    >>> lists = NumberLists(DigitImages().load(None)["test"], n=3, digits=2, count=10)
    >>> batch = lists[[0, 1]]
    >>> batch["features"].shape, batch["labels"]
    (torch.Size([2, 3, 1, 16, 8]), tensor([[97.,  8., 28.],
            [96., 51., 32.]]))
    """

    def __init__(
        self,
        images: Images,
        n: int,
        digits: int = 4,
        count: int = 1000,
        seed: int = 0,
        name: str = "test",
    ) -> None:
        self.n = check_whole("n", n)
        self.digits = check_whole("digits", digits)
        if digits > 7:
            raise ValueError(f"digits must be <= 7, got {digits}")
        self.count = check_whole("count", count)
        self.seed = check_at_least("seed", seed, 0)
        if name not in _SPLITS:
            raise ValueError(f"name must be one of {', '.join(_SPLITS)}, got {name!r}")
        labels = images.labels.numpy()
        if labels.min() < 0 or labels.max() > 9:
            raise ValueError(f"images must be of digits, 0 to 9, got a label {labels.max()}")
        self._counts = np.bincount(labels, minlength=10)
        if not self._counts.all():
            raise ValueError(f"images must have every digit, got no {self._counts.argmin()}")
        self._starts = np.cumsum(self._counts) - self._counts
        self._by_digit = np.argsort(labels, kind="stable")
        self.images, self.name = images, name

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, digits * H, W) of a number."""
        channels, height, width = self.images.pixels.shape[1:]
        return channels, self.digits * height, width

    def __len__(self) -> int:
        return self.count

    def draw(self, lists: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The numbers (B, n) int64 of some lists, and which images (B, n, digits) int64.

        Images by their places in `images`, the first digit first.
        """
        numbers = np.zeros((len(lists), self.n), np.int64)
        shares = np.zeros((len(lists), self.n, self.digits))
        for row, number in enumerate(lists):
            if number >= 0:
                rng = np.random.default_rng([self.seed, _SPLITS.index(self.name), number])
                numbers[row] = rng.integers(0, 10**self.digits, self.n)
                shares[row] = rng.random((self.n, self.digits))
        digit = numbers[..., None] // 10 ** np.arange(self.digits)[::-1] % 10
        places = self._starts[digit] + (shares * self._counts[digit]).astype(np.int64)
        return numbers, self._by_digit[places]

    def __getitem__(self, lists: int | Sequence[int]) -> dict[str, Any]:
        """A list, or a batch of lists.

        Returns:
            `features` float32 (..., n, C, digits * H, W) from 0 to 1, `labels` (..., n) float32,
            the numbers, `mask` (..., n) bool, all True, and `qid`, such as "numbers-test-17".
        """
        if isinstance(lists, int):
            batch = self[[lists]]
            return {key: value[0] for key, value in batch.items()}
        numbers, places = self.draw(lists)
        pixels = self.images.pixels[torch.from_numpy(places)]  # (B, n, digits, C, H, W)
        pixels = pixels.transpose(2, 3).flatten(3, 4)
        real = torch.tensor([number >= 0 for number in lists])
        mask = real.unsqueeze(-1).expand(-1, self.n).contiguous()
        return {
            "features": pixels.float().div_(255),
            "labels": torch.from_numpy(numbers).float(),
            "mask": mask,
            "qid": [f"numbers-{self.name}-{number}" for number in lists],
        }

    def __getitems__(self, lists: Sequence[int]) -> dict[str, Any]:
        """A batch, made at once: what a `DataLoader` asks for."""
        return self[lists]


class NewListSampler(ListSampler):
    """Other lists in each epoch: those that follow on the last epoch's.

    As `ListSampler` without shuffling, for a data set that has a list for every index >= 0.

    >>> sampler = NewListSampler(range(3))
    >>> sampler.set_epoch(2)
    >>> list(sampler)
    [6, 7, 8]
    """

    def __init__(self, dataset: Any, **options: Any) -> None:
        super().__init__(dataset, shuffle=False, **options)

    def __iter__(self) -> Iterator[int]:
        lists = len(cast(Sized, self.dataset))
        for number in super().__iter__():
            yield number if number < 0 else number + self.epoch * lists


class NumbersDataModule(SplitDataModule):
    """Lists of handwritten numbers to be sorted, of four digits each (large-MNIST).

    The published protocol: the numbers are drawn evenly, each digit takes an image of it from the
    split's images, and the digits stand in a column. Labels are the numbers, so that rank 1 is
    the largest; the papers' order, of rising or falling numbers, makes no difference to what can be
    learned. Train lists are new in each epoch, validation and test lists are always the same; all
    of them are functions of `seed`. No image is in two splits. See `NumberLists`.

    Args:
        images: of digits. Default: `DigitImages()`, which needs no files.
        root: the folder of their files.
        n: numbers in a list.
        digits: of a number.
        batch_size: lists in a batch, in each process.
        train_batches: an epoch's. Default: as many as the split has images for, whatever n is:
            images // (digits * batch_size).
        val_batches: to validate on. Default: as above.
        test_batches: to test on. Default: as above.
        num_workers: processes that make batches.
        seed: of the validation images and the lists, >= 0.

    Attributes:
        num_features: (C, H, W) of a number; after `setup`.
        splits: the lists by split; after `setup`.

    Raises:
        ValueError: for an argument out of range; in `setup`, for files that are missing or
            damaged, or images that are not of digits.

    Reference: Grover, Wang, Zweig and Ermon, ICLR 2019, section 6.1; Prillo and Eisenschlos, ICML
    2020, appendix A.1.

    >>> data = NumbersDataModule(n=3, batch_size=5)
    >>> data.setup("fit")
    >>> data.num_features, len(data.splits["train"])
    ((1, 32, 8), 310)
    """

    num_features: tuple[int, int, int]

    def __init__(
        self,
        images: ImageSource | None = None,
        root: str | None = None,
        n: int = 5,
        digits: int = 4,
        batch_size: int = 20,
        train_batches: int | None = None,
        val_batches: int | None = None,
        test_batches: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__(batch_size, num_workers, seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*already saved during checkpointing.*")
            self.save_hyperparameters(logger=False)  # names may be the model's too
        self.n = check_whole("n", n)
        self.digits = check_whole("digits", digits)
        self.batches = {"train": train_batches, "val": val_batches, "test": test_batches}
        for split, count in self.batches.items():
            if count is not None:
                check_whole(f"{split}_batches", count)
        self.images = DigitImages() if images is None else images
        if not isinstance(self.images, ImageSource):
            raise ValueError(f"images must be an object, such as images=MNIST(), got {images!r}")
        self.root: str | Path | None = root
        self.splits: dict[str, NumberLists] = {}

    def setup(self, stage: str | None = None) -> None:
        """Load the images and divide them, once."""
        if self.splits:
            return
        loaded = self.images.load(self.root)
        train, val = split_validation(loaded["train"], self.images.val_count, self.seed)
        for name, images in zip(_SPLITS, (train, val, loaded["test"]), strict=True):
            self.splits[name] = self._lists(name, images)
        self.num_features = self.splits["train"].shape
        for name in _NEEDED.get(stage or "", _SPLITS[2:]):
            lists = self.splits[name]
            rank_zero_info(
                f"{name}: {len(lists):,} lists of {self.n} numbers, {len(lists.images):,} images"
            )

    def dataset(self, split: str) -> NumberLists:
        """The lists of a split; what is to be scored is the test split.

        Raises:
            ValueError: before `setup`.
        """
        if not self.splits:
            raise ValueError("setup must be called before the loaders are made")
        return self.splits["test" if split == "predict" else split]

    def sampler(self, split: str, dataset: Any) -> ListSampler:
        """For training, new lists in each epoch."""
        if split == "train":
            return NewListSampler(dataset, seed=self.seed, **self.replicas())
        return super().sampler(split, dataset)

    def _lists(self, name: str, images: Images) -> NumberLists:
        batches = self.batches[name] or len(images) // (self.digits * self.batch_size)
        if not batches:
            raise ValueError(
                f"{name}_batches must be given: {len(images)} images are too few for a batch of "
                f"{self.batch_size} lists, got None"
            )
        return NumberLists(images, self.n, self.digits, batches * self.batch_size, self.seed, name)
