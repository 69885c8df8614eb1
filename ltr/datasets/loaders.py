"""The loaders of the data modules: the order of the lists, and the share of each process."""

from collections.abc import Iterator, Sized
from typing import Any, cast

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Dataset

from ltr.datasets.samplers import ListSampler
from ltr.shapes import check_at_least, check_whole


class TrainLoader(DataLoader[Any]):
    """A loader whose workers begin with the first batch that is asked for.

    Lightning asks for an iterator before it sets the epoch of the sampler. Workers that began then
    would have the order of another epoch after a resume.
    """

    def __iter__(self) -> Iterator[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        yield from super().__iter__()


class SplitDataModule(LightningDataModule):
    """Base class of data modules with a data set for each split: the loaders.

    A subclass writes `dataset`. The order of training lists (or images) depends only on (seed,
    epoch). So a run resumes at the end of an epoch; within an epoch, lists would repeat.

    Args:
        batch_size: lists in a batch, in each process.
        num_workers: processes that make batches; 0: the main process makes them.
        seed: seed of the shuffling, >= 0. Default: 0; the program `ltr` sets it to
            `seed_everything`, and after training to the seed in the checkpoint.

    Attributes:
        share: None, or (part, parts): the loaders give only some of the lists, as if this were
            process `part` (from 0) of `parts` processes. Other processes take the other lists.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(self, batch_size: int, num_workers: int = 0, seed: int | None = None) -> None:
        super().__init__()
        self.batch_size = check_whole("batch_size", batch_size)
        self.num_workers = check_at_least("num_workers", num_workers, 0)
        self.seed = check_at_least("seed", 0 if seed is None else seed, 0)
        self.share: tuple[int, int] | None = None

    def dataset(self, split: str) -> Dataset[Any]:
        """The data set of "train", "val", "test" or "predict"."""
        raise NotImplementedError(f"{type(self).__name__} must define dataset")

    def sampler(self, split: str, dataset: Dataset[Any]) -> ListSampler:
        """Return the order of a split's lists for this process."""
        return ListSampler(
            cast(Sized, dataset), shuffle=split == "train", seed=self.seed, **self.replicas()
        )

    def replicas(self) -> dict[str, Any]:
        """The number of processes and this one's rank, as arguments of a sampler; see `share`."""
        if self.share is not None:
            return {"rank": self.share[0], "num_replicas": self.share[1]}
        return (self.trainer.distributed_sampler_kwargs if self.trainer else None) or {}

    def collate(self, batch: Any) -> dict[str, Any]:
        """Return a batch that the data set made (`__getitems__`), or collate its items."""
        return batch

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches of the training split, shuffled."""
        return TrainLoader(**self._loader_options("train"))

    def val_dataloader(self) -> DataLoader[Any]:
        """Batches of the validation split."""
        return DataLoader(**self._loader_options("val"))

    def test_dataloader(self) -> DataLoader[Any]:
        """Batches of the test split."""
        return DataLoader(**self._loader_options("test"))

    def predict_dataloader(self) -> DataLoader[Any]:
        """Batches to score: the test split, unless the module defines another one."""
        return DataLoader(**self._loader_options("predict"))

    def _loader_options(self, split: str) -> dict[str, Any]:
        dataset = self.dataset(split)
        return {
            "dataset": dataset,
            "batch_size": self.batch_size,
            "sampler": self.sampler(split, dataset),
            "collate_fn": self.collate,
            "num_workers": self.num_workers,
            "persistent_workers": self.num_workers > 0,
            # its own: a loader draws a seed at the start of each pass; from the global generator,
            # that would give a resumed run other dropout masks or noise than an unbroken one
            "generator": torch.Generator().manual_seed(self.seed),
        }
