"""`NeuralRanker` trained on prepared lists, on lists on disk, and on LETOR text."""

import tracemalloc
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRanker
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.linear_model import Ridge

from ltr.datasets import ListDataset, convert, open_lists, read_letor, write_lists
from ltr.datasets.prepare import prepare
from ltr.estimators import Blend, Calibrated, NeuralRanker
from ltr.estimators.mixed_rows import mixed_scores
from ltr.losses import SeveralLabels, SoftmaxLoss, Unbiased
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("folder")
    frame().to_parquet(path / "table.parquet")
    convert(path / "table.parquet", path / "lists", **ROLES)
    return path / "lists"


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


def test_columns_that_numbers_name_are_matched_by_name():
    """The schema of prepared lists has categories last, and a frame may have more columns."""
    table = frame(80)[["shop", "stock", "price", "query", "grade"]]
    table["shop"] = table["shop"].astype("category").cat.codes.astype("category")
    table = table.rename(columns={"shop": 0, "stock": 1, "price": 2})
    X, qid = table[[0, 1, 2]], table["query"]
    expected = quick(relative=True).fit(X, table["grade"], qid=qid)
    prepared = prepare(table, ROLES)
    for ranker in (quick(relative=True), Blend([quick(relative=True)], verbose=0)):
        ranker.fit(prepared)
        scores = ranker.predict(table[[2, 0, "grade", 1]], qid)
        np.testing.assert_array_equal(ranker.predict(X, qid), scores)
        np.testing.assert_array_equal(ranker.rank(X, qid=qid), expected.rank(X, qid=qid))
    same = np.repeat(np.arange(len(X))[:, None], 3, axis=1)
    mixed = mixed_scores(ranker, X, pd.factorize(qid)[0])(same)
    np.testing.assert_allclose(mixed, ranker.predict(X, qid), atol=1e-5)


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


@pytest.mark.usefixtures("short_trials")
def test_useful_columns_and_more_training(folder):
    found = quick(columns="useful", max_epochs=8, warm_start=True).fit(folder)
    assert found.selected_["price"].kept
    trained, epochs = found.schema_, found.n_iter_
    assert found.partial_fit(folder).n_iter_ == 1 < epochs
    found.fit(folder)
    assert found.schema_ == trained
    assert found.n_features_in_ == 3


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
        weight=np.linspace(0.5, 1.5, 400),
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


def lists_of(table: pd.DataFrame, path: Path, **roles: Any) -> list[Any]:
    """The lists of a table in all forms: prepared, on disk, and of the disk in memory."""
    path.mkdir()
    table.to_parquet(path / "weighted.parquet")
    convert(path / "weighted.parquet", path / "weighted", **ROLES, **roles)
    on_disk = path / "weighted"
    return [prepare(table, {**ROLES, **roles}), on_disk, open_lists(on_disk).in_memory()]


@pytest.mark.parametrize("kind", ["network", "blend"])
def test_weights_are_relative_in_every_form_of_data(kind: str, tmp_path):
    """Weights are divided by their mean, so a constant factor changes nothing, bit for bit."""
    table = frame(240)
    X, y, qid = table[["price", "stock", "shop"]], table["grade"], table["query"]
    weight = np.random.default_rng(1).integers(1, 9, len(table)).astype(float)
    trees = LGBMRanker(n_estimators=5, min_child_samples=3, n_jobs=1, verbose=-1)

    def scores(*data: Any, **given: Any) -> np.ndarray:
        ranker: Any = quick(members=1, max_epochs=2)
        if kind == "blend":
            ranker = Blend([ranker, trees], verbose=0)
        return ranker.fit(*data, **given).predict(X)

    expected = scores(X, y, qid=qid, sample_weight=weight)
    assert not np.allclose(expected, scores(X, y, qid=qid), atol=1e-3)
    assert np.array_equal(scores(X, y, qid=qid, sample_weight=weight * 1024), expected)
    for factor in (1, 1024):
        forms = lists_of(table.assign(w=weight * factor), tmp_path / str(factor), weight="w")
        for lists in forms:
            # trees compare the float32 numbers of lists
            close = {"rtol": 1e-5, "atol": 1e-6} if kind == "blend" else {"rtol": 0}
            np.testing.assert_allclose(scores(lists), expected, **close)
    none = prepare(table.assign(w=0.0), {**ROLES, "weight": "w"})
    with pytest.raises(ValueError, match="weights must be > 0 in float32 in some row, got 0"):
        scores(none)
    for value in (-1.0, np.nan, np.inf):  # -1 everywhere, divided by its mean, would be 1
        weights = np.full(len(table), value, np.float32)
        wrong = replace(none, train=none.train.with_arrays(weight=weights))
        with pytest.raises(ValueError, match=f"weights must be finite and >= 0, got {value}"):
            scores(wrong)


def test_weights_of_prepared_lists_are_divided_by_the_mean_of_the_lists():
    table = frame(240)
    X, y, qid = table[["price", "stock", "shop"]], table["grade"], table["query"]
    number, queries = pd.factorize(qid)
    weight = 1.0 + np.arange(len(queries)) % 3
    expected = quick().fit(X, y, qid=qid, sample_weight=weight)
    roles = {**ROLES, "weight": "w"}
    found = quick().fit(replace(prepare(table.assign(w=weight[number]), roles), list_weights=True))
    assert np.array_equal(found.predict(X), expected.predict(X))


@pytest.mark.parametrize("named", [False, True])
def test_several_labels_of_lists_without_a_schema(named: bool, tmp_path):
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(240, 3)).astype(np.float32), rng.permutation(np.arange(240) // 8)
    Y = np.stack([X[:, 0] > 0.5, X[:, 1] > 1], axis=1).astype(float)
    Y[::5, 1] = np.nan
    names = ["click", "buy"] if named else ["y0", "y1"]
    losses = {name: (SoftmaxLoss(), weight) for name, weight in zip(names, (1.0, 2.0), strict=True)}
    ranker = quick(loss=SeveralLabels(losses) if named else None)
    expected = clone(ranker).fit(X, Y, qid=qid)
    lists = ListDataset.from_arrays(X, Y, qid)
    write_lists(lists, tmp_path / "lists")
    for data in (lists, tmp_path / "lists"):
        found = clone(ranker).fit(data)
        assert np.array_equal(found.predict(X), expected.predict(X))
        assert found.schema_.labels == expected.schema_.labels == tuple(names)
    expected = f"eval_set must have the labels {', '.join(names)} in this order, got one label"
    with pytest.raises(ValueError, match=expected):
        clone(ranker).fit(lists, eval_set=[ListDataset.from_arrays(X, Y[:, 0], qid)])


def test_several_labels_in_another_order(tmp_path):
    """Training refuses them, and `score` finds them by their names."""
    table = frame(240).assign(buy=lambda x: (x["stock"] > 3).astype(int))
    for number, labels in enumerate((["grade", "buy"], ["buy", "grade"])):
        table.to_parquet(tmp_path / "table.parquet")
        convert(tmp_path / "table.parquet", tmp_path / str(number), qid="query", label=labels)
    first, second = tmp_path / "0", tmp_path / "1"
    ranker = quick(members=1, max_epochs=2, warm_start=True).fit(first)
    for lists in (second, open_lists(second), prepare(second, {})):
        assert ranker.score(lists) == ranker.score(first)
        message = "must have the labels grade, buy in this order, got buy, grade"
        with pytest.raises(ValueError, match=f"eval_set {message}"):
            clone(ranker).fit(first, eval_set=[lists])
        with pytest.raises(ValueError, match=f"X {message}"):
            clone(ranker).fit(first).fit(lists)


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
    lists, size, width = 1000, 10, 200
    features = rng.normal(size=(lists * size, width)).astype(np.float32)
    labels = (features[:, 0] > 1).astype(np.float32)
    offsets = np.arange(lists + 1) * size
    data = ListDataset(features, labels, offsets, [str(i) for i in range(lists)])
    write_lists(data, tmp_path / "lists")
    stored = open_lists(tmp_path / "lists")
    total = features.nbytes
    del features, data
    ranker = quick(max_epochs=1, scorer=LinearScorer(), members=1, batch_size=64)
    ranker.fit(stored.select(range(300)))  # which imports what is needed
    tracemalloc.start()
    ranker.fit(stored)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < total / 4


@cache
def fitted(kind: str) -> Any:
    """A ranker fitted on a table whose columns of queries and labels have names."""
    table = frame()
    X, y, qid = table.drop(columns=["query", "grade"]), table["grade"], table["query"]
    trees = LGBMRanker(n_estimators=5, min_child_samples=3, n_jobs=1, verbose=-1)
    ranker = quick(relative=kind == "relative")
    if kind == "blend":
        ranker = Blend([quick(), trees], verbose=0)
    ranker.fit(X, y, qid=qid)
    if kind == "calibrated":
        new = frame(seed=2).rename(columns=str)
        X, y, qid = new.drop(columns=["query", "grade"]), new["grade"], new["query"]
        ranker = Calibrated(ranker, method="sigmoid").fit(X, y, qid=qid)
    return ranker


@pytest.mark.parametrize("kind", ["network", "relative", "blend", "calibrated"])
def test_one_table_in_every_form(kind, tmp_path):
    """`predict`, `rank` and `score` take what `fit` takes, and paths of tables."""
    ranker, new = fitted(kind), frame(200, 1).sort_values("query", kind="stable")
    new = new.reset_index(drop=True)
    X, y, qid = new.drop(columns=["query", "grade"]), new["grade"], new["query"]
    scores, ranks, value = (
        ranker.predict(X, qid),
        ranker.rank(X, qid=qid),
        ranker.score(X, y, qid=qid),
    )
    new.to_csv(tmp_path / "new.csv", index=False)
    new.to_parquet(tmp_path / "new.parquet", index=False)
    for path in (tmp_path / "new.csv", str(tmp_path / "new.parquet")):
        np.testing.assert_array_equal(ranker.predict(path), scores)
        np.testing.assert_array_equal(ranker.rank(path), ranks)
        assert ranker.score(path) == value
        assert ranker.score(path, metric="mrr") == ranker.score(X, y, qid=qid, metric="mrr")
    convert(tmp_path / "new.csv", tmp_path / "lists", **ROLES)
    for lists in (tmp_path / "lists", open_lists(tmp_path / "lists"), prepare(new, ROLES)):
        # lists have float32 numbers
        np.testing.assert_allclose(ranker.predict(lists), scores, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(ranker.rank(lists), ranks)
        assert ranker.score(lists) == value
    if kind == "calibrated":
        probability = ranker.probability(X, qid)
        np.testing.assert_array_equal(ranker.probability(tmp_path / "new.csv"), probability)
        again = Calibrated(ranker.ranker, method="sigmoid").fit(tmp_path / "new.csv")
        assert again.slope_ == Calibrated(ranker.ranker, method="sigmoid").fit(X, y, qid=qid).slope_


def test_scores_of_a_list_dataset_are_in_the_order_of_its_documents():
    ranker, table = fitted("relative"), frame(200, 1)
    prepared = prepare(table, ROLES)
    assert not np.array_equal(prepared.train.rows, np.arange(200))
    expected = ranker.predict(table.drop(columns=["query", "grade"]), table["query"])
    np.testing.assert_allclose(ranker.predict(prepared), expected[prepared.train.rows], rtol=1e-6)
    # In a sample with replacement, two lists have the same qid.
    lists, chosen = prepared.train, np.array([3, 0, 3, 1])
    alone = [replace(prepared, train=lists.select([i])) for i in chosen]
    sample = replace(prepared, train=lists.select(chosen))
    assert ranker.score(sample) == pytest.approx(np.mean([ranker.score(one) for one in alone]))
    ranks = np.concatenate([ranker.rank(one) for one in alone])
    np.testing.assert_array_equal(ranker.rank(sample), ranks)


def test_letor_text_in_every_method(tmp_path):
    path = tmp_path / "train.txt"
    lines = [
        f"{int(x > 0.5)} qid:{row % 20} 1:{x:.3f} 2:{z:.3f}"
        for row, (x, z) in enumerate(np.random.default_rng(0).normal(size=(240, 2)))
    ]
    path.write_text("\n".join(sorted(lines, key=lambda line: line.split()[1])) + "\n")
    ranker = quick(scorer=LinearScorer(), relative=True).fit(path)
    lists = read_letor(path)
    np.testing.assert_array_equal(ranker.predict(path), ranker.predict(lists))
    expected = [rankdata(-x) for x in np.split(ranker.predict(path), lists.offsets[1:-1])]
    np.testing.assert_array_equal(ranker.rank(path), np.concatenate(expected))
    assert ranker.score(path) == ranker.score(lists.features, lists.labels, group=lists.lengths)
    assert ranker.partial_fit(path).n_iter_ == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ranker, path: ranker.predict(path, qid=[1]), "qid must be None if X is lists"),
        (lambda ranker, path: ranker.rank(path, group=[1]), "group must be None if X is lists"),
        (lambda ranker, path: ranker.score(path, [1]), "y must be None if X is lists"),
        (lambda ranker, path: ranker.predict(path.with_name("no.csv")), "no.csv"),
        (lambda ranker, path: ranker.score(path.with_name("bare.csv")), "column 'query'"),
        (lambda ranker, path: ranker.rank(path.with_name("bare.csv")), "column 'query'"),
        (lambda ranker, path: ranker.score(path.with_name("none.csv")), "at least one row"),
    ],
)
def test_mistakes_beside_a_path(call, message, tmp_path):
    new = frame(40, 1)
    new.to_csv(tmp_path / "new.csv", index=False)
    new.drop(columns=["query", "grade"]).to_csv(tmp_path / "bare.csv", index=False)
    new[:0].to_csv(tmp_path / "none.csv", index=False)
    with pytest.raises((ValueError, OSError), match=message):
        call(fitted("network"), tmp_path / "new.csv")


def test_other_rankers_take_tables_alone(tmp_path):
    table = frame()[["query", "price", "grade"]]
    table.to_csv(tmp_path / "new.csv", index=False)
    X, y, qid = table[["price"]], table["grade"], table["query"]
    blend = Blend([Ridge()], verbose=0).fit(X, y, qid=qid)
    with pytest.raises(ValueError, match="rankers must be NeuralRankers or trees"):
        blend.predict(tmp_path / "new.csv")
    with pytest.raises(ValueError, match="X must be a table or an array unless the ranker is"):
        Calibrated(Ridge().fit(X, y)).predict(tmp_path / "new.csv")


def test_training_and_validation_lists_are_not_one_set():
    ranker, both = fitted("network"), prepare(frame(200, 1), ROLES, validation=0.3)
    with pytest.raises(ValueError, match="X must be one set of lists, got training and valid"):
        ranker.predict(both)
    value = ranker.score(replace(both, train=both.val, val=None))
    assert 0 < value <= 1
