"""What a Blend gives its rankers, how it scales and weighs their scores, scikit-learn's rules."""

import os
import pickle
import sys
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from pairwise import covering, named
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import get_tags

from ltr.boosting import objective
from ltr.datasets import Standardize, convert, query_folds
from ltr.datasets.prepare import prepare
from ltr.datasets.splits import query_shares
from ltr.estimators import Blend, Calibrated, NeuralRanker, contributions, importance
from ltr.losses import SoftmaxLoss
from ltr.models import AttentionScorer
from ltr.serving import OnnxRanker


class Column(BaseEstimator):
    """Scores a row by a column of X, times a factor; it keeps what its `fit` gets."""

    def __init__(self, column: int = 0, factor: float = 1.0) -> None:
        self.column = column
        self.factor = factor

    def fit(self, X: Any, y: Any) -> "Column":
        self.got = {"X": X, "y": y}
        return self

    def predict(self, X: Any) -> np.ndarray:
        values = X.to_pandas() if isinstance(X, pa.Table | pl.DataFrame) else X
        return np.asarray(values, dtype=np.float64)[:, self.column] * self.factor


class ByQid(Column):
    """Takes what XGBRanker takes."""

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, *, qid=None, group=None, sample_weight=None, eval_set=None,
        eval_qid=None, eval_group=None,
    ) -> "ByQid":  # fmt: skip
        self.got = {"X": X, "y": y, "qid": qid, "group": group, "sample_weight": sample_weight}
        self.got |= {"eval_set": eval_set, "eval_qid": eval_qid, "eval_group": eval_group}
        return self


class ByGroup(Column):
    """Takes what LGBMRanker takes."""

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, sample_weight=None, group=None, eval_set=None, eval_group=None, *,
        eval_X=None, eval_y=None,
    ) -> "ByGroup":  # fmt: skip
        self.got = {"X": X, "y": y, "group": group, "sample_weight": sample_weight}
        self.got |= {"eval_set": eval_set, "eval_group": eval_group}
        self.got |= {"eval_X": eval_X, "eval_y": eval_y}
        return self


def lists(seed: int = 0, count: int = 60, size: int = 8) -> tuple[np.ndarray, ...]:
    """Columns: the grade and a half, its opposite, and noise. The queries are in any order.

    A column that equals the grade would give a warning.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, count * size)
    X = np.stack([y + 0.5, -10.0 * y, rng.normal(size=len(y))], axis=1)
    return X, y, rng.permutation(np.arange(len(y)) % count)


def fitted(rankers: list[Any], **parameters: Any) -> Blend:
    X, y, qid = lists()
    Xv, yv, qv = lists(1)
    blend = Blend(rankers, verbose=0, **parameters)
    return blend.fit(X, y, qid=qid, eval_set=[(Xv, yv)], eval_qid=[qv])


def spread(scores: np.ndarray, qid: np.ndarray) -> float:
    return float(pd.Series(scores).groupby(qid).std(ddof=0).mean())


def test_the_scales_give_each_ranker_the_same_spread_in_training_lists():
    X, _, qid = lists()
    blend = fitted([Column(0, 3.0), Column(2, 0.01), DummyRegressor()])
    for one, scale in zip(blend.rankers_[:2], blend.scales_[:2], strict=True):
        assert spread(one.predict(X) * scale, qid) == pytest.approx(1, rel=1e-5)
    assert blend.scales_[2] == 1  # all its scores are equal


def test_the_score_is_the_weighted_mean_of_the_scaled_scores():
    X, _, _ = lists(2)
    blend = fitted([Column(0), Column(2)])
    each = np.stack([X[:, 0], X[:, 2]])
    expected = (blend.weights_ * blend.scales_) @ each
    np.testing.assert_allclose(blend.predict(X), expected, rtol=1e-12)


def test_a_ranker_that_is_wrong_gets_no_weight():
    blend = fitted([Column(0), Column(1)])
    assert blend.weights_[1] < 0.5
    assert blend.validation_score_ == pytest.approx(1)
    assert blend.validation_queries_ == 60
    X, y, qid = lists(3)
    assert blend.score(X, y, qid=qid) == pytest.approx(1)


def test_several_rankers_are_weighed_by_turns():
    blend = fitted([Column(1), Column(2), Column(0)])
    assert blend.weights_.sum() == pytest.approx(1)
    assert (blend.weights_ >= 0).all()
    assert blend.weights_.argmax() == 2
    assert blend.validation_score_ == pytest.approx(1)


def test_ties_and_small_gains_leave_the_weights_equal():
    assert fitted([Column(0), Column(0, 2.0)]).weights_.tolist() == [0.5, 0.5]
    # noise beside noise: whatever the best weights are, they are chance
    rng = np.random.default_rng(5)
    X, y, qid = rng.normal(size=(240, 2)), rng.integers(0, 2, 240), np.arange(240) // 8
    half = np.arange(240) < 120
    blend = Blend([Column(0), Column(1)], verbose=0).fit(
        X[half], y[half], qid=qid[half], eval_set=[(X[~half], y[~half])], eval_qid=[qid[~half]]
    )
    assert blend.weights_.tolist() == [0.5, 0.5]
    assert fitted([Column(0)]).weights_.tolist() == [1.0]


def test_each_ranker_gets_the_sorted_rows_and_what_it_takes():
    X, y, qid = lists()
    Xv, yv, qv = lists(1)
    weight = np.linspace(0.5, 1.5, len(y))
    blend = Blend([ByQid(), ByGroup()], verbose=0)
    blend.fit(X, y, qid=qid, sample_weight=weight, eval_set=[(Xv, yv)], eval_qid=[qv])
    names = pd.unique(qid)
    order = np.argsort([*map({q: i for i, q in enumerate(names)}.get, qid)], kind="stable")
    for one in blend.rankers_:
        assert np.array_equal(one.got["X"], X[order])
        assert np.array_equal(one.got["y"], y[order])
        np.testing.assert_allclose(one.got["sample_weight"], weight[order] / weight.mean())
    by_qid, by_group = (one.got for one in blend.rankers_)
    assert np.array_equal(by_qid["qid"], np.repeat(np.arange(60), 8))
    assert np.array_equal(by_group["group"], np.full(60, 8))
    assert by_qid["group"] is by_qid["eval_group"] is by_group["eval_set"] is None
    [(X_eval, y_eval)] = by_qid["eval_set"]
    assert np.array_equal(by_qid["eval_qid"][0], np.repeat(np.arange(60), 8))
    assert np.array_equal(by_group["eval_X"][0], X_eval)
    assert np.array_equal(by_group["eval_y"][0], y_eval)
    assert by_group["eval_group"][0].tolist() == [8] * 60
    assert sorted(map(tuple, X_eval.tolist())) == sorted(map(tuple, Xv.tolist()))


def test_weights_of_lists_are_expanded_for_a_ranker_without_qid():
    X, y, qid = lists(count=12)
    weight = np.arange(12) + 1.0
    blend = Blend([ByQid(), ByGroup()], verbose=0, validation=0)
    blend.fit(X, y, qid=qid, sample_weight=weight)
    by_qid, by_group = (one.got["sample_weight"] for one in blend.rankers_)
    np.testing.assert_allclose(by_qid, weight / weight.mean())
    np.testing.assert_allclose(by_group, np.repeat(weight / weight.mean(), 8))


def test_groups_are_sorted_queries():
    X, y, qid = lists()
    order = np.argsort(qid, kind="stable")
    X, y, qid = X[order], y[order], qid[order]
    by_qid, by_group = Blend([Ridge()], verbose=0), Blend([Ridge()], verbose=0)
    scores = by_qid.fit(X, y, qid=qid).predict(X)
    sizes = np.bincount(qid)
    assert np.array_equal(by_group.fit(X, y, group=sizes).predict(X, group=sizes), scores)
    assert by_qid.score(X, y, qid=qid) == by_group.score(X, y, group=sizes)


def test_the_order_of_the_rows_does_not_matter_to_prediction():
    X, _, _ = lists(2)
    blend = fitted([Ridge(), Column(2)])
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(blend.predict(X[order]), blend.predict(X)[order], rtol=1e-12)


def test_ranks_count_from_one_within_each_query_and_ties_keep_their_order():
    X, y, qid = lists(4)
    blend = fitted([Column(0)])  # the grade: many ties
    found = blend.rank(X, qid=qid)
    assert found.dtype == np.int32
    for query in np.unique(qid):
        rows = np.flatnonzero(qid == query)
        best_first = sorted(rows, key=lambda row: -y[row])
        assert [found[row] for row in best_first] == [*range(1, len(rows) + 1)]
    order = np.argsort(qid, kind="stable")
    assert np.array_equal(blend.rank(X[order], group=np.bincount(qid)), found[order])
    with pytest.raises(ValueError, match=r"qid .* or group .* must be given, got neither"):
        blend.rank(X)
    with pytest.raises(NotFittedError):
        Blend([Ridge()]).rank(X)


def test_a_share_of_the_queries_is_held_out_by_their_hash(capsys):
    X, y, qid = lists()
    blend = Blend([ByQid(), Column(2)]).fit(X, y, qid=qid)
    held = query_shares([str(q) for q in np.unique(qid)]) < 0.2
    assert blend.validation_queries_ == held.sum()
    train = blend.rankers_[0].got
    assert len(train["y"]) == (~held[qid]).sum()
    assert sorted(map(tuple, train["X"].tolist())) == sorted(map(tuple, X[~held[qid]].tolist()))
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("Blend: weights ")
    assert f"{held.sum()} of 60 queries held out for it, by a hash of the qid" in line


def test_without_validation_the_weights_are_equal(capsys):
    X, y, qid = lists()
    blend = Blend([ByQid(), Column(1)], validation=0).fit(X, y, qid=qid)
    assert blend.weights_.tolist() == [0.5, 0.5]
    assert (blend.validation_score_, blend.validation_queries_) == (None, 0)
    assert blend.rankers_[0].got["eval_set"] is None
    assert "0.50 byqid, 0.50 column; equal weights" in capsys.readouterr().err


@pytest.mark.parametrize("convert", [pl.from_pandas, pa.Table.from_pandas])
def test_any_table(convert):
    X, y, qid = lists()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    expected = Blend([Column(0), Column(2)], verbose=0).fit(X, y, qid=qid).predict(X)
    blend = Blend([Column(0), Column(2)], verbose=0).fit(convert(frame), y, qid=qid)
    np.testing.assert_allclose(blend.predict(convert(frame)), expected)


def test_the_columns_are_checked():
    X, y, qid = lists()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    blend = Blend([Ridge()], verbose=0).fit(frame, y, qid=qid)
    assert blend.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"X .* a$"):
        blend.predict(frame.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="features"):
        Blend([Ridge()], verbose=0).fit(X, y, qid=qid).predict(X[:, :2])


def test_parameters_by_the_names_of_the_classes():
    blend = Blend([Ridge(alpha=2.0), Column(1), Column(2)])
    found = blend.get_params()
    assert (found["ridge__alpha"], found["column-1__column"], found["column-2__column"]) == (
        2.0,
        1,
        2,
    )
    assert blend.get_params(deep=False).keys() == {"rankers", "validation", "n_jobs", "verbose"}
    blend.set_params(ridge__alpha=3.0, verbose=0)
    assert (blend.rankers[0].alpha, blend.verbose) == (3.0, 0)
    other = DummyRegressor()
    blend.set_params(ridge=other)
    assert blend.rankers[0] is other
    with pytest.raises(ValueError, match="Invalid parameter"):
        blend.set_params(lasso__alpha=1.0)


@pytest.mark.parametrize("rankers", [1, (), [], Ridge(), [Ridge], [3], "ridge"])
def test_parameters_are_checked_in_fit_alone(rankers: Any):
    X, y, qid = lists()
    for blend in (Blend(rankers), Blend([Ridge()]).set_params(rankers=rankers)):
        assert blend.get_params()["rankers"] is rankers
        with pytest.raises(ValueError, match="rankers must"):
            blend.fit(X, y, qid=qid)
    assert blend.set_params(rankers=[Ridge()], ridge__alpha=2.0).rankers[0].alpha == 2.0


def test_clone_and_pickle():
    X, y, qid = lists()
    blend = fitted([Ridge(), Column(2)])
    copied = clone(blend)
    assert copied.rankers[0] is not blend.rankers[0]
    assert not hasattr(copied, "rankers_")
    assert not hasattr(blend.rankers[0], "coef_")  # those given stay as they were
    again = pickle.loads(pickle.dumps(blend))
    assert np.array_equal(again.predict(X), blend.predict(X))
    with pytest.raises(NotFittedError):
        copied.predict(X)
    assert np.array_equal(fitted([Ridge(), Column(2)]).weights_, blend.weights_)
    assert copied.fit(X, y, qid=qid).n_features_in_ == 3


def test_a_grid_search_passes_the_queries():
    X, y, qid = lists()
    grid = {"column__column": [1, 0]}
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            Blend([Column(1)], verbose=0, validation=0), grid, cv=query_folds(qid, 3)
        )
        search.fit(X, y, qid=qid)
    assert search.best_params_ == {"column__column": 0}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"rankers": [SimpleNamespace(fit=print, predict=print)]},
            "rankers must have .*get_params",
        ),
        ({"rankers": [Ridge()], "validation": 1.0}, r"validation.*1.0"),
        ({"rankers": [Ridge()], "validation": "a"}, "validation.*'a'"),
        ({"rankers": [Ridge()], "n_jobs": 0}, "n_jobs must.*0"),
    ],
)
def test_wrong_parameters(parameters, message):
    X, y, qid = lists()
    with pytest.raises(ValueError, match=message):
        Blend(**parameters).fit(X, y, qid=qid)


def test_wrong_arguments():
    X, y, qid = lists()
    with pytest.raises(ValueError, match="sample_weight must"):
        Blend([Column()]).fit(X, y, qid=qid, sample_weight=np.ones(len(y)))
    with pytest.raises(ValueError, match=r"qid .* or group .* must be given"):
        Blend([Column()]).fit(X, y)
    with pytest.raises(ValueError, match="X must have at least one row"):
        Blend([Column()]).fit(X[:0], y[:0], qid=qid[:0])
    with pytest.raises(ValueError, match=r"eval_qid .* must be given"):
        Blend([Column()]).fit(X, y, qid=qid, eval_set=[(X, y)])

    class Pairs(Column):
        def predict(self, X: Any) -> np.ndarray:
            return np.zeros((len(X), 2))

    with pytest.raises(ValueError, match="rankers must"):
        Blend([Pairs()]).fit(X, y, qid=qid)


def test_networks_beside_boosted_trees():
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    rows = 600
    frame = pd.DataFrame(
        {
            "price": rng.normal(size=rows),
            "stock": np.where(rng.random(rows) < 0.2, np.nan, rng.poisson(3, rows)),
            "shop": pd.Categorical(rng.choice(["a", "b", "c"], rows)),
        }
    )
    y = (frame["price"] + (frame["shop"] == "b") > 0.5).to_numpy().astype(int)
    qid = rng.integers(0, rows // 10, rows)
    small = NeuralRanker(members=1, max_epochs=8, batch_size=8, random_state=0, verbose=0)
    trees = lightgbm.LGBMRanker(
        n_estimators=20, min_child_samples=5, early_stopping_round=5, verbose=-1, n_jobs=1
    )
    blend = Blend([small, trees], verbose=0).fit(frame, y, qid=qid)
    assert blend.rankers_[1].best_iteration_ > 0  # it got the validation lists
    assert blend.rankers_[0].validation_queries_ == blend.validation_queries_ > 0
    # trees get neutral names, and the indices of levels
    neutral = pd.DataFrame({"x0": frame["price"], "x1": frame["stock"]})
    neutral["x2"] = pd.Categorical.from_codes(frame["shop"].cat.codes, categories=range(3))
    parts = [blend.rankers_[0].predict(frame), blend.rankers_[1].predict(neutral)]
    factors = blend.weights_ * blend.scales_
    expected = factors[0] * parts[0].astype(np.float64) + factors[1] * parts[1]
    np.testing.assert_allclose(blend.predict(frame), expected)
    assert blend.score(frame, y, qid=qid) > 0.9
    again = pickle.loads(pickle.dumps(blend))
    assert np.array_equal(again.predict(frame), blend.predict(frame))
    blend.set_params(lgbmranker__num_leaves=7)
    assert clone(blend).rankers[1].num_leaves == 7


def test_the_default_is_networks_and_the_best_of_three_sizes_of_trees(tmp_path):
    quick = NeuralRanker(members=1, max_epochs=2, verbose=0)
    lightgbm = pytest.importorskip("lightgbm")
    (X, y, qid), (Xv, yv, qv) = lists(count=40), lists(1, count=40)
    X, Xv = (x[:, ::2] + 3 * np.random.default_rng(0).normal(size=x[:, ::2].shape) for x in (X, Xv))
    validation = {"eval_set": [(Xv, yv)], "eval_qid": [qv]}
    own = {"rankers": None, "validation": 0.2, "n_jobs": None, "verbose": 1}
    assert Blend().get_params() == own
    blend = Blend(quick, n_jobs=1, verbose=0).fit(X, y, qid=qid, **validation)
    networks, trees = blend.rankers_
    assert (type(networks), networks.max_epochs) == (NeuralRanker, 2)
    assert [*trees.evals_result_["valid_0"]] == ["ndcg@10"]
    each = {}
    for leaves in (15, 31):
        given = {**trees.get_params(), "num_leaves": leaves}
        own = Blend([lightgbm.LGBMRanker(**given)], verbose=0).fit(X, y, qid=qid, **validation)
        each[leaves] = own.validation_score_
    assert trees.num_leaves == max(each, key=lambda leaves: each[leaves])  # the first of the best
    blend.save(tmp_path)
    again = Blend.load(tmp_path)
    assert np.array_equal(again.predict(X), blend.predict(X))
    assert again.get_params()["lgbmranker__num_leaves"] == trees.num_leaves
    assert clone(blend).rankers.max_epochs == 2


@pytest.mark.slow
def test_several_processes_give_the_same_scores():
    lightgbm = pytest.importorskip("lightgbm")
    X, y, qid = lists(count=60)
    frame = pd.DataFrame(X).add_prefix("c").assign(shop=np.where(X[:, 0] > 0, "a", "b"))

    class Where(Column):
        """Keeps the process of its `fit`; defined here, so that its code is sent to a process."""

        def fit(self, X: Any, y: Any) -> "Where":
            self.process = os.getpid()
            return self

        def predict(self, X: Any) -> np.ndarray:
            return X["c1"].to_numpy()

    networks = [NeuralRanker(members=1, max_epochs=3, random_state=i, verbose=0) for i in range(2)]
    trees = [
        lightgbm.LGBMRanker(n_estimators=9, min_child_samples=5, num_leaves=x, n_jobs=1, verbose=-1)
        for x in (4, 7)
    ]
    rankers = [*networks, *trees, Where()]
    blends = [Blend(rankers, n_jobs=x, verbose=0).fit(frame, y, qid=qid) for x in (None, 1, 3)]
    for blend in blends[1:]:
        np.testing.assert_array_equal(blend.predict(frame), blends[0].predict(frame))
        np.testing.assert_array_equal(blend.weights_, blends[0].weights_)
    processes = [blend.rankers_[-1].process == os.getpid() for blend in blends]
    assert processes == [True, True, False]
    wrong = Blend([NeuralRanker(monotone={"no": 1}), *networks], n_jobs=2, verbose=0)
    with pytest.raises(ValueError, match="monotone must name columns"):
        wrong.fit(frame, y, qid=qid)


def test_the_default_trees_share_the_cores():
    pytest.importorskip("lightgbm")
    quick = NeuralRanker(members=1, max_epochs=2, random_state=0, verbose=0)
    X, y, qid = lists(count=40)
    one, two = (Blend(quick, n_jobs=x, verbose=0).fit(X, y, qid=qid) for x in (1, 2))
    assert [x.rankers_[1].n_jobs for x in (one, two)] == [1, 1]
    np.testing.assert_array_equal(one.predict(X), two.predict(X))


def test_the_default_without_validation_lists():
    lightgbm = pytest.importorskip("lightgbm")
    X, y, qid = lists(count=3)
    for one, alone in zip(
        Blend(validation=0, verbose=0).fit(X[:, 1:] ** 2, y, qid=qid).rankers_,
        [NeuralRanker(verbose=0), lightgbm.LGBMRanker(n_jobs=0, verbose=-1)],
        strict=True,
    ):
        assert type(one) is type(alone)
        assert str(one.get_params()) == str(alone.get_params())


def test_the_default_needs_lightgbm(monkeypatch):
    X, y, qid = lists()
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(ValueError, match=r"Blend\(\) needs LightGBM: pip install 'ltr-torch\[base"):
        Blend().fit(X, y, qid=qid)


@pytest.mark.parametrize("X", [[1.0, 2.0], pd.Series([1.0, 2.0]), np.zeros((2, 2, 1))])
def test_a_table_has_two_dimensions(X: Any):
    with pytest.raises(ValueError, match=r"X must have the shape \(rows, columns\), got \(2,"):
        Blend([Ridge()]).fit(X, [0, 1], qid=[0, 0])
    with pytest.raises(ValueError, match=r"X must have the shape \(rows, columns\), got \(2,"):
        fitted([Ridge()]).predict(X)


def test_trees_stop_early_on_the_metric_of_the_blend():
    """LightGBM alone would stop as soon as one of NDCG@1 to NDCG@5 is at its best."""
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = np.clip(X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=600), 0, 3).round()
    qid, new, codes = np.arange(400) // 20, X[400:], np.arange(200) // 20
    trees = lightgbm.LGBMRanker(n_estimators=60, early_stopping_round=5, verbose=-1, n_jobs=1)
    given = {"eval_set": [(new, y[400:])], "eval_qid": [codes]}
    blend = Blend([trees], verbose=0).fit(X[:400], y[:400], qid=qid, **given)
    found = blend.rankers_[0]
    sizes = {"group": [20] * 20, "eval_group": [[20] * 10]}
    sizes |= {"eval_X": (new,), "eval_y": (y[400:],)}
    alone = clone(trees).fit(X[:400], y[:400], eval_at=(10,), **sizes)
    early = clone(trees).fit(X[:400], y[:400], **sizes)
    assert found.best_iteration_ == alone.best_iteration_ > early.best_iteration_
    assert [*found.evals_result_["valid_0"]] == ["ndcg@10"]
    assert max(alone.evals_result_["valid_0"]["ndcg@10"]) == pytest.approx(blend.validation_score_)
    own = Blend([clone(trees).set_params(eval_at=[3])], verbose=0)
    with pytest.warns(UserWarning, match="Found 'eval_at' in params"):
        own.fit(X[:400], y[:400], qid=qid, **given)
    assert [*own.rankers_[0].evals_result_["valid_0"]] == ["ndcg@3"]


def test_a_regressor_of_xgboost_prints_nothing(capsys):
    xgboost = pytest.importorskip("xgboost")
    X, y, qid = lists()
    Blend([xgboost.XGBRegressor(n_estimators=2)], verbose=0).fit(X, y, qid=qid)
    assert capsys.readouterr().out == ""


def test_xgboost_stops_early_on_the_metric_of_the_blend():
    xgboost = pytest.importorskip("xgboost")
    X, y, qid = lists()
    for metric, expected in ((None, "ndcg@10"), ("ndcg@3", "ndcg@3")):
        trees = xgboost.XGBRanker(n_estimators=2, eval_metric=metric)
        blend = Blend([trees], verbose=0).fit(X, y, qid=qid)
        assert [*blend.rankers_[0].evals_result()["validation_0"]] == [expected]


def shops(rows: int, seed: int, *more: str) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Text with missing values, categories, booleans and numbers; the text and a number decide."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "price": rng.normal(size=rows),
            "shop": rng.choice(["a", "b", "c", *more], rows),
            "kind": pd.Categorical(rng.choice(["x", "y"], rows)),
            "new": rng.random(rows) < 0.5,
        }
    )
    frame.loc[rng.random(rows) < 0.1, "shop"] = None
    y = (frame["price"] + 2 * (frame["shop"] == "b") > 1).to_numpy().astype(int)
    return frame, y, rng.integers(0, rows // 8, rows)


def made(library: str) -> Any:
    """A ranker of a library, quick and quiet."""
    if library == "lightgbm":
        return pytest.importorskip(library).LGBMRanker(n_estimators=30, verbose=-1)
    if library == "xgboost":
        return pytest.importorskip(library).XGBRanker(n_estimators=30)
    if library == "catboost":
        options: dict[str, Any] = {"verbose": 0, "allow_writing_files": False}
        return pytest.importorskip(library).CatBoostRanker(iterations=60, **options)
    return {
        "ltr": NeuralRanker(members=1, max_epochs=20, batch_size=8, random_state=0, verbose=0),
        "histograms": HistGradientBoostingRegressor(max_iter=30, random_state=0),
    }[library]


LIBRARIES = ["lightgbm", "xgboost", "catboost", "ltr", "histograms"]


@covering("library, convert", named(*LIBRARIES), {"pandas": lambda x: x, "polars": pl.from_pandas})
def test_text_and_categories_need_no_conversion(library: str, convert):
    X, y, qid = shops(800, 0)
    X_new, y_new, qid_new = shops(240, 1, "unseen")
    ranker = made(library)
    before = clone(ranker).get_params()
    blend = Blend([ranker], verbose=0).fit(convert(X), y, qid=qid)
    assert blend.score(convert(X_new), y_new, qid=qid_new) > 0.85
    # only who sees the text knows that shop b is good
    price = Blend([made(library)], verbose=0).fit(convert(X[["price"]]), y, qid=qid)
    scores = [one.score(convert(X_new), y_new, qid=qid_new) for one in (blend, price)]
    assert scores[0] > scores[1] + 0.05
    # the levels are those of training, whatever rows there are
    some = (X_new["shop"] == "b").to_numpy()
    np.testing.assert_allclose(
        blend.predict(convert(X_new[some])), blend.predict(convert(X_new))[some], rtol=1e-6
    )
    assert str(ranker.get_params()) == str(before)  # the ranker that was given stays as it was


@covering("library, convert", named("lightgbm", "xgboost", "histograms"), {
    "pandas": lambda x: x, "polars": pl.from_pandas, "arrow": pa.Table.from_pandas,
})  # fmt: skip
def test_missing_values_may_leave_a_column_without_a_type(library: str, convert):
    X, y, qid = shops(80, 0)
    X["new"] = X["new"].astype(object).where(X["price"] < 1, None)
    blend = Blend([made(library)], verbose=0).fit(convert(X), y, qid=qid)
    assert np.array_equal(blend.predict(convert(X)), blend.predict(X.astype({"new": "boolean"})))
    for names in (["price", "shop", "new"], ["price"]):
        blend = Blend([made(library)], verbose=0).fit(convert(X[names]), y, qid=qid)
        row = X[names].iloc[:1].assign(price=None)
        expected = blend.predict(row.astype({"price": float}))
        assert np.array_equal(blend.predict(convert(row)), expected)


@pytest.mark.parametrize("library", ["lightgbm", "ltr"])
def test_columns_of_text_may_have_numbers_as_names(library: str):
    X, y, qid = shops(80, 0)
    X = X[["price", "shop"]]
    blend, numbered = (Blend([made(library)], verbose=0) for _ in range(2))
    numbered.fit(X.set_axis([0, 1], axis=1), y, qid=qid)
    expected = blend.fit(X, y, qid=qid).predict(X)
    assert np.array_equal(numbered.predict(X.set_axis([0, 1], axis=1)), expected)


@pytest.mark.parametrize("ending", ["csv", "parquet", "lists"])
def test_the_model_of_a_blend_scores_files(ending: str, tmp_path):
    X, y, qid = shops(400, 0)
    X["size"] = pd.Categorical(np.random.default_rng(0).choice([1, 2, 5], len(X)))
    network = made("ltr").set_params(scorer=AttentionScorer(hidden=(8,), heads=2), max_epochs=1)
    blend = Blend([network, HistGradientBoostingRegressor(max_iter=5)], verbose=0)
    blend.fit(X, pd.Series(y, name="grade"), qid=pd.Series(qid, name="query"))
    blend.weights_ = np.array([0.5, 0.5])
    model = blend.model_
    assert model.looks_at_list
    assert (model.schema.qid, model.schema.label) == ("query", "grade")
    new, y_new, qid_new = shops(120, 1, "unseen")
    new["size"] = pd.Categorical(np.random.default_rng(1).choice([1, 2, 7], len(new)))
    expected = blend.predict(new, qid=qid_new)
    whole = new.assign(query=qid_new, grade=y_new)
    np.testing.assert_allclose(model.predict(whole), expected, rtol=1e-5, atol=1e-6)
    path = tmp_path / f"new.{'parquet' if ending == 'lists' else ending}"
    whole.to_csv(path, index=False) if ending == "csv" else whole.to_parquet(path)
    if ending == "lists":
        path, table = tmp_path / "lists", path
        levels = ["shop", "kind", "new", "size"]
        convert(table, path, qid="query", label="grade", categories=levels)
        expected = expected[np.argsort(pd.factorize(qid_new)[0], kind="stable")]
    np.testing.assert_allclose(model.predict(path), expected, rtol=1e-5, atol=1e-6)


def test_the_model_of_a_blend_of_arrays():
    X, _, _ = lists(2)
    blend = fitted([HistGradientBoostingRegressor(max_iter=3), made("ltr")])
    np.testing.assert_allclose(blend.model_.predict(X), blend.predict(X), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="table must have the column 'x2', as in training"):
        blend.model_.predict(X[:, :2])
    with pytest.raises(ValueError, match="table must have the column 'x0', as in training"):
        blend.model_.predict(pd.DataFrame(X))


class Keeps(RegressorMixin, BaseEstimator):
    """Keeps what its `fit` gets; its class may say that it is of another library."""

    def __init__(self, eval_metric=None):
        self.eval_metric = eval_metric

    def fit(
        self,
        X,
        y,
        group_id=None,
        cat_features=None,
        sample_weight=None,
        group_weight=None,
        eval_set=None,
    ):
        self.got = {"X": X, "group_id": group_id, "cat_features": cat_features}
        self.got |= {"group_weight": group_weight, "eval_set": eval_set}
        self.got["sample_weight"] = sample_weight
        return self

    def predict(self, X):
        return np.zeros(len(X))


def test_catboost_gets_codes_names_and_lists(monkeypatch):
    pool = lambda X, y, **more: {"X": X, "y": y, **more}  # noqa: E731
    monkeypatch.setitem(sys.modules, "catboost", SimpleNamespace(Pool=pool))
    kind = type("CatBoostRanker", (Keeps,), {"__module__": "catboost.core"})
    X, y, qid = shops(160, 0)
    weights = np.arange(1.0, 1 + len(np.unique(qid)))
    blend = Blend([kind()], verbose=0).fit(X, y, qid=qid, sample_weight=weights)
    got = blend.rankers_[0].got
    plain = Blend([Keeps()], verbose=0, validation=0).fit(X, y, qid=qid).rankers_[0].got
    assert got["cat_features"] == got["eval_set"]["cat_features"] == ["x1", "x2"]
    assert got["X"]["x1"].dtype == np.int64
    assert {*got["X"]["x1"]} == {0, 1, 2, 3}  # 0 is a missing value
    assert (np.diff(got["group_id"]) >= 0).all()
    assert len(got["eval_set"]["X"]) == len(got["eval_set"]["group_id"])
    assert got["sample_weight"] is None
    assert len(got["group_weight"]) == len(got["X"])
    assert blend.rankers_[0].eval_metric == "NDCG:top=10;type=Exp"
    # a class of one's own gets the table as it is
    assert plain["X"]["shop"].isna().any()
    assert plain["X"].dtypes.equals(X.dtypes)
    assert plain["cat_features"] is None


def test_a_pipeline_encodes_for_itself():
    X, y, qid = shops(160, 0)
    encode = make_column_transformer((OneHotEncoder(), ["shop"]), remainder="drop")
    blend = Blend([make_pipeline(encode, Ridge())], verbose=0).fit(X, y, qid=qid)
    assert blend.rankers_[0][:1].transform(X).shape == (160, 4)  # None is a level of its own


def test_lists_give_the_blend_of_their_table():
    """Numbers, text, booleans and dates with hours come back from their codes."""
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    rows = 240
    X = pd.DataFrame({"price": rng.normal(size=rows).astype(np.float32)})
    X["day"] = pd.Timestamp("2024-05-01 06:00") + pd.to_timedelta(rng.integers(0, 99, rows), "h")
    X["shop"] = rng.choice(["a", "b", None], rows)
    X["new"] = rng.random(rows) < 0.5
    X.loc[::9, ["price", "day"]] = None
    qid = np.arange(rows) // 8
    y = (X["price"].fillna(0) + (X["shop"] == "b") + X["new"] > 0.5).astype(int)
    table = X.assign(q=qid, y=y, w=1.0 + (qid % 2))
    rankers = [
        NeuralRanker(members=1, max_epochs=2, random_state=0, verbose=0),
        lightgbm.LGBMRanker(n_estimators=5, min_child_samples=3, n_jobs=1, verbose=-1),
    ]
    given = {"qid": qid, "sample_weight": table["w"]}
    of_table = Blend(rankers, verbose=0).fit(X, y, **given)
    roles = {"qid": "q", "label": "y", "weight": "w"}
    prepared = prepare(table, roles)
    of_lists = Blend(rankers, verbose=0).fit(prepared)
    np.testing.assert_allclose(of_lists.predict(X), of_table.predict(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(of_lists.model_.predict(table), of_table.predict(X), atol=1e-5)
    assert of_lists.schema_ is not None
    assert (of_lists.schema_.qid, of_lists.schema_.label) == ("q", "y")
    with pytest.raises(ValueError, match="y must be None if X is lists"):
        Blend(rankers).fit(prepared, y)
    vectors = table.assign(v=[[0.0, 1.0]] * rows)
    vectors = pa.table(vectors).set_column(
        7, "v", pa.array([[0.0, 1.0]] * rows, pa.list_(pa.float32(), 2))
    )
    wide = Blend(rankers, verbose=0).fit(prepare(vectors, roles))
    assert wide.rankers_[1].n_features_in_ == 7  # two of them for the hour and the vector
    assert wide.predict(vectors).shape == (rows,)
    with pytest.raises(ValueError, match=r"rankers must be .* if X is lists, got Ridge"):
        Blend([Ridge()]).fit(prepared)


ODD = ["price [EUR]", "size: cm", "a b", "a_b", 'ship"ped" {x}', "<new>", "été, ½", "x1", "day"]


def odd_names(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Names, levels and types that a library of trees refuses, or takes for others."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(rows, 4)), columns=ODD[:4])
    X[ODD[4]] = rng.choice(["[a]", '"b"', "c:d", "é"], rows)
    X[ODD[5]] = pd.array(rng.choice([True, None], rows), dtype="boolean")
    X[ODD[6]] = pd.array(rng.integers(0, 9, rows), dtype=pd.ArrowDtype(pa.int8()))
    X[ODD[7]] = [Decimal(int(x)) / 4 for x in rng.integers(0, 99, rows)]
    X[ODD[8]] = pd.Timestamp("2026-01-01 06:00") + pd.to_timedelta(rng.integers(0, 99, rows), "h")
    good = X["a b"] - X["a_b"] + (X[ODD[4]] == "[a]") - X["price [EUR]"]
    return X, (good > 0.5).to_numpy().astype(int), np.arange(rows) // 8


@covering(
    "library, convert",
    named("lightgbm", "xgboost", "histograms", "default"),
    {"pandas": lambda x: x, "polars": pl.from_pandas, "arrow": pa.Table.from_pandas},
)
def test_names_and_types_that_libraries_refuse(library: str, convert, tmp_path):
    (X, y, qid), (new, y_new, qid_new) = odd_names(400, 0), odd_names(160, 1)
    network = made("ltr").set_params(max_epochs=5)
    if library == "default":
        rankers: Any = network.set_params(monotone={"price [EUR]": -1, "a b": 1})
    else:
        rankers = [network, made(library)]
    blend = Blend(rankers, n_jobs=1, verbose=0).fit(convert(X), y, qid=qid)
    expected = blend.predict(new)
    assert blend.score(new, y_new, qid=qid_new) > 0.75
    other_order = new[new.columns[::-1]].assign(other=1)
    np.testing.assert_allclose(blend.predict(convert(other_order)), expected, rtol=1e-9)
    assert [*blend.feature_names_in_] == ODD
    assert {*blend.schema_.steps} == {*ODD}
    # the names make no difference
    plain = {name: f"c{at}" for at, name in enumerate(ODD)}
    if library != "default":
        again = Blend(rankers, n_jobs=1, verbose=0).fit(X.rename(columns=plain), y, qid=qid)
        assert np.array_equal(again.predict(new.rename(columns=plain)), expected)
    else:
        raised = blend.predict(new.assign(**{"price [EUR]": new["price [EUR]"] + 1}))
        assert (raised <= expected + 1e-9).all()
    if library == "histograms":
        return
    blend.save(tmp_path / "model")
    loaded = Blend.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(convert(new)), expected)
    assert [*loaded.feature_names_in_] == ODD
    found = importance(loaded, new, y_new, qid_new, repeats=2, columns=["a b", "size: cm"])
    assert [*found.table.index] == ["a b", "size: cm"]
    assert found.table.loc["a b", "among"] > found.table.loc["size: cm", "among"]


@pytest.mark.parametrize(
    "networks",
    # an export of a network takes seconds
    [[], pytest.param(["ltr"], marks=pytest.mark.slow)],
    ids=["trees", "both"],
)
def test_odd_names_stay_in_contributions_and_exports(networks: list[str], tmp_path):
    (X, y, qid), (new, _, _) = odd_names(400, 0), odd_names(160, 1)
    rankers = [made(name) for name in (*networks, "lightgbm", "xgboost")]
    blend = Blend(rankers, verbose=0).fit(X, y, qid=qid)
    expected = blend.predict(new)
    pytest.importorskip("shap")
    values = contributions(blend, new[:3], background=new[20:22])
    assert values.columns == ODD
    np.testing.assert_allclose(values.base + values.values.sum(1), expected[:3], atol=1e-4)
    pytest.importorskip("onnxruntime")
    written = blend.export(tmp_path / "model.onnx")
    assert written.differing == 0
    card = written.card.read_text()
    assert [name for name in ODD if name not in card] == []
    np.testing.assert_allclose(OnnxRanker(written.model).score(new), expected, rtol=1e-4, atol=1e-5)


def test_constraints_of_a_ranker_name_the_columns_of_x():
    xgboost = pytest.importorskip("xgboost")
    (X, y, qid), (new, _, _) = odd_names(400, 0), odd_names(160, 1)
    falls = xgboost.XGBRanker(n_estimators=20, monotone_constraints={"price [EUR]": 1})
    histograms = HistGradientBoostingRegressor(max_iter=20, monotonic_cst={"a b": -1})
    for ranker, name in ((falls, "price [EUR]"), (histograms, "a b")):
        blend = Blend([ranker], verbose=0).fit(X, y, qid=qid)
        before, after = blend.predict(new), blend.predict(new.assign(**{name: new[name] + 2}))
        assert ((after - before) * (1 if ranker is falls else -1) >= 0).all()
        assert ranker.get_params() == clone(ranker).get_params()
    apart = xgboost.XGBRanker(n_estimators=5, interaction_constraints=[["a b", "a_b"], ["x1"]])
    Blend([apart], verbose=0).fit(X, y, qid=qid)


@covering("library, form", named("lightgbm", "xgboost"), named("array", "frame", "categories"))
def test_a_trained_booster_is_blended_saved_and_exported(library: str, form: str, tmp_path):
    """It is scaled and weighed, not trained again, and finds its columns by their names."""
    package = pytest.importorskip(library)
    X, y, qid = shops(800, 0)
    X["other"] = pd.array(
        np.where(np.arange(800) % 3 == 0, None, np.arange(800) % 2 == 0), "boolean"
    )
    X = X[["kind", "other", "price", "new", "shop"]]
    columns = ["new", "price", "shop"] if form == "categories" else ["new", "price"]
    own = X[columns].astype({"new": float})
    own = own.astype({"shop": "category"}) if form == "categories" else own
    if form == "array":
        X = own = own.to_numpy()
    order = np.argsort(qid, kind="stable")
    first = order[qid[order] < 50]
    rows = (lambda x: x[first]) if form == "array" else (lambda x: x.iloc[first])
    sizes = np.bincount(qid[first])[np.unique(qid[first])]
    if library == "lightgbm":
        data = package.Dataset(rows(own), y[first], group=sizes, params={"verbose": -1})
        given = {"objective": objective(SoftmaxLoss()), "num_threads": 1, "verbose": -1}
        booster = package.train(given, data, 10)
        scores = np.asarray(booster.predict(own))
    else:
        data = package.DMatrix(rows(own), y[first], group=sizes, enable_categorical=True)
        booster = package.train({"nthread": 1}, data, 10, obj=objective(SoftmaxLoss()))
        scores = booster.predict(package.DMatrix(own, enable_categorical=True))
    blend = Blend([booster, made("lightgbm")], verbose=0)
    new = qid >= 50
    blend.fit(X[new], y[new], qid=qid[new])
    assert blend.rankers_[0] is booster
    blend.weights_ = np.array([1.0, 0.0])
    np.testing.assert_allclose(blend.predict(X), scores * blend.scales_[0], rtol=1e-6, atol=1e-9)
    blend.save(tmp_path / "model")
    loaded = Blend.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(X), blend.predict(X))
    assert clone(loaded).rankers[0].num_trees if library == "lightgbm" else True
    blend.weights_ = np.array([0.5, 0.5])
    if form == "array":
        found = OnnxRanker(blend.export(tmp_path / "m.onnx").model).score_arrays(X)
    else:
        found = OnnxRanker(blend.export(tmp_path / "m.onnx").model).score(X)
    np.testing.assert_allclose(found, blend.predict(X), rtol=1e-4, atol=1e-5)


def test_text_with_a_value_a_row_is_left_out_with_a_notice():
    """One notice, and the trees get the columns that the networks get."""
    X, y, qid = shops(160, 0)
    X["title"] = [f"title {row}" for row in range(160)]
    rankers = [made("ltr"), made("lightgbm")]
    with pytest.warns(UserWarning, match="title is left out, with 160 different texts") as told:
        blend = Blend(rankers, verbose=0).fit(X, y, qid=qid)
    assert len(told) == 1
    assert "title" not in blend.schema_.steps
    assert blend.rankers_[1].n_features_in_ == 4
    plain = Blend(rankers, verbose=0).fit(X.drop(columns="title"), y, qid=qid)
    assert np.array_equal(plain.predict(X.drop(columns="title")), blend.predict(X))


def test_lists_and_tables_hold_out_the_same_queries():
    """A hash of the qid decides, not the number of the list."""
    X, y, qid = shops(320, 0)
    qid = np.array([f"query {one}" for one in qid])
    table = X.assign(q=qid, y=y)
    rankers = [made("lightgbm")]
    of_lists = Blend(rankers, verbose=0).fit(prepare(table, {"qid": "q", "label": "y"}))
    of_table = Blend(rankers, verbose=0).fit(X, y, qid=qid)
    assert of_lists.validation_queries_ == of_table.validation_queries_ > 0
    held = query_shares(list(dict.fromkeys(qid.tolist()))) < 0.2
    assert of_lists.validation_queries_ == held.sum()
    np.testing.assert_allclose(of_lists.predict(X), of_table.predict(X), rtol=1e-5, atol=1e-6)


def test_trees_get_numbers_as_they_were_read(tmp_path):
    """Whole numbers above 2^24 that float32 merges are different for trees, also in a file."""
    rng = np.random.default_rng(0)
    value = 2**25 + 2 * rng.permutation(2000)
    X = pd.DataFrame({"at": value + rng.integers(0, 2, 2000), "noise": rng.normal(size=2000)})
    y, qid = (X["at"] % 2).to_numpy(), np.arange(2000) // 10
    X["at"] = 2**25 + (X["at"] % 2)
    X.loc[::5, "at"] = value[::5] * 1000
    y = np.where(np.arange(2000) % 5 == 0, 0, y)
    lightgbm = pytest.importorskip("lightgbm")
    trees = lightgbm.LGBMRanker(n_estimators=9, verbose=-1, n_jobs=1)
    blend = Blend([trees], verbose=0).fit(X, y, qid=qid)
    assert blend.score(X, y, qid=qid) > 0.99
    blend.save(tmp_path / "model")
    X.to_parquet(tmp_path / "new.parquet")
    found = Blend.load(tmp_path / "model").model_.predict(tmp_path / "new.parquet")
    np.testing.assert_allclose(found, blend.predict(X), rtol=1e-6)


def test_a_blend_takes_missing_values_if_its_rankers_do():
    takes = lambda ranker: get_tags(ranker).input_tags.allow_nan  # noqa: E731
    assert takes(Blend())
    assert takes(Blend([made("lightgbm"), made("ltr"), made("histograms")]))
    assert not takes(Blend([made("lightgbm"), Ridge()]))
    assert not takes(Calibrated(Blend([Ridge()])))
    assert takes(Calibrated(made("ltr")))
    whole = made("ltr").set_params(transform=Standardize())
    assert takes(whole) == takes(Blend([whole])) == Standardize().takes_missing
    assert not get_tags(Blend([Ridge()])).input_tags.categorical


def test_what_cannot_be_fitted_is_refused_before_any_training():
    X, y, qid = shops(80, 0)
    calls = []

    class Takes(Column):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Takes":
            calls.append(1)
            return self

    with pytest.raises(ValueError, match=r"sample_weight must be None for Column\(\)"):
        Blend([Takes(), Column()]).fit(X, y, qid=qid, sample_weight=np.ones(80))
    assert not calls
