"""A Lightning data module of a sample for regression with planted outliers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ltr.datasets import ListSampler
from ltr.shapes import check_at_least, check_number, check_whole

_NORMAL = 1.4826  # standard deviation of a normal variable / its median distance to the median


class RegressionDataModule(LightningDataModule):
    """scikit-learn's diabetes as one list: the whole sample in a batch, a share of it outliers.

    The data are 442 patients with 10 features; the labels, 25 to 346, measure the progress of their
    disease. A share of the patients, drawn by `seed`, is the test sample and stays unchanged. Of
    the other labels a share, `outliers`, is raised by `outlier_size` standard deviations of the
    labels, times a factor drawn from 1 to 2 for each.

    A batch is `{"features": (1, n, d), "labels": (1, n)}` float32, the same one each time. A step
    of training sees the whole sample, and an epoch has `steps` steps. Features have mean 0 and
    deviation 1 in the training sample.

    Args:
        outliers: share of outliers among the training labels, in [0, 1).
        outlier_size: size of the outliers, in standard deviations of the labels, > 0.
        test_share: share of the patients in the test sample, in (0, 1).
        steps: steps in an epoch.
        seed: seed of the split and of the outliers, >= 0. Default: see `SplitDataModule`.

    Attributes:
        num_features: d, after `setup`.
        label_center: the median of the training labels, outliers included, after `setup`.
        label_scale: 1.4826 x the median distance to it, after `setup`: an estimate of the labels'
            deviation that a few outliers change little.
        splits: (features (n, d), labels (n,)) of "train" and "test", after `setup`.
        planted: (n,) bool, True for training labels that are outliers, after `setup`.

    Raises:
        ValueError: an argument is out of range.

    >>> data = RegressionDataModule(outliers=0.25, steps=3)
    >>> data.setup("fit")
    >>> [batch["features"].shape for batch in data.train_dataloader()]
    [torch.Size([1, 354, 10]), torch.Size([1, 354, 10]), torch.Size([1, 354, 10])]
    >>> int(data.planted.sum())
    88
    """

    num_features: int
    label_center: float
    label_scale: float
    planted: Tensor

    def __init__(
        self,
        outliers: float = 0.1,
        outlier_size: float = 5.0,
        test_share: float = 0.2,
        steps: int = 100,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)  # names may be the model's too
        self.outliers = check_number("outliers", outliers, minimum=0.0)
        if self.outliers >= 1:
            raise ValueError(f"outliers must be in [0, 1), got {outliers}")
        self.outlier_size = check_number("outlier_size", outlier_size, minimum=0.0, strict=True)
        self.test_share = check_number("test_share", test_share, minimum=0.0, strict=True)
        if self.test_share >= 1:
            raise ValueError(f"test_share must be in (0, 1), got {test_share}")
        self.steps = check_whole("steps", steps)
        self.seed = check_at_least("seed", 0 if seed is None else seed, 0)
        self.splits: dict[str, tuple[Tensor, Tensor]] = {}

    def setup(self, stage: str | None = None) -> None:
        """Split the patients and plant the outliers, once."""
        if self.splits:
            return
        from sklearn.datasets import load_diabetes

        features, labels = (np.asarray(part) for part in load_diabetes(return_X_y=True))
        rng = np.random.default_rng(self.seed)
        order = rng.permutation(len(labels))
        held = min(max(1, round(self.test_share * len(labels))), len(labels) - 2)
        test, train = order[:held], order[held:]
        y = labels[train]
        # the first ones of a fixed order, so that a larger share includes a smaller one
        position = rng.permutation(len(train))[: round(self.outliers * len(train))]
        factors = rng.uniform(1, 2, len(train))[: len(position)]
        planted = np.zeros(len(train), dtype=bool)
        planted[position] = True
        y = y.copy()
        y[position] += self.outlier_size * factors * labels[train].std()
        mean, sd = features[train].mean(0), features[train].std(0)
        self.splits = {
            "train": _tensors((features[train] - mean) / sd, y),
            "test": _tensors((features[test] - mean) / sd, labels[test]),
        }
        self.planted = torch.from_numpy(planted)
        self.num_features = features.shape[1]
        self.label_center = float(np.median(y))
        self.label_scale = _NORMAL * float(np.median(np.abs(y - self.label_center)))
        rank_zero_info(
            f"diabetes: train {len(train)} ({len(position)} of them outliers), test {len(test)}"
        )

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the training sample, `steps` times."""
        sample = _Sample(*self.splits["train"], times=self.steps)
        return DataLoader(**_options(sample))

    def test_dataloader(self) -> DataLoader[Any]:
        """Return the test sample, once."""
        return DataLoader(**_options(_Sample(*self.splits["test"], times=1)))

    def predict_dataloader(self) -> DataLoader[Any]:
        """Return the test sample, once."""
        return self.test_dataloader()


class _Sample(Dataset[dict[str, Tensor]]):
    """A data set that repeats one batch."""

    def __init__(self, features: Tensor, labels: Tensor, times: int) -> None:
        self.batch = {"features": features.unsqueeze(0), "labels": labels.unsqueeze(0)}
        self.times = times

    def __len__(self) -> int:
        return self.times

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        yield from (self.batch for _ in range(self.times))

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.batch


def _tensors(features: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(features).float(), torch.from_numpy(labels).float()


def _options(sample: _Sample) -> dict[str, Any]:
    return {
        "dataset": sample,
        "batch_size": 1,
        # each process has the whole sample, since a list cannot be divided
        "sampler": ListSampler(sample, shuffle=False, num_replicas=1, rank=0),
        "collate_fn": _first,
        "generator": torch.Generator().manual_seed(0),
    }


def _first(batches: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return batches[0]
