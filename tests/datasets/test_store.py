import hashlib
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltr.datasets import ListDataset, load_letor, read_letor, read_shard, store, write_shard
from ltr.datasets._checksums import BLOCK, block_sums, check_sealed, seal

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
    return store.cache_path(source)


def open_arrow(path: Path) -> pa.ipc.RecordBatchFileReader:
    """The Arrow file that a shard is, without its checksums."""
    raw = path.read_bytes()
    return pa.ipc.open_file(raw[: check_sealed(raw)])


def write_arrow(path: Path, table: pa.Table, **options: Any) -> None:
    """Write any table as a shard, with checksums that are right."""
    with pa.ipc.new_file(path, table.schema, **options) as writer:
        writer.write_table(table)
    seal(path)


@pytest.mark.parametrize("doc_ids", [None, ["a", "", "ü"]])
def test_shard_round_trip(tmp_path: Path, doc_ids):
    data = ListDataset.from_arrays([[1.0, 2], [3, 4], [5, 6]], [0, 1, 2], ["x", "x", "y"], doc_ids)
    write_shard(data, tmp_path / "lists.arrow")
    assert_same(read_shard(tmp_path / "lists.arrow"), data)
    assert [path.name for path in tmp_path.iterdir()] == ["lists.arrow"]


def test_shard_layout(tmp_path: Path):
    data = ListDataset.from_arrays([[1.0, 2], [3, 4], [5, 6]], [0, 1, 2], ["x", "x", "y"], "abc")
    write_shard(data, tmp_path / "lists.arrow")
    table = open_arrow(tmp_path / "lists.arrow").read_all()
    assert table.to_pylist() == [
        {"qid": "x", "labels": [0, 1], "features": [[1, 2], [3, 4]], "doc_ids": ["a", "b"]},
        {"qid": "y", "labels": [2], "features": [[5, 6]], "doc_ids": ["c"]},
    ]
    assert table.schema.field("features").type == pa.list_(pa.list_(pa.float32(), 2))
    assert table.schema.metadata[b"ltr.format_version"] == b"2"
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
            load_letor(source, missing="error")
    assert not cache_of(source).exists()
    for _ in range(2):  # read, and mapped
        assert np.isnan(load_letor(source).features).all()
    with pytest.raises(ValueError, match="'1:NULL'"):
        load_letor(source, missing="error")
    with pytest.raises(ValueError, match=r"path must be a file, got .*none\.txt"):
        load_letor(source.with_name("none.txt"))


def test_a_shard_has_no_place_for_columns_of_tables(tmp_path: Path):
    codes = np.zeros((1, 1), dtype=np.int64)
    lists = ListDataset(np.ones((1, 1)), np.ones(1), np.array([0, 1]), ["q"], categories=codes)
    with pytest.raises(ValueError, match="a shard has no place for categories"):
        write_shard(lists, tmp_path / "x.arrow")


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
        cache.unlink()
        write_arrow(cache, pa.table({"a": [1, 2]}))
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
    write_arrow(path, pa.table({"a": [1]}))
    with pytest.raises(ValueError, match="format version 2 wanted, none found"):
        read_shard(path)


def test_reading_writes_nothing_into_the_folder_of_the_source(source: Path, reads, user_cache):
    want = load_letor(source)
    assert_same(load_letor(source), want)
    assert [path.name for path in source.parent.iterdir()] == ["train.txt"]
    assert reads == [source]
    assert cache_of(source).is_file()
    assert cache_of(source).parent == user_cache / "ltr"


def test_a_cache_lies_beside_the_source_where_that_is_asked_for(source: Path, reads):
    want = load_letor(source, cache_dir=source.parent)
    assert_same(load_letor(source, cache_dir=source.parent), want)
    assert reads == [source]
    names = sorted(path.name for path in source.parent.iterdir())
    assert len(names) == 2
    assert names[1].startswith("train.txt-")


def test_a_source_has_one_cache_however_often_it_changes(source: Path, tmp_path: Path):
    for value in range(3):
        source.write_text(f"1 qid:1 1:{value}\n")
        load_letor(source, num_features=value + 1, cache_dir=tmp_path / "caches")
    assert len(list((tmp_path / "caches").iterdir())) == 1


def test_without_a_home_folder_no_cache_is_made(source: Path, reads, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(source.parent)
    assert len(load_letor(source)) == 2
    assert [path.name for path in source.parent.iterdir()] == ["train.txt"]
    assert "train.txt is read each time: " in caplog.text


def test_a_copy_that_keeps_size_and_time_is_read_again(source: Path, tmp_path: Path, reads):
    other = tmp_path / "other.txt"
    other.write_text(TEXT.replace("2 qid", "1 qid"))
    os.utime(other, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
    assert load_letor(source).labels[0] == 2
    shutil.copy2(other, source)  # as `cp -p` does
    assert source.stat().st_mtime_ns == other.stat().st_mtime_ns
    assert load_letor(source).labels[0] == 1
    os.replace(other, source)  # another inode
    load_letor(source)
    load_letor(source)
    assert len(reads) == 3


def test_a_damaged_cache_is_announced_and_a_stale_one_is_not(source: Path, caplog):
    load_letor(source)
    os.utime(source, ns=(0, 0))
    load_letor(source)
    assert caplog.text == ""
    raw = bytearray(cache_of(source).read_bytes())
    raw[len(raw) // 2] ^= 1
    cache_of(source).write_bytes(raw)
    load_letor(source)
    assert caplog.text.count("is read again, since its cache is damaged") == 1
    assert str(source) in caplog.text
    load_letor(source)
    assert len(caplog.records) == 1


def shard_bytes(path: Path) -> bytes:
    """A shard of several blocks, of which the last is not full."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(5000, 9)).astype(np.float32)
    qid = np.sort(rng.integers(0, 300, 5000))
    ids = [f"doc-{i}" for i in range(5000)]
    data = ListDataset.from_arrays(features, rng.integers(0, 5, 5000), qid, ids)
    write_shard(data, path, source={"file": "x"})
    return path.read_bytes()


def test_no_flipped_bit_is_read_as_data(tmp_path: Path):
    path = tmp_path / "lists.arrow"
    raw = shard_bytes(path)
    assert len(raw) > 3 * 65536
    rng = np.random.default_rng(1)
    length = check_sealed(raw)
    places = [
        *range(16),  # magic and schema
        *rng.integers(0, length, 200).tolist(),
        *range(length - 300, length, 7),  # Arrow's footer
        *range(length, len(raw)),  # the checksums, and the checksum of these
    ]
    for place in places:
        changed = bytearray(raw)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        with pytest.raises(ValueError, match="path must be a list shard"):
            read_shard(path)
    path.write_bytes(raw)
    assert len(read_shard(path)) == 300


@given(data=st.data())
def test_no_damage_is_read_as_data(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "hypothesis.arrow"
    raw = (shard_bytes if not path.exists() else Path.read_bytes)(path)
    start = data.draw(st.integers(0, len(raw) - 1))
    kind = data.draw(st.sampled_from(["cut", "overwrite", "insert", "swap", "zero"]))
    few = data.draw(st.binary(min_size=1, max_size=64))
    changed = {
        "cut": raw[:start],
        "overwrite": raw[:start] + few + raw[start + len(few) :],
        "insert": raw[:start] + few + raw[start:],
        "swap": raw[start:] + raw[:start],
        "zero": raw[:start] + bytes(len(raw[start : start + 4096])) + raw[start + 4096 :],
    }[kind]
    if changed != raw:
        target = path.with_name("damaged.arrow")
        target.write_bytes(changed)
        with pytest.raises(ValueError, match="path must be a list shard"):
            read_shard(target)


def test_checksums_are_those_of_the_definition():
    raw = np.random.default_rng(0).bytes(2 * BLOCK + 12345)
    padded = raw + bytes(-len(raw) % BLOCK)
    constants = hashlib.shake_256(b"ltr block checksums").digest(BLOCK)
    factors = [int.from_bytes(constants[i : i + 8], "little") | 1 for i in range(0, BLOCK, 8)]
    for block, found in enumerate(block_sums(raw).tolist()):
        words = padded[block * BLOCK : (block + 1) * BLOCK]
        values = (int.from_bytes(words[i : i + 8], "little") for i in range(0, BLOCK, 8))
        wanted = sum(v * f for v, f in zip(values, factors, strict=True)) % 2**64
        assert found == wanted


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
    assert "its cache cannot be written" in caplog.text


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
    left = {path.name for path in cache_of(source).parent.glob("*train.txt*")}
    assert [name for name in left if name.startswith(".")] == []


def test_real_file_through_the_cache(data_root: Path, tmp_path: Path):
    source = data_root / "MQ2008/Fold1/test.txt.gz"
    want = load_letor(source, cache_dir=tmp_path)
    assert_same(load_letor(source, cache_dir=tmp_path), want)
    assert len(want) == 156
