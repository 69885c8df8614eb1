"""Fusion: ranx's values, formulas, missing documents, weights, and input that is wrong."""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ltr.metrics.functional import ndcg
from ltr.metrics.trec import write_run
from ltr.rerank import fuse, fusion_weights, normalize_scores
from ltr.rerank.fusion import METHODS
from ltr.rerank.normalization import NORMALIZATIONS

RUNS = [
    {"q1": {"a": 9.5, "b": 7.25, "c": 6.0, "d": 1.5}, "q2": {"a": 3.0, "e": -1.0, "b": -2.5}},
    {"q1": {"b": 0.9, "a": 0.8, "e": 0.35, "d": 0.1}, "q2": {"e": 0.75, "a": 0.7}},
    {
        "q1": {"c": 120.0, "a": 118.0, "f": 40.0},
        "q2": {"g": 5.0, "a": 4.0, "b": 3.5, "e": 0.25},
    },
]

# Made with ranx 0.3.21 in an environment of its own: fuse([Run(one) for one in RUNS], norm=...,
# method=..., params=...), with the norms "min-max", "zmuv", "rank" and None, and the methods "sum",
# "mnz", "wsum", "rrf", "bordafuse", "w_bordafuse" and "w_condorcet". The documents are a to f of
# q1, and a, b, e and g of q2.
RANX = [
    (
        {"method": "combsum"},
        [
            [2.85, 1.71875, 1.5625, 0.0, 0.3125, 0.0],
            [1.78947368421, 0.684210526316, 1.27272727273, 1.0],
        ],
    ),
    (
        {"method": "combmnz"},
        [
            [8.55, 3.4375, 3.125, 0.0, 0.3125, 0.0],
            [5.36842105263, 1.36842105263, 3.81818181818, 1.0],
        ],
    ),
    (
        {"method": "combsum", "weights": [0.5, 0.3, 0.2]},
        [
            [0.9575, 0.659375, 0.48125, 0.0, 0.09375, 0.0],
            [0.657894736842, 0.136842105263, 0.436363636364, 0.2],
        ],
    ),
    (
        {"method": "combsum", "normalize": "z"},
        [
            [
                2.66187470184,
                1.51668281704,
                0.712360036,
                -2.90308472188,
                -0.573959048845,
                -1.41387378415,
            ],
            [0.820612243067, -0.82956767526, -1.00937229928, 1.01832773147],
        ],
    ),
    (
        {"method": "combmnz", "normalize": "z"},
        [
            [
                7.98562410551,
                3.03336563408,
                1.424720072,
                -5.80616944375,
                -0.573959048845,
                -1.41387378415,
            ],
            [2.4618367292, -1.65913535052, -3.02811689783, 1.01832773147],
        ],
    ),
    (
        {"method": "combsum", "normalize": "z", "weights": [0.5, 0.3, 0.2]},
        [
            [
                0.966201461047,
                0.5364105763,
                0.136045238948,
                -1.18369480481,
                -0.172187714654,
                -0.282774756831,
            ],
            [0.473358599026, -0.467455961671, -0.209568183648, 0.203665546294],
        ],
    ),
    (
        {"method": "combsum", "normalize": "rank"},
        [
            [2.41666666667, 1.75, 1.5, 0.5, 0.5, 0.333333333333],
            [2.25, 0.833333333333, 1.91666666667, 1.0],
        ],
    ),
    (
        {"method": "combmnz", "normalize": "rank"},
        [[7.25, 3.5, 3.0, 1.0, 0.5, 0.333333333333], [6.75, 1.66666666667, 5.75, 1.0]],
    ),
    (
        {"method": "combsum", "normalize": "rank", "weights": [0.5, 0.3, 0.2]},
        [
            [0.858333333333, 0.675, 0.45, 0.2, 0.15, 0.0666666666667],
            [0.8, 0.266666666667, 0.683333333333, 0.2],
        ],
    ),
    (
        {},
        [
            [
                0.0486515071391,
                0.032522474881,
                0.032266458496,
                0.03125,
                0.015873015873,
                0.015873015873,
            ],
            [0.0486515071391, 0.031746031746, 0.048147474881, 0.016393442623],
        ],
    ),
    (
        {"k": 10},
        [
            [
                0.257575757576,
                0.174242424242,
                0.167832167832,
                0.142857142857,
                0.0769230769231,
                0.0769230769231,
            ],
            [0.257575757576, 0.153846153846, 0.245670995671, 0.0909090909091],
        ],
    ),
    ({"method": "borda"}, [[16.0, 13.0, 11.5, 8.0, 7.5, 7.0], [10.0, 5.5, 8.0, 6.5]]),
    (
        {"method": "borda", "weights": [0.5, 0.3, 0.2]},
        [[5.5, 4.7, 3.65, 2.8, 2.35, 2.0], [3.5, 1.85, 2.9, 1.75]],
    ),
    (
        {"method": "condorcet", "weights": [0.5, 0.3, 0.15]},
        [[6.0, 5.0, 4.0, 3.0, 2.0, 1.0], [4.0, 2.0, 3.0, 1.0]],
    ),
]

# as above, by "condorcet": five complete rankings whose majorities are an order
VOTERS = [
    [8.942, 5.603, 5.32, 5.371, 2.984, 2.928, 2.179, 0.169],
    [6.691, 7.194, 6.993, 4.353, 3.666, 4.646, 1.441, 0.486],
    [10.404, 5.469, 6.796, 2.996, 3.403, 4.504, 3.221, 0.099],
    [7.546, 7.08, 4.742, 5.552, 6.228, 1.645, 0.018, 1.288],
    [7.881, 8.804, 5.84, 4.949, 3.809, 2.009, 2.673, -0.324],
]
CONDORCET = [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]


@pytest.mark.parametrize(("options", "expected"), RANX, ids=[str(one) for one, _ in RANX])
def test_values_are_those_of_ranx(options, expected):
    fused = fuse(RUNS, **options)
    for qid, names, values in zip(("q1", "q2"), ("abcdef", "abeg"), expected, strict=True):
        assert fused[qid] == pytest.approx(dict(zip(names, values, strict=True)), rel=1e-11)


def test_condorcet_is_that_of_ranx_if_no_pair_is_tied():
    assert fuse(VOTERS, method="condorcet").tolist() == CONDORCET


def test_reciprocal_rank_fusion_by_the_formula():
    fused = fuse([[3.0, 1.0, 2.0], [np.nan, 5.0, 4.0]], k=7)
    assert fused.tolist() == [1 / 8, 1 / 10 + 1 / 8, 1 / 9 + 1 / 9]
    weighted = fuse([[3.0, 1.0, 2.0], [np.nan, 5.0, 4.0]], k=7, weights=[2, 3])
    assert weighted == pytest.approx([2 / 8, 2 / 10 + 3 / 8, 2 / 9 + 3 / 9])


def test_borda_shares_the_points_of_what_was_not_retrieved():
    fused = fuse([[9.0, 8.0, np.nan, np.nan], [1.0, 2.0, 3.0, 4.0]], method="borda")
    assert fused.tolist() == [4 + 1, 3 + 2, 1.5 + 3, 1.5 + 4]


def test_condorcet_counts_wins_and_half_of_ties():
    circle = [[3, 2, 1], [1, 3, 2], [2, 1, 3]]
    assert fuse(circle, method="condorcet").tolist() == [2, 2, 2]
    two = [[3, 2, np.nan], [2, 3, np.nan], [np.nan, np.nan, 1]]
    assert fuse(two, method="condorcet").tolist() == [1 + 0.5 + 1, 1 + 0.5 + 1, 1]
    # .1 + .2 votes are as many as .3
    assert fuse([[1, 0], [1, 0], [0, 1]], method="condorcet", weights=[0.1, 0.2, 0.3]).tolist() == (
        [1.5, 1.5]
    )


def test_ties_are_in_row_order_and_in_runs_by_descending_name():
    assert fuse([[1.0, 1.0]], k=1).tolist() == [1 / 2, 1 / 3]
    assert fuse([{"q": {"a": 1.0, "b": 1.0}}], k=1) == {"q": {"b": 1 / 2, "a": 1 / 3}}
    assert [*fuse([{"q": {"a": 1.0, "b": 2.0}}, {"q": {"b": 1.0, "a": 2.0}}])["q"]] == ["b", "a"]


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_rankers_and_rows_does_not_matter(method):
    generator = np.random.default_rng(0)
    scores = np.stack([generator.permutation(12) for _ in range(4)]).astype(float)
    scores[generator.random(scores.shape) < 0.2] = np.nan
    scores[0] = np.arange(12)
    qid = generator.integers(0, 3, 12)
    expected = fuse(scores, qid, method=method)
    for order in permutations(range(4)):
        assert fuse(scores[[*order]], qid, method=method).tolist() == expected.tolist()
    rows = generator.permutation(12)
    assert fuse(scores[:, rows], qid[rows], method=method).tolist() == expected[rows].tolist()
    for one in np.unique(qid):
        alone = fuse(scores[:, qid == one], method=method)
        assert alone.tolist() == expected[qid == one].tolist()


def test_runs_are_the_arrays_with_missing_documents(tmp_path):
    names = {"q1": "fedcba", "q2": "geba"}  # the order of equal scores
    qid = [q for q in names for _ in names[q]]
    rows = [[run[q].get(d, np.nan) for q in names for d in names[q]] for run in RUNS]
    for number, run in enumerate(RUNS):
        write_run(tmp_path / f"{number}.run", run)
    files = [tmp_path / f"{number}.run" for number in range(3)]
    for method in METHODS:
        fused = fuse(RUNS, method=method)
        values = [fused[q][d] for q in names for d in names[q]]
        assert fuse(rows, qid, method=method).tolist() == values
        assert fuse(files, method=method) == fused
        assert fuse([RUNS[0], str(files[1]), files[2]], method=method) == fused
        for documents in fused.values():
            assert [*documents.values()] == sorted(documents.values(), reverse=True)


def test_a_run_retrieved_nothing_for_a_query_that_it_lacks():
    less = [RUNS[0], {"q1": RUNS[1]["q1"]}, RUNS[2]]
    for method in METHODS:
        fused = fuse(less, method=method)
        assert fused["q2"] == fuse([RUNS[0], {"q1": {}, "q2": {}}, RUNS[2]], method=method)["q2"]
        assert fused["q1"] == fuse(RUNS, method=method)["q1"]
    assert fuse([{"q": {}}]) == {"q": {}}


def test_arrays_of_any_kind():
    scores, qid = [[3.0, 1.0, 2.0], [1.0, 2.0, 3.0]], ["a", "b", "a"]
    expected = fuse(scores, qid).tolist()
    assert fuse(np.array(scores), np.array(qid)).tolist() == expected
    assert fuse(torch.tensor(scores), pd.Series(qid)).tolist() == expected
    assert fuse([pd.Series(one) for one in scores], qid).tolist() == expected
    assert fuse([[], []]).tolist() == []
    assert fuse([[], []], [], method="condorcet").tolist() == []


@pytest.mark.parametrize("method", NORMALIZATIONS)
@given(
    rows=st.lists(
        st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 3)), max_size=12
    )
)
@settings(max_examples=40, deadline=None)
def test_normalization_keeps_the_order_and_the_scale(method, rows):
    scores = np.array([score for score, _ in rows], float)
    qid = np.array([one for _, one in rows], int)
    found = normalize_scores(scores, qid, method)
    assert np.isfinite(found).all()
    for one in set(qid.tolist()):
        own, values = scores[qid == one], found[qid == one]
        ordered = values[np.argsort(own, kind="stable")]
        assert (ordered[1:] >= ordered[:-1]).all() or method == "rank"  # a difference may overflow
        assert values[own.argmax()] == values.max()
        if method == "rank":
            expected = [1 - Fraction(i, len(own)) for i in range(len(own))]
            assert sorted(values, reverse=True) == pytest.approx([float(x) for x in expected])
        elif method == "min_max":
            assert (values.min(), values.max()) == (0, own.max() > own.min())
        elif method == "z":
            assert np.abs(values.mean()) < 1e-9


def test_normalization_by_the_formula():
    scores = np.array([1.0, 4.0, 2.0, 7.0])
    deviation = np.sqrt(np.mean((scores - 3.5) ** 2))
    assert normalize_scores(scores, method="z") == pytest.approx((scores - 3.5) / deviation)
    assert normalize_scores(scores).tolist() == [0, 1 / 2, 1 / 6, 1]
    assert normalize_scores([0.1, 0.1, 0.1], method="z").tolist() == [0, 0, 0]
    assert normalize_scores([5.0, 5.0], method="rank").tolist() == [1, 1 / 2]


def draw_lists(lists=60, n=8, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, (lists, n))
    good = labels + generator.normal(size=labels.shape)
    return labels, good, generator.normal(size=labels.shape)


def test_weights_are_better_than_equal_ones():
    labels, good, noise = draw_lists()
    qid = np.repeat(np.arange(len(labels)), labels.shape[1])
    rankers = [good.ravel(), noise.ravel()]
    weights = fusion_weights(rankers, labels.ravel(), qid, method="combsum", metric="ndcg@5")
    assert weights.sum() == pytest.approx(1)
    assert weights[0] > 0.8

    def value(weights):
        fused = torch.from_numpy(fuse(rankers, qid, method="combsum", weights=weights))
        return ndcg(fused.reshape(labels.shape), torch.from_numpy(labels), top_k=5).item()

    # the best of all that the search tries
    steps = [value([share, 1 - share]) for share in np.arange(21) / 20]
    assert value(weights) == max(steps) > value([0.5, 0.5])
    same = fusion_weights([noise.ravel(), noise.ravel()], labels.ravel(), qid)
    assert same.tolist() == [0.5, 0.5]
    assert fusion_weights([good.ravel()], labels.ravel(), qid).tolist() == [1.0]


def test_weights_of_runs_are_those_of_their_arrays():
    labels, good, noise = draw_lists()
    names = [f"d{9 - i}" for i in range(labels.shape[1])]

    def run(values):
        return {str(i): dict(zip(names, row, strict=True)) for i, row in enumerate(values.tolist())}

    qid = np.repeat(np.arange(len(labels)), labels.shape[1])
    qrels = run(labels)
    runs = [run(good), run(noise)]
    for method in METHODS:
        of_rows = fusion_weights([good.ravel(), noise.ravel()], labels.ravel(), qid, method=method)
        assert fusion_weights(runs, qrels, method=method).tolist() == of_rows.tolist()
    # neither queries without judgements, nor judged queries that no run has
    runs[0]["other"] = runs[1]["other"] = {"a": 1.0}
    qrels["nowhere"] = {"a": 1}
    assert fusion_weights(runs, qrels, method=method).tolist() == of_rows.tolist()
    # a document without a judgement is not relevant; one that no run has comes last
    qrels = {q: {d: x for d, x in one.items() if x} | {"lost": 2} for q, one in qrels.items()}
    assert fusion_weights(runs, qrels)[0] > 0.8


@pytest.mark.parametrize(
    ("rankers", "options", "message"),
    [
        ([], {}, r"rankers must be a list of at least one ranker, got \[\]"),
        ({"q": {"a": 1.0}}, {}, r"rankers must be a list"),
        ("a.run", {}, r"rankers must be a list of at least one ranker, got 'a.run'"),
        (3, {}, r"rankers must be a list"),
        ([{"q": {"a": 1.0}}, [1.0]], {}, "all runs or all arrays, got both"),
        ([[1.0, 2.0], [1.0]], {}, r"one shape \(rows,\), got \(2,\) and \(1,\)"),
        ([[1.0, np.inf]], {}, "finite scores, got inf in row 1 of ranker 0"),
        ([[1.0, np.nan], [2.0, np.nan]], {}, "a score for each row, got none for row 1"),
        ([["x"]], {}, "rankers must be an array of numbers"),
        ([{"q": {"a": np.nan}}], {}, "finite scores, got nan for 'a' of 'q'"),
        ([{"q": {3: 1.0}}], {}, "must name queries and documents, got 3"),
        ([{1: {"a": 1.0}}], {}, "must name queries and documents, got 1"),
        ([{"q": {"a": "x"}}], {}, "finite scores, got 'x' for 'a' of 'q'"),
        ([{"q": ["a"]}], {}, r"scores by document by query, got \['a'\] for 'q'"),
        (torch.tensor(1.0), {}, "rankers must be a list of at least one ranker"),
        ([{"1": {"a": 1.0}}, {"2": {"a": 1.0}}], {}, "queries in common, got run 0"),
        ([{"1": {"a": 1.0}}, {"1": {"a": 1.0}}, {"2": {}}], {}, "queries in common, got run 2"),
        ([{"1": {"a": 1.0}}], {"qid": [1]}, "qid must be None for runs"),
        (["no.run"], {}, "path must be a file, got no.run"),
        ([[1.0]], {"method": "sum"}, "method must be"),
        ([[1.0]], {"normalize": "max"}, "normalize must be"),
        ([[1.0]], {"k": 0}, "k must be a whole number >= 1, got 0"),
        ([[1.0]], {"k": 1.5}, "k must be a whole number >= 1, got 1.5"),
        ([[1.0]], {"weights": [1.0, 2.0]}, "one number for each of 1 rankers"),
        ([[1.0]], {"weights": [-1.0]}, "weights must be finite, >= 0 and not all 0"),
        ([[1.0]], {"weights": [0.0]}, "weights must be finite, >= 0 and not all 0"),
        ([[1.0]], {"weights": [np.nan]}, "weights must be finite"),
        ([[1.0, 2.0]], {"qid": [1]}, "qid must have one value for each of the 2 rows"),
        (
            [[1.0, 2.0]],
            {"qid": ["a", None]},
            "qid must name a query in each row, got None in row 1",
        ),
    ],
)
def test_wrong_input_is_one_error(rankers, options, message):
    with pytest.raises(ValueError, match=message):
        fuse(rankers, **options)


@pytest.mark.parametrize(
    ("rankers", "labels", "message"),
    [
        ([[1.0, 2.0]], [1], r"labels must have shape \(2,\), got \(1,\)"),
        ([[1.0, 2.0]], [1, -1], "labels must be finite and >= 0, got -1 in row 1"),
        ([[1.0, 2.0]], [1, np.nan], "labels must be finite and >= 0, got nan in row 1"),
        ([[], []], [], "labels must have at least one row, got none"),
        ([{"q": {"a": 1.0}}], {"other": {"a": 1}}, "labels must judge a query of the runs"),
        ([{"q": {"a": 1.0}}], [1], "labels must be judgements by document by query"),
        ([{"q": {"a": 1.0}}], {"q": {"a": "x"}}, "labels must be numbers by document by query"),
        ([{"q": {"a": 1.0}}], {"q": ["a"]}, r"labels must be numbers .* got \['a'\] for 'q'"),
    ],
)
def test_wrong_labels_are_one_error(rankers, labels, message):
    with pytest.raises(ValueError, match=message):
        fusion_weights(rankers, labels)


def test_runs_have_their_own_queries():
    with pytest.raises(ValueError, match="qid must be None for runs"):
        fusion_weights([{"q": {"a": 1.0}}], {"q": {"a": 1}}, ["q"])


@pytest.mark.parametrize("method", METHODS)
def test_what_no_ranker_retrieved_does_not_change_how_the_others_are_fused(method):
    draw = np.random.default_rng(1)
    labels, qid = draw.integers(0, 3, 150), np.repeat(np.arange(30), 5)
    rankers = labels + draw.normal(size=(2, 150)) * [[0.5], [5.0]]
    rankers[1, draw.random(150) < 0.3] = np.nan
    weights = fusion_weights(rankers, labels, qid, method=method)
    assert weights[0] != 0.5
    lost = np.c_[rankers, np.full((2, 240), np.nan)], np.r_[labels, np.zeros(240)]
    more = fusion_weights(*lost, np.r_[qid, np.repeat(np.arange(30), 8)], method=method)
    assert more.tolist() == weights.tolist()


def test_a_row_of_a_table_is_a_ranker():
    table = np.array([[3.0, 2.0, 1.0], [0.1, 0.9, np.nan]])
    for rows in (pd.DataFrame(table, columns=[*"abc"]), pl.DataFrame(table)):
        assert fuse(rows).tolist() == fuse(table).tolist()


def test_a_metric_must_be_known_and_higher_for_better_rankings():
    for metric in ("ndgc@10", "arp"):
        with pytest.raises(ValueError, match="metric must be"):
            fusion_weights([[1.0, 2.0]], [1, 0], metric=metric)


@pytest.mark.parametrize("scores", [[np.nan], [np.inf], [[1.0]], ["x"]])
def test_scores_to_normalize_must_be_finite_numbers(scores):
    with pytest.raises(ValueError, match="scores must"):
        normalize_scores(scores)
    with pytest.raises(ValueError, match="method must be"):
        normalize_scores([1.0], method="minmax")
