"""The loaders of the data modules: sharding, shuffling, resuming inside an epoch."""

from collections.abc import Callable, Iterator, Sized
from typing import Any, cast

import torch
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn
from torch.utils.data import DataLoader, Dataset

from ltr.datasets.samplers import BucketSampler, ListSampler
from ltr.shapes import check_at_least, check_whole


class ListLoader(DataLoader[dict[str, Any]]):
    """A loader of training lists that continues in the middle of an epoch after a resume.

    Lightning saves how many batches of the epoch were trained. It restores a loader's `state_dict`
    only if it resumes inside an epoch. The position is Lightning's own count, read when the first
    batch is requested. So it is right even if workers have fetched batches ahead, or if a hook
    wrote a checkpoint before the count increased.

    Attributes:
        batches_done: returns the number of batches of this epoch that are already trained.
    """

    batches_done: Callable[[], int] | None = None
    _state: dict[str, int] | None = None

    def state_dict(self) -> dict[str, int]:
        """Return the state that must be equal to repeat the rest of an epoch exactly."""
        sampler = cast(ListSampler, self.sampler)
        bucket = {"bucket": 1} if isinstance(sampler, BucketSampler) else {}
        return {
            **bucket,
            "lists": len(cast(Sized, self.dataset)),
            "batch_size": cast(int, self.batch_size),
            "seed": sampler.seed,
            "num_replicas": sampler.num_replicas,
        }

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """The next pass continues where the checkpoint was written."""
        self._state = state_dict

    def __iter__(self) -> Iterator[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        # a generator, so that nothing is fetched before Lightning has settled epoch and batch
        state, self._state = self._state, None
        if state is not None and self.batches_done is not None and self.batches_done() > 0:
            if state != self.state_dict():
                rank_zero_warn(
                    "Resuming in the middle of an epoch with other training data: the rest "
                    f"of the epoch may repeat or miss lists (now {self.state_dict()}, in "
                    f"the checkpoint {state})."
                )
            sampler = cast(ListSampler, self.sampler)
            sampler.skip = self.batches_done() * cast(int, self.batch_size)
        yield from super().__iter__()


class SplitDataModule(LightningDataModule):
    """Base class of data modules with a data set for each split: the loaders.

    A subclass writes `dataset`. The order of training lists (or images) depends only on (seed,
    epoch), also for the rest of an epoch after a resume.

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
        """Batches of the training split, shuffled; after a resume they continue inside an epoch."""
        loader = ListLoader(**self._loader_options("train"))
        loader.batches_done = lambda: trained_batches(self.trainer)
        return loader

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


def trained_batches(trainer: Trainer | None) -> int:
    """Return how many batches of its epoch a trainer has trained; 0 without a trainer.

    `ListLoader.batches_done` calls it, to continue inside an epoch.
    """
    return trainer.fit_loop.epoch_loop.batch_progress.current.ready if trainer else 0
