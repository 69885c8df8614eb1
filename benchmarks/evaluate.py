"""The time of `evaluate` and of comparing two evaluations, by the number of lists.

    python benchmarks/evaluate.py

Lists have 5 to 15 rows. `evaluate` computes five metrics with their intervals, and `compare` tests
the difference of two evaluations, both with 10,000 resamples. The seconds are CPU time.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measure import RESULTS, environment, rounded, times, write

from ltr.reports import evaluate

METRICS = ["ndcg@10", "map", "mrr", "precision@5", "recall@10"]


def main() -> None:
    """Read the arguments, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    sizes = [2_000, 20_000, 200_000]
    parser.add_argument("--lists", type=int, nargs="+", default=sizes, help="how many, each size")
    parser.add_argument("--rounds", type=int, default=3, help="repeats")
    parser.add_argument("--output", type=Path, default=RESULTS / "evaluate.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    for lists in arguments.lists:
        draw = np.random.default_rng(0)
        qid = np.repeat(np.arange(lists), draw.integers(5, 16, lists))
        labels = draw.integers(0, 5, len(qid)) * (draw.random(len(qid)) < 0.3)
        scores = labels + draw.normal(size=len(qid))
        others = scores + 0.1 * draw.normal(size=len(qid))
        one, other = (evaluate(labels, x, qid, METRICS) for x in (scores, others))
        calls = {
            "evaluate": partial(evaluate, labels, scores, qid, METRICS),
            "compare": partial(one.compare, other),
        }
        seconds = {name: rounded(x) for name, x in times(calls, arguments.rounds).items()}
        print(f"{lists:,} lists, {len(qid):,} rows, CPU seconds: {seconds}", flush=True)
        results.append({"lists": lists, "rows": len(qid), "seconds": seconds})
    write(arguments.output, {"environment": environment(), "lists": results})


if __name__ == "__main__":
    main()
