"""Shards made to do harm, with checksums that are right: one clear error, and no code run."""

import json
import logging
import pickle
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


def offsets(*values: int) -> pa.Array:
    return pa.array(values, pa.int64())


def columns(**changed: Any) -> dict[str, pa.Array]:
    """Two lists of two and one documents with two features, and what is changed of them."""
    rows = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6, dtype=np.float32)), 2)
    sound = {
        "qid": pa.array(["a", "b"], pa.large_string()),
        "labels": pa.LargeListArray.from_arrays(
            offsets(0, 2, 3), pa.array([1, 0, 2], pa.float32())
        ),
        "features": pa.LargeListArray.from_arrays(offsets(0, 2, 3), rows),
        "doc_ids": pa.LargeListArray.from_arrays(
            offsets(0, 2, 3), pa.array(["x", "y", "z"], pa.large_string())
        ),
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
    widths = {"labels": 1, "features": 2, "doc_ids": 1}
    entry |= {"bytes": path.stat().st_size, "checksum": file_checksum(path), "widths": widths}
    manifest.pop("checksum")
    write_manifest(folder, manifest, [ShardEntry(**{**entry, **changed})])


def floats(*values: float | None) -> pa.Array:
    return pa.array(values, pa.float32())


def lists(values: pa.Array) -> pa.Array:
    return pa.LargeListArray.from_arrays(offsets(0, 2, 3), values)


BAD_COLUMNS: dict[str, dict[str, Any]] = {
    "no labels": {"labels": None},
    "no qid": {"qid": None},
    "labels of another type": {"labels": lists(pa.array([1, 0, 2]))},
    "features that are flat": {"features": lists(floats(1, 2, 3))},
    "features of another width": {
        "features": lists(pa.FixedSizeListArray.from_arrays(floats(*range(9)), 3))
    },
    "one column more": {"extra": pa.array([1, 2])},
    "a dictionary for qid": {"qid": pa.array(["a", "b"]).dictionary_encode()},
    "a null qid": {"qid": pa.array(["a", None], pa.large_string())},
    "a null label": {"labels": lists(floats(1, None, 2))},
    "a null list": {"labels": pa.array([[1.0, 2.0], None], pa.large_list(pa.float32()))},
    "a NaN label": {"labels": lists(floats(1, np.nan, 2))},
    "a negative label": {"labels": lists(floats(1, -1, 2))},
    "a null id": {"doc_ids": lists(pa.array(["x", None, "z"], pa.large_string()))},
    "an empty list": {
        "labels": pa.LargeListArray.from_arrays(offsets(0, 3, 3), floats(1, 0, 2)),
    },
}

# what stands in the file in place of the offsets 0, 2, 3 of a column, or 0, 1, 2 of the names
BAD_OFFSETS = {
    "beyond the end": (0, 2, 2**31 - 1),
    "in the middle beyond the end": (0, 2**30, 3),
    "negative": (-5, 2, 3),
    "all negative": (-3, -2, -1),
    "falling": (0, 3, 2),
    "staying": (0, 0, 3),
    "from 1 on": (1, 2, 3),
    "others": (0, 1, 3),
}


@pytest.fixture(autouse=True)
def nothing_ran():
    RAN.unlink(missing_ok=True)
    yield
    assert not RAN.exists()


def replace(path: Path, old: tuple[int, ...], new: tuple[int, ...], number: int) -> None:
    """Overwrite the whole numbers `old` where they stand in the file the `number`th time."""
    raw, place = path.read_bytes(), -1
    for _ in range(number + 1):
        place = raw.index(struct.pack("<3q", *old), place + 1)
    path.write_bytes(raw[:place] + struct.pack("<3q", *new) + raw[place + 24 :])
    seal(path.parent)


def refused(folder: Path) -> str:
    with pytest.raises(ValueError, match=f"^{folder}/.*the shard is damaged: ") as caught:
        open_store(folder)[0]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_sound_one_is_read(tmp_path: Path):
    write(tmp_path, {})
    assert open_store(tmp_path).in_memory().qids == ["a", "b"]


@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_odd_columns(tmp_path: Path, name: str):
    write(tmp_path, BAD_COLUMNS[name])
    refused(tmp_path)


@pytest.mark.parametrize("column", ["labels", "features", "doc_ids"])
@pytest.mark.parametrize("name", BAD_OFFSETS)
def test_odd_offsets_of_lists(tmp_path: Path, column: str, name: str):
    path = write(tmp_path, {})
    replace(path, (0, 2, 3), BAD_OFFSETS[name], ["labels", "features", "doc_ids"].index(column))
    refused(tmp_path)


@pytest.mark.parametrize("name", BAD_OFFSETS)
@pytest.mark.parametrize("column", ["all three"])
def test_odd_offsets_of_all_columns(tmp_path: Path, column: str, name: str):
    path = write(tmp_path, {})
    for _ in range(3):
        replace(path, (0, 2, 3), BAD_OFFSETS[name], 0)
    if name == "others":  # sound by themselves, but not those of the store
        with pytest.raises(ValueError, match="its offsets are not those of"):
            open_store(tmp_path)[0]
    else:
        refused(tmp_path)


@pytest.mark.parametrize("new", [(0, 1, 2**31 - 1), (0, 9, 2), (-9, 1, 2), (2, 1, 0)])
def test_odd_offsets_of_names(tmp_path: Path, new: tuple[int, ...]):
    path = write(tmp_path, {})
    replace(path, (0, 1, 2), new, 0)
    refused(tmp_path)


def test_a_name_that_is_not_utf8(tmp_path: Path):
    path = write(tmp_path, {"qid": pa.array(["abcd", "efgh"], pa.large_string())})
    path.write_bytes(path.read_bytes().replace(b"abcdefgh", b"\xff\xfe\xfd\xfcefgh"))
    seal(tmp_path)
    refused(tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        {"widths": {"labels": 1, "features": 3, "doc_ids": 1}},
        {"widths": {"labels": 1, "features": -2, "doc_ids": 1}},
        {"widths": {"labels": 1, "features": 2**31, "doc_ids": 1}},
        {"widths": {"labels": 1, "features": 2}},
        {"widths": {"harm": 1}},
        {"widths": {}},
    ],
)
def test_odd_entries(tmp_path: Path, changed: dict[str, Any]):
    write(tmp_path, {})
    seal(tmp_path, **changed)
    assert len(refused(tmp_path)) < 600


@pytest.mark.parametrize("changed", [{"lists": 1}, {"lists": 3}, {"lists": -1}, {"lists": "2"}])
def test_odd_counts(tmp_path: Path, changed: dict[str, Any]):
    write(tmp_path, {})
    seal(tmp_path, **changed)
    with pytest.raises(ValueError, match=f"^{tmp_path}.*(damaged|manifest)"):
        open_store(tmp_path)[0]


@pytest.mark.parametrize("changed", [{"documents": 2}, {"documents": 2**40}])
def test_odd_numbers_of_documents(tmp_path: Path, changed: dict[str, Any]):
    write(tmp_path, {})
    seal(tmp_path, **changed)
    with pytest.raises(ValueError, match=f"^{tmp_path}/.*(shard is damaged|of the manifest)"):
        open_store(tmp_path)


@pytest.mark.parametrize("name", ["arrow.py_extension_type", "pandas.period", "unheard.of"])
@pytest.mark.parametrize("where", ["qid", "extra"])
def test_extension_types_are_refused_and_their_metadata_is_not_unpickled(
    tmp_path: Path, name: str, where: str
):
    arrays = columns(**({"extra": pa.array([1, 2])} if where == "extra" else {}))
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
    # sizes, counts and places of Arrow's own headers, huge and negative
    path = write(tmp_path, {})
    raw = path.read_bytes()
    sound = open_store(tmp_path).in_memory()
    for place in range(0, len(raw) - 8, 8):
        value = -1 if place % 16 else 2**63 - 1
        path.write_bytes(raw[:place] + value.to_bytes(8, "little", signed=True) + raw[place + 8 :])
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
    place = raw.index(b"\x28\xb5\x2f\xfd") - 8  # of the first buffer's length before zstd
    for claimed in (2**62, 2**40, -2, 2**63 - 1):
        path.write_bytes(
            raw[:place] + claimed.to_bytes(8, "little", signed=True) + raw[place + 8 :]
        )
        seal(tmp_path)
        refused(tmp_path)


@pytest.mark.parametrize("cut", ["qid", "features"])
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
