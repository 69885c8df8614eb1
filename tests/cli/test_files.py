"""Files appear under their names whole, or not at all."""

import errno
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch

TINY = ("--config", "tiny.yaml", "--trainer.max_epochs", 1)
FIT = ["fit", *TINY]


def test_checkpoints_are_not_made_in_the_temporary_folder(ltr, tmp_path, monkeypatch):
    """It may be on another file system, where nothing can be moved from in one step."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no/such/folder"))
    answer = ltr(*FIT)
    assert answer.code == 0, answer.err
    assert len(list(Path("runs/tiny/1/checkpoints").iterdir())) == 2


@pytest.mark.parametrize("name", ["last", "best"])
def test_a_full_disk_is_named(ltr, fit_once, monkeypatch, name):
    fit_once(*TINY)
    before = Path("runs/tiny/1/checkpoints/last.ckpt").read_bytes()
    write = Path.write_bytes

    def full(path: Path, content) -> int:
        if f".{name}.ckpt" in path.name:
            write(path, content[:100])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    # one goes on, the other begins a run
    more, run = ([*FIT[:-1], 2, "--ckpt_path", "last"], 1) if name == "last" else (FIT, 2)
    answer = ltr(*more)
    assert answer.code == 2
    line = answer.err.splitlines()[-1]
    assert line.startswith("ltr fit: /")
    assert line.endswith(f"runs/tiny/{run}/checkpoints/{name}.ckpt: No space left on device")
    assert not list(Path(f"runs/tiny/{run}/checkpoints").glob(".*"))
    assert Path("runs/tiny/1/checkpoints/last.ckpt").read_bytes() == before


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 24 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", folder], capture_output=True
    )
    if made.returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_disk_that_is_full(ltr, small_disk):
    answer = ltr(*FIT, "--trainer.default_root_dir", small_disk)
    assert answer.code == 2
    line = answer.err.splitlines()[-1]
    assert line.startswith(f"ltr fit: {small_disk}")
    assert line.endswith(": No space left on device")
    for file in small_disk.glob("1/checkpoints/*"):
        torch.load(file)  # whole
