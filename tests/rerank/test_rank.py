"""Positions from 1 of scores: by counting, one function for all, and wrong input."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ltr.estimators import Blend, NeuralRanker
from ltr.rerank import rank


@given(st.lists(st.tuples(st.integers(-2, 2), st.sampled_from("abc")), max_size=12))
def test_a_position_counts_the_rows_before_it(rows):
    scores, qid = [float(score) for score, _ in rows], [one for _, one in rows]
    expected = [
        1
        + sum(
            one == qid[row] and (-score, other) < (-scores[row], row)
            for other, (score, one) in enumerate(zip(scores, qid, strict=True))
        )
        for row in range(len(rows))
    ]
    found = rank(scores, qid)
    assert found.tolist() == expected
    assert found.dtype == np.int32


def test_arrays_of_any_kind():
    scores, expected = [1.0, 3.0, 2.0], [1, 1, 2]
    for qid in (["b", "a", "a"], np.array([7, -1, -1]), pd.Series(["x", "y", "y"])):
        assert rank(scores, qid).tolist() == expected
        assert rank(torch.tensor(scores), qid).tolist() == expected
    assert rank(pd.Series(scores)).tolist() == [3, 1, 2]
    assert rank([-np.inf, np.inf, 0.0]).tolist() == [3, 1, 2]
    assert rank([]).tolist() == rank([], []).tolist() == []


@pytest.mark.parametrize(
    ("scores", "qid", "message"),
    [
        ([1.0, np.nan], None, "scores must not be NaN, got NaN in row 1"),
        ([[1.0]], None, r"scores must have the shape \(rows,\), got \(1, 1\)"),
        (["x"], None, "scores must be an array of numbers"),
        ([1.0], [1, 2], r"qid must have one value for each of the 1 rows, got shape \(2,\)"),
        ([1.0, 2.0], ["a", np.nan], "qid must name a query in each row, got nan in row 1"),
        ([1.0], 3, "qid must be an array, got 3"),
    ],
)
def test_wrong_input_is_one_error(scores, qid, message):
    with pytest.raises(ValueError, match=message):
        rank(scores, qid)


def test_the_estimators_have_these_positions():
    generator = np.random.default_rng(0)
    X, qid = generator.normal(size=(60, 2)).round(1), np.repeat(np.arange(12), 5)
    y = (X[:, 0] > 0).astype(int)
    options = {"members": 1, "max_epochs": 2, "random_state": 0, "verbose": 0}
    ranker = NeuralRanker(**options).fit(X, y, qid=qid)
    rankers = [NeuralRanker(**options), NeuralRanker(**options)]
    blend = Blend(rankers, verbose=0).fit(X, y, qid=qid)
    for one in (ranker, blend):
        assert one.rank(X, qid=qid).tolist() == rank(one.predict(X, qid=qid), qid).tolist()
