"""What merging grades gains over the majority of simulated judges, and the time of a million rows.

    python benchmarks/judges.py

2,000 rows with grades 0 to 3 of frequencies .5, .25, .15 and .1. A judge knows the true grade with
the given probability, else guesses one of the four. "right" is the fraction of rows with the true
grade (the least one of equally frequent grades), "error" the root mean squared error of float
labels: the posterior mean, and the mean of the judges' grades. Means over the repeats; the seconds
are CPU time.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measure import RESULTS, environment, rounded, times, write

from ltr.reports import agreement, grades_needed, merge_grades

JUDGES = {
    "two 70 % judges": [0.7, 0.7],
    "three 70 % judges": [0.7] * 3,
    "five 70 % judges": [0.7] * 5,
    "one 90 % judge, four 40 % judges": [0.9, 0.4, 0.4, 0.4, 0.4],
    "five judges, 40 to 90 %": [0.9, 0.7, 0.6, 0.5, 0.4],
}
FREQUENCIES = [0.5, 0.25, 0.15, 0.1]


def draw(rows: int, known: list[float], seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the true grades and those of each judge."""
    rng = np.random.default_rng(seed)
    true = rng.choice(4, rows, p=FREQUENCIES)
    judges = [np.where(rng.random(rows) < p, true, rng.integers(0, 4, rows)) for p in known]
    return true, {f"judge {i}": x for i, x in enumerate(judges)}


def gains(rows: int, known: list[float], repeats: int) -> dict[str, float]:
    """Return how good the merged grades are, beside the majority and the mean."""
    found = []
    for seed in range(repeats):
        true, judges = draw(rows, known, seed)
        merged = merge_grades(judges)
        table = np.stack([*judges.values()])
        majority = (table[:, :, None] == np.arange(4)).sum(0).argmax(1)
        errors = [np.sqrt(((x - true) ** 2).mean()) for x in (merged.labels, table.mean(0))]
        found.append([(merged.best == true).mean(), (majority == true).mean(), *errors])
    names = ["right, merged", "right, majority", "error, merged", "error, mean"]
    return dict(zip(names, map(rounded, np.mean(found, 0).tolist()), strict=True))


def main() -> None:
    """Read the arguments, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the large table")
    parser.add_argument("--repeats", type=int, default=20, help="simulations of the judges")
    parser.add_argument("--output", type=Path, default=RESULTS / "judges.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    simulated = {name: gains(2000, known, arguments.repeats) for name, known in JUDGES.items()}
    for name, found in simulated.items():
        print(name, found, flush=True)
    true, judges = draw(arguments.rows, [0.9, 0.6, 0.4], 0)
    qid = np.arange(arguments.rows) // 10
    rng = np.random.default_rng(0)
    systems = {f"s{i}": true + (1 + i) * rng.normal(size=len(true)) for i in range(3)}
    calls = {
        "agreement": partial(agreement, judges, qid=qid),
        "agreement, 3 systems": partial(agreement, judges, qid=qid, systems=systems),
        "grades_needed, 3 systems": partial(grades_needed, true, systems, qid),
        "merge_grades": partial(merge_grades, judges, qid),
    }
    seconds = {name: rounded(x) for name, x in times(calls, 1).items()}
    print(seconds, flush=True)
    large = {"rows": arguments.rows, "judges": len(judges), "seconds": seconds}
    write(arguments.output, {"environment": environment(), "simulated": simulated, "large": large})


if __name__ == "__main__":
    main()
