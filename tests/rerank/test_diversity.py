"""Diversity: the formula of MMR by brute force, alpha-NDCG's greedy order, and wrong input."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ltr.metrics.functional import alpha_ndcg
from ltr.rerank import diversify, mmr, rank

SMALL = st.integers(-3, 3).map(float)


def brute_mmr(scores, similarity, trade_off, k):
    """The rows in order, by the formula of Carbonell and Goldstein."""
    left, chosen = [*range(len(scores))], []
    while left and len(chosen) < k:
        if not chosen:
            best = max(left, key=lambda i: scores[i])
        else:
            best = max(
                left,
                key=lambda i: (
                    trade_off * scores[i] - (1 - trade_off) * max(similarity[i][j] for j in chosen)
                ),
            )
        chosen.append(best)
        left.remove(best)
    return [*chosen, *sorted(left, key=lambda i: -scores[i])]


def order_of(positions):
    assert positions.dtype == np.int32
    assert sorted(positions.tolist()) == [*range(1, len(positions) + 1)]
    return positions.argsort().tolist()


@given(st.data(), st.integers(1, 7), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_mmr_by_brute_force(data, n, trade_off, k):
    # few values, exact in binary, so that many are tied
    scores = data.draw(st.lists(SMALL, min_size=n, max_size=n))
    rows = st.lists(SMALL, min_size=n, max_size=n)
    similarity = data.draw(st.lists(rows, min_size=n, max_size=n))
    found = mmr(scores, similarity=similarity, trade_off=trade_off, top_k=k)
    assert order_of(found) == brute_mmr(scores, similarity, trade_off, k)


def test_vectors_are_compared_by_their_cosine():
    generator = np.random.default_rng(0)
    scores, vectors = generator.random(30), generator.normal(size=(30, 4))
    vectors[3] = 0
    norms = np.linalg.norm(vectors, axis=1)
    norms[3] = 1
    cosine = vectors @ vectors.T / norms / norms[:, None]
    for k in (None, 1, 12):
        found = mmr(scores, vectors=vectors, top_k=k)
        assert found.tolist() == mmr(scores, similarity=cosine, top_k=k).tolist()
        for scale in (7, 1e-200, 1e300):
            assert mmr(scores, vectors=scale * vectors, top_k=k).tolist() == found.tolist()


def test_a_trade_off_of_one_is_the_order_of_the_scores():
    scores = np.random.default_rng(0).integers(0, 5, 40)
    qid = np.random.default_rng(1).integers(0, 4, 40)
    vectors = np.random.default_rng(2).normal(size=(40, 3))
    assert mmr(scores, qid, vectors=vectors, trade_off=1).tolist() == rank(scores, qid).tolist()


def brute_greedy(scores, topics, alpha, k):
    left, chosen = [*range(len(topics))], []

    def gain(i):
        worth = [np.prod([1 - alpha * topics[j][t] for j in chosen]) for t in range(len(topics[i]))]
        return sum(t * w for t, w in zip(topics[i], worth, strict=True))

    while left and len(chosen) < k:
        best = max(left, key=lambda i: (gain(i), scores[i], -i))
        chosen.append(best)
        left.remove(best)
    return [*chosen, *sorted(left, key=lambda i: -scores[i])]


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.tuples(
            st.lists(SMALL, min_size=n, max_size=n),
            st.lists(
                st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=3, max_size=3),
                min_size=n,
                max_size=n,
            ),
        )
    ),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(1, 8),
)
@settings(max_examples=60, deadline=None)
def test_topics_by_brute_force(lists, alpha, k):
    scores, topics = lists
    found = diversify(scores, topics, alpha=alpha, top_k=k)
    assert order_of(found) == brute_greedy(scores, topics, alpha, k)


TOPICS = [[1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]]

# alpha-nDCG@5 and @10, alpha = 0.5, of these orders: pyndeval 0.0.8, in an environment of its own
NDEVAL = {
    (0, 1, 2, 3, 4, 5): (0.8365715724203264, 0.8365715724203265),
    (4, 0, 2, 1, 3, 5): (1.0, 1.0),  # the order of `diversify`
    (5, 3, 1, 0, 2, 4): (0.4769425379550665, 0.5641346982683112),
}


@pytest.mark.parametrize("order", NDEVAL, ids=str)
def test_alpha_ndcg_is_that_of_ndeval(order):
    scores = torch.zeros(6, dtype=torch.float64)
    scores[[*order]] = torch.arange(6, 0, -1).double()
    for k, expected in zip((5, 10), NDEVAL[order], strict=True):
        found = alpha_ndcg(scores, torch.tensor(TOPICS), top_k=k).item()
        assert found == pytest.approx(expected, abs=1e-12)


def test_the_order_by_topics_is_the_ideal_of_alpha_ndcg():
    assert order_of(diversify([0] * 6, TOPICS)) == [4, 0, 2, 1, 3, 5]
    generator = np.random.default_rng(0)
    for alpha, k in ((0.5, None), (0.5, 3), (0.9, 5), (0.0, None), (1.0, None)):
        topics = generator.integers(0, 2, (8, 10, 4))
        qid = np.repeat(np.arange(8), 10)
        positions = diversify(np.zeros(80), topics.reshape(80, 4), qid, alpha=alpha, top_k=k)
        ranked = -torch.from_numpy(positions.reshape(8, 10)).double()
        assert alpha_ndcg(ranked, torch.from_numpy(topics), alpha=alpha, top_k=k).item() == (
            pytest.approx(1, abs=1e-12)
        )


def test_topics_are_used_up():
    assert order_of(diversify([1, 2, 3], [[0], [0], [1]])) == [2, 1, 0]
    assert order_of(diversify([1, 2, 3], [[1], [1], [1]], alpha=1)) == [2, 1, 0]
    assert order_of(diversify([1, 2, 3], np.zeros((3, 0)))) == [2, 1, 0]


@pytest.mark.parametrize("function", [mmr, diversify])
def test_each_list_on_its_own(function):
    generator = np.random.default_rng(0)
    qid, scores = np.array([*"bacbbacccb"]), generator.random(10)
    columns = generator.random((10, 3))
    given_columns = {"vectors" if function is mmr else "topics": columns}
    found = function(scores, qid=qid, top_k=2, **given_columns)
    for one in "abc":
        own = {name: x[qid == one] for name, x in given_columns.items()}
        assert found[qid == one].tolist() == function(scores[qid == one], top_k=2, **own).tolist()
    none = {name: np.zeros((0, 3)) for name in given_columns}
    assert function([], **none).tolist() == []


SIMILAR = {"similarity": [[1.0, 0.5], [0.5, 1.0]]}


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        ([1.0, 2.0], {}, "vectors or similarity must be given, got neither"),
        ([1.0, 2.0], {**SIMILAR, "vectors": [[1.0], [2.0]]}, "must be given, got both"),
        ([1.0, np.nan], SIMILAR, "scores must not be NaN, got NaN in row 1"),
        ([1.0, np.inf], SIMILAR, "scores must be finite, got inf in row 1"),
        ([1.0], SIMILAR, r"similarity must have the shape \(1, 1\), got \(2, 2\)"),
        ([1.0], {"vectors": [1.0]}, r"vectors must have the shape \(1, columns\), got \(1,\)"),
        ([1.0], {"vectors": [[np.nan]]}, "vectors must be finite, got nan in row 0"),
        ([1.0, 2.0], {**SIMILAR, "top_k": 0}, "top_k must be None or a whole number >= 1, got 0"),
        ([1.0, 2.0], {**SIMILAR, "trade_off": 2}, "trade_off must be <= 1, got 2"),
        ([1.0, 2.0], {**SIMILAR, "trade_off": np.nan}, "trade_off must be >= 0, got nan"),
        ([1.0, 2.0], {**SIMILAR, "qid": [1]}, "qid must have one value for each of the 2 rows"),
    ],
)
def test_wrong_input_of_mmr_is_one_error(scores, options, message):
    with pytest.raises(ValueError, match=message):
        mmr(scores, **options)


@pytest.mark.parametrize(
    ("topics", "options", "message"),
    [
        ([[1.0], [1.5]], {}, r"topics must lie in \[0, 1\], got 1.5 in row 1"),
        ([[1.0], [-1.0]], {}, r"topics must lie in \[0, 1\], got -1 in row 1"),
        ([[1.0], [np.nan]], {}, "topics must be finite, got nan in row 1"),
        ([[1.0]], {}, r"topics must have the shape \(2, columns\), got \(1, 1\)"),
        ([[1.0], [1.0]], {"alpha": -0.1}, "alpha must be >= 0, got -0.1"),
        ([[1.0], [1.0]], {"top_k": 1.5}, "top_k must be None or a whole number >= 1, got 1.5"),
    ],
)
def test_wrong_topics_are_one_error(topics, options, message):
    with pytest.raises(ValueError, match=message):
        diversify([1.0, 2.0], topics, **options)
