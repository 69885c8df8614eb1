"""Losses as objectives of LightGBM, beside its own: NDCG@10, paired tests, and training time.

    LTR_DATA=data nice -n 10 python benchmarks/boosting.py --cells runs/boosting
    nice -n 10 python benchmarks/boosting.py --cells runs/boosting --sets --rows 1000000

The sets and folds are those of `quality.py`. All methods have the same trees, learning rate and
seeds. The number of trees and of leaves is chosen on the validation lists. A cell is one method on
one set with one seed. Its scores are kept in the folder `--cells`, where a run resumes.
"""

import argparse
import json
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import torch
from lightgbm import LGBMRanker
from measure import RESULTS, environment, rounded, write
from quality_sets import SETS, Fold, load
from quality_summary import TREES, cell_path, summarize

from ltr.boosting import objective
from ltr.files import atomic_write
from ltr.losses import XENDCG, LambdaLoss, NeuralNDCG, SoftmaxLoss, SoftNDCG
from ltr.operators import NeuralSort, SigmoidRank

METHODS: dict[str, Any] = {
    f"{TREES}lambdarank": "lambdarank",
    f"{TREES}rank_xendcg": "rank_xendcg",
    "softmax": objective(SoftmaxLoss()),
    "XENDCG, random gammas": objective(XENDCG(gamma="random")),
    "SoftNDCG with SigmoidRank(1)": objective(SoftNDCG(SigmoidRank(1.0))),
    "LambdaLoss": objective(LambdaLoss()),
    "NeuralNDCG": objective(NeuralNDCG(NeuralSort(1.0))),
}

COLUMNS, LENGTH, TREES_TIMED = 46, 120, 3


def trees(chosen: Any, leaves: int, seed: int, count: int, patience: int) -> LGBMRanker:
    """Return LightGBM's ranker that stops on the validation lists."""
    return LGBMRanker(
        objective=chosen,
        num_leaves=leaves,
        n_estimators=count,
        learning_rate=0.1,
        subsample=0.8,
        subsample_freq=1,
        colsample_bytree=0.8,
        metric="ndcg",
        eval_at=[10],
        early_stopping_round=patience,
        random_state=seed,
        n_jobs=1,
        verbose=-1,
    )


def run(path: Path, folds: list[Fold], chosen: Any, leaves: list[int], seed: int) -> None:
    """Train one method on all folds of a set with one seed, and keep the scores."""
    scores: dict[str, list[list[np.ndarray]]] = {
        side: [[] for _ in leaves] for side in ("val", "test")
    }
    seconds = 0.0
    for fold, (position, number) in product(folds, enumerate(leaves)):
        ranker = trees(chosen, number, seed, 300, 30)
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            warnings.filterwarnings("ignore", module="lightgbm")
            ranker.fit(
                fold.train.X,
                fold.train.y,
                group=fold.train.lengths,
                eval_set=[(fold.val.X, fold.val.y)],
                eval_group=[fold.val.lengths],
            )
            seconds += time.process_time() - start
            for side, lists in (("val", fold.val), ("test", fold.test)):
                scores[side][position].append(np.asarray(ranker.predict(lists.X), np.float32))
    val, test = (np.stack([np.concatenate(x) for x in found]) for found in scores.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial_file, partial_file.open("wb") as file:
        np.savez_compressed(file, val=val, test=test, seconds=np.array([seconds]))
    print(f"{path}: {seconds:.0f} s", flush=True)


def training_times(rows: int, methods: list[str]) -> dict[str, Any]:
    """Return the CPU seconds of a tree over so many rows, one thread, and the ratio to lambdarank.

    Lists of 120 rows of 46 columns, trees of 31 leaves. The table is binned once, outside.
    """
    rng = np.random.default_rng(0)
    count = -(-rows // LENGTH)
    X = rng.normal(size=(count * LENGTH, COLUMNS)).astype(np.float32)
    y = np.clip((X[:, 0] + X[:, 1] + rng.normal(size=len(X))) // 1, 0, 4)
    options = {"verbose": -1, "num_threads": 1, "num_leaves": 31, "metric": "None"}
    data = lightgbm.Dataset(X, y, group=np.full(count, LENGTH), params=options).construct()
    few = min(50, count)
    rows = few * LENGTH
    small = lightgbm.Dataset(X[:rows], y[:rows], group=np.full(few, LENGTH), params=options)
    found: dict[str, Any] = {}
    for name in methods:
        chosen = METHODS[name]
        if not isinstance(chosen, str):
            given = chosen

            def chosen(scores: np.ndarray, lists: lightgbm.Dataset, given: Any = given) -> Any:
                return given(lists.get_label(), scores, None, lists.get_group())

        lightgbm.train({**options, "objective": chosen}, small, 2)  # compiles what is compiled
        start = time.process_time()
        lightgbm.train({**options, "objective": chosen}, data, TREES_TIMED)
        found[name] = rounded((time.process_time() - start) / TREES_TIMED)
        print(f"{name}: {found[name]} s a tree", flush=True)
    first = found[f"{TREES}lambdarank"]
    return {
        "rows": len(X),
        "columns": COLUMNS,
        "list": LENGTH,
        "trees": TREES_TIMED,
        "seconds_a_tree": found,
        "times_lambdarank": {name: rounded(x / first) for name, x in found.items()},
    }


def main() -> None:
    """Read the arguments, run the cells that are missing, write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cells", type=Path, required=True, help="the folder of the cells")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--leaves", type=int, nargs="+", default=[7])
    parser.add_argument("--sets", nargs="*", default=[*SETS], choices=SETS)
    parser.add_argument("--methods", nargs="+", default=[*METHODS], choices=METHODS)
    parser.add_argument("--rows", type=int, default=0, help="of the table that is timed; 0: none")
    parser.add_argument("--output", type=Path, default=RESULTS / "boosting.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    known = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
    sets = {one["set"]: one for one in known.get("sets", [])}
    result = {
        "environment": {**environment(), "lightgbm": lightgbm.__version__},
        "seeds": arguments.seeds,
        "leaves": arguments.leaves,
        "sets": sets,
        "times": known.get("times"),
    }
    if arguments.rows:
        result["times"] = training_times(arguments.rows, arguments.methods)
        write(arguments.output, {**result, "sets": [*sets.values()]})
    for data in arguments.sets:
        folds = load(data)
        for name, seed in product(arguments.methods, range(arguments.seeds)):
            path = cell_path(arguments.cells, data, name, seed)
            if not path.exists():
                run(path, folds, METHODS[name], arguments.leaves, seed)
            choices = dict.fromkeys(METHODS, arguments.leaves)
            beside = [one for one in METHODS if not one.startswith(TREES)]
            sets[data] = summarize(folds, arguments.cells, data, choices, arguments.seeds, beside)
            write(arguments.output, {**result, "sets": [*sets.values()]})


if __name__ == "__main__":
    main()
