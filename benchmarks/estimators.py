"""NeuralRanker beside LightGBM's LGBMRanker and a bare loop: CPU time and NDCG@10.

    python benchmarks/estimators.py
    python benchmarks/estimators.py --rows 1000000 --turns 1

The table is made up: lists of 5 to 35 rows, 26 columns of numbers (a third each normal, with a long
tail, and counts; every fourth with missing values) and 4 of categories. Grades from 0 to 4 depend
on half of the columns, by linear, periodic, product, threshold and category terms, and on noise.
The test set has 20,000 rows of other queries.

Both run in one thread of one process and take turns, after a small `fit` of each that does not
count, in which NeuralRanker imports what it needs (`import_seconds`). Both have their defaults.
NeuralRanker holds out a fifth of its queries for early stopping; LGBMRanker trains on all. The
numbers are medians over the turns, each with its own seed of NeuralRanker. `epochs` is how many
NeuralRanker trained, and `peak_gib` the most memory that the process had held by then. The file
keeps its other numbers of rows.

The bare loop has the layers and the optimizer of NeuralRanker's default, a squared error for the
loss, no validation, and in memory the numbers that the transform gives, the documents packed one
after the other. It gets batches of as many documents. An epoch of one and an epoch of the other
take turns on the table of 20,000 rows; the ratio is the median over them.
"""

import argparse
import copy
import json
import resource
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import torch
from measure import RESULTS, environment, rounded, write
from torch.nn.functional import mse_loss

from ltr.datasets import read_table
from ltr.estimators import NeuralRanker
from ltr.metrics.functional import ndcg

LEVELS = (4, 8, 20, 50)
TEST_ROWS = 20_000
GOAL = 1.25


def made(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return a table of about as many rows, the grades and the sorted queries of its rows."""
    world, rng = np.random.default_rng(0), np.random.default_rng([1, seed])
    sizes = rng.integers(5, 36, max(2, rows // 20))
    qid = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=(len(qid), 26))
    kinds = [x, np.exp(x), np.floor(np.exp(x + 1))]
    columns: dict[str, Any] = {f"f{j}": kinds[j % 3][:, j] for j in range(26)}
    signal = x[:, :8] @ world.normal(size=8) / 2 + np.sin(2 * x[:, 8]) + 0.7 * x[:, 9] * x[:, 10]
    signal += 1.2 * (x[:, 11] > 0.5) - np.abs(x[:, 12])
    for position, levels in enumerate(LEVELS):
        code = rng.integers(0, levels, len(qid))
        signal += 0.5 * world.normal(size=levels)[code]
        columns[f"c{position}"] = pd.Categorical.from_codes(code, [f"v{i}" for i in range(levels)])
    signal += rng.normal(size=len(qid), scale=2)
    y = np.searchsorted([0.0, 1.7, 3.3, 4.8], signal)
    table = pd.DataFrame(columns)
    for j in range(0, 26, 4):
        table.loc[rng.random(len(qid)) < 0.15, f"f{j}"] = np.nan
    return table, y, qid


def quality(scores: np.ndarray, y: np.ndarray, qid: np.ndarray) -> float:
    """Return the mean NDCG@10 of the lists, of both contestants by the same code."""
    lengths = torch.from_numpy(np.bincount(qid))
    values = (torch.from_numpy(np.asarray(x, dtype=np.float32)) for x in (scores, y))
    return float(ndcg(*values, lengths=lengths, top_k=10))


def fit_trees(X: pd.DataFrame, y: np.ndarray, qid: np.ndarray, seed: int) -> Any:
    """Return LightGBM's ranker with its defaults."""
    ranker = lightgbm.LGBMRanker(n_jobs=1, verbose=-1, random_state=seed)
    return ranker.fit(X, y, group=np.bincount(qid))


def fit_networks(X: pd.DataFrame, y: np.ndarray, qid: np.ndarray, seed: int) -> Any:
    """Return our ranker with its defaults."""
    return NeuralRanker(random_state=seed, verbose=0).fit(X, y, qid=qid)


CONTESTANTS = {"LGBMRanker": fit_trees, "NeuralRanker": fit_networks}


def measured(rows: int, turns: int) -> dict[str, Any]:
    """Return the time and the quality of each contestant on a table of this size."""
    X, y, qid = made(rows, seed=0)
    new = made(TEST_ROWS, seed=1)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
    for turn in range(turns):
        for name, fit in CONTESTANTS.items():
            start = time.process_time()
            ranker = fit(X, y, qid, turn)
            fitted = time.process_time()
            scores = ranker.predict(new[0])
            done = time.process_time()
            one = {
                "fit_seconds": fitted - start,
                "predict_seconds": done - fitted,
                "ndcg_10": quality(scores, *new[1:]),
            }
            if isinstance(ranker, NeuralRanker):
                one["epochs"] = ranker.n_iter_
            one["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            found[name].append(one)
            print(rows, turn, name, {key: rounded(value) for key, value in one.items()}, flush=True)
    result: dict[str, Any] = {"rows": len(X), "lists": int(qid[-1]) + 1, "columns": X.shape[1]}
    result["turns"] = turns
    for name, several in found.items():
        keys = several[0]
        result[name] = {key: rounded(statistics.median(x[key] for x in several)) for key in keys}
    times = [result[name]["fit_seconds"] for name in ("NeuralRanker", "LGBMRanker")]
    return {**result, "fit_ratio": rounded(times[0] / times[1])}


class BareLoop:
    """Runs an epoch of the bare loop after each one of `fit`, and times both.

    Args:
        ranker: fitted on the table, for its layers and its transform.
        features: (rows, d), as the transform gives them.
        labels: (rows,).
        batches: in an epoch.
    """

    def __init__(
        self, ranker: NeuralRanker, features: torch.Tensor, labels: torch.Tensor, batches: int
    ) -> None:
        self.layers = copy.deepcopy(ranker.scorer_.copies).train()
        self.data = [*zip(features.chunk(batches), labels.chunk(batches), strict=True)]
        self.optimizer = torch.optim.AdamW(self.layers.parameters(), fused=True)
        self.seconds: dict[str, list[float]] = {"fit": [], "bare": []}
        self.started: float | None = None

    def __call__(self, history: list[list[float]]) -> None:
        """Stop the clock of `fit`, run the bare loop, start it again."""
        start = time.process_time()
        if self.started is not None:  # the first epoch comes after the table is read
            self.seconds["fit"].append(start - self.started)
        for features, labels in self.data:
            self.optimizer.zero_grad()
            scores: Any = [layers(features) for layers in self.layers]
            sum(mse_loss(one, labels) for one in scores).backward()
            self.optimizer.step()
        if self.started is not None:
            self.seconds["bare"].append(time.process_time() - start)
        self.started = time.process_time()


def beside_bare_loop(epochs: int) -> dict[str, Any]:
    """Return the seconds of an epoch of `fit` and of the bare loop, and their ratio."""
    X, y, qid = made(20_000, seed=0)
    options: dict[str, Any] = {"validation": 0, "random_state": 0, "verbose": 0}
    ranker = NeuralRanker(max_epochs=1, **options).fit(X, y, qid=qid)
    lists = read_table(X.assign(qid=qid, y=y), replace(ranker.schema_, qid="qid", label="y"))
    assert lists.categories is not None
    with torch.no_grad():
        features = ranker.transform_(
            torch.from_numpy(lists.features), categories=torch.from_numpy(lists.categories)
        )
    batches = -(-len(lists) // ranker.batch_size)
    bare = BareLoop(ranker, features, torch.from_numpy(lists.labels), batches)
    NeuralRanker(max_epochs=epochs, **options).fit(X, y, qid=qid, callbacks=[bare])
    turns = zip(bare.seconds["fit"], bare.seconds["bare"], strict=True)
    ratio = statistics.median(own / other for own, other in turns)
    print(f"an epoch takes {ratio:.2f} times the CPU time of the bare loop")
    found = {f"{name}_seconds": rounded(statistics.median(x)) for name, x in bare.seconds.items()}
    return {"epochs": epochs, **found, "ratio": rounded(ratio), "goal": GOAL}


def main() -> None:
    """Read the arguments, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=15, help="beside the bare loop, >= 2")
    parser.add_argument("--output", type=Path, default=RESULTS / "estimators.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    X, y, qid = made(400, seed=2)
    fit_trees(X, y, qid, 0)
    start = time.process_time()
    NeuralRanker(members=1, max_epochs=1, verbose=0).fit(X, y, qid=qid)
    seconds = rounded(time.process_time() - start)
    sizes = [measured(rows, arguments.turns) for rows in arguments.rows]
    others = []
    if arguments.output.exists():
        own = {size["rows"] for size in sizes}
        known = json.loads(arguments.output.read_text())["sizes"]
        others = [size for size in known if size["rows"] not in own]
    versions = {**environment(), "lightgbm": lightgbm.__version__}
    result = {"environment": versions, "import_seconds": seconds}
    result["bare_loop"] = beside_bare_loop(arguments.epochs)
    write(arguments.output, {**result, "sizes": sorted(sizes + others, key=lambda x: x["rows"])})


if __name__ == "__main__":
    main()
