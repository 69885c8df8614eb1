"""Training images in batches of queries and candidates."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from recipes.images import (
    CANDIDATE_CROPS,
    CANDIDATES,
    CROPS,
    ImageBatches,
    ImageDataModule,
)


class EpisodeDataModule(ImageDataModule):
    """An `ImageDataModule` whose training batches hold as many candidates as queries.

    A training batch has `candidates` float32 (B, C, H, W) and `candidate_targets` int64 (B,)
    besides `images` and `targets`. Queries and candidates are the training images in two orders,
    which depend on (seed, epoch) alone. An epoch passes every image once as a query and once as a
    candidate. A resumed run sees the same batches as an uninterrupted run.
    An image may be among its own candidates, as in the published code.

    >>> data = EpisodeDataModule(batch_size=32)
    >>> data.setup("fit")
    >>> batch = next(iter(data.train_dataloader()))
    >>> batch["candidates"].shape, batch["candidate_targets"].shape
    (torch.Size([32, 1, 8, 8]), torch.Size([32]))
    """

    def dataset(self, split: str) -> Dataset[Any]:
        """Return the images of a split; those of training come with candidates."""
        images = cast(ImageBatches, super().dataset(split))
        return Episodes(images, self) if split == "train" else images


class Episodes(ImageBatches):
    """Queries by index, each with the candidate of the same index in another order."""

    def __init__(self, queries: ImageBatches, data: ImageDataModule) -> None:
        super().__init__(queries.images, queries.to_float)
        self.candidates = ImageBatches(queries.images, queries.to_float)
        self.seed = data.seed
        if data.augment:
            self.augment = data.augmentation(self, CROPS)
            self.candidates.augment = data.augmentation(self, CANDIDATE_CROPS)
        self._drawn: tuple[int, Tensor] | None = None

    def __getitems__(self, indices: Sequence[int]) -> dict[str, Tensor]:
        rows = torch.tensor(indices)
        # the permutation is independent of the queries' order, hence so is the candidates' order
        others = torch.where(rows < 0, rows, self._partners()[rows])
        batch = self.candidates.__getitems__(others.tolist())
        return {
            **super().__getitems__(indices),
            "candidates": batch["images"],
            "candidate_targets": batch["targets"],
        }

    def _partners(self) -> Tensor:
        epoch = self.epoch()
        if self._drawn is None or self._drawn[0] != epoch:
            draws = np.random.default_rng([self.seed, epoch, CANDIDATES])
            self._drawn = epoch, torch.from_numpy(draws.permutation(len(self)))
        return self._drawn[1]
