"""Blends and trees in one ONNX file: the scores of the libraries, also on their splits."""

import json
from typing import Any

import lightgbm
import numpy as np
import onnx
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lightgbm import LGBMRanker, LGBMRegressor
from pairwise import covering, named
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from ltr.boosting import metric, objective
from ltr.datasets import Standardize, TableTransform
from ltr.estimators import Blend, NeuralRanker, importance
from ltr.export import export_model
from ltr.export.blend import ExportedBlend
from ltr.losses import SoftmaxLoss
from ltr.metrics import NDCG
from ltr.models import AttentionScorer, MLPScorer
from ltr.reports import evaluate
from ltr.serving import OnnxRanker

xgboost = pytest.importorskip("xgboost")  # which has no wheel for every system

SETS = {"min_data_per_group": 5, "cat_smooth": 1, "max_cat_to_onehot": 1}
"""Parameters with which LightGBM splits by sets of categories."""


def lists(rows: int = 600, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shops = [*"abcdefgh", None]
    X = pd.DataFrame(
        {
            "price": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(size=rows)),
            "shop": rng.choice(np.array(shops, dtype=object), rows),
            "new": rng.random(rows) < 0.5,
            "size": pd.Categorical(rng.choice([1, 2, 5], rows)),
            "stock": rng.integers(0, 9, rows),
        }
    )
    good = X["shop"].isin(["b", "e", "f"]).to_numpy()
    return X, (X["price"] > 0).to_numpy() + good * 1 + X["new"], np.arange(rows) // 10


def network(**given: Any) -> NeuralRanker:
    """A network of one member, since an export of each takes a second or more."""
    small: dict[str, Any] = {"scorer": MLPScorer(hidden=(8,)), "members": 1, "max_epochs": 2}
    return NeuralRanker(**{**small, "verbose": 0, "random_state": 0, **given})


@pytest.fixture(scope="module")
def blend() -> Blend:
    X, y, qid = lists()
    lightgbm = LGBMRanker(n_estimators=20, verbose=-1, **SETS)
    found = Blend([network(), lightgbm, xgboost.XGBRanker(n_estimators=20, max_cat_to_onehot=1)])
    found.set_params(verbose=0).fit(X, y, qid=qid)
    found.weights_ = np.array([0.3, 0.5, 0.2])
    return found


@pytest.fixture(scope="module")
def exported(blend, tmp_path_factory) -> Any:
    return blend.export(tmp_path_factory.mktemp("blend"), test=lists(seed=2))


def test_the_report(blend, exported):
    assert exported.difference < 1e-6
    assert exported.differing == 0
    assert exported.rows == 1424
    model = onnx.load(exported.model)
    assert [one.name for one in model.graph.input] == ["features", "categories"]
    assert {one.domain: one.version for one in model.opset_import} == {"": 17, "ai.onnx.ml": 3}
    kinds = [one.op_type for one in model.graph.node]
    assert kinds.count("TreeEnsembleRegressor") == 2
    card = exported.card.read_text()
    X, y, qid = lists(seed=2)
    for part in ("float64 (lists, documents, 2)", "`shop`", f"{blend.score(X, y, qid=qid):.4f}"):
        assert part in card


def test_the_folder_loads_again(blend, exported):
    X = lists(seed=3)[0]
    again = Blend.load(exported.model.parent)
    np.testing.assert_array_equal(again.predict(X), blend.predict(X))


def test_without_ltr_and_torch(alone, blend, exported):
    X = lists(20, seed=3)[0]
    code = """
sys.modules["torch"] = sys.modules["lightgbm"] = sys.modules["xgboost"] = None
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession("model.onnx")
features, codes = np.array([[[0.5, 3], [np.nan, 1]]]), np.array([[[1, 2, 3], [0, 1, 0]]])
print(session.run(None, {"features": features, "categories": codes})[0].tolist())
"""
    found = json.loads(alone(code, exported.model.parent))
    X = pd.DataFrame({"price": [0.5, np.nan], "stock": [3, 1], "shop": ["a", None]})
    X["new"], X["size"] = [True, False], pd.Categorical([5, None], categories=[1, 2, 5])
    np.testing.assert_allclose(found[0], blend.predict(X), atol=1e-6)


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_scores_of_the_served_file(blend, exported, data):
    splits = [line for line in blend.rankers_[1].booster_.trees_to_dataframe()["threshold"] if line]
    numbers = sorted({x for x in splits if isinstance(x, float) and np.isfinite(x)})
    value = st.one_of(st.none(), st.sampled_from(numbers), st.floats(-1e6, 1e6))
    row = {
        "price": value,
        "stock": value,
        "shop": st.sampled_from(["a", "b", "e", "unseen", "", None]),
        "new": st.sampled_from([True, False, None]),
        "size": st.sampled_from([1, 2, 5, 7, None]),
    }
    rows = data.draw(st.lists(st.fixed_dictionaries(row), min_size=1, max_size=20))
    X = pd.DataFrame(rows, columns=[*row]).astype({"price": float, "stock": float})
    X["new"] = pd.array([one["new"] for one in rows], dtype="boolean")
    X["size"] = pd.Categorical([one["size"] for one in rows], categories=[1, 2, 5, 7])
    X["shop"] = np.array([one["shop"] for one in rows], dtype=object)
    X = X.astype({"shop": "str"}).assign(shop=X["shop"])
    expected = blend.predict(X)
    found = OnnxRanker(exported.model).score(rows)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def alone(cls: type, categories: bool, *, slow: bool = False) -> Any:
    """A case of `test_trees_alone`; each class and each kind of columns of a library is fast."""
    marks = [pytest.mark.slow] if slow else []
    return pytest.param(cls, categories, id=f"{cls.__name__}-{categories}", marks=marks)


@pytest.mark.parametrize(
    ("cls", "categories"),
    [
        alone(LGBMRanker, True),
        alone(LGBMRegressor, False),
        alone(xgboost.XGBRanker, True),
        alone(xgboost.XGBRegressor, False),
        alone(LGBMRanker, False, slow=True),
        alone(LGBMRegressor, True, slow=True),
        alone(xgboost.XGBRanker, False, slow=True),
        alone(xgboost.XGBRegressor, True, slow=True),
    ],
)
def test_trees_alone(cls, categories, tmp_path):
    X, y, qid = lists()
    given: dict[str, Any] = {"n_estimators": 10}
    given |= {"verbose": -1, **SETS} if "LGBM" in cls.__name__ else {"max_cat_to_onehot": 1}
    if categories:
        X = X.astype({"shop": "category"})
        given |= {} if "LGBM" in cls.__name__ else {"enable_categorical": True}
    else:
        X = X[["price", "stock"]]
    lists_of = {"group": np.full(60, 10)} if cls is LGBMRanker else {}
    lists_of |= {"qid": qid} if cls is xgboost.XGBRanker else {}
    ranker = cls(**given).fit(X, y, **lists_of)
    written = export_model(ranker, tmp_path)
    assert (written.difference < 1e-6) & (written.differing == 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "model.onnx"]
    found = OnnxRanker(written.model).score(X)
    np.testing.assert_allclose(found, ranker.predict(X), rtol=1e-4, atol=1e-6)
    if cls is LGBMRanker:
        one = export_model(ranker, tmp_path / "one.onnx", per_document=True)
        np.testing.assert_array_equal(OnnxRanker(one.model).score(X), found)


@covering("form, library", named("array", "frame", "categories"), named("lightgbm", "xgboost"))
def test_boosters_that_our_objective_trained(form, library, tmp_path):
    """A `Booster` is the only result of our objective in XGBoost, which predicts with all trees."""
    X, y, _ = lists()
    X = X.astype({"shop": "category"}) if form == "categories" else X[["price", "stock"]]
    X = X.to_numpy() if form == "array" else X
    loss, sizes = objective(SoftmaxLoss()), np.full(60, 10)
    if library == "lightgbm":
        data = lightgbm.Dataset(X, y, group=sizes, params={"verbose": -1})
        given = {"objective": loss, "verbose": -1, "num_threads": 1, **SETS}
        booster = lightgbm.train(given, data, 10)
        expected = np.asarray(booster.predict(X))
    else:
        data = xgboost.DMatrix(X, y, group=sizes, enable_categorical=True)
        noise = xgboost.DMatrix(X, y[::-1].copy(), group=sizes, enable_categorical=True)
        booster = xgboost.train(
            {"max_cat_to_onehot": 1, "nthread": 1, "disable_default_eval_metric": True},
            data,
            10,
            obj=loss,
            custom_metric=metric(NDCG(top_k=10)),
            evals=[(noise, "noise")],
            early_stopping_rounds=2,
            verbose_eval=False,
        )
        assert booster.best_iteration < booster.num_boosted_rounds() - 1
        expected = booster.predict(data)
    written = export_model(booster, tmp_path / "m.onnx")
    assert (written.difference < 1e-6) & (written.differing == 0)
    served = OnnxRanker(written.model)
    found = served.score_arrays(X) if form == "array" else served.score(X)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    wide = X if form == "array" else X[X.columns[::-1]].assign(other=1)
    result = importance(booster, wide, y, np.arange(len(y)) // 10, repeats=2)
    assert result.score == pytest.approx(
        evaluate(y, expected, np.arange(600) // 10, ["ndcg@10"])["ndcg@10"].mean
    )


def test_whole_numbers_as_categories(tmp_path):
    """LightGBM cuts 2.7 to 2, and takes what it did not see for no category of a set."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.integers(0, 9, 600), rng.normal(size=600)], axis=1)
    y = np.isin(X[:, 0], [1, 4, 6]) * 1.0 + X[:, 1]
    given = {"n_estimators": 10, "verbose": -1, **SETS}
    ranker = LGBMRegressor(**given).fit(X, y, categorical_feature=[0])
    written = export_model(ranker, tmp_path / "m.onnx")
    values = np.array([-3, -1, -0.5, 0, 0.5, 1, 1.9, 4, 6.2, 8, 9, 77, np.nan])
    rows = np.stack([values, np.zeros(len(values))], axis=1)
    found = OnnxRanker(written.model).score_arrays(rows)
    np.testing.assert_allclose(found, ranker.predict(rows), rtol=1e-5, atol=1e-6)
    drawn = [inputs[0] for inputs, _ in ExportedBlend.of(ranker, False, False).examples()]
    assert {1.0, 4.0, 6.0} <= {*np.concatenate([x[..., 0].ravel() for x in drawn])}


def test_levels_that_are_not_text(tmp_path):
    rng = np.random.default_rng(0)
    new, size = rng.choice([0, 1], (2, 300))
    X = pd.DataFrame({"new": pd.Categorical.from_codes(new, [False, True])})
    X["size"] = pd.Categorical.from_codes(size, [1.0, 2.5])
    X["x"] = rng.normal(size=300)
    ranker = LGBMRegressor(n_estimators=10, verbose=-1).fit(X, new + 2 * size + 0.1 * X["x"])
    served = OnnxRanker(export_model(ranker, tmp_path / "m.onnx").model)
    rows = [dict(zip(X, row, strict=True)) for row in zip(*(X[name] for name in X), strict=True)]
    np.testing.assert_allclose(served.score(rows), ranker.predict(X), rtol=1e-4, atol=1e-6)


def test_levels_of_several_types(tmp_path):
    X = pd.DataFrame({"day": pd.Categorical(["a", 1] * 150), "x": np.arange(300.0)})
    ranker = LGBMRegressor(n_estimators=2, n_jobs=1, verbose=-1).fit(X, X["x"])
    with pytest.raises(ValueError, match=r"levels must be text, .* got object in 'day'"):
        export_model(ranker, tmp_path / "m.onnx")


def test_a_number_that_counts_as_missing(tmp_path):
    X, y, _ = lists()
    values = X[["price", "stock"]].fillna(-999).to_numpy()
    ranker = xgboost.XGBRegressor(n_estimators=10, missing=-999).fit(values, y)
    written = export_model(ranker, tmp_path / "m.onnx")
    values[::3, 1] = np.nan
    found = OnnxRanker(written.model).score_arrays(values)
    np.testing.assert_allclose(found, ranker.predict(values), rtol=1e-4, atol=1e-6)


def test_missing_values_only_in_production(tmp_path):
    """LightGBM takes them for 0, as it saw none in training."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    ranker = LGBMRegressor(n_estimators=10, verbose=-1).fit(X, X[:, 0] + np.abs(X[:, 1]))
    written = export_model(ranker, tmp_path / "m.onnx")
    X[::2, 0] = X[::3, 1] = np.nan
    found = OnnxRanker(written.model).score_arrays(X)
    np.testing.assert_allclose(found, ranker.predict(X), rtol=1e-5, atol=1e-6)


def few_values() -> tuple[np.ndarray, np.ndarray]:
    """Columns of three values and missing ones; LightGBM separates the latter by a split at inf."""
    X = np.random.default_rng(0).choice([0.0, 1.0, 2.0, np.nan], (600, 2))
    return X, np.isnan(X[:, 0]) + (X[:, 1] == 1)


@pytest.mark.parametrize("single", [False, True])
def test_missing_values_against_few_others(single, tmp_path):
    X, y = few_values()
    ranker = LGBMRanker(n_estimators=10, verbose=-1).fit(X, y, group=[10] * 60)
    written = export_model(ranker, tmp_path / "m.onnx", single=single)
    assert single or (written.difference < 1e-6 and not written.differing)
    rows = np.stack(np.meshgrid([-3e38, 0, 1, 2, 3e38, np.nan], [0, 1, np.nan]), -1).reshape(-1, 2)
    found = OnnxRanker(written.model).score_arrays(rows)
    np.testing.assert_allclose(found, ranker.predict(rows), rtol=1e-5, atol=1e-6)


@pytest.mark.slow  # exports a network too; the test above has the trees alone, others blends
def test_missing_values_against_few_others_in_a_blend(tmp_path):
    X, y = few_values()
    trees = LGBMRanker(n_estimators=10, verbose=-1)
    blend = Blend([network(), trees], verbose=0).fit(X, y, group=[10] * 60)
    blend.weights_ = np.array([0.5, 0.5])
    written = blend.export(tmp_path / "m.onnx")
    found = OnnxRanker(written.model).score_arrays(X)
    np.testing.assert_allclose(found, blend.predict(X), rtol=1e-5, atol=1e-5)


def test_other_boosting_of_lightgbm(tmp_path):
    X, y, qid = lists()
    more = {"subsample": 0.5, "subsample_freq": 1, "n_estimators": 10, "verbose": -1}
    rankers = [LGBMRegressor(**more, boosting_type=kind) for kind in ("rf", "dart")]
    blend = Blend(rankers, validation=0, verbose=0).fit(X[["price", "stock"]], y, qid=qid)
    assert blend.export(tmp_path / "m.onnx").difference < 1e-6


def test_histograms_of_a_table_get_its_columns_by_name(tmp_path):
    """Otherwise scikit-learn warns, and warnings are errors here."""
    X, y, _ = lists()
    ranker = HistGradientBoostingRegressor(max_iter=3).fit(X[["price", "stock"]], y)
    assert export_model(ranker, tmp_path / "m.onnx").difference < 1e-6


def test_early_stopping_counts(tmp_path):
    X, y, qid = lists()
    X, noise = X[["price", "stock"]], np.random.default_rng(0).permutation(y)
    ranker = xgboost.XGBRanker(n_estimators=50, early_stopping_rounds=2)
    ranker.fit(X, y, qid=qid, eval_set=[(X, noise)], eval_qid=[qid], verbose=False)
    assert ranker.best_iteration < 49
    assert export_model(ranker, tmp_path / "m.onnx").difference < 1e-6


def test_float32_counts_the_rows_that_round_across_a_split(tmp_path):
    X, y, qid = lists()
    trees = LGBMRanker(n_estimators=20, verbose=-1, **SETS), xgboost.XGBRanker(n_estimators=20)
    blend = Blend([*trees], verbose=0).fit(X, y, qid=qid)
    blend.weights_ = np.array([0.6, 0.4])
    written = blend.export(tmp_path / "m.onnx", single=True)
    assert written.differing > 0
    served = OnnxRanker(written.model)
    X = lists(seed=3)[0].astype({"price": "float32"})
    found, expected = served.score(X), blend.predict(X)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_arrays_and_a_network_of_lists(tmp_path):
    X, y, qid = lists()
    values = X[["price", "stock"]].to_numpy()
    trees = LGBMRanker(n_estimators=5, verbose=-1)
    scorer = AttentionScorer(hidden=(8,), heads=2, blocks=1)
    lists_of = network(scorer=scorer, transform=TableTransform(Standardize()))
    blend = Blend([lists_of, trees], verbose=0)
    blend.fit(values, y, qid=qid)
    written = blend.export(tmp_path)
    assert written.difference < 1e-5
    served = OnnxRanker(written.model)
    expected = blend.predict(values[:10], qid=qid[:10])
    np.testing.assert_allclose(served.score_arrays(values[:10]), expected, atol=1e-5)
    rows = [dict(zip(["x0", "x1"], row, strict=True)) for row in values[:10].tolist()]
    np.testing.assert_allclose(served.score(rows), expected, atol=1e-5)
    with pytest.raises(ValueError, match=r"per_document must.*list"):
        blend.export(tmp_path / "m.onnx", per_document=True)


@pytest.mark.parametrize(
    ("ranker", "message"),
    [
        (LGBMRegressor(objective="poisson", verbose=-1), "objective 'poisson'"),
        (LGBMRegressor(reg_sqrt=True, verbose=-1), "objective 'regression sqrt'"),
        (LGBMRegressor(linear_tree=True, verbose=-1), "linear_tree=True"),
        (LGBMRegressor(zero_as_missing=True, verbose=-1), "zero_as_missing=True"),
        (xgboost.XGBRegressor(objective="count:poisson"), "objective 'count:poisson'"),
        (xgboost.XGBRegressor(booster="dart"), "booster='gbtree', got 'dart'"),
        (Ridge(), r"model.*got Ridge"),
    ],
    ids=lambda x: "" if isinstance(x, str) else type(x).__name__,
)
def test_what_has_no_form_is_refused(ranker, message, tmp_path):
    X, y, _ = lists()
    ranker.set_params(**({"n_estimators": 3} if "n_estimators" in ranker.get_params() else {}))
    ranker.fit(X[["stock"]] % 3, y)
    with pytest.raises(ValueError, match=message):
        export_model(ranker, tmp_path / "m.onnx")
    blend = Blend([LGBMRanker(n_estimators=2, verbose=-1)], verbose=0)
    blend.fit(X[["stock"]], y, group=[len(X)])
    blend.rankers_ = [ranker]
    with pytest.raises(ValueError, match="got lgbmranker" if "Ridge" in message else message):
        blend.export(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_a_ranker_that_is_not_fitted(tmp_path):
    with pytest.raises(ValueError, match=r"model must be .*fitted.*got LGBMRanker"):
        export_model(LGBMRanker(), tmp_path / "m.onnx")


def test_bad_arguments(blend, exported, tmp_path):
    with pytest.raises(ValueError, match=r'to must be "onnx".*torch'):
        export_model(blend.rankers_[1], tmp_path / "m.pt2", to="torch")
    with pytest.raises(ValueError, match=r"test.*int"):
        blend.export(tmp_path / "m.onnx", test=5)
    with pytest.raises(ValueError, match=r'to must be "onnx" for trees, got .torch'):
        blend.export(tmp_path / "m.pt2")
    served = OnnxRanker(exported.model)
    row = lists(1)[0].to_dict("records")[0]
    for name, bad in (("price", "cheap"), ("stock", float("inf")), ("stock", 1e39)):
        with pytest.raises(ValueError, match=f"column '{name}'"):
            served.score([{**row, name: bad}])
