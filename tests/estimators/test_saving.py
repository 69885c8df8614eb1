"""`save` and `load`: the same model, from files that run no code."""

import json
import os
from typing import Any

import numpy as np
import pandas as pd
import pytest
from model_folders import file_in, names_in

from ltr.config.folder import with_digest
from ltr.estimators import NeuralRanker
from ltr.losses import ListNet, SoftNDCG
from ltr.models import LinearScorer, MLPScorer


def data(rows: int = 80) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=rows), "c": rng.choice(["x", "y"], rows)})
    X.loc[::7, "a"] = np.nan
    return X, (X["c"] == "x").to_numpy() * 2, rng.integers(0, 9, rows)


def quick(**parameters: Any) -> NeuralRanker:
    small: dict[str, Any] = {"members": 2, "max_epochs": 3, "verbose": 0, "random_state": 0}
    return NeuralRanker(**{**small, "scorer": MLPScorer(hidden=(4,)), **parameters})


@pytest.fixture
def saved(tmp_path):
    X, y, qid = data()
    ranker = quick(loss=ListNet(temperature=0.5)).fit(X, y, qid=qid)
    ranker.save(tmp_path / "model")
    return ranker, tmp_path / "model"


def test_loaded(saved):
    ranker, folder = saved
    X, y, qid = data()
    assert names_in(folder) == ["config.json", "model.safetensors"]
    again = NeuralRanker.load(folder)
    assert np.array_equal(again.predict(X), ranker.predict(X))
    assert again.score(X, y, qid=qid) == ranker.score(X, y, qid=qid)
    assert isinstance(again.loss, ListNet)
    assert again.loss.temperature == 0.5
    assert again.get_params()["members"] == 2
    for name in ("n_features_in_", "schema_", "n_iter_", "best_iterations_", "history_"):
        np.testing.assert_equal(getattr(again, name), getattr(ranker, name))
    assert again.feature_names_in_.tolist() == ["a", "c"]
    with pytest.raises(ValueError, match=r"X .* a$"):
        again.predict(X.rename(columns={"a": "b"}))
    assert again.set_params(warm_start=True).fit(X, y, qid=qid).n_iter_ == 3
    other = NeuralRanker.load(folder, loss=SoftNDCG(), members=2)
    assert isinstance(other.loss, SoftNDCG)


def test_categories_alone(tmp_path):
    X, y, qid = data()
    ranker = quick().fit(X[["c"]], y, qid=qid)
    ranker.save(tmp_path / "model")
    again = NeuralRanker.load(tmp_path / "model")
    assert np.array_equal(again.predict(X[["c"]]), ranker.predict(X[["c"]]))


def test_a_second_save_replaces_the_first(saved):
    _, folder = saved
    X, y, qid = data()
    quick(scorer=LinearScorer()).fit(X[["a"]], y, qid=qid).save(folder)
    assert NeuralRanker.load(folder).n_features_in_ == 1


def test_the_configuration_is_json_without_a_class_of_pickles(saved):
    _, folder = saved
    content = json.loads((folder / "config.json").read_text(), parse_constant=pytest.fail)
    assert content["kind"] == "NeuralRanker"
    assert content["schema"]["features"] == {"a": 1}
    assert content["scorer"]["init_args"]["scorer"]["class_path"] == "ltr.models.MLPScorer"


def test_what_cannot_be_saved_is_given_again(tmp_path):
    X, y, qid = data()
    loss = SoftNDCG(gain=lambda labels: labels)
    ranker = quick(loss=loss).fit(X, y, qid=qid)
    with pytest.warns(UserWarning, match="loss was not saved; give it again .* lambda"):
        ranker.save(tmp_path)
    with pytest.raises(ValueError, match=r"loss.*lambda"):
        NeuralRanker.load(tmp_path)
    again = NeuralRanker.load(tmp_path, loss=loss)
    assert np.array_equal(again.predict(X), ranker.predict(X))


def test_other_packages_must_be_trusted(tmp_path, monkeypatch):
    X, y, qid = data()
    quick(scorer=LinearScorer()).fit(X, y, qid=qid).save(tmp_path)
    path = tmp_path / "config.json"
    text = path.read_text().replace("ltr.models.LinearScorer", "elsewhere.Own")
    path.write_text(json.dumps(with_digest(json.loads(text))))
    with pytest.raises(ValueError, match=r"elsewhere.Own is in the package elsewhere, which"):
        NeuralRanker.load(tmp_path)


def hostile(content: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *parents, last = path.split(".")
    here = content
    for name in parents:
        here = here[name]
    here[last] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "scorer",
            {"class_path": "os.system", "init_args": {"command": "touch HACKED"}},
            "os.system",
        ),
        ("transform", {"class_path": "subprocess.Popen", "init_args": {}}, "subprocess.Popen"),
        ("parameters.loss", {"function": "os.abort"}, "os.abort"),
        (
            "parameters.loss",
            {"class_path": "ltr.models.LinearScorer"},
            "is not a RankingLoss",
        ),
        ("parameters.evil", 3, "has no argument evil"),
        ("scorer", None, "weights do not fit|scorer"),
        ("num_features", 3, "the weights do not fit the configuration"),
        ("num_features", "many", "num_features must be a whole number"),
        ("schema", {}, "a schema must"),
    ],
)
def test_hostile_configurations(saved, monkeypatch, path, value, message):
    _, folder = saved
    monkeypatch.chdir(folder)
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(with_digest(hostile(content, path, value))))
    if path == "scorer" and value is None:  # the parameters say how to make it
        assert NeuralRanker.load(folder).members == 2
        return
    with pytest.raises(ValueError, match=message):
        NeuralRanker.load(folder)
    assert "HACKED" not in os.listdir(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_damaged_or_missing_files(saved, name):
    _, folder = saved
    path = file_in(folder, name)
    whole = path.read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"\x80\x04\x95", b"[" * 100_000, b"3"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=path.name):
            NeuralRanker.load(folder)
    path.unlink()
    with pytest.raises(ValueError, match=path.name):
        NeuralRanker.load(folder)


def test_given_parameters_are_checked(saved):
    with pytest.raises(ValueError, match=r"scorer.*'a'"):
        NeuralRanker.load(saved[1], scorer="a")
    with pytest.raises(ValueError, match="'hidden'"):
        NeuralRanker.load(saved[1], hidden=(4,))


def test_not_fitted(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        quick().save(tmp_path)
