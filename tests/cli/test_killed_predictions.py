"""`ltr predict` in two processes, killed at 20 random moments or more, ends as if it had not been.

The runs are forks of one process that has imported everything, so that the moments fall into the
scoring and the writing of files, not into imports.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

KILLS = 20

CONFIG = """\
model:
  class_path: Ranker
  init_args: {scorer: {class_path: MLPScorer, init_args: {hidden: [4]}}}
data:
  class_path: DigitsDataModule
  init_args: {list_size: 4, train_lists: 10, val_lists: 4, test_lists: 101, batch_size: 2}
trainer:
  max_epochs: 1
  accelerator: cpu
  enable_model_summary: false
  callbacks: [{class_path: slower.Slower}]
"""

SLOWER = """\
import time
from lightning.pytorch import Callback


class Slower(Callback):
    def on_predict_batch_end(self, *args):
        time.sleep(0.02)
"""


@pytest.mark.slow  # twenty kills of two processes, and a run to its end after each
def test_killed_at_random_moments(tmp_path):
    done = subprocess.run(
        [sys.executable, __file__, tmp_path], capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int((tmp_path / "kills.txt").read_text()) >= KILLS


def start(args: list[str], rank: int, port: int) -> int:
    """Run `ltr` in a fork of this process, as one of two processes, and return its number."""
    from ltr.cli import main

    if pid := os.fork():
        return pid
    code = 1
    try:
        os.environ.update(LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        log = os.open(f"log{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        code = main([*args, "--trainer.devices", "2", "--trainer.strategy", "ddp"])
    finally:
        sys.stdout.flush()
        os._exit(code)


def start_two(args: list[str]) -> list[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    return [start(args, rank, port) for rank in (0, 1)]


def finish(args: list[str]) -> float:
    """Run `ltr` in two processes to its end, and return the seconds."""
    begun = time.monotonic()
    for pid in start_two(args):
        _, status = os.waitpid(pid, 0)
        assert status == 0, Path("log0.txt").read_text() + Path("log1.txt").read_text()
    return time.monotonic() - begun


def main(folder: Path) -> None:
    from ltr.cli import main as ltr_main

    os.chdir(folder)
    sys.path.append(str(folder))
    Path("own.yaml").write_text(CONFIG)
    Path("slower.py").write_text(SLOWER)
    assert ltr_main(["fit", "--config", "own.yaml"]) == 0

    def args(output: str) -> list[str]:
        return ["predict", "--config", "own.yaml", "--ckpt_path", "last", "--output", output]

    draw, kills = random.Random(7), 0
    for ending in ("csv", "parquet"):
        Path("out").mkdir()
        seconds = finish(args(f"whole.{ending}"))
        whole, path = Path(f"whole.{ending}").read_bytes(), Path(f"out/p.{ending}")
        path.write_text("old")
        parts, limit = 0, kills + KILLS // 2
        while kills < limit or not parts:  # some must be killed while they write
            pids = start_two(args(str(path)))
            time.sleep(draw.uniform(0, seconds))
            if draw.random() < 0.3:  # one dies, and the launcher ends the other a little later
                os.kill(pids[draw.randrange(2)], signal.SIGKILL)
                time.sleep(0.3)
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            ends = [os.waitpid(pid, 0)[1] for pid in pids]
            kills += any(map(os.WIFSIGNALED, ends))
            parts += bool([*Path("out").glob(".*.ltr-partial")])
            if path.read_bytes() != b"old":
                assert path.read_bytes() == whole
                path.write_text("old")
        finish(args(str(path)))
        assert path.read_bytes() == whole
        assert [*Path("out").glob("[!.]*")] == [path]
        for file in Path("out").iterdir():  # hidden ones are those of killed processes
            file.unlink()
        Path("out").rmdir()
    Path("kills.txt").write_text(str(kills))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
