"""Each `ltr fit` has a folder of its own; `best` and `last` are the newest run's."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from ltr.cli import runs
from ltr.cli.errors import CommandError

TINY = ("--config", "tiny.yaml", "--trainer.max_epochs", 1)
FIT = ["fit", *TINY]


def contents(folder: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def test_a_second_fit_replaces_nothing(ltr, fit_once):
    fit_once(*TINY)
    first = contents("runs/tiny/1/checkpoints")
    assert first.keys() == {"best.ckpt", "last.ckpt"}
    answer = ltr(*FIT, "--seed_everything", 5)
    assert answer.code == 0, answer.err
    assert "runs/tiny/2/model" in answer.out
    assert contents("runs/tiny/1/checkpoints") == first
    assert contents("runs/tiny/2/checkpoints") != first

    for name in ("best", "last"):
        answer = ltr("test", "--config", "tiny.yaml", "--ckpt_path", name)
        assert answer.code == 0, answer.err
        assert f"{name}: runs/tiny/2/checkpoints/{name}.ckpt" in answer.out
    assert len(list(Path("runs/tiny/2/logs").iterdir())) == 3  # one of fit, two of test

    # the newest run is gone on with, in its folder
    answer = ltr(*FIT[:-1], 2, "--ckpt_path", "last")
    assert answer.code == 0, answer.err
    assert torch.load("runs/tiny/2/checkpoints/last.ckpt")["epoch"] == 1
    assert contents("runs/tiny/1/checkpoints") == first
    assert sorted(path.name for path in Path("runs/tiny").iterdir()) == ["1", "2"]

    # a checkpoint that is named by its file begins a new run, with a best of its own
    file = "runs/tiny/1/checkpoints/last.ckpt"
    answer = ltr(*FIT[:-1], 2, "--ckpt_path", file)
    assert answer.code == 0, answer.err
    assert contents("runs/tiny/1/checkpoints") == first
    assert torch.load("runs/tiny/3/checkpoints/best.ckpt")["epoch"] == 1


def test_the_newest_run_that_has_one(fit_once):
    fit_once(*TINY)
    shutil.copytree("runs/tiny/1", "runs/tiny/10")
    shutil.copytree("runs/tiny/1", "runs/tiny/9")
    root = Path("runs/tiny")
    assert runs.named_checkpoint("best", root) == root / "10/checkpoints/best.ckpt"
    (root / "10/checkpoints/best.ckpt").unlink()
    assert runs.named_checkpoint("best", root) == root / "9/checkpoints/best.ckpt"
    assert runs.named_checkpoint("last", root) == root / "10/checkpoints/last.ckpt"


def test_runs_of_earlier_versions_are_found(ltr, fit_once):
    fit_once(*TINY)
    shutil.move("runs/tiny/1/checkpoints", "runs/tiny/checkpoints")
    shutil.rmtree("runs/tiny/1")
    before = contents("runs/tiny/checkpoints")
    answer = ltr("test", "--config", "tiny.yaml", "--ckpt_path", "best")
    assert answer.code == 0, answer.err
    assert ltr(*FIT).code == 0
    assert contents("runs/tiny/checkpoints") == before
    assert Path("runs/tiny/1/checkpoints/best.ckpt").is_file()


def test_starts_at_the_same_time_get_different_numbers(tmp_path: Path):
    def start(_: int) -> Path:
        with runs.new_run(tmp_path / "runs", keep=lambda: False) as run:
            return run

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(start, range(40)))
    assert sorted(int(run.name) for run in made) == list(range(1, 41))


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(runs, "_PATIENCE", 0)
    with (
        runs.hold(tmp_path),
        pytest.raises(CommandError, match="in use: another process trains it"),
        runs.hold(tmp_path),
    ):
        pass
    with runs.hold(tmp_path):
        pass


LATE = """
import lightning.pytorch as pl


class Late(pl.Callback):
    def __init__(self, hook):
        def fail(*args, **named):
            raise ValueError("too late")
        setattr(self, hook, fail)
"""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "TableDataModule", "--data.path", "no_such_folder"], "no_such_folder"),
        (["--trainer.callbacks", "late.Late", "--trainer.callbacks.hook", "setup"], "too late"),
        (["--ckpt_path", "none.ckpt"], "none.ckpt"),
    ],
)
def test_a_fit_that_fails_before_its_first_batch_leaves_no_folder(ltr, options, message):
    Path("late.py").write_text(LATE)
    answer = ltr(*FIT, *options)
    assert answer.code == 2
    assert message in answer.err
    assert not Path("runs").exists()


def test_a_fit_that_fails_later_keeps_its_folder(ltr):
    Path("late.py").write_text(LATE)
    late = ["--trainer.callbacks", "late.Late", "--trainer.callbacks.hook"]
    answer = ltr(*FIT, *late, "on_train_epoch_end")
    assert (answer.code, "too late" in answer.err) == (2, True)
    assert [path.name for path in Path("runs/tiny").iterdir()] == ["1"]


def test_a_trainer_that_cannot_be_made_takes_no_number(ltr):
    assert ltr(*FIT, "--trainer.accelerator", "abacus").code == 2
    assert not Path("runs").exists()
