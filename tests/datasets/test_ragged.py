"""Ragged batches: cut from a data set by slices, the same lists as item by item."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, DataLoader, Subset

from ltr.datasets import ListDataset, collate_lists, collate_ragged, pad_batch

LENGTHS = [2, 1, 4, 3]


def data(**more) -> ListDataset:
    documents = sum(LENGTHS)
    rng = np.random.default_rng(0)
    features = rng.normal(size=(documents, 2)).astype(np.float32)
    features[3, 1] = np.nan
    return ListDataset(
        features,
        rng.integers(0, 3, documents).astype(np.float32),
        np.r_[0, np.cumsum(LENGTHS)],
        ["a", "b", "c", "d"],
        [f"doc{i}" for i in range(documents)],
        categories=rng.integers(0, 4, (documents, 2)),
        weight=rng.random(documents).astype(np.float32),
        position=np.arange(documents),
        protected=rng.integers(0, 2, documents).astype(np.float32),
        rows=np.arange(documents)[::-1].copy(),
        **more,
    )


def assert_same(got: dict, want: dict) -> None:
    assert got.keys() == want.keys()
    for key, value in want.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(got[key], value, rtol=0, atol=0, equal_nan=True)
            assert got[key].dtype == value.dtype
        else:
            assert got[key] == value


@given(st.lists(st.integers(-1, 3), min_size=1, max_size=6))
@settings(max_examples=30, deadline=None)
def test_a_batch_is_its_items(indices):
    lists = data()
    batch = lists.__getitems__(indices)
    assert_same(batch, collate_ragged([lists[i] for i in indices]))
    assert batch["lengths"].tolist() == [0 if i < 0 else LENGTHS[i] for i in indices]
    assert batch["features"].shape == (int(batch["lengths"].sum()), 2)
    assert len(batch["doc_id"]) == len(batch["features"])
    assert_same(pad_batch(batch), pad_item_by_item([lists[i] for i in indices]))


def pad_item_by_item(items: list[dict]) -> dict:
    """The plain definition of a padded batch; a filler is one masked position."""
    longest = max(len(item["mask"]) for item in items)
    batch = {}
    for key, value in items[0].items():
        if isinstance(value, torch.Tensor):
            batch[key] = value.new_zeros((len(items), longest, *value.shape[1:]))
            for row, item in zip(batch[key], items, strict=True):
                row[: len(item[key])] = item[key]
        else:
            batch[key] = [item[key] for item in items]
    return batch


def test_what_a_loader_gives():
    lists = data()
    ragged = list(DataLoader(lists, batch_size=3, collate_fn=collate_ragged))
    assert [batch["qid"] for batch in ragged] == [["a", "b", "c"], ["d"]]
    np.testing.assert_array_equal(
        np.concatenate([batch["features"] for batch in ragged]), lists.features
    )
    padded = DataLoader(lists, batch_size=3, collate_fn=collate_lists)
    for one, other in zip(padded, ragged, strict=True):
        assert_same(one, pad_batch(other))
    subset = DataLoader(Subset(lists, [3, 1]), batch_size=2, collate_fn=collate_ragged)
    [batch] = subset
    assert_same(batch, lists.__getitems__([3, 1]))
    joined = DataLoader(ConcatDataset([lists, lists]), batch_size=8, collate_fn=collate_ragged)
    [batch] = joined  # item by item, since torch has no batched fetch there
    assert batch["qid"] == lists.qids * 2


def test_a_batch_is_a_copy():
    lists = data()
    before = lists.features.copy()
    batch = lists.__getitems__([0, 1])
    batch["features"].zero_()
    np.testing.assert_array_equal(lists.features, before)


def test_read_only_arrays():
    lists = data()
    lists.features.flags.writeable = False
    lists.__getitems__([2])["features"].zero_()


@pytest.mark.parametrize("index", [4, -2])
def test_a_list_that_is_not_there(index):
    with pytest.raises(IndexError, match=rf"indices.*\[0, {index}\]"):
        data().__getitems__([0, index])


def test_no_list_is_visited_alone(monkeypatch):
    def visited(self, index):
        raise AssertionError("a list was cut alone")

    monkeypatch.setattr(ListDataset, "__getitem__", visited)
    assert len(list(DataLoader(data(), batch_size=2, collate_fn=collate_ragged))) == 2


def test_padded_batches_stay_as_they_are():
    batch = {"features": torch.zeros(1, 2, 3), "mask": torch.ones(1, 2, dtype=torch.bool)}
    assert_same(pad_batch(batch), batch)
