import hashlib
import json
import os
import re
import shutil
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ltr.datasets import (
    ListDataset,
    cache,
    load_letor,
    open_store,
    read_letor,
    write_store,
)
from ltr.datasets.checksums import BLOCK, block_sums, file_checksum
from ltr.datasets.letor import LetorReader

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

    chunks = LetorReader.chunks

    def counting(reader: LetorReader, *options):
        paths.extend(reader.files)
        return chunks(reader, *options)

    monkeypatch.setattr(LetorReader, "chunks", counting)
    return paths


def assert_same(got: ListDataset, want: ListDataset) -> None:
    assert got.features.dtype == got.labels.dtype == np.float32
    assert got.offsets.dtype == np.int64
    np.testing.assert_array_equal(got.features, want.features)
    np.testing.assert_array_equal(got.labels, want.labels)
    np.testing.assert_array_equal(got.offsets, want.offsets)
    assert list(got.qids) == list(want.qids)
    assert (got.doc_id is None) == (want.doc_id is None)
    if got.doc_id is not None:
        assert got.doc_id.to_pylist() == want.doc_id.to_pylist()


def cache_of(source: Path) -> Path:
    return cache.cache_path(source)


def the_shard(folder: Path) -> Path:
    [path] = folder.glob("*-000000.arrow")
    return path


@pytest.mark.parametrize("doc_id", [None, ["a", "", "ü"]])
def test_store_round_trip(tmp_path: Path, doc_id):
    data = ListDataset.from_arrays([[1.0, 2], [3, 4], [5, 6]], [0, 1, 2], ["x", "x", "y"], doc_id)
    write_store(data, tmp_path / "store")
    assert_same(open_store(tmp_path / "store"), data)
    write_store(data.select([1]), tmp_path / "store")  # instead of the other one
    assert_same(open_store(tmp_path / "store"), data.select([1]))
    assert len(list((tmp_path / "store").iterdir())) == 5


def test_shard_layout(tmp_path: Path):
    data = ListDataset.from_arrays([[1.0, 2], [3, 4], [5, 6]], [0, 1, 2], ["x", "x", "y"], "abc")
    write_store(data, tmp_path)
    table = pa.ipc.open_file(the_shard(tmp_path)).read_all()
    assert table.to_pylist() == [
        {"features": [1, 2], "labels": 0, "doc_id": "a"},
        {"features": [3, 4], "labels": 1, "doc_id": "b"},
        {"features": [5, 6], "labels": 2, "doc_id": "c"},
    ]
    assert table.schema.field("features").type == pa.list_(pa.float32(), 2)
    assert table.schema.field("doc_id").type == pa.large_string()
    [lists] = tmp_path.glob("*-lists.arrow")
    assert pa.ipc.open_file(lists).read_all().to_pydict() == {
        "qid": ["x", "y"],
        "relevant": [True, True],
    }
    [offsets] = tmp_path.glob("*-offsets.bin")
    assert np.fromfile(offsets, "<i8").tolist() == [0, 2, 3]
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["version"] == 5
    assert manifest["shards"][0]["checksum"] == file_checksum(the_shard(tmp_path))


def test_a_shard_is_mapped_and_its_items_are_writable(tmp_path: Path):
    data = ListDataset.from_arrays([[1.0, 2], [3, 4]], [0, 1], ["x", "x"])
    write_store(data, tmp_path)
    mapped = open_store(tmp_path)
    assert not mapped.features.flags.owndata
    assert not mapped.features.flags.writeable
    mapped[0]["features"].zero_()
    assert mapped[0]["features"].tolist() == [[1, 2], [3, 4]]


def test_read_once(source: Path, reads: list[Path]):
    want = read_letor(source)
    reads.clear()
    assert_same(load_letor(source), want)
    assert_same(load_letor(source), want)
    assert_same(load_letor(str(source)), want)
    assert reads == [source]
    assert cache_of(source).is_dir()


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
    assert not (cache_of(source) / "manifest.json").exists()
    for _ in range(2):  # read, and mapped
        assert np.isnan(load_letor(source).features).all()
    with pytest.raises(ValueError, match="'1:NULL'"):
        load_letor(source, missing="error")
    with pytest.raises(ValueError, match=r"path.*.*none\.txt"):
        load_letor(source.with_name("none.txt"))


@pytest.mark.parametrize(
    "damage", ["empty", "half", "tail", "gone", "offsets", "lists", "manifest", "text", "old"]
)
def test_a_damaged_cache_is_made_again(source: Path, reads: list[Path], damage: str, caplog):
    want = load_letor(source)
    want = want.select(range(2)).to_fit()
    cache = cache_of(source)
    shard = the_shard(cache)
    raw, manifest = shard.read_bytes(), cache / "manifest.json"
    if damage == "empty":
        shard.write_bytes(b"")
    elif damage == "half":
        shard.write_bytes(raw[: len(raw) // 2])
    elif damage == "tail":
        shard.write_bytes(raw[:-1])
    elif damage == "gone":
        shard.unlink()
    elif damage in ("offsets", "lists"):
        [path] = cache.glob(f"*-{damage}.*")
        path.write_bytes(b"\0" * path.stat().st_size)
    elif damage == "manifest":
        manifest.write_text(manifest.read_text().replace('"documents": 3', '"documents": 2'))
    elif damage == "text":
        manifest.write_text("this is no cache\n" * 100)
    else:
        manifest.write_text(manifest.read_text().replace('"version": 5', '"version": 3'))
    assert_same(load_letor(source), want)
    assert len(reads) == 2
    assert_same(load_letor(source), want)
    assert len(reads) == 2
    assert ("its cache is damaged" in caplog.text) == (damage != "old")


def test_what_a_store_must_be(tmp_path: Path):
    with pytest.raises(ValueError, match=r"got .*/none \(no manifest.json\)"):
        open_store(tmp_path / "none")
    (tmp_path / "file").write_text("nonsense")
    with pytest.raises(ValueError, match=f"path.*{tmp_path}/file"):
        open_store(tmp_path / "file")
    with pytest.raises(ValueError, match=f"path.*the file {tmp_path}/file"):
        write_store(ListDataset.from_arrays([[1.0]], labels=[1], qid=[7]), tmp_path / "file")
    for text in ("[]", "{}", "nonsense", "[" * 10**5, '{"format": "ltr store", "version": 5}'):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(ValueError, match=f"{tmp_path}: the manifest is damaged"):
            open_store(tmp_path)
    for version in (4, 99):
        (tmp_path / "manifest.json").write_text(f'{{"format": "ltr store", "version": {version}}}')
        with pytest.raises(ValueError, match=rf"version 5, got version {version}.*convert again"):
            open_store(tmp_path)


def test_reading_writes_nothing_into_the_folder_of_the_source(source: Path, reads, user_cache):
    want = load_letor(source)
    assert_same(load_letor(source), want)
    assert [path.name for path in source.parent.iterdir()] == ["train.txt"]
    assert reads == [source]
    assert cache_of(source).is_dir()
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
    assert "train.txt is read each time, not from the cache: " in caplog.text


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
    shard = the_shard(cache_of(source))
    raw = bytearray(shard.read_bytes())
    raw[len(raw) // 2] ^= 1
    shard.write_bytes(raw)
    load_letor(source)
    assert caplog.text.count("is read again, since its cache is damaged") == 1
    assert str(source) in caplog.text
    load_letor(source)
    assert len(caplog.records) == 1


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    """A store of three shards of several blocks, of which the last is not full."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(5000, 9)).astype(np.float32)
    qid = np.sort(rng.integers(0, 300, 5000))
    ids = [f"doc-{i}" for i in range(5000)]
    data = ListDataset.from_arrays(features, rng.integers(0, 5, 5000), qid, ids)
    folder = tmp_path_factory.mktemp("stored")
    write_store(data, folder, shard_bytes=100_000)
    return folder


def refused(folder: Path, path: Path, raw: bytes, changed: bytes) -> None:
    """A list of the damaged file is refused, by the name of the file; the others are read.

    The whole store is refused if the size of the file is another one.
    """
    path.write_bytes(changed)
    try:
        if path.name[9].isdigit() and len(changed) != len(raw):
            with pytest.raises(ValueError, match=re.escape(str(path))):
                open_store(folder)
            return
        data = open_store(folder)
        number = int(path.name[9:15]) if path.name[9].isdigit() else 0
        first = int(data.store.first_list[number])
        with pytest.raises(ValueError, match=re.escape(str(path))):
            data.__getitems__([first])
        for other in range(3):
            if other != number:
                assert data[int(data.store.first_list[other])]["features"].isfinite().all()
    finally:
        path.write_bytes(raw)


def test_no_flipped_bit_is_read_as_data(stored: Path):
    path = sorted(stored.glob("*-0*.arrow"))[1]
    raw = path.read_bytes()
    assert len(raw) > 65536
    rng = np.random.default_rng(1)
    positions = [
        *range(16),
        *rng.integers(0, len(raw), 60).tolist(),
        *range(len(raw) - 300, len(raw), 9),
    ]
    for position in positions:
        changed = bytearray(raw)
        changed[position] ^= 1 << int(rng.integers(8))
        refused(stored, path, raw, bytes(changed))
    assert len(open_store(stored)) == 300
    open_store(stored).store.check()


@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_is_read_as_data(stored: Path, data):
    path = sorted(stored.glob("*-0*.arrow"))[data.draw(st.integers(0, 2))]
    raw = path.read_bytes()
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
        refused(stored, path, raw, changed)


def test_damaged_offsets_and_qids_are_named(stored: Path):
    for name in ("offsets", "lists"):
        [path] = stored.glob(f"*-{name}.*")
        raw = path.read_bytes()
        path.write_bytes(raw[:-3] + b"abc")
        with pytest.raises(ValueError, match=re.escape(str(path))):
            list(open_store(stored).qids)
        path.write_bytes(raw)


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


def test_the_checksum_of_a_file(tmp_path: Path):
    raw = np.random.default_rng(0).bytes(5 << 20)
    for size in (0, 1, BLOCK, BLOCK + 1, 5 << 20):
        (tmp_path / "file").write_bytes(raw[:size])
        sums = block_sums(raw[:size]).astype("<u8").tobytes()
        wanted = hashlib.sha256(sums + size.to_bytes(8, "little")).hexdigest()
        assert file_checksum(tmp_path / "file") == wanted


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
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(10):
                assert_same(load_letor(source), want)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    left = {path.name for path in cache_of(source).iterdir()}
    assert [name for name in left if name.startswith(".")] == [".lock"]


def test_real_file_through_the_cache(data_root: Path, tmp_path: Path):
    source = data_root / "MQ2008/Fold1/test.txt.gz"
    want = load_letor(source, cache_dir=tmp_path)
    assert_same(load_letor(source, cache_dir=tmp_path), want)
    assert len(want) == 156
