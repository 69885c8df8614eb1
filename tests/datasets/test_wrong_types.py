"""A value of another type: one ValueError that names the argument and the value."""

import re

import numpy as np
import pyarrow as pa
import pytest

from ltr.datasets import (
    BucketSampler,
    ListDataset,
    ListSampler,
    Schema,
    TableDataModule,
    collate_lists,
    collate_ragged,
    convert,
    open_lists,
    pad_batch,
    query_folds,
    read_letor,
    write_lists,
)

DATA = ListDataset.from_arrays([[1.0], [2.0], [3.0]], labels=[0, 2, 1], qid=[7, 7, 8])
TABLE = pa.table({"q": [1], "x": [0.5]})
ONE = {"offsets": np.array([0, 1]), "qids": ["a"]}


@pytest.mark.parametrize("wrong", [3, b"x", None, ["train.txt"]])
@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("path", open_lists),
        ("path", lambda wrong: write_lists(DATA, wrong)),
        ("path", read_letor),
        ("source", lambda wrong: convert(wrong, "lists")),
        ("out", lambda wrong: convert("train.txt", wrong)),
    ],
)
def test_paths(argument, call, wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.txt").write_text("1 qid:1 1:1\n")
    with pytest.raises(ValueError, match=f"^{argument}.*{re.escape(repr(wrong))}$"):
        call(wrong)


def test_optional_paths(tmp_path):
    file = tmp_path / "train.txt"
    file.write_text("1 qid:1 1:1\n")
    with pytest.raises(ValueError, match=r"group_file.*3"):
        read_letor(file, group_file=3)


@pytest.mark.parametrize("wrong", [3, None, True, [3], [[1.0]], "abc", [DATA, 3]])
def test_write_lists_of_what_is_no_list(tmp_path, wrong):
    got = wrong[-1] if isinstance(wrong, list) else wrong[0] if isinstance(wrong, str) else wrong
    with pytest.raises(ValueError, match=f"lists.*{re.escape(repr(got))}"):
        write_lists(wrong, tmp_path)
    with pytest.raises(ValueError, match="path must"):
        open_lists(tmp_path)


@pytest.mark.parametrize("wrong", [3, b"x", [3]])
@pytest.mark.parametrize("use", ["qid", "label", "features", "categories"])
def test_columns(tmp_path, use, wrong):
    file = tmp_path / "train.csv"
    file.write_text("q,x\n1,0.5\n")
    for call in (
        lambda **given: convert(file, tmp_path / "lists", **given),
        lambda **given: Schema.infer(TABLE, **given),
        lambda **given: TableDataModule(TABLE, **given),
    ):
        with pytest.raises(ValueError, match=rf"{use}.*name"):
            call(**{"qid": "q", use: wrong})
    assert not (tmp_path / "lists").exists()


@pytest.mark.parametrize("wrong", [0, 2.5, True, [1], "many"])
def test_whole_numbers(tmp_path, wrong):
    file = tmp_path / "train.csv"
    file.write_text("q,x\n1,0.5\n")
    with pytest.raises(ValueError, match="max_levels must"):
        convert(file, tmp_path / "lists", qid="q", max_levels=wrong)
    with pytest.raises(ValueError, match="num_features must"):
        read_letor(file, num_features=wrong)
    with pytest.raises(ValueError, match="fold must"):
        TableDataModule(tmp_path, fold=wrong)
    with pytest.raises(ValueError, match="num_replicas must"):
        ListSampler(range(3), num_replicas=wrong, rank=0)
    write_lists(DATA, tmp_path / "lists")
    for data in (DATA, open_lists(tmp_path / "lists")):
        with pytest.raises(ValueError, match="num_features must"):
            data.widen(wrong)


def test_arrays():
    with pytest.raises(ValueError, match=r"features.*3"):
        ListDataset(3, None, np.array([0, 1]), ["a"])
    with pytest.raises(ValueError, match="offsets must"):
        ListDataset(np.ones((1, 1)), None, [0, 1], ["a"])
    with pytest.raises(ValueError, match=r"offsets must.*none"):
        ListDataset(np.ones((0, 1)), None, np.array([]), [])
    for name in ("labels", "weight"):
        with pytest.raises(ValueError, match=rf"{name}.*\[1\]"):
            ListDataset(**{"features": np.ones((1, 1)), "labels": None, name: [1]}, **ONE)
    for name in ("qid", "doc_id"):
        given = {"features": [[1.0]], "labels": [1], "qid": [1], name: 3}
        with pytest.raises(ValueError, match=f"{name}.*3"):
            ListDataset.from_arrays(**given)
    with pytest.raises(ValueError, match=r"qid.*3"):
        query_folds(3)
    with pytest.raises(ValueError, match=r"dataset.*3"):
        ListSampler(3)
    for wrong in (3, [[1]], ["a"], b"x"):
        with pytest.raises(ValueError, match="lengths must"):
            BucketSampler(wrong, 2)


@pytest.mark.parametrize("wrong", [3, None, [], [3], object()])
def test_batches(wrong):
    for call in (collate_ragged, collate_lists):
        with pytest.raises(ValueError, match="given must"):
            call(wrong)
    with pytest.raises(ValueError, match="batch must"):
        pad_batch(wrong)
