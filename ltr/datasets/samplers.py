"""The samplers: they decide which lists each process gets, and in which order."""

from collections.abc import Iterator, Sequence, Sized
from typing import Any, cast

import numpy as np
import torch.distributed as dist
from torch.utils.data import DistributedSampler

from ltr.arrays import as_numbers
from ltr.shapes import check_at_least, check_whole

EXACT = 10**7
"""Up to this many lists, the order is drawn as a whole; for more lists, it is drawn by blocks."""

# A block has this many neighboring lists, and this many indices are converted at a time.
_BLOCK = 1 << 12
_WINDOW = 1 << 8  # the lists of this many blocks are shuffled together

MOST_PADDING = 0.1
"""The largest fraction of padding in a `BucketSampler`'s padded lists, not counting fillers."""


class ListSampler(DistributedSampler[int]):
    """Samples the lists in random order, divided among the processes.

    The order depends only on the seed and the epoch.

    If the number of lists is not a multiple of the number of processes, some processes get the
    index -1, the filler of `ListDataset`, instead of a list that another process has too. So no
    metric counts a list twice. Since the class is a `DistributedSampler`, Lightning keeps the
    sampler and calls its `set_epoch`.

    Up to `EXACT` lists (10 million), every order is equally likely, and an order takes 16 bytes per
    list. For more lists, blocks of 4,096 neighboring lists are shuffled. Then, in the new order of
    the blocks, the lists of each 256 consecutive blocks are shuffled together. This takes some 25
    MB, and 2 MB more for each billion lists.

    Args:
        dataset: anything with a length.
        shuffle: whether to draw a new order in each epoch, instead of using the order of the data.
        seed: seed of the order, >= 0, the same in every process.
        num_replicas: the number of processes that share the lists. Default: the number in
            `torch.distributed`, or 1 without it.
        rank: the number of this process, from 0. Default: its rank in `torch.distributed`, or 0
            without it.

    Raises:
        ValueError: the data set has no length, the seed is negative, or the rank is not below the
            number of processes.

    >>> sampler = ListSampler(range(5), shuffle=False, num_replicas=2, rank=1)
    >>> list(sampler)
    [1, 3, -1]
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
        if not isinstance(dataset, Sized):
            raise ValueError(f"dataset must have a length, got {dataset!r}")
        ready = dist.is_available() and dist.is_initialized()
        if num_replicas is None:
            num_replicas = dist.get_world_size() if ready else 1
        if rank is None:
            rank = dist.get_rank() if ready else 0
        num_replicas = check_whole("num_replicas", num_replicas)
        rank = check_at_least("rank", rank, 0)
        if rank >= num_replicas:
            raise ValueError(f"rank must be in [0, num_replicas={num_replicas}), got {rank}")
        super().__init__(
            cast(Any, dataset), num_replicas=num_replicas, rank=rank, shuffle=shuffle, seed=seed
        )

    def __iter__(self) -> Iterator[int]:
        # This method is a generator, so it reads the epoch only when the first index is requested.
        draws = np.random.default_rng([self.seed, self.epoch]) if self.shuffle else None
        position = self.rank  # this is the index in `part` of this process's next list
        for part in self.parts(draws):
            own = part[position :: self.num_replicas]
            position += len(own) * self.num_replicas - len(part)
            for start in range(0, len(own), _BLOCK):
                yield from own[start : start + _BLOCK].tolist()

    def parts(self, draws: np.random.Generator | None) -> Iterator[np.ndarray]:
        """Yield chunks of the indices of all processes' lists, in order; -1 is a filler.

        The processes take the indices in turn: process 0 the first, process 1 the second, ...

        Args:
            draws: the random number generator that shuffles; None for the fixed order.
        """
        lists = len(cast(Sized, self.dataset))
        if lists <= EXACT:
            order = np.full(self.total_size, -1)
            order[:lists] = np.arange(lists) if draws is None else draws.permutation(lists)
            yield order
            return
        blocks = -(-lists // _BLOCK)
        starts = (np.arange(blocks) if draws is None else draws.permutation(blocks)) * _BLOCK
        for begin in range(0, blocks, _WINDOW):
            several = starts[begin : begin + _WINDOW, None] + np.arange(_BLOCK)
            part = several[several < lists]
            if draws is not None:
                draws.shuffle(part)
            yield part
        yield np.full(self.total_size - lists, -1)


class BucketSampler(ListSampler):
    """Samples batches of lists with similar lengths, so that little padding is needed.

    If every batch is padded to its longest list, at most the fraction `MOST_PADDING` of the padded
    lists is padding. The lists are divided into buckets of similar lengths, and a batch comes from
    one bucket. The lists within a bucket are shuffled, and so are the batches; this order depends
    only on the seed and the epoch. A batch may have fewer than `batch_size` lists; the index -1,
    the filler of `ListDataset`, stands for each list that the batch lacks. So the number of batches
    is the same in each epoch and each process. `MOST_PADDING` does not count the fillers.

    Args:
        lengths: (lists,), how many documents each list has.
        batch_size: lists in a batch, in each process.
        shuffle: whether to draw a new order in each epoch. If not, lists are in order of length.
        seed: see `ListSampler`.
        num_replicas: see `ListSampler`.
        rank: see `ListSampler`.

    >>> list(BucketSampler([9, 2, 10, 2], batch_size=3, shuffle=False))
    [1, 3, -1, 0, 2, -1]
    """

    def __init__(
        self,
        lengths: Sequence[int] | np.ndarray,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        lengths = as_numbers("lengths", lengths)
        if lengths.ndim != 1:
            raise ValueError(f"lengths must have shape (lists,), got {lengths.shape}")
        processes = {"num_replicas": num_replicas, "rank": rank}
        super().__init__(lengths, shuffle=shuffle, seed=seed, **processes)
        together = check_whole("batch_size", batch_size) * self.num_replicas
        self._by_length = np.argsort(lengths, kind="stable")
        self._buckets = _buckets(lengths[self._by_length])
        # Each pair has the start and the end of a batch, for all processes together, among the
        # sorted lists.
        self._batches = [
            (start + part[0], start + part[-1] + 1)
            for start, end in self._buckets
            for part in np.array_split(np.arange(end - start), -(-(end - start) // together))
        ]
        self._together = together
        self.total_size = len(self._batches) * together
        self.num_samples = self.total_size // self.num_replicas

    def parts(self, draws: np.random.Generator | None) -> Iterator[np.ndarray]:
        """Yield one chunk, the batches of all processes; -1 stands for each missing list."""
        lists = self._by_length.copy()
        if draws is not None:
            for start, end in self._buckets:
                draws.shuffle(lists[start:end])
        batches = np.full((len(self._batches), self._together), -1)
        for batch, (start, end) in zip(batches, self._batches, strict=True):
            batch[: end - start] = lists[start:end]
        yield (batches if draws is None else draws.permutation(batches)).reshape(-1)


def order_lists(lists: Any, batch_size: int, *, bucket: bool, **options: Any) -> ListSampler:
    """Return a `BucketSampler` if `bucket`, for up to `EXACT` lists; otherwise a `ListSampler`.

    Args:
        lists: a `ListDataset`.
        batch_size: lists in a batch, in each process.
        bucket: whether the lists of a batch should have similar lengths.
        options: the other arguments of the sampler.
    """
    if bucket and len(lists) <= EXACT:  # a `BucketSampler` sorts all lengths in memory
        return BucketSampler(lists.lengths, batch_size, **options)
    return ListSampler(lists, **options)


def _buckets(lengths: np.ndarray) -> list[tuple[int, int]]:
    """Return the (start, end) of each bucket in ascending lengths (lists,); `end` is exclusive.

    A bucket grows as long as at most the fraction `MOST_PADDING` of its padded lists is padding.
    """
    buckets: list[tuple[int, int]] = []
    sizes, starts = np.unique(lengths, return_index=True)
    ends = np.r_[starts[1:], len(lengths)][: len(starts)]
    documents = 0
    for size, start, end in zip(sizes.tolist(), starts.tolist(), ends.tolist(), strict=True):
        documents += size * (end - start)
        if buckets and documents >= (1 - MOST_PADDING) * size * (end - buckets[-1][0]):
            buckets[-1] = (buckets[-1][0], end)
        else:
            buckets.append((start, end))
            documents = size * (end - start)
    return buckets
