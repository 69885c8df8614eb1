"""Running `ltr` and the sweeps in this process, in an empty folder that sees the recipes."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from ltr.cli import main

ROOT = Path(__file__).parents[2]


@dataclass
class Answer:
    """What a command came to."""

    code: int
    out: str
    err: str


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, but for the folder `recipes`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(os, "environ", os.environ.copy())
    Path("recipes").symlink_to(ROOT / "recipes")
    return tmp_path


@pytest.fixture
def ltr(workplace: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """`ltr(...)`."""

    def run(*args: object) -> Answer:
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture
def sweep(workplace: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """`sweep("sort.run", ...)`: the program `python -m recipes.sort.run`."""

    def run(program: str, *args: object) -> Answer:
        capsys.readouterr()
        module = import_module(f"recipes.{program}")
        code = module.SWEEP.main(f"recipes.{program}", [str(arg) for arg in args])
        return Answer(code, *capsys.readouterr())

    return run
