"""Base classes of data modules: they make the loaders and, for lists, fit the transform."""

from collections.abc import Iterator, Sized
from typing import Any, cast

import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import rank_zero_info
from torch.utils.data import DataLoader, Dataset

from ltr.datasets.lists import ListDataset, constant_label
from ltr.datasets.samplers import ListSampler, order_lists
from ltr.datasets.transforms import FeatureTransform, fit_documents
from ltr.shapes import check_at_least, check_whole


class TrainLoader(DataLoader[Any]):
    """A loader that starts its workers only when the first batch is requested.

    Lightning requests an iterator before it sets the epoch of the sampler. After a resume, workers
    that started at that point would have the order of another epoch.
    """

    def __iter__(self) -> Iterator[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        yield from super().__iter__()


class SplitDataModule(LightningDataModule):
    """Base class of data modules: makes a loader from the data set of each split.

    A subclass defines `dataset`. The order of training lists (or images) depends only on the seed
    and the epoch. So a run can resume at the end of an epoch. If a run resumed within an epoch, it
    would see some lists again. A checkpoint keeps the seed.

    Args:
        batch_size: lists in a batch, in each process.
        num_workers: processes that make batches; with 0, the main process makes them.
        seed: seed of the shuffling, >= 0. Default: 0. The program `ltr` instead takes the seed in
            the checkpoint, or `seed_everything` if there is no checkpoint.

    Raises:
        ValueError: an argument is out of range.

    >>> class Pixels(SplitDataModule):
    ...     def dataset(self, split):
    ...         return [{"image": torch.full((2, 2), level)} for level in (0.0, 0.5, 1.0)]
    ...     def collate(self, batch):
    ...         return torch.utils.data.default_collate(batch)
    >>> [len(batch["image"]) for batch in Pixels(batch_size=2).val_dataloader()]
    [2, 1]
    """

    def __init__(self, batch_size: int, num_workers: int = 0, seed: int | None = None) -> None:
        super().__init__()
        self.batch_size = check_whole("batch_size", batch_size)
        self.num_workers = check_at_least("num_workers", num_workers, 0)
        self.seed = check_at_least("seed", 0 if seed is None else seed, 0)
        self.save_hyperparameters("seed", logger=False)  # the checkpoint keeps the seed

    def dataset(self, split: str) -> Dataset[Any]:
        """Return the data set of a split: "train", "val", "test" or "predict"."""
        raise NotImplementedError(f"{type(self).__name__} must define dataset")

    def sampler(self, split: str, dataset: Dataset[Any]) -> ListSampler:
        """Return the sampler that orders a split's lists for this process."""
        return ListSampler(
            cast(Sized, dataset), shuffle=split == "train", seed=self.seed, **self.replicas()
        )

    def replicas(self) -> dict[str, Any]:
        """Return the number of processes and the rank of this process, as a sampler's arguments."""
        return (self.trainer.distributed_sampler_kwargs if self.trainer else None) or {}

    def collate(self, batch: Any) -> dict[str, Any]:
        """Return the batch that the data set made; a subclass may collate the items itself."""
        return batch

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the loader of the training split, whose lists are shuffled."""
        return TrainLoader(**self._loader_options("train"))

    def val_dataloader(self) -> DataLoader[Any]:
        """Return the loader of the validation split."""
        return DataLoader(**self._loader_options("val"))

    def test_dataloader(self) -> DataLoader[Any]:
        """Return the loader of the test split."""
        return DataLoader(**self._loader_options("test"))

    def predict_dataloader(self) -> DataLoader[Any]:
        """Return the loader of the lists to score, the split "predict"."""
        return DataLoader(**self._loader_options("predict"))

    def _batch_of(self, dataset: Any) -> int:
        """Return `batch_size`, or the size of the data set if that is smaller.

        A sampler fills a batch up, and torch takes no number beyond int64.
        """
        return min(self.batch_size, max(1, len(dataset)))

    def _loader_options(self, split: str) -> dict[str, Any]:
        dataset = self.dataset(split)
        return {
            "dataset": dataset,
            "batch_size": self._batch_of(dataset),
            "sampler": self.sampler(split, dataset),
            "collate_fn": self.collate,
            "num_workers": self.num_workers,
            "persistent_workers": self.num_workers > 0,
            # A loader draws a seed at the start of each pass. If it drew from the global generator,
            # the dropout masks and the noise of a resumed run would differ from those of an
            # uninterrupted run.
            "generator": torch.Generator().manual_seed(self.seed),
        }


VALIDATION = 0.2
"""The default fraction of the queries that is held out for validation."""


class ListDataModule(SplitDataModule):
    """Base class of the data modules for lists; a subclass defines `load_splits`.

    The loaders give ragged batches of raw features: see `collate_ragged`, and `pad_batch`, which
    pads a batch. `setup` fits the transform on the training lists. The model then uses and saves
    the transform. The order of training lists depends only on the seed and the epoch.

    Args:
        batch_size: lists in a batch, in each process.
        transform: the transform of the features, which `setup` fits on the training lists.
        num_workers: processes that make batches; with 0, the main process makes them.
        seed: seed of the shuffling, >= 0. Default: see `SplitDataModule`.

    Attributes:
        bucket: whether the lists of a batch have similar lengths (see `BucketSampler`). Default:
            None, which means True if the model's scorer looks at whole lists, and False otherwise.
            (A scorer that looks at whole lists gets padded lists.) `bucket` has no effect in
            prediction, nor for a split of more than 10 million lists.
        num_features: the number of features; `setup` sets it.
        feature_transform: the transform; `setup` fits it if there is a training split.
        splits: the lists of each split that exists ("train", "val", "test", "predict"); `setup`
            sets them.
    """

    num_features: int

    def __init__(
        self,
        *,
        batch_size: int,
        transform: FeatureTransform,
        num_workers: int = 0,
        seed: int | None = None,
    ) -> None:
        super().__init__(batch_size, num_workers, seed)
        if not isinstance(transform, FeatureTransform):
            raise ValueError(f"transform must be a FeatureTransform, got {transform!r}")
        self.feature_transform = transform
        self.splits: dict[str, ListDataset] = {}
        self.bucket: bool | None = None

    def load_splits(self) -> dict[str, ListDataset]:
        """Return the lists of each split that exists: "train", "val", "test" and "predict"."""
        raise NotImplementedError

    def missing_split(self, split: str) -> ValueError:
        """Return the error for a missing split."""
        return ValueError(f"{type(self).__name__} has no {split} lists")

    def setup(self, stage: str | None = None) -> None:
        """Load the splits and fit the transform, once.

        Raises:
            ValueError: the data are invalid. If `stage` is "fit", also: there are no training
                lists, or all their labels are equal. Any other missing split raises an error only
                when its loader is requested.
        """
        if not self.splits:
            splits = self.load_splits()
            width = max((data.num_features for data in splits.values()), default=0)
            self.splits = {name: data.widen(width) for name, data in splits.items()}
            self.num_features = width
            if "train" in self.splits:
                self.fit_transform(self.splits["train"])
            for name, data in self.splits.items():
                if name != "predict" or data is not self.splits.get("test"):
                    rank_zero_info(f"{name}: {data.summary()}")
        if stage == "fit":
            self.refuse_equal_labels(self.dataset("train"))

    def fit_transform(self, train: ListDataset) -> None:
        """Fit the transform on the training lists.

        Raises:
            ValueError: the lists have categories or missing features that the transform does not
                accept.
        """
        fit_documents(self.feature_transform, train.to_fit())

    def refuse_equal_labels(self, train: ListDataset, what: str = "labels") -> None:
        """Raise an error if all training labels are equal.

        Args:
            train: the training lists; if they have no labels, nothing happens.
            what: what the error calls the labels.
        """
        if not train.has_labels:
            return
        constant = None
        for labels in (train.to_fit().labels, train.labels):  # a sample's labels usually suffice
            constant = constant_label(labels)
            if constant is None or not len(labels):
                return
        raise ValueError(
            f"{what} must not all be equal, got {constant} in all {len(train.labels)} documents of "
            "the training lists: there is nothing to learn"
        )

    def dataset(self, split: str) -> ListDataset:
        """Return the lists of a split.

        Raises:
            ValueError: the split has no lists.
        """
        if split not in self.splits:
            raise self.missing_split(split)
        return self.splits[split]

    def sampler(self, split: str, dataset: Dataset[Any]) -> ListSampler:
        """Return the sampler that orders a split's lists for this process."""
        return order_lists(
            dataset,
            self._batch_of(dataset),
            bucket=split != "predict" and self._in_buckets(),
            shuffle=split == "train",
            seed=self.seed,
            **self.replicas(),
        )

    def _in_buckets(self) -> bool:
        if self.bucket is not None:
            return self.bucket
        scorer = getattr(self.trainer and self.trainer.lightning_module, "scorer", None)
        return scorer is not None and not getattr(scorer, "per_document", False)

    def transfer_batch_to_device(
        self, batch: dict[str, Any], device: torch.device, dataloader_idx: int
    ) -> dict[str, Any]:
        """Move a batch's tensors to a device; Lightning's hook would also visit document ids."""
        tensors = {key: value for key, value in batch.items() if isinstance(value, torch.Tensor)}
        return {**batch, **super().transfer_batch_to_device(tensors, device, dataloader_idx)}
