"""The file that `--ckpt_path` names: no pickle, and damage is one line."""

import io
import os
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from ltr.cli.errors import CommandError
from ltr.cli.runs import read_checkpoint

FIT = ["fit", "--config", "tiny.yaml"]
TEST = ["test", "--config", "tiny.yaml"]
LAST = "runs/tiny/1/checkpoints/last.ckpt"


class Bomb:
    """Makes a file where it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch hit",)


def as_bytes(content: Any, **options: Any) -> bytes:
    torch.save(content, file := io.BytesIO(), **options)
    return file.getvalue()


def assert_one_line(answer, *texts: str) -> None:
    assert answer.code == 2
    assert answer.err.count("\n") == 1, answer.err
    assert all(text in answer.err for text in texts), answer.err


@pytest.mark.parametrize("key", ["state_dict", "callbacks", "more"])
def test_nothing_is_unpickled(ltr, fit_once, monkeypatch: pytest.MonkeyPatch, key: str):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    fit_once(*FIT[1:])
    torch.save({**torch.load(LAST, weights_only=True), key: Bomb()}, "bad.ckpt")
    for command in (FIT, TEST):
        answer = ltr(*command, "--ckpt_path", "bad.ckpt")
        assert_one_line(answer, "bad.ckpt", "more than tensors and plain values")
    assert not Path("hit").exists()


def test_a_path_in_a_checkpoint_is_not_used(ltr, fit_once):
    fit_once(*FIT[1:])
    content = torch.load(LAST, weights_only=True)
    Path("victim").mkdir()
    Path("victim/secret").write_text("secret")
    paths = ("best_model_path", "kth_best_model_path", "last_model_path", "dirpath")
    for key, state in content["callbacks"].items():
        if "Checkpoint" in key:
            state |= dict.fromkeys(paths, "victim/secret")
            state["best_k_models"] = {"victim/secret": torch.tensor(-9.0)}
    torch.save(content, LAST)
    answer = ltr(*FIT, "--ckpt_path", "last", "--trainer.max_epochs", 4)
    assert answer.code == 0, answer.err
    assert [path.name for path in Path("victim").iterdir()] == ["secret"]
    assert Path("victim/secret").read_text() == "secret"
    assert torch.load(LAST)["epoch"] == 3


def test_weights_alone_resume_nothing(ltr, fit_once):
    fit_once(*FIT[1:])
    content = torch.load(LAST)
    torch.save({name: content[name] for name in content if name != "optimizer_states"}, "w.ckpt")
    assert_one_line(ltr(*FIT, "--ckpt_path", "w.ckpt"), "w.ckpt has the weights only")
    assert ltr(*TEST, "--ckpt_path", "w.ckpt").code == 0


@pytest.fixture
def content() -> dict[str, Any]:
    return {"state_dict": {"weight": torch.ones(3)}, "pytorch-lightning_version": "2.6.0"}


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
        except CommandError as error:
            errors.append(str(error))
        else:  # padding, or a date
            assert as_bytes(again) == whole
    assert len(errors) > 100
    assert all("x.ckpt" in text and "\n" not in text for text in errors)


@pytest.mark.parametrize("kind", ["empty", "cut", "text", "legacy", "compressed", "foreign"])
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
    if kind == "foreign":
        torch.save({"weights": torch.ones(3)}, file)
    with pytest.raises(CommandError, match=r"x\.ckpt is not a checkpoint"):
        read_checkpoint(file)
