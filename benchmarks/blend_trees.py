"""Which trees `Blend()` should fit: NDCG@10 of the blend by the rule that chooses them.

    LTR_DATA=data python benchmarks/blend_trees.py

One `NeuralRanker()` and eight fits of LightGBM are made of each fold: with the learning rate 0.1,
0.05 or 0.03, 15 or 31 leaves and the other settings of `Blend()`, and at 0.05 with all rows and
columns for each tree, of which `Blend()` draws four fifths. A rule takes some of the fits,
chooses by NDCG@10 of the validation lists, and is blended with the network as `Blend` does. Its
seconds are the CPU time of the fits that it needs. Each set and seed is one trial in
benchmarks/results/blend_trees.json; what is there is not run again.

Real tables vote: each has one vote, by the sign of the mean difference from today's rule. Generated
tables of 50,000 rows check a rule that the votes are for. A rule is taken if the checks are for it
too, on average, and the whole blend takes at most 1.3 times the seconds.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import torch
from generated_tables import generated_table
from measure import RESULTS, environment, rounded, write
from quality_sets import Fold, load
from quality_summary import spread, values

from ltr.estimators import NeuralRanker
from ltr.estimators.weights import best_weights

RESULT = RESULTS / "blend_trees.json"
REAL = ("MQ2008", "OHSUMED", "LightGBM's example", "MSLR-WEB10K, part", "diabetes", "senses, 2,000")
CHECKS = ("noise", "steps", "pairs", "levels")
ROWS = 50_000
RATES, LEAVES = (0.1, 0.05, 0.03), (15, 31)
TODAY = "0.05, leaves chosen"

Key = tuple[float, int, bool]
"""The learning rate, the leaves, and whether each tree gets all rows and columns."""

Fits = Mapping[Key, Mapping[str, Any]]


Choice = tuple[list[Key], set[Key]]
"""The fits that are averaged, and those that the rule needs."""


def _best(fits: Fits, keys: Iterable[Key]) -> Key:
    return max(keys, key=lambda key: fits[key]["quality"].mean())


def _at(rate: float, whole: bool = False) -> list[Key]:
    return [(rate, leaves, whole) for leaves in LEAVES]


def _of(fits: Fits, keys: Iterable[Key]) -> Choice:
    return [_best(fits, keys)], {*keys}


def _then(fits: Fits, first: float, later: float, keep: bool) -> Choice:
    """Choose the leaves at one rate, and fit them at another one too."""
    chosen = _best(fits, _at(first))
    other = later, chosen[1], False
    return [_best(fits, (chosen, other)) if keep else other], {*_at(first), other}


def _whole(fits: Fits, errors: float, both: bool) -> Choice:
    """Take all rows and columns if that gains more than so many standard errors."""
    chosen = _best(fits, _at(0.05))
    others = _at(0.05, whole=True) if both else [(0.05, chosen[1], True)]
    other = _best(fits, others)
    gain = fits[other]["quality"] - fits[chosen]["quality"]
    better = gain.mean() > errors * gain.std(ddof=1) / len(gain) ** 0.5
    return [other if better else chosen], {*_at(0.05), *others}


RULES: dict[str, Callable[[Fits], Choice]] = {
    TODAY: lambda fits: _of(fits, _at(0.05)),
    "0.1, leaves chosen": lambda fits: _of(fits, _at(0.1)),
    "0.03, leaves chosen": lambda fits: _of(fits, _at(0.03)),
    "0.05, then 0.03 if better": lambda fits: _then(fits, 0.05, 0.03, keep=True),
    "leaves chosen at 0.1, then 0.05": lambda fits: _then(fits, 0.1, 0.05, keep=False),
    "leaves chosen at 0.1, then 0.03": lambda fits: _then(fits, 0.1, 0.03, keep=False),
    "the best of six": lambda fits: _of(fits, [*_at(0.1), *_at(0.05), *_at(0.03)]),
    "0.05, the mean of both": lambda fits: (_at(0.05), {*_at(0.05)}),
    "0.03, the mean of both": lambda fits: (_at(0.03), {*_at(0.03)}),
    "all rows and columns, leaves chosen": lambda fits: _of(fits, _at(0.05, whole=True)),
    "all rows and columns if clearly better": lambda fits: _whole(fits, 2, both=False),
    "all rows and columns if clearly better, leaves chosen": lambda fits: _whole(fits, 2, True),
    "all rows and columns if better": lambda fits: _whole(fits, 0, both=False),
}
"""By their names: which fits are averaged, and which ones the rule needs."""


def trees(fold: Fold, rate: float, leaves: int, whole: bool) -> Any:
    """Return LightGBM as in `Blend()`, fitted; `whole` takes all rows and columns for each tree."""
    parts = {"subsample": 0.8, "subsample_freq": 1, "colsample_bytree": 0.8}
    model = lightgbm.LGBMRanker(
        num_leaves=leaves,
        learning_rate=rate,
        n_estimators=1000 if rate >= 0.05 else 2000,
        early_stopping_round=50,
        n_jobs=1,
        verbose=-1,
        **({} if whole else parts),
    )
    train, val = fold.train, fold.val
    lists = {"eval_set": [(val.X, val.y)], "eval_group": [val.lengths], "eval_at": [10]}
    return model.fit(train.X, train.y, group=train.lengths, **lists)


def fits_of(fold: Fold, seed: int) -> tuple[dict[str, Any], dict[Key, dict[str, Any]]]:
    """Return the network and the trees of a fold: their scores and CPU seconds."""
    sides = {"val": fold.val, "test": fold.test}
    start = time.process_time()
    network = NeuralRanker(random_state=seed, verbose=0)
    given = {"eval_set": [(fold.val.X, fold.val.y)], "eval_qid": [fold.val.qid]}
    network.fit(fold.train.X, fold.train.y, qid=fold.train.qid, **given)
    first: dict[str, Any] = {"seconds": time.process_time() - start}
    first |= {side: network.predict(x.X, x.qid).astype(float) for side, x in sides.items()}
    found = {}
    for key in [*product(RATES, LEAVES, [False]), *_at(0.05, whole=True)]:
        start = time.process_time()
        model = trees(fold, *key)
        one: dict[str, Any] = {"seconds": time.process_time() - start}
        one |= {side: model.predict(x.X) for side, x in sides.items()}
        one["quality"] = values(one["val"], fold.val.y, fold.val.lengths)
        found[key] = one
    return first, found


def blended(
    fold: Fold, network: Mapping[str, Any], fits: Fits, chosen: list[Key]
) -> tuple[np.ndarray, float]:
    """Return NDCG@10 of each test list for the blend with some of the fits, and its weight."""
    parts = {
        side: [network[side], np.mean([fits[key][side] for key in chosen], axis=0)]
        for side in ("val", "test")
    }
    scales = [1 / spread(x, fold.val.lengths) for x in parts["val"]]
    val, test = (np.array(parts[side]) * np.array(scales)[:, None] for side in ("val", "test"))
    weights = best_weights(2, lambda x: values(x @ val, fold.val.y, fold.val.lengths))
    return values(weights @ test, fold.test.y, fold.test.lengths), float(weights[1])


def trial(data: str, folds: list[Fold], seed: int) -> dict[str, Any]:
    """Return what each rule reaches on a set."""
    found: dict[str, dict[str, list[Any]]] = {
        name: {"lists": [], "seconds": [], "weights": []} for name in RULES
    }
    seconds = 0.0
    for fold in folds:
        network, fits = fits_of(fold, seed)
        seconds += network["seconds"] / len(folds)
        for name, rule in RULES.items():
            chosen, needed = rule(fits)
            lists, weight = blended(fold, network, fits, chosen)
            found[name]["lists"].append(lists)
            found[name]["weights"].append(round(weight, 2))
            found[name]["seconds"].append(sum(fits[key]["seconds"] for key in needed))
    today = np.concatenate(found[TODAY]["lists"])
    rules = {}
    for name, one in found.items():
        lists = np.concatenate(one["lists"])
        gain = lists - today
        rules[name] = {
            "ndcg_10": rounded(float(lists.mean())),
            "difference": round(float(gain.mean()), 5),
            "standard_error": round(float(gain.std(ddof=1) / len(gain) ** 0.5), 5),
            "seconds": round(float(np.mean(one["seconds"])), 2),
            "weights": one["weights"],
        }
    return {"data": data, "seed": seed, "network_seconds": round(seconds, 1), "rules": rules}


def summary(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the votes, the checks and the relative seconds of each rule."""
    found = {}
    for name in RULES:
        votes = [x["rules"][name]["difference"] for x in trials if x["data"] in REAL]
        checks = [x["rules"][name]["difference"] for x in trials if x["data"] not in REAL]
        ratio = [
            (x["network_seconds"] + x["rules"][name]["seconds"])
            / (x["network_seconds"] + x["rules"][TODAY]["seconds"])
            for x in trials
        ]
        found[name] = {
            "votes": [sum(x > 0 for x in votes), sum(x < 0 for x in votes)],
            "votes_mean": round(float(np.mean(votes)), 5) if votes else None,
            "checks": checks,
            "checks_mean": round(float(np.mean(checks)), 5) if checks else None,
            "times_seconds": round(float(np.mean(ratio)), 2),
        }
    return found


def main() -> None:
    """Run the trials that are missing, and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", nargs="*", default=[*REAL, *CHECKS], choices=[*REAL, *CHECKS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[100])
    parser.add_argument("--rows", type=int, default=ROWS)
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
        known = {**environment(), "lightgbm": lightgbm.__version__}
        write(
            arguments.output, {"environment": known, "summary": summary(trials), "trials": trials}
        )


if __name__ == "__main__":
    main()
