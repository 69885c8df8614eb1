"""Metrics of ragged lists are those of the same lists, padded."""

from inspect import signature

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_table import WEIGHTED
from pairwise import each

from ltr.datasets.batches import pad_documents, real_places
from ltr.metrics import (
    MAP,
    MRR,
    NDCG,
    AlphaNDCG,
    BPref,
    KendallTau,
    Precision,
    RankingMetrics,
    batches,
)
from ltr.metrics import functional as F

FUNCTIONS = [getattr(F, name) for name in F.__all__]
OPTIONS = {"top_k_accuracy": {"top_k": 2}, "err": {"max_label": 4}}
every = each("function", {function.__name__: function for function in FUNCTIONS})


def draw(lengths, seed=0, dtype=torch.float64, ties=False):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(sum(lengths), generator=generator, dtype=dtype)
    labels = torch.randint(0, 5, (sum(lengths),), generator=generator) - 2
    return scores.round() if ties else scores, labels.clamp(min=0)


def both(function, lengths, **columns):
    """A metric's values for ragged lists, and for the same ones padded."""
    lengths = torch.tensor(lengths)
    mask = real_places(lengths)
    padded = {name: pad_documents(x, mask) for name, x in columns.items()}
    options = {"reduction": "none", **OPTIONS.get(function.__name__, {})}
    return (
        function(**columns, lengths=lengths, **options),
        function(**padded, mask=mask, **options),
    )


@every
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    seed=st.integers(0, 99),
    ties=st.booleans(),
)
@settings(max_examples=20, deadline=None)
def test_ragged_is_padded(function, lengths, seed, ties):
    scores, labels = draw(lengths, seed, ties=ties)
    columns = {"scores": scores, "labels": labels}
    generator = torch.Generator().manual_seed(seed)
    if function in WEIGHTED:
        columns["weights"] = torch.rand(len(scores), generator=generator)
    if "judged" in signature(function).parameters:
        columns["judged"] = torch.rand(len(scores), generator=generator) < 0.5
    ragged, padded = both(function, lengths, **columns)
    torch.testing.assert_close(ragged, padded, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert (ragged.isnan() | (torch.tensor(lengths) > 0)).all()


@every
def test_ragged_in_many_chunks(function, monkeypatch):
    lengths = [30, 1, 0, 7, 7, 12, 30, 2]
    scores, labels = draw(lengths)
    for name, value in (("CHUNK_POSITIONS", 40), ("ITEMS_PER_LENGTH", 2), ("SPARE_POSITIONS", 0)):
        monkeypatch.setattr(f"ltr.ragged.{name}", value)
    ragged, padded = both(function, lengths, scores=scores, labels=labels)
    torch.testing.assert_close(ragged, padded, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_topics():
    scores, _ = draw([3, 0, 2])
    topics = torch.tensor([[1, 0], [0, 1], [1, 1], [0, 0], [0, 1]])
    ragged, padded = both(F.alpha_ndcg, [3, 0, 2], scores=scores, labels=topics)
    torch.testing.assert_close(ragged, padded, equal_nan=True)
    metric = AlphaNDCG()
    metric.update(scores, topics, lengths=[3, 0, 2])
    torch.testing.assert_close(metric.compute(), padded.nanmean().float())


@every
def test_no_lists_and_no_items(function):
    options = OPTIONS.get(function.__name__, {})
    none = torch.zeros(0)
    assert function(none, none, lengths=[0, 0], reduction="none", **options).isnan().tolist() == [
        True,
        True,
    ]
    assert function(none, none, lengths=[], **options).isnan()


def test_classes_and_collections():
    lengths = [4, 0, 9, 1, 6, 2]
    scores, labels = draw(lengths, dtype=torch.float32)
    mask = real_places(torch.tensor(lengths))
    padded = [pad_documents(x, mask) for x in (scores, labels)]
    members = {"ndcg": NDCG(top_k=3), "map": MAP(empty="skip"), "tau": KendallTau(), "b": BPref()}
    one, other = RankingMetrics(members), RankingMetrics(members).clone()
    other.update(*padded, mask=mask)
    one.update(scores[:13], labels[:13], lengths=lengths[:3])
    one(scores[13:], labels[13:], lengths=lengths[3:])
    torch.testing.assert_close(one.compute(), other.compute())
    for name, metric in one.metrics.items():
        torch.testing.assert_close(metric.sums, other.metrics[name].sums)
    alone = MRR()
    torch.testing.assert_close(
        alone(scores, labels, lengths=torch.tensor(lengths)), F.mrr(*padded, mask=mask)
    )
    assert alone.lists == 5


def test_a_batch_is_ranked_once(monkeypatch):
    calls, rank = [], batches.rank
    monkeypatch.setattr(
        batches, "rank", lambda *args, **kwargs: (calls.append(1), rank(*args, **kwargs))[1]
    )
    scores, labels = draw([5, 4, 6])
    metrics = RankingMetrics({"ndcg": NDCG(), "map": MAP(), "mrr": MRR()})
    calls.clear()
    metrics.update(scores, labels, lengths=[5, 4, 6])
    assert len(calls) == 1


def test_values_kept_in_the_order_of_the_lists_and_by_id():
    scores, labels = draw([3, 0, 5, 1])
    expected = F.ndcg(scores, labels, lengths=[3, 0, 5, 1], reduction="none")
    kept, once = NDCG(keep_values=True), NDCG(deduplicate=True)
    kept.update(scores, labels, lengths=[3, 0, 5, 1])
    torch.testing.assert_close(kept.per_list_values, expected, equal_nan=True)
    for _ in range(2):  # the list without items may have any id
        once.update(scores, labels, indexes=torch.tensor([7, 7, 4, 9]), lengths=[3, 0, 5, 1])
    torch.testing.assert_close(once.per_list_values, expected[[2, 0, 3]])


def test_weights():
    scores, labels = draw([3, 4])
    weights = torch.rand(7, generator=torch.Generator().manual_seed(1))
    metric = Precision(top_k=2)
    metric.update(scores, labels, weights=weights, lengths=[3, 4])
    torch.testing.assert_close(
        metric.compute().double(),
        F.precision(scores, labels, weights=weights, lengths=[3, 4], top_k=2),
        rtol=1e-6,
        atol=0,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": [2, 2]}, "lengths.*4"),
        ({"lengths": [4, -1]}, "lengths.*-1"),
        ({"lengths": [1.5, 1.5]}, "lengths must"),
        (
            {"mask": torch.ones(3, dtype=torch.bool)},
            "lengths .* got mask and lengths",
        ),
        ({"labels": torch.zeros(2)}, r"labels.*\(2,\)"),
        ({"scores": torch.zeros(1, 3)}, r"scores must"),
        ({"scores": torch.full((3,), torch.nan)}, "scores must"),
        ({"labels": torch.tensor([1, -1, 0])}, "labels.*-1"),
    ],
)
def test_bad_arguments(change, message):
    given = {"scores": torch.zeros(3), "labels": torch.zeros(3), "lengths": [1, 2], **change}
    with pytest.raises(ValueError, match=message):
        F.ndcg(**given)
    scores, labels = given.pop("scores"), given.pop("labels")
    with pytest.raises(ValueError, match=message):
        NDCG().update(scores, labels, **given)
    with pytest.raises(ValueError, match="indexes must"):
        NDCG().update(
            torch.zeros(3), torch.zeros(3), indexes=torch.tensor([1, 2, 3]), lengths=[1, 2]
        )
