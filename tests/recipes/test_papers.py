"""The papers' tables at full length: every cell is there once, and the runner resumes."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from filelock import FileLock

from recipes.papers import CELLS, command
from recipes.sweep import Sweep, _chosen


def test_the_cells_are_those_of_the_sweeps():
    for recipe in ("sort", "quantile", "knn"):
        sweep: Sweep = import_module(f"recipes.{recipe}.run").SWEEP
        runs = list(sweep.runs(["paper"]))
        names = [name for cell, only in CELLS if cell == recipe for name in only]
        chosen = _chosen(runs, names)  # an unknown name is an error
        trained = {run.variant for run in runs if run.fit and "options" not in run.point}
        left = trained - {run.variant for run in chosen}
        assert left <= {"SoftSort, 30 epochs", "kNN on autoencoder"}, left


@pytest.mark.slow  # four processes, each of which imports Lightning
def test_status_and_lock(tmp_path: Path, data_root: Path):
    words = [sys.executable, "-m", "recipes.papers", "--data", str(data_root)]
    words += ["--output", str(tmp_path)]
    said = subprocess.run([*words, "--status"], capture_output=True, text=True, check=True).stdout
    assert "softsort-n-3-seed-1: 100 of 100 epochs" in said  # it is in results-paper.json
    for recipe, lines in re.findall(r"^(\w+):\n(.*?)^core hours left: ", said, re.M | re.S):
        path = Path(__file__).parents[2] / "recipes" / recipe / "results-paper.json"
        runs = json.loads(path.read_text())["runs"] if path.exists() else []
        trained = {run["name"]: run.get("epochs", 0) for run in runs}
        epochs = re.findall(r"^(\S+): (\d+) of \d+ epochs$", lines, re.M)
        assert epochs
        assert epochs == [(name, str(trained.get(name, 0))) for name, _ in epochs]
    assert said.count("core hours left: ") == 3
    with FileLock(tmp_path / "lock"):
        refused = subprocess.run(words, capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr.endswith(f"--output is in use by another process: {tmp_path}\n")


def test_the_command_adds_to_the_committed_results():
    words = command("knn", ["CNN"], Path("data"), Path("out"))
    assert words[words.index("--results") + 1].endswith("recipes/knn/results-paper.json")
    assert words[-2:] == ["--only", "CNN"]
