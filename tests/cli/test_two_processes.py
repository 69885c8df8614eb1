"""`fit` and `test` in two processes under torchrun, against the same in one.

The file is also the program of the two processes: one start of them does all the work.
"""

import atexit
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from ltr.cli import main
from ltr.models import RankingModel

# Three processes import all that `ltr` needs, and run some fifteen commands. Among the fast tests,
# tests/modules/test_uneven.py trains in two processes.
pytestmark = pytest.mark.slow

STOPPER = """\
import os
from lightning.pytorch import Callback
from ltr.modules.checkpoints import train_steps


class Stopper(Callback):
    def on_train_batch_start(self, trainer, *args):
        if os.environ.get("STOP_AT") == str(train_steps(trainer)):
            raise KeyboardInterrupt
"""

CONFIG = """\
model:
  class_path: Ranker
  init_args:
    scorer: {class_path: MLPScorer, init_args: {hidden: [4], dropout: 0.0}}
    loss: {class_path: SoftNDCG}
trainer:
  max_epochs: 3
  accelerator: cpu
  precision: 64-true
  enable_model_summary: false
  enable_progress_bar: false
  log_every_n_steps: 1
  callbacks: [{class_path: stopper.Stopper}]
"""

BUCKETS = """\
model:
  init_args:
    scorer:
      class_path: AttentionScorer
      init_args: {hidden: [4], heads: 2, blocks: 1, dropout: 0.0}
"""


def write_letor(path: Path, lists: int, seed: int) -> None:
    """Lists of 1 to 9 documents."""
    draw = random.Random(seed)
    lines = []
    for qid in range(lists):
        for doc in range(draw.randint(1, 9)):
            label = draw.choice([0, 0, 1, 2])
            pairs = " ".join(f"{i}:{draw.gauss(label, 1):.4f}" for i in range(1, 6))
            lines.append(f"{label} qid:{qid} {pairs} # D{qid}-{doc}\n")
    path.write_text("".join(lines))


def write_table(path: Path, rows: int, seed: int) -> None:
    """A table whose rows are not together by query."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "query": rng.integers(0, rows // 6, rows),
            "price": rng.normal(size=rows),
            "shop": rng.choice(["a", "b", "c"], rows),
            "sku": [f"S{i}" for i in range(rows)],
            "grade": rng.integers(0, 3, rows),
        }
    )
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)


def prepare(folder: Path) -> None:
    """Write the data: an odd number of lists in each split."""
    (folder / "letor").mkdir()
    for seed, (name, lists) in enumerate({"train": 21, "vali": 7, "test": 5}.items()):
        write_letor(folder / "letor" / f"{name}.txt", lists, seed)
    write_table(folder / "train.parquet", 200, 0)
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "buckets.yaml").write_text(BUCKETS)
    (folder / "stopper.py").write_text(STOPPER)


def work(folder: Path, processes: int) -> None:
    """Run the commands; the runs and files are those of `folder / str(processes)`."""
    out = folder / str(processes)
    out.mkdir(exist_ok=True)
    batch = 8 // processes
    letor = ["--data", "TableDataModule", "--data.path", folder / "letor"]
    letor += ["--data.batch_size", batch]
    base = ["--config", folder / "config.yaml"]
    several = ["--trainer.devices", processes]
    several += ["--trainer.strategy", "ddp"] if processes > 1 else []

    def ltr(command: str, *args: object, code: int = 0) -> None:
        given = [command, *several, *args]
        found = main([str(one) for one in given])
        assert found == code, (command, args, found)

    last = ["--ckpt_path", "last"]
    buckets = ["--config", folder / "buckets.yaml"]
    for name, more in {"plain": [], "buckets": buckets}.items():
        options = [*base, *more, *letor, "--trainer.default_root_dir", out / name]
        ltr("fit", *options)
        ltr("test", *options, *last)
    # a run that is stopped in the middle of its second epoch, and resumed; in float32, to which
    # Lightning rounds the weights that it restores
    options = [*base, *letor, "--trainer.precision", "32-true", "--trainer.max_epochs", 2]
    ltr("fit", *options, "--trainer.default_root_dir", out / "whole")
    options += ["--trainer.default_root_dir", out / "resumed"]
    os.environ["STOP_AT"] = "5"
    ltr("fit", *options, code=130)
    del os.environ["STOP_AT"]
    ltr("fit", *options, *last)
    # a table, with a transform of rows and one of lists
    columns = ["--data.qid", "query", "--data.label", "grade", "--data.doc_id", "sku"]
    table = [*base, "--data", "TableDataModule", "--data.path", folder / "train.parquet"]
    table += [*columns, "--data.batch_size", batch]
    ranks = ["--data.transform", "TableTransform", "--data.transform.features", "RankPerList"]
    for name, more in {"rows": [], "lists": ranks}.items():
        options = [*table, *more, "--trainer.default_root_dir", out / name]
        ltr("fit", *options, "--data.validation", 0.2, "--trainer.max_epochs", 1)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    prepare(folder)
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, "-m", *torchrun, __file__, folder]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as two, pytest.MonkeyPatch.context() as patch:
        try:  # the one process meanwhile, since three starts take most of the time
            patch.syspath_prepend(folder)
            patch.delitem(sys.modules, "stopper", raising=False)
            work(folder, 1)
            said = two.communicate(timeout=500)
        finally:
            two.kill()
    assert two.returncode == 0, said[0][-3000:] + said[1][-5000:]
    return folder


def logged(run: Path, prefix: str) -> dict[str, list[float]]:
    """The values logged under names with a prefix, of all parts of a run."""
    files = sorted(run.glob("logs/version_*/metrics.csv"))
    table = pd.concat([pd.read_csv(file) for file in files])
    return {name: table[name].dropna().tolist() for name in table if name.startswith(prefix)}


@pytest.mark.parametrize("name", ["plain", "buckets"])
@pytest.mark.parametrize(("prefix", "values"), [("train_", 3), ("val_", 3), ("test_", 1)])
def test_losses_and_metrics(done, name, prefix, values):
    one, two = (logged(done / str(processes) / name / "1", prefix) for processes in (1, 2))
    assert len(one) >= (1 if prefix == "train_" else 4)
    assert one.keys() == two.keys()
    for metric, expected in one.items():
        assert len(expected) == values, metric
        assert two[metric] == pytest.approx(expected, abs=1e-6), metric


@pytest.mark.parametrize("name", ["plain", "buckets", "rows", "lists"])
def test_weights(done, name):
    one, two = (
        torch.load(done / str(n) / name / "1/checkpoints/last.ckpt", weights_only=True)
        for n in (1, 2)
    )
    assert one["global_step"] == two["global_step"]
    for key, value in one["state_dict"].items():
        torch.testing.assert_close(two["state_dict"][key], value, rtol=1e-4, atol=1e-5, msg=key)


@pytest.mark.parametrize("name", ["plain", "buckets", "rows", "lists"])
def test_the_model_is_that_of_one_process(done, name):
    one, two = (RankingModel.load(done / str(n) / name / "1/model") for n in (1, 2))
    assert one.schema == two.schema
    for key, value in one.state_dict().items():
        torch.testing.assert_close(two.state_dict()[key], value, rtol=1e-4, atol=1e-5, msg=key)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_resumed_run_equals_an_unbroken_one(done, processes):
    whole, resumed = (done / str(processes) / name / "1" for name in ("whole", "resumed"))
    one, two = (
        torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
        for run in (whole, resumed)
    )
    for key, value in one.items():
        assert torch.equal(two[key], value), key
    assert logged(resumed, "train_loss") == logged(whole, "train_loss")
    assert logged(resumed, "val_") == logged(whole, "val_")


def test_each_process_leaves_the_other_before_it_exits(done):
    ended = {path.name: path.read_text() for path in done.glob("ended-*")}
    assert ended == {"ended-0": "alone", "ended-1": "alone"}


def test_nothing_is_left_behind(done):
    for processes in (1, 2):
        folder = done / str(processes)
        assert not [*folder.rglob("*.ltr-partial")]
        # each fit made one run, and the resumed one went on in its own
        for name in ("plain", "buckets", "resumed", "rows", "lists"):
            assert [path.name for path in (folder / name).iterdir()] == ["1"]


def note_end(folder: Path) -> None:
    """Write whether the process is still in a group; registered first, so it runs last."""
    state = "in a group" if torch.distributed.is_initialized() else "alone"
    (folder / f"ended-{os.environ['RANK']}").write_text(state)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.path.append(sys.argv[1])
    atexit.register(note_end, Path(sys.argv[1]))
    work(Path(sys.argv[1]), 2)
