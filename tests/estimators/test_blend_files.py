"""A Blend in a folder: its scores are equal bit for bit, and no file runs code."""

import json
import os
import pickle
import random
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lightgbm import LGBMRanker, LGBMRegressor
from model_folders import file_in, names_in, with_files
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from ltr.cli import main
from ltr.config.folder import with_digest
from ltr.estimators import Blend, NeuralRanker
from ltr.losses import SoftNDCG
from ltr.models import MLPScorer

xgboost = pytest.importorskip("xgboost")  # which has no wheel for every system

Lists = tuple[pd.DataFrame, np.ndarray, np.ndarray]


def lists(rows: int = 400, seed: int = 0) -> Lists:
    """A table with missing numbers, text, booleans and numbered categories."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "price": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(size=rows)),
            "shop": rng.choice(["a", "b", "c", None], rows),
            "new": rng.random(rows) < 0.5,
            "size": pd.Categorical(rng.choice([1, 2, 5], rows)),
            "stock": rng.integers(0, 9, rows),
        }
    )
    y = (X["price"] > 0).to_numpy() + (X["shop"] == "b").to_numpy() * 1
    return X, y, np.arange(rows) // 10


def new_rows() -> pd.DataFrame:
    X = lists(60, seed=1)[0]
    X.loc[::5, "shop"] = "unseen"
    return X


def network(**parameters: Any) -> NeuralRanker:
    small: dict[str, Any] = {"members": 2, "max_epochs": 1, "verbose": 0, "random_state": 0}
    return NeuralRanker(**{**small, "scorer": MLPScorer(hidden=(4,)), **parameters})


def blend_of(*rankers: Any, columns: list[str] | None = None) -> tuple[Blend, Any]:
    """A fitted Blend, and rows to score."""
    X, y, qid = lists()
    X, new = (one if columns is None else one[columns].to_numpy(float) for one in (X, new_rows()))
    return Blend(list(rankers), verbose=0).fit(X, y, qid=qid), new


@pytest.fixture(scope="module")
def blend() -> Blend:
    trees = LGBMRanker(n_estimators=9, verbose=-1), xgboost.XGBRanker(n_estimators=9)
    return blend_of(network(), *trees)[0]


def test_every_format(blend, tmp_path):
    blend.save(tmp_path)
    names = ["config.json", "model.safetensors", "ranker-1.txt", "ranker-2.ubj"]
    assert names_in(tmp_path) == names
    X, y, qid = lists()
    new = new_rows()
    again = Blend.load(tmp_path)
    for rows in (X, new, pl.from_pandas(X), new[new.columns[::-1]].assign(other=1)):
        np.testing.assert_array_equal(again.predict(rows), blend.predict(rows))
    assert again.score(X, y, qid=qid) == blend.score(X, y, qid=qid)
    for name in ("scales_", "weights_", "validation_score_", "schema_", "n_features_in_"):
        np.testing.assert_equal(getattr(again, name), getattr(blend, name))
    assert again.feature_names_in_.tolist() == [*X.columns]
    assert again.get_params()["lgbmranker__n_estimators"] == 9
    assert again.get_params()["xgbranker__n_estimators"] == 9
    again.save(tmp_path / "again")
    twice = Blend.load(tmp_path / "again")
    np.testing.assert_array_equal(twice.predict(new), blend.predict(new))
    assert clone(twice).fit(X, y, qid=qid).predict(new).shape == (60,)


def test_saving_hides_no_warning(tmp_path, monkeypatch):
    """All threads share the filters of warnings, so a save must leave them as they are."""
    blend, _ = blend_of(network())
    read = NeuralRanker.get_params

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        warnings.warn("of another thread", stacklevel=2)
        return read(self, deep)

    monkeypatch.setattr(NeuralRanker, "get_params", get_params)
    with pytest.warns(UserWarning, match="of another thread"):
        blend.save(tmp_path)


def test_arrays(tmp_path):
    trees = LGBMRegressor(n_estimators=3, verbose=-1), xgboost.XGBRegressor(n_estimators=3)
    blend, new = blend_of(*trees, columns=["price", "stock"])
    blend.save(tmp_path)
    again = Blend.load(tmp_path)
    np.testing.assert_array_equal(again.predict(new), blend.predict(new))
    assert [*again.schema_.features] == ["x0", "x1"]
    assert not hasattr(again, "feature_names_in_")
    assert [type(one) for one in again.rankers] == [type(one) for one in blend.rankers]
    with pytest.raises(ValueError, match=r"X has 3 features"):
        again.predict(np.zeros((2, 3)))


def test_catboost(tmp_path):
    catboost = pytest.importorskip("catboost")
    trees = catboost.CatBoostRanker(iterations=5, verbose=False, allow_writing_files=False)
    blend, new = blend_of(trees, network())
    blend.save(tmp_path)
    again = Blend.load(tmp_path)
    np.testing.assert_array_equal(again.predict(new), blend.predict(new))
    assert again.get_params()["catboostranker__iterations"] == 5


def test_early_stopping_stays(tmp_path):
    X, y, qid = lists()
    rng = np.random.default_rng(0)
    trees = [
        LGBMRanker(n_estimators=50, early_stopping_round=2, verbose=-1),
        xgboost.XGBRanker(n_estimators=50, early_stopping_rounds=2),
    ]
    blend = Blend(trees, verbose=0)
    blend.fit(X, y, qid=qid, eval_set=[(X, rng.permutation(y))], eval_qid=[qid])
    assert blend.rankers_[0].best_iteration_ < 50 > blend.rankers_[1].best_iteration
    blend.save(tmp_path)
    again = Blend.load(tmp_path)
    np.testing.assert_array_equal(again.predict(X), blend.predict(X))


class Column(TransformerMixin, BaseEstimator):
    def __init__(self, name: str) -> None:
        self.name = name

    def fit(self, X: Any, y: Any = None) -> "Column":
        return self

    def transform(self, X: Any) -> Any:
        return X[[self.name]]


class Own(BaseEstimator):
    def fit(self, X: Any, y: Any) -> "Own":
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.arange(len(X)) % 7.0


@pytest.mark.parametrize(
    ("ranker", "message"),
    [
        (Own(), "rankers.* got own: it exists for"),
        (lightgbm.DaskLGBMRanker(), "rankers.* got dasklgbmranker: it exists for"),
        (HistGradientBoostingRegressor(max_iter=2), "rankers.* got histgradient.*: it exists for"),
        (make_pipeline(SimpleImputer(), Ridge()), "rankers.* got pipeline: it exists for"),
        (network(loss=SoftNDCG(gain=lambda x: x)), "rankers.* got neuralranker: loss: .*lambda"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_a_ranker_without_a_safe_format_is_refused(tmp_path, ranker, message):
    blend, _ = blend_of(LGBMRanker(n_estimators=2, verbose=-1), columns=["stock"])
    blend.rankers = [*blend.rankers, ranker]
    X, y, qid = lists()
    if isinstance(ranker, NeuralRanker):
        ranker.fit(X, y, qid=qid)
    elif isinstance(ranker, HistGradientBoostingRegressor):
        ranker.fit(X[["stock"]], y)
    blend.rankers_ = [*blend.rankers_, ranker]
    with pytest.raises(ValueError, match=message):
        blend.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_what_is_not_fitted(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        Blend([Ridge()]).save(tmp_path)


def test_a_parameter_that_has_no_plain_form(tmp_path):
    def objective(y_true: Any, y_pred: Any) -> Any:
        return y_pred - y_true, np.ones_like(y_pred)

    trees = LGBMRegressor(n_estimators=3, objective=objective, verbose=-1)
    blend, new = blend_of(trees, columns=["price", "stock"])
    with pytest.warns(UserWarning, match="objective was not saved"):
        blend.save(tmp_path)
    again = Blend.load(tmp_path)
    np.testing.assert_array_equal(again.predict(new), blend.predict(new))


def test_constraints_keep_the_names_of_columns(tmp_path):
    X, y, qid = lists()
    X = X[["stock", "price"]]
    constraints = {"price": -1}
    trees = xgboost.XGBRanker(n_estimators=3, n_jobs=1, monotone_constraints=constraints)
    Blend([trees], validation=0, verbose=0).fit(X, y, qid=qid).save(tmp_path)
    again = Blend.load(tmp_path)
    assert again.get_params()["xgbranker__monotone_constraints"] == constraints
    again.fit(X[["price", "stock"]], y, qid=qid)
    dearer = pd.DataFrame({"price": np.linspace(-2, 2, 50), "stock": 4})
    assert (np.diff(again.predict(dearer)) <= 0).all()


@pytest.mark.parametrize("kind", ["uint8", "float32", "Int64"])
def test_levels_of_numbers(tmp_path, kind):
    X, y, qid = lists(80)
    X["size"] = pd.Categorical(pd.array(X["stock"] // 2, dtype=kind))
    blend = Blend([LGBMRanker(n_estimators=3, min_child_samples=3, verbose=-1)], verbose=0)
    blend.fit(X, y, qid=qid).save(tmp_path)
    again = Blend.load(tmp_path)
    assert again.schema_.categories["size"].levels == ("0", "1", "2", "3", "4")
    assert np.array_equal(again.predict(X), blend.predict(X))


@pytest.mark.parametrize(
    "column",
    [
        pd.array([True, None] * 200, dtype="boolean"),
        np.array([True, None] * 200, dtype=object),
        pd.array([False] + [None] * 399, dtype="boolean"),
        pd.Categorical([1, None] * 200),
        np.array([None] * 400, dtype=object),
        [Decimal("1.5"), Decimal("2.25"), None, Decimal("-7")] * 100,
        pd.array([1.5, None] * 200, dtype="Float64"),
        pd.array(["a", "b"] * 200, dtype=pd.ArrowDtype(pa.string())),
        pd.array([1, None] * 200, dtype=pd.ArrowDtype(pa.int8())),
        pd.array([Decimal("1.5"), None] * 200, dtype=pd.ArrowDtype(pa.decimal128(9, 2))),
    ],
    ids=lambda x: str(getattr(x, "dtype", "decimals")),
)
def test_a_saved_blend_and_its_commands_score_alike(tmp_path, column):
    """In memory, from the folder, and by the command line, also for values not seen in training."""
    X, y, qid = lists()
    X["odd"] = column
    y = y + (X["odd"].notna().to_numpy() & (np.arange(400) % 3 == 0))
    trees = LGBMRanker(n_estimators=9, min_child_samples=3, verbose=-1, n_jobs=1)
    blend = Blend([network(), trees, xgboost.XGBRanker(n_estimators=9)], verbose=0)
    blend.fit(X, pd.Series(y, name="grade"), qid=pd.Series(qid, name="query"))
    blend.save(tmp_path / "model")
    table = X.assign(query=qid, grade=y)
    if pd.api.types.infer_dtype(X["odd"]) == "boolean":
        table["odd"] = pd.array(np.arange(400) % 2 == 0, dtype="boolean")
    pq.write_table(pa.Table.from_pandas(table), tmp_path / "new.parquet")
    expected = blend.predict(table)
    assert np.array_equal(Blend.load(tmp_path / "model").predict(table), expected)
    np.testing.assert_allclose(blend.model_.predict(table), expected, rtol=1e-6, atol=1e-6)
    out = tmp_path / "scores.parquet"
    command = ["predict", tmp_path / "model", tmp_path / "new.parquet", "--output", out]
    assert main([str(one) for one in command]) in (0, None)
    np.testing.assert_allclose(pd.read_parquet(out)["score"], expected, rtol=1e-5, atol=1e-6)


def test_damage_in_the_configuration_is_found(blend, tmp_path):
    blend.save(tmp_path)
    path = tmp_path / "config.json"
    whole = path.read_text()
    assert '"true"' in whole
    path.write_text(whole.replace('"true"', '"trug"'))
    with pytest.raises(ValueError, match=r"config\.json is damaged: its digest"):
        Blend.load(tmp_path)
    path.write_text(json.dumps(json.loads(whole)))  # the same content, on one line
    np.testing.assert_array_equal(
        Blend.load(tmp_path).predict(new_rows()), blend.predict(new_rows())
    )


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "ranker-1.txt"])
@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_a_file_without_an_end(blend, tmp_path, name, kind):
    blend.save(tmp_path)
    path = file_in(tmp_path, name)
    path.unlink()
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(
        ValueError, match=rf"regular files, but .*{path.name} is a folder, a device"
    ):
        Blend.load(tmp_path)


def test_damage_in_any_file_is_found(blend, tmp_path):
    blend.save(tmp_path)
    draw = random.Random(0)
    for name in ("model.safetensors", "ranker-1.txt", "ranker-2.ubj"):
        path = file_in(tmp_path, name)
        whole = path.read_bytes()
        for position in draw.sample(range(8 * len(whole)), 20):
            damaged = bytearray(whole)
            damaged[position // 8] ^= 1 << position % 8
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=f"{path.name}.*digest"):
                Blend.load(tmp_path)
        path.unlink()
        with pytest.raises(ValueError, match=f"{path.name} is missing"):
            Blend.load(tmp_path)
        path.write_bytes(whole)


def rewrite(folder: Path, changes: dict[str, Any]) -> None:
    """Change entries of the configuration."""
    content = json.loads((folder / "config.json").read_text())
    for path, value in changes.items():
        *parents, last = (int(one) if one.isdigit() else one for one in path.split("."))
        here = content
        for name in parents:
            here = here[name]
        here[last] = value
    (folder / "config.json").write_text(json.dumps(with_digest(content)))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("rankers.1.kind", "lightgbm.Dataset", "kind must be a ranker of lightgbm.* 'lightgbm.Dat"),
        ("rankers.1.kind", "os.system", "kind must be a ranker of lightgbm, .* got 'os.system'"),
        ("rankers.1.kind", "xgboost.LGBMRanker", "kind must be a ranker of .* got 'xgboost.LGBM"),
        ("rankers.1.parameters", {"x": {"function": "os.abort"}}, "os.abort"),
        ("rankers.1.file", "ranker-2.ubj", "ranker-2.ubj cannot be read"),
        ("rankers.1.file", "../config.json", r"does not describe a model: KeyError: '\.\./config"),
        ("rankers.0.scorer", {"class_path": "os.system", "init_args": {}}, "os.system"),
        ("rankers.0", {"kind": "NeuralRanker"}, "not the configuration of a NeuralRanker"),
        ("files", ["../secret"], "must name files of its folder, got '../secret'"),
        ("files", ["/etc/passwd"], "must name files of its folder"),
        ("files", [".."], "must name files of its folder"),
        ("files", ["ranker-7.txt"], "must name files of its folder, got 'ranker-7.txt'"),
        ("files", None, "must name files of its folder, got None"),
        ("files", [], "must name a file of weights"),
        ("files", [f"ranker-7-{'0' * 16}.txt"], "ranker-7-0+.txt is missing"),
        ("weights", [float("nan"), 0.5, 0.5], "damaged: numbers must be finite, got NaN"),
        ("schema", {}, "a schema must"),
        ("rankers.0.kind", "skops", "does not describe a model: KeyError: 'file'"),
        ("parameters", {"rankers": []}, "does not describe a model: TypeError: .*'rankers'"),
        ("kind", "NeuralRanker", "not the configuration of a Blend, but of a NeuralRanker"),
    ],
)
def test_hostile_configurations(blend, tmp_path, path, value, message):
    blend.save(tmp_path)
    rewrite(tmp_path, {path: value})
    with pytest.raises(ValueError, match=message):
        Blend.load(tmp_path)


def test_hostile_files(blend, tmp_path):
    blend.save(tmp_path)
    # the parsers of LightGBM and XGBoost end the process at most other damage: see docs/saving.md
    with_files(tmp_path, {"ranker-1.txt": b"\x80\x04\x95"})
    with pytest.raises(ValueError, match=r"ranker-1\.txt cannot be read"):
        Blend.load(tmp_path)


def test_the_other_kind_of_folder(blend, tmp_path):
    blend.save(tmp_path / "blend")
    with pytest.raises(ValueError, match="not the configuration of a NeuralRanker"):
        NeuralRanker.load(tmp_path / "blend")
    blend.rankers_[0].save(tmp_path / "network")
    with pytest.raises(ValueError, match="not the configuration of a Blend"):
        Blend.load(tmp_path / "network")


def test_loading_imports_no_pickle_of_the_files(blend, tmp_path, monkeypatch):
    """The same scores where `pickle` cannot load anything."""
    blend.save(tmp_path)

    def refuse(*args, **kwargs):
        raise RuntimeError("a pickle was loaded")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    np.testing.assert_array_equal(
        Blend.load(tmp_path).predict(new_rows()), blend.predict(new_rows())
    )
