"""The time of slices of queries, and how often the interval of a slice holds the true mean.

    python benchmarks/slices.py

One million rows in lists of ten, of 100 slices of equal probability; three metrics with 10,000
resamples; the seconds are CPU time. Coverage: samples of a few lists with a known mean, and how
often the 95 % interval contains it.
"""

import argparse
import resource
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measure import RESULTS, environment, rounded, times, write

from ltr.metrics.comparison import mean_interval
from ltr.reports import evaluate

METRICS = ["ndcg@10", "map", "mrr"]
LAWS = {
    "ndcg: beta, 10 % zeros": lambda draw, n: draw.beta(1.2, 0.9, n) * (draw.random(n) < 0.9),
    "mrr: 1 / geometric": lambda draw, n: 1 / draw.geometric(0.5, n),
    "hit rate: 80 %": lambda draw, n: (draw.random(n) < 0.8) * 1.0,
}


def coverage(lists: int, repeats: int) -> dict[str, float]:
    """Return the fraction of intervals that hold the true mean, for each law of the values."""
    found = {}
    for name, law in LAWS.items():
        draw = np.random.default_rng(0)
        true = law(draw, 2_000_000).mean()
        intervals = (mean_interval(law(draw, lists), resamples=1000) for _ in range(repeats))
        found[name] = rounded(np.mean([x.low <= true <= x.high for x in intervals]))
    return found


def main() -> None:
    """Read the arguments, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the large table")
    parser.add_argument("--slices", type=int, default=100, help="slices of the large table")
    parser.add_argument("--repeats", type=int, default=2000, help="samples for the coverage")
    parser.add_argument("--output", type=Path, default=RESULTS / "slices.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    covered = {n: coverage(n, arguments.repeats) for n in (5, 10, 15, 20, 30, 50)}
    print(covered, flush=True)
    draw = np.random.default_rng(0)
    lists = arguments.rows // 10
    qid = np.repeat(np.arange(lists), 10)
    labels = draw.integers(0, 5, len(qid)) * (draw.random(len(qid)) < 0.3)
    scores = labels + draw.normal(size=len(qid))
    others = scores + draw.normal(size=len(qid))
    names = np.array([f"slice {i}" for i in range(arguments.slices)])
    by = {"segment": names[draw.integers(0, arguments.slices, lists)][qid]}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    one, other = (evaluate(labels, x, qid, METRICS, by=by) for x in (scores, others))
    calls = {
        "evaluate": partial(evaluate, labels, scores, qid, METRICS),
        "evaluate by": partial(evaluate, labels, scores, qid, METRICS, by=by),
        "compare_slices, one metric": partial(one.compare_slices, other),
    }
    seconds = {name: rounded(x) for name, x in times(calls, 1).items()}
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(seconds, f"{grown:.0f} MiB", flush=True)
    result = {"rows": arguments.rows, "slices": arguments.slices, "seconds": seconds}
    result["MiB beyond the columns"] = round(grown)
    write(arguments.output, {"environment": environment(), "coverage": covered, "large": result})


if __name__ == "__main__":
    main()
