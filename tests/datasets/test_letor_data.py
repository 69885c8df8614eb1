from pathlib import Path

import numpy as np
import pytest
import torch

from ltr.datasets import (
    MinMaxPerList,
    Schema,
    Standardize,
    TableDataModule,
    TableTransform,
    read_letor,
)
from ltr.datasets.column_steps import Number
from ltr.datasets.splits import query_shares

TRAIN = "2 qid:1 1:1 2:4\n0 qid:1 1:3\n0 qid:2 1:5 2:4\n0 qid:3 1:7 2:8\n1 qid:3 2:8\n"
VALI = "1 qid:4 1:1\n0 qid:4 1:2\n"
TEST = "1 qid:5 1:1 3:9\n"

NAMES = {
    "letor": ("train.txt", "vali.txt", "test.txt"),
    "letor 2": ("trainingset.txt", "validationset.txt", "testset.txt"),
    "valid": ("train.txt", "valid.txt", "test.txt"),
    "val": ("train.dat", "val.dat", "test.dat"),
    "lightgbm": ("rank.train", "rank.valid", "rank.test"),
    "yahoo": ("set1.train.txt", "set1.valid.txt", "set1.test.txt"),
    "capitals": ("Train.TXT", "Validation.TXT", "Test.TXT"),
}


def fill(folder: Path, names: tuple[str, ...] = NAMES["letor"]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(names, (TRAIN, VALI, TEST), strict=True):
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("names", NAMES)
def test_publishers_names(tmp_path: Path, names: str):
    data = TableDataModule(fill(tmp_path, NAMES[names]))
    data.prepare_data()
    data.setup("fit")
    assert [data.dataset(split).qids for split in ("train", "val", "test")] == [
        ["1", "2", "3"],
        ["4"],
        ["5"],
    ]


def test_every_split_gets_the_width_of_training(tmp_path: Path):
    data = TableDataModule(str(fill(tmp_path)))
    data.setup("fit")
    assert data.num_features == 2
    assert {data.dataset(split).num_features for split in ("train", "val", "test")} == {2}
    (batch,) = data.train_dataloader()
    assert batch["features"].shape == (5, 2)
    assert batch["features"].max() == 8  # raw
    assert sorted(batch["lengths"].tolist()) == [1, 2, 2]
    (batch,) = data.test_dataloader()
    assert batch["features"].tolist() == [[1, 0]]  # without the third feature


def test_the_transform_is_fitted_on_train_alone(tmp_path: Path):
    data = TableDataModule(fill(tmp_path))
    data.setup("fit")
    assert isinstance(data.feature_transform, TableTransform)
    numbers = data.feature_transform.features
    assert isinstance(numbers, Standardize)
    rows = np.array([[1, 4], [3, 0], [5, 4], [7, 8], [0, 8]])
    np.testing.assert_allclose(numbers.mean, rows.mean(axis=0), rtol=1e-6)
    mine = MinMaxPerList()
    assert TableDataModule(tmp_path, transform=mine).feature_transform is mine


def test_setup_loads_once(tmp_path: Path):
    data = TableDataModule(fill(tmp_path))
    data.setup("fit")
    median = data.feature_transform.median
    train = data.splits["train"]
    data.setup("test")
    data.prepare_data()
    assert data.feature_transform.median is median
    assert data.splits["train"] is train


def test_lists_are_counted_and_reported(tmp_path: Path, messages: list[str]):
    data = TableDataModule(fill(tmp_path))
    data.setup("fit")
    data.dataset("test")
    assert (
        "train: 3 lists, 5 documents, 2 features; the longest list has 2 documents, "
        "1 has no relevant document, 1 has one document (all are kept)"
    ) in messages
    assert sum("test: 1 list, " in message for message in messages) == 1
    assert not any(message.startswith("predict") for message in messages)


def test_folds(tmp_path: Path):
    for fold in (1, 2, 10):
        fill(tmp_path / f"Fold{fold}")
    (tmp_path / "Fold2" / "test.txt").write_text("0 qid:22 1:1\n")
    data = TableDataModule(tmp_path, fold=2)
    data.setup("fit")
    assert data.dataset("test").qids == ["22"]
    with pytest.raises(ValueError, match=r"fold.*3 \(path .* holds 'Fo"):
        TableDataModule(tmp_path, fold=3).setup("fit")
    with pytest.raises(ValueError, match=r"fold.*2 .*vali\.txt"):
        TableDataModule(tmp_path / "Fold1", fold=2).setup("fit")


def test_lists_are_held_out_where_there_is_no_validation_file(tmp_path: Path, messages: list[str]):
    text = "".join(f"{i % 2} qid:{i} 1:{i}\n" for i in range(40))
    (tmp_path / "rank.train").write_text(text)

    def split(**options) -> tuple[list[str], list[str]]:
        data = TableDataModule(tmp_path, **options)
        data.setup("fit")
        return list(data.splits["train"].qids), list(data.splits["val"].qids)

    train, val = split(validation=0.2, seed=3)
    assert (
        f"val: {len(val)} of the 40 queries are held out for validation, by a hash of the qid "
        "(validation 0.2, seed 3)"
    ) in messages
    assert sorted(train + val, key=int) == [str(i) for i in range(40)]
    assert [*val] == [str(i) for i, x in enumerate(query_shares(range(40), 3)) if x < 0.2]
    assert split(validation=0.2, seed=1)[1] != val
    assert split(seed=3) == (train, val)
    (tmp_path / "test.txt").write_text(text)
    assert split(seed=3) == (train, val)
    (tmp_path / "test.txt").unlink()
    # a query stays on its side when there are more of them, and with a larger share
    text = "".join(f"{i % 2} qid:{i} 1:{i}\n" for i in range(60, 0, -1))
    (tmp_path / "rank.train").write_text(text)
    assert (
        {*val} - {"0"} <= {*split(validation=0.2, seed=3)[1]} <= {*split(validation=0.5, seed=3)[1]}
    )
    (tmp_path / "rank.train").write_text("1 qid:1 1:1\n")
    with pytest.raises(ValueError, match="validation must"):
        split(validation=0.2)
    (tmp_path / "vali.txt").write_text("1 qid:1 1:1\n")
    with pytest.raises(ValueError, match="validation must"):
        split(validation=0.2)


def test_setup_keeps_the_argument(tmp_path: Path):
    text = "".join(f"{i % 2} qid:{i} 1:{i}\n" for i in range(40))
    (tmp_path / "rank.train").write_text(text)
    data = TableDataModule(tmp_path)
    data.setup("fit")
    assert len(data.splits["val"]) > 0
    assert data.validation is None


def test_what_is_missing_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match=r"path must.*no/such \(no such file\)"):
        TableDataModule("no/such").setup("fit")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=rf"must hold CSV, Parquet or LETOR.*got {tmp_path}$"):
        TableDataModule(tmp_path).setup("fit")
    for name in ("train.txt", "vali.txt"):
        (tmp_path / name).write_text(TRAIN)
    for stage in ("test", "predict"):
        message = (
            rf"{stage}_path must be given if path has no test file, got None \(path {tmp_path}"
        )
        with pytest.raises(ValueError, match=message):
            TableDataModule(tmp_path).dataset(stage)
    (tmp_path / "training.txt").write_text(TRAIN)
    with pytest.raises(ValueError, match=r"one train file, got train\.txt, training\.txt in"):
        TableDataModule(tmp_path).setup("fit")


def test_plain_before_gzip_and_without_a_prefix_before_with(tmp_path: Path):
    for name in ("train.txt.gz", "small_train.txt", "train.txt.query", "old-test.txt"):
        (fill(tmp_path) / name).write_bytes(b"not looked at")
    TableDataModule(tmp_path).setup("fit")


def test_test_alone_needs_no_training_file(tmp_path: Path):
    (fill(tmp_path) / "train.txt").unlink()
    data = TableDataModule(tmp_path)
    steps = dict.fromkeys(["1", "2", "3"], Number())
    data.use_schema(Schema("qid", "label", steps=steps))
    data.setup("test")
    (batch,) = data.test_dataloader()
    assert batch["qid"] == ["5"]
    data.feature_transform.load_state_dict(TableTransform().fit(np.eye(3)).state_dict())
    assert data.feature_transform(batch["features"]).shape == (1, 3)


def test_predict(tmp_path: Path):
    data = TableDataModule(fill(tmp_path))
    data.setup("fit")
    assert [batch["qid"] for batch in data.predict_dataloader()] == [["5"]]
    other = tmp_path / "new" / "new.txt"
    other.parent.mkdir()
    other.write_text("0 qid:9 1:1 # x\n")
    data = TableDataModule(tmp_path, predict_path=other)
    data.setup("fit")
    (batch,) = data.predict_dataloader()
    assert (batch["qid"], batch["doc_id"]) == (["9"], ["x"])


def test_a_split_list(tmp_path: Path):
    (fill(tmp_path) / "train.txt").write_text("1 qid:1 1:1\n1 qid:2 1:1\n0 qid:1 1:1\n")
    data = TableDataModule(tmp_path)
    data.setup("fit")
    assert data.splits["train"].lengths.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size.*0"),
        ({"batch_size": 2.5}, "batch_size.*2.5"),
        ({"num_workers": -1}, "num_workers.*-1"),
        ({"seed": -1}, "seed.*-1"),
        ({"fold": 0}, "fold.*0"),
        ({"validation": 1.0}, r"validation.*1.0"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        TableDataModule("any", **options)


@pytest.mark.parametrize(
    ("folder", "counts", "features"),
    [
        ("MQ2008", (471, 157, 156), 46),
        ("OHSUMED", (63, 21, 22), 25),
        ("MSLR-WEB10K-part", (43, 24, 43), 136),
    ],
)
def test_real_folders(data_root: Path, folder: str, counts, features: int):
    data = TableDataModule(data_root / folder)
    data.setup("fit")
    assert tuple(len(data.dataset(split)) for split in ("train", "val", "test")) == counts
    assert data.num_features == features
    batch = next(iter(data.val_dataloader()))
    shown = data.feature_transform(batch["features"])
    assert shown.isfinite().all()
    train = torch.from_numpy(data.splits["train"].features.copy())
    torch.testing.assert_close(
        data.feature_transform(train).mean(dim=0), torch.zeros(features), atol=1e-3, rtol=0
    )


def test_real_lightgbm_folder(data_root: Path):
    folder = data_root / "lightgbm-lambdarank"
    data = TableDataModule(folder, validation=0.2)
    data.setup("fit")
    held = int((query_shares(range(1, 202)) < 0.2).sum())
    assert (len(data.splits["train"]), len(data.splits["val"])) == (201 - held, held)
    assert data.num_features == 300
    assert len(read_letor(data_root / "lightgbm-lambdarank/rank.test")) == 50


def test_missing_values(tmp_path: Path):
    fill(tmp_path)
    (tmp_path / "train.txt").write_text("2 qid:1 1:1 2:4\n0 qid:1 1:NULL 2:4\n1 qid:1 1:3 2:4\n")
    data = TableDataModule(tmp_path)
    data.setup("fit")
    (batch,) = data.train_dataloader()
    assert batch["features"].isnan().sum() == 1
    found = data.feature_transform(batch["features"])
    assert found.isfinite().all()
    assert data.feature_transform.out_features == found.shape[-1] == 3  # two, and an indicator
    with pytest.raises(
        ValueError, match=r"missing for Standardize, got some in column 0: give Tab"
    ):
        TableDataModule(tmp_path, transform=Standardize()).setup("fit")
