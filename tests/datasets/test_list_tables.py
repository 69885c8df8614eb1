"""Lists on disk instead of tables: the same lists, schema, training and scores."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

from ltr.datasets import (
    Schema,
    TableDataModule,
    collate_ragged,
    convert,
    lists,
    open_lists,
    read_table,
)
from ltr.datasets.column_steps import Category, Number
from ltr.losses import ListNet
from ltr.models import LinearScorer
from ltr.modules import Ranker

USES = {"qid": "query", "label": "grade"}


def frame(rows: int, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "query": np.sort(draw.integers(0, rows // 6, rows)),
            "price": np.where(draw.random(rows) < 0.1, np.nan, draw.normal(size=rows)),
            "stock": draw.poisson(3, rows),
            "shop": draw.choice(["a", "b", "c"], rows),
        }
    )
    return table.assign(grade=(table["price"].fillna(0) + (table["shop"] == "b") > 0.5).astype(int))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    frame(600).to_parquet(tmp_path / "train.parquet")
    convert(tmp_path / "train.parquet", tmp_path / "train.lists", **USES)
    return tmp_path / "train.lists"


def module(path, **options) -> TableDataModule:
    return TableDataModule(path, validation=0.3, batch_size=16, **options)


def test_training_on_lists_is_training_on_its_table(stored: Path):
    losses = []
    for data in (module(stored), module(stored.with_suffix(".parquet"), **USES)):
        torch.manual_seed(0)
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = Trainer(max_epochs=2, accelerator="cpu", enable_model_summary=False, **quiet)
        ranker = Ranker(LinearScorer(), ListNet())
        trainer.fit(ranker, datamodule=data)
        losses.append(float(trainer.callback_metrics["val_ndcg_10"]))
        assert ranker.schema.features == {"price": 1, "stock": 1}
        assert data.splits["train"].summary().documents > 300
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_columns_are_matched_by_name(stored: Path, tmp_path: Path):
    whole = open_lists(stored)
    levels = whole.schema.categories["shop"].levels
    assert levels == ("a", "b", "c")
    other = Schema(
        **USES,
        steps={"stock": Number(), "shop": Category("string", ("c", "x"))},
    )
    data = TableDataModule(stored, predict_path=stored)
    data.use_schema(other)
    found = data.dataset("predict")
    assert found.num_features == 1
    batch = found.__getitems__([5, 2])
    want = whole.__getitems__([5, 2])
    assert batch["features"][:, 0].tolist() == want["features"][:, 1].tolist()
    names = np.array(["", *levels])[want["categories"][:, 0]]
    assert batch["categories"][:, 0].tolist() == [int(name == "c") for name in names]
    assert batch["rows"].tolist() == [
        *range(int(whole.offsets[5]), int(whole.offsets[6])),
        *range(int(whole.offsets[2]), int(whole.offsets[3])),
    ]
    for schema, message in (
        (Schema("query", steps={"cost": Number()}), "must have the column 'cost', as in training"),
        (
            Schema("query", steps={"shop": Number()}),
            "'shop' must be 1 feature, .* got string category",
        ),
        (
            Schema("query", steps={"stock": other.categories["shop"]}),
            "must be string category .* got 1 feature",
        ),
    ):
        data = TableDataModule(stored)
        data.use_schema(schema)
        with pytest.raises(ValueError, match=message):
            data.dataset("predict")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"qid": "id"}, "qid.*'id'"),
        ({"weight": "w"}, "weight.*'w'"),
        ({"features": ["cost"]}, "features.*'c"),
        ({"categories": ["shop"]}, "categories must"),
    ],
)
def test_names_that_lists_do_not_have(stored: Path, options, message: str):
    with pytest.raises(ValueError, match=message):
        module(stored, **options).setup("fit")


def test_lists_that_need_labels(tmp_path: Path):
    frame(60).to_csv(tmp_path / "t.csv", index=False)
    convert(tmp_path / "t.csv", tmp_path / "lists", qid="query")
    schema = Schema("query", "grade", steps={"price": Number()})
    assert not read_table(tmp_path / "lists", schema, needs_label=False).has_labels
    with pytest.raises(ValueError, match="lists must have labels"):
        read_table(tmp_path / "lists", schema)


def test_lists_of_letor_text(tmp_path: Path):
    lines = [f"{i % 3} qid:{i // 4} 2:{i / 7} 3:{i % 5} # D{i}\n" for i in range(80)]
    (tmp_path / "train.txt").write_text("".join(lines))
    convert(tmp_path / "train.txt", tmp_path / "lists")
    from_disk, from_text = (module(tmp_path / name) for name in ("lists", "train.txt"))
    for data in (from_disk, from_text):
        data.setup("fit")
    assert from_disk.schema == from_text.schema
    for split in ("train", "val"):
        one, two = from_disk.splits[split], from_text.splits[split]
        assert list(one.qids) == list(two.qids)
        assert one.features.tobytes() == two.features.tobytes()
        assert one.summary() == two.summary()
    data = TableDataModule(tmp_path / "lists")
    data.use_schema(Schema("qid", "label", steps={"5": Number(), "2": Number()}))
    batch = data.dataset("predict").__getitems__([1])
    assert batch["features"].tolist() == [[0, np.float32(i / 7)] for i in range(4, 8)]
    assert batch["doc_id"] == [f"D{i}" for i in range(4, 8)]


def test_lists_by_index_of_any_selection(stored: Path):
    data = open_lists(stored)
    whole = data.read(np.arange(len(data)))
    draw = np.random.default_rng(0)
    chosen = draw.permutation(len(data))[:50]
    for one, two in ((data, whole), (data.select(chosen), whole.select(chosen))):
        indices = draw.integers(-1, len(one), 20).tolist()
        for key, value in one.__getitems__(indices).items():
            assert np.array_equal(value, two.__getitems__(indices)[key], equal_nan=key[0] == "f")
        item, other = one[3], two[3]
        assert item.keys() == other.keys()
        assert item["mask"].tolist() == other["mask"].tolist()
        assert one[-1]["features"].shape == (1, 2)
        assert list(one.qids) == list(two.qids)
        assert one.lengths.tolist() == two.lengths.tolist()
        assert one.summary() == two.summary()
    again = data.select(chosen).select([4, 2])
    assert list(again.qids) == [whole.qids[i] for i in chosen[[4, 2]]]
    for one in (data, whole):
        assert one.numbered().rows.tolist() == [*range(len(data.features))]
    assert data.widen(5)[0]["features"][:, 2:].sum() == 0
    with pytest.raises(IndexError, match="index must"):
        data[len(data)]
    with pytest.raises(IndexError, match="indices must"):
        data.__getitems__([-2])
    with pytest.raises(ValueError, match=r"num_features.*1"):
        data.widen(1)


def test_workers_and_other_processes_map_the_files_themselves(stored: Path):
    whole = open_lists(stored)
    data = whole.select([5, 1, 3])
    for one in (whole, data):
        raw = pickle.dumps(one)
        assert len(raw) < 3000
        again = pickle.loads(raw)
        assert list(again.qids) == list(one.qids)
        assert np.array_equal(again[0]["features"], one[0]["features"], equal_nan=True)
    loader = DataLoader(data, 2, collate_fn=collate_ragged, num_workers=1)
    assert [batch["qid"] for batch in loader] == [list(data.qids)[:2], list(data.qids)[2:]]


def test_transforms_of_large_lists_are_fitted_on_a_sample(stored: Path, monkeypatch):
    data = open_lists(stored)
    assert len(data.to_fit()) == len(data)
    monkeypatch.setattr(lists, "FIT_VALUES", 300)
    sample = data.to_fit()
    assert 100 < len(sample.features) < 220
    assert sample.qids == data.to_fit().qids
    assert {*sample.qids} < {*data.qids}
    assert type(sample.features) is np.ndarray
    whole = data.in_memory()
    assert whole.to_fit().qids == sample.qids
    assert whole.in_memory() is whole
