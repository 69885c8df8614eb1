"""Training images, each batch of them with others that they are compared with."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ltr.papers.images.image_data import (
    CANDIDATE_CROPS,
    CANDIDATES,
    CROPS,
    ImageBatches,
    ImageDataModule,
)


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

    def dataset(self, split: str) -> Dataset[Any]:
        """The images of a split, in training with candidates."""
        images = cast(ImageBatches, super().dataset(split))
        return Episodes(images, self) if split == "train" else images


class Episodes(ImageBatches):
    """Queries by their places, each with the candidate that takes its place."""

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
        # a permutation that knows nothing of the queries' order: so is the order that comes out
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
