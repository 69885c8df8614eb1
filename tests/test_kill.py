"""Predicting, killed at random moments and while the file is written: no half of it is left."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

LTR = "import sys; from ltr.cli import main; sys.exit(main(sys.argv[1:]))"

CONFIG = """\
model:
  class_path: Ranker
  init_args: {scorer: {class_path: LinearScorer}, loss: {class_path: PointwiseMSE}}
data: {class_path: TableDataModule, init_args: {path: data, batch_size: 4}}
trainer: {max_epochs: 1, accelerator: cpu, enable_model_summary: false}
"""


def write_lists(path: Path, lists: int) -> None:
    draw = random.Random(lists)
    with path.open("w") as file:
        for qid in range(lists):
            for doc in range(10):
                pairs = " ".join(f"{i}:{draw.random():.6f}" for i in range(1, 21))
                file.write(f"{draw.randrange(3)} qid:{qid} {pairs} #docid = D{qid}-{doc}\n")


def partials(folder: Path) -> list[Path]:
    return list(folder.glob(".*.ltr-partial"))


def start(code: str, *args: str, other_tmp: bool = False) -> subprocess.Popen:
    env = dict(os.environ)
    if other_tmp:  # another file system, across which no file can be renamed
        env["TMPDIR"] = "/dev/shm"
    command = [sys.executable, "-c", code, *args]
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_often(
    begin: Callable[[bool], subprocess.Popen],
    folder: Path,
    check: Callable[[], None],
    kills: int,
) -> None:
    """Kill runs: every other one at any moment, the rest while the temporary file is written."""
    draw = random.Random(0)
    other = Path("/dev/shm").is_dir() and os.stat("/dev/shm").st_dev != folder.stat().st_dev
    began = time.monotonic()
    assert begin(False).wait() == 0
    whole = time.monotonic() - began
    check()
    while_writing = 0
    for number in range(kills):
        for path in folder.iterdir():
            if not path.name.endswith(".ltr-partial") and not path.name.startswith(".lock"):
                path.unlink()
        process = begin(other and number % 2 == 1)
        if number % 4 < 2:
            time.sleep(draw.uniform(0, whole))
        else:
            before = {path.name for path in partials(folder)}
            while process.poll() is None and {p.name for p in partials(folder)} <= before:
                time.sleep(0.0005)
            time.sleep(draw.uniform(0, 0.01))
        process.kill()
        process.wait()
        while_writing += bool(partials(folder))
        check()
    assert while_writing >= 3  # else nothing was tried
    assert begin(False).wait() == 0
    check()
    assert len([path for path in folder.iterdir() if not path.name.startswith(".")]) == 1


@pytest.mark.slow  # fifteen kills of fresh processes
@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_predicting_killed_at_any_moment(tmp_path: Path, monkeypatch, kind: str):
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG)
    for name, lists in {"train": 20, "vali": 4, "test": 4000}.items():
        write_lists(make("data") / f"{name}.txt", lists)
    assert start(LTR, "fit", "--config", "config.yaml").wait() == 0
    output = make("out") / f"scores{kind}"
    run = f"runs/{tmp_path.name}"  # a config.yaml names its run after its folder
    args = ["predict", run, "data/test.txt", "--output", str(output)]
    assert start(LTR, *args).wait() == 0
    want = output.read_bytes()

    def check() -> None:
        if output.exists():
            assert output.read_bytes() == want

    kill_often(lambda other: start(LTR, *args, other_tmp=other), output.parent, check, 15)
    assert output.read_bytes() == want


def make(folder: str) -> Path:
    path = Path(folder).absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path
