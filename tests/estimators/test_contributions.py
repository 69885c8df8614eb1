"""What each column adds to a document's score."""

import functools
import itertools
import math
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from lightgbm import LGBMRanker
from sklearn.linear_model import LinearRegression

from ltr.datasets import Join, PeriodicEmbedding, RankPerList, Standardize, TableTransform
from ltr.estimators import Blend, Calibrated, NeuralRanker, contributions
from ltr.models import AdditiveScorer, AttentionScorer, LinearScorer, MLPScorer


def table(rows: int = 120) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "price": rng.normal(size=rows),
            "stock": np.where(rng.random(rows) < 0.2, np.nan, rng.poisson(3, rows)),
            "shop": rng.choice(np.array(["a", "b", None]), rows),
            "size": pd.Categorical(rng.choice(["s", "m", "l"], rows), ["s", "m", "l"]),
            "new": rng.random(rows) < 0.5,
        }
    )
    y = (frame["price"] > 0).to_numpy().astype(int) + (frame["shop"] == "b").to_numpy()
    return frame, y, np.arange(rows) // 10


def fitted(scorer=None, **options) -> NeuralRanker:
    X, y, qid = table()
    ranker = NeuralRanker(
        scorer=scorer, members=2, max_epochs=3, verbose=0, random_state=0, **options
    )
    return ranker.fit(X, y, qid=qid)


def shapley(predict, x: np.ndarray, background: np.ndarray) -> np.ndarray:
    """The definition: the mean over all orders of the columns."""
    width = len(x)

    @functools.cache  # each set of columns is in many orders
    def value(chosen: frozenset[int]) -> float:
        mixed = background.copy()
        mixed[:, [*chosen]] = x[[*chosen]]
        return predict(mixed).mean()

    found = np.zeros(width)
    for j in range(width):
        others = [i for i in range(width) if i != j]
        for size in range(width):
            weight = math.factorial(size) * math.factorial(width - size - 1)
            for chosen in itertools.combinations(others, size):
                found[j] += weight * (value(frozenset({*chosen, j})) - value(frozenset(chosen)))
    return found / math.factorial(width)


def test_a_linear_model_by_its_weights():
    rng = np.random.default_rng(0)
    X, rows = rng.normal(size=(50, 4)), rng.normal(size=(30, 4))
    weights = np.array([2.0, -1.0, 0.0, 0.5])
    ranker = LinearRegression().fit(X, X @ weights + 3)
    found = contributions(ranker, X, background=rows, samples=30)
    assert found.method == "shap"
    assert found.columns == ["x0", "x1", "x2", "x3"]
    np.testing.assert_allclose(found.values, (X - rows.mean(0)) * weights, atol=1e-12)
    assert found.base == pytest.approx(rows.mean(0) @ weights + 3)
    np.testing.assert_allclose(found.base + found.values.sum(1), found.scores, atol=1e-12)


class Products:
    """A model of which columns matter in pairs and alone."""

    def predict(self, X):
        return X[:, 0] * X[:, 1] + np.sin(X[:, 2]) * X[:, 3] + X[:, 1]


class Triple:
    """A model in which three columns matter together."""

    def predict(self, X):
        return X[:, 0] * X[:, 1] * X[:, 2] + X[:, 0]


def test_pairs_of_columns_by_the_definition():
    rng = np.random.default_rng(0)
    X, rows = rng.normal(size=(4, 4)), rng.normal(size=(7, 4))
    found = contributions(Products(), X, background=rows)
    assert found.method == "shap"
    for x, values in zip(X, found.values, strict=True):
        np.testing.assert_allclose(values, shapley(Products().predict, x, rows), atol=1e-12)
    assert found.base == pytest.approx(Products().predict(rows).mean())
    np.testing.assert_allclose(found.base + found.values.sum(1), Products().predict(X), atol=1e-12)


def test_more_orders_come_closer_to_the_definition():
    rng = np.random.default_rng(0)
    X, rows = rng.normal(size=(3, 3)), rng.normal(size=(5, 3))
    expected = [shapley(Triple().predict, x, rows) for x in X]
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    few, many = (
        contributions(Triple(), X, background=rows, permutations=n).values for n in (1, 200)
    )
    np.testing.assert_allclose(many, expected, atol=0.05)
    assert abs(few - expected).max() > abs(many - expected).max()
    again = contributions(Triple(), X, background=rows).values
    np.testing.assert_array_equal(again, few)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


@pytest.mark.parametrize("scorer", [AdditiveScorer(hidden=(4,)), LinearScorer()])
def test_additive_rankers_add_what_a_change_of_the_column_alone_changes(scorer):
    X, ranker = table()[0][:30], fitted(scorer, learning_rate=0.03)
    found = contributions(ranker, X, samples=len(X))
    np.testing.assert_allclose(found.base + found.values.sum(1), ranker.predict(X), atol=1e-5)
    np.testing.assert_allclose(found.values.mean(0), 0, atol=1e-6)  # of the background itself
    assert abs(found.values).max() > 0.01
    for position, column in enumerate(X.columns):
        moved = X.copy()
        moved[column] = [X[column].iloc[7]] * len(X)
        moved = moved.astype(X.dtypes)
        expected = ranker.predict(moved) - ranker.predict(X)
        difference = found.values[7, position] - found.values[:, position]
        np.testing.assert_allclose(difference, expected, atol=1e-5)


def test_networks_of_text_and_categories_by_the_definition():
    X, _, _ = table()
    ranker = fitted(MLPScorer(hidden=(16,)), learning_rate=0.03)
    found = contributions(ranker, X[:2], background=X[6:12], permutations=100)
    assert found.method == "shap"
    np.testing.assert_allclose(found.base + found.values.sum(1), found.scores, atol=1e-5)

    def predict(rows: np.ndarray) -> np.ndarray:  # of the row that each column comes from
        columns = {c: X[c].array.take(rows[:, j]) for j, c in enumerate(X.columns)}
        return ranker.predict(pd.DataFrame(columns))

    others = np.repeat(np.arange(6, 12)[:, None], 5, axis=1)
    for row in range(2):
        expected = shapley(predict, np.full(5, row), others)
        np.testing.assert_allclose(found.values[row], expected, atol=0.02 * abs(expected).max())


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_tables_of_all_kinds(kind: str):
    X, _, _ = table()
    ranker = fitted(MLPScorer(hidden=(8,)))
    convert = {"pandas": lambda x: x, "polars": pl.from_pandas, "arrow": pa.table}[kind]
    # the background has fewer levels, and a column that the ranker does not know
    rows = X[20:40].astype({"size": str}).astype({"size": "category"})
    if kind != "pandas":
        rows = X[20:40]
    more = convert(rows.assign(other=1.0).reset_index(drop=True))
    found = contributions(ranker, convert(X[:5]), background=more)
    expected = contributions(ranker, X[:5], background=X[20:40])
    np.testing.assert_allclose(found.values, expected.values, atol=1e-6)
    assert found.columns == [*X.columns]
    assert found.of(1).loc["price", "value"] == X["price"].iloc[1]


def test_lightgbm_computes_its_own():
    X, y, qid = table()
    X["shop"] = X["shop"].astype("category")
    ranker = LGBMRanker(n_estimators=10, min_child_samples=5, verbose=-1)
    ranker.fit(X, y, group=np.bincount(qid))
    found = contributions(ranker, X)
    assert found.method == "trees"
    own = np.asarray(ranker.predict(X, pred_contrib=True))
    np.testing.assert_array_equal(found.values, own[:, :-1])
    np.testing.assert_allclose(found.base + found.values.sum(1), ranker.predict(X), atol=1e-12)
    booster = contributions(ranker.booster_, X)
    np.testing.assert_array_equal(booster.values, found.values)
    beside = contributions(ranker, X[:4], background=X[4:24])
    assert beside.method == "shap"
    np.testing.assert_allclose(beside.base + beside.values.sum(1), beside.scores, atol=1e-12)
    assert beside.base == pytest.approx(ranker.predict(X[4:24]).mean())


def test_a_blend():
    X, y, qid = table()
    X = X[["price", "stock"]].fillna(0.0)
    networks = NeuralRanker(
        scorer=LinearScorer(),
        transform=TableTransform(Standardize()),
        members=1,
        max_epochs=2,
        verbose=0,
    )
    blend = Blend([networks, LinearRegression()], verbose=0).fit(X, y, qid=qid)
    X = X[:30]
    found = contributions(blend, X)
    np.testing.assert_allclose(found.base + found.values.sum(1), blend.predict(X), atol=1e-5)


def test_why_one_row_stands_above_another():
    X, ranker = table()[0][:30], fitted(AdditiveScorer(hidden=(4,)))
    found = contributions(ranker, X)
    best, worst = int(found.scores.argmax()), int(found.scores.argmin())
    why = found.between(best, worst)
    assert [*why.columns] == ["a", "b", "difference"]
    assert why["difference"].abs().is_monotonic_decreasing
    assert why["difference"].sum() == pytest.approx(
        found.scores[best] - found.scores[worst], abs=1e-5
    )
    assert why.loc["price", "a"] == X["price"].iloc[best]
    assert {*why.index} == {*X.columns}
    one = found.of(best)
    assert one["contribution"].sum() == pytest.approx(found.scores[best] - found.base, abs=1e-5)
    assert found.table.shape == X.shape
    assert repr(found).startswith("30 rows, 5 columns, base value ")
    assert "shap (drawn orders of the columns)" in repr(found)
    axes = found.plot(best, worst)
    lengths = [bar.get_width() for bar in axes.patches]  # pyright: ignore
    np.testing.assert_allclose(lengths, why["difference"])
    few = found.plot(best, most=2)
    assert few.get_yticklabels()[-1].get_text() == "3 others"
    lengths = [bar.get_width() for bar in few.patches]  # pyright: ignore
    assert sum(lengths) == pytest.approx(found.scores[best] - found.base, abs=1e-5)


def test_one_row_and_one_column():
    X = np.arange(6.0)[:, None]

    class Square:
        def predict(self, X):
            return X[:, 0] ** 2

    found = contributions(Square(), X[3:4], background=X)
    np.testing.assert_allclose(found.values, [[9 - (X**2).mean()]])
    same = contributions(Products(), np.ones((1, 4)))
    np.testing.assert_array_equal(same.values, np.zeros((1, 4)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranker": 3}, r"ranker.*3"),
        ({"X": np.zeros(4)}, r"X.*\(4,\)"),
        ({"X": np.zeros((0, 4))}, r"X.*\(0, 4\)"),
        ({"background": np.zeros((5, 3))}, r"background.*'x0', 'x1', 'x2'\]"),
        ({"background": np.zeros((0, 4))}, r"background.*\(0, 4\)"),
        ({"background": np.zeros(4)}, r"background.*\(4,\)"),
        ({"background": pd.DataFrame(np.zeros((5, 4)))}, r"background.*ndarray, got DataFrame"),
        ({"samples": 0}, r"samples.*0"),
        ({"permutations": 0}, r"permutations.*0"),
        ({"seed": -1}, r"seed.*-1"),
    ],
)
def test_errors(changes: dict, message: str):
    given = {"ranker": Products(), "X": np.ones((3, 4)), **changes}
    with pytest.raises(ValueError, match=message):
        contributions(**given)


def test_errors_of_rows_lists_and_types(monkeypatch: pytest.MonkeyPatch):
    X, _, _ = table()
    whole = fitted(AttentionScorer(hidden=(4,), heads=1))
    with pytest.raises(ValueError, match=r"ranker.*whole list"):
        contributions(whole, X)
    found = contributions(LinearRegression().fit(np.eye(3), [1, 2, 3]), np.eye(3))
    with pytest.raises(ValueError, match=r"b.*3"):
        found.between(0, 3)
    with pytest.raises(ValueError, match=r"row.*-1"):
        found.of(-1)
    with pytest.raises(ValueError, match=r"other must be below 3"):
        found.plot(0, 3)
    few = pl.DataFrame({"a": [1.0], "b": [2.0]})
    with pytest.raises(ValueError, match=r"background.*types of X"):
        contributions(Products(), few, background=few.cast({"b": pl.String}))
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(ValueError, match=r"shap.*ltr-torch\[explain\]"):
        contributions(Products(), np.random.default_rng(0).normal(size=(9, 4)))


def shop(lists: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Prices with another scale in each list, a category and a column with missing values."""
    rng = np.random.default_rng(seed)
    cheap = rng.normal(size=(lists, 6))
    frame = pd.DataFrame(
        {
            "price": np.exp(rng.normal(0, 2, size=(lists, 1)) + 0.3 * cheap).ravel(),
            "shop": rng.choice(np.array(["a", "b", None]), lists * 6),
            "stock": np.where(rng.random(lists * 6) < 0.2, np.nan, rng.poisson(3, lists * 6)),
        }
    )
    y = (cheap.ravel() < 0).astype(int) + (frame["shop"] == "b").to_numpy()
    qid = np.repeat([f"q{i}" for i in range(lists)], 6)
    order = rng.permutation(len(qid))  # the rows of a list need not be together
    return frame.iloc[order].reset_index(drop=True), y[order], qid[order]


@pytest.fixture(scope="module")
def relative() -> dict[str, Any]:
    """Fitted rankers with columns relative to the list."""
    X, y, qid = shop(40, 0)
    given = {"members": 1, "max_epochs": 4, "relative": True, "random_state": 0, "verbose": 0}
    bins = NeuralRanker(**given).fit(X, y, qid=qid)
    rows = TableTransform(Join([PeriodicEmbedding(size=2), RankPerList()]))
    periodic = NeuralRanker(
        **{**given, "relative": False}, transform=rows, scorer=LinearScorer()
    ).fit(X, y, qid=qid)
    trees = LGBMRanker(n_estimators=5, min_child_samples=5, n_jobs=1, verbose=-1)
    plain = NeuralRanker(**{**given, "relative": False})
    blend = Blend([NeuralRanker(**given), trees, plain], verbose=0).fit(X, y, qid=qid)
    assert blend.relative_ == [False, True, False]
    calibrated = Calibrated(bins, method="sigmoid").fit(X, y, qid=qid)
    return {"bins": bins, "periodic": periodic, "blend": blend, "calibrated": calibrated}


@pytest.mark.parametrize("kind", ["bins", "periodic", "blend", "calibrated", "bins_", "blend_"])
def test_columns_relative_to_the_list_belong_to_their_column(relative, kind: str):
    """The models of a `NeuralRanker` and of a `Blend` are explained as their estimators are."""
    ranker = relative[kind[:-1]].model_ if kind.endswith("_") else relative[kind]
    X, _, qid = shop(3, 1)
    found = contributions(ranker, X, qid=qid, permutations=2)
    assert found.columns == ["price", "shop", "stock"]
    np.testing.assert_allclose(found.scores, ranker.predict(X, qid), rtol=1e-6)
    np.testing.assert_allclose(found.base, found.scores.mean(), rtol=1e-5, atol=1e-6)
    sums = found.base + found.values.sum(1)
    np.testing.assert_allclose(sums, found.scores, rtol=1e-4, atol=1e-5)
    between = found.between(2, 11)
    difference = found.scores[2] - found.scores[11]
    np.testing.assert_allclose(between["difference"].sum(), difference, atol=1e-5)
    other = X[["stock", "price", "shop"]]  # another order
    again = contributions(ranker, other, qid=qid, permutations=2)
    assert again.columns == ["stock", "price", "shop"]
    np.testing.assert_allclose(again.values.sum(1), found.values.sum(1), atol=1e-5)
    rough = again.table[found.columns] - found.table  # other orders are drawn
    assert abs(rough).max(axis=None) < 0.5 * abs(found.values).max()


def test_equal_prices_of_different_lists_contribute_what_they_are_in_their_list():
    """A linear model of ranks alone: the contribution is the weight times the rank's difference."""
    X, y, qid = shop(40, 0)
    transform = TableTransform(RankPerList())
    ranker = NeuralRanker(
        transform=transform, scorer=LinearScorer(), members=1, max_epochs=3, verbose=0
    )
    ranker.fit(X[["price"]], y, qid=qid)
    price = np.array([10.0, 20, 30, 10, 5, 1])  # 10 is the lowest of a, and the highest of b
    lists = ["a", "a", "a", "b", "b", "b"]
    found = contributions(ranker, pd.DataFrame({"price": price}), qid=lists)
    scores = ranker.predict(pd.DataFrame({"price": price}), lists)
    assert found.values[0, 0] != pytest.approx(found.values[3, 0], abs=1e-3)
    np.testing.assert_allclose(found.values[:, 0], scores - scores.mean(), rtol=1e-4, atol=1e-6)
    one = pd.DataFrame({"price": [1.0]})
    alone = contributions(
        ranker, pd.DataFrame({"price": price}), qid=lists, background=one, background_qid=["a"]
    )
    assert alone.base == pytest.approx(float(ranker.predict(one, ["a"])[0]), abs=1e-6)
    np.testing.assert_allclose(alone.values[:, 0], scores - alone.base, rtol=1e-4, atol=1e-6)


def test_rankers_with_relative_columns_need_their_lists(relative):
    X, _, qid = shop(3, 1)
    with pytest.raises(ValueError, match=r"^qid must be given: .*relative=False"):
        contributions(relative["bins"], X)
    with pytest.raises(ValueError, match=r"^background_qid must be None without a background"):
        contributions(relative["bins"], X, qid=qid, background_qid=qid)
    with pytest.raises(ValueError, match=r"^background_qid must be given"):
        contributions(relative["blend"], X, qid=qid, background=X)
    with pytest.raises(ValueError, match=r"^background_qid .*18"):
        contributions(relative["bins"], X, qid=qid, background=X, background_qid=qid[:4])
    with pytest.raises(ValueError, match=r"^qid .*18"):
        contributions(relative["bins"], X, qid=qid[:4])
