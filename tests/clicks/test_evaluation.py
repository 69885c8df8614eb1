"""A new ranker from the log of another: unbiased over all patterns of clicks, and its intervals."""

import itertools
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ltr.clicks import PositionBased, evaluate_log, simulate_clicks
from ltr.losses import PositionBias

LOOKS = [1.0, 0.5, 0.25]
RELEVANCE = np.array([0.5, 1.0, 0.25])
DISCOUNT = 1 / np.log2([2, 3, 4])
ORDERS = list(itertools.permutations([1, 2, 3]))


def every_pattern(shown_at):
    """A log in which each pattern of clicks is as frequent as it is probable."""
    chances = [Fraction(LOOKS[k - 1] * g) for k, g in zip(shown_at, RELEVANCE, strict=True)]
    sessions = []
    for pattern in itertools.product([0, 1], repeat=3):
        chance = Fraction(1)
        for clicked, p in zip(pattern, chances, strict=True):
            chance *= p if clicked else 1 - p
        times = chance * 4096
        assert times.denominator == 1
        sessions += [pattern] * int(times)
    clicks, count = np.array(sessions), len(sessions)
    return {
        "clicks": clicks.ravel(),
        "position": np.tile(shown_at, count),
        "session": np.repeat(np.arange(count), 3),
    }


@pytest.mark.parametrize("shown_at", ORDERS[::2])
@pytest.mark.parametrize("top_k", [None, 2])
def test_the_expected_value_over_all_clicks_is_the_true_one(shown_at, top_k):
    log = every_pattern(shown_at)
    for order in ORDERS:
        scores = np.tile(-np.array(order), len(log["clicks"]) // 3)
        found = evaluate_log(scores, bias=LOOKS, top_k=top_k, **log)
        for ranks, which in ((order, "new"), (shown_at, "baseline")):
            at, seen = np.array(ranks) - 1, np.array(ranks) <= (top_k or 3)
            clicks = (RELEVANCE * np.array(LOOKS)[at] * seen).sum()
            dcg = (RELEVANCE * DISCOUNT[at] * seen).sum()
            total = RELEVANCE.sum()
            assert getattr(found.clicks, which).mean == pytest.approx(clicks, rel=1e-12)
            assert getattr(found.dcg, which).mean == pytest.approx(dcg, rel=1e-12)
            assert getattr(found.looks, which).mean == pytest.approx(clicks / total, rel=1e-12)
            assert getattr(found.ndcg, which).mean == pytest.approx(dcg / total, rel=1e-12)
        for estimate in (found.clicks, found.looks, found.dcg, found.ndcg):
            difference = estimate.new.mean - estimate.baseline.mean
            assert estimate.difference.mean == pytest.approx(difference, abs=1e-12)


def test_by_the_definition_with_weights_that_are_clipped():
    random = np.random.default_rng(0)
    session = np.repeat(np.arange(50), 4)
    position = np.tile([1, 2, 3, 4], 50)
    clicks, scores = random.integers(0, 2, 200), random.normal(size=200)
    found = evaluate_log(scores, clicks, position, session, PositionBias(), top_k=3, clip=2.5)
    dcg, looks, weights = [], [], []
    for rows in np.split(np.arange(200), 50):
        order = rows[np.argsort(-scores[rows])]
        weight = clicks[order] * np.minimum(position[order], 2.5)
        dcg.append((weight[:3] * DISCOUNT).sum())
        looks.append((weight[:3] / [1, 2, 3]).sum())
        weights.append(weight.sum())
    assert found.dcg.new.mean == pytest.approx(np.mean(dcg))
    assert found.clicks.new.mean == pytest.approx(np.mean(looks))
    assert found.ndcg.new.mean == pytest.approx(np.sum(dcg) / np.sum(weights))
    assert found.looks.new.mean == pytest.approx(np.sum(looks) / np.sum(weights))
    error = np.std(dcg, ddof=1) / np.sqrt(50)
    low, high = found.dcg.new[1:]
    assert [low, high] == pytest.approx(np.mean(dcg) + 1.959964 * error * np.array([-1, 1]))
    weight = clicks * np.minimum(position, 2.5)
    assert found.effective == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
    assert (found.sessions, found.units, found.clicked) == (50, 50, clicks.sum())


def test_the_interval_of_a_ratio_is_that_of_the_jackknife():
    random = np.random.default_rng(1)
    session = np.repeat(np.arange(400), 3)
    position, scores = np.tile([1, 2, 3], 400), random.normal(size=1200)
    clicks = random.random(1200) < 0.4

    def ndcg(left):
        return evaluate_log(scores[left], clicks[left], position[left], session[left], LOOKS).ndcg

    means = np.array([ndcg(session != out).new.mean for out in range(400)])
    error = np.sqrt(399 / 400 * ((means - means.mean()) ** 2).sum())
    found = ndcg(session >= 0).new
    assert found.high - found.mean == pytest.approx(1.959964 * error, rel=0.02)


def test_queries_are_the_units_of_the_intervals_if_they_are_given():
    random = np.random.default_rng(2)
    sessions, query = 300, random.integers(30, size=300)
    session, position = np.repeat(np.arange(sessions), 3), np.tile([1, 2, 3], sessions)
    favorite = random.integers(1, 4, size=30)  # the document that the users of a query want
    clicks = position == np.repeat(favorite[query], 3)
    log = {"clicks": clicks, "position": position, "session": session, "bias": [1.0]}
    by_session = evaluate_log(-position, **log)
    by_query = evaluate_log(-position, qid=np.repeat(query, 3), **log)
    assert by_query.dcg.new.mean == by_session.dcg.new.mean
    assert by_query.units == len(set(query))
    width = by_session.dcg.new.high - by_session.dcg.new.low
    assert by_query.dcg.new.high - by_query.dcg.new.low > 2 * width
    alone = evaluate_log(-position, qid=session, **log)
    assert alone.ndcg == by_session.ndcg


def test_intervals_cover_the_truth():
    draws, sessions, n = 300, 300, 5
    random = np.random.default_rng(3)
    looks = 1 / np.arange(1, n + 1) ** 0.7
    relevance = np.array([0.1, 0.5, 0.2, 0.7, 0.3])
    position, session = np.tile(np.arange(1, n + 1), sessions), np.repeat(np.arange(sessions), n)
    scores = np.tile(relevance, sessions)
    order = np.sort(relevance)[::-1]
    discount = 1 / np.log2(np.arange(2, n + 2))
    true = {"clicks": order @ looks, "dcg": order @ discount}
    true |= {"looks": true["clicks"] / order.sum(), "ndcg": true["dcg"] / order.sum()}
    lift = true["clicks"] - relevance @ looks
    inside = dict.fromkeys([*true, "lift"], 0)
    for _ in range(draws):
        clicks = random.random(sessions * n) < np.tile(relevance * looks, sessions)
        found = evaluate_log(scores, clicks, position, session, looks)
        for name, value in true.items():
            low, high = getattr(found, name).new[1:]
            inside[name] += low <= value <= high
        inside["lift"] += found.clicks.difference.low <= lift <= found.clicks.difference.high
    # 95 % of 300 draws, whose standard error is 1.3 %
    assert all(0.92 <= count / draws <= 0.98 for count in inside.values()), inside


@pytest.mark.parametrize("options", [{}, {"clip": 3.0}, {"top_k": 2}], ids=str)
def test_uncertain_propensities_widen_the_intervals(options):
    log, random = every_pattern((2, 1, 3)), np.random.default_rng(5)
    log = {name: values[:900] for name, values in log.items()}
    scores, baseline = random.normal(size=(2, 900))
    known, guessed = (PositionBias(examination=[0.9, 0.5, 0.25]) for _ in range(2))
    guessed.draws = known.propensities.numpy() * np.exp(0.02 * random.normal(size=(400, 3)))
    options = {"baseline": baseline} | options
    draws = [
        evaluate_log(scores, bias=PositionBias(examination=draw), **log, **options)
        for draw in guessed.draws
    ]
    alone, both = (evaluate_log(scores, bias=x, **log, **options) for x in (known, guessed))
    for name in ("clicks", "looks", "dcg", "ndcg"):
        for part in ("new", "baseline", "difference"):
            wide, narrow, *several = (
                getattr(getattr(x, name), part) for x in (both, alone, *draws)
            )
            assert wide.mean == narrow.mean
            by_draws = 1.959964 * np.std([each.mean for each in several], ddof=1)
            expected = np.hypot(narrow.high - narrow.mean, by_draws)
            assert wide.high - wide.mean == pytest.approx(expected, rel=0.01)


def test_an_estimate_of_the_propensities_brings_its_resamples():
    random, qid = np.random.default_rng(6), np.repeat(np.arange(50), 4)
    labels, rankers = random.integers(0, 2, size=200), random.normal(size=(2, 200))
    log = simulate_clicks(PositionBased([0.1, 0.8]), labels, rankers, qid, sessions=2000)
    rows = log["click"], log["position"], log["qid"], log["row"]
    bias = PositionBias.estimate(*rows, resamples=40)
    assert bias.draws.shape == (40, 4)
    low, high = np.array(bias.interval).T
    assert ((bias.draws >= low) & (bias.draws <= high)).mean() > 0.9
    assert PositionBias.estimate(*rows, resamples=0).draws is None
    columns = labels[log["row"]], log["click"], log["position"], log["session"]
    wide = evaluate_log(*columns, bias).dcg.new
    narrow = evaluate_log(*columns, PositionBias(examination=bias.examination)).dcg.new
    assert wide.mean == narrow.mean
    assert wide.high - wide.low > 1.1 * (narrow.high - narrow.low)


def test_resamples_without_all_positions_are_left_out_unless_they_are_most():
    bias = PositionBias(examination=LOOKS)
    bias.draws = np.array([[1, 0.4, 0.2], [1, 0.6, 0.3], [1, 0.5, np.nan], [1, 0.5, 0]])
    found = evaluate_log(**GOOD | {"bias": bias})
    bias.draws = bias.draws[:2]
    assert evaluate_log(**GOOD | {"bias": bias}) == found
    bias.draws = np.array([[1, 0.5, np.nan], [1, 0.5, 0.3], [1, np.nan, 0.3]])
    with pytest.raises(ValueError, match="bias has 1 of 3 resamples that tell all positions"):
        evaluate_log(**GOOD | {"bias": bias})
    bias.draws = np.array([[1, 0.5, 0.3]])  # one has no variance
    with pytest.raises(ValueError, match=r"bias has 1 of 1 resamples .* or more resamples"):
        evaluate_log(**GOOD | {"bias": bias})


@pytest.mark.slow  # a bootstrap of propensities for each of 60 logs
def test_intervals_with_estimated_propensities_cover_the_truth():
    inside, queries, user = [], 200, PositionBased([0.05, 0.8])
    qid = np.repeat(np.arange(queries), 10)
    train = qid < queries // 2
    looks, discount = 1 / np.arange(1, 11), 1 / np.log2(np.arange(2, 12))
    for seed in range(60):
        price, age, noise = np.random.default_rng(seed).normal(size=(3, len(qid)))
        labels = (price + noise > 0.8).astype(int)
        rankers = np.stack([age, age + price])
        log = simulate_clicks(user, labels, rankers, qid, sessions=3000, seed=seed)
        rows = log["click"], log["position"], log["qid"], log["row"]
        own = train[log["row"]]
        bias = PositionBias.estimate(*(x[own] for x in rows), resamples=100)
        columns = (log[name][~own] for name in ("click", "position", "session"))
        found = evaluate_log(price[log["row"][~own]], *columns, bias, qid=log["qid"][~own])
        attracts = np.array(user.attraction)[labels][~train]
        attracts = attracts[np.lexsort((-price[~train], qid[~train]))].reshape(-1, 10)
        relevance, clicks, dcg = ((attracts * x).sum(-1).mean() for x in (1, looks, discount))
        true = {"clicks": clicks, "dcg": dcg}
        true |= {"looks": clicks / relevance, "ndcg": dcg / relevance}
        for name, value in true.items():
            low, high = getattr(found, name).new[1:]
            inside.append((name, low <= value <= high))
    for metric in ("clicks", "looks", "dcg", "ndcg"):
        # without the draws it is 88 %, 75 %, 67 % and 98 %
        assert np.mean([each for name, each in inside if name == metric]) >= 0.9, metric


def test_a_better_ranker_of_a_simulated_log_is_found_better():
    random = np.random.default_rng(4)
    labels, qid = random.integers(0, 2, size=1000), np.repeat(np.arange(100), 10)
    user = PositionBased([0.05, 0.6], PositionBias(0.5))
    old, new = random.normal(size=1000), labels + random.normal(size=1000)
    log = pd.DataFrame(simulate_clicks(user, labels, old, qid, sessions=4000, seed=1))
    rows = log["click"], log["position"], log["session"], user.bias
    found = evaluate_log(new[log["row"]], *rows, qid=log["qid"])
    order = np.lexsort((-new, qid))
    true = user.click_probabilities(labels[order].reshape(100, 10)).sum(-1).mean()
    assert found.clicks.new.low <= true <= found.clicks.new.high
    assert found.clicks.difference.low > 0
    assert found.ndcg.difference.low > 0
    assert found.clicks.baseline.mean == pytest.approx(log["click"].sum() / 4000)


def test_the_new_order_takes_the_positions_that_were_shown():
    # the log kept the positions 2 and 5 alone
    log = {"clicks": [0, 1, 0, 1], "position": [2, 5, 5, 2], "session": [7, 7, 9, 9]}
    found = evaluate_log([0, 1, 0, 1], **log, bias=PositionBias())
    assert found.clicks.new.mean == pytest.approx((5 / 2 + 2 / 2) / 2)
    assert found.dcg.new.mean == pytest.approx((5 + 2) / np.log2(3) / 2)


def test_two_new_rankers_are_compared_on_the_same_clicks():
    log = every_pattern((2, 1, 3))
    one, other = (np.tile(x, len(log["clicks"]) // 3) for x in ([1, 2, 3], [3, 1, 2]))
    found, swapped = (
        evaluate_log(a, bias=LOOKS, baseline=b, **log) for a, b in ((one, other), (other, one))
    )
    for name in ("clicks", "looks", "dcg", "ndcg"):
        alone = getattr(evaluate_log(one, bias=LOOKS, **log), name)
        assert getattr(found, name).new == alone.new == getattr(swapped, name).baseline
        back = getattr(swapped, name).difference
        np.testing.assert_allclose(getattr(found, name).difference, [-back[0], -back[2], -back[1]])
    same = evaluate_log(one, bias=LOOKS, baseline=one, **log)
    assert same.ndcg.difference == same.clicks.difference == (0, 0, 0)


row = st.tuples(
    st.floats(allow_nan=False), st.integers(0, 1), st.integers(1, 12), st.integers(0, 3)
)


rows_of_sessions = st.lists(row, min_size=2, max_size=20, unique_by=lambda row: row[2:])


@given(rows=rows_of_sessions, cutoff=st.sampled_from([None, 1, 3]))
@settings(max_examples=60, deadline=None)
def test_any_log_has_finite_intervals_around_its_estimates(rows, cutoff):
    scores, clicks, position, session = (list(column) for column in zip(*rows, strict=True))
    clicks[0], session[0], session[1] = 1, 4, 5
    found = evaluate_log(scores, clicks, position, session, PositionBias(), top_k=cutoff)
    for estimate in (found.clicks, found.looks, found.dcg, found.ndcg):
        for mean, low, high in estimate:
            assert np.isfinite([mean, low, high]).all()
            assert low <= mean <= high
    for each in (found.ndcg.new, found.looks.new, found.ndcg.baseline):
        assert 0 <= each.mean <= 1 + 1e-6
    assert found.clicked == sum(clicks)
    assert 1 - 1e-9 <= found.effective <= found.clicked + 1e-9


def test_equal_scores_are_in_the_order_of_the_rows():
    log = {"clicks": [0, 1, 1, 0], "position": [1, 2, 1, 2], "session": [0, 0, 1, 1]}
    found = evaluate_log([0, 0, 0, 0], **log, bias=LOOKS)
    assert found.ndcg.difference.mean == 0
    infinite = evaluate_log([-np.inf, np.inf, np.inf, 0], **log, bias=LOOKS)
    assert infinite.ndcg.new.mean == 1


def test_sessions_without_a_click_count_and_rows_may_be_in_any_order():
    log = {
        "clicks": np.array([1, 0, 0, 0, 0, 1, 0, 1]),
        "position": np.array([1, 2, 1, 2, 1, 2, 2, 1]),
        "session": np.array(["a", "a", "b", "b", "c", "c", "d", "d"]),
    }
    scores = np.array([1.0, 2, 3, 4, 5, 6, 7, 8])
    found = evaluate_log(scores, **log, bias=LOOKS)
    assert found.clicks.baseline.mean == 3 / 4
    order = np.random.default_rng(0).permutation(8)
    again = evaluate_log(scores[order], **{k: v[order] for k, v in log.items()}, bias=LOOKS)
    assert str(again) == str(found)
    tensors = {k: torch.tensor(log[k]) for k in ("clicks", "position")}
    found_again = evaluate_log(scores, **tensors, session=pd.Series(log["session"]), bias=LOOKS)
    assert str(found_again) == str(found)


def test_a_wrong_factor_of_all_propensities():
    log = every_pattern((2, 1, 3))
    scores = np.tile([3, 2, 1], len(log["clicks"]) // 3)
    right = evaluate_log(scores, bias=LOOKS, **log)
    half = evaluate_log(scores, bias=[x / 2 for x in LOOKS], **log)
    np.testing.assert_allclose(half.clicks, right.clicks)
    np.testing.assert_allclose(half.ndcg, right.ndcg)
    np.testing.assert_allclose(half.dcg, 2 * np.array(right.dcg))
    np.testing.assert_allclose(half.looks, np.array(right.looks) / 2)


GOOD = {
    "scores": [1.0, 2, 1, 2],
    "clicks": [1, 0, 0, 1],
    "position": [1, 2, 1, 2],
    "session": [0, 0, 1, 1],
    "bias": LOOKS,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [1, np.nan, 1, 2]}, "scores must not be NaN, got NaN in row 1"),
        ({"clicks": [0, 0, 0, 0]}, "clicks must have at least one click, got none"),
        ({"clicks": [0, -1, 0, 0]}, "clicks must be finite and >= 0, got -1 in row 1"),
        ({"clicks": [0, 1, np.nan, 0]}, "clicks must be finite and >= 0, got nan in row 2"),
        ({"clicks": [0, 1]}, r"position must have the shape \(2,\), got \(4,\)"),
        ({"position": [1, 0, 1, 2]}, "position must be finite and >= 1, got 0 in row 1"),
        ({"position": [1, 2, 1, 1.5]}, "position must be whole, got 1.5 in row 3"),
        ({"position": [1, 2, np.inf, 1]}, "position must be finite and >= 1, got inf in row 2"),
        ({"session": [0, 0, 0, 0]}, "at least two sessions are needed for intervals, got one"),
        ({"qid": [0, 0, 0, 0]}, "at least two queries are needed for intervals, got one"),
        ({"session": [0, 0, 1]}, "session must have one value for each of the 4 rows"),
        ({"session": ["a", "a", None, "b"]}, "session must name a session in each row, got None"),
        ({"bias": [1.0, 0.0]}, r"examination must lie in \(0, 1\], got \[1.0, 0.0\]"),
        ({"bias": [1.0, np.nan]}, r"examination must lie in \(0, 1\]"),
        ({"bias": 0.5}, r"bias must be a PositionBias or propensities \(n,\), got 0.5"),
        ({"bias": ["a"]}, "bias must be an array of numbers, got 'a' in row 0"),
        ({"scores": [1, 2]}, r"scores must have the shape of clicks \(4,\), got \(2,\)"),
        ({"scores": [[1, 2, 1, 2]]}, r"scores must have the shape \(rows,\), got \(1, 4\)"),
        ({"baseline": [1, 2]}, r"baseline must have the shape of clicks \(4,\), got \(2,\)"),
        ({"baseline": [np.nan] * 4}, "baseline must not be NaN, got NaN in row 0"),
        ({"clicks": 1}, r"clicks must have the shape \(rows,\), got \(\)"),
        ({"top_k": 0}, "top_k must be"),
        ({"clip": 0}, "clip must be > 0"),
        ({"confidence": "95%"}, r"confidence must lie in \(0, 1\), got '95%'"),
        ({"confidence": 95}, r"confidence must lie in \(0, 1\), got 95"),
        ({"scores": [], "clicks": [], "position": [], "session": []}, "clicks must have at least"),
    ],
)
def test_what_is_wrong_with_a_log(change, message):
    with pytest.raises(ValueError, match=message):
        evaluate_log(**GOOD | change)


def test_the_query_by_mistake_for_the_session_is_an_error():
    labels, qid = np.tile([1, 0, 1, 0], 50), np.repeat([f"q{i}" for i in range(50)], 4)
    user = PositionBased([0.1, 0.8])
    log = simulate_clicks(user, labels, np.tile([4.0, 3, 2, 1], 50), qid, sessions=500)
    columns = log["row"], log["click"], log["position"]
    assert evaluate_log(*columns, log["session"], PositionBias()).clicks.new.mean < 4
    message = r"position must differ within a session, got 1 in rows \d+ and \d+ of session q\d+: s"
    with pytest.raises(ValueError, match=message):
        evaluate_log(*columns, log["qid"], PositionBias())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position": [1, 2, 3, 3]}, "got 3 in rows 2 and 3 of session b"),
        ({"position": [2, 2, 2, 1]}, "got 2 in rows 0 and 1 of session a"),
        ({"qid": [1, 1, 1, 2]}, "qid must be the same .* in rows 2 and 3 of session b"),
        ({"qid": [7, 8, 7, 8]}, "qid must be the same .* in rows 0 and 1 of session a"),
    ],
)
def test_a_session_is_one_showing_of_one_list(change, message):
    good = GOOD | {"session": np.array(["a", "a", "b", "b"])}
    with pytest.raises(ValueError, match=message):
        evaluate_log(**good | change)


def test_the_printed_table():
    lines = str(evaluate_log(**GOOD, top_k=2, confidence=0.9)).splitlines()
    assert lines[0].split("  ")[-1].strip() == "difference [90%]"
    assert [line.split()[0] for line in lines[1:5]] == ["clicks@2", "looks@2", "DCG@2", "NDCG@2"]
    assert lines[5].startswith("2 sessions, 2 clicks that count as 2 of equal weight")
