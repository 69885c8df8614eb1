"""Shards made to do harm, with checksums that are right: one clear error, and no code run."""

import logging
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ltr.datasets import load_letor, read_shard, store
from ltr.datasets._checksums import check_sealed, seal

RAN = Path(__file__).with_name("this-file-means-that-code-was-run")


class Harm:
    def __reduce__(self):
        return (Path.touch, (RAN,))


def offsets(*values: int) -> pa.Array:
    return pa.array(values, pa.int32())


def columns(**changed: Any) -> dict[str, pa.Array]:
    """Two lists of two and one documents with two features, and what is changed of them."""
    rows = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6, dtype=np.float32)), 2)
    sound = {
        "qid": pa.array(["a", "b"]),
        "labels": pa.ListArray.from_arrays(offsets(0, 2, 3), pa.array([1, 0, 2], pa.float32())),
        "features": pa.ListArray.from_arrays(offsets(0, 2, 3), rows),
        "doc_ids": pa.ListArray.from_arrays(offsets(0, 2, 3), pa.array(["x", "y", "z"])),
    }
    return {**sound, **changed}


METADATA: dict[str, Any] = {
    "ltr.format_version": store.FORMAT_VERSION,
    "ltr.num_features": "2",
    "ltr.source": "null",
}


def write(path: Path, changed: dict[str, Any], metadata: Any = METADATA, **options: Any) -> None:
    names = {name: array for name, array in columns(**changed).items() if array is not None}
    fields = [pa.field(name, array.type) for name, array in names.items()]
    schema = pa.schema(fields, metadata=metadata)
    batch = pa.record_batch(list(names.values()), schema=schema)
    with pa.ipc.new_file(path, schema, **options) as writer:
        writer.write_batch(batch)
    seal(path)


def floats(*values: float | None) -> pa.Array:
    return pa.array(values, pa.float32())


def lists(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(offsets(0, 2, 3), values)


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
    "a null qid": {"qid": pa.array(["a", None])},
    "a null label": {"labels": lists(floats(1, None, 2))},
    "a null list": {"labels": pa.array([[1.0, 2.0], None], pa.list_(pa.float32()))},
    "a NaN label": {"labels": lists(floats(1, np.nan, 2))},
    "a negative label": {"labels": lists(floats(1, -1, 2))},
    "a null id": {"doc_ids": lists(pa.array(["x", None, "z"]))},
    "an empty list": {
        "labels": pa.ListArray.from_arrays(offsets(0, 3, 3), floats(1, 0, 2)),
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


def content(path: Path) -> bytes:
    raw = path.read_bytes()
    return raw[: check_sealed(raw)]


def replace(path: Path, old: tuple[int, ...], new: tuple[int, ...], number: int) -> None:
    """Overwrite the whole numbers `old` where they stand in the file the `number`th time."""
    raw, place = content(path), -1
    for _ in range(number + 1):
        place = raw.index(struct.pack("<3i", *old), place + 1)
    path.write_bytes(raw[:place] + struct.pack("<3i", *new) + raw[place + 12 :])
    seal(path)


def refused(path: Path) -> str:
    with pytest.raises(ValueError, match="path must be a list shard") as caught:
        read_shard(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_sound_one_is_read(tmp_path: Path):
    write(tmp_path / "x.arrow", {})
    assert read_shard(tmp_path / "x.arrow").qids == ["a", "b"]


@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_odd_columns(tmp_path: Path, name: str):
    write(tmp_path / "x.arrow", BAD_COLUMNS[name])
    refused(tmp_path / "x.arrow")


@pytest.mark.parametrize("column", ["labels", "features", "doc_ids"])
@pytest.mark.parametrize("name", BAD_OFFSETS)
def test_odd_offsets_of_lists(tmp_path: Path, column: str, name: str):
    path = tmp_path / "x.arrow"
    write(path, {})
    replace(path, (0, 2, 3), BAD_OFFSETS[name], ["labels", "features", "doc_ids"].index(column))
    refused(path)


@pytest.mark.parametrize("name", BAD_OFFSETS)
@pytest.mark.parametrize("column", ["all three"])
def test_odd_offsets_of_all_columns(tmp_path: Path, column: str, name: str):
    path = tmp_path / "x.arrow"
    write(path, {})
    for _ in range(3):
        replace(path, (0, 2, 3), BAD_OFFSETS[name], 0)
    if name == "others":  # sound: lists of one and two documents
        assert read_shard(path).lengths.tolist() == [1, 2]
    else:
        refused(path)


@pytest.mark.parametrize("new", [(0, 1, 2**31 - 1), (0, 9, 2), (-9, 1, 2), (2, 1, 0)])
def test_odd_offsets_of_names(tmp_path: Path, new: tuple[int, ...]):
    path = tmp_path / "x.arrow"
    write(path, {})
    replace(path, (0, 1, 2), new, 0)
    refused(path)


def test_a_name_that_is_not_utf8(tmp_path: Path):
    path = tmp_path / "x.arrow"
    write(path, {"qid": pa.array(["abcd", "efgh"])})
    raw = content(path).replace(b"abcdefgh", b"\xff\xfe\xfd\xfcefgh")
    path.write_bytes(raw)
    seal(path)
    refused(path)


@pytest.mark.parametrize(
    "changed",
    [
        {"ltr.num_features": "0"},
        {"ltr.num_features": "-2"},
        {"ltr.num_features": "9" * 5000},
        {"ltr.num_features": "²"},
        {"ltr.num_features": str(2**31)},
        {"ltr.num_features": "2147483647"},
        {"ltr.format_version": "99"},
        {"ltr.format_version": b"\xff\xfe\n\n"},
    ],
)
def test_odd_metadata(tmp_path: Path, changed: dict[str, Any]):
    write(tmp_path / "x.arrow", {}, {**METADATA, **changed})
    assert len(refused(tmp_path / "x.arrow")) < 400


def test_a_source_that_is_deeply_nested_is_another_source(tmp_path: Path):
    write(tmp_path / "x.arrow", {}, {**METADATA, "ltr.source": "[" * 10**6})
    with pytest.raises(ValueError, match="made from another source"):
        read_shard(tmp_path / "x.arrow", source={"a": 1})


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
    schema = pa.schema(fields, metadata={**METADATA, "pandas": pickle.dumps(Harm())})
    with pa.ipc.new_file(tmp_path / "x.arrow", schema) as writer:
        writer.write_batch(pa.record_batch(list(arrays.values()), schema=schema))
    seal(tmp_path / "x.arrow")
    refused(tmp_path / "x.arrow")


def test_a_pickle_is_no_shard(tmp_path: Path):
    path = tmp_path / "x.arrow"
    path.write_bytes(pickle.dumps(Harm()))
    refused(path)
    seal(path)
    refused(path)


def test_every_number_of_the_file_overwritten_with_odd_ones(tmp_path: Path):
    # sizes, counts and places of Arrow's own headers, huge and negative
    path = tmp_path / "x.arrow"
    write(path, {})
    raw = content(path)
    sound = read_shard(path)
    for place in range(0, len(raw) - 8, 8):
        for value in (2**63 - 1, -1):
            path.write_bytes(
                raw[:place] + value.to_bytes(8, "little", signed=True) + raw[place + 8 :]
            )
            seal(path)
            try:
                data = read_shard(path)
            except ValueError as error:
                assert "path must be a list shard" in str(error)  # noqa: PT017
            else:  # a value of the data itself, or padding: the arrays are whole
                assert data.features.shape == sound.features.shape
                assert np.isfinite(data.labels).all()
                data.summary()
                _ = [data[i] for i in range(len(data))]


def test_a_compressed_body_that_claims_to_be_huge_is_refused(tmp_path: Path):
    path = tmp_path / "x.arrow"
    write(path, {}, options=pa.ipc.IpcWriteOptions(compression="zstd"))
    assert read_shard(path).qids == ["a", "b"]
    raw = content(path)
    place = raw.index(b"\x28\xb5\x2f\xfd") - 8  # of the first buffer's length before zstd
    for claimed in (2**62, 2**40, -2, 2**63 - 1):
        path.write_bytes(
            raw[:place] + claimed.to_bytes(8, "little", signed=True) + raw[place + 8 :]
        )
        seal(path)
        refused(path)


@pytest.mark.parametrize("cut", ["qid", "features"])
def test_a_hostile_cache_is_made_again(tmp_path: Path, cut: str, caplog):
    source = tmp_path / "train.txt"
    source.write_text("2 qid:7 1:0.5 3:1\n0 qid:7 2:0.25\n")
    wanted = load_letor(source, cache_dir=tmp_path)
    write(store.cache_path(source, tmp_path), {cut: None})
    with caplog.at_level(logging.WARNING):
        got = load_letor(source, cache_dir=tmp_path)
    np.testing.assert_array_equal(got.features, wanted.features)
    assert caplog.text.count("its cache is damaged") <= 1
    np.testing.assert_array_equal(load_letor(source, cache_dir=tmp_path).features, wanted.features)
