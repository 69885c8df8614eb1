"""Metrics of one collection sort once, and never see what is no longer there."""

import gc

import pytest
import torch
from torchmetrics import MetricCollection

from ltr.metrics import MAP, MRR, NDCG, KendallTau, Precision, _sharing, base
from ltr.metrics import functional as F


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(500, generator=generator)
    labels = torch.randint(0, 3, (500,), generator=generator)
    return scores, labels, torch.randint(0, 40, (500,), generator=generator)


@pytest.fixture
def sorts(monkeypatch) -> list[int]:
    calls = []
    make = base._ranked_batch

    def counted(*args, **kwargs):
        calls.append(1)
        return make(*args, **kwargs)

    monkeypatch.setattr(base, "_ranked_batch", counted)
    return calls


@pytest.mark.parametrize("groups", [True, False])
def test_a_collection_sorts_once_an_update(sorts, groups):
    scores, labels, ids = batch()
    collection = MetricCollection(
        [NDCG(top_k=10), MAP(), MRR(), Precision(top_k=3), KendallTau()], compute_groups=groups
    )
    for update in range(1, 4):
        collection.update(scores, labels, indexes=ids)
        assert len(sorts) == update
    values = collection.compute()
    torch.testing.assert_close(values["NDCG"], F.flat(F.ndcg, scores, labels, ids, top_k=10))
    torch.testing.assert_close(values["MAP"], F.flat(F.average_precision, scores, labels, ids))


def write_through_torch(x: torch.Tensor) -> None:
    x.mul_(-1)


def write_through_data(x: torch.Tensor) -> None:
    x.data.mul_(-1)


def write_through_numpy(x: torch.Tensor) -> None:
    x.numpy()[:] *= -1


def swap_through_numpy(x: torch.Tensor) -> None:
    x.numpy()[:] = x.numpy()[::-1].copy()


@pytest.mark.parametrize(
    "write", [write_through_torch, write_through_data, write_through_numpy, swap_through_numpy]
)
def test_a_tensor_changed_in_place_is_sorted_anew(write):
    scores, labels, ids = batch()
    MRR().update(scores, labels, ids)
    write(scores)
    other = NDCG()
    other.update(scores, labels, ids)
    torch.testing.assert_close(other.compute(), F.flat(F.ndcg, scores, labels, ids))


@pytest.mark.parametrize("start", [0, 1, 3])
def test_any_item_of_a_large_batch_is_looked_at(start):
    x = torch.zeros(40_003, dtype=torch.uint8)[start:]
    before = _sharing._bit_sums(x)
    for place in (0, 1, 8167, 8168, 20_000, len(x) - 1):
        x[place] = 1
        assert _sharing._bit_sums(x) != before
        x[place] = 0
    assert _sharing._bit_sums(x) == before


def test_inference_tensors(sorts):
    with torch.inference_mode():
        scores, labels, ids = batch()
        collection = MetricCollection([NDCG(), MAP(), MRR()])
        collection.update(scores, labels, indexes=ids)
        assert len(sorts) == 1
        scores.mul_(-1)
        other = KendallTau()
        other.update(scores, labels, ids)
        torch.testing.assert_close(other.compute(), F.flat(F.kendall_tau, scores, labels, ids))


def test_labels_and_masks_are_looked_at_too(sorts):
    scores, labels, ids = batch()
    mask = torch.ones_like(labels, dtype=torch.bool)
    metrics = [MRR() for _ in range(4)]
    metrics[0].update(scores, labels, ids, mask)
    mask.numpy()[3] = False
    metrics[1].update(scores, labels, ids, mask)
    labels.numpy()[3] += 1
    metrics[2].update(scores, labels, ids, mask)
    metrics[3].update(scores, labels, ids.clone(), mask)
    assert len(sorts) == 4


def test_nothing_is_kept_once_the_tensors_are_gone():
    scores, labels, ids = batch()
    MRR().update(scores, labels, ids)
    assert _sharing._last.made is not None
    del labels
    gc.collect()
    assert _sharing._last.made is None


def test_a_metric_of_ones_own_gets_the_shared_order():
    class Mine(base.RankingMetric):
        def per_list(self, scores, labels, mask):
            assert (scores[..., 1:] <= scores[..., :-1]).all() or mask is not None
            return F.mrr(scores, labels, mask, reduction="none")

    scores, labels, ids = batch()
    collection = MetricCollection({"mine": Mine(), "mrr": MRR()})
    collection.update(scores, labels, indexes=ids)
    assert collection.compute()["mine"] == collection.compute()["mrr"]


def test_bad_values_raise_in_every_metric_and_leave_nothing():
    scores, labels, ids = batch()
    scores[3] = torch.nan
    for metric in (MRR(), MAP()):
        with pytest.raises(ValueError, match="scores must not be NaN, got 1 NaN"):
            metric.update(scores, labels, ids)
        assert metric.lists == 0
