"""Training images, each batch of them with others that they are compared with."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ltr.datasets.image_data import (
    CANDIDATE_CROPS,
    CANDIDATES,
    CROPS,
    ImageDataModule,
    _Batches,
    crop_and_flip,
)
from ltr.datasets.list_data import ListLoader, trained_batches


class EpisodeDataModule(ImageDataModule):
    """As `ImageDataModule`, and each training batch of queries has as many candidates with it.

    A training batch has `candidates` float32 (B, C, H, W) and `candidate_targets` int64 (B,)
    besides `images` and `targets`. Both are the training images in an order of their own, which
    (seed, epoch) alone decide: an epoch passes all images once as queries and once as candidates,
    and a run that is resumed in the middle of one sees what an unbroken one sees. An image may be
    among its own candidates, as in the published code.

    >>> data = EpisodeDataModule(batch_size=32)
    >>> data.setup("fit")
    >>> batch = next(iter(data.train_dataloader()))
    >>> batch["candidates"].shape, batch["candidate_targets"].shape
    (torch.Size([32, 1, 8, 8]), torch.Size([32]))
    """

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches of training images, shuffled, with candidates."""
        queries = _Batches(self.splits["train"], self.to_float)
        candidates = _Batches(self.splits["train"], self.to_float)
        sampler = self._sampler(queries, shuffle=True)
        if self.augment:
            queries.augment = self._augmentation(CROPS, lambda: sampler.epoch)
            candidates.augment = self._augmentation(CANDIDATE_CROPS, lambda: sampler.epoch)
        episodes = _Episodes(queries, candidates, self.seed, lambda: sampler.epoch)
        loader = ListLoader(**{**self._options(queries, sampler), "dataset": episodes})
        loader.batches_done = lambda: trained_batches(self.trainer)
        return loader

    def _augmentation(
        self, stream: int, epoch: Callable[[], int]
    ) -> Callable[[Tensor, Tensor], Tensor]:
        count = len(self.splits["train"])
        return lambda images, rows: crop_and_flip(images, rows, count, self.seed, epoch(), stream)


class _Episodes(Dataset[dict[str, Tensor]]):
    """Queries by their places, each with the candidate that takes its place."""

    def __init__(
        self, queries: _Batches, candidates: _Batches, seed: int, epoch: Callable[[], int]
    ) -> None:
        self.queries = queries
        self.candidates = candidates
        self.seed = seed
        self.epoch = epoch
        self._drawn: tuple[int, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.queries)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: values[0] for name, values in self.__getitems__([index]).items()}

    def __getitems__(self, indices: Sequence[int]) -> dict[str, Tensor]:
        rows = torch.tensor(indices)
        # a permutation that knows nothing of the queries' order: so is the order that comes out
        others = torch.where(rows < 0, rows, self._partners()[rows])
        batch = self.candidates.__getitems__(others.tolist())
        return {
            **self.queries.__getitems__(indices),
            "candidates": batch["images"],
            "candidate_targets": batch["targets"],
        }

    def _partners(self) -> Tensor:
        epoch = self.epoch()
        if self._drawn is None or self._drawn[0] != epoch:
            draws = np.random.default_rng([self.seed, epoch, CANDIDATES])
            self._drawn = epoch, torch.from_numpy(draws.permutation(len(self)))
        return self._drawn[1]
