"""The metric classes: running sums that equal one pass, alone and in two processes."""

import pickle

import pytest
import torch
import torch.multiprocessing as mp
from torchmetrics import MetricCollection

from ltr.metrics import MAP, MRR, NDCG, KendallTau, PerfectOrder, RankingMetric
from ltr.metrics import functional as F

METRICS = {
    "NDCG@3": (lambda: NDCG(top_k=3), lambda *a: F.ndcg(*a, top_k=3)),
    "NDCG-letor4": (
        lambda: NDCG(top_k=9, discount="letor4", short=0),
        lambda *a: F.ndcg(*a, top_k=9, discount="letor4", short=0),
    ),
    "NDCG-skip": (lambda: NDCG(empty="skip"), lambda *a: F.ndcg(*a, empty="skip")),
    "MRR": (MRR, F.mrr),
    "MAP": (MAP, F.average_precision),
    "KendallTau": (KendallTau, F.kendall_tau),
    "PerfectOrder": (PerfectOrder, F.perfect_order),
}
every = pytest.mark.parametrize(("make", "function"), METRICS.values(), ids=METRICS)


def draw(lists: int = 20, n: int = 10) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(lists, n, generator=generator)
    labels = torch.randint(0, 5, (lists, n), generator=generator) - 2
    mask = torch.rand(lists, n, generator=generator) < 0.7
    mask[3] = False
    labels[4] = 0
    return scores, labels.clamp(min=0).float(), mask


@every
def test_updates_equal_one_pass(make, function):
    scores, labels, mask = draw()
    metric = make()
    for part in torch.arange(20).split(7):
        metric.update(scores[part], labels[part], mask=mask[part])
    torch.testing.assert_close(metric.compute(), function(scores, labels, mask))
    metric.reset()
    metric.update(scores[:2], labels[:2], mask=mask[:2])
    torch.testing.assert_close(metric.compute(), function(scores[:2], labels[:2], mask[:2]))


@every
def test_flat_values_with_indexes(make, function):
    scores, labels, mask = draw()
    ids = torch.arange(20).unsqueeze(-1).expand(20, 10)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    flat = [x.reshape(-1)[order] for x in (scores, labels, ids, mask)]
    metric = make()
    metric.update(flat[0], flat[1], indexes=flat[2], mask=flat[3])
    torch.testing.assert_close(metric.compute(), function(scores, labels, mask))


@every
def test_pickle_and_state(make, function):
    scores, labels, mask = draw()
    metric = make()
    metric.update(scores, labels, mask=mask)
    torch.testing.assert_close(pickle.loads(pickle.dumps(metric)).compute(), metric.compute())
    assert sum(getattr(metric, name).numel() for name in metric._defaults) == 3
    assert metric.higher_is_better
    assert not metric.is_differentiable


@every
def test_nothing_seen_is_nan(make, function):
    metric = make()
    metric.update(torch.zeros(2, 3), torch.ones(2, 3), mask=torch.zeros(2, 3, dtype=torch.bool))
    assert metric.compute().isnan()
    assert metric.left_out == 0


def test_lists_left_out_are_counted():
    metric = NDCG(empty="skip")
    metric.update(*draw()[:2], mask=draw()[2])
    assert metric.left_out >= 1
    assert metric.lists + metric.left_out == 19  # of 20 lists one is all masked


def test_a_collection_computes_all():
    scores, labels, mask = draw()
    collection = MetricCollection({"a": NDCG(top_k=3), "b": NDCG(top_k=5), "c": MRR()})
    collection.update(scores, labels, mask=mask)
    values = collection.compute()
    torch.testing.assert_close(values["a"], F.ndcg(scores, labels, mask, top_k=3))
    torch.testing.assert_close(values["b"], F.ndcg(scores, labels, mask, top_k=5))
    torch.testing.assert_close(values["c"], F.mrr(scores, labels, mask))


def test_bad_arguments_are_refused_at_construction():
    with pytest.raises(ValueError, match="top_k must be None or a whole number >= 1, got 0"):
        NDCG(top_k=0)
    with pytest.raises(ValueError, match="empty must be"):
        MAP(empty="ignore")
    with pytest.raises(ValueError, match="variant must be 'a' or 'b', got 'c'"):
        KendallTau(variant="c")
    with pytest.raises(NotImplementedError, match="RankingMetric must define per_list"):
        RankingMetric().update(torch.zeros(1, 2), torch.zeros(1, 2))


def two_processes(rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    scores, labels, mask = draw()
    mine = slice(0, 13) if rank == 0 else slice(13, 20)  # unequal shards
    values = {}
    for name, (make, _) in METRICS.items():
        metric = make()
        metric.update(scores[mine], labels[mine], mask=mask[mine])
        values[name] = metric.compute()
    torch.save(values, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_processes_equal_one(tmp_path, free_port):
    mp.spawn(two_processes, args=(free_port, str(tmp_path)), nprocs=2)
    scores, labels, mask = draw()
    for rank in range(2):
        values = torch.load(tmp_path / f"{rank}.pt")
        for name, (_, function) in METRICS.items():
            torch.testing.assert_close(
                values[name], function(scores, labels, mask), rtol=0, atol=1e-6
            )
