"""Random scores, which the speed comparison sorts by gradient descent."""

from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader

from ltr.shapes import check_at_least, check_whole


class RandomScoresDataModule(LightningDataModule):
    """Lists of scores, uniform in [-1, 1], and the order that training should give them.

    An epoch is one batch, the same each time: `{"order": (lists, n) int64}`, where item
    `order[..., i]` belongs at position i. The order is the identity: scores should fall along the
    list. The scores themselves are trained: a module takes `start` as its parameters.

    Args:
        n: scores in a list.
        lists: the number of lists.
        seed: seed of the scores, >= 0. Default: see `SplitDataModule`.

    Attributes:
        start: (lists, n), the scores before the training.

    Raises:
        ValueError: an argument is out of range.

    >>> data = RandomScoresDataModule(n=3, lists=2)
    >>> data.start.shape
    torch.Size([2, 3])
    >>> next(iter(data.train_dataloader()))["order"]
    tensor([[0, 1, 2],
            [0, 1, 2]])
    """

    def __init__(self, n: int = 100, lists: int = 20, seed: int | None = None) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)  # names may be the model's too
        self.n = check_whole("n", n)
        self.lists = check_whole("lists", lists)
        self.seed = check_at_least("seed", 0 if seed is None else seed, 0)

    @property
    def start(self) -> Tensor:
        """The scores (lists, n) before the training, the same at each call."""
        generator = torch.Generator().manual_seed(self.seed)
        return torch.rand(self.lists, self.n, generator=generator) * 2 - 1

    def train_dataloader(self) -> DataLoader[Any]:
        """Return one batch."""
        return self._loader()

    def val_dataloader(self) -> DataLoader[Any]:
        """Return the same batch."""
        return self._loader()

    def test_dataloader(self) -> DataLoader[Any]:
        """Return the same batch."""
        return self._loader()

    def _loader(self) -> DataLoader[Any]:
        batch = {"order": torch.arange(self.n).expand(self.lists, self.n).contiguous()}
        batches: Any = [batch]
        return DataLoader(batches, batch_size=None)
