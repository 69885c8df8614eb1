"""The metric classes: running sums that equal one pass, alone and in two processes."""

import copy
import pickle
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, signature
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from jsonargparse import ArgumentError, ArgumentParser
from metric_table import CLASSES, FUNCTIONS
from pairwise import together

import ltr.metrics
from ltr.metrics import (
    ARP,
    DCG,
    ERR,
    F1,
    GMAP,
    MAP,
    MRR,
    NDCG,
    OPA,
    RBO,
    RBP,
    AlphaNDCG,
    ExactMatch,
    FBeta,
    HitRate,
    InterpolatedPrecision,
    Judged,
    KendallTau,
    Precision,
    RankingMetric,
    RankingMetrics,
    RBPResidual,
    Recall,
    SetFBeta,
    SetPrecision,
)
from ltr.metrics import functional as F
from ltr.metrics.ranked import list_values

# each class as it is, and some with other arguments
CASES = {cls.__name__: (cls, {}) for cls in CLASSES} | {
    "NDCG@3": (NDCG, {"top_k": 3}),
    "NDCG-letor4": (NDCG, {"top_k": 9, "discount": "letor4", "short_list_value": 0}),
    "NDCG-skip": (NDCG, {"empty": "skip"}),
    "MAP-relevant": (MAP, {"top_k": 3, "divisor": "relevant"}),
    "F1@3": (F1, {"top_k": 3}),
    "RBP-graded": (RBP, {"gain": "exp2", "max_label": 4}),
    "DCG-linear": (DCG, {"gain": "linear"}),
    "ERR-4": (ERR, {"max_label": 4}),
    "RBP-p": (RBP, {"p": 0.7}),
    "Precision@4": (Precision, {"top_k": 4}),
    "Recall@4": (Recall, {"top_k": 4}),
    "HitRate@2": (HitRate, {"top_k": 2}),
    "OPA-expected": (OPA, {"ties": "expected"}),
    "weighted": (KendallTau, {"variant": "weighted"}),
    "AlphaNDCG-alpha": (AlphaNDCG, {"alpha": 0.3}),
    "MRR-2": (MRR, {"relevant_from": 2}),
    "MAP-2": (MAP, {"relevant_from": 2, "top_k": 3}),
    "FBeta": (FBeta, {"top_k": 3, "beta": 2}),
    "Interpolated": (InterpolatedPrecision, {"recall": 0.3, "ties": "worst"}),
    "Judged@3": (Judged, {"top_k": 3, "threshold": 0.0}),
    "SetPrecision-0": (SetPrecision, {"threshold": 0.0, "relevant_from": 2}),
    "SetFBeta-2": (SetFBeta, {"threshold": 0.0, "beta": 2}),
    "RBPResidual@3": (RBPResidual, {"top_k": 3, "p": 0.7}),
    "GMAP@3": (GMAP, {"top_k": 3}),
}
METRICS = {
    name: (partial(cls, **options), partial(FUNCTIONS[cls], **options))
    for name, (cls, options) in CASES.items()
}
every = together("make, function", METRICS)
every_class = pytest.mark.parametrize("cls", CLASSES)


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
    torch.testing.assert_close(metric.compute(), function(scores, labels, mask=mask))
    metric.reset()
    metric.update(scores[:2], labels[:2], mask=mask[:2])
    torch.testing.assert_close(metric.compute(), function(scores[:2], labels[:2], mask=mask[:2]))


@every
def test_flat_values_with_indexes(make, function):
    scores, labels, mask = draw()
    ids = torch.arange(20).unsqueeze(-1).expand(20, 10)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    flat = [x.reshape(-1)[order] for x in (scores, labels, ids, mask)]
    metric = make()
    if isinstance(metric, RBO):
        return  # its labels are a ranking too, whose ties are in list order
    metric.update(flat[0], flat[1], indexes=flat[2], mask=flat[3])
    torch.testing.assert_close(metric.compute(), function(scores, labels, mask=mask))


@every
def test_pickle_and_state(make, function):
    scores, labels, mask = draw()
    metric = make()
    metric.update(scores, labels, mask=mask)
    torch.testing.assert_close(pickle.loads(pickle.dumps(metric)).compute(), metric.compute())
    before = sum(getattr(metric, name).numel() for name in metric._defaults)
    metric.update(scores, labels, mask=mask)
    assert sum(getattr(metric, name).numel() for name in metric._defaults) == before < 100
    assert metric.higher_is_better == (not isinstance(metric, (ARP, RBPResidual)))
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


def test_bad_arguments_are_refused_at_construction():
    with pytest.raises(ValueError, match=r"top_k.*0"):
        NDCG(top_k=0)
    with pytest.raises(ValueError, match="empty must"):
        MAP(empty="ignore")
    with pytest.raises(ValueError, match=r"variant.*'c'"):
        KendallTau(variant="c")
    with pytest.raises(TypeError, match="topk"):
        NDCG(topk=10)
    with pytest.raises(TypeError, match="positional"):
        ERR(10, 4, "skip")  # what all metrics share is given by name
    with pytest.raises(TypeError, match=r"RankingMetric.*per_list"):
        RankingMetric()


def test_every_class_is_listed_and_so_is_its_function():
    ours, todo = set(), [RankingMetric]
    while todo:
        todo += (more := todo.pop().__subclasses__())
        # another class is one of a test
        ours |= {x for x in more if x.__module__.startswith("ltr.")}
    assert ours == set(CLASSES)
    assert sorted(function.__name__ for function in FUNCTIONS.values()) == sorted(F.__all__)


def test_names_are_those_of_the_package():
    assert set(ltr.metrics.__all__) <= set(dir(ltr.metrics))
    for name in ltr.metrics.__all__:
        assert getattr(ltr.metrics, name).__name__ == name
    # a module of this name would replace the function when it is imported
    assert find_spec("ltr.metrics.compare") is None
    message = r"module 'ltr\.metrics' has no attribute 'NDGC': did you mean 'NDCG'\?"
    with pytest.raises(AttributeError, match=message):
        _ = ltr.metrics.NDGC
    with pytest.raises(AttributeError, match=r"did you mean 'KendallTau'\?"):
        _ = ltr.metrics.kendaltau


def own_arguments(function) -> list[Parameter]:
    kinds = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return [p for p in signature(function).parameters.values() if p.kind in kinds]


@every_class
def test_class_and_function_have_the_same_arguments(cls):
    expected = [
        p for p in own_arguments(FUNCTIONS[cls]) if p.name not in ("scores", "labels", "judged")
    ]
    options = {p.name for p in own_arguments(RankingMetric)}
    found = [p for p in own_arguments(cls) if p.name not in options]
    # the order of the class is that of the function, but what all metrics share comes last
    assert {p.name: (p.default, p.annotation) for p in found} == {
        p.name: (p.default, p.annotation) for p in expected
    }
    positional = [p.name for p in found if p.kind is not Parameter.KEYWORD_ONLY]
    assert positional == [p.name for p in expected if p.name in positional]
    assert not {*positional} & {"empty", "ties", "relevant_from", "threshold"}
    assert cls().arguments == {p.name: p.default for p in found}
    lists = torch.zeros(1, 2), torch.ones(1, 2)
    if not cls.takes_weights:
        with pytest.raises(ValueError, match=f"weights must be None: {cls.__name__} has no"):
            FUNCTIONS[cls](*lists, weights=torch.ones(1, 2))
    for name in ("mask", "lengths", "qid"):  # only by name
        FUNCTIONS[cls](*lists, **{name: None})
    with pytest.raises(TypeError, match="positional"):
        FUNCTIONS[cls](*lists, None)
    for parameter in found:
        assert getattr(cls(), parameter.name) == parameter.default
    for made in (cls, partial(FUNCTIONS[cls], *lists)):
        with pytest.raises(TypeError, match="topk"):
            made(topk=3)


def test_options_are_those_of_the_base_class():
    options = {p.name: p.default for p in own_arguments(RankingMetric)}
    metric = MRR(**options)
    assert {name: getattr(metric, name) for name in options} == options


def test_arguments_are_kept_under_their_names():
    def square(labels):
        return labels**2

    metric = NDCG(5, gain=square, empty="skip", keep_values=True, process_group=3)
    assert (metric.top_k, metric.gain, metric.discount) == (5, square, "log2")
    assert (metric.empty, metric.ties, metric.short_list_value) == ("skip", "stable", None)
    assert metric.keep_values
    assert metric.process_group == 3
    assert not metric.deduplicate


def test_yaml_gives_the_arguments():
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--metrics", type=dict[str, RankingMetric])
    config = {
        "a": {"class_path": "ltr.metrics.NDCG", "init_args": {"top_k": 10, "gain": "linear"}},
        "b": {"class_path": "MAP", "init_args": {"keep_values": True}},
        "c": {"class_path": "ExactMatch"},
    }
    parsed = parser.parse_object({"metrics": config})
    assert "divisor: attainable" in parser.dump(parsed)
    metrics = getattr(parser, "instantiate", parser.instantiate_classes)(parsed).metrics
    assert [type(metric) for metric in metrics.values()] == [NDCG, MAP, ExactMatch]
    assert (metrics["a"].top_k, metrics["a"].gain, metrics["b"].keep_values) == (10, "linear", True)
    for wrong in ({"top_k": "ten"}, {"topk": 3}, {"ties": "best"}):
        config["a"]["init_args"] = wrong
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            parser.parse_object({"metrics": config})


class Share(RankingMetric):  # with a constructor of its own, not as a dataclass
    def __init__(self, floor: float = 0.5, **options: Any):
        self.floor = floor
        super().__init__(**options)

    def per_list(self, lists):
        high = (lists.labels > self.floor).double().mean(-1)
        return list_values(high, high >= 0, lists, "skip")


def test_a_metric_of_ones_own():
    metric = Share(floor=1)
    metric.update(torch.zeros(1, 4), torch.tensor([[0, 1, 2, 3]]))
    assert metric.compute() == 0.5
    assert (metric.floor, Share().floor) == (1, 0.5)
    assert Share(keep_values=True).keep_values
    assert Share(1).metric_state.keys() != Share(2).metric_state.keys()
    with pytest.raises(ValueError, match=r"weights.*Share"):
        metric.update(torch.zeros(1, 4), torch.ones(1, 4), weights=torch.ones(1, 4))


def test_a_metric_is_printed_copied_and_pickled_in_every_state():
    scores, labels, mask = draw()
    for make in (
        lambda: Share(torch.tensor([0.5] * 10)),
        lambda: MRR(top_k=3, keep_values=True),
        lambda: NDCG(top_k=3, deduplicate=True),
        lambda: GMAP(),
    ):
        metric = make()
        text = repr(metric)
        for start in (20, 40):  # before and after an update
            for other in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
                assert repr(other) == text
                torch.testing.assert_close(other.sums, metric.sums)
                other.update(scores, labels, torch.arange(20), mask)
                assert other.lists > metric.lists
            metric.update(scores, labels, torch.arange(start, start + 20), mask)
            metric.compute()


def test_a_class_must_keep_its_arguments():
    class Other(Share):
        def __init__(self, ceiling: float = 0.5, **options: Any):
            super().__init__(**options)

    with pytest.raises(TypeError, match=r"Other.*\['ceiling'\]"):
        Other()


def test_measure_adds_nothing_to_the_sums():
    scores, labels, mask = draw()
    metric = NDCG(top_k=3)
    expected = F.ndcg(scores, labels, mask=mask, top_k=3)
    assert metric.measure(scores, labels, mask=mask) == expected
    assert metric.lists == 0


@every
def test_a_metric_builds_no_function_of_autograd(make, function):
    scores, labels, mask = draw()
    scores.requires_grad_()
    labels.requires_grad_()
    names = []
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        value = function(scores, labels, mask=mask)
    names = [event.name for event in profile.events()]
    assert not value.requires_grad
    assert "ltr::descending_order" in names
    assert not [name for name in names if name.startswith("_")]  # the class of such a function


@every
def test_merge_of_states_is_one_pass(make, function):
    scores, labels, mask = draw()
    first, second = make(), make()
    first.update(scores[:8], labels[:8], mask=mask[:8])
    second.update(scores[8:], labels[8:], mask=mask[8:])
    first.merge_state(second)
    torch.testing.assert_close(first.compute(), function(scores, labels, mask=mask))


@every
def test_forward_gives_the_batch_and_counts_it(make, function):
    scores, labels, mask = draw()
    metric = make()
    batch = metric(scores[:8], labels[:8], mask=mask[:8])
    torch.testing.assert_close(batch, function(scores[:8], labels[:8], mask=mask[:8]))
    metric(scores[8:], labels[8:], mask=mask[8:])
    torch.testing.assert_close(metric.compute(), function(scores, labels, mask=mask))


def test_indexes_of_the_shape_of_scores_and_of_its_lists():
    scores, labels, mask = draw()
    items, rows = MRR(), MRR()
    items.update(scores, labels, torch.arange(20).unsqueeze(-1).expand(20, 10), mask)
    rows.update(scores, labels, torch.arange(20), mask)
    torch.testing.assert_close(items.compute(), F.mrr(scores, labels, mask=mask))
    torch.testing.assert_close(rows.compute(), F.mrr(scores, labels, mask=mask))
    with pytest.raises(ValueError, match=r"indexes must"):
        rows.update(scores, labels, torch.arange(7))
    alone = MRR(deduplicate=True)
    alone.update(scores[0], labels[0], torch.tensor(5))
    alone.update(scores[0], labels[0], torch.tensor([5]), lengths=[10])
    assert alone.per_list_values.tolist() == [F.mrr(scores[0], labels[0]).item()]
    with pytest.raises(ValueError, match=r"lengths must be .*, got 10"):
        alone.update(scores[0], labels[0], torch.tensor([5]), lengths=10)


def test_values_kept():
    scores, labels, mask = draw()
    metric = NDCG(keep_values=True, empty="skip")
    metric.update(scores[:8], labels[:8], mask=mask[:8])
    metric.update(scores[8:], labels[8:], mask=mask[8:])
    expected = F.ndcg(scores, labels, mask=mask, empty="skip", reduction="none").double()
    torch.testing.assert_close(metric.per_list_values, expected, equal_nan=True)
    metric.reset()
    assert metric.per_list_values.shape == (0,)
    with pytest.raises(ValueError, match=r"keep_values.*False"):
        _ = NDCG().per_list_values


def test_flat_values_kept_by_ascending_id():
    metric = MRR(keep_values=True)
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


CUT = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])


@pytest.mark.parametrize("way", ["update", "forward", "collection", "forward of each step"])
def test_a_list_that_two_batches_share_is_named_once(way, recwarn):
    metric = MRR(dist_sync_on_step=way == "forward of each step")
    if way == "collection":
        metric = RankingMetrics({"mrr": metric})
    add = metric.update if way == "update" else metric
    scores, labels = torch.arange(9.0), torch.ones(9)
    add(scores[:4], labels[:4], CUT[:4])
    assert not recwarn
    with pytest.warns(UserWarning, match="list 1 comes in two updates"):
        add(scores[4:7], labels[4:7], CUT[4:7])
    add(scores[7:], labels[7:], CUT[7:])  # list 2 comes twice too, after the only warning
    assert not recwarn


def test_an_epoch_is_no_second_update_of_a_list(recwarn):
    metric = NDCG()
    for _ in range(2):
        for part in CUT.split(3):
            metric(torch.rand(3), torch.ones(3), part)
        metric.reset()
    assert not recwarn


def test_the_memory_for_ids_is_bounded(recwarn):
    metric = MRR()
    for start in (0, 5000, 10_000, 0):
        ids = torch.arange(start, start + 5000)
        metric.update(torch.rand(5000, 1), torch.ones(5000, 1), ids)
    assert not recwarn  # list 0 is forgotten
    with pytest.warns(UserWarning, match="list 7 comes"):
        metric.update(torch.rand(1, 1), torch.ones(1, 1), torch.tensor([7]))


def test_a_cut_list_is_named_where_ids_are_deduplicated(recwarn):
    metric = MRR(deduplicate=True)
    scores, labels = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0, 1, 1])
    for _ in range(2):
        metric.update(scores, labels, torch.tensor([7, 7, 7]))
    assert metric.compute() == 0.5
    assert not recwarn
    metric.update(scores[1:], labels[1:], torch.tensor([7, 7]))
    with pytest.warns(UserWarning, match="list 7 has different values"):
        assert metric.compute() == 0.5


def test_ids_that_number_the_lists_of_one_batch(recwarn):
    metric = MRR(deduplicate=False)
    for _ in range(2):
        metric.update(torch.rand(9), torch.ones(9), CUT)
    assert metric.lists == 6
    assert not recwarn


@pytest.mark.parametrize("name", METRICS)
def test_the_arithmetic_is_printed_and_copied(name):
    kind, arguments = METRICS[name][1].func.core, METRICS[name][0]().arguments
    metric = kind(**arguments)
    scores, labels = torch.rand(3, 5), torch.randint(0, 2, (3, 5))
    expected = metric.measure(scores, labels)
    for other in (copy.copy(metric), copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert other.arguments == metric.arguments
        torch.testing.assert_close(other.measure(scores, labels), expected, equal_nan=True)
        assert repr(other) == repr(metric)
    assert repr(metric).startswith(f"{kind.__name__}(")
    assert len({metric, metric}) == 1
    assert repr(NDCG(top_k=10, gain="linear")) == "NDCG(top_k=10, gain='linear')"


def test_an_id_of_another_update_is_another_list_unless_deduplicated():
    scores, ids = torch.tensor([2.0, 1.0, 3.0]), torch.tensor([4, 4, 8])
    two, one = MRR(deduplicate=False), MRR(deduplicate=True)
    for labels in ([0, 1, 1], [0, 1, 1]):
        two.update(scores, torch.tensor(labels), ids)
        one.update(scores, torch.tensor(labels), ids)
    one.update(scores[:1], torch.tensor([0]), ids[:1] + 1)
    assert two.lists == 4
    assert two.compute() == 0.75
    assert one.per_list_values.tolist() == [0.5, 0.0, 1.0]
    assert one.compute() == 0.5
    with pytest.raises(ValueError, match=r"indexes.*None"):
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
        torch.testing.assert_close(
            metric.compute(), function(scores, labels, mask=mask, weights=weights)
        )
    with pytest.raises(ValueError, match="weights must"):
        MRR().update(scores, labels, mask=mask, weights=weights)


@pytest.mark.parametrize("option", ["keep_values", "deduplicate"])
def test_pickling_with_values(option):
    scores, labels, mask = draw()
    ids = torch.arange(20)
    metric = NDCG(top_k=3, empty="skip", **{option: True})
    metric.update(scores[:8], labels[:8], ids[:8], mask[:8])
    copy = pickle.loads(pickle.dumps(metric))
    copy.update(scores[8:], labels[8:], ids[8:], mask[8:])
    expected = F.ndcg(scores, labels, mask=mask, top_k=3, empty="skip", reduction="none").double()
    if option == "deduplicate":
        expected = expected[mask.any(-1)]
    torch.testing.assert_close(copy.per_list_values, expected, equal_nan=True)
    torch.testing.assert_close(copy.compute(), expected.nanmean().float())
    assert len(metric.per_list_values) < len(expected)


@pytest.mark.parametrize("option", ["keep_values", "deduplicate"])
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
    metric = MRR(deduplicate=True)
    metric.update(scores, labels, torch.tensor([3, 3]), torch.tensor([[False] * 2, [True] * 2]))
    assert metric.per_list_values.tolist() == [0.5]
    assert metric.compute() == 0.5


def test_an_error_in_a_later_chunk_leaves_nothing_behind(monkeypatch):
    monkeypatch.setattr(import_module("ltr.ragged"), "CHUNK_POSITIONS", 1)
    metric = MRR(empty="error")
    scores, ids = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 1, 1])
    with pytest.raises(ValueError, match="empty is 'error' and 1 list has no value"):
        metric.update(scores, torch.tensor([1, 0, 0]), ids)
    assert metric.sums.tolist() == [0, 0, 0, 0]


S, Y, IDS = torch.tensor([2.0, 1.0, 3.0]), torch.tensor([0, 1, 1]), torch.tensor([4, 4, 8])


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((S.numpy(), Y, IDS), "preds.*ndarray"),
        ((S.tolist(), Y, IDS), "preds.*list"),
        ((S, Y.numpy(), IDS), "target.*ndarray"),
        ((S, Y, IDS.tolist()), "indexes.*list"),
        ((S, Y, IDS.float()), r"indexes.*torch\.float32"),
        ((S.view(1, 3), Y.view(1, 3), IDS[:1] > 0), r"indexes.*torch\.bool"),
        ((S, Y, IDS, Y), r"mask.*torch\.int64"),
        ((S, Y[:2], IDS), r"labels.*\(3,\).*\(2,\)"),
        ((Y, Y, IDS), r"scores.*torch\.int64"),
        ((S, -Y, IDS), "labels.*-1"),
        ((S.log() / 0 * 0, Y, IDS), "scores must"),
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
    assert metric.plot(ax=axes) == (None, axes)
    metric.plot([metric.compute(), torch.tensor(0.25)], axes)
    assert axes.get_lines()[-1].get_ydata().tolist() == [0.75, 0.25]


def updated(process: int) -> tuple[dict[str, RankingMetric], RankingMetrics]:
    """Return the metrics of one of two processes, by name, and a collection of `METRICS`."""
    scores, labels, mask = draw()
    mine = slice(0, 13) if process == 0 else slice(13, 20)  # unequal shards
    # the second process repeats lists of the first, as Lightning's distributed sampler does
    shard = torch.arange(13) if process == 0 else torch.arange(9, 20)
    metrics = {name: make() for name, (make, _) in METRICS.items()}
    collection = RankingMetrics({name: make() for name, (make, _) in METRICS.items()})
    metrics["kept"], alone = MRR(keep_values=True), MRR(keep_values=True)
    for metric in (*metrics.values(), collection, *([alone] if process == 0 else [])):
        metric.update(scores[mine], labels[mine], mask=mask[mine])
    once, twice = MRR(deduplicate=True), MRR()
    once.update(scores[shard], labels[shard], shard, mask[shard])
    # the same ids in both processes are two lists each
    twice.update(scores[mine], labels[mine], torch.arange(len(scores[mine])), mask[mine])
    return metrics | {"alone": alone, "once": once, "twice": twice}, collection


def check_values(values: dict[str, torch.Tensor]) -> None:
    """Compare the values that two processes make together with those of one pass."""
    scores, labels, mask = draw()
    each = F.mrr(scores, labels, mask=mask, reduction="none")
    expected = {
        name: function(scores, labels, mask=mask) for name, (_, function) in METRICS.items()
    }
    expected |= {"once": each.nanmean(), "twice": each.nanmean(), "alone": each[:13].nanmean()}
    for name, value in expected.items():
        assert values[name].item() == pytest.approx(value.item(), rel=0, abs=1e-6), name
    torch.testing.assert_close(values["kept"], each.double(), equal_nan=True)


def test_the_states_of_two_processes_are_those_of_one():
    metrics, _ = updated(0)
    others, _ = updated(1)
    values = {}
    for name, metric in metrics.items():
        sent: list[torch.Tensor] = []  # what the other process would send
        with others[name].sync_context(
            lambda x, group, sent=sent: sent.append(x) or [x], distributed_available=lambda: True
        ):
            pass
        received = iter(sent)
        metric.dist_sync_fn = lambda x, group, received=received: [x, next(received)]
        metric.distributed_available_fn = lambda: True
        if name == "kept":
            with metric.sync_context(metric.dist_sync_fn):
                values[name] = metric.per_list_values
        else:
            values[name] = metric.compute()
        assert next(received, None) is None, name
    check_values(values)


def two_processes(process: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=process, world_size=2)
    metrics, collection = updated(process)
    values = {name: metric.compute() for name, metric in metrics.items() if name != "kept"}
    with metrics["kept"].sync_context():
        values["kept"] = metrics["kept"].per_list_values
    values["collection"] = collection.compute()
    torch.save(values, f"{folder}/{process}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow  # two processes start and import torch; the test above has the same states
def test_two_processes_equal_one_and_so_do_those_of_a_collection(tmp_path, free_port):
    mp.spawn(two_processes, args=(free_port, str(tmp_path)), nprocs=2)
    for process in range(2):
        values = torch.load(tmp_path / f"{process}.pt")
        check_values(values)
        for name, value in values["collection"].items():
            torch.testing.assert_close(values[name], value)
