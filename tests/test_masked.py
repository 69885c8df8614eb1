"""Masked arrays of numpy: a masked value is missing, and refused where none may be missing."""

from typing import Any

import numpy as np
import pytest

from ltr.clicks import Cascade, PositionBias, evaluate_log, simulate_clicks
from ltr.datasets import ListDataset, query_folds
from ltr.estimators import Blend, NeuralRanker, importance, reliability
from ltr.metrics import compare, mean_interval
from ltr.preferences import PreferenceLoss, bradley_terry
from ltr.reports import evaluate
from ltr.rerank import diversify, fuse, fusion_weights, mmr, normalize_scores, rank

ROWS = 40
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(ROWS, 3))
SCORES, LABELS, QID = X[:, 0], RANDOM.integers(0, 3, ROWS), np.arange(ROWS) // 5
NAMES = np.array([f"d{row}" for row in range(ROWS)])
CLICKS, POSITION = RANDOM.integers(0, 2, ROWS), np.tile(np.arange(1, 6), ROWS // 5)


def masked(values: np.ndarray) -> np.ma.MaskedArray:
    """The values, with row 7 masked, and another value under the mask."""
    mask = np.zeros(values.shape, bool)
    mask[7] = True
    return np.ma.array(values, mask=mask)


def small(**options: Any) -> NeuralRanker:
    return NeuralRanker(members=1, max_epochs=1, validation=0, random_state=0, verbose=0, **options)


REFUSED = {
    "rank scores": lambda: rank(masked(SCORES)),
    "rank list": lambda: rank([1.0, np.ma.masked]),
    "rank qid": lambda: rank(SCORES, masked(QID)),
    "rank names": lambda: rank(SCORES, masked(NAMES)),
    "rank names in a list": lambda: rank([1.0, 2.0], ["a", np.ma.masked]),
    "rank dates": lambda: rank(SCORES, masked(QID.astype("M8[D]"))),
    "evaluate labels": lambda: evaluate(masked(LABELS), SCORES, QID),
    "evaluate scores": lambda: evaluate(LABELS, masked(SCORES), QID),
    "evaluate qid": lambda: evaluate(LABELS, SCORES, masked(QID)),
    "evaluate doc_id": lambda: evaluate(LABELS, SCORES, QID, doc_id=masked(NAMES)),
    "fuse": lambda: fuse([masked(SCORES)]),
    "fusion_weights": lambda: fusion_weights([SCORES, SCORES], masked(LABELS), QID),
    "normalize_scores": lambda: normalize_scores(masked(SCORES)),
    "mmr": lambda: mmr(SCORES, vectors=masked(X)),
    "diversify": lambda: diversify(SCORES, masked(abs(X) / 9)),
    "simulate_clicks": lambda: simulate_clicks(
        Cascade([0.1, 0.5, 0.9]), masked(LABELS), SCORES, QID, sessions=3
    ),
    "propensities": lambda: PositionBias.estimate(masked(CLICKS), POSITION, QID, NAMES),
    "positions": lambda: PositionBias.estimate(CLICKS, masked(POSITION), QID, NAMES),
    "evaluate_log": lambda: evaluate_log(masked(SCORES), CLICKS, POSITION, QID, [1.0] * 5),
    "votes": lambda: bradley_terry(masked(NAMES), NAMES[::-1]),
    "pairs": lambda: PreferenceLoss()(X_scores(), masked(np.zeros((ROWS, 2), np.int64))),
    "features": lambda: ListDataset.from_arrays(masked(X), LABELS, QID),
    "labels": lambda: ListDataset.from_arrays(X, masked(LABELS), QID),
    "lists": lambda: ListDataset.from_arrays(X, LABELS, masked(QID)),
    "constructor": lambda: ListDataset(
        masked(X.astype(np.float32)), None, np.array([0, ROWS]), ["q"]
    ),
    "query_folds": lambda: query_folds(masked(QID)),
    "fit y": lambda: small().fit(X, masked(LABELS), qid=QID),
    "fit qid": lambda: small().fit(X, LABELS, qid=masked(QID)),
    "fit weight": lambda: small().fit(X, LABELS, qid=QID, sample_weight=masked(abs(SCORES))),
    "reliability": lambda: reliability(masked(abs(SCORES) / 9), LABELS > 0),
}


def X_scores() -> Any:
    import torch

    return torch.tensor(SCORES)


@pytest.mark.parametrize("door", REFUSED)
def test_a_masked_value_is_refused(door):
    with pytest.raises(ValueError, match=r"(?i)nan|nat|None|mask|finite|float") as error:
        REFUSED[door]()
    assert "\n" not in str(error.value)


def test_a_masked_feature_is_a_missing_value():
    holes, missing = masked(X), X.copy()
    missing[7] = np.nan
    for ranker in (small(), Blend([small()], validation=0, verbose=0)):
        expected = ranker.fit(missing, LABELS, qid=QID).predict(missing)
        np.testing.assert_array_equal(ranker.predict(holes), expected)
        np.testing.assert_array_equal(ranker.predict([*holes]), expected)
        np.testing.assert_array_equal(ranker.fit(holes, LABELS, qid=QID).predict(holes), expected)
    values = [importance(ranker, x, LABELS, QID, repeats=2).score for x in (holes, missing)]
    assert values[0] == values[1]


def test_a_masked_score_of_a_ranker_was_not_retrieved():
    missing = SCORES.copy()
    missing[7] = np.nan
    expected = fuse([LABELS, missing], QID)
    np.testing.assert_array_equal(fuse([LABELS, masked(SCORES)], QID), expected)
    np.testing.assert_array_equal(fuse(np.ma.array([LABELS, masked(SCORES)]), QID), expected)


def test_a_list_with_a_masked_value_is_left_out():
    missing = SCORES.copy()
    missing[7] = np.nan
    assert mean_interval(masked(SCORES)) == mean_interval(missing)
    assert compare(masked(SCORES), X[:, 1]).left_out == 1


def test_a_mask_that_hides_nothing_changes_nothing():
    np.testing.assert_array_equal(rank(np.ma.array(SCORES), np.ma.array(QID)), rank(SCORES, QID))
