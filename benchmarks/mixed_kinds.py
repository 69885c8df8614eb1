"""Whether members of both kinds rank better together: bins, periodic embeddings, and their mean.

    LTR_DATA=data python benchmarks/mixed_kinds.py

`NeuralRanker` of five members of bins and one of three members with periodic embeddings are fitted
on each fold, as `NeuralRanker()` fits either. "chosen" is the one with the better NDCG@10 on the
validation lists, "mean" their mean, each divided by its spread on the validation lists, and
"weighed" is weighed on the validation lists as in a `Blend`. Each set and seed is one trial in
benchmarks/results/mixed_kinds.json; what is there is not run again.

Real tables vote: each has one vote, by the sign of the mean difference from "chosen". Generated
tables of 50,000 rows check. A mixed ensemble takes the seconds of both fits.
"""

import argparse
import json
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from generated_tables import generated_table
from measure import RESULTS, environment, rounded, write
from quality_sets import Fold, load
from quality_summary import spread, values

from ltr.estimators import NeuralRanker, parameters
from ltr.estimators.parameters import Kind
from ltr.estimators.weights import best_weights

RESULT = RESULTS / "mixed_kinds.json"
REAL = ("MQ2008", "LightGBM's example", "MSLR-WEB10K, part", "diabetes", "senses, 2,000", "OHSUMED")
CHECKS = ("steps", "noise", "pairs", "levels")
WAYS = ("bins", "periodic", "chosen", "mean", "weighed")


def ranker(kind: Kind, rows: int, lists: int, seed: int) -> NeuralRanker:
    """Return a ranker of one kind with the settings that `NeuralRanker()` has for it."""
    own = parameters.settings(NeuralRanker(), rows, lists, kind)
    names = ("scorer", "transform", "members", "learning_rate", "schedule", "max_epochs")
    return NeuralRanker(
        **{name: getattr(own, name) for name in names}, random_state=seed, verbose=0
    )


def scores_of(fold: Fold, kind: Kind, seed: int) -> dict[str, Any]:
    """Return the scores of validation and test lists, scaled, and the CPU seconds of the fit."""
    start = time.process_time()
    lists = {"eval_set": [(fold.val.X, fold.val.y)], "eval_qid": [fold.val.qid]}
    train = fold.train
    model = ranker(kind, len(train.y), len(train.lengths), seed)
    model.fit(train.X, train.y, qid=train.qid, **lists)
    found: dict[str, Any] = {"seconds": time.process_time() - start}
    sides = {"val": fold.val, "test": fold.test}
    found |= {side: model.predict(x.X).astype(float) for side, x in sides.items()}
    scale = 1 / spread(found["val"], fold.val.lengths)
    return found | {side: scale * found[side] for side in sides}


def trial(data: str, folds: list[Fold], seed: int) -> dict[str, Any]:
    """Return NDCG@10 of each way on a set."""
    lists: dict[str, list[np.ndarray]] = {way: [] for way in WAYS}
    seconds: dict[Kind, float] = {"bins": 0.0, "periodic": 0.0}
    for fold in folds:
        both = [scores_of(fold, kind, seed) for kind in seconds]
        for kind, one in zip(seconds, both, strict=True):
            seconds[kind] += one["seconds"]
        val, test = (np.array([one[side] for one in both]) for side in ("val", "test"))

        def on_validation(weights: np.ndarray, val: np.ndarray = val, fold: Fold = fold) -> Any:
            return values(weights @ val, fold.val.y, fold.val.lengths)

        alone = np.eye(2)
        best = int(np.argmax([on_validation(x).mean() for x in alone]))
        weights = [*alone, alone[best], np.full(2, 0.5), best_weights(2, on_validation)]
        for way, x in zip(WAYS, weights, strict=True):
            lists[way].append(values(x @ test, fold.test.y, fold.test.lengths))
    joined = {way: np.concatenate(x) for way, x in lists.items()}
    ways = {}
    for way, x in joined.items():
        gain = x - joined["chosen"]
        ways[way] = {
            "ndcg_10": rounded(float(x.mean())),
            "difference": round(float(gain.mean()), 5),
            "standard_error": round(float(gain.std(ddof=1) / len(gain) ** 0.5), 5),
        }
    spent = {kind: round(x, 1) for kind, x in seconds.items()}
    return {"data": data, "seed": seed, "seconds": spent, "ways": ways}


def summary(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the votes and the checks of each way."""
    found = {}
    for way in WAYS:
        votes = [x["ways"][way]["difference"] for x in trials if x["data"] in REAL]
        checks = {
            f"{x['data']}, seed {x['seed']}": x["ways"][way]["difference"]
            for x in trials
            if x["data"] not in REAL
        }
        mean = round(float(np.mean(votes)), 5) if votes else None
        counts = [sum(x > 0 for x in votes), sum(x < 0 for x in votes)]
        found[way] = {"votes": counts, "votes_mean": mean, "checks": checks}
    return found


def main() -> None:
    """Run the trials that are missing, and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", nargs="*", default=[*REAL, *CHECKS], choices=[*REAL, *CHECKS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[100])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    trials: list[dict[str, Any]] = []
    if arguments.output.exists():
        trials = json.loads(arguments.output.read_text())["trials"]
    for name, seed in product(arguments.data, arguments.seeds):
        data = name if name in REAL else f"{name}, {arguments.rows:,}"
        if not any((one["data"], one["seed"]) == (data, seed) for one in trials):
            real = name in REAL
            folds = load(name) if real else [generated_table(name, arguments.rows, seed)]
            trials.append(trial(data, folds, seed))
            print(json.dumps(trials[-1]), flush=True)
        found = {"environment": environment(), "summary": summary(trials), "trials": trials}
        write(arguments.output, found)


if __name__ == "__main__":
    main()
