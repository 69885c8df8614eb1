"""The log of one fixed ranker: no bias over all patterns of clicks, coverage, support."""

import itertools

import numpy as np
import pytest

from ltr.clicks import evaluate_clickwise, evaluate_log

LOOKS = np.array([1.0, 0.5, 0.25])
RELEVANCE = np.array([0.5, 1.0, 0.25])
REWARD = np.array([3.0, 1.0, 10.0])
NEW_AT = np.array([2, 0, 1])  # the position, from 0, that the new ranker gives to each document


def every_pattern():
    """A log of one ranking in which each pattern of clicks is as frequent as it is probable."""
    chances, sessions = LOOKS * RELEVANCE, []
    for pattern in itertools.product([0, 1], repeat=3):
        times = 256 * np.prod([p if c else 1 - p for c, p in zip(pattern, chances, strict=True)])
        assert times == int(times)
        sessions += [pattern] * int(times)
    count = len(sessions)
    return np.array(sessions).ravel(), np.repeat(np.arange(count), 3), count


@pytest.mark.parametrize("predicted", [REWARD, 0 * REWARD, 2 * REWARD + 1])
def test_the_mean_over_all_clicks_is_the_true_reward_whatever_the_prediction(predicted):
    clicks, session, count = every_pattern()
    logged, new = LOOKS * RELEVANCE, LOOKS[NEW_AT] * RELEVANCE
    found = evaluate_clickwise(
        clicks,
        np.tile(logged, count),
        np.tile(new, count),
        session,
        reward=np.tile(REWARD, count),
        predicted=np.tile(predicted, count),
    )
    for estimate in (found.cips, found.cdr):
        assert estimate.new.mean == pytest.approx((new * REWARD).sum(), rel=1e-12)
        assert estimate.baseline.mean == pytest.approx((logged * REWARD).sum(), rel=1e-12)
        gain = ((new - logged) * REWARD).sum()
        assert estimate.difference.mean == pytest.approx(gain, rel=1e-12)


def test_a_right_prediction_makes_up_for_wrong_probabilities_of_the_log():
    clicks, session, count = every_pattern()
    new = np.tile(LOOKS[NEW_AT] * RELEVANCE, count)
    wrong = np.tile([0.9, 0.1, 0.3], count)
    rewards = np.tile(REWARD, count)
    found = evaluate_clickwise(clicks, wrong, new, session, reward=rewards, predicted=rewards)
    true = (LOOKS[NEW_AT] * RELEVANCE * REWARD).sum()
    assert found.cdr.new.mean == pytest.approx(true)
    assert abs(found.cips.new.mean - true) > 1


def test_propensities_are_enough_for_clicks_and_give_those_of_evaluate_log():
    clicks, session, count = every_pattern()
    looks = np.tile(LOOKS, count), np.tile(LOOKS[NEW_AT], count)
    found = evaluate_clickwise(clicks, *looks, session)
    position = np.tile([1, 2, 3], count)
    other = evaluate_log(-np.tile(NEW_AT, count), clicks, position, session, LOOKS.tolist())
    for name in ("new", "baseline", "difference"):
        np.testing.assert_allclose(getattr(found.cips, name), getattr(other.clicks, name))
    assert found.effective == pytest.approx(
        (w := clicks * looks[1] / looks[0]).sum() ** 2 / (w @ w)
    )


def draw(seed, sessions=1500, queries=300):
    """Sessions of queries with five documents, always in the same order; rewards of clicks vary."""
    rng = np.random.default_rng(seed)
    looks = 1 / np.arange(1, 6)
    relevance = rng.uniform(0.1, 0.9, (queries, 5))
    worth = np.exp(rng.normal(size=(queries, 5)))
    new_at = np.argsort(np.argsort(-relevance * worth))
    query = rng.integers(0, queries, sessions)
    logged, new = looks * relevance, looks[new_at] * relevance
    clicks = rng.random((sessions, 5)) < logged[query]
    reward = worth[query] * rng.exponential(size=(sessions, 5))
    reward[~clicks] = np.nan  # nobody knows what other documents would have brought
    true = (new * worth).sum(1)
    given = [clicks, logged[query], new[query], np.repeat(np.arange(sessions), 5).reshape(-1, 5)]
    options = {"reward": reward, "predicted": worth[query], "qid": np.repeat(query, 5)}
    return [x.ravel() for x in given], {k: x.ravel() for k, x in options.items()}, true


@pytest.mark.slow
def test_intervals_hold_the_reward_of_all_queries():
    population = np.mean([draw(10_000 + seed)[2].mean() for seed in range(200)])
    inside, lengths = [], []
    for seed in range(300):
        given, options, _ = draw(seed)
        found = evaluate_clickwise(*given, **options)
        intervals = found.cips.new, found.cdr.new
        inside.append([x.low <= population <= x.high for x in intervals])
        lengths.append([x.high - x.low for x in intervals])
    assert np.all(np.mean(inside, 0) > 0.91)
    assert np.all(np.mean(inside, 0) < 0.985)
    cips, cdr = np.mean(lengths, 0)
    assert cdr < 0.9 * cips  # with a good prediction of rewards


def test_documents_that_were_never_shown_are_refused():
    clicks, session = [1, 0, 0, 1, 0, 0], [0, 0, 0, 1, 1, 1]
    logged = [1.0, 0.5, 0.0] * 2
    with pytest.raises(ValueError, match=r"no support for 2 rows, 20\.0 % of the new.*row 2"):
        evaluate_clickwise(clicks, logged, [1.0, 0.0, 0.25] * 2, session)
    found = evaluate_clickwise(clicks, logged, [0.5, 1.0, 0.0] * 2, session)
    assert found.cips.new.mean == 0.5
    assert "(largest: 0.5)" in str(found)


GIVEN = {"clicks": [1, 0, 1, 0], "logged": [0.5] * 4, "new": [0.4] * 4, "session": [0, 0, 1, 1]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clicks": [0] * 4}, "at least one click"),
        ({"clicks": [-1, 0, 0, 0]}, "clicks must be finite and >= 0, got -1 in row 0"),
        ({"logged": [0.5] * 3}, r"logged must have the shape \(4,\)"),
        ({"logged": [1.5] * 4}, r"logged must be in \[0, 1\], got 1\.5 in row 0"),
        ({"new": [np.nan] * 4}, r"new must be in \[0, 1\], got nan in row 0"),
        ({"logged": [0.0, 1, 1, 1], "new": [0.0, 1, 1, 1]}, "logged must be above 0 where"),
        ({"session": [0] * 4}, "at least two sessions or queries"),
        ({"session": [0]}, "session must have one value"),
        ({"reward": [1.0]}, r"reward must have the shape \(4,\)"),
        ({"reward": [np.nan, 1, 1, 1]}, "reward must be finite, got nan in row 0"),
        ({"predicted": [1, np.nan, 1, 1]}, "predicted must be finite, got nan in row 1"),
        ({"qid": [1] * 3}, "qid must have one value"),
        ({"confidence": 2}, "confidence must lie"),
    ],
)
def test_wrong_input_is_one_line(change, message):
    with pytest.raises(ValueError, match=message) as error:
        evaluate_clickwise(**(GIVEN | change))
    assert "\n" not in str(error.value)
