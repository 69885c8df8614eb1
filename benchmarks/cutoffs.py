"""The time of `cutoff` and `evaluate_clickwise` on a million rows in lists of ten.

    python benchmarks/cutoffs.py

The seconds are CPU time.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
from measure import RESULTS, environment, rounded, times, write

from ltr.clicks import evaluate_clickwise
from ltr.rerank import cutoff


def main() -> None:
    """Read the arguments, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--output", type=Path, default=RESULTS / "cutoffs.json")
    arguments = parser.parse_args()
    draw = np.random.default_rng(0)
    qid = np.arange(arguments.rows) // 10
    labels = draw.random(arguments.rows) < 0.3
    scores = labels + draw.normal(size=arguments.rows)
    logged = 1 / (1 + np.arange(arguments.rows) % 10)
    clicks = draw.random(arguments.rows) < logged * 0.3
    reward = draw.exponential(size=arguments.rows)
    log = clicks, logged, logged[::-1], qid
    calls = {
        "cutoff, scores": partial(cutoff, scores, labels, qid),
        "cutoff, documents": partial(cutoff, scores, labels, qid, of="documents"),
        "cutoff, recall": partial(cutoff, scores, labels, qid, loss="recall"),
        "evaluate_clickwise": partial(evaluate_clickwise, *log, reward=reward, predicted=reward),
    }
    seconds = {name: rounded(x) for name, x in times(calls, 1).items()}
    print(seconds, flush=True)
    write(
        arguments.output,
        {"environment": environment(), "rows": arguments.rows, "seconds": seconds},
    )


if __name__ == "__main__":
    main()
