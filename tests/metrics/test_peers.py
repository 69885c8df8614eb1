"""Relevance levels, and the metrics that trec_eval and ir_measures have: their values, formulas."""

import math
import random
from inspect import signature

import numpy as np
import pytest
import pytrec_eval
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ltr.metrics import (
    GMAP,
    MAP,
    MRR,
    BPref,
    HitRate,
    InterpolatedPrecision,
    Judged,
    Precision,
    RBPResidual,
    Recall,
    RPrecision,
    SetFBeta,
    SetPrecision,
    SetRecall,
)
from ltr.metrics import functional as F
from ltr.metrics.named import metric_names, parse_measures
from ltr.metrics.trec import join

QRELS = {
    "a": {"x": 1, "y": 0, "z": 2, "w": 2},
    "b": {"x": 0, "y": 1},
    "c": {"u": 2, "v": 1, "x": 1, "y": 2, "z": 0},
}
RUN = {
    "a": {"x": 3.0, "y": 2.0, "z": 1.0, "u": 0.5},
    "b": {"x": 1.0, "u": 0.5},
    "c": {"t": 6.0, "y": 5.0, "s": 4.0, "v": 3.0, "z": 2.0, "u": 1.0},
}

# Made with ir_measures 0.4.3 and pytrec_eval-terrier 0.5.11 in an environment of their own:
# ir_measures.iter_calc([ir_measures.parse_measure(name)], QRELS, RUN), the queries a, b and c.
IR_MEASURES = {
    "AP": [0.555555555556, 0.0, 0.375],
    "AP(rel=2)": [0.166666666667, 0.0, 0.416666666667],
    "AP(rel=2)@3": [0.166666666667, 0.0, 0.25],
    "RR(rel=2)": [0.333333333333, 0.0, 0.5],
    "P(rel=2)@2": [0.0, 0.0, 0.5],
    "R(rel=2)@4": [0.5, 0.0, 0.5],
    "Success(rel=2)@2": [0.0, 0.0, 1.0],
    "Rprec(rel=2)": [0.0, 0.0, 0.5],
    "Bpref(rel=2)": [0.0, 0.0, 0.5],
    "SetP": [0.5, 0.0, 0.5],
    "SetP(rel=2)": [0.25, 0.0, 0.333333333333],
    "SetR": [0.666666666667, 0.0, 0.75],
    "SetR(rel=2)": [0.5, 0.0, 1.0],
    "SetF": [0.571428571429, 0.0, 0.6],
    "SetF(rel=2)": [0.333333333333, 0.0, 0.5],
    "IPrec@0.1": [1.0, 0.0, 0.5],
    "IPrec@0.5": [0.666666666667, 0.0, 0.5],
    "IPrec(rel=2)@1.0": [0.0, 0.0, 0.333333333333],
    "Judged@2": [1.0, 0.5, 0.5],
    "Judged@10": [0.75, 0.5, 0.666666666667],
}


@pytest.mark.parametrize("name", IR_MEASURES)
def test_names_of_ir_measures_have_its_values(name):
    (measure,) = parse_measures([name], of_runs=True)
    values = join(RUN, QRELS).values(measure.make({"divisor": "relevant"}))
    assert values.tolist() == pytest.approx(IR_MEASURES[name], rel=1e-11)


def make_case(seed):
    """A run and judgements: ties, unjudged documents, missing relevant ones, queries without."""
    draw = random.Random(seed)
    qrels, run = {}, {}
    for qid in "abcdef":
        documents = [f"d{i}" for i in range(draw.choice([1, 6, 30]))]
        grades = draw.choice([[0, 0, 1], [0, 1, 2, 3], [0], [2]])
        qrels[qid] = {d: draw.choice(grades) for d in documents if draw.random() < 0.6} | {"e": 0}
        kind = draw.choice([draw.random, lambda: draw.randrange(3)])
        run[qid] = {d: float(kind()) for d in documents if draw.random() < 0.7} or {"y": 1.0}
    return run, qrels


TREC = {
    "map": MAP(),
    "map_cut_5": MAP(top_k=5, divisor="relevant"),
    "recip_rank": MRR(),
    "P_5": Precision(top_k=5),
    "recall_5": Recall(top_k=5),
    "success_5": HitRate(top_k=5),
    "Rprec": RPrecision(),
    "bpref": BPref(),
    "set_P": SetPrecision(),
    "set_recall": SetRecall(),
    "set_F": SetFBeta(),
    "11pt_avg": InterpolatedPrecision(),
    **{f"iprec_at_recall_{x / 10:.2f}": InterpolatedPrecision(recall=x / 10) for x in range(11)},
}


@pytest.mark.parametrize("level", [1, 2, 3])
def test_values_are_trec_evals_at_every_level(level):
    for seed in range(20):
        run, qrels = make_case(seed)
        families = {"map", "map_cut.5", "recip_rank", "P.5", "recall.5", "success.5", "Rprec"}
        families |= {"bpref", "set_P", "set_recall", "set_F", "11pt_avg", "iprec_at_recall"}
        evaluator = pytrec_eval.RelevanceEvaluator(qrels, families, relevance_level=level)
        theirs = evaluator.evaluate(run)
        lists = join(run, qrels, depth=5)
        for name, metric in TREC.items():
            own = type(metric)(**{**metric.arguments, "relevant_from": level})
            expected = [theirs[qid][name] for qid in qrels]
            assert lists.values(own).tolist() == pytest.approx(expected, abs=1e-12), name


@pytest.mark.filterwarnings("ignore:indexes")  # the last list comes twice
def test_the_geometric_mean_is_trec_evals():
    for seed in range(20):
        run, qrels = make_case(seed)
        theirs = pytrec_eval.RelevanceEvaluator(qrels, {"gm_map"}).evaluate(run)
        logs = [theirs[qid]["gm_map"] for qid in qrels]
        values = join(run, qrels).values(GMAP())
        assert values.log().tolist() == pytest.approx(logs, abs=1e-12)
    scores = torch.tensor([[3.0, 2.0, 1.0]] * 3)
    labels = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    aps = [1 / 2, (1 + 2 / 3) / 2, 1e-5]
    expected = math.prod(aps) ** (1 / 3)
    assert F.gmap(scores, labels).item() == pytest.approx(expected)
    assert F.gmap(scores, labels, reduction="none").tolist() == pytest.approx(aps)
    assert F.gmap(scores, labels, empty="skip").item() == pytest.approx(math.prod(aps[:2]) ** 0.5)
    for options in ({}, {"keep_values": True}, {"deduplicate": True}):
        metric = GMAP(**options)
        for part, indexes in ((slice(0, 1), [0]), (slice(1, 3), [1, 2])):
            metric.update(scores[part], labels[part], indexes=torch.tensor(indexes))
        assert metric.compute().item() == pytest.approx(expected)
        assert metric(scores[:1], labels[:1], torch.tensor([0])).item() == pytest.approx(1 / 2)
    assert metric.per_list_values.tolist() == pytest.approx(aps)


BINARY = [
    "average_precision",
    "bpref",
    "f1",
    "f_beta",
    "gmap",
    "hit_rate",
    "interpolated_precision",
]
BINARY += ["mrr", "precision", "r_precision", "rbp", "recall", "set_f_beta", "set_precision"]
BINARY += ["set_recall"]


@pytest.mark.parametrize("name", BINARY)
def test_labels_below_the_level_count_as_zero(name):
    metric = getattr(F, name)
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(20, 8, generator=generator).round(decimals=1)
    labels = torch.randint(0, 5, (20, 8), generator=generator).float()
    options = [{"gain": "linear"}, {"gain": "exp2", "max_label": 4}] if name == "rbp" else []
    for own in [{}, *options]:
        given_labels = labels if own else (labels >= 3).float()
        expected = metric(scores, torch.where(labels >= 3, given_labels, 0.0), **own)
        assert metric(scores, labels, relevant_from=3, **own) == expected
        assert metric(scores, labels, relevant_from=2.5, **own) == expected
    for wrong in (0, -1, True, "2", math.nan):
        with pytest.raises(ValueError, match="relevant_from must be"):
            metric(scores, labels, relevant_from=wrong)


def test_every_metric_with_a_level_is_tested():
    names = {x for x in F.__all__ if "relevant_from" in signature(getattr(F, x)).parameters}
    assert names == {*BINARY}


@given(st.integers(1, 12), st.floats(0, 9), st.data())
@settings(max_examples=60, deadline=None)
def test_f_beta_by_the_formula(n, beta, data):
    labels = torch.tensor(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    scores = -torch.arange(n).double()
    for k in (None, 1, 3, 20):
        cut = k or n
        hits, total = labels[:cut].sum().item(), labels.sum().item()
        p, r = hits / cut, hits / max(total, 1)
        expected = (1 + beta**2) * p * r / (beta**2 * p + r) if hits else 0.0
        found = F.f_beta(scores, labels, top_k=k, beta=beta).item()
        assert found == pytest.approx(expected, abs=1e-12)
        one = F.f_beta(scores, labels, top_k=k, beta=1)
        assert one == F.f1(scores, labels, top_k=k)
        of_set = F.set_f_beta(scores, labels, threshold=-float(cut), beta=beta).item()
        p = hits / min(cut, n)
        expected = (1 + beta**2) * p * r / (beta**2 * p + r) if hits else 0.0
        assert of_set == pytest.approx(expected, abs=1e-12)
    # ir_measures' SetF(beta=2.0) of query a, made as above: its beta is the square of ours
    lists = join(RUN, {"a": QRELS["a"]})
    assert lists.values(SetFBeta(beta=math.sqrt(2))).tolist() == pytest.approx([0.6])
    with pytest.raises(ValueError, match="beta must be >= 0"):
        F.f_beta(scores, labels, beta=-1.0)


def test_the_residual_is_what_unjudged_items_could_add():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(20, 9, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 2, (20, 9), generator=generator)
    judged = torch.rand(20, 9, generator=generator) < 0.6
    mask = torch.rand(20, 9, generator=generator) < 0.8
    mask[:, 0] = True
    known, all_relevant = labels * judged, torch.where(judged, labels, 1)
    for p, k in ((0.5, None), (0.8, 3), (0.95, 20)):
        options = {"mask": mask, "p": p, "top_k": k, "reduction": "none"}
        low, high = F.rbp(scores, known, **options), F.rbp(scores, all_relevant, **options)
        positions = mask.sum(-1) if k is None else mask.sum(-1).clamp(max=k)
        found = F.rbp_residual(scores, labels, judged=judged, **options)
        torch.testing.assert_close(found, high - low + p**positions)
    whole = F.rbp_residual(scores, labels, p=0.5, reduction="none")
    torch.testing.assert_close(whole, torch.full((20,), 0.5**9).double())
    # of a run, what was not retrieved is not judged
    value = join({"q": {"a": 2.0, "x": 1.0}}, {"q": {"a": 1, "lost": 1}}).values(RBPResidual(p=0.5))
    assert value.tolist() == pytest.approx([1 - 0.5])


def test_judged_counts_what_was_retrieved():
    judged = torch.tensor([[True, False, True, True]])
    scores, labels = torch.tensor([[4.0, 3.0, 2.0, 1.0]]), torch.ones(1, 4)
    for k, expected in ((1, 1), (2, 1 / 2), (3, 2 / 3), (None, 3 / 4), (9, 3 / 4)):
        assert F.judged(scores, labels, judged=judged, top_k=k).item() == pytest.approx(expected)
    above = {"judged": judged, "threshold": 1.5}
    assert F.judged(scores, labels, **above).item() == pytest.approx(2 / 3)
    tied = torch.tensor([[4.0, 2.0, 2.0, 1.0]])
    for ties, expected in (("stable", 1 / 2), ("worst", 1 / 2), ("expected", 3 / 4)):
        found = F.judged(tied, labels, judged=judged, top_k=2, ties=ties).item()
        assert found == pytest.approx(expected)
    assert F.judged(scores, labels, threshold=9.0).item() == 0
    assert F.judged(scores, labels, threshold=9.0, empty="skip").isnan()
    assert join({"q": {}}, {"q": {"a": 1}}).values(Judged(top_k=3)).tolist() == [0]


def test_interpolated_precision_by_the_definition():
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        labels = torch.randint(0, 2, (9,), generator=generator)
        scores = torch.randn(9, generator=generator, dtype=torch.float64)
        hits = labels[scores.argsort(descending=True)].tolist()
        total = max(sum(hits), 1)
        for level in (0, 0.3, 0.5, 1):
            found = [sum(hits[: i + 1]) for i in range(9)]
            reached = [f / (i + 1) for i, f in enumerate(found) if f / total >= level]
            expected = max(reached, default=0.0) if sum(hits) else 0.0
            value = F.interpolated_precision(scores, labels, recall=level).item()
            assert value == pytest.approx(expected)
    tied, labels = torch.zeros(3), torch.tensor([1, 0, 0])
    assert F.interpolated_precision(tied, labels, recall=1).item() == 1
    assert F.interpolated_precision(tied, labels, recall=1, ties="worst").item() == (
        pytest.approx(1 / 3)
    )
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="recall must be"):
            F.interpolated_precision(tied, labels, recall=wrong)
    with pytest.raises(ValueError, match='ties must be "stable" or "worst"'):
        F.interpolated_precision(tied, labels, ties="expected")


@pytest.mark.parametrize("kind", [SetPrecision, SetRecall, SetFBeta, InterpolatedPrecision, Judged])
def test_a_run_has_its_own_threshold(kind):
    with pytest.raises(ValueError, match=r"threshold must be None for a run, got 0\.5"):
        join(RUN, QRELS).values(kind(threshold=0.5))
    for wrong in (math.nan, "0", True):
        with pytest.raises(ValueError, match="threshold must be None or a number"):
            kind(threshold=wrong)


def test_xgboosts_ndcg_without_a_cutoff_is_that_at_32():
    xgboost = pytest.importorskip("xgboost")
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(200, 2)), generator.integers(0, 4, 200)
    data = xgboost.DMatrix(X, y, qid=np.repeat([0, 1], 100))
    options = {"objective": "rank:ndcg", "eval_metric": ["ndcg", "ndcg@32"], "max_depth": 2}
    seen: dict = {}
    model = xgboost.train(options, data, 2, evals=[(data, "t")], evals_result=seen)
    scores = torch.from_numpy(model.predict(data, output_margin=True)).view(2, 100)
    labels = torch.from_numpy(y).view(2, 100)
    assert seen["t"]["ndcg"] == seen["t"]["ndcg@32"]
    found = F.ndcg(scores, labels, top_k=32).item()
    assert seen["t"]["ndcg"][-1] == pytest.approx(found, abs=1e-6)
    assert abs(found - F.ndcg(scores, labels).item()) > 0.1


TITLES = {
    "AP(rel=2)@10": "map(relevant_from=2)@10",
    "map( relevant_from = 2 )": "map(relevant_from=2)",
    "AP(rel=2,cutoff=5)": "map(relevant_from=2)@5",
    "RBP(p=0.5)": "rbp(p=0.5)",
    "nDCG(gain='linear')@10": "ndcg(gain=linear)@10",
    "IPrec@0.1": "interpolated_precision(recall=0.1)",
    "iprec_at_recall_0.10": "interpolated_precision(recall=0.1)",
    "11pt_avg": "interpolated_precision",
    "SetF(beta=2.0)": "set_f_beta(beta=2.0)",
    "set_P": "set_precision",
    "set_recall": "set_recall",
    "Judged@10": "judged@10",
    "f_beta(beta=0.5)@10": "f_beta(beta=0.5)@10",
}


@pytest.mark.parametrize("name", TITLES)
def test_names_with_options(name):
    (measure,) = parse_measures([name])
    assert measure.title == TITLES[name]
    assert parse_measures([measure.title]) == [measure]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("map(rel=0)", r"metrics: 'map\(rel=0\)': relevant_from must be > 0, got 0"),
        ("map(rel=2", "options must be in parentheses"),
        ("map(level=2)", "unknown option 'level'"),
        ("map(keep_values=0)", "unknown option 'keep_values'"),
        ("ndcg(rel=2)", "unknown option 'relevant_from'"),
        ("map(rel=)", "relevant_from must be a number"),
        ("IPrec@2", "recall must be <= 1, got 2"),
        ("gm_map", "gmap is not possible here: it is no mean over lists"),
        ("alpha_ndcg", "alpha_ndcg is not possible here"),
        ("SetP@5", "set_precision takes no cutoff"),
        ("ndcg(top_k=10)@5", "only one cutoff"),
        ("ndcg(short_list_value=x)@5", "short_list_value must be .* got 'x'"),
    ],
)
def test_wrong_options_are_one_error(name, message):
    with pytest.raises(ValueError, match=message):
        parse_measures([name])
    assert {"gmap", "alpha_ndcg"}.isdisjoint(metric_names())
