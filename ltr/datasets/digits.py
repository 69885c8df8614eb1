"""Lists of images of handwritten digits, to be ranked by digit; the data need no download."""

import numpy as np

from ltr.datasets.lists import ListDataset
from ltr.datasets.loaders import ListDataModule
from ltr.datasets.transforms import FeatureTransform, NoTransform
from ltr.shapes import check_at_least, check_number

_SHARES = {"train": 0.6, "val": 0.2, "test": 0.2}


class DigitsDataModule(ListDataModule):
    """A small data set that needs no download: lists of handwritten digits.

    The images are the 1,797 digits of 8x8 pixels that come with scikit-learn. 60 % of the images
    are for training, 20 % for validation and 20 % for testing. No image is in two splits. The lists
    of a split are drawn at random from its images; an image occurs at most once in a list. Splits
    and lists depend only on `seed`. Features are the 64 pixels, from 0 to 1. The label is the
    digit, so a well-ranked list has its nines first. `doc_id` is the image's number in
    scikit-learn's data, and a qid is, for example, "digits-test-17".

    With `scale` s > 1, each list has its own scale of labels, like lists judged by different
    people. The labels of a list are the digits times a random factor from 1 / s to s, whose
    logarithm is uniform. A label alone then does not tell the digit: only the order of the labels
    within a list has a meaning.

    Args:
        list_size: how many images a list has.
        scale: the largest factor s for the labels of a list, >= 1. Default: 1, which keeps the
            digits as labels.
        train_lists: how many lists to train on.
        val_lists: how many lists to validate on.
        test_lists: how many lists to test on.
        batch_size: lists in a batch, in each process.
        transform: transform of the features, fitted on the training lists. Default:
            `NoTransform()`.
        num_workers: processes that make batches.
        seed: seed of the split, the lists and the shuffling, >= 0. Default: see `SplitDataModule`.

    Raises:
        ValueError: an argument is out of range.

    >>> digits = DigitsDataModule(list_size=3, train_lists=2, val_lists=1, test_lists=1)
    >>> digits.setup("fit")
    >>> item = digits.splits["train"][0]
    >>> item["features"].shape, item["qid"], len(item["doc_id"])
    (torch.Size([3, 64]), 'digits-train-0', 3)
    """

    def __init__(
        self,
        list_size: int = 12,
        scale: float = 1.0,
        train_lists: int = 2000,
        val_lists: int = 500,
        test_lists: int = 1000,
        batch_size: int = 64,
        transform: FeatureTransform | None = None,
        num_workers: int = 0,
        seed: int | None = None,
    ) -> None:
        super().__init__(
            batch_size=batch_size,
            transform=NoTransform() if transform is None else transform,
            num_workers=num_workers,
            seed=seed,
        )
        self.counts = {"train": train_lists, "val": val_lists, "test": test_lists}
        for split, count in self.counts.items():
            check_at_least(f"{split}_lists", count, 1)
        self.list_size = check_at_least("list_size", list_size, 1)
        self.scale = check_number("scale", scale, minimum=1.0)

    def load_splits(self) -> dict[str, ListDataset]:
        """Split the images, and draw the lists of each split."""
        from sklearn.datasets import load_digits

        pixels, grades = load_digits(return_X_y=True)
        features = np.asarray(pixels, dtype=np.float32) / 16
        digits = np.asarray(grades, dtype=np.float32)
        order = np.random.default_rng(self.seed).permutation(len(digits))
        ends = np.round(np.cumsum(list(_SHARES.values())) * len(digits)).astype(int)
        parts = np.split(order, ends[:-1])
        smallest = min(len(part) for part in parts)
        if self.list_size > smallest:
            raise ValueError(f"list_size must be <= {smallest}, got {self.list_size}")
        splits = {}
        for number, (split, images) in enumerate(zip(_SHARES, parts, strict=True)):
            draws = np.random.default_rng([self.seed, number])
            count = self.counts[split]
            rows = np.concatenate(
                [draws.choice(images, self.list_size, replace=False) for _ in range(count)]
            )
            factors = self.scale ** draws.uniform(-1, 1, count)
            splits[split] = ListDataset(
                features[rows],
                digits[rows] * np.repeat(factors, self.list_size).astype(np.float32),
                np.arange(count + 1, dtype=np.int64) * self.list_size,
                [f"digits-{split}-{i}" for i in range(count)],
                [str(row) for row in rows],
            )
        splits["predict"] = splits["test"]
        return splits
