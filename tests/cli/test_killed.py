"""`ltr fit` and a sweep, killed at 20 random moments, end as if they had not been.

The runs are forks of one process that has imported everything, so that the moments fall into the
training and the writing of files, not into imports.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

KILLS = 20

CONFIG = """\
model:
  class_path: Ranker
  init_args: {scorer: {class_path: MLPScorer, init_args: {hidden: [4], dropout: 0.5}}}
data:
  class_path: DigitsDataModule
  init_args: {list_size: 4, train_lists: 10, val_lists: 4, test_lists: 5, batch_size: 2}
trainer: {max_epochs: 20, accelerator: cpu, enable_model_summary: false}
early_stopping: {patience: null}
"""

SWEEP = """\
from pathlib import Path

from recipes.sweep import Run, Sweep, of


def runs(overlays, seeds=(1, 2)):
    for name, loss in {"NDCG": "SoftNDCG", "MSE": "PointwiseMSE"}.items():
        for seed in seeds:
            yield Run(name, {"seed": seed}, {"seed_everything": seed, "model.loss": of(loss)})


METRICS = {"test_ndcg_10": "NDCG@10", "test_mrr": "MRR"}
SWEEP = Sweep(Path("own"), runs, METRICS, "seed")
"""


# Twenty kills, and trainings that go on, in processes that import all of ltr. Among the fast tests,
# tests/test_files.py and tests/estimators/test_folders.py have what a broken write leaves, and
# test_stops.py and test_fit.py the runs that are resumed.
@pytest.mark.slow
@pytest.mark.parametrize("command", ["fit", "sweep"])
def test_killed_at_random_moments(command, tmp_path):
    kill(command, tmp_path, dict(os.environ))


@pytest.mark.slow  # twenty kills, and trainings that go on
def test_killed_with_temporary_files_elsewhere(tmp_path):
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system")
    kill("fit", tmp_path, {**os.environ, "TMPDIR": str(shm)})


def kill(command: str, folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, __file__, command, folder, str(KILLS)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "kills.txt").read_text() == str(KILLS)


def start(args: list[str]) -> int:
    """Run `ltr`, or the sweep, in a fork of this process, and return its number."""
    from ltr.cli import main

    if pid := os.fork():
        return pid
    code = 1
    try:
        log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if args[0] == "sweep":
            code = import_module("own_sweep").SWEEP.main("own_sweep", args[1:])
        else:
            code = main(args)
    finally:
        sys.stdout.flush()
        os._exit(code)


def finish(args: list[str]) -> float:
    """Run `ltr` to its end, and return the seconds."""
    begun = time.monotonic()
    _, status = os.waitpid(start(args), 0)
    assert status == 0, Path("log.txt").read_text()[-3000:]
    return time.monotonic() - begun


def files_are_whole(root: Path) -> None:
    import torch

    from ltr.models import RankingModel

    for path in root.glob("**/*.ckpt"):
        state = torch.load(path, weights_only=True)["state_dict"]
        assert all(value.isfinite().all() for value in state.values()), path
    for path in root.glob("**/*.json"):
        json.loads(path.read_text())
    for path in root.glob("**/model/config.json"):
        RankingModel.load(path.parent)  # compares the digests of the files


def outcome(command: str, root: Path) -> Any:
    """What must not depend on the kills."""
    import torch

    from ltr.models import RankingModel
    from recipes.results import read_curves

    if command == "sweep":
        results = json.loads((root / "results.json").read_text())["runs"]
        for run in results:  # the log has it after the checkpoint is written: a kill may lose it
            del run["curves"]["train_loss"]
        return [(run["name"], run["metrics"], run["curves"]) for run in results]
    # a run that was killed in its first epoch is not resumed: another one begins
    (last,) = root.glob("*/checkpoints/last.ckpt")
    files = sorted(last.parent.glob("[!.]*"))  # a killed process leaves hidden ones
    assert [file.name for file in files] == ["best.ckpt", "last.ckpt"]
    weights = [torch.load(file, weights_only=True)["state_dict"] for file in files]
    run = last.parents[1]
    weights.append(RankingModel.load(run / "model").state_dict())
    curves = read_curves(run)
    del curves["train_loss"]  # as above
    return [curves, *({name: value.tolist() for name, value in one.items()} for one in weights)]


def same_outcome(command: str, root: Path) -> None:
    assert outcome(command, root) == outcome(command, Path("whole"))
    assert not list(root.glob("**/.*.part"))


def main(command: str, folder: Path, wanted: int) -> None:
    os.chdir(folder)
    Path("own").mkdir()
    Path("own/config.yaml").write_text(CONFIG)
    Path("own_sweep.py").write_text(SWEEP)
    sys.path += [str(folder), str(Path(__file__).parents[2])]  # for the sweep, and recipes
    import_module("own_sweep")  # and with it all that `ltr fit` needs

    def args(root: Path) -> list[str]:
        if command == "sweep":
            return ["sweep", "--output", str(root), "--trainer.max_epochs", "8"]
        options = ["--trainer.default_root_dir", str(root), "--ckpt_path", "last"]
        return ["fit", "--config", "own", *options]

    seconds = finish(args(Path("whole")))
    draw, kills, number = random.Random(7), 0, 0
    while kills < wanted:
        root = Path(f"broken{number}")
        pid = start(args(root))
        time.sleep(draw.uniform(0, seconds / 2))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        files_are_whole(root)
        if os.WIFSIGNALED(status):
            kills += 1
        else:
            assert status == 0, Path("log.txt").read_text()[-3000:]
            same_outcome(command, root)
            number += 1
    finish(args(root))
    same_outcome(command, root)
    Path("kills.txt").write_text(str(kills))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
