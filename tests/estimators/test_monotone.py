"""`NeuralRanker(monotone=...)`: what the fitted ranker promises, and the errors."""

import numpy as np
import pandas as pd
import pytest

from ltr.datasets import MinMaxPerList, TableTransform
from ltr.estimators import Blend, NeuralRanker
from ltr.models import LinearScorer, MLPScorer

MONOTONE = {"price": -1, "rating": 1}


def _table(rows: int = 1200) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "price": rng.lognormal(size=rows),
            "shop": rng.choice(["a", "b", "c"], rows),
            "rating": rng.normal(size=rows),
            "other": rng.normal(size=rows),
        }
    )
    # the price helps half of the rows, which a constraint must not learn
    helps = np.where(table["other"] > 0, 1, -1)
    value = helps * np.log(table["price"]) + table["rating"] + 0.5 * rng.normal(size=rows)
    table.loc[rng.random(rows) < 0.1, "price"] = np.nan
    return table, (value > 0.5).to_numpy().astype(int), np.arange(rows) // 10


def _changes(ranker, table: pd.DataFrame, name: str, missing: bool = False) -> np.ndarray:
    """Return how the scores change along a column, with the others fixed."""
    grid = np.r_[-1e9, np.linspace(-3, 6, 40), 1e9]
    rows = table.loc[table.index.repeat(len(grid))].copy()
    rows[name] = np.tile(grid, len(table))
    scores = np.asarray(ranker.predict(rows), np.float64).reshape(len(table), len(grid))
    return np.diff(scores, axis=1) / np.abs(scores).max()


@pytest.fixture(scope="module")
def fitted() -> tuple[NeuralRanker, NeuralRanker, pd.DataFrame]:
    X, y, qid = _table()
    options = {"members": 2, "max_epochs": 6, "random_state": 0, "verbose": 0}
    free = NeuralRanker(**options).fit(X, y, qid=qid)
    return NeuralRanker(monotone=MONOTONE, **options).fit(X, y, qid=qid), free, X[:60]


@pytest.mark.parametrize("name", MONOTONE)
def test_scores_rise_or_fall_only(fitted, name):
    ranker, _, rows = fitted
    assert (_changes(ranker, rows, name) * MONOTONE[name]).min() >= -1e-6
    assert np.abs(_changes(ranker, rows, name)).max() > 1e-3  # it uses the column


def test_without_the_constraint_it_learns_both(fitted):
    _, free, rows = fitted
    changes = _changes(free, rows, "price")
    assert changes.min() < -1e-3 < 1e-3 < changes.max()


def test_a_saved_ranker_keeps_it(fitted, tmp_path):
    ranker, _, rows = fitted
    ranker.save(tmp_path)
    again = NeuralRanker.load(tmp_path)
    assert again.monotone == MONOTONE
    np.testing.assert_array_equal(again.predict(rows), ranker.predict(rows))


@pytest.mark.usefixtures("short_trials")
def test_dropped_columns_and_arrays():
    X, y, qid = _table()
    numbers = X[["price", "rating", "other"]].to_numpy()
    options = {"members": 1, "max_epochs": 3, "random_state": 0, "verbose": 0}
    ranker = NeuralRanker(monotone={"x1": 1}, columns="useful", **options)
    ranker.fit(numbers, y, qid=qid)
    rows = numbers[:30].repeat(20, axis=0)
    rows[:, 1] = np.tile(np.linspace(-4, 4, 20), 30)
    assert np.diff(ranker.predict(rows).reshape(30, 20), axis=1).min() >= -1e-6


def test_more_training_keeps_it():
    X, y, qid = _table(600)
    ranker = NeuralRanker(monotone=MONOTONE, members=1, random_state=0, verbose=0)
    ranker.partial_fit(X, y, qid=qid).partial_fit(X, y, qid=qid)
    assert (_changes(ranker, X[:20], "rating")).min() >= -1e-6
    ranker.set_params(monotone={"price": -1})
    with pytest.raises(ValueError, match="monotone must be as in the previous training"):
        ranker.partial_fit(X, y, qid=qid)


@pytest.mark.parametrize("array", [False, True])
def test_a_blend_passes_it_to_the_trees(array):
    pytest.importorskip("lightgbm")
    X, y, qid = _table(600)
    monotone = {"x0": -1, "x1": 1} if array else MONOTONE
    X = X[["price", "rating", "other"]].to_numpy() if array else X
    network = NeuralRanker(monotone=monotone, members=1, max_epochs=2, random_state=0, verbose=0)
    blend = Blend(network, verbose=0).fit(X, y, qid=qid)
    directions = blend.rankers_[1].get_params()["monotone_constraints"]
    assert directions == ([-1, 1, 0] if array else [-1, 0, 1, 0])
    if not array:
        for name in MONOTONE:
            assert (_changes(blend, X[:40], name) * MONOTONE[name]).min() >= -1e-6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"monotone": {"prise": -1}}, "got 'prise': did you mean price"),
        ({"monotone": {"shop": 1}}, "got 'shop': "),
        ({"monotone": {"price": 2}}, r"monotone\['price'\] must be 1, 0 or -1, got 2"),
        ({"monotone": {"price": True}}, "got True"),
        ({"monotone": ["price"]}, "monotone must be a dict"),
        ({"monotone": MONOTONE, "scorer": MLPScorer()}, "scorer must be None if monotone is given"),
        ({"monotone": MONOTONE, "transform": TableTransform(MinMaxPerList())}, "does not say"),
    ],
)
def test_wrong_arguments(arguments, message):
    X, y, qid = _table(200)
    with pytest.raises(ValueError, match=message):
        NeuralRanker(max_epochs=1, verbose=0, **arguments).fit(X, y, qid=qid)


def test_no_direction_is_no_constraint():
    X, y, qid = _table(200)
    options = {"members": 1, "max_epochs": 1, "random_state": 0, "verbose": 0}
    free = NeuralRanker(**options).fit(X, y, qid=qid)
    same = NeuralRanker(monotone={"price": 0}, **options).fit(X, y, qid=qid)
    np.testing.assert_array_equal(free.predict(X), same.predict(X))
    linear = NeuralRanker(scorer=LinearScorer(), **options).fit(X, y, qid=qid)
    assert not np.array_equal(linear.predict(X), free.predict(X))
