"""Lists of handwritten numbers, composed of images of digits: the papers' sorting data."""

from collections.abc import Iterator, Sequence, Sized
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch.utils.data import Dataset

from ltr.datasets import ListSampler, SplitDataModule
from ltr.shapes import check_at_least, check_whole
from recipes.images import DigitImages, Images, ImageSource, split_validation

_SPLITS = ("train", "val", "test")
_NEEDED = {"fit": ("train", "val"), "validate": ("val",)}


class NumberLists(Dataset[dict[str, Any]]):
    """Lists of n numbers, each a column of images of its digits, drawn on demand.

    List k depends on (seed, name, k) alone, for any k >= 0. Its numbers are drawn uniformly from
    0 ... 10^digits - 1 and have leading zeros. Each digit gets one of its images, all equally
    likely. A list may hold the same number twice. The list -1 has no numbers: it fills up the
    batches of several processes.

    Args:
        images: images of digits, labeled 0 to 9, with some of each.
        n: numbers in a list.
        digits: digits of a number, at most 7, so that float32 tells numbers apart.
        count: lists in an epoch, the value of `len`.
        seed: seed of the lists, >= 0.
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
        """Return the numbers (B, n) int64 of some lists, and their images (B, n, digits) int64.

        The images are indices into `images`, the first digit first.
        """
        numbers = np.zeros((len(lists), self.n), np.int64)
        shares = np.zeros((len(lists), self.n, self.digits))
        for row, number in enumerate(lists):
            if number >= 0:
                rng = np.random.default_rng([self.seed, _SPLITS.index(self.name), number])
                numbers[row] = rng.integers(0, 10**self.digits, self.n)
                shares[row] = rng.random((self.n, self.digits))
        digit = numbers[..., None] // 10 ** np.arange(self.digits)[::-1] % 10
        positions = self._starts[digit] + (shares * self._counts[digit]).astype(np.int64)
        return numbers, self._by_digit[positions]

    def __getitem__(self, lists: int | Sequence[int]) -> dict[str, Any]:
        """Return a list, or a batch of lists.

        Returns:
            `features` float32 (..., n, C, digits * H, W) from 0 to 1, `labels` (..., n) float32,
            the numbers, `mask` (..., n) bool, all True, and `qid`, such as "numbers-test-17".
        """
        if isinstance(lists, int):
            batch = self[[lists]]
            return {key: value[0] for key, value in batch.items()}
        numbers, positions = self.draw(lists)
        pixels = self.images.pixels[torch.from_numpy(positions)]  # (B, n, digits, C, H, W)
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
        """Return a batch of lists; a `DataLoader` calls this."""
        return self[lists]


class NewListSampler(ListSampler):
    """A sampler of new lists in each epoch: those after the last epoch's.

    It is a `ListSampler` without shuffling, for a data set that has a list for every index >= 0.

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

    This is the published protocol: numbers are drawn uniformly, each digit is an image from the
    split, and the digits form a column. Labels are the numbers, so rank 1 is the largest. The
    papers sort upward or downward, which makes no difference to what can be learned. Training lists
    are new in each epoch; validation and test lists are always the same. All lists depend on `seed`
    alone. No image is in two splits. See `NumberLists`.

    Args:
        images: images of digits. Default: `DigitImages()`, which needs no files.
        root: the folder of the images' files.
        n: numbers in a list.
        digits: digits of a number.
        batch_size: lists in a batch, in each process.
        train_batches: batches in an epoch. Default: images // (digits * batch_size), whatever n
            is.
        val_batches: batches of validation. Default: as above.
        test_batches: batches of test. Default: as above.
        num_workers: processes that make batches.
        seed: seed of the validation images and the lists, >= 0. Default: see `SplitDataModule`.

    Attributes:
        num_features: (C, H, W) of a number; after `setup`.
        splits: the lists by split; after `setup`.

    Raises:
        ValueError: an argument is out of range; in `setup`, a file is missing or damaged, or the
            images are not of digits.

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
        seed: int | None = None,
    ) -> None:
        super().__init__(batch_size, num_workers, seed)
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
        """Load the images and split them, once."""
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
        """Return the lists of a split; "predict" is the test split.

        Raises:
            ValueError: before `setup`.
        """
        if not self.splits:
            raise ValueError("setup must be called before the loaders are made")
        return self.splits["test" if split == "predict" else split]

    def sampler(self, split: str, dataset: Any) -> ListSampler:
        """Return the sampler of a split; in training it gives new lists in each epoch."""
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
