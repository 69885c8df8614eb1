"""Files appear under their names whole, or not at all."""

import subprocess
from pathlib import Path

import pytest
import torch

TINY = ("--config", "tiny.yaml", "--trainer.max_epochs", 1)
FIT = ["fit", *TINY]


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
