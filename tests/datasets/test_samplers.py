import itertools
import tracemalloc

import numpy as np
import pytest
from torch.utils.data import DistributedSampler

from ltr.datasets import (
    BucketSampler,
    ListDataset,
    ListSampler,
    open_lists,
    samplers,
    write_lists,
)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("lists", "replicas"), [(10, 1), (10, 3), (9, 3), (2, 4), (1, 1)])
def test_each_list_once_over_the_processes(lists: int, replicas: int, shuffle: bool):
    shards = []
    for rank in range(replicas):
        sampler = ListSampler(range(lists), shuffle=shuffle, num_replicas=replicas, rank=rank)
        sampler.set_epoch(3)
        shards.append(list(sampler))
        assert len(shards[-1]) == len(sampler)
    assert len({len(shard) for shard in shards}) == 1
    every = [index for shard in shards for index in shard]
    assert sorted(index for index in every if index >= 0) == list(range(lists))
    assert all(-1 not in shard[:-1] for shard in shards)


def test_order_is_by_seed_and_epoch_alone():
    def order(seed: int, epoch: int) -> list[int]:
        sampler = ListSampler(range(50), seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert order(1, 2) == order(1, 2)
    orders = {tuple(order(seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16  # seed 0 in epoch 1 is not seed 1 in epoch 0
    assert list(ListSampler(range(5), shuffle=False)) == [0, 1, 2, 3, 4]


def test_the_epoch_is_read_at_the_first_index():
    sampler = ListSampler(range(20))
    started = iter(sampler)
    sampler.set_epoch(4)
    other = ListSampler(range(20))
    other.set_epoch(4)
    assert list(started) == list(other)


def test_is_one_that_lightning_leaves_alone():
    assert isinstance(ListSampler(range(3)), DistributedSampler)


def test_no_list():
    assert list(ListSampler([])) == list(BucketSampler([], 2)) == []


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"seed.*-1"):
        ListSampler(range(3), seed=-1)
    with pytest.raises(ValueError, match=r"rank.*2"):
        ListSampler(range(3), num_replicas=2, rank=2)


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("shuffle", [True, False])
def test_blocks_of_many_lists(monkeypatch: pytest.MonkeyPatch, replicas: int, shuffle: bool):
    monkeypatch.setattr(samplers, "EXACT", 1000)
    monkeypatch.setattr(samplers, "_BLOCK", 16)
    monkeypatch.setattr(samplers, "_WINDOW", 4)
    several = [
        ListSampler(range(1003), shuffle=shuffle, num_replicas=replicas, rank=rank)
        for rank in range(replicas)
    ]
    orders = [list(sampler) for sampler in several]
    assert [len(order) for order in orders] == [len(several[0])] * replicas
    together = [index for turn in zip(*orders, strict=True) for index in turn]
    fillers = len(together) - 1003
    assert sorted(together) == [-1] * fillers + [*range(1003)]
    if not shuffle:
        assert together == [*range(1003)] + [-1] * fillers
        return
    # neighbors are apart, but those of a window come from a few blocks
    assert sum(abs(a - b) == 1 for a, b in itertools.pairwise(together)) < 60
    assert len({index // 16 for index in together[:64]}) <= 5
    for sampler, order in zip(several, orders, strict=True):
        assert list(sampler) == order
        sampler.set_epoch(1)
        assert list(sampler) != order


def test_the_memory_of_an_order_does_not_grow_with_the_lists():
    def peak(lists: int) -> int:
        sampler = ListSampler(range(lists))
        tracemalloc.start()
        parts = sampler.parts(np.random.default_rng(0))
        for part in itertools.islice(parts, 2):
            assert part.max() > 0.9 * lists
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    few, many, most = (peak(lists) for lists in (2 * 10**7, 10**8, 10**9))
    assert few < 32e6  # a few arrays of a million whole numbers
    assert many < few + 1e6
    assert most < few + 10e6  # a few whole numbers for each block of 4,096 lists


def test_up_to_the_limit_the_order_is_exact(monkeypatch: pytest.MonkeyPatch):
    exact = list(ListSampler(range(1003)))
    monkeypatch.setattr(samplers, "EXACT", 1003)
    monkeypatch.setattr(samplers, "_BLOCK", 16)
    assert list(ListSampler(range(1003))) == exact


def test_a_batch_of_fillers_alone(tmp_path):
    # an uneven last batch of several processes, from lists in memory and from the disk
    data = ListDataset.from_arrays([[1.0], [2.0]], labels=[0, 2], qid=["a", "b"], doc_id=["x", "y"])
    write_lists(data, tmp_path / "lists")
    for lists in (data, open_lists(tmp_path / "lists")):
        batch = lists.__getitems__([-1, -1])
        assert batch["lengths"].tolist() == [0, 0]
        assert batch["features"].shape == (0, 1)
        assert (batch["qid"], batch["doc_id"], len(batch["labels"])) == (["", ""], [], 0)
