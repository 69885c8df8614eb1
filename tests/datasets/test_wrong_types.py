"""A value of another type: one ValueError that names the argument and the value."""

import re

import numpy as np
import pyarrow as pa
import pytest

from ltr.datasets import (
    BucketSampler,
    LetorDataModule,
    ListDataset,
    ListSampler,
    Schema,
    TableDataModule,
    collate_lists,
    collate_ragged,
    convert,
    load_letor,
    open_store,
    pad_batch,
    query_folds,
    read_letor,
    write_store,
)

DATA = ListDataset.from_arrays([[1.0], [2.0], [3.0]], labels=[0, 2, 1], qid=[7, 7, 8])
TABLE = pa.table({"q": [1], "x": [0.5]})


@pytest.mark.parametrize("wrong", [3, b"x", None, ["train.txt"]])
@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("path", open_store),
        ("path", lambda wrong: write_store(DATA, wrong)),
        ("path", read_letor),
        ("path", load_letor),
        ("root", LetorDataModule),
        ("source", lambda wrong: convert(wrong, "store")),
        ("out", lambda wrong: convert("train.txt", wrong)),
    ],
)
def test_paths(argument, call, wrong):
    with pytest.raises(ValueError, match=f"^{argument}.*{re.escape(repr(wrong))}$"):
        call(wrong)


def test_optional_paths(tmp_path):
    file = tmp_path / "train.txt"
    file.write_text("1 qid:1 1:1\n")
    with pytest.raises(ValueError, match=r"group_file.*3"):
        read_letor(file, group_file=3)
    with pytest.raises(ValueError, match=r"cache_dir.*3"):
        load_letor(file, cache_dir=3)
    with pytest.raises(ValueError, match=r"predict_path.*3"):
        LetorDataModule(tmp_path, predict_path=3)


@pytest.mark.parametrize("wrong", [3, None, True, [3], [[1.0]], "abc", [DATA, 3]])
def test_write_store_of_what_is_no_list(tmp_path, wrong):
    got = wrong[-1] if isinstance(wrong, list) else wrong[0] if isinstance(wrong, str) else wrong
    with pytest.raises(ValueError, match=f"lists.*{re.escape(repr(got))}"):
        write_store(wrong, tmp_path)
    with pytest.raises(ValueError, match="path must"):
        open_store(tmp_path)


def test_write_store_with_other_arguments(tmp_path):
    for wrong in (0, 2.5, True, "big"):
        with pytest.raises(ValueError, match=f"shard_bytes.*{wrong!r}"):
            write_store(DATA, tmp_path / "store", shard_bytes=wrong)
    with pytest.raises(ValueError, match=r"schema.*3"):
        write_store(DATA, tmp_path / "store", schema=3)
    with pytest.raises(ValueError, match=r"source.*b'x'"):
        write_store(DATA, tmp_path / "store", source=b"x")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("wrong", [3, b"x", [3]])
@pytest.mark.parametrize("use", ["qid", "label", "features", "categories"])
def test_columns(tmp_path, use, wrong):
    file = tmp_path / "train.csv"
    file.write_text("q,x\n1,0.5\n")
    for call in (
        lambda **given: convert(file, tmp_path / "store", **given),
        lambda **given: Schema.infer(TABLE, **given),
        lambda **given: TableDataModule(TABLE, **given),
    ):
        with pytest.raises(ValueError, match=rf"{use}.*name"):
            call(**{"qid": "q", use: wrong})
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("wrong", [0, 2.5, True, [1], "many"])
def test_whole_numbers(tmp_path, wrong):
    file = tmp_path / "train.csv"
    file.write_text("q,x\n1,0.5\n")
    for name in ("shard_bytes", "max_levels"):
        with pytest.raises(ValueError, match=f"{name} must"):
            convert(file, tmp_path / "store", qid="q", **{name: wrong})
    with pytest.raises(ValueError, match="num_features must"):
        read_letor(file, num_features=wrong)
    with pytest.raises(ValueError, match="num_features must"):
        LetorDataModule(tmp_path, num_features=wrong)
    with pytest.raises(ValueError, match="num_replicas must"):
        ListSampler(range(3), num_replicas=wrong, rank=0)
    write_store(DATA, tmp_path / "store")
    for data in (DATA, open_store(tmp_path / "store")):
        with pytest.raises(ValueError, match="num_features must"):
            data.widen(wrong)


def test_arrays():
    with pytest.raises(ValueError, match=r"features.*3"):
        ListDataset(3, None, np.array([0, 1]), ["a"])
    with pytest.raises(ValueError, match="offsets must"):
        ListDataset(np.ones((1, 1)), None, [0, 1], ["a"])
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
