"""What the data modules share: loaders, sharding, the transform, resuming inside an epoch."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch.utils.data import DataLoader

from ltr._shapes import check_whole
from ltr.datasets.lists import ListDataset, collate_lists
from ltr.datasets.samplers import ListSampler
from ltr.datasets.transforms import FeatureTransform

_NEEDED = {
    "fit": ("train", "val"),
    "validate": ("val",),
    "test": ("test",),
    "predict": ("predict",),
}


class ListLoader(DataLoader[dict[str, Any]]):
    """A loader of training lists that goes on in the middle of an epoch after a resume.

    Lightning saves how many batches of the epoch were trained, and gives a loader its `state_dict`
    back only when it resumes inside an epoch. The position is Lightning's own count, read when the
    first batch is asked
    for: batches that workers had fetched ahead, or a checkpoint written by a hook before the count
        went up, do
    not shift it.

    Attributes:
        batches_done: gives the number of batches of this epoch that are trained already.
    """

    batches_done: Callable[[], int] | None = None
    _state: dict[str, int] | None = None

    def state_dict(self) -> dict[str, int]:
        """What must be the same for the rest of an epoch to be the same."""
        sampler = cast(ListSampler, self.sampler)
        return {
            "lists": len(cast(ListDataset, self.dataset)),
            "batch_size": cast(int, self.batch_size),
            "seed": sampler.seed,
            "num_replicas": sampler.num_replicas,
        }

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """The next pass goes on where the checkpoint was written."""
        self._state = state_dict

    def __iter__(self) -> Iterator[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        # a generator, so that nothing is fetched before Lightning has settled epoch and batch
        state, self._state = self._state, None
        if state is not None and self.batches_done is not None and self.batches_done() > 0:
            if state != self.state_dict():
                rank_zero_warn(
                    "Resuming inside an epoch with other training data: the rest of the epoch "
                    "may repeat or miss lists "
                    f"(now {self.state_dict()}, in the checkpoint {state})."
                )
            sampler = cast(ListSampler, self.sampler)
            sampler.skip = self.batches_done() * cast(int, self.batch_size)
        yield from super().__iter__()


class ListDataModule(LightningDataModule):
    """Base class of the data modules: a subclass writes `load_splits`.

    The loaders deliver raw features; the transform, fitted on the training lists in `setup`, is
    for the model to take over, so that it is saved with it. Training lists are shuffled by (seed,
    epoch) alone.

    Args:
        batch_size: lists in a batch, in each process.
        transform: fitted on the training lists in `setup`.
        num_workers: processes that make batches; 0 for none but this one.
        seed: of the shuffling, >= 0.

    Attributes:
        num_features: features of a document; after `setup`.
        feature_transform: the transform; fitted after `setup` where there is a training split.
        splits: the lists by split ("train", "val", "test", "predict"), those that there are; after
            `setup`.
    """

    num_features: int

    def __init__(
        self,
        *,
        batch_size: int,
        transform: FeatureTransform,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_whole("batch_size", batch_size)
        if num_workers < 0:
            raise ValueError(f"num_workers must be >= 0, got {num_workers}")
        if seed < 0:
            raise ValueError(f"seed must be >= 0, got {seed}")
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.seed = seed
        self.feature_transform = transform
        self.splits: dict[str, ListDataset] = {}

    def load_splits(self) -> dict[str, ListDataset]:
        """Load what there is of "train", "val", "test" and "predict"."""
        raise NotImplementedError

    def missing_split(self, split: str) -> ValueError:
        """The error for a split that there is none of."""
        return ValueError(f"{type(self).__name__} has no {split} lists")

    def setup(self, stage: str | None = None) -> None:
        """Load the splits and fit the transform, once.

        Raises:
            ValueError: if a split that the stage needs is missing, or the data are not as they
                should be.
        """
        if not self.splits:
            splits = self.load_splits()
            width = max((data.num_features for data in splits.values()), default=0)
            self.splits = {name: data.widen(width) for name, data in splits.items()}
            self.num_features = width
            if "train" in self.splits:
                self.feature_transform.fit(self.splits["train"].features)
            for name, data in self.splits.items():
                if name != "predict" or data is not self.splits.get("test"):
                    rank_zero_info(f"{name}: {data.summary()}")
        for split in _NEEDED.get(stage or "", ()):
            self._split(split)

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches of training lists, shuffled."""
        loader = ListLoader(**self._loader_options("train", shuffle=True))
        loader.batches_done = lambda: trained_batches(self.trainer)
        return loader

    def val_dataloader(self) -> DataLoader[Any]:
        """Batches of validation lists."""
        return DataLoader(**self._loader_options("val"))

    def test_dataloader(self) -> DataLoader[Any]:
        """Batches of test lists."""
        return DataLoader(**self._loader_options("test"))

    def predict_dataloader(self) -> DataLoader[Any]:
        """Batches of the lists to score: the test lists, unless the subclass says otherwise."""
        return DataLoader(**self._loader_options("predict"))

    def _split(self, split: str) -> ListDataset:
        if split not in self.splits:
            raise self.missing_split(split)
        return self.splits[split]

    def _loader_options(self, split: str, shuffle: bool = False) -> dict[str, Any]:
        data = self._split(split)
        replicas = (self.trainer.distributed_sampler_kwargs if self.trainer else None) or {}
        return {
            "dataset": data,
            "batch_size": self.batch_size,
            "sampler": ListSampler(data, shuffle=shuffle, seed=self.seed, **replicas),
            "collate_fn": collate_lists,
            "num_workers": self.num_workers,
            "persistent_workers": self.num_workers > 0,
            # its own: a loader draws a seed at the start of each pass; from the global generator,
            # that would give a resumed run other dropout masks than an unbroken one
            "generator": torch.Generator().manual_seed(self.seed),
        }


def trained_batches(trainer: Trainer | None) -> int:
    """How many batches of its epoch a trainer has trained: a `ListLoader`'s `batches_done`."""
    return trainer.fit_loop.epoch_loop.batch_progress.current.ready if trainer else 0
