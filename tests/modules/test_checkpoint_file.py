"""Checkpoint files: damage is found, and what is no checkpoint is refused in one line."""

import io
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from ltr.losses import PointwiseMSE
from ltr.models import LinearScorer
from ltr.modules import Ranker
from ltr.modules.checkpoint_file import read_checkpoint


@pytest.fixture
def content() -> dict[str, Any]:
    ranker = Ranker(LinearScorer(3), PointwiseMSE())
    content: dict[str, Any] = {"state_dict": ranker.state_dict()}
    content["pytorch-lightning_version"] = "2.6.0"
    content |= {"config": {"init_args": {}}, "callbacks": {"A": {"b": 1}}, "unsaved": {}}
    return content


def as_bytes(content: Any, **options: Any) -> bytes:
    torch.save(content, file := io.BytesIO(), **options)
    return file.getvalue()


def test_a_flipped_bit_is_found(content: dict[str, Any], tmp_path: Path):
    whole = as_bytes(content)
    rng = random.Random(0)
    errors: list[str] = []
    for _ in range(300):
        position = rng.randrange(len(whole))
        changed = bytearray(whole)
        changed[position] ^= 1 << rng.randrange(8)
        (tmp_path / "x.ckpt").write_bytes(changed)
        try:
            again = read_checkpoint(tmp_path / "x.ckpt")
        except ValueError as error:
            errors.append(str(error))
        else:  # padding, or a date
            assert as_bytes(again) == whole
    assert len(errors) > 100
    assert all("x.ckpt" in text and "\n" not in text for text in errors)


@pytest.mark.parametrize("kind", ["empty", "cut", "text", "compressed", "legacy", "overlap"])
def test_files_that_are_no_checkpoints(content: dict[str, Any], tmp_path: Path, kind: str):
    whole = as_bytes(content)
    file = tmp_path / "x.ckpt"
    file.write_bytes({"empty": b"", "cut": whole[:-100], "text": b"a text"}.get(kind, whole))
    if kind == "legacy":
        file.write_bytes(as_bytes(content, _use_new_zipfile_serialization=False))
    if kind == "compressed":
        with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(file, "w", 8) as new:
            for name in old.namelist():
                new.writestr(name, old.read(name))
    if kind == "overlap":
        with zipfile.ZipFile(file, "a") as archive:
            archive.filelist *= 50
            archive.comment = b"writes the list of parts again"
    with pytest.raises(ValueError, match=r"x\.ckpt"):
        read_checkpoint(file)


@pytest.mark.parametrize(
    "change",
    [
        {"state_dict": None},
        {"state_dict": {1: torch.ones(1)}},
        {"pytorch-lightning_version": "1.9.0"},
        {"pytorch-lightning_version": torch.ones(1)},
        {"callbacks": [1]},
        {"callbacks": {"A": "x"}},
        {"callbacks": {1: {}}},
    ],
)
def test_content_that_lightning_could_not_use(
    content: dict[str, Any], tmp_path: Path, change: dict[str, Any]
):
    (tmp_path / "x.ckpt").write_bytes(as_bytes({**content, **change}))
    with pytest.raises(ValueError, match=r"x\.ckpt is not a checkpoint of ltr"):
        read_checkpoint(tmp_path / "x.ckpt")


def test_an_open_file(content: dict[str, Any]):
    assert read_checkpoint(io.BytesIO(as_bytes(content)))["callbacks"] == {"A": {"b": 1}}
