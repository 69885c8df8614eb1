"""Measure where matrices end and kernel sums begin: `ENTRIES` in ltr/kernels/sums.py.

    python benchmarks/short_lists.py

Each operator takes its ranks forward and backward in both forms, and in the n x n form that a user
writes, in turns, in one thread, on float32 scores; the least CPU time of the turns counts. Lists
take matrices below the length in `LENGTHS`, and longer ones if their matrices together have at most
so many entries as `ENTRIES` says. `over naive` is the largest ratio to the user's form from 1 x 10
to 64 x 128, which should be at most 1.5. `loss` is the largest ratio, over all sizes, of the chosen
form's time to the faster form's. The best number of entries has the least ratio to the user's form
above 1.5, and then the least loss. A change of the constants by less than a factor of two is not
worth a commit. Takes a minute; writes benchmarks/results/short_lists.json.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from measure import KEPT, RESULTS, environment, rounded, write
from operators_contestants import contestants, scores_of, signs_of

from ltr.kernels import use
from ltr.kernels.sums import ENTRIES, LENGTHS

LISTS = (1, 4, 16, 64)
SIZES = (10, 20, 30, 40, 50, 64, 80, 100, 128, 160, 200, 250)
CHOICES = (0, *(2**power for power in range(12, 21)))
NAIVE = 128
"""The longest list that is compared with the user's form."""

OPERATORS = {
    "laplace": "LaplaceRank",
    "logistic": "SigmoidRank",
    "normal": "GaussianRank",
    "softsort 1": "SoftSortRank",
    "softsort 1, ranks": "SoftSort, power 1",
    "softsort 2": "SoftSort, power 2",
    "neuralsort": "NeuralSort",
}
"""The name of each kind of sum's operator among the contestants of operators.py."""

TURN = 0.01
"""The seconds of a turn, which is at least one call."""


def turn(function: Any, x: torch.Tensor, signs: torch.Tensor) -> float:
    """Return the least CPU time of the calls of one turn."""
    least, end = float("inf"), time.perf_counter() + TURN
    while True:
        start = time.process_time()
        torch.autograd.grad(function(x), x, signs)
        least = min(least, time.process_time() - start)
        if time.perf_counter() > end:
            return least


def measured(name: str, rounds: int) -> list[dict[str, Any]]:
    """Return the seconds of dense, sums and naive at each size."""
    known = {(one.name, one.group): one.function for one in contestants()}
    operator, naive = known[name, "compiled"], known[name, "naive"]
    found = []
    for lists in LISTS:
        for n in SIZES:
            x = scores_of(lists, n).requires_grad_()
            signs, row = signs_of(x), {"dense": float("inf"), "sums": float("inf")}
            row["naive"] = float("inf")
            for _ in range(rounds):
                for form in ("dense", "sums"):
                    with use(form):
                        row[form] = min(row[form], turn(operator, x, signs))
                row["naive"] = min(row["naive"], turn(naive, x, signs))
            found.append({"lists": lists, "n": n, **{k: rounded(v) for k, v in row.items()}})
    return found


def chosen(kind: str, row: dict[str, Any], entries: int) -> float:
    """Return the seconds of the form that lists take if matrices end after so many entries."""
    lists, n = row["lists"], row["n"]
    return row["dense" if n < LENGTHS[kind] or lists * n * n <= entries else "sums"]


def summary(kind: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the constant's numbers, and the best number of entries with its own."""

    def loss(entries: int) -> float:
        return max(chosen(kind, row, entries) / min(row["dense"], row["sums"]) for row in rows)

    def over_naive(entries: int) -> float:
        return max(chosen(kind, row, entries) / row["naive"] for row in rows if row["n"] <= NAIVE)

    best = min(CHOICES, key=lambda entries: (max(over_naive(entries), 1.5), loss(entries)))
    found = {}
    for name, entries in (("", ENTRIES.get(kind, 0)), ("best ", best)):
        found |= {f"{name}entries": entries, f"{name}loss": rounded(loss(entries))}
        found[f"{name}over naive"] = rounded(over_naive(entries))
    return found


def main() -> None:
    """Measure, print each choice with its loss, and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=list(OPERATORS), default=list(OPERATORS))
    parser.add_argument("--output", type=Path, default=RESULTS / "short_lists.json")
    options = parser.parse_args()
    if any(name not in os.environ for name in KEPT):  # as in operators.py
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEPT})
    torch.set_num_threads(1)
    result: dict[str, Any] = {"environment": environment(), "operators": {}}
    for kind in options.only:
        rows = measured(OPERATORS[kind], options.rounds)
        row = summary(kind, rows)
        print(kind, row, flush=True)
        result["operators"][kind] = {**row, "rows": rows}
    write(options.output, result)


if __name__ == "__main__":
    main()
