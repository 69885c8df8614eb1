"""The data module of tables: splits, the schema's way into a model and back."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch import Trainer

from ltr.datasets import Schema, TableDataModule, TableTransform, load_table, query_folds
from ltr.losses import ListNet
from ltr.models import LinearScorer, MLPScorer
from ltr.modules import Ranker


def make(rows: int = 120, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "query": rng.integers(0, rows // 6, rows),
            "price": rng.normal(size=rows),
            "stock": np.where(rng.random(rows) < 0.3, np.nan, rng.poisson(3, rows)),
            "shop": rng.choice(list("abc"), rows),
            "sku": [f"S{i}" for i in range(rows)],
        }
    )
    return frame.assign(grade=(frame["price"] + (frame["shop"] == "b") > 0.5).astype(int))


USES = {"qid": "query", "label": "grade", "doc_id": "sku"}


def trainer(folder: Path) -> Trainer:
    return Trainer(
        default_root_dir=folder,
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Ranker, Path]:
    folder = tmp_path_factory.mktemp("trained")
    ranker, run = Ranker(MLPScorer(hidden=(8,)), ListNet()), trainer(folder)
    run.fit(ranker, datamodule=TableDataModule(make(), **USES, validation=0.3))
    run.save_checkpoint(folder / "x.ckpt")
    return ranker, folder / "x.ckpt"


def test_the_splits_share_no_query(messages: list[str]):
    data = TableDataModule(make(), **USES, validation=0.3)
    data.setup("fit")
    train, val = data.splits["train"], data.splits["val"]
    assert not {*train.qids} & {*val.qids}
    assert len(train) + len(val) == make()["query"].nunique()
    said = f"val: {len(val)} of the 20 queries are held out for validation"
    assert any(message.startswith(said) and "seed 0" in message for message in messages)


@pytest.mark.parametrize("split", ["train", "val"])
def test_an_error_names_the_row_of_the_table(split: str, tmp_path: Path):
    frame = make()
    data = TableDataModule(frame, **USES, validation=0.3)
    data.setup("fit")
    names = data.splits[split].doc_id.to_pylist()
    row = max(frame.index[frame["sku"].isin(names)])
    assert row >= len(names)  # rows of the other split stand before it
    frame["grade"] = frame["grade"].where(frame.index != row, -1)
    frame[:60].to_parquet(tmp_path / "1.parquet")
    frame[60:].to_parquet(tmp_path / "2.parquet")
    message = rf"{tmp_path}: row {row}, column 'grade': a label must be a finite number"
    with pytest.raises(ValueError, match=message):
        TableDataModule(tmp_path, **USES, validation=0.3).setup("fit")


def test_a_query_stays_on_its_side():
    sides = []
    for frame in (make(), pd.concat([make().iloc[::-1], make(60).assign(query="new")])):
        frame = frame.assign(query=frame["query"].astype(str))
        data = TableDataModule(frame, **USES, validation=0.3)
        data.setup("fit")
        sides.append({qid: name for name in ("train", "val") for qid in data.splits[name].qids})
    assert sides[0].items() <= sides[1].items()
    other = TableDataModule(make(), **USES, validation=0.3, seed=1)
    other.setup("fit")
    assert {*other.splits["val"].qids} != {q for q, side in sides[0].items() if side == "val"}


def test_levels_and_medians_are_of_the_training_lists():
    train = make()
    val = train.assign(shop="only here", stock=1000.0)
    data = TableDataModule(train, **USES, val_path=val)
    data.setup("fit")
    assert data.schema is not None
    assert data.schema.categories["shop"].levels == ("a", "b", "c")
    assert isinstance(data.feature_transform, TableTransform)
    assert data.feature_transform.median[1] < 100
    assert not data.splits["val"].categories.any()


def test_batches_have_what_the_table_has():
    frame = make().assign(weight=2.0, shown=1, kind=True)
    uses = {**USES, "weight": "weight", "position": "shown", "protected": "kind"}
    data = TableDataModule(frame, **uses, validation=0.3)
    data.setup("fit")
    batch = next(iter(data.train_dataloader()))
    documents = int(batch["lengths"].sum())
    assert len(batch["lengths"]) == len(batch["qid"])
    assert batch["features"].shape == (documents, 2)
    assert batch["categories"].shape == (documents, 1)
    for name in ("labels", "weight", "position", "protected", "rows"):
        assert batch[name].shape == (documents,)
    assert (batch["weight"] == 2).all()


def scores_of(ranker: Ranker, data: TableDataModule) -> np.ndarray:
    """Return the scores of a table's rows, in batches of the data module."""
    assert ranker.schema is not None
    data.use_schema(ranker.schema)
    data.setup("predict")
    found = np.empty(len(data.dataset("predict").features), np.float32)
    ranker.eval()
    with torch.no_grad():
        for batch in data.predict_dataloader():
            given = {name: batch[name] for name in ("features", "categories", "lengths")}
            found[batch["rows"]] = ranker(**given)
    return found


def test_a_score_for_each_row_in_the_inputs_order(trained):
    ranker, _ = trained
    new = make(60, seed=1).drop(columns="grade").assign(more=1)
    found = scores_of(ranker, TableDataModule(new))
    np.testing.assert_allclose(ranker.model.predict(new), found, rtol=1e-5, atol=1e-6)
    # columns in another order, and rows too: a row's score is its own
    order = np.random.default_rng(0).permutation(len(new))
    shuffled = new.iloc[order][new.columns[::-1]]
    again = scores_of(ranker, TableDataModule(shuffled))
    np.testing.assert_allclose(again, found[order], rtol=1e-5, atol=1e-6)


def test_the_schema_is_in_the_checkpoint_as_plain_data(trained):
    ranker, file = trained
    content = torch.load(file, weights_only=True)
    assert Schema.from_dict(content["schema"]) == ranker.schema


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="price"), "must have the column 'price', as in training"),
        (lambda t: t.assign(shop=3), "column 'shop'.*type int64"),
        (lambda t: t.drop(columns="query"), "must have the column 'query'"),
    ],
)
def test_a_table_that_does_not_match(trained, change, message):
    with pytest.raises(ValueError, match=message):
        scores_of(trained[0], TableDataModule(change(make())))


def test_test_needs_a_table_of_its_own_after_fit(trained, tmp_path):
    (found,) = trainer(tmp_path).test(
        trained[0], datamodule=TableDataModule(make(60, 1)), verbose=False
    )
    assert 0 < found["test_ndcg_10"] <= 1
    data = TableDataModule(make(), **USES, validation=0.3)
    data.setup("fit")
    data.setup("test")  # as a Trainer calls it, also with another loader
    with pytest.raises(ValueError, match="test_path must be given, a table"):
        data.test_dataloader()


def test_another_schema_is_refused(trained, tmp_path):
    ranker, _ = trained
    data = TableDataModule(make().assign(shop="z"), **USES, validation=0.3)
    with pytest.raises(ValueError, match="got a difference: column 'shop': string category of 3"):
        trainer(tmp_path).fit(ranker, datamodule=data)
    with pytest.raises(ValueError, match=r"qid.*'sku'"):
        scores_of(ranker, TableDataModule(make(), qid="sku"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation": 1.5}, r"validation.*1.5"),
        ({"validation": 0.2, "val_path": "x.csv"}, "val_path must"),
        ({"validation": "a"}, r"validation.*'a'"),
        ({"max_levels": 0}, "max_levels must"),
        ({"max_levels": "a"}, "max_levels.*'a'"),
        ({"validation": 0.3, "qid": None}, "qid must"),
        ({"validation": 0.3, "label": None}, "label must"),
        ({"validation": 0.0001}, "validation must"),
        ({"path": None, "validation": 0.3}, "path must"),
        ({"transform": 3}, "transform must be a FeatureTransform, got 3"),
    ],
)
def test_what_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        TableDataModule(**{"path": make(), **USES, **options}).setup("fit")


def test_a_fifth_of_the_queries_is_held_out():
    found = [TableDataModule(make(), **USES, **given) for given in ({}, {"validation": 0.2})]
    for data in found:
        data.setup("fit")
    assert 0 < len(found[0].splits["val"]) < len(found[0].splits["train"])
    assert list(found[0].splits["val"].qids) == list(found[1].splits["val"].qids)


def test_prediction_needs_a_model():
    data = TableDataModule(make())
    data.setup("predict")
    with pytest.raises(ValueError, match="predict needs the schema of a model"):
        data.predict_dataloader()


def test_categories_need_a_transform():
    with pytest.raises(ValueError, match="categories must"):
        Ranker(LinearScorer(2))(torch.zeros(1, 3, 2), None, torch.zeros(1, 3, 1))


def test_folds_are_of_whole_queries_and_stable():
    qid = make()["query"]
    folds = query_folds(qid, 4)
    assert folds.get_n_splits() == 4
    tested = np.concatenate([test for _, test in folds.split(make())])
    assert sorted(tested) == list(range(len(qid)))
    for train, test in folds.split():
        assert not {*qid[train]} & {*qid[test]}
    some = qid[qid < 15]
    np.testing.assert_array_equal(query_folds(some, 4).folds, folds.folds[some.index])
    assert (query_folds(qid, 4, seed=1).folds != folds.folds).any()


def test_folds_are_scikit_learns_cv():
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV, cross_val_score

    frame = make()
    inputs, target = frame[["price"]], frame["grade"]
    folds = query_folds(frame["query"], 3)
    assert len(cross_val_score(Ridge(), inputs, target, cv=folds)) == 3
    search = GridSearchCV(Ridge(), {"alpha": [0.1, 1]}, cv=folds).fit(inputs, target)
    assert search.n_splits_ == 3


@pytest.mark.parametrize(
    ("qid", "n_splits", "message"),
    [
        (["a", None], 2, "qid.*None in row 1"),
        (["a", "b"], 1, "n_splits must"),
        (["a", "b"], 3, "n_splits must"),
        ([["a"]], 2, r"qid must"),
    ],
)
def test_folds_that_cannot_be(qid, n_splits, message):
    with pytest.raises(ValueError, match=message):
        query_folds(np.array(qid, dtype=object), n_splits)
    with pytest.raises(ValueError, match="X must have one row for each of the 2 qids, got 3"):
        list(query_folds(["a", "c"], 2).split(np.zeros(3)))


def test_columns_that_are_not_used_are_told_once():
    frame = make().assign(wait=pd.Timedelta("1h"))
    data = TableDataModule(frame, **USES, validation=0.3)
    with pytest.warns(UserWarning, match=r"not used: wait \(duration") as caught:
        data.setup("fit")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert load_table(frame).num_rows == 120
