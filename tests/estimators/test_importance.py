"""What a metric loses when a column is shuffled."""

import itertools

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from lightgbm import LGBMRanker
from sklearn.exceptions import DataConversionWarning

from ltr.datasets import Schema
from ltr.datasets.column_steps import Number
from ltr.estimators import NeuralRanker, importance
from ltr.models import LinearScorer, RankingModel


class Linear:
    """A ranker whose scores are a weighted sum of the columns."""

    def __init__(self, *weights: float):
        self.weights = np.array(weights)

    def predict(self, X):
        return np.asarray(X, dtype=float) @ self.weights


def lists(count: int = 30, size: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(count * size, 3))
    qid = rng.permutation(np.repeat(np.arange(count), size))  # in any order
    X[:, 2] = qid  # constant within each list
    y = np.clip(np.round(X[:, 0] + 0.5 * X[:, 1]), 0, None)
    return X, y, qid


def ndcg(scores: np.ndarray, labels: np.ndarray, qid: np.ndarray, k: int = 10) -> float:
    """The mean by the definition."""
    values = []
    for query in np.unique(qid):
        found, gains = scores[qid == query], 2 ** labels[qid == query] - 1
        discounts = 1 / np.log2(np.arange(2, k + 2))
        ordered = gains[np.argsort(-found, kind="stable")][:k]
        ideal = -np.sort(-gains)[:k]
        best = ideal @ discounts[: len(ideal)]
        values.append(ordered @ discounts[: len(ordered)] / best if best else 0)
    return float(np.mean(values))


def test_losses_of_a_linear_model_are_those_of_all_permutations():
    X, y, qid = lists(2, 3)
    y[:] = [2, 0, 1, 0, 1, 3]
    weights = np.array([1.0, 0.5, 0.3])
    before = ndcg(X @ weights, y, qid)
    among, within = [], []
    for order in map(list, itertools.permutations(range(6))):
        after = [
            ndcg(np.c_[X[:, :j], X[order, j], X[:, j + 1 :]] @ weights, y, qid) for j in (0, 1, 2)
        ]
        among.append(before - np.array(after))
        if (qid[order] == qid).all():
            within.append(among[-1])
    assert (len(among), len(within)) == (720, 36)
    found = importance(Linear(*weights), X, y, qid, repeats=60)
    assert found.score == pytest.approx(before)
    # within five standard errors of a mean of 60 draws
    for losses, expected in ((found.among, among), (found.within, within)):
        error = np.std(expected, axis=0) / np.sqrt(60)
        assert (abs(losses.mean(0) - np.mean(expected, axis=0)) <= 5 * error + 1e-12).all()
        assert {*losses.round(9).ravel()} <= {*np.round(expected, 9).ravel()}


def test_a_column_that_is_constant_within_lists_loses_nothing_there():
    X, y, qid = lists()
    found = importance(Linear(1, 0.5, 0.01), X, y, qid).table
    assert [*found.index] == ["x0", "x1", "x2"]
    assert (found.loc["x2", ["within", "within_low", "within_high"]] == 0).all()
    assert found.loc["x2", "among"] > 0  # mixed lists
    assert (found["among_low"] < found["among"]).all()
    assert found["among"].is_monotonic_decreasing
    unused = importance(Linear(1, 0, 0), X, y, qid)
    assert not unused.among[:, 1:].any()
    assert not unused.within[:, 1:].any()
    assert (unused.within[:, 0] > 0).all()


def test_intervals_are_those_of_students_t():
    from scipy import stats

    X, y, qid = lists()
    found = importance(Linear(1, 0.5, 0.01), X, y, qid, repeats=4, confidence=0.9)
    row = found.table.loc["x1"]
    expected = stats.ttest_1samp(found.within[:, 1], 0).confidence_interval(0.9)
    assert row["within_low"] == pytest.approx(expected.low)
    assert row["within_high"] == pytest.approx(expected.high)


def table(rows: int = 300) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "price": rng.normal(size=rows),
            "shop": rng.choice(np.array(["a", "b", None]), rows),
            "size": pd.Categorical(rng.choice(["s", "m", "l"], rows), ["s", "m", "l"]),
            "new": rng.random(rows) < 0.5,
        }
    )
    y = (frame["price"] > 0.5).to_numpy().astype(int) + (frame["shop"] == "b").to_numpy()
    return frame, y, np.array([f"q{i // 10}" for i in range(rows)])


class Seen:
    """A ranker that keeps what it got."""

    def __init__(self, ranker):
        self.ranker, self.given = ranker, []

    def predict(self, X, qid=None):
        self.given.append((X, qid))
        return self.ranker.predict(X)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_rankers_get_tables_as_pandas_has_them(kind: str):
    X, y, qid = table()
    ranker = NeuralRanker(members=1, max_epochs=3, random_state=0, verbose=0).fit(X, y, qid=qid)
    expected = importance(ranker, X, y, qid, repeats=2)
    given = {"pandas": X, "polars": pl.from_pandas(X), "arrow": pa.table(X)}[kind]
    seen = Seen(ranker)
    found = importance(seen, given, y, qid, repeats=2)
    assert found.columns == ["price", "shop", "size", "new"]
    np.testing.assert_array_equal(found.among, expected.among)
    np.testing.assert_array_equal(found.within, expected.within)
    assert found.table.loc["shop", "within"] > found.table.loc["new", "within"]
    for got, groups in seen.given:
        assert [*got.dtypes] == [*X.dtypes]
        np.testing.assert_array_equal(groups, np.arange(300) // 10)


def test_dictionaries_of_several_chunks():
    X, y, qid = table()
    parts = [pa.table(X[start : start + 100]) for start in (0, 100, 200)]
    of_parts = [
        one.set_column(1, "shop", one.column("shop").cast(pa.string()).dictionary_encode())
        for one in parts
    ]
    whole = pa.concat_tables(of_parts)
    ranker = NeuralRanker(members=1, max_epochs=2, random_state=0, verbose=0).fit(X, y, qid=qid)
    found = importance(ranker, whole, y, qid, repeats=2)
    np.testing.assert_array_equal(found.among, importance(ranker, X, y, qid, repeats=2).among)


def test_lightgbm_and_columns_that_it_does_not_know():
    X, y, qid = table()
    X["shop"] = X["shop"].astype("category")
    ranker = LGBMRanker(n_estimators=10, min_child_samples=5, verbose=-1)
    ranker.fit(X, y, group=np.full(30, 10))
    found = importance(ranker, X, y, group=np.full(30, 10), metric="MRR", repeats=3)
    assert found.metric == "mrr"
    assert {*found.table.index[:2]} == {"price", "shop"}
    network = NeuralRanker(members=1, max_epochs=2, random_state=0, verbose=0).fit(X, y, qid=qid)
    more = X.assign(other=1.0)[["other", *X.columns]]
    found = importance(network, more, y, qid, repeats=2)
    assert found.columns == [*X.columns]


def test_seeds_and_columns():
    X, y, qid = lists()
    ranker = Linear(1, 0.5, 0.01)
    first, again = (importance(ranker, X, y, qid, repeats=3) for _ in range(2))
    np.testing.assert_array_equal(first.among, again.among)
    other = importance(ranker, X, y, qid, repeats=3, seed=1)
    assert (first.among[:, 0] != other.among[:, 0]).all()
    one = importance(ranker, X, y, qid, repeats=3, columns=["x1"])
    np.testing.assert_array_equal(one.within[:, 0], first.within[:, 1])


def test_labels_of_odd_shapes():
    X, y, qid = lists()
    ranker = Linear(1, 0.5, 0.01)
    expected = importance(ranker, X, y, qid, repeats=2).among
    for given in (y.tolist(), pd.Series(y), pl.Series(y), pa.array(y)):
        np.testing.assert_array_equal(importance(ranker, X, given, qid, repeats=2).among, expected)
    with pytest.warns(DataConversionWarning):
        found = importance(ranker, X, y[:, None], qid, repeats=2)
    np.testing.assert_array_equal(found.among, expected)


def test_words_and_plot():
    X, y, qid = lists()
    found = importance(Linear(1, 0.5, 0.01), X, y, qid, repeats=3)
    lines = repr(found).splitlines()
    assert lines[0].split() == ["among", "all", "[95%]", "within", "lists", "[95%]"]
    assert [line.split()[0] for line in lines[1:4]] == ["x0", "x1", "x2"]
    assert lines[3].endswith("0.0000 [0.0000, 0.0000]")
    assert lines[4].startswith("ndcg@10 is ")
    axes = found.plot(most=2)
    assert [one.get_text() for one in axes.get_yticklabels()] == ["x0", "x1"]
    widths = [bar.get_width() for bar in axes.patches]  # pyright: ignore
    np.testing.assert_allclose(widths[:2], found.table["among"].iloc[:2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranker": "x"}, r"ranker.*'x'"),
        ({"X": np.zeros(150)}, r"X.*\(150,\)"),
        ({"X": np.zeros((0, 3))}, r"X.*\(0, 3\)"),
        ({"y": np.zeros(4)}, r"y.*4"),
        ({"y": np.zeros((150, 2))}, r"y.*\(150, 2\)"),
        ({"y": np.full(150, -1.0)}, r"y.*-1"),
        ({"y": np.full(150, np.nan)}, r"y.*nan in row 0"),
        ({"qid": None}, r"qid.*neither"),
        ({"qid": np.zeros(4)}, r"qid.*\(4,\)"),
        ({"metric": "ndgc"}, r"metric.*'ndgc'.*did you mean ndcg"),
        ({"columns": ["x4"]}, r"columns.*'x4'"),
        ({"columns": "x1"}, r"columns.*'x1'"),
        ({"columns": []}, r"columns.*\[\]"),
        ({"repeats": 1}, r"repeats.*1"),
        ({"seed": -1}, r"seed.*-1"),
        ({"confidence": 1.0}, r"confidence.*1\.0"),
        ({"confidence": "95%"}, r"confidence.*95%"),
    ],
)
def test_errors(changes: dict, message: str):
    X, y, qid = lists()
    given = {"ranker": Linear(1, 1, 1), "X": X, "y": y, "qid": qid, **changes}
    with pytest.raises(ValueError, match=message):
        importance(**given)


def test_rankers_that_do_not_predict_numbers():
    X, y, qid = lists()

    class Wide:
        def predict(self, X):
            return np.zeros((len(X), 2))

    class Nan:
        def predict(self, X):
            return np.full(len(X), np.nan)

    with pytest.raises(ValueError, match=r"ranker.*\(150, 2\)"):
        importance(Wide(), X, y, qid)
    with pytest.raises(ValueError, match=r"ranker.*nan"):
        importance(Nan(), X, y, qid)


def test_a_model_in_a_folder_is_explained_by_its_own_columns(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"query": np.repeat(np.arange(20), 5), "a": rng.normal(size=100)})
    X["b"] = rng.normal(size=100)
    scorer = LinearScorer(2)
    with torch.no_grad():
        for one in scorer.parameters():
            one.copy_(torch.tensor([[1.0, 0.0]]) if one.dim() == 2 else torch.zeros(1))
    model = RankingModel(scorer, None, Schema("query", steps={"a": Number(), "b": Number()}))
    found = importance(model, X, (X["a"] > 0).astype(int), qid=X["query"]).table
    assert [*found.index] == ["a", "b"]
    assert found["among"]["a"] > 0.1
    assert found["among"]["b"] == 0
