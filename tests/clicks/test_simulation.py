"""Simulated users: their closed forms against all outcomes, and their logs against those."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltr.clicks import Cascade, DependentClick, PositionBased, simulate_clicks
from ltr.losses import PositionBias

ATTRACTION = [0.1, 0.5, 0.9]
LOOKS = PositionBias(examination=[1.0, 0.5, 0.25])
CONTINUATION = (0.9, 0.3)
USERS = {
    "position-based": PositionBased(ATTRACTION, LOOKS),
    "cascade": Cascade(ATTRACTION),
    "dependent": DependentClick(ATTRACTION, CONTINUATION),
}
GRADES = [2, 0, 1, 2]


def outcomes(name, grades):
    """Return the probability of each pattern of clicks, by the story that defines the user."""
    attracts = [ATTRACTION[grade] for grade in grades]
    found = dict.fromkeys(product([0, 1], repeat=len(grades)), 0.0)
    for drawn in product([0, 1], repeat=3 * len(grades)):
        looks, likes, goes_on = np.reshape(drawn, (3, -1))
        chance, clicks, reads = 1.0, [], True
        for k, attract in enumerate(attracts):
            look = [1.0, 0.5, 0.25, 0.25][k]
            stay = CONTINUATION[min(k, 1)]
            chance *= attract if likes[k] else 1 - attract
            chance *= look if looks[k] else 1 - look
            chance *= stay if goes_on[k] else 1 - stay
            seen = bool(looks[k]) if name == "position-based" else reads
            clicks.append(int(seen and likes[k]))
            if clicks[-1]:
                reads = bool(goes_on[k]) and name != "cascade"
        found[tuple(clicks)] += chance
    return found


@pytest.mark.parametrize("name", USERS)
def test_probabilities_and_logs_are_those_of_all_outcomes(name: str):
    user, expected = USERS[name], outcomes(name, GRADES)
    marginal = np.sum([chance * np.array(clicks) for clicks, chance in expected.items()], axis=0)
    np.testing.assert_allclose(user.click_probabilities(GRADES), marginal, atol=1e-7)
    sessions = 40_000
    log = simulate_clicks(user, GRADES, [4.0, 3.0, 2.0, 1.0], sessions=sessions)
    clicks = log["click"].reshape(sessions, 4)
    for pattern, chance in expected.items():
        share = (clicks == pattern).all(-1).mean()
        assert abs(share - chance) <= 5 * (chance * (1 - chance) / sessions) ** 0.5, pattern


def test_users_agree_where_their_stories_do():
    grades = np.random.default_rng(0).integers(0, 3, (20, 6))
    everywhere = PositionBased(ATTRACTION, PositionBias(power=0.0)).click_probabilities(grades)
    for user, expected in [
        (DependentClick(ATTRACTION, 1.0), everywhere),
        (DependentClick(ATTRACTION, 0.0), Cascade(ATTRACTION).click_probabilities(grades)),
        (
            DependentClick(ATTRACTION, [0.3]),
            DependentClick(ATTRACTION, 0.3).click_probabilities(grades),
        ),
    ]:
        np.testing.assert_allclose(user.click_probabilities(grades), expected)
    assert PositionBased(ATTRACTION).click_probabilities(np.zeros((3, 0))).shape == (3, 0)


def test_a_log_shows_each_list_in_the_order_of_the_scores():
    labels, qid = [0, 1, 2, 1, 0, 2], ["b", "a", "b", "a", "b", "c"]
    user = Cascade([0.0, 0.0, 1.0])
    log = simulate_clicks(user, labels, [1.0, 5.0, 1.0, 7.0, 3.0, 0.0], qid, sessions=300, top_k=2)
    shown = {"a": [3, 1], "b": [4, 0], "c": [5]}  # of equal scores the first row
    assert {*log["qid"]} == {*shown}
    for session in range(300):
        own = log["session"] == session
        (name,) = {*log["qid"][own]}
        assert log["row"][own].tolist() == shown[name]
        assert log["position"][own].tolist() == [*range(1, len(shown[name]) + 1)]
    assert (log["click"] == (log["row"] == 5)).all()
    assert (np.diff(log["session"]) >= 0).all()


def test_several_rankers_and_swaps_move_documents_by_chance():
    scores = [[3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.0]]
    log = simulate_clicks(Cascade([0.5]), [0] * 4, scores, sessions=4000)
    orders = Counter(map(tuple, log["row"].reshape(-1, 4)))
    assert orders.keys() == {(0, 1, 2, 3), (3, 2, 1, 0)}
    assert abs(orders[0, 1, 2, 3] - 2000) < 5 * 1000**0.5

    log = simulate_clicks(
        Cascade([0.5]),
        [0] * 5,
        [3.0, 2.0, 1.0, 0.0, 9.0],
        [1, 1, 1, 1, 0],
        sessions=8000,
        swaps=True,
    )
    alone = log["qid"] == 0
    assert (log["swap"][alone] == 0).all()
    rows, swap = log["row"][~alone].reshape(-1, 4), log["swap"][~alone].reshape(-1, 4)
    assert (swap == swap[:, :1]).all()
    for k in (2, 3, 4):
        mine = rows[swap[:, 0] == k]
        exchanged = [*range(4)]
        exchanged[0], exchanged[k - 1] = k - 1, 0
        moved = (mine == exchanged).all(-1)
        assert (moved | (mine == range(4)).all(-1)).all()
        assert abs(moved.sum() - len(mine) / 2) < 5 * (len(mine) / 4) ** 0.5
        assert abs(len(mine) - len(rows) / 3) < 5 * (len(rows) * 2 / 9) ** 0.5


@given(
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    sessions=st.integers(1, 20),
    top_k=st.none() | st.integers(1, 5),
    swaps=st.booleans(),
    seed=st.integers(0, 5),
)
def test_any_log_is_whole_and_seeded(lengths, sessions, top_k, swaps, seed):
    qid = np.repeat(np.arange(len(lengths)), lengths)
    draw = np.random.default_rng(seed)
    draw.shuffle(qid)
    labels, scores = draw.integers(0, 3, len(qid)), draw.integers(0, 3, (2, len(qid)))
    given = {"qid": qid, "sessions": sessions, "top_k": top_k, "swaps": swaps}
    log = simulate_clicks(USERS["dependent"], labels, scores, seed=seed, **given)
    again = simulate_clicks(USERS["dependent"], labels, scores, seed=seed, **given)
    assert all((log[name] == again[name]).all() for name in log)
    assert np.unique(log["session"]).tolist() == [*range(sessions)]
    for session in range(sessions):
        own = log["session"] == session
        (query,) = {*log["qid"][own]}
        assert own.sum() == min(lengths[query], top_k or 9)
        assert {*log["row"][own]} <= {*np.flatnonzero(qid == query)}
        assert len({*log["row"][own]}) == own.sum()
        assert log["position"][own].tolist() == [*range(1, own.sum() + 1)]
    assert (log["qid"] == qid[log["row"]]).all()
    assert {*log["click"]} <= {0, 1}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": [0, 3]}, "labels must be whole numbers from 0 to 2, .* got 3 in row 1"),
        ({"labels": [0.5, 0]}, "labels must be whole numbers .* got 0.5 in row 0"),
        ({"labels": [0, float("nan")]}, "labels must be whole numbers .* got nan in row 1"),
        ({"labels": [], "scores": []}, r"labels must have the shape \(rows,\), with rows, got"),
        ({"scores": [1.0]}, r"scores must have the shape \(rows,\) or \(rankers, rows\) for 2"),
        ({"scores": [1.0, float("nan")]}, "scores must not be NaN, got NaN in row 1"),
        ({"qid": [1]}, "qid must have one value for each of the 2 rows"),
        ({"sessions": 0}, "sessions must be a whole number >= 1, got 0"),
        ({"top_k": 0}, "top_k must be None or a whole number >= 1, got 0"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
        ({"swaps": 1}, "swaps must be True or False, got 1"),
        ({"labels": 1, "scores": 1.0}, "labels must have at least one dimension, got 1"),
        ({"user": "Cascade"}, "user must be a PositionBased, Cascade or DependentClick, got 'Casc"),
    ],
)
def test_bad_input_is_one_error(changed, message):
    given = {"labels": [0, 1], "scores": [1.0, 0.0], "qid": None, "sessions": 3} | changed
    with pytest.raises(ValueError, match=message):
        simulate_clicks(**{"user": Cascade(ATTRACTION)} | given)


def test_users_take_probabilities_only():
    for make in (Cascade, DependentClick, PositionBased):
        for bad in ([], [0.5, 1.5], [-0.1], [float("nan")], [[0.5]]):
            with pytest.raises(ValueError, match=r"attraction must be probabilities in \[0, 1\]"):
                make(bad)
    for bad in (1.5, [0.5, -1.0], []):
        with pytest.raises(ValueError, match=r"continuation must be probabilities in \[0, 1\]"):
            DependentClick(ATTRACTION, bad)
    for bad in (None, [1.0, 0.5]):
        with pytest.raises(ValueError, match="bias must be a PositionBias, got"):
            PositionBased(ATTRACTION, bad)


def test_numpy_scalars_are_options():
    user = Cascade([np.float32(0.25), np.float32(0.5)])
    options = {"sessions": 7, "top_k": 2, "seed": 3}
    given = {name: np.int8(value) for name, value in options.items()}
    labels, scores = [0, 1, 1], [3.0, 1.0, 2.0]
    found = simulate_clicks(user, labels, scores, **given, swaps=np.True_)
    expected = simulate_clicks(Cascade([0.25, 0.5]), labels, scores, **options, swaps=True)
    for name, column in expected.items():
        np.testing.assert_array_equal(found[name], column)
