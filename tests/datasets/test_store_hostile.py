"""Shards made to do harm, with checksums that are right: one clear error, and no code run."""

import json
import logging
import os
import pickle
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ltr.datasets import ListDataset, cache, load_letor, open_store, write_store
from ltr.datasets.checksums import file_checksum
from ltr.datasets.shards import ShardEntry
from ltr.datasets.store import write_manifest

RAN = Path(__file__).with_name("this-file-means-that-code-was-run")


class Harm:
    def __reduce__(self):
        return (Path.touch, (RAN,))


def columns(**changed: Any) -> dict[str, pa.Array]:
    """Three documents with two features, and what is changed of them."""
    sound = {
        "labels": floats(1, 0, 2),
        "features": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6, dtype=np.float32)), 2),
        "doc_id": pa.array(["x", "y", "z"], pa.large_string()),
    }
    return {**sound, **changed}


def write(folder: Path, changed: dict[str, Any], metadata: Any = None, **options: Any) -> Path:
    """Write a store whose shard is another one, with a manifest that is right; return the shard."""
    names = {name: array for name, array in columns(**changed).items() if array is not None}
    fields = [pa.field(name, array.type) for name, array in names.items()]
    schema = pa.schema(fields, metadata=metadata)
    batch = pa.record_batch(list(names.values()), schema=schema)
    path = begin(folder)
    with pa.ipc.new_file(path, schema, **options) as writer:
        writer.write_batch(batch)
    seal(folder)
    return path


def begin(folder: Path) -> Path:
    """Write a sound store, and return its shard."""
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    qids = ["a", "b"]
    data = ListDataset(
        rows, np.array([1, 0, 2], np.float32), np.array([0, 2, 3]), qids, ["x", "y", "z"]
    )
    write_store(data, folder)
    [path] = folder.glob("*-000000.arrow")
    return path


def seal(folder: Path, **changed: Any) -> None:
    """Make the manifest fit the shard, and what is changed of its entry."""
    manifest = json.loads((folder / "manifest.json").read_text())
    [path] = folder.glob("*-000000.arrow")
    [entry] = manifest.pop("shards")
    for file in manifest["files"].values():
        file["checksum"] = file_checksum(folder / file["name"])
    widths = {"labels": 1, "features": 2, "doc_id": 1}
    entry |= {"bytes": path.stat().st_size, "checksum": file_checksum(path), "widths": widths}
    manifest.pop("checksum")
    write_manifest(folder, manifest, [ShardEntry(**{**entry, **changed})])


def floats(*values: float | None) -> pa.Array:
    return pa.array(values, pa.float32())


BAD_COLUMNS: dict[str, dict[str, Any]] = {
    "no labels": {"labels": None},
    "labels of another type": {"labels": pa.array([1, 0, 2])},
    "features that are flat": {"features": floats(1, 2, 3)},
    "features of another width": {
        "features": pa.FixedSizeListArray.from_arrays(floats(*range(9)), 3)
    },
    "one column more": {"extra": pa.array([1, 2, 3])},
    "a dictionary for ids": {"doc_id": pa.array(["a", "b", "a"]).dictionary_encode()},
    "a null label": {"labels": floats(1, None, 2)},
    "a null document": {
        "features": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2))
    },
    "a null feature": {
        "features": pa.array([[1.0, 2.0], [None, 1.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    },
    "a NaN label": {"labels": floats(1, np.nan, 2)},
    "a negative label": {"labels": floats(1, -1, 2)},
    "a null id": {"doc_id": pa.array(["x", None, "z"], pa.large_string())},
}

# what the file has instead of the offsets 0, 2, 3 of the lists
BAD_OFFSETS = {
    "beyond the end": (0, 2, 2**31 - 1),
    "in the middle beyond the end": (0, 2**30, 3),
    "negative": (-5, 2, 3),
    "all negative": (-3, -2, -1),
    "descending": (0, 3, 2),
    "staying": (0, 0, 3),
    "from 1 on": (1, 2, 3),
}


@pytest.fixture(autouse=True)
def nothing_ran():
    RAN.unlink(missing_ok=True)
    yield
    assert not RAN.exists()


def refused(folder: Path) -> str:
    with pytest.raises(ValueError, match=f"^{folder}/.*the shard is damaged: ") as caught:
        open_store(folder)[0]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_sound_one_is_read(tmp_path: Path):
    write(tmp_path, {})
    data = open_store(tmp_path).in_memory()
    assert data.qids == ["a", "b"]
    assert data.labels.tolist() == [1, 0, 2]
    assert data.doc_id.to_pylist() == ["x", "y", "z"]


@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_odd_columns(tmp_path: Path, name: str):
    write(tmp_path, BAD_COLUMNS[name])
    refused(tmp_path)


@pytest.mark.parametrize("name", BAD_OFFSETS)
def test_odd_offsets_of_lists(tmp_path: Path, name: str):
    write(tmp_path, {})
    [path] = tmp_path.glob("*-offsets.bin")
    path.write_bytes(np.array(BAD_OFFSETS[name], "<i8").tobytes())
    seal(tmp_path)
    with pytest.raises(ValueError, match=rf"^{path}: the offsets must ascend"):
        open_store(tmp_path)[0]


@pytest.mark.parametrize("count", [0, 2, 4])
def test_odd_numbers_of_offsets(tmp_path: Path, count: int):
    write(tmp_path, {})
    [path] = tmp_path.glob("*-offsets.bin")
    path.write_bytes(np.arange(count, dtype="<i8").tobytes())
    seal(tmp_path)
    with pytest.raises(ValueError, match=rf"^{path}: the offsets differ from the manifest"):
        open_store(tmp_path)


def write_qids(folder: Path, qids: pa.Array) -> Path:
    [path] = folder.glob("*-lists.arrow")
    batch = pa.record_batch([qids, pa.array([True, True])], names=["qid", "relevant"])
    with pa.ipc.new_file(path, batch.schema) as writer:
        writer.write_batch(batch)
    return path


@pytest.mark.parametrize("new", [(0, 1, 2**31 - 1), (0, 9, 2), (-9, 1, 2), (2, 1, 0)])
def test_odd_offsets_of_qids(tmp_path: Path, new: tuple[int, ...]):
    write(tmp_path, {})
    path = write_qids(tmp_path, pa.array(["a", "b"], pa.large_string()))
    raw = path.read_bytes()
    position = raw.index(struct.pack("<3q", 0, 1, 2))
    path.write_bytes(raw[:position] + struct.pack("<3q", *new) + raw[position + 24 :])
    seal(tmp_path)
    with pytest.raises(ValueError, match=f"^{path}: the lists are damaged"):
        open_store(tmp_path)[0]


def test_odd_qids(tmp_path: Path):
    write(tmp_path, {})
    for qids in (pa.array(["a", None], pa.large_string()), pa.array(["a", "b"]), pa.array([1, 2])):
        path = write_qids(tmp_path, qids)
        seal(tmp_path)
        with pytest.raises(ValueError, match=f"^{path}: the (lists|columns) differ"):
            open_store(tmp_path)[0]
    path = write_qids(tmp_path, pa.array(["abcd", "efgh"], pa.large_string()))
    path.write_bytes(path.read_bytes().replace(b"abcdefgh", b"\xff\xfe\xfd\xfcefgh"))
    seal(tmp_path)
    with pytest.raises(ValueError, match=f"^{path}: the lists are damaged"):
        open_store(tmp_path)[0]


def test_an_id_that_is_not_utf8(tmp_path: Path):
    path = write(tmp_path, {"doc_id": pa.array(["abcd", "efgh", "i"], pa.large_string())})
    path.write_bytes(path.read_bytes().replace(b"abcdefgh", b"\xff\xfe\xfd\xfcefgh"))
    seal(tmp_path)
    refused(tmp_path)


@pytest.mark.parametrize("kind", ["shard", "lists", "offsets", "manifest"])
def test_a_pipe_is_no_file_of_a_store(tmp_path: Path, kind: str):
    path = write(tmp_path, {})
    if kind in ("lists", "offsets"):
        [path] = tmp_path.glob(f"*-{kind}.*")
    elif kind == "manifest":
        path = tmp_path / "manifest.json"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        open_store(tmp_path)[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"widths": {"labels": 1, "features": 3, "doc_id": 1}},
        {"widths": {"labels": 1, "features": 2}},
        {"widths": {"harm": 1}},
        {"widths": {}},
    ],
)
def test_odd_entries(tmp_path: Path, changed: dict[str, Any]):
    write(tmp_path, {})
    seal(tmp_path, **changed)
    assert len(refused(tmp_path)) < 600


@pytest.mark.parametrize(
    "changed",
    [
        {"lists": 1},
        {"lists": 4},
        {"lists": -1},
        {"lists": "2"},
        {"lists": 2**70},
        {"lists": 1e300},
        {"documents": 0},
        {"documents": 2**70},
        {"bytes": True},
        {"widths": {"labels": 1, "features": -2, "doc_id": 1}},
        {"widths": {"labels": 1, "features": 2**31, "doc_id": 1}},
        {"widths": {"labels": 1, "features": 10**15, "doc_id": 1}},
        {"documents": 2**40},
        {"widths": [1, 2]},
    ],
)
def test_odd_counts(tmp_path: Path, changed: dict[str, Any]):
    write(tmp_path, {})
    seal(tmp_path, **changed)
    with pytest.raises(ValueError, match=f"^{tmp_path}.*(damaged|manifest)"):
        open_store(tmp_path)[0]


@pytest.mark.parametrize("documents", [2, 4])
def test_odd_numbers_of_documents(tmp_path: Path, documents: int):
    write(tmp_path, {})
    seal(tmp_path, documents=documents)
    with pytest.raises(ValueError, match=f"^{tmp_path}/.*offsets must ascend and match the shards"):
        open_store(tmp_path)[0]


@pytest.mark.parametrize("name", ["arrow.py_extension_type", "pandas.period", "unheard.of"])
@pytest.mark.parametrize("where", ["labels", "extra"])
def test_extension_types_are_refused_and_their_metadata_is_not_unpickled(
    tmp_path: Path, name: str, where: str
):
    arrays = columns(**({"extra": pa.array([1, 2, 3])} if where == "extra" else {}))
    extension = {"ARROW:extension:name": name, "ARROW:extension:metadata": pickle.dumps(Harm())}
    fields = [
        pa.field(column, array.type, metadata=extension if column == where else None)
        for column, array in arrays.items()
    ]
    schema = pa.schema(fields, metadata={"pandas": pickle.dumps(Harm())})
    with pa.ipc.new_file(begin(tmp_path), schema) as writer:
        writer.write_batch(pa.record_batch(list(arrays.values()), schema=schema))
    seal(tmp_path)
    refused(tmp_path)


def test_a_pickle_is_no_shard(tmp_path: Path):
    path = begin(tmp_path)
    path.write_bytes(pickle.dumps(Harm()))
    refused(tmp_path)
    seal(tmp_path)
    refused(tmp_path)


def test_every_number_of_the_file_overwritten_with_odd_ones(tmp_path: Path):
    # sizes, counts and positions of Arrow's own headers, huge and negative
    path = write(tmp_path, {})
    raw = path.read_bytes()
    sound = open_store(tmp_path).in_memory()
    for position in range(0, len(raw) - 8, 8):
        value = -1 if position % 16 else 2**63 - 1
        path.write_bytes(
            raw[:position] + value.to_bytes(8, "little", signed=True) + raw[position + 8 :]
        )
        seal(tmp_path)
        try:
            data = open_store(tmp_path).in_memory()
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017
        else:  # a value of the data itself, or padding: the arrays are whole
            assert data.features.shape == sound.features.shape
            assert np.isfinite(data.labels).all()
            data.summary()
            _ = [data[i] for i in range(len(data))]


def test_a_compressed_body_that_claims_to_be_huge_is_refused(tmp_path: Path):
    path = write(tmp_path, {}, options=pa.ipc.IpcWriteOptions(compression="zstd"))
    assert open_store(tmp_path).in_memory().qids == ["a", "b"]
    raw = path.read_bytes()
    position = raw.index(b"\x28\xb5\x2f\xfd") - 8  # of the first buffer's length before zstd
    for claimed in (2**62, 2**40, -2, 2**63 - 1):
        path.write_bytes(
            raw[:position] + claimed.to_bytes(8, "little", signed=True) + raw[position + 8 :]
        )
        seal(tmp_path)
        refused(tmp_path)


@pytest.mark.parametrize("cut", ["labels", "features"])
def test_a_hostile_cache_is_made_again(tmp_path: Path, cut: str, caplog):
    source = tmp_path / "train.txt"
    source.write_text("2 qid:7 1:0.5 3:1\n0 qid:7 2:0.25\n")
    wanted = load_letor(source, cache_dir=tmp_path)
    folder = cache.cache_path(source, tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    write(folder, {cut: None})
    found = json.loads((folder / "manifest.json").read_text())
    entries = [ShardEntry(**entry) for entry in found["shards"]]
    files = {"source": manifest["source"], "schema": None, "files": found["files"]}
    write_manifest(folder, files, entries)
    with caplog.at_level(logging.WARNING):
        got = load_letor(source, cache_dir=tmp_path)
    np.testing.assert_array_equal(got.features, wanted.features)
    assert caplog.text.count("its cache is damaged") == 1
    np.testing.assert_array_equal(load_letor(source, cache_dir=tmp_path).features, wanted.features)
