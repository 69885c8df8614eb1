"""The sampler, which decides which lists each process sees, and in which order."""

from collections.abc import Iterator, Sized
from typing import Any, cast

import numpy as np
import torch.distributed as dist
from torch.utils.data import DistributedSampler

from ltr._shapes import check_at_least


class ListSampler(DistributedSampler[int]):
    """Indices of lists: shuffled by (seed, epoch) alone, divided among the processes.

    If the lists do not divide evenly, some processes get the index -1, the filler of `ListDataset`,
    instead of a list that another process has too. So no metric counts a list twice. The class is a
    `DistributedSampler`, so Lightning keeps it and calls `set_epoch`.

    Args:
        dataset: anything with a length.
        shuffle: whether to use a new order in each epoch, instead of the data's own.
        seed: seed of the order, >= 0, the same in every process.
        num_replicas: how many processes share the lists. Default: as `torch.distributed` says, or
            1 without it.
        rank: the number of this process, from 0.

    Attributes:
        skip: how many of this process's indices the next pass leaves out at its start, to continue
            within an epoch. `len()` is still that of a whole epoch.

    Raises:
        ValueError: the seed is negative, or the rank is not that of a process.

    >>> sampler = ListSampler(range(5), shuffle=False, num_replicas=2, rank=1)
    >>> list(sampler)
    [1, 3, -1]
    >>> sampler.skip = 2
    >>> list(sampler), list(sampler)
    ([-1], [1, 3, -1])
    """

    def __init__(
        self,
        dataset: Sized,
        *,
        shuffle: bool = True,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        seed = check_at_least("seed", seed, 0)
        ready = dist.is_available() and dist.is_initialized()
        if num_replicas is None:
            num_replicas = dist.get_world_size() if ready else 1
        if rank is None:
            rank = dist.get_rank() if ready else 0
        if num_replicas < 1 or not 0 <= rank < num_replicas:
            raise ValueError(f"rank must be in [0, num_replicas={num_replicas}), got {rank}")
        super().__init__(
            cast(Any, dataset), num_replicas=num_replicas, rank=rank, shuffle=shuffle, seed=seed
        )
        self.skip = 0

    def __iter__(self) -> Iterator[int]:
        # a generator, so that epoch and `skip` are read when the first index is asked for
        skip, self.skip = self.skip, 0
        lists = len(cast(Sized, self.dataset))
        order = np.full(self.total_size, -1)
        order[:lists] = np.arange(lists)
        if self.shuffle:
            order[:lists] = np.random.default_rng([self.seed, self.epoch]).permutation(lists)
        yield from order[self.rank :: self.num_replicas][skip:].tolist()
