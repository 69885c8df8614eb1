"""Losses on soft ranks with their own operator and with the same one on standardized scores.

    LTR_DATA=... python benchmarks/standardized.py

One network of `NeuralRanker`'s defaults with each loss: on two generated tables of 30,000 rows (see
`soft_ndcg_trials.py`), and on the five folds of MQ2008. Each loss is judged by the metric that it
stands for, on the test lists. "graded" labels are the grades of the set; "relevant" ones are 1 for
a grade of 2 and more in generated lists, of which each has five, and for a grade of 1 and more in
MQ2008. An interrupted run resumes.
"""

import argparse
import itertools
import json
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import RESULTS, environment, write
from quality_sets import Fold, Lists
from soft_ndcg_trials import PLAIN, SIZES, folds, loss

from ltr.estimators import NeuralRanker
from ltr.metrics import functional

SIZES["generated, 30,000"] = 30_000
DATA = {"generated, 30,000": (100, 101), "MQ2008": (100,)}
"""The sets, and the seeds of the networks, and of the data where they are generated."""

RELEVANT = {"MQ2008": 1}
"""The lowest grade that counts as relevant, if not 2."""

METRICS = {
    "NDCG@10": partial(functional.ndcg, top_k=10),
    "NDCG@1": partial(functional.ndcg, top_k=1),
    "MRR": functional.mrr,
    "MAP": functional.average_precision,
    "P@5": partial(functional.precision, top_k=5),
}
SORTS = ("NeuralSort()", "Standardized(NeuralSort())")
RANKS = ("SigmoidRank()", "Standardized(SigmoidRank(0.3))")
SOFT = ("SoftSort()", "Standardized(SoftSort(0.3))")
LOSSES = {
    "SoftMRR({})": (RANKS, "relevant", "MRR"),
    "SoftMAP({})": (RANKS, "relevant", "MAP"),
    "SoftPrecision({}, top_k=5)": (RANKS, "relevant", "P@5"),
    "NeuralNDCG({})": (SORTS, "graded", "NDCG@10"),
    "TopKLoss({}, top_k=5)": (RANKS, "relevant", "P@5"),
    "TopKCrossEntropy({}, top_k=5)": (SOFT, "relevant", "P@5"),
    "PiRank({})": (SORTS, "graded", "NDCG@10"),
    "QuantileLoss({}, q=1.0)": (SOFT, "graded", "NDCG@1"),
}
"""Each loss: its own operator and the one on standardized scores, its labels, its metric."""


def labelled(part: Lists, kind: str, least: int) -> Lists:
    """Return the lists with labels of this kind."""
    return part if kind == "graded" else replace(part, y=(part.y >= least).astype(np.float32))


def measure(name: str, data: str, seed: int, kind: str, metric: str, **options: Any) -> dict:
    """Train on each fold, and return the mean metric of the test lists and the CPU seconds."""
    found, spent = [], 0.0
    for fold in folds(data, seed):
        parts = {
            x: labelled(getattr(fold, x), kind, RELEVANT.get(data, 2))
            for x in ("train", "val", "test")
        }
        one = Fold(**parts)
        given = {"members": 1, "loss": loss(name), "random_state": seed, **PLAIN, **options}
        ranker = NeuralRanker(verbose=0, **given)
        start = time.process_time()
        lists = {"qid": one.train.qid, "eval_qid": [one.val.qid]}
        ranker.fit(one.train.X, one.train.y, eval_set=[(one.val.X, one.val.y)], **lists)
        spent += time.process_time() - start
        scores = torch.from_numpy(ranker.predict(one.test.X))
        lengths = torch.from_numpy(one.test.lengths)
        labels = torch.from_numpy(one.test.y)
        each = METRICS[metric](scores, labels, lengths=lengths, reduction="none")
        found.append(each.double().numpy())
    value = round(float(np.concatenate(found).mean()), 4)
    return {"seed": seed, "test": value, "seconds": round(spent, 1)}


def main() -> None:
    """Train what is missing, and write each result when it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS / "standardized.json")
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=[*LOSSES])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    known = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
    rows = known.get("losses", {})
    for data, template in itertools.product(DATA, arguments.losses):
        operators, kind, metric = LOSSES[template]
        row = rows.setdefault(template, {"metric": metric, "labels": kind, "operators": {}})
        for operator in operators:
            done = row["operators"].setdefault(operator, {}).setdefault(data, [])
            for seed in DATA[data][len(done) :]:
                name = template.format(operator)
                done.append(measure(name, data, seed, kind, metric))
                print(data, name, metric, done[-1], flush=True)
                write(arguments.output, {**environment(), "losses": rows})


if __name__ == "__main__":
    main()
