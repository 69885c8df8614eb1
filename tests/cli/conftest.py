"""Running `ltr` in this process, on data and models that take no time."""

import hashlib
import os
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ltr.cli import main

TINY = """\
# A run of no time at all.
model:
  class_path: Ranker
  init_args:
    scorer: {class_path: MLPScorer, init_args: {hidden: [4], dropout: 0.5}}
    loss:
      class_path: SoftNDCG
      init_args: {operator: {class_path: SoftSort, init_args: {temperature: 0.3}}}
    metrics:
      ndcg_10: {class_path: NDCG, init_args: {top_k: 10}}
      mrr: {class_path: MRR}
data:
  class_path: DigitsDataModule
  init_args: {list_size: 4, train_lists: 10, val_lists: 4, test_lists: 5, batch_size: 2}
trainer:
  max_epochs: 2
  accelerator: cpu
  enable_model_summary: false
"""

# to be interrupted before a certain step: STOP_AT in the environment
STOPPER = """\
import os
from lightning.pytorch import Callback
from ltr.modules.checkpoints import train_steps


class Stopper(Callback):
    def on_train_batch_start(self, trainer, *args):
        run, _, step = os.environ.get("STOP_AT", "").partition(":")
        if run in trainer.default_root_dir.split(os.sep) and step == str(train_steps(trainer)):
            raise KeyboardInterrupt
"""


@dataclass
class Answer:
    """What a command came to."""

    code: int
    out: str
    err: str


Ltr = Callable[..., Answer]


@pytest.fixture
def ltr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ltr:
    """`ltr(...)` in an empty folder that has `tiny.yaml` and a callback that interrupts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("LTR_TRACEBACK", raising=False)
    for name in ("stopper", "own_loss"):  # modules that tests write
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    Path("tiny.yaml").write_text(TINY)
    Path("stopper.py").write_text(STOPPER)

    def run(*args: object) -> Answer:
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return Answer(code, out, err)

    return run


@pytest.fixture(scope="session")
def kept_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `fit_once` keeps the folders `runs`."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def fit_once(ltr: Ltr, kept_runs: Path) -> Callable[..., None]:
    """`fit_once(...)` is `ltr("fit", ...)`, but copies the runs of earlier tests that gave it."""

    def fit(*options: object) -> None:
        kept = kept_runs / hashlib.sha256(repr(options).encode()).hexdigest()
        if kept.exists():
            shutil.copytree(kept, "runs")
            return
        answer = ltr("fit", *options)
        assert answer.code == 0, answer.err
        shutil.copytree("runs", kept)

    return fit


def write_letor(path: Path, lists: int, features: int = 46, seed: int = 0) -> None:
    """A file of lists of three documents."""
    draw = random.Random(seed)
    lines = []
    for qid in range(lists):
        for doc, label in enumerate(draw.sample([0, 1, 2], 3)):
            pairs = " ".join(
                f"{i}:{draw.random() + label * (i == 1):.4f}" for i in range(1, features + 1)
            )
            lines.append(f"{label} qid:{qid} {pairs} #docid = D{qid}-{doc} inc = 1\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines))


@pytest.fixture(scope="session")
def letor_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as MQ2008's, with two folds."""
    root = tmp_path_factory.mktemp("letor")
    for fold in (1, 2):
        for number, (name, lists) in enumerate({"train": 40, "vali": 8, "test": 8}.items()):
            write_letor(root / f"Fold{fold}" / f"{name}.txt", lists, seed=10 * fold + number)
    return root


def make_table(path: Path, rows: int, seed: int = 0) -> pd.DataFrame:
    """A table of queries of about six rows, with missing values and a category, as CSV or Parquet.

    The rows of a query are not together.
    """
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "query": [f"q{i}" for i in rng.integers(0, rows // 6, rows)],
            "price": rng.normal(size=rows),
            "stock": np.where(rng.random(rows) < 0.3, np.nan, rng.poisson(3, rows)),
            "shop": rng.choice(["a", "b", "c"], rows),
            "sku": [f"S{i}" for i in range(rows)],
        }
    )
    frame["grade"] = (frame["price"] + (frame["shop"] == "b") > 0.5).astype(int)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return frame


@pytest.fixture(scope="session")
def write_table() -> Callable[..., pd.DataFrame]:
    """`write_table(path, rows, seed=0)`."""
    return make_table


@pytest.fixture(scope="session")
def table_options(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """The options of the recipe `table` for a small table."""
    folder = tmp_path_factory.mktemp("table")
    make_table(folder / "train.parquet", 300)
    make_table(folder / "test.csv", 60, seed=1)
    return [
        *("--data.path", folder / "train.parquet", "--data.test_path", folder / "test.csv"),
        *("--data.qid", "query", "--data.label", "grade", "--data.doc_id", "sku"),
        *("--data.validation", 0.2),
    ]
