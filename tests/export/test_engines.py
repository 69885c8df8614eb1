"""Files for search engines: read by the rule of each engine's own code, one row at a time.

The readers here are written from the sources of the engines, apart from those of `ltr.export`. The
second oracle is XGBoost: a forest of another library, written as a model of XGBoost, must give the
same scores there.
"""

import json
import math
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lightgbm import LGBMRanker, LGBMRegressor
from sklearn.ensemble import HistGradientBoostingRegressor

from ltr import export
from ltr.estimators import Blend, NeuralRanker
from ltr.export.engines import ENGINES, WRITERS, engine_files
from ltr.export.forest import forest_of
from ltr.export.trees import read_trees
from ltr.models import AdditiveScorer, Ensemble, LinearScorer, MLPScorer, RankingModel

xgboost = pytest.importorskip("xgboost")  # which has no wheel for every system

f32 = np.float32
export_model: Any = export.export_model  # whose arguments are chosen at run time here


def opensearch(content: Any, row: dict[str, float], missing: str = "file") -> np.float32:
    """`NaiveAdditiveDecisionTree`: yes where threshold > value, in float32."""
    total = f32(0)
    for node in content["model"]["model"]["definition"]["splits"]:
        while "leaf" not in node:
            value, threshold = f32(row[node["split"]]), f32(node["split_condition"])
            if math.isnan(value) and missing == "zero":
                value = f32(0)
            goes_yes = threshold > value
            if math.isnan(value) and missing == "file":
                goes_yes = node["missing"] == node["yes"]
            node = node["children"][0 if goes_yes else 1]
        total += f32(node["leaf"])
    return total


def elasticsearch(content: Any, row: dict[str, float]) -> float:
    """`Tree` of Elasticsearch: the float32 score of a query, compared in float64."""
    total = 0.0
    for one in content["definition"]["trained_model"]["ensemble"]["trained_models"]:
        tree = one["tree"]
        node = tree["tree_structure"][0]
        while "leaf_value" not in node:
            value = float(f32(row[tree["feature_names"][node["split_feature"]]]))
            left = node["default_left"] if math.isnan(value) else value <= node["threshold"]
            node = tree["tree_structure"][node["left_child" if left else "right_child"]]
        total += node["leaf_value"]
    return total


def solr(content: Any, row: dict[str, float]) -> np.float32:
    """`MultipleAdditiveTreesModel`: left where value <= threshold + 1e-6, in float32."""
    total = f32(0)
    for tree in content["params"]["trees"]:
        node = tree["root"]
        while "feature" in node:
            value, threshold = f32(row[node["feature"]]), f32(node["threshold"]) + f32(1e-6)
            if math.isnan(value) and content["params"].get("isNullSameAsZero", True):
                value = f32(0)
            side = "left" if value <= threshold else "right"
            side = node["missing"] if math.isnan(value) else side
            node = node[side]
        total += f32(tree["weight"]) * f32(node["value"])
    return total


READERS: dict[str, Any] = {
    "opensearch": opensearch,
    "elasticsearch": elasticsearch,
    "solr": solr,
}


def scores(content: Any, to: str, X: np.ndarray, names: list[str]) -> np.ndarray:
    rows = (dict(zip(names, row, strict=True)) for row in X.tolist())
    return np.array([READERS[to](content, row) for row in rows], dtype=np.float64)


def as_xgboost(content: Any, names: list[str]) -> Any:
    """Write the trees of `model/xgboost+json` as a model of XGBoost, and load it there."""
    X = np.zeros((4, len(names)))
    start = xgboost.train(
        {"base_score": 0.0, "max_depth": 1}, xgboost.DMatrix(X, [0, 1, 0, 1]), num_boost_round=1
    )
    model = json.loads(start.save_raw("json"))
    learner = model["learner"]
    booster = learner["gradient_booster"]["model"]
    blank = booster["trees"][0]
    trees = []
    for number, root in enumerate(content["model"]["model"]["definition"]["splits"]):
        rows: dict[int, Any] = {}
        parents = {root["nodeid"]: 2147483647}
        waiting = [root]
        while waiting:
            node = waiting.pop()
            rows[node["nodeid"]] = node
            for child in node.get("children", ()):
                parents[child["nodeid"]] = node["nodeid"]
                waiting.append(child)
        size = len(rows)
        assert sorted(rows) == list(range(size))
        nodes = [rows[at] for at in range(size)]
        tree = dict(blank)
        tree |= {
            "id": number,
            "left_children": [one.get("yes", -1) for one in nodes],
            "right_children": [one.get("no", -1) for one in nodes],
            "parents": [parents[at] for at in range(size)],
            "split_indices": [names.index(x["split"]) if "split" in x else 0 for x in nodes],
            "split_conditions": [one.get("split_condition", one.get("leaf")) for one in nodes],
            "split_type": [0] * size,
            "default_left": [int("yes" in x and x["missing"] == x["yes"]) for x in nodes],
            "base_weights": [one.get("leaf", 0.0) for one in nodes],
            "loss_changes": [0.0] * size,
            "sum_hessian": [1.0] * size,
        }
        tree["tree_param"] = dict(blank["tree_param"], num_nodes=str(size))
        trees.append(tree)
    booster["trees"] = trees
    booster["tree_info"] = [0] * len(trees)
    booster["iteration_indptr"] = list(range(len(trees) + 1))
    booster["gbtree_model_param"]["num_trees"] = str(len(trees))
    found = xgboost.Booster()
    found.load_model(bytearray(json.dumps(model).encode()))
    return found


def table(rows: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns of float32 values: normal, some missing; whole numbers; tiny and huge ones."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 5)).astype(f32).astype(np.float64)
    X[:, 1] = np.where(rng.random(rows) < 0.3, np.nan, X[:, 1])
    X[:, 2] = rng.integers(-2, 3, rows)
    X[:, 3] = (X[:, 3] * 1e-7).astype(f32)
    X[:, 4] = (X[:, 4] * 1e9).astype(f32)
    y = (X[:, 0] > 0).astype(int) + (X[:, 2] > 0) + (np.nan_to_num(X[:, 1], nan=1) > 0.5)
    y = y + (X[:, 3] > 0) * (X[:, 4] > 0)
    return X, y, np.arange(rows) // 10


def catboost_rankers() -> list[Any]:
    try:
        import catboost
    except ImportError:
        return []
    options: Any = {"iterations": 20, "verbose": False, "allow_writing_files": False}
    return [
        catboost.CatBoostRanker(**options),
        catboost.CatBoostRanker(grow_policy="Lossguide", nan_mode="Max", **options),
    ]


def fitted(ranker: Any) -> Any:
    X, y, qid = table()
    name = type(ranker).__name__
    if name == "CatBoostRanker":
        return ranker.fit(X, y, group_id=qid)
    if name == "LGBMRanker":
        return ranker.fit(X, y, group=[10] * 40)
    return ranker.fit(X, y, qid=qid) if name == "XGBRanker" else ranker.fit(X, y)


RANKERS = [
    LGBMRanker(n_estimators=20, verbose=-1),
    LGBMRegressor(n_estimators=20, verbose=-1),
    LGBMRegressor(n_estimators=8, boosting_type="rf", subsample=0.5, subsample_freq=1, verbose=-1),
    xgboost.XGBRanker(n_estimators=20),
    xgboost.XGBRegressor(n_estimators=20, base_score=1.5),
    HistGradientBoostingRegressor(max_iter=20),
    *catboost_rankers(),
]


@pytest.mark.parametrize("ranker", RANKERS, ids=lambda x: type(x).__name__)
def test_every_library_and_engine_at_thresholds_and_with_missing_values(ranker, tmp_path):
    ranker = fitted(ranker)
    X, _, qid = table(seed=1)
    X = np.concatenate([X, np.full((10, 5), np.nan), np.zeros((10, 5))])
    names = [str(name) for name in getattr(ranker, "feature_names_", [f"x{i}" for i in range(5)])]
    if isinstance(ranker, LGBMRanker | LGBMRegressor):
        names = ranker.booster_.feature_name()
    expected = getattr(ranker, "booster_", ranker).predict(X)
    for to in ENGINES:
        written = export_model(
            ranker, tmp_path / to, to=to, rows=X, qid=np.r_[qid, [40] * 10, [41] * 10]
        )
        assert written.moved == 0
        assert written.difference < 1e-6
        assert written.rows >= 500 + len(X)
        content = json.loads(written.model.read_text())
        found = scores(content, to, X, names)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        if to == "opensearch":
            oracle = as_xgboost(content, names).predict(xgboost.DMatrix(X))
            np.testing.assert_allclose(oracle, found, rtol=2e-6, atol=1e-6)


def test_every_threshold_of_lightgbm_splits_the_float32_values_as_the_model_does(tmp_path):
    ranker = fitted(LGBMRanker(n_estimators=3, num_leaves=15, verbose=-1))
    names = ranker.booster_.feature_name()
    nodes = ranker.booster_.trees_to_dataframe().dropna(subset=["threshold"])
    written = {
        to: json.loads(export_model(ranker, tmp_path / to, to=to).model.read_text())
        for to in ENGINES
    }
    checked = 0
    for name, threshold in zip(nodes["split_feature"], nodes["threshold"], strict=True):
        nearest = f32(threshold)
        for value in (nearest, np.nextafter(nearest, f32(-9e9)), np.nextafter(nearest, f32(9e9))):
            X = np.zeros((1, 5))
            X[0, names.index(name)] = value
            expected = ranker.booster_.predict(X)
            for to in ENGINES:
                if to == "solr" and abs(nearest) < 1e-5:
                    continue  # where 1e-6 is too coarse
                np.testing.assert_allclose(scores(written[to], to, X, names), expected, atol=1e-6)
                checked += 1
    assert checked > 60


def forest(trees: list[Any], names: list[str]) -> Any:
    found = read_trees(Dump(trees, names))
    assert found is not None
    return forest_of([(found, 1.0, range(len(names)))], names)


class Dump:
    """Stands for a `Booster` of LightGBM with given trees."""

    __module__ = "lightgbm"

    def __init__(self, trees: list[Any], names: list[str]) -> None:
        self.trees, self.names = trees, names

    def dump_model(self) -> dict[str, Any]:
        return {
            "objective": "lambdarank",
            "feature_names": self.names,
            "tree_info": [{"tree_structure": tree} for tree in self.trees],
            "average_output": False,
            "pandas_categorical": [],
        }


THRESHOLDS = st.one_of(
    st.floats(-4, 4),
    st.floats(-1e300, 1e299),
    st.sampled_from([0.0, 1e-35, -1e-35, 1e300, 0.1, 2.0**24 + 1, -(2.0**-126), 3.5e38, -3.5e38]),
)
LEAVES = st.builds(lambda x: {"leaf_value": x}, st.floats(-100, 100))
TREES = st.recursive(
    LEAVES,
    lambda below: st.fixed_dictionaries(
        {
            "split_feature": st.integers(0, 2),
            "threshold": THRESHOLDS,
            "decision_type": st.just("<="),
            "missing_type": st.sampled_from(["NaN", "None"]),
            "default_left": st.booleans(),
            "left_child": below,
            "right_child": below,
        }
    ),
    max_leaves=8,
)


def lightgbm_score(node: Any, row: list[float]) -> float:
    """LightGBM's rule, in float64."""
    while "leaf_value" not in node:
        value = row[node["split_feature"]]
        if math.isnan(value) and node["missing_type"] == "NaN":
            left = node["default_left"]
        else:
            value = 0.0 if math.isnan(value) else value
            value = 0.0 if abs(value) <= float(f32(1e-35)) else value
            left = value <= node["threshold"]
        node = node["left_child" if left else "right_child"]
    return node["leaf_value"]


def gaps(content: Any, meant: set[float]) -> list[tuple[float, float]]:
    """Where Solr's thresholds, with its slack, are not those that were meant, in float32."""
    found, waiting = [], [tree["root"] for tree in content["params"]["trees"]]
    while waiting:
        node = waiting.pop()
        if "feature" in node:
            waiting += [node["left"], node["right"]]
            becomes = float(f32(node["threshold"]) + f32(1e-6))
            near = 1e-6 * max(1e-6, abs(becomes))
            if becomes not in meant:
                found.append((becomes - near, becomes + near))
    return found


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TREES, min_size=1, max_size=4), st.data())
def test_random_forests(forests, data):
    names = ["a", "b", "c"]
    own = forest(forests, names)
    meant = {float(x) for at in range(3) for x in own.splits(at) if abs(x) < 3e38}
    near = {x for t in meant for x in (t, *(float(np.nextafter(f32(t), f32(z))) for z in (-9, 9)))}
    values = st.one_of(
        st.sampled_from([math.nan, 0.0, *sorted(near)]), st.floats(-(2.0**127), 2.0**127, width=32)
    )
    row = data.draw(st.lists(values, min_size=3, max_size=3))
    expected = math.fsum(lightgbm_score(tree, row) for tree in forests)
    size = sum(1 + abs(lightgbm_score(tree, row)) for tree in forests)
    for to in ENGINES:
        content = json.loads(json.dumps(WRITERS[to].trees(own, "m", "model")))
        if to == "solr" and any(
            low <= x <= high for low, high in gaps(content, meant) for x in row
        ):
            continue  # the slack of 1e-6 is too coarse there
        (found,) = scores(content, to, np.array([row]), names)
        assert abs(found - expected) <= 1e-6 * size + 1e-4


def test_missing_values_by_version_of_opensearch(tmp_path):
    X, _, qid = table()
    ranker = fitted(xgboost.XGBRanker(n_estimators=10))
    names = [f"x{i}" for i in range(5)]
    model = export_model(ranker, tmp_path / "a", to="opensearch", rows=X, qid=qid)
    assert model.moved == 0
    assert any("from 3.2 to 3.7" in note for note in model.notes)
    content = json.loads(model.model.read_text())
    gone = [{**dict(zip(names, row, strict=True))} for row in X.tolist() if np.isnan(row).any()]
    as_zero = np.nan_to_num(np.array([[*row.values()] for row in gone]))
    old = np.array([opensearch(content, row, "zero") for row in gone])
    np.testing.assert_allclose(old, ranker.predict(as_zero), rtol=1e-5)
    # With "zero", the file itself sends a missing value where 0 goes.
    zero = export_model(ranker, tmp_path / "b", to="opensearch", missing="zero", rows=X, qid=qid)
    assert zero.moved > 0
    assert any("counts as 0" in note for note in zero.notes)
    content = json.loads(zero.model.read_text())
    np.testing.assert_allclose([opensearch(content, row) for row in gone], old, rtol=1e-6)
    counts = [note for note in model.notes if "rows that change position" in note]
    assert "0 from 3.8 on" in counts[0]
    assert f"{len(gone)} of 400 rows" in counts[0]


def test_no_note_on_missing_values_if_the_model_takes_them_for_0(tmp_path):
    X, y, _ = table()
    ranker = LGBMRegressor(n_estimators=5, verbose=-1).fit(np.nan_to_num(X), y)
    assert export_model(ranker, tmp_path, to="elasticsearch").notes == ()


def test_solr_says_where_its_slack_is_too_coarse(tmp_path):
    X = (np.arange(200) * 1e-10).astype(f32).astype(np.float64)[:, None]
    rounded = np.array([f32(x) for x in X[:, 0]]) + f32(1e-6) - f32(1e-6)
    assert len({*rounded.tolist()}) > 100  # other values than those of X
    ranker = LGBMRegressor(n_estimators=3, min_child_samples=5, verbose=-1).fit(X, np.arange(200))
    notes = export_model(ranker, tmp_path, to="solr", rows=X).notes
    assert any("thresholds are off by at most" in note for note in notes)
    tiny = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=1)
    X = np.arange(200.0)[:, None] * 1e-14
    X = X.astype(f32).astype(np.float64)
    written = export_model(tiny.fit(X, np.arange(200)), tmp_path, to="solr", rows=X)
    assert written.moved > 0
    assert any("to the other side of a split" in note for note in written.notes)
    alone = export_model(tiny, tmp_path / "alone", to="solr", rows=X[1:2]).notes
    assert any("sends values of 1 row to the other side" in note for note in alone)
    assert export_model(tiny, tmp_path / "exact", to="elasticsearch", rows=X).moved == 0


def test_float32_columns_are_told(tmp_path):
    X = np.repeat(1 + np.arange(40) * 1e-9, 5)[:, None]
    ranker = LGBMRegressor(n_estimators=3, min_child_samples=2, verbose=-1).fit(X, X[:, 0] * 1e9)
    written = export_model(ranker, tmp_path, to="opensearch", rows=X)
    assert written.moved > 0
    assert any("rounds columns to float32" in note for note in written.notes)


def test_files_and_names(tmp_path, monkeypatch):
    X, y, _ = table()
    frame = pd.DataFrame(X, columns=["price", "age", "stock", "tiny", "huge"])
    ranker = LGBMRegressor(n_estimators=4, verbose=-1).fit(frame[["price", "stock"]], y)
    written = export_model(ranker, tmp_path / "shop.json", to="opensearch", rows=frame)
    assert (written.model, written.features) == engine_files(tmp_path / "shop.json")
    model = json.loads(written.model.read_text())["model"]
    assert (model["name"], model["model"]["type"]) == ("shop", "model/xgboost+json")
    features = json.loads(written.features.read_text())["featureset"]["features"]
    assert [one["name"] for one in features] == ["price", "stock"]
    own = export_model(ranker, tmp_path / "own", to="elasticsearch")
    body = json.loads(own.model.read_text()) | json.loads(own.features.read_text())
    assert sorted(body) == ["definition", "description", "inference_config", "input"]
    last = export_model(ranker, tmp_path / "solr", to="solr")
    assert json.loads(last.model.read_text())["features"] == [{"name": "price"}, {"name": "stock"}]
    stored = json.loads(last.features.read_text())
    assert stored[0]["params"] == {"field": "price", "defaultValue": "NaN"}
    monkeypatch.chdir(tmp_path / "own")
    monkeypatch.setenv("HOME", str(tmp_path))
    for path, name in {".": "own", "../solr/": "solr", "~/x.json": "x"}.items():
        here = export_model(ranker, path, to="solr")
        assert json.loads(here.model.read_text())["name"] == name


def test_a_blend_of_trees_is_one_sum(tmp_path):
    X, y, qid = table()
    frame = pd.DataFrame(X, columns=["a b", "c", "d", "e", "f"]).drop(columns="e")
    frame["new"] = np.random.default_rng(1).random(len(X)) < 0.5
    y = y + frame["new"].to_numpy()
    rankers = [
        LGBMRanker(n_estimators=10, verbose=-1),
        xgboost.XGBRanker(n_estimators=10),
        HistGradientBoostingRegressor(max_iter=10),
    ]
    blend = Blend(rankers, verbose=0).fit(frame, y, qid=qid)
    for to in ENGINES:
        written = export_model(blend, tmp_path / to, to=to, rows=frame, qid=qid)
        assert written.moved == 0
        assert written.difference < 1e-6
        content = json.loads(written.model.read_text())
        values = frame.astype(float).to_numpy()
        np.testing.assert_allclose(
            scores(content, to, values, [*frame.columns]), blend.predict(frame), atol=1e-5
        )
    blend = Blend(rankers[:2], verbose=0).fit(frame, y, qid=qid)
    blend.save(tmp_path / "saved")
    again = Blend.load(tmp_path / "saved")
    assert export_model(again, tmp_path / "again", to="solr", rows=frame, qid=qid).moved == 0


@pytest.mark.parametrize("to", ENGINES)
def test_a_blend_goes_into_an_engine_by_its_own_method_too(to, tmp_path):
    X, y, qid = table()
    trees = [LGBMRanker(n_estimators=4, verbose=-1), xgboost.XGBRanker(n_estimators=4)]
    blend: Any = Blend(trees, verbose=0).fit(X, y, qid=qid)
    for missing in "model", "zero":
        own = blend.export(tmp_path / "own", to=to, missing=missing, test=(X, y, qid))
        other = export_model(blend, tmp_path / "m", to=to, missing=missing, rows=X, qid=qid)
        files = [written.model.read_text().replace('"own"', '"m"') for written in (own, other)]
        assert files[0] == files[1]
        assert (own.rows, own.moved, own.notes) == (other.rows, other.moved, other.notes)
    with pytest.raises(ValueError, match="opset must not be given for to="):
        blend.export(tmp_path / "m", to=to, opset=19)
    with pytest.raises(ValueError, match=r"test must be \(X, y, qid\), got ndarray"):
        blend.export(tmp_path / "m", to=to, test=X)
    with pytest.raises(ValueError, match="missing must be 'model' for to='onnx', got 'zero'"):
        blend.export(tmp_path / "m.onnx", missing="zero")
    with pytest.raises(ValueError, match=f"to must be one of .*{to}.* got 'onnx': .*shop.json$"):
        blend.export(tmp_path / "shop.json")
    with pytest.raises(ValueError, match=r'to must be "onnx" for trees'):
        blend.export(tmp_path / "m.pt2", to="torch")


@pytest.mark.parametrize(
    "scorer", [LinearScorer(), Ensemble(LinearScorer(), 3), AdditiveScorer(hidden=())], ids=str
)
@pytest.mark.parametrize("to", ["opensearch", "solr"])
def test_linear_models(scorer, to, tmp_path):
    from ltr.datasets import TableTransform

    X, y, qid = table()
    X = X[:, [0, 2]]
    members = 2 if isinstance(scorer, LinearScorer) else 1
    ranker: Any = NeuralRanker(
        scorer=scorer, members=members, transform=TableTransform(), max_epochs=2, verbose=0
    )
    ranker.fit(X, y, qid=qid)
    written = export_model(ranker, tmp_path, to=to, rows=X, qid=qid)
    assert written.moved == 0
    assert written.difference < 1e-5
    content = json.loads(written.model.read_text())
    if to == "solr":
        weights = content["params"]["weights"]
        assert content["class"] == "org.apache.solr.ltr.model.LinearModel"
    else:
        weights = content["model"]["model"]["definition"]
        assert content["model"]["model"]["type"] == "model/linear"
    found = X @ [weights["x0"], weights["x1"]]
    difference = found - ranker.predict(X, qid=qid)
    np.testing.assert_allclose(difference, difference.mean(), atol=1e-4)
    assert any("bias" in note for note in written.notes)
    X[:5, 0] = np.nan  # the model takes the median for it, the engine 0
    written = ranker.export(tmp_path, to=to, test=(X, y, qid))
    assert any("5 of 400 rows have missing values" in note for note in written.notes)


def shops() -> pd.DataFrame:
    X, _, _ = table()
    shop = np.random.default_rng(2).choice([*"abcdefgh"], len(X))
    return pd.DataFrame({"price": X[:, 0], "shop": pd.Categorical(shop)})


def refusals() -> list[tuple[str, Any, str]]:
    X, y, qid = table()
    by_shop = shops()
    good = (by_shop["shop"].isin([*"acf"]) + (by_shop["price"] > 0)).to_numpy()
    sets: dict[str, Any] = {"min_data_per_group": 5, "cat_smooth": 1, "max_cat_to_onehot": 1}
    trees = LGBMRegressor(n_estimators=3, verbose=-1, **sets)
    network = NeuralRanker(scorer=MLPScorer(hidden=(4,)), members=1, max_epochs=1, verbose=0)
    of_bins = NeuralRanker(scorer=LinearScorer(), members=1, max_epochs=1, verbose=0)
    both = Blend([network, LGBMRanker(n_estimators=2, verbose=-1)], verbose=0)
    both.fit(X, y, qid=qid)
    both.weights_ = np.array([0.5, 0.5])
    zero = xgboost.XGBRegressor(n_estimators=2, missing=0.0).fit(X[:, :1], y)
    of_shops = Blend([trees], verbose=0).fit(by_shop, good, qid=qid)
    return [
        ("opensearch", trees.fit(by_shop, good), r"column 'shop' must be a number"),
        ("solr", of_shops, r"column 'shop' must be a number"),
        ("opensearch", both, "ONNX, for Vespa.*distil"),
        ("solr", network.fit(X, y, qid=qid), "got .*: export it to ONNX, for Vespa.*distil"),
        ("elasticsearch", RankingModel(LinearScorer(2)), "must be trees"),
        ("solr", RankingModel(LinearScorer()), "num_features must be known"),
        (
            "solr",
            of_bins.fit(np.nan_to_num(X), y, qid=qid),
            "^transform of a linear model must be Standardize",
        ),
        ("solr", zero, "missing .* must be NaN"),
        ("opensearch", "model.txt", "got str"),
        ("opensearch", LGBMRegressor(verbose=-1).fit(X, y * 0 + 1), "depend on a column"),
    ]


def test_what_engines_do_not_take_is_refused_in_one_line(tmp_path):
    for to, model, message in refusals():
        with pytest.raises(ValueError, match=message) as error:
            export_model(model, tmp_path / "m", to=to)
        assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("to", ENGINES)
def test_a_network_cannot_go_into_an_engine_by_its_own_method_either(to, tmp_path):
    X, y, qid = table()
    network: Any = NeuralRanker(scorer=MLPScorer(hidden=(4,)), members=1, max_epochs=1, verbose=0)
    network.fit(X, y, qid=qid)
    for test in None, (X, y, qid):
        with pytest.raises(ValueError, match=r"^scorer must be linear for a search .*: export it"):
            network.export(tmp_path / "m", to=to, test=test)
    with pytest.raises(ValueError, match=r"test must be \(X, y, qid\), got ndarray"):
        network.export(tmp_path / "m", to=to, test=X)
    assert not list(tmp_path.iterdir())


def test_a_tree_that_json_parsers_refuse_is_refused():
    tree: Any = {"leaf_value": 0.0}
    for levels in range(1, 102):
        node = {"split_feature": 0, "threshold": 0.0, "decision_type": "<=", "missing_type": "NaN"}
        tree = {**node, "default_left": True, "left_child": tree, "right_child": {"leaf_value": 1}}
        if levels == 100:
            for to in ENGINES:
                json.loads(json.dumps(WRITERS[to].trees(forest([tree], ["x"]), "m", "model")))
    with pytest.raises(ValueError, match="at most 100 levels"):
        forest([tree], ["x"])


def test_arguments_of_another_format_are_refused(tmp_path):
    X, y, _ = table()
    ranker = LGBMRegressor(n_estimators=3, verbose=-1).fit(X, y)
    for options, message in [
        ({"to": "opensearch", "per_document": True}, "per_document must not be given"),
        ({"to": "solr", "missing": "nan"}, "missing must be"),
        ({"to": "solr", "qid": [1]}, "rows must be given with qid"),
        ({"to": "solr", "rows": X[:0]}, "rows must have at least one row"),
        ({"to": "solr", "rows": X[:, :2]}, r"rows must have the columns.*\(400, 2\)"),
        ({"to": "solr", "rows": [["a"] * 5]}, "rows must be numbers"),
        ({"to": "solr", "rows": X, "qid": [1, 2]}, "qid"),
        ({"rows": X}, "rows must not be given"),
        ({"missing": "zero"}, "missing must be 'model'"),
        ({"to": "lucene"}, "to must be one of"),
    ]:
        with pytest.raises(ValueError, match=message):
            export_model(ranker, tmp_path / "m", **options)
    with pytest.raises(ValueError, match=r"path must end in .json"):
        export_model(ranker, tmp_path / "m.onnx", to="solr")
    assert not list(tmp_path.iterdir())


def test_a_wrong_file_is_an_error_and_nothing_is_written(tmp_path, monkeypatch):
    ranker = fitted(LGBMRegressor(n_estimators=3, verbose=-1))
    predict = lightgbm.Booster.predict
    wrong: Any = lambda self, X: np.asarray(predict(self, X)) + 0.01  # noqa: E731
    monkeypatch.setattr(lightgbm.Booster, "predict", wrong)
    with pytest.raises(ValueError, match=r"must score like the model, but differs by 0\.01"):
        export_model(ranker, Path(tmp_path, "m"), to="opensearch")
    assert not list(tmp_path.iterdir())
