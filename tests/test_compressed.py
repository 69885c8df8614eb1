"""Text files in any compression, by their content."""

import errno
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ltr.compressed import open_text
from ltr.datasets import TableDataModule, read_letor
from ltr.metrics.trec import read_run

TEXT = b"".join(b"%d qid:%d 1:%d 2:0.5\n" % (i % 3, i // 5, i) for i in range(2000))


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": lambda text: pa.compress(text, "zstd", asbytes=True),
}


@pytest.mark.parametrize("form", PACK)
@pytest.mark.parametrize("name", ["train.txt", "train.zst", "train"])
def test_letor_text_in_every_form_under_any_name(tmp_path: Path, form: str, name: str):
    (tmp_path / "plain").write_bytes(TEXT)
    (tmp_path / name).write_bytes(PACK[form](TEXT))
    got, want = read_letor(tmp_path / name), read_letor(tmp_path / "plain")
    np.testing.assert_array_equal(got.features, want.features)
    assert got.qids == want.qids


@pytest.mark.parametrize("form", PACK)
def test_joined_streams_are_read_to_the_end(tmp_path: Path, form: str):
    half = TEXT.index(b"\n", len(TEXT) // 2) + 1
    (tmp_path / "f").write_bytes(PACK[form](TEXT[:half]) + PACK[form](TEXT[half:]))
    with open_text(tmp_path / "f") as file:
        assert file.read() == TEXT


@pytest.mark.parametrize("form", PACK)
def test_runs_are_read_too(tmp_path: Path, form: str):
    (tmp_path / "f").write_bytes(PACK[form](b"1 Q0 a 1 2.5 t\n1 Q0 b 2 1.5 t\n"))
    assert read_run(tmp_path / "f") == {"1": {"a": 2.5, "b": 1.5}}


# zstd's files need not have a checksum, so damage in the middle may go unseen there
@pytest.mark.parametrize(
    ("form", "damage"),
    [
        *((form, damage) for form in PACK for damage in ("cut", "head")),
        *((form, "middle") for form in PACK if form != "zstd"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, form: str, damage: str):
    text = np.random.default_rng(0).bytes(300_000).hex().encode()
    raw = bytearray(PACK[form](text))
    if damage == "cut":
        del raw[-len(raw) // 3 :]
    elif damage == "head":
        del raw[6:]
    else:
        middle = len(raw) // 2
        raw[middle : middle + 64] = bytes(64)
    (tmp_path / "f").write_bytes(raw)

    def read() -> None:
        with open_text(tmp_path / "f") as file:
            while file.read(1 << 16):
                pass

    with pytest.raises(ValueError, match=f"f: the {form} file is damaged"):
        read()


def test_an_error_of_the_disk_stays_one(tmp_path: Path):
    (tmp_path / "f").write_bytes(gzip.compress(TEXT))

    def fail() -> None:
        with open_text(tmp_path / "f"):
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        fail()


def test_splits_and_group_sizes_are_found_in_every_form(tmp_path: Path):
    for name, form in {
        "train.txt.gz": "gzip",
        "vali.txt.zst": "zstd",
        "test.txt.gz": "gzip",
    }.items():
        (tmp_path / name).write_bytes(PACK[form](TEXT))
    data = TableDataModule(tmp_path)
    data.setup("fit")
    assert len(data.dataset("test")) == 400
    (tmp_path / "rank.train.zst").write_bytes(PACK["zstd"](b"1 1:2\n0 1:3\n"))
    (tmp_path / "rank.train.query.gz").write_bytes(PACK["gzip"](b"2\n"))
    assert len(read_letor(tmp_path / "rank.train.zst")) == 1
