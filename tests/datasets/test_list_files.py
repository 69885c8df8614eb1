"""Lists on disk: what is written is read, and damage is an error that names the folder."""

import json
import os
import pickle
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ltr.datasets import ListDataset, Schema, list_files, open_lists, write_lists
from ltr.datasets.column_steps import Number, Vector
from ltr.datasets.lists import join_lists

RAN = Path(__file__).with_name("this-file-means-that-code-was-run")


class Harm:
    def __reduce__(self):
        return (Path.touch, (RAN,))


def lists() -> ListDataset:
    """Three documents with every column."""
    return ListDataset(
        np.array([[0, 1], [2, np.nan], [4, 5]], np.float32),
        np.array([1, 0, 2], np.float32),
        np.array([0, 2, 3]),
        ["a", "bü"],
        ["x", "", "zz"],
        categories=np.array([[0, 1], [1, 0], [2, 2]]),
        weight=np.array([0, 1, 0.5], np.float32),
        position=np.array([1, 2, 1]),
        protected=np.array([-1, 0, 1], np.float32),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_lists(lists(), tmp_path / "lists")
    return tmp_path / "lists"


def assert_same(got: ListDataset, want: ListDataset) -> None:
    np.testing.assert_array_equal(got.features, want.features)
    np.testing.assert_array_equal(got.offsets, want.offsets)
    assert got.features.dtype == np.float32
    assert got.offsets.dtype == np.int64
    assert got.qids == want.qids
    assert got.columns().keys() == want.columns().keys()
    for name, array in want.columns().items():
        np.testing.assert_array_equal(got.columns()[name], array)
        assert got.columns()[name].dtype == array.dtype
    assert (got.doc_id is None) == (want.doc_id is None)
    if got.doc_id is not None:
        assert got.doc_id.to_pylist() == want.doc_id.to_pylist()


def everything(path: Path) -> ListDataset:
    """Open lists and read all that is there."""
    data = open_lists(path)
    _ = data.columns(), data.features, data.doc_id, [*data.qids]
    return data.read(np.arange(len(data)))


def test_round_trip(folder: Path, tmp_path: Path):
    assert type(open_lists(folder)) is ListDataset
    assert_same(open_lists(folder), lists())
    assert_same(everything(folder), lists())
    chosen = lists().select([1, 0, 1])
    write_lists(chosen, tmp_path / "again")
    assert_same(open_lists(tmp_path / "again"), chosen)
    write_lists(open_lists(folder).select([1, 0, 1]), tmp_path / "from disk")
    assert_same(open_lists(tmp_path / "from disk"), chosen)


@pytest.mark.parametrize("doc_id", [None, ["a", "", "ü"]])
def test_few_columns(tmp_path: Path, doc_id):
    data = ListDataset.from_arrays([[1.0, 2], [3, 4], [5, 6]], [0, 1, 2], ["x", "x", "y"], doc_id)
    write_lists(data, tmp_path / "lists")
    assert_same(open_lists(tmp_path / "lists"), data)


def test_no_feature(tmp_path: Path):
    codes = np.array([[0], [1]])
    data = ListDataset(
        np.empty((2, 0), np.float32), None, np.array([0, 2]), ["a"], categories=codes
    )
    write_lists(data, tmp_path / "lists")
    assert_same(open_lists(tmp_path / "lists"), data)


def test_the_files_are_those_of_numpy_and_arrow(folder: Path):
    assert sorted(os.listdir(folder)) == [
        "categories.npy",
        "doc_id.arrow",
        "features.npy",
        "labels.npy",
        "offsets.npy",
        "position.npy",
        "protected.npy",
        "qids.arrow",
        "schema.json",
        "weight.npy",
    ]
    for name in ("features", "labels", "categories", "weight"):
        found = np.load(folder / f"{name}.npy")
        np.testing.assert_array_equal(found, getattr(lists(), name))
        assert found.dtype == getattr(lists(), name).dtype
    assert np.load(folder / "offsets.npy").tolist() == [0, 2, 3]
    assert pa.ipc.open_file(folder / "qids.arrow").read_all().to_pydict() == {"qid": ["a", "bü"]}
    ids = pa.ipc.open_file(folder / "doc_id.arrow").read_all()
    assert ids.to_pydict() == {"doc_id": ["x", "", "zz"]}
    assert json.loads((folder / "schema.json").read_text()) == {
        "format": "ltr lists",
        "version": 6,
        "schema": None,
    }


def test_arrays_are_mapped_and_items_are_writable(folder: Path):
    mapped = open_lists(folder)
    for array in (mapped.features, mapped.labels, mapped.offsets):
        assert not array.flags.owndata
        assert not array.flags.writeable
    mapped[0]["features"].zero_()
    assert mapped[0]["features"][0].tolist() == [0, 1]


def test_chunks_in_any_widths_and_lists_that_continue(tmp_path: Path):
    draw = np.random.default_rng(0)
    chunks, want, labels, qids = [], np.zeros((0, 9), np.float32), [], []
    for number, width in enumerate((2, 2, 5, 3, 9, 9)):
        features = draw.random((4, width), dtype=np.float32)
        grades = draw.integers(0, 3, 4).astype(np.float32)
        names = [f"q{number}", f"q{number + 1}"]  # the last one continues
        ids = ["x", "y", "z", "ü"] if number in (2, 4) else None
        chunks.append(ListDataset(features, grades, np.array([0, 1, 4]), names, ids))
        want = np.r_[want, np.pad(features, ((0, 0), (0, 9 - width)))]
        labels += grades.tolist()
        qids += names[number > 0 :]
    write_lists(chunks, tmp_path / "lists")
    data = open_lists(tmp_path / "lists")
    np.testing.assert_array_equal(data.features, want)
    assert data.labels.tolist() == labels
    assert data.qids == qids
    assert data.offsets.tolist() == [0, 1, 5, 9, 13, 17, 21, 24]
    ids = ["x", "y", "z", "ü"]
    assert data.doc_id.to_pylist() == [""] * 8 + ids + [""] * 4 + ids + [""] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["lists"]
    assert "features-0.npy" not in os.listdir(tmp_path / "lists")


def test_what_is_written_must_be_lists(tmp_path: Path):
    one = ListDataset.from_arrays([[1.0]], labels=[0], qid=["a"])
    two = ListDataset(np.ones((1, 1), np.float32), None, np.array([0, 1]), ["b"])
    empty = ListDataset(np.ones((1, 1), np.float32), None, np.array([0, 1, 1]), ["b", "c"])
    schema = Schema("q", steps={"x": Vector(2)})
    for data, options, message in (
        ([one, two], {}, r"all chunks.*got \['features'\]"),
        ([], {}, "at least one list is needed"),
        (empty, {}, "at least one document, got an empty list"),
        (one, {"schema": schema}, "the schema has 2 features, got 1"),
        (one, {"schema": 3}, "schema must be a Schema or None, got 3"),
        ([one, 3], {}, "lists must be a ListDataset or chunks of one, got 3"),
        (3, {}, "lists must be a ListDataset or chunks of one, got 3"),
    ):
        with pytest.raises(ValueError, match=message):
            write_lists(data, tmp_path / "lists", **options)
        assert not [*tmp_path.iterdir()]
    with pytest.raises(OSError, match="disk"):
        write_lists(stopping(OSError(28, "no room on the disk")), tmp_path / "a" / "lists")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("labels", (2,), (2, 2)),
        ("labels", (2, 2), (2,)),
        ("labels", (2, 2), (2, 3)),
        ("labels", (2, 3), (2, 2)),
        ("categories", (2, 1), (2, 2)),
        ("categories", (2, 2), (2, 1)),
    ],
)
def test_no_label_or_category_is_made_up(tmp_path: Path, name: str, first: Any, second: Any):
    """A later chunk may have more features, and no more of anything else."""

    def chunk(qid: str, shape: tuple[int, ...]) -> ListDataset:
        arrays = {"labels": np.ones(2, np.float32), "categories": np.ones((2, 1), np.int64)}
        arrays[name] = np.ones(shape, arrays[name].dtype)
        labels, codes = arrays["labels"], arrays["categories"]
        features, offsets = np.ones((2, 1), np.float32), np.array([0, 2])
        return ListDataset(features, labels, offsets, [qid], categories=codes)

    wanted, got = (re.escape(f"'{name}{[*shape[1:]] or ''}'") for shape in (first, second))
    with pytest.raises(ValueError, match=rf"all chunks must have .*{wanted}.*, got .*{got}"):
        write_lists([chunk("a", first), chunk("b", second)], tmp_path / "lists")
    assert not [*tmp_path.iterdir()]


def stopping(error: BaseException):
    yield lists()
    raise error


def test_what_the_folder_must_be(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=f"path must be a folder, got the file {tmp_path}/file"):
        write_lists(lists(), tmp_path / "file")
    with pytest.raises(ValueError, match=f"new folder, got {tmp_path}, which holds 'file'"):
        write_lists(lists(), tmp_path)
    (tmp_path / "empty").mkdir()
    write_lists(lists(), tmp_path / "empty")
    assert len(open_lists(tmp_path / "empty")) == 2
    with pytest.raises(ValueError, match=r"which holds 'categories\.npy'"):
        write_lists(lists(), tmp_path / "empty")
    with pytest.raises(ValueError, match=r"got .*/none \(no schema.json\)"):
        open_lists(tmp_path / "none")
    with pytest.raises(ValueError, match=f"path.*{tmp_path}/file"):
        open_lists(tmp_path / "file")


def test_a_second_writer_is_refused(tmp_path: Path):
    folder, partial = tmp_path / "lists", tmp_path / "lists.partial"
    writing, done = threading.Event(), threading.Event()

    def slowly():
        yield lists()
        writing.set()
        done.wait(60)

    first = threading.Thread(target=write_lists, args=(slowly(), folder))
    first.start()
    writing.wait(60)
    with pytest.raises(ValueError, match=rf"{folder}: {partial} exists \(if no process"):
        write_lists(lists(), folder)
    with pytest.raises(ValueError, match=rf"got {folder} \({partial} is not complete\)"):
        open_lists(folder)
    done.set()
    first.join()
    assert_same(open_lists(folder), lists())
    assert [path.name for path in tmp_path.iterdir()] == ["lists"]


def test_an_interrupt_leaves_nothing(tmp_path: Path):
    with pytest.raises(KeyboardInterrupt):
        write_lists(stopping(KeyboardInterrupt()), tmp_path / "lists")
    assert not [*tmp_path.iterdir()]


def change(folder: Path, **changed: Any) -> None:
    path = folder / "schema.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


def test_versions(folder: Path):
    for version in (3, 99, "x" * 100):
        change(folder, version=version)
        with pytest.raises(ValueError, match=rf"version 6, got version .*{folder}: convert again"):
            open_lists(folder)
    change(folder, version=5, missing=True, arrays={"offsets": [3], "qids": [2]})
    assert_same(open_lists(folder), lists())


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", "[" * 10**5])
def test_an_odd_schema_file(folder: Path, text: str):
    (folder / "schema.json").write_text(text)
    with pytest.raises(ValueError, match=f"^{folder}/schema.json: the file ") as caught:
        open_lists(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [{"schema": {"qid": 3}}, {"schema": Schema("q", steps={"x": Number()}).to_dict()}],
)
def test_odd_entries(folder: Path, changed: dict[str, Any]):
    change(folder, **changed)
    with pytest.raises(ValueError, match=re.escape(str(folder))):
        open_lists(folder)


@pytest.mark.parametrize("name", ["features.npy", "labels.npy", "offsets.npy", "qids.arrow"])
@pytest.mark.parametrize("damage", ["gone", "empty", "half", "shape", "pickle"])
def test_damaged_files(folder: Path, name: str, damage: str):
    """The error is that of numpy or Arrow, after the folder's name."""
    path = folder / name
    if damage == "gone" and name != "labels.npy":
        path.unlink()
    elif damage == "half":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "shape" and name.endswith("npy"):
        np.save(path, np.load(path)[:-1])
    elif damage == "pickle" and name.endswith("npy"):
        np.save(path, np.array([Harm()], object), allow_pickle=True)
    else:
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=f"^{folder}: the lists cannot be opened: ") as caught:
        open_lists(folder)
    assert "\n" not in str(caught.value)
    assert not RAN.exists()


def test_texts_of_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(list_files, "_TEXTS", 5)
    parts = []
    for i in range(12):
        ids = None if i % 3 == 1 else [f"d{i}", f"ü{i}", ""]
        rows = np.full((3, 1), i, np.float32)
        parts.append(ListDataset(rows, rows[:, 0], np.array([0, 2, 3]), [f"{i}a", f"{i}b"], ids))
    write_lists(parts, tmp_path / "lists")
    data, want = open_lists(tmp_path / "lists"), join_lists(parts)
    assert pa.ipc.open_file(tmp_path / "lists" / "doc_id.arrow").num_record_batches > 3
    assert_same(data, want)
    draw = np.random.default_rng(0)
    for chosen in (draw.integers(0, len(data), 40), np.array([], np.int64), np.array([5])):
        assert_same(data.read(chosen), want.read(chosen))
        assert_same(data.select(chosen), want.select(chosen))


@pytest.mark.parametrize(("name", "other"), [("labels", (2, 2)), ("categories", (2, 3))])
def test_parts_with_other_numbers_of_columns_are_not_joined(name: str, other: tuple[int, int]):
    rows, offsets = np.zeros((2, 1), np.float32), np.array([0, 2])
    parts = []
    for shape in ((2,) if name == "labels" else (2, 1), other):
        own = {"labels": rows[:, 0], name: np.zeros(shape, np.float32 if name == "labels" else int)}
        parts.append(ListDataset(rows, own.pop("labels"), offsets, ["a"], **own))
    with pytest.raises(
        ValueError, match=rf"^parts must agree in the number of {name}, got \[1, {other[1]}\]"
    ):
        join_lists(parts)


def test_no_parts_are_not_joined():
    with pytest.raises(ValueError, match=r"^parts must have at least one data set, got none$"):
        join_lists([])


def test_another_process_gets_the_path(folder: Path):
    for data in (open_lists(folder), open_lists(folder).select([1])):
        raw = pickle.dumps(data)
        assert b"zz" not in raw
        assert_same(pickle.loads(raw), data)


@pytest.mark.parametrize("mapped", [False, True])
def test_numbered_rows_stay_with_their_documents(folder: Path, mapped: bool):
    data = open_lists(folder) if mapped else lists()
    assert data.rows is None
    assert data.numbered().rows.tolist() == [0, 1, 2]
    assert data.numbered().select([1, 0]).rows.tolist() == [2, 0, 1]
    assert data.numbered().between(1, 2).rows.tolist() == [2]
    assert data.select([1, 0]).numbered().rows.tolist() == [0, 1, 2]
    again = data.select([1, 0]).numbered().select([1]).numbered()
    assert again.rows.tolist() == again.in_memory().rows.tolist() == [1, 2]
    assert again[0]["rows"].tolist() == [1, 2]
    own = data.with_arrays(rows=np.array([7, 3, 5])).numbered()
    assert own.select([1, 0]).rows.tolist() == [5, 7, 3]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="it counts open files as in Linux")
def test_features_that_are_gained_chunk_by_chunk_keep_few_files_open(tmp_path: Path):
    """A process may have 256 open files on macOS, and 1,024 on Linux."""
    counts = []

    def chunks():
        for width in range(1, 40):
            counts.append(len(os.listdir("/proc/self/fd")))
            yield ListDataset(
                np.full((1, width), width, np.float32), None, np.array([0, 1]), [str(width)]
            )

    write_lists(chunks(), tmp_path / "lists")
    assert counts[-1] == counts[5]
    features = open_lists(tmp_path / "lists").features
    assert features[4].tolist() == [5] * 5 + [0] * 34


def test_a_choice_of_features_among_chosen_ones(folder: Path):
    data = open_lists(folder)
    whole = data.features
    chosen = data.take_features(np.array([1, -1, 0])).take_features(np.array([2, 0, -1, 1]))
    zeros = np.zeros(len(whole), np.float32)
    want = np.stack([whole[:, 0], whole[:, 1], zeros, zeros], axis=1)
    np.testing.assert_array_equal(chosen.features, want)
