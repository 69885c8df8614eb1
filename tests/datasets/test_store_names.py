"""A manifest made to do harm: names of other files, and numbers that no file could hold."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ltr.datasets import ListDataset, open_store, write_store
from ltr.datasets.checksums import file_checksum
from ltr.datasets.shards import ShardEntry
from ltr.datasets.store import write_manifest


@pytest.fixture
def store(tmp_path: Path) -> Path:
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    data = ListDataset(rows, np.array([1, 0, 2], np.float32), np.array([0, 2, 3]), ["a", "b"])
    write_store(data, folder := tmp_path / "store")
    return folder


def change(folder: Path, shard: dict[str, Any], files: dict[str, Any] | None = None) -> None:
    """Write the manifest again, with a checksum that is right."""
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["checksum"]
    [entry] = manifest.pop("shards")
    for key, value in (files or {}).items():
        manifest["files"][key] |= value
    write_manifest(folder, manifest, [ShardEntry(**{**entry, **shard})])


def refused(folder: Path) -> str:
    with pytest.raises(ValueError, match=rf"^{folder}.* damaged: ") as caught:
        open_store(folder)[0]
    assert "\n" not in str(caught.value)
    return str(caught.value)


NAMES = ["/dev/zero", "../other.arrow", "sub/x.arrow", "..", ".", "", "a\0b", "a\\b", 3, None]


@pytest.mark.parametrize("name", NAMES)
def test_a_shards_name_is_a_file_of_the_folder(store: Path, name: Any):
    [shard] = store.glob("*-000000.arrow")
    (store / "sub").mkdir()
    for copy in (store.parent / "other.arrow", store / "sub" / "x.arrow"):
        copy.write_bytes(shard.read_bytes())
    change(store, {"name": name})
    assert repr(name) in refused(store)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", ["offsets", "lists"])
def test_so_are_the_names_of_the_other_files(store: Path, key: str, name: Any):
    change(store, {}, {key: {"name": name}})
    with pytest.raises(ValueError, match=r"damaged: no file may be called") as caught:
        _ = open_store(store).qids[0]
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("known", [False, True])
def test_a_pipe_is_not_opened(store: Path, known: bool):
    data = open_store(store)
    if known:  # its checksum was compared before
        assert data[0]["qid"] == "a"
        data.store._mapped.clear()
    [shard] = store.glob("*-000000.arrow")
    shard.unlink()
    os.mkfifo(shard)
    with pytest.raises(ValueError, match=r"000000\.arrow.*must be a regular file"):
        _ = data[0]
    with pytest.raises(ValueError, match=r"000000\.arrow.*must be a regular file"):
        open_store(store)


@pytest.mark.parametrize(
    "changed",
    [
        {"widths": {"labels": 1, "features": 10**15}},
        {"widths": {"labels": 1, "features": -(10**15)}},
        {"widths": {"labels": 1, "features": 2.5}},
        {"widths": {"labels": 1, "features": True}},
        {"lists": 2**70},
        {"documents": 2**70},
        {"documents": 2**70, "lists": 2**70},
        {"bytes": -1},
    ],
)
def test_numbers_that_the_file_cannot_hold(store: Path, changed: dict[str, Any]):
    change(store, changed)
    with pytest.raises(ValueError, match=r"000000\.arrow: the shard is damaged: "):
        open_store(store)


@pytest.mark.parametrize(
    "offsets", [[0, 2**40, 3], [0, 2, 2**62], [1, 2, 3], [0, 2], [0, 1, 2, 3], []]
)
def test_offsets_that_cannot_be(store: Path, offsets: list[int]):
    [path] = store.glob("*-offsets.bin")
    path.write_bytes(np.array(offsets, "<i8").tobytes())
    change(store, {}, {"offsets": {"checksum": file_checksum(path)}})
    with pytest.raises(ValueError, match=r"offsets\.bin: .*offsets "):
        open_store(store)
