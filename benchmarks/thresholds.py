"""Measure where matrices end and kernel sums begin, and write `ltr/kernels/thresholds.py`.

    python benchmarks/thresholds.py

Each operator takes its ranks forward and backward in both forms, in turns, in one thread, compiled
and plain, in float32 and float64. The least time of the turns counts. The threshold is the pair of
numbers with the least loss: the largest ratio of the chosen form's time to the other's.
SinkhornSort takes strips in place of sums, and its threshold is the number of rows at which they
are as fast. Takes ten minutes.
"""

import argparse
import itertools
import math
import os
import re
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import torch
from measure import KEPT
from operators_contestants import NEURALSORT, TEMPERATURE, scores_of, signs_of
from torch import Tensor

import ltr.kernels.thresholds
from ltr.kernels import use
from ltr.kernels.choice import Form, computed_by
from ltr.kernels.reference import REFERENCE
from ltr.kernels.thresholds import ROWS, THRESHOLDS, Operator, Threshold
from ltr.operators import (
    GaussianRank,
    LaplaceRank,
    NeuralSort,
    RankOperator,
    SigmoidRank,
    SinkhornSort,
    SoftSort,
    SoftSortRank,
)

SIZES = {
    1: [10, 20, 40, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000],
    16: [10, 40, 100, 200, 400],
    64: [10, 20, 40, 70, 100, 128, 200],
    256: [10, 30, 60, 100, 200],
    1024: [10, 30, 60, 100],
    4096: [10, 20, 40],
    20_000: [10, 30],
}
LENGTHS = [0, 4, 8, 16, 24, 32, 48, 64, 100, 150, 200, 300, 500, 1000]
OPERATORS: dict[Operator, RankOperator] = {
    "laplace": LaplaceRank(TEMPERATURE),
    "logistic": SigmoidRank(TEMPERATURE),
    "neuralsort": NeuralSort(NEURALSORT),
    "normal": GaussianRank(TEMPERATURE),
    "softsort": SoftSort(TEMPERATURE, power=1.5),
    "softsort 1": SoftSortRank(TEMPERATURE),
    "softsort 1 ranks": SoftSort(TEMPERATURE),
    "softsort 2": SoftSort(TEMPERATURE, power=2),
}
SQUARES = [200, 250, 300, 350, 400, 500, 700]
"""Lengths of lists for SinkhornSort, with a row for each item."""

TURN = 0.01
"""The seconds of a turn, which is at least one call."""

Times = dict[tuple[int, int], dict[Form, float]]


def measured(operator: RankOperator, compiled: bool, double: bool, rounds: int) -> Times:
    """Return the seconds of both forms for each number of lists and length."""
    found: Times = {}
    for lists, lengths in SIZES.items():
        for n in lengths:
            x = scores_of(lists, n).to(torch.float64 if double else torch.float32)
            x.requires_grad_()
            signs, best = signs_of(x), dict.fromkeys(("dense", "sums"), float("inf"))
            for _ in range(rounds):
                for form in ("dense", "sums"):
                    best[form] = min(best[form], turn(operator, x, signs, form, compiled))
            found[lists, n] = {"dense": best["dense"], "sums": best["sums"]}
    return found


def turn(operator: RankOperator, x: Tensor, signs: Tensor, form: Form, compiled: bool) -> float:
    """Return the least seconds of the calls of one turn."""
    with ExitStack() as pins:
        pins.enter_context(use(form))
        if not compiled:
            pins.enter_context(computed_by(REFERENCE))
        least, end = float("inf"), time.perf_counter() + TURN
        while True:
            start = time.perf_counter()
            torch.autograd.grad(operator(x), x, signs)
            least = min(least, time.perf_counter() - start)
            if time.perf_counter() > end:
                return least


def best_threshold(times: Times) -> tuple[Threshold, float]:
    """Return the threshold of the least loss, and that loss."""

    def loss(threshold: Threshold) -> tuple[float, float]:
        ratios = []
        for (lists, n), seconds in times.items():
            dense = lists * n * (n - threshold.length) <= threshold.entries
            chosen = seconds["dense" if dense else "sums"]
            ratios.append(chosen / min(seconds.values()))
        return max(ratios), sum(ratios)

    candidates = {Threshold(0, -1)}
    for length, (lists, n) in itertools.product(LENGTHS, times):
        # a little more than the point itself, so that its neighbors count as it does
        candidates.add(Threshold(length, max(0, round(1.05 * lists * n * (n - length)))))
    best = min(sorted(candidates), key=loss)
    return best, loss(best)[0]


def most_rows(rounds: int) -> int:
    """Return the rows at which SinkhornSort takes as much time in strips as with an array."""
    ratios = []
    for n in SQUARES:
        x = scores_of(1, n).requires_grad_()
        signs, operator = signs_of(x), SinkhornSort()
        best: dict[Form, float] = {"dense": float("inf"), "sums": float("inf")}
        for _ in range(rounds):
            for form in best:
                best[form] = min(best[form], turn(operator, x, signs, form, compiled=True))
        ratios.append(math.log(best["sums"] / best["dense"]))
        print(f"sinkhorn, {n} rows: strips {best['sums']:.3g} s, array {best['dense']:.3g} s")
    # the logarithm of the ratio falls about linearly in that of the rows
    slope, start = statistics.linear_regression([math.log(n) for n in SQUARES], ratios)
    return 10 * round(math.exp(-start / slope) / 10)


def main() -> None:
    """Measure, print each threshold with its loss, and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", nargs="+", choices=[*OPERATORS, "sinkhorn"], help="keep the others' numbers"
    )
    parser.add_argument("--plain", action="store_true", help="keep the compiled sums' numbers")
    parser.add_argument("--output", type=Path, default=Path(ltr.kernels.thresholds.__file__))
    options = parser.parse_args()
    if any(name not in os.environ for name in KEPT):  # as in operators.py
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEPT})
    torch.set_num_threads(1)
    found = {}
    for (name, operator), compiled, double in itertools.product(
        OPERATORS.items(), (True, False), (False, True)
    ):
        if name == "softsort 1 ranks" and not compiled:
            continue
        key = name, compiled, double
        if (options.only and name not in options.only) or (options.plain and compiled):
            found[key] = THRESHOLDS[key]
            continue
        if name == "softsort 1" and not compiled:  # the ranks take two sums, and no fused code
            operator = OPERATORS["softsort 1 ranks"]
        found[key], loss = best_threshold(measured(operator, compiled, double, options.rounds))
        print(f"{name}, {compiled=}, {double=}: {found[key]}, loss {loss:.2f}", flush=True)
    sinkhorn = "sinkhorn" in (options.only or ["sinkhorn"]) and not options.plain
    rows = most_rows(options.rounds) if sinkhorn else ROWS
    print(f"sinkhorn: {rows} rows", flush=True)
    lines = [
        f'    ("{name}", {compiled}, {double}): Threshold({length}, {entries:_}),\n'
        for (name, compiled, double), (length, entries) in found.items()
    ]
    source = options.output.read_text()
    head, opening, _ = source.partition(
        "THRESHOLDS: dict[tuple[Operator, bool, bool], Threshold] = {\n"
    )
    head = re.sub(r"^ROWS = \d+$", f"ROWS = {rows}", head, flags=re.MULTILINE)
    options.output.write_text(head + opening + "".join(lines) + "}\n")
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
