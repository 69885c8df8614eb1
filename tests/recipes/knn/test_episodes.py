"""Queries with candidates: what an epoch passes, what decides the draws, where the files are."""

import itertools
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler

from recipes.images import ImageDataModule
from recipes.knn.episodes import EpisodeDataModule


def epoch(data: EpisodeDataModule, number: int) -> list[dict[str, torch.Tensor]]:
    loader = data.train_dataloader()
    cast(DistributedSampler, loader.sampler).set_epoch(number)
    return list(loader)


def module(**options) -> EpisodeDataModule:
    data = EpisodeDataModule(batch_size=100, **options)
    data.setup("fit")
    return data


def keys(batches: list[dict[str, torch.Tensor]], name: str) -> list[bytes]:
    return [image.numpy().tobytes() for batch in batches for image in batch[name]]


def test_an_epoch_passes_all_images_once_as_queries_and_once_as_candidates():
    data = module(normalize=False)
    batches = epoch(data, 0)
    train = data.splits["train"]
    everything = sorted(image.numpy().tobytes() for image in data.to_float(train.pixels))
    assert len(batches) == 13
    for name in ("images", "candidates"):
        found = keys(batches, name)
        assert sorted(found) == everything
        assert found != everything
    queries, candidates = keys(batches, "images"), keys(batches, "candidates")
    same = sum(map(bytes.__eq__, queries, candidates))
    assert same < 10  # a candidate takes the place of any query: 1 is to be expected


def test_candidates_have_their_targets():
    data = module(normalize=False)
    train = data.splits["train"]
    classes = dict(
        zip((i.numpy().tobytes() for i in data.to_float(train.pixels)), train.labels, strict=True)
    )
    batches = epoch(data, 3)
    for images, targets in (("images", "targets"), ("candidates", "candidate_targets")):
        found = torch.cat([batch[targets] for batch in batches])
        assert [classes[key] for key in keys(batches, images)] == found.tolist()


@pytest.mark.parametrize("augment", [False, True])
def test_seed_and_epoch_decide(augment: bool):
    runs = {
        (seed, number): keys(epoch(module(seed=seed, augment=augment), number), "candidates")
        for seed, number in itertools.product((0, 1), (0, 1))
    }
    assert runs[0, 0] == keys(epoch(module(augment=augment), 0), "candidates")
    for one, other in itertools.combinations(runs.values(), 2):
        assert one != other


def test_no_order_of_one_epoch_comes_again_in_another():
    data = module(normalize=False)
    orders = []
    for number in range(3):
        loader = data.train_dataloader()
        cast(DistributedSampler, loader.sampler).set_epoch(number)
        partners = cast(Any, loader.dataset)._partners()
        orders += [tuple(loader.sampler), tuple(partners.tolist())]
    assert len(set(orders)) == len(orders) == 6


def test_queries_are_those_of_the_image_data_module():
    plain = ImageDataModule(batch_size=100, augment=True)
    plain.setup("fit")
    loader = plain.train_dataloader()
    assert keys(list(loader), "images") == keys(epoch(module(augment=True), 0), "images")


def test_an_image_is_cropped_apart_as_query_and_as_candidate():
    data = module(normalize=False, augment=True)
    train = data.splits["train"]
    shown = {}
    for name in ("images", "candidates"):
        totals = torch.cat([batch[name] for batch in epoch(data, 0)]).sum((1, 2, 3))
        shown[name] = np.sort(totals.numpy())
    whole = np.sort(data.to_float(train.pixels).sum((1, 2, 3)).numpy())
    assert not np.array_equal(shown["images"], shown["candidates"])
    for totals in shown.values():  # what is cut off is lost
        assert totals.sum() < whole.sum()


def test_fillers_are_fillers_on_both_sides():
    data = module()
    dataset = data.train_dataloader().dataset
    batch = dataset.__getitems__([5, -1])
    assert batch["targets"][1] == -1
    assert batch["candidate_targets"][1] == -1
    assert (batch["candidates"][1] == 0).all()
    assert batch["candidate_targets"][0] >= 0
