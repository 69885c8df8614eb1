import os
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ltr.datasets import ListDataset, load_letor, read_letor, read_shard, store, write_shard

TEXT = "2 qid:7 1:0.5 3:1 #docid = A1\n0 qid:7 2:0.25 #docid = B2\n1 qid:8 1:1 #docid = C3\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.txt").write_text(TEXT)
    return folder / "train.txt"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were really read, one entry a time."""
    paths = []

    def counting(path, **options):
        paths.append(path)
        return read_letor(path, **options)

    monkeypatch.setattr(store, "read_letor", counting)
    return paths


def assert_same(got: ListDataset, want: ListDataset) -> None:
    assert got.features.dtype == got.labels.dtype == np.float32
    assert got.offsets.dtype == np.int64
    np.testing.assert_array_equal(got.features, want.features)
    np.testing.assert_array_equal(got.labels, want.labels)
    np.testing.assert_array_equal(got.offsets, want.offsets)
    assert got.qids == want.qids
    assert (got.doc_ids is None) == (want.doc_ids is None)
    if got.doc_ids is not None:
        assert got.doc_ids.to_pylist() == want.doc_ids.to_pylist()


def cache_of(source: Path) -> Path:
    return source.with_name(source.name + ".ltr-cache.arrow")


@pytest.mark.parametrize("doc_ids", [None, ["a", "", "ü"]])
def test_shard_round_trip(tmp_path: Path, doc_ids):
    data = ListDataset.from_arrays([[1.0, 2], [3, 4], [5, 6]], [0, 1, 2], ["x", "x", "y"], doc_ids)
    write_shard(data, tmp_path / "lists.arrow")
    assert_same(read_shard(tmp_path / "lists.arrow"), data)
    assert [path.name for path in tmp_path.iterdir()] == ["lists.arrow"]


def test_shard_layout(tmp_path: Path):
    data = ListDataset.from_arrays([[1.0, 2], [3, 4], [5, 6]], [0, 1, 2], ["x", "x", "y"], "abc")
    write_shard(data, tmp_path / "lists.arrow")
    table = pa.ipc.open_file(tmp_path / "lists.arrow").read_all()
    assert table.to_pylist() == [
        {"qid": "x", "labels": [0, 1], "features": [[1, 2], [3, 4]], "doc_ids": ["a", "b"]},
        {"qid": "y", "labels": [2], "features": [[5, 6]], "doc_ids": ["c"]},
    ]
    assert table.schema.field("features").type == pa.list_(pa.list_(pa.float32(), 2))
    assert table.schema.metadata[b"ltr.format_version"] == b"1"
    assert table.schema.metadata[b"ltr.num_features"] == b"2"


def test_a_shard_is_mapped_and_its_items_are_writable(tmp_path: Path):
    data = ListDataset.from_arrays([[1.0, 2], [3, 4]], [0, 1], ["x", "x"])
    write_shard(data, tmp_path / "lists.arrow")
    mapped = read_shard(tmp_path / "lists.arrow")
    assert not mapped.features.flags.owndata
    mapped[0]["features"].zero_()
    assert mapped[0]["features"].tolist() == [[1, 2], [3, 4]]


def test_read_once(source: Path, reads: list[Path]):
    want = read_letor(source)
    assert_same(load_letor(source), want)
    assert_same(load_letor(source), want)
    assert_same(load_letor(str(source)), want)
    assert reads == [source]
    assert cache_of(source).is_file()


def test_a_changed_source_is_read_again(source: Path, reads: list[Path]):
    load_letor(source)
    source.write_text(TEXT.replace("0.5", "0.7"))  # of the same size
    assert load_letor(source).features[0, 0] == np.float32(0.7)
    source.write_text(TEXT + "1 qid:9 1:1 #docid = D4\n")
    os.utime(source, ns=(0, 0))
    assert len(load_letor(source)) == 3
    load_letor(source)
    assert len(reads) == 3


def test_another_option_is_read_again(source: Path, reads: list[Path]):
    load_letor(source)
    assert load_letor(source, num_features=5).num_features == 5
    assert load_letor(source, sort_by_qid=True).num_features == 3
    assert len(reads) == 3


def test_changed_group_sizes_are_read_again(source: Path, reads: list[Path]):
    source.write_text("1 1:1\n0 1:2\n")
    sizes = source.with_name("train.txt.query")
    sizes.write_text("2\n")
    assert len(load_letor(source)) == 1
    sizes.write_text("1\n1\n")
    assert len(load_letor(source)) == 2
    other = source.with_name("sizes")
    other.write_text("2\n")
    assert len(load_letor(source, group_file=other)) == 1
    assert len(reads) == 3


def test_a_bad_file_is_an_error_each_time_and_leaves_no_cache(source: Path):
    source.write_text("1 qid:1 1:NULL\n")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"train.txt, line 1: .*'1:NULL'"):
            load_letor(source)
    assert not cache_of(source).exists()
    with pytest.raises(ValueError, match=r"path must be a file, got .*none\.txt"):
        load_letor(source.with_name("none.txt"))


@pytest.mark.parametrize("damage", ["empty", "half", "tail", "text", "foreign", "old", "folder"])
def test_a_damaged_cache_is_made_again(source: Path, reads: list[Path], damage: str, monkeypatch):
    want = load_letor(source)
    cache = cache_of(source)
    raw = cache.read_bytes()
    if damage == "empty":
        cache.write_bytes(b"")
    elif damage == "half":
        cache.write_bytes(raw[: len(raw) // 2])
    elif damage == "tail":
        cache.write_bytes(raw[:-1])
    elif damage == "text":
        cache.write_text("this is no cache\n" * 100)
    elif damage == "foreign":
        table = pa.table({"a": [1, 2]})
        with pa.ipc.new_file(cache, table.schema) as writer:
            writer.write_table(table)
    elif damage == "old":
        with monkeypatch.context() as patch:
            patch.setattr(store, "FORMAT_VERSION", "0")
            cache.unlink()
            load_letor(source)
        reads.pop()
    else:
        cache.unlink()
        cache.mkdir()
    assert_same(load_letor(source), want)
    assert len(reads) == 2
    assert_same(load_letor(source), want)
    assert len(reads) == (3 if damage == "folder" else 2)


def test_what_a_shard_must_be(tmp_path: Path):
    path = tmp_path / "x.arrow"
    path.write_text("nonsense")
    with pytest.raises(ValueError, match=f"path must be a list shard, got {path}"):
        read_shard(path)
    table = pa.table({"a": [1]})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(ValueError, match="format version 1 wanted, none found"):
        read_shard(path)


def test_a_read_only_folder_is_left_alone(source: Path, reads, monkeypatch, tmp_path: Path):
    # root may write there all the same: it is the mode that counts
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source.parent.chmod(0o555)
    try:
        want = load_letor(source)
        assert_same(load_letor(source), want)
        assert [path.name for path in source.parent.iterdir()] == ["train.txt"]
    finally:
        source.parent.chmod(0o755)
    assert reads == [source]
    (cache,) = (tmp_path / "cache").rglob("*.arrow")
    assert cache.name.startswith("train.txt-")
    assert cache.parent.name == "ltr"


def test_files_of_one_name_do_not_share_a_cache(source: Path, tmp_path: Path):
    other = tmp_path / "train.txt"
    other.write_text("1 qid:1 1:1\n")
    assert len(load_letor(source, cache_dir=tmp_path / "caches")) == 2
    assert len(load_letor(other, cache_dir=tmp_path / "caches")) == 1
    assert len(load_letor(source, cache_dir=tmp_path / "caches")) == 2
    assert len(list((tmp_path / "caches").iterdir())) == 2
    assert not cache_of(source).exists()


def test_where_no_cache_can_be_written_the_lists_come_all_the_same(source: Path, reads, caplog):
    blocked = source.with_name("blocked")
    blocked.write_text("a file where the folder should be")
    assert len(load_letor(source, cache_dir=blocked)) == 2
    assert len(load_letor(source, cache_dir=blocked)) == 2
    assert len(reads) == 2
    assert "no cache could be written" in caplog.text


def test_writers_at_once(source: Path):
    want = read_letor(source)
    results: list[ListDataset] = []

    def work() -> None:
        for _ in range(10):
            cache_of(source).unlink(missing_ok=True)
            results.append(load_letor(source))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 40
    for result in results:
        assert_same(result, want)
    left = {path.name for path in source.parent.iterdir()}
    assert left <= {"train.txt", "train.txt.ltr-cache.arrow"}


def test_real_file_through_the_cache(data_root: Path, tmp_path: Path):
    source = data_root / "MQ2008/Fold1/test.txt.gz"
    want = load_letor(source, cache_dir=tmp_path)
    assert_same(load_letor(source, cache_dir=tmp_path), want)
    assert len(want) == 156
