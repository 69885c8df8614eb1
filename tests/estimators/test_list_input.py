"""`NeuralRanker` trained on prepared lists, on lists on disk, and on LETOR text."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ltr.datasets import ListDataset, convert, open_lists, read_letor, write_lists
from ltr.datasets.prepare import prepare
from ltr.estimators import NeuralRanker
from ltr.losses import SoftmaxLoss, Unbiased
from ltr.models import LinearScorer, MLPScorer

ROLES = {"qid": "query", "label": "grade"}


def frame(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    found = pd.DataFrame(
        {
            "query": rng.integers(0, rows // 8, rows),
            "price": rng.normal(size=rows),
            "stock": np.where(rng.random(rows) < 0.2, np.nan, rng.poisson(3, rows)),
            "shop": rng.choice(["a", "b", "c"], rows),
        }
    )
    return found.assign(grade=(found["price"] + (found["shop"] == "b") > 0.5).astype(int))


def quick(**parameters: Any) -> NeuralRanker:
    small: dict[str, Any] = {"members": 2, "max_epochs": 4, "batch_size": 8, "verbose": 0}
    small |= {"scorer": MLPScorer(hidden=(8,)), "random_state": 0}
    return NeuralRanker(**{**small, **parameters})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    frame().to_parquet(tmp_path / "table.parquet")
    convert(tmp_path / "table.parquet", tmp_path / "lists", **ROLES)
    return tmp_path / "lists"


def test_the_same_model_from_a_frame_from_prepared_lists_and_from_the_disk(folder):
    table, new = frame(), frame(80, 1)
    X, y, qid = table.drop(columns=["query", "grade"]), table["grade"], table["query"]
    expected = quick().fit(X, y, qid=qid)
    prepared = prepare(table, ROLES)
    for lists in (prepared, prepare(table, ROLES, validation=0.2), folder, open_lists(folder)):
        found = quick().fit(lists)
        assert found.validation_queries_ == expected.validation_queries_ > 0
        assert found.history_ == expected.history_
        assert np.array_equal(found.predict(new), expected.predict(new))
        assert np.array_equal(found.rank(X, qid=qid), expected.rank(X, qid=qid))
        assert found.feature_names_in_.tolist() == expected.feature_names_in_.tolist()
        assert found.settings_ == expected.settings_


def test_validation_lists_are_matched_by_name(folder, tmp_path):
    table = frame(160, 1)[["shop", "stock", "query", "price", "grade"]]
    table.to_parquet(tmp_path / "val.parquet")
    convert(tmp_path / "val.parquet", tmp_path / "val", **ROLES)
    found = quick().fit(folder, eval_set=[tmp_path / "val"])
    train, X = frame(), table.drop(columns=["query", "grade"])
    expected = quick().fit(
        train.drop(columns=["query", "grade"]),
        train["grade"],
        qid=train["query"],
        eval_set=[(X, table["grade"])],
        eval_qid=[table["query"]],
    )
    assert found.history_ == expected.history_
    assert found.validation_queries_ == 20
    other = prepare(table, ROLES)
    with pytest.raises(
        ValueError, match=r"eval_set must have the schema of the training, got the order"
    ):
        quick().fit(folder, eval_set=[other])


def test_useful_columns_and_more_training(folder):
    found = quick(columns="useful", max_epochs=8, warm_start=True).fit(folder)
    assert found.selected_["price"].kept
    trained, epochs = found.schema_, found.n_iter_
    assert found.partial_fit(folder).n_iter_ == 1 < epochs
    found.fit(folder)
    assert found.schema_ == trained
    assert found.n_features_in_ == 3


def test_save_and_load(folder, tmp_path):
    found = quick().fit(folder)
    found.save(tmp_path / "model")
    again = NeuralRanker.load(tmp_path / "model")
    assert np.array_equal(again.predict(frame(80, 1)), found.predict(frame(80, 1)))


def test_letor_text_has_the_columns_of_an_array(tmp_path):
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(240, 3)).round(3), np.arange(240) // 8
    y = (X[:, 0] > 0.5).astype(int)
    lines = [
        f"{grade} qid:{query} " + " ".join(f"{i + 1}:{x}" for i, x in enumerate(row))
        for row, grade, query in zip(X, y, qid, strict=True)
    ]
    path = tmp_path / "train.txt"
    path.write_text("\n".join(lines) + "\n")
    expected = quick().fit(X, y, qid=qid)
    for lists in (path, read_letor(path)):
        found = quick().fit(lists)
        assert np.array_equal(found.predict(X), expected.predict(X))
        assert not hasattr(found, "feature_names_in_")


def test_weights_and_positions_come_from_the_lists():
    table = frame().assign(
        weight=np.linspace(0.5, 1.5, 400),  # the mean is 1, as `fit` makes it
        shown=1 + np.arange(400) % 5,
    )
    X, y = table[["price", "stock", "shop"]], table["grade"]
    loss = Unbiased(SoftmaxLoss())
    given = {"sample_weight": table["weight"], "position": table["shown"]}
    expected = quick(loss=loss).fit(X, y, qid=table["query"], **given)
    roles = {**ROLES, "weight": "weight", "position": "shown"}
    found = quick(loss=loss).fit(prepare(table, roles))
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="position must be given to fit, got None: Unbiased"):
        quick(loss=loss).fit(prepare(table.drop(columns="shown"), ROLES))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"y": [1]}, "y must be None if X is lists"),
        ({"qid": [1]}, "qid must be None if X is lists"),
        ({"sample_weight": 1.0}, "sample_weight must be None if X is lists"),
        ({"eval_qid": [[1]]}, "eval_qid must be None if X is lists"),
        ({"eval_set": [([1], [1])]}, "eval_set must be a list of one data set of lists"),
        ({"eval_set": "val"}, "eval_set must be a list of one data set of lists.*got a str"),
    ],
)
def test_lists_bring_their_own(folder, given, message):
    with pytest.raises(ValueError, match=message):
        quick().fit(folder, **given)


def test_lists_that_cannot_be_trained_on(tmp_path):
    with pytest.raises(ValueError, match="lists"):
        quick().fit(tmp_path / "lists")
    frame(8).to_csv(tmp_path / "table.csv")
    with pytest.raises(ValueError, match=r"X must be lists on disk or LETOR text .*table\.csv"):
        quick().fit(tmp_path / "table.csv")
    data = ListDataset(np.zeros((2, 1), np.float32), None, np.array([0, 2]), ["a"])
    with pytest.raises(ValueError, match="must have labels"):
        quick().fit(data)
    coded = ListDataset(
        np.zeros((2, 1), np.float32),
        np.array([0, 1], np.float32),
        np.array([0, 2]),
        ["a"],
        categories=np.ones((2, 1), np.int64),
    )
    with pytest.raises(
        ValueError, match="categories need their schema: give the result of `prepare`"
    ):
        quick().fit(coded)


def test_memory_does_not_grow_with_the_features_on_disk(tmp_path, monkeypatch):
    """The arrays of a training take less than a quarter of the features' size."""
    monkeypatch.setattr("ltr.datasets.lists.FIT_VALUES", 1 << 16)
    rng = np.random.default_rng(0)
    lists, size, width = 2000, 10, 200
    features = rng.normal(size=(lists * size, width)).astype(np.float32)
    labels = (features[:, 0] > 1).astype(np.float32)
    offsets = np.arange(lists + 1) * size
    data = ListDataset(features, labels, offsets, [str(i) for i in range(lists)])
    write_lists(data, tmp_path / "lists")
    stored = open_lists(tmp_path / "lists")
    total = features.nbytes
    del features, data
    ranker = quick(max_epochs=1, scorer=LinearScorer(), members=1, batch_size=64)
    ranker.fit(stored.select(range(600)))  # which imports what is needed
    tracemalloc.start()
    ranker.fit(stored)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < total / 4
