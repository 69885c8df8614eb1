"""A small ranker and its exported folder."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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


_VALUES = [None, True, -1, 0.5, 2**62, 10**30, "", "x", "x" * 10_000, "a.b", [], [None], {}]
_VALUES += [{"class_path": "torch.nn.Linear"}, {"class_path": 3}, {"function": "os.abort"}]
_VALUES += [{"float": []}, {"dict": [[{}, 1]]}, {"dict": [[{"dict": []}, 1]]}, {"x": {}}]
_TEXTS = [
    "[" * 100_000 + "]" * 100_000,
    '{"a":' * 500 + "1" + "}" * 500,
    "9" * 5000,
    "1e999",
    "NaN",
]
_GONE = object()


@pytest.fixture(scope="session")
def mutations() -> Callable[[Any], Iterator[str]]:
    """A function that gives JSON in which one key, at any depth, is gone or has another value."""

    def positions(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        yield at
        keys = range(len(value)) if isinstance(value, list) else value
        for key in keys if isinstance(value, dict | list) else ():
            yield from positions(value[key], (*at, key))

    def changed(value: Any, at: tuple[Any, ...], new: Any) -> Any:
        if not at:
            return new
        copy = dict(value) if isinstance(value, dict) else list(value)
        if len(at) == 1 and new is _GONE:
            del copy[at[0]]
        else:
            copy[at[0]] = changed(value[at[0]], at[1:], new)
        return copy

    def mutate(content: Any) -> Iterator[str]:
        for at in positions(content):
            if at:
                yield json.dumps(changed(content, at, _GONE))
            for new in _VALUES:
                yield json.dumps(changed(content, at, new))
            text = json.dumps(changed(content, at, "@"))
            for new in _TEXTS:
                yield text.replace('"@"', new)

    return mutate
