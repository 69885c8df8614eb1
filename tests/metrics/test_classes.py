"""The metric classes: running sums that equal one pass, alone and in two processes."""

import pickle
from importlib import import_module

import pytest
import torch
import torch.multiprocessing as mp
from torchmetrics import MetricCollection

import ltr.metrics.classes
from ltr.metrics import (
    ARP,
    DCG,
    ERR,
    MAP,
    MRR,
    NDCG,
    OPA,
    RBO,
    RBP,
    AlphaNDCG,
    BPref,
    ElementsInPlace,
    HitRate,
    KendallTau,
    PerfectOrder,
    Precision,
    RankingMetric,
    Recall,
    RPrecision,
    Spearman,
    TopKAccuracy,
)
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
    "DCG": (lambda: DCG(gain="linear"), lambda *a: F.dcg(*a, gain="linear")),
    "ERR": (lambda: ERR(max_label=4), lambda *a: F.err(*a, max_label=4)),
    "ARP": (ARP, F.arp),
    "RBP": (lambda: RBP(p=0.7), lambda *a: F.rbp(*a, p=0.7)),
    "Precision@4": (lambda: Precision(top_k=4), lambda *a: F.precision(*a, top_k=4)),
    "Recall@4": (lambda: Recall(top_k=4), lambda *a: F.recall(*a, top_k=4)),
    "HitRate@2": (lambda: HitRate(top_k=2), lambda *a: F.hit_rate(*a, top_k=2)),
    "RPrecision": (RPrecision, F.r_precision),
    "BPref": (BPref, F.bpref),
    "TopKAccuracy": (TopKAccuracy, F.top_k_accuracy),
    "OPA": (lambda: OPA(ties="expected"), lambda *a: F.opa(*a, ties="expected")),
    "Spearman": (Spearman, F.spearman),
    "weighted": (
        lambda: KendallTau(variant="weighted"),
        lambda *a: F.kendall_tau(*a, variant="weighted"),
    ),
    "RBO": (lambda: RBO(ties="expected"), lambda *a: F.rbo(*a, ties="expected")),
    "AlphaNDCG": (lambda: AlphaNDCG(alpha=0.3), lambda *a: F.alpha_ndcg(*a, alpha=0.3)),
    "KendallTau": (KendallTau, F.kendall_tau),
    "PerfectOrder": (PerfectOrder, F.perfect_order),
    "ElementsInPlace": (ElementsInPlace, F.elements_in_place),
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
    before = sum(getattr(metric, name).numel() for name in metric._defaults)
    metric.update(scores, labels, mask=mask)
    assert sum(getattr(metric, name).numel() for name in metric._defaults) == before < 100
    assert metric.higher_is_better == (make is not ARP)
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
    with pytest.raises(ValueError, match="variant must be 'a', 'b' or 'weighted', got 'c'"):
        KendallTau(variant="c")
    with pytest.raises(NotImplementedError, match="RankingMetric must define per_list"):
        RankingMetric().update(torch.zeros(1, 2), torch.zeros(1, 2))


def test_every_class_is_tested():
    known = {type(make()).__name__ for make, _ in METRICS.values()}
    assert known == set(ltr.metrics.classes.__all__) - {"RankingMetric"}
    assert set(ltr.metrics.classes.__all__) < set(ltr.metrics.__all__) <= set(dir(ltr.metrics))
    for name in ltr.metrics.__all__:
        assert getattr(ltr.metrics, name).__name__ == name
    with pytest.raises(AttributeError, match=r"module 'ltr\.metrics' has no attribute 'NDGC'"):
        _ = ltr.metrics.NDGC


@every
def test_merge_of_states_is_one_pass(make, function):
    scores, labels, mask = draw()
    first, second = make(), make()
    first.update(scores[:8], labels[:8], mask=mask[:8])
    second.update(scores[8:], labels[8:], mask=mask[8:])
    first.merge_state(second)
    torch.testing.assert_close(first.compute(), function(scores, labels, mask))


@every
def test_forward_gives_the_batch_and_counts_it(make, function):
    scores, labels, mask = draw()
    metric = make()
    batch = metric(scores[:8], labels[:8], mask=mask[:8])
    torch.testing.assert_close(batch, function(scores[:8], labels[:8], mask[:8]))
    metric(scores[8:], labels[8:], mask=mask[8:])
    torch.testing.assert_close(metric.compute(), function(scores, labels, mask))


def test_equal_first_states_do_not_make_one_metric_of_two():
    # torchmetrics takes metrics whose states are equal after the first update for the same
    perfect = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    later = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1.0, 0.0, 1.0]])
    collection = MetricCollection([NDCG(), MAP(), MRR()])
    collection.update(*perfect)
    assert {value.item() for value in collection.compute().values()} == {1}
    collection.update(*later)
    for name, function in (("NDCG", F.ndcg), ("MAP", F.average_precision), ("MRR", F.mrr)):
        expected = (1 + function(*later)) / 2
        torch.testing.assert_close(collection.compute()[name], expected)


def test_indexes_of_the_shape_of_scores_and_of_its_lists():
    scores, labels, mask = draw()
    items, rows = MRR(), MRR()
    items.update(scores, labels, torch.arange(20).unsqueeze(-1).expand(20, 10), mask)
    rows.update(scores, labels, torch.arange(20), mask)
    torch.testing.assert_close(items.compute(), F.mrr(scores, labels, mask))
    torch.testing.assert_close(rows.compute(), F.mrr(scores, labels, mask))
    with pytest.raises(ValueError, match=r"indexes must have the shape of preds \(20, 10\)"):
        rows.update(scores, labels, torch.arange(7))


def test_values_kept():
    scores, labels, mask = draw()
    metric = NDCG(keep=True, empty="skip")
    metric.update(scores[:8], labels[:8], mask=mask[:8])
    metric.update(scores[8:], labels[8:], mask=mask[8:])
    expected = F.ndcg(scores, labels, mask, empty="skip", reduction="none").double()
    torch.testing.assert_close(metric.per_list_values, expected, equal_nan=True)
    metric.reset()
    assert metric.per_list_values.shape == (0,)
    with pytest.raises(ValueError, match="keep must be True for per_list_values, got False"):
        _ = NDCG().per_list_values


def test_flat_values_kept_by_rising_id():
    metric = MRR(keep=True)
    labels, ids = torch.tensor([1, 0, 1, 1]), torch.tensor([9, 9, 9, 2])
    metric.update(torch.tensor([0.1, 0.2, -0.3, -4.0]), labels, ids)
    assert metric.per_list_values.tolist() == [1, 0.5]


def test_empty_lists_are_reported_whatever_they_count():
    scores = torch.tensor([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0]])
    labels = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    mask = torch.tensor([[True, True], [True, True], [False, False]])
    for empty, lists in ((0, 2), (1, 2), ("skip", 1)):
        metric = MRR(empty=empty)
        metric.update(scores, labels, mask=mask)
        assert metric.empty_lists == 1
        assert metric.lists == lists
        assert metric.left_out == 2 - lists


def test_an_id_of_another_update_is_another_list_unless_once():
    scores, ids = torch.tensor([2.0, 1.0, 3.0]), torch.tensor([4, 4, 8])
    two, one = MRR(), MRR(once=True)
    for labels in ([0, 1, 1], [0, 1, 1]):
        two.update(scores, torch.tensor(labels), ids)
        one.update(scores, torch.tensor(labels), ids)
    one.update(scores[:1], torch.tensor([0]), ids[:1] + 1)
    assert two.lists == 4
    assert two.compute() == 0.75
    assert one.per_list_values.tolist() == [0.5, 0.0, 1.0]
    assert one.compute() == 0.5
    with pytest.raises(ValueError, match="indexes must be given where once=True, got None"):
        one.update(scores, scores)


def test_item_weights():
    scores, labels, mask = draw()
    weights = torch.rand(20, 10, generator=torch.Generator().manual_seed(5))
    for make, function in (
        (NDCG, F.ndcg),
        (DCG, F.dcg),
        (ARP, F.arp),
        (OPA, F.opa),
        (Precision, F.precision),
        (Recall, F.recall),
    ):
        metric = make()
        metric.update(scores, labels, mask=mask, weights=weights)
        torch.testing.assert_close(metric.compute(), function(scores, labels, mask, weights))
    with pytest.raises(ValueError, match="weights must be None: MRR has no item weights"):
        MRR().update(scores, labels, mask=mask, weights=weights)


@pytest.mark.parametrize("option", ["keep", "once"])
def test_pickling_with_values(option):
    scores, labels, mask = draw()
    ids = torch.arange(20)
    metric = NDCG(top_k=3, empty="skip", **{option: True})
    metric.update(scores[:8], labels[:8], ids[:8], mask[:8])
    copy = pickle.loads(pickle.dumps(metric))
    copy.update(scores[8:], labels[8:], ids[8:], mask[8:])
    expected = F.ndcg(scores, labels, mask, top_k=3, empty="skip", reduction="none").double()
    if option == "once":
        expected = expected[mask.any(-1)]
    torch.testing.assert_close(copy.per_list_values, expected, equal_nan=True)
    torch.testing.assert_close(copy.compute(), expected.nanmean().float())
    assert len(metric.per_list_values) < len(expected)


@pytest.mark.parametrize("option", ["keep", "once"])
def test_forward_keeps_the_values_of_all_batches(option):
    scores, labels, _ = draw()
    metric = MRR(**{option: True})
    for part in torch.arange(20).split(9):
        batch = metric(scores[part], labels[part], indexes=part)
        torch.testing.assert_close(batch, F.mrr(scores[part], labels[part]))
    expected = F.mrr(scores, labels, reduction="none").double()
    torch.testing.assert_close(metric.per_list_values, expected)


def test_the_padding_of_a_shard_may_have_the_id_of_a_list():
    scores, labels = torch.tensor([[2.0, 1.0]] * 2), torch.tensor([[0.0, 1.0]] * 2)
    metric = MRR(once=True)
    metric.update(scores, labels, torch.tensor([3, 3]), torch.tensor([[False] * 2, [True] * 2]))
    assert metric.per_list_values.tolist() == [0.5]
    assert metric.compute() == 0.5


def test_an_error_in_a_later_chunk_leaves_nothing_behind(monkeypatch):
    monkeypatch.setattr(import_module("ltr.metrics.functional.flat"), "PLACES", 1)
    metric = MRR(empty="error")
    scores, ids = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 1, 1])
    with pytest.raises(ValueError, match="empty is 'error' and 1 lists have no value"):
        metric.update(scores, torch.tensor([1, 0, 0]), ids)
    assert metric.sums.tolist() == [0, 0, 0, 0]


S, Y, IDS = torch.tensor([2.0, 1.0, 3.0]), torch.tensor([0, 1, 1]), torch.tensor([4, 4, 8])


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((S.numpy(), Y, IDS), "preds must be a tensor, got ndarray"),
        ((S.tolist(), Y, IDS), "preds must be a tensor, got list"),
        ((S, Y.numpy(), IDS), "target must be a tensor, got ndarray"),
        ((S, Y, IDS.tolist()), "indexes must be a tensor, got list"),
        ((S, Y, IDS.float()), r"indexes must be whole numbers, got torch\.float32"),
        ((S.view(1, 3), Y.view(1, 3), IDS[:1] > 0), r"indexes must be whole .*, got torch\.bool"),
        ((S, Y, IDS, Y), r"mask must be bool \(True = a real item\), got torch\.int64"),
        ((S, Y[:2], IDS), r"an item for each of the 3 indexes, got shape \(2,\)"),
        ((Y, Y, IDS), r"scores must be floating point, got torch\.int64"),
        ((S, -Y, IDS), "labels must be finite and >= 0, got -1"),
        ((S.log() / 0 * 0, Y, IDS), "scores must not be NaN, got "),
    ],
)
def test_bad_batches(batch, message):
    for metric in (MRR(), RBO()):
        with pytest.raises(ValueError, match=message):
            metric.update(*batch)
        assert metric.sums.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float64])
def test_labels_of_any_dtype(dtype):
    metric = MAP()
    metric.update(S, Y.to(dtype), IDS.int())
    assert metric.compute() == 0.75


@every
def test_updates_without_lists(make, function):
    metric = make()
    metric.update(torch.zeros(0, 3), torch.zeros(0, 3))
    metric.update(torch.zeros(2, 0), torch.zeros(2, 0))
    metric.update(torch.zeros(0), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    assert metric.sums.tolist() == [0, 0, 0, 0]
    assert metric.compute().isnan()


def test_a_metric_is_drawn():
    from matplotlib.figure import Figure

    metric, axes = MRR(), Figure().subplots()
    metric.update(S, Y, IDS)
    metric.plot(ax=axes)
    metric.plot([metric.compute(), torch.tensor(0.25)], axes)
    assert axes.get_lines()[-1].get_ydata().tolist() == [0.75, 0.25]


def test_no_two_metrics_are_one_for_a_collection():
    metrics = [MRR() for _ in range(50)]
    assert len({tuple(metric.number.tolist()) for metric in metrics}) == 50


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
    kept, once, alone = MRR(keep=True), MRR(once=True), MRR(keep=True)
    kept.update(scores[mine], labels[mine], mask=mask[mine])
    # the second process repeats lists of the first, as Lightning's distributed sampler does
    shard = torch.arange(13) if rank == 0 else torch.arange(9, 20)
    once.update(scores[shard], labels[shard], shard, mask[shard])
    if rank == 0:
        alone.update(scores[mine], labels[mine], mask=mask[mine])
    # the same ids in both processes are two lists each
    twice = MRR()
    twice.update(scores[mine], labels[mine], torch.arange(len(scores[mine])), mask[mine])
    values["once"], values["alone"], values["twice"] = [
        metric.compute() for metric in (once, alone, twice)
    ]
    with kept.sync_context():
        values["kept"] = kept.per_list_values
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
        whole = F.mrr(scores, labels, mask)
        each = F.mrr(scores, labels, mask, reduction="none")
        torch.testing.assert_close(values["once"], whole, rtol=0, atol=1e-6)
        torch.testing.assert_close(values["twice"], whole, rtol=0, atol=1e-6)
        torch.testing.assert_close(values["alone"], each[:13].nanmean(), rtol=0, atol=1e-6)
        torch.testing.assert_close(values["kept"], each.double(), equal_nan=True)
