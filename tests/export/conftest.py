"""A small ranker and its exported folder."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ltr.estimators import NeuralRanker
from ltr.models import MLPScorer


@pytest.fixture(scope="session")
def table() -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rows, rng = 240, np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "price": rng.normal(size=rows),
            "stock": np.where(rng.random(rows) < 0.3, np.nan, rng.poisson(3, rows)),
            "shop": rng.choice(["a", "b", None], rows),
            "new": rng.random(rows) < 0.5,
        }
    )
    y = (X["price"] > 0).to_numpy() + 2 * (X["shop"] == "b").to_numpy()
    return X, y.astype(int), np.arange(rows) // 6


@pytest.fixture(scope="session")
def ranker(table) -> NeuralRanker:
    X, y, qid = table
    small = NeuralRanker(
        members=2, max_epochs=2, scorer=MLPScorer(hidden=(8,)), verbose=0, random_state=0
    )
    return small.fit(X, y, qid=qid)


@pytest.fixture(scope="session")
def folder(table, ranker, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("exported")
    X, y, qid = table
    written = ranker.export(path, test=(X, y, qid))
    assert written.model == path / "model.onnx"
    assert written.difference < 1e-6
    return path


@pytest.fixture(scope="session")
def alone() -> Callable[[str, Path], str]:
    """Run code in a process that can import ltr only from the folder where it runs."""

    def run(code: str, cwd: Path) -> str:
        start = (
            "import os, sys\n"
            "there = lambda path: os.path.exists(os.path.join(path, 'ltr', '__init__.py'))\n"
            "sys.path = [path for path in sys.path if not there(path)]\n"
        )
        command = [sys.executable, "-c", start + code]
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
