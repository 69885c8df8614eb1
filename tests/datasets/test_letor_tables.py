"""LETOR text where a table is wanted."""

import gzip
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from lightning.pytorch import Trainer
from sklearn.datasets import dump_svmlight_file

from ltr.datasets import (
    TableDataModule,
    convert,
    load_table,
    read_letor,
    read_table,
    write_lists,
)
from ltr.datasets.list_tables import load_lists
from ltr.datasets.prepare import prepare
from ltr.losses import SoftmaxLoss
from ltr.models import LinearScorer
from ltr.models.predictor import score_table
from ltr.modules import Ranker


def lines(queries: range, width: int = 4, null: bool = False) -> str:
    rng = np.random.default_rng(queries.start)
    text = []
    for qid in queries:
        for i in range(5):
            values = [f"{j}:{x:.3f}" for j, x in enumerate(rng.normal(size=width), start=1)]
            if null and i == 0:
                values[1] = "2:NULL"
            text.append(f"{int(rng.integers(3))} qid:{qid} {' '.join(values)} # docid = D{qid}-{i}")
    return "\n".join(text) + "\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text(lines(range(1, 31), null=True))
    Path("new.txt").write_text(lines(range(50, 60), width=3))
    return tmp_path


def trainer() -> Trainer:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return Trainer(max_epochs=1, accelerator="cpu", enable_model_summary=False, **quiet)


def test_a_file_needs_no_names(messages: list[str]):
    data = TableDataModule("train.txt", validation=0.3)
    data.setup("fit")
    assert data.schema is not None
    assert data.schema.features == {"1": 1, "2": 1, "3": 1, "4": 1}
    train, val = data.splits["train"], data.splits["val"]
    assert sorted([*train.qids, *val.qids], key=int) == [str(i) for i in range(1, 31)]
    assert np.isnan(train.features[:, 1]).sum() == len(train)  # NULL stays missing
    said = f"val: {len(val)} of the 30 queries are held out"
    assert any(message.startswith(said) for message in messages)
    # the same queries as of a table: the hash is of the qid
    table = TableDataModule(
        pd.DataFrame({"q": range(1, 31), "y": [0, 1, 2] * 10, "x": 1.0}),
        qid="q",
        label="y",
        validation=0.3,
    )
    table.setup("fit")
    assert {*table.splits["val"].qids} == {*val.qids}


@pytest.mark.parametrize("name", ["train.txt.gz", "train.svm.zst", "parts", "parts/*.txt"])
def test_compressed_files_folders_and_patterns(name: str):
    content = Path("train.txt").read_bytes()
    if name.startswith("parts"):
        Path("parts").mkdir()
        Path("parts/a.txt").write_text(lines(range(1, 21), null=True))
        Path("parts/b.txt").write_text(lines(range(21, 31), width=6))
    else:
        zstd = partial(pa.compress, codec="zstd", asbytes=True)
        compress = gzip.compress if name.endswith("gz") else zstd
        Path(name).write_bytes(compress(content))
    data = TableDataModule(name, val_path="train.txt")
    data.setup("fit")
    lists = data.splits["train"]
    assert lists.qids == [str(i) for i in range(1, 31)]
    assert lists.doc_id.to_pylist()[:6] == [*(f"D1-{i}" for i in range(5)), "D2-0"]
    assert lists.num_features == data.splits["val"].num_features == (6 if "parts" in name else 4)


@pytest.mark.parametrize("returns", [False, True])
def test_several_files_are_one_file(returns: bool):
    Path("parts").mkdir()
    parts = [lines(range(1, 21), null=True), lines(range(21 - 3 * returns, 31), width=6)]
    for name, text in zip("ab", parts, strict=True):
        Path(f"parts/{name}.txt").write_text(text)
    Path("whole.txt").write_text("".join(parts))
    data = load_lists("parts")
    whole = read_letor("whole.txt")
    assert data.qids == whole.qids
    for position in range(len(whole)):
        for key, value in whole[position].items():
            found = data[position][key]
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(found, value, rtol=0, atol=0, equal_nan=True)
            else:
                assert found == value
    if not returns:
        assert data.rows.tolist() == [*range(len(whole.labels))]


def predicted(ranker: Ranker, data: TableDataModule) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of each document of a data module's lists, and its score."""
    assert ranker.schema is not None
    data.use_schema(ranker.schema)
    lists = data.dataset("predict")
    assert lists.rows is not None
    return lists.rows, ranker.model.score(lists)


def test_scores_are_in_the_files_order():
    ranker, data = (
        Ranker(LinearScorer(), SoftmaxLoss()),
        TableDataModule("train.txt", validation=0.3),
    )
    run = trainer()
    run.fit(ranker, datamodule=data)
    torn = Path("new.txt").read_text().splitlines()
    order = np.random.default_rng(0).permutation(len(torn))
    Path("torn.txt").write_text("\n".join(torn[i] for i in order))
    model = ranker.model
    ((keys, scores),) = score_table(model, "new.txt", keys=["qid", "doc_id"])
    assert keys["doc_id"][0].as_py() == "D50-0"
    for name in ("new.txt", "torn.txt"):  # with 3 features: the fourth is 0
        rows, found = predicted(ranker, TableDataModule(name))
        lines = rows if name == "new.txt" else order[rows]
        np.testing.assert_allclose(found, scores[lines], rtol=1e-4)
    # a table with columns of those names has the same scores
    columns = {"qid": np.repeat(range(50, 60), 5), "4": 0.0}
    features = [[float(x.split(":")[1]) for x in line.split()[2:5]] for line in torn]
    columns |= dict(zip("123", np.array(features).T, strict=True))
    _, scores = predicted(ranker, TableDataModule(pd.DataFrame(columns)))
    np.testing.assert_allclose(scores, model.predict("new.txt"), rtol=1e-4, atol=1e-6)
    (result,) = trainer().test(ranker, datamodule=TableDataModule("new.txt"), verbose=False)
    assert 0 < result["test_ndcg_10"] <= 1


def test_features_that_are_not_wanted(messages: list[str]):
    data = TableDataModule("train.txt", validation=0.3, features=["3", "1"])
    data.setup("fit")
    whole = TableDataModule("train.txt", validation=0.3)
    whole.setup("fit")
    np.testing.assert_array_equal(
        data.splits["train"].features, whole.splits["train"].features[:, [2, 0]]
    )
    assert messages.count("columns that the model does not use: '2', '4'") == 1


def test_what_cannot_be():
    Path("splits").mkdir()
    for name in ("train", "vali"):
        Path(f"splits/{name}.txt").write_text(lines(range(1, 4)))
    Path("torn.txt").write_text("1 qid:1 1:1\n1 qid:2 1:1\n0 qid:1 1:1\n")
    frame = pd.DataFrame({"q": [1, 1, 2, 2, 3], "y": [1, 0, 1, 0, 1], "price": 1.0})
    other = {"validation": 0.3, "qid": "q", "label": "y"}
    for path, options, message in (
        (
            "splits",
            {},
            r"validation must be None if path has a validation file, got 0.3 \(splits.vali",
        ),
        ("train.txt", {"qid": "query"}, "qid must be None for LETOR text, got 'query'"),
        ("train.txt", {"weight": "w"}, "weight must be None for LETOR text, got 'w'"),
        ("train.txt", {"categories": ["c"]}, "categories must be None for LETOR text"),
        (
            "train.txt",
            {"features": ["5"]},
            "features must be the columns of LETOR text, '1', .*'4', got '5'",
        ),
        ("gone.txt", {}, "path must be a file, a folder or a pattern, got gone.txt"),
        (
            frame,
            {**other, "validation": None, "val_path": "train.txt"},
            "the column 'price', as in",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            TableDataModule(path, **{"validation": 0.3, **options}).setup("fit")
    with pytest.raises(ValueError, match="LETOR text has no columns: take TableDataModule or"):
        load_table("train.txt")
    gathered = TableDataModule("torn.txt", val_path="torn.txt")
    gathered.setup("fit")
    assert gathered.splits["train"].qids == gathered.splits["val"].qids == ["1", "2"]


def test_features_from_0_have_their_names_in_every_file(tmp_path: Path):
    """A file may lack the index 0: features are matched by the index as it is written."""
    rng = np.random.default_rng(0)
    X, y, qid = rng.normal(size=(60, 3)), rng.integers(0, 3, 60), np.arange(60) // 6
    dump_svmlight_file(X, y, "zero.txt", query_id=qid)
    some = X * [0, 1, 1]
    dump_svmlight_file(some, y, "some.txt", query_id=qid)
    found = prepare("zero.txt", {})
    assert [*found.schema.features] == ["0", "1", "2"]
    np.testing.assert_allclose(read_table("some.txt", found.schema).features, some, rtol=1e-6)
    dump_svmlight_file(some[:, :2], y, "narrow.txt", query_id=qid)
    narrow = read_table("narrow.txt", found.schema).features
    np.testing.assert_allclose(narrow, some * [1, 1, 0], rtol=1e-6)
    # A model that was trained without this index ignores it.
    plain = prepare("some.txt", {}).schema
    assert [*plain.features] == ["1", "2"]
    np.testing.assert_allclose(read_table("zero.txt", plain).features, X[:, 1:], rtol=1e-6)
    for number, order in enumerate((np.arange(60), rng.permutation(60))):
        dump_svmlight_file(X[order], y[order], "mixed.txt", query_id=qid[order])
        stored = convert("mixed.txt", tmp_path / f"s{number}")
        assert stored.schema is not None
        assert [*stored.schema.features] == ["0", "1", "2"]
        np.testing.assert_array_equal(stored.features, read_letor("mixed.txt").features)
        assert [*prepare(tmp_path / f"s{number}", {}).schema.features] == ["0", "1", "2"]
    write_lists(read_letor("zero.txt"), tmp_path / "lists")
    np.testing.assert_allclose(read_table(tmp_path / "lists", found.schema).features, X, rtol=1e-6)
