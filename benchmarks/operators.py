"""The ranks in sort time against torch.sort, naive n x n operators, plain PyTorch and a peer.

    python benchmarks/operators.py

Times are of forward and backward on float32 scores; of sorts, of the forward only. All contestants
of a point take turns in one process. CPU time (of all threads) and wall-clock time are the least of
the turns, in one thread and in all. The C library keeps freed memory; else it gives matrices back
and asks for them again by luck, which can take longer than the sums. `compiled` runs with numba,
`plain` is PyTorch alone, `naive` builds n x n matrices. `ratio` is CPU time over that of
`torch.sort` at the point. Then follow the peak memory of one call in a fresh process, float32
against float64, and the goals with the measured numbers.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from measure import KEPT, RESULTS, environment, write
from operators_accuracy import errors
from operators_contestants import NEURALSORT, SEED, TEMPERATURE, contestants, peers, scores_of
from operators_goals import goals
from operators_memory import measured
from operators_time import Effort, series

BATCHES = {
    1: [10, 30, 100, 1000, 10_000, 100_000, 1_000_000],
    20: [100, 1000, 4000, 10_000, 100_000],
    64: [10, 40, 128],
    256: [100],
}
ORDERS = ["sorted", "reversed", "tied"]
BY_ORDER = ("sort", "compiled", "peer")
"""Groups whose time may depend on the order of the scores."""

FULL, SHORTER = Effort(), Effort(budget=0.3, limit=2.0)
"""Rounds and limits: for one thread on random scores, and for the rest."""

LINEAR = [
    "SoftSort, power 1",
    "SoftSort, power 2",
    "SoftSortRank",
    "LaplaceRank",
    "SigmoidRank",
    "GaussianRank",
]
MEMORY = [
    *((name, 1, 1_000_000) for name in ["torch.sort", *LINEAR]),
    ("NeuralSort", 1, 20_000),
    ("SoftSort, power 1.5", 1, 20_000),
    ("SoftSort, power 1, plain", 1, 1_000_000),
    ("SigmoidRank, plain", 1, 1_000_000),
    ("GaussianRank, plain", 1, 1_000_000),
    ("torchsort.soft_rank, l2, peer", 1, 1_000_000),
    ("NeuralSort", 20, 4000),
    ("SoftSort, power 2", 20, 4000),
    ("SigmoidRank", 20, 4000),
    ("NeuralSort, naive", 20, 4000),
    ("SoftSort, power 2, naive", 20, 4000),
    ("SigmoidRank, naive", 20, 4000),
]
ACCURACY = [
    *((name, 1_000_000) for name in LINEAR),
    ("SoftSort, power 1, plain", 1_000_000),
    ("LaplaceRank, plain", 1_000_000),
    ("SigmoidRank, plain", 1_000_000),
    ("NeuralSort", 10_000),
    ("SoftSort, power 1.5", 10_000),
]


def points(
    batches: dict[int, list[int]], full: Effort, shorter: Effort, cores: int
) -> list[dict[str, Any]]:
    """Times: random scores in one thread and in all, other orders in one."""
    everyone = contestants()
    by_order = [contestant for contestant in everyone if contestant.group in BY_ORDER]
    runs = [("random", 1, everyone, full)]
    if cores > 1:
        runs.append(("random", cores, everyone, shorter))
    runs += [(kind, 1, by_order, shorter) for kind in ORDERS]
    longest = max(max(sizes) for sizes in batches.values())
    for contestant in everyone:  # compile and load everything in a first call
        for n in (64, min(1000, longest)):
            contestant.call(scores_of(1, n))()
    found = []
    for kind, threads, taking_part, effort in runs:
        for lists, sizes in batches.items():
            for point in series(lists, sizes, kind, threads, taking_part, effort):
                print(f"{lists} x {point['n']}, {kind}, threads: {threads}")
                for row in point["rows"]:
                    times = f"{1e3 * row['cpu']:10.3f} ms CPU {1e3 * row['wall']:10.3f} ms"
                    print(f"  {times} {row['ratio']:9.2f} x  {row['name']}, {row['group']}")
                found.append(point)
    torch.set_num_threads(1)
    return found


def too_long(found: list[dict[str, Any]], key: str, n: int) -> bool:
    """Return whether the contestant was left out of a random point of n items or fewer."""
    return any(
        key in point["left_out"]
        for point in found
        if point["lists"] == 1 and point["scores"] == "random" and point["threads"] == 1
        if point["n"] <= n
    )


def measure_again(path: Path, lists: int, cores: int) -> None:
    """Replace the times of batches of one size, and the goals, in a file of results."""
    result = json.loads(path.read_text("utf-8"))
    found = points({lists: BATCHES[lists]}, FULL, SHORTER, cores)
    result["points"] = [one for one in result["points"] if one["lists"] != lists] + found
    result["goals"] = goals(result)
    write(path, result)


def main() -> None:
    """Read the arguments, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--output", type=Path, default=RESULTS / "operators.json")
    parser.add_argument(
        "--lists", type=int, help="measure the times of so many lists again, and keep the rest"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="all: how many?")
    arguments = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if any(name not in os.environ for name in KEPT):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEPT})
    if arguments.lists is not None:
        measure_again(arguments.output, arguments.lists, arguments.threads)
        return
    start = time.perf_counter()
    batches, full, shorter = BATCHES, FULL, SHORTER
    memory, accuracy = MEMORY, ACCURACY
    if arguments.quick:
        batches, full, shorter = {1: [20, 40], 2: [30]}, Effort(1, 0.01), Effort(1, 0.01)
        memory = [("SigmoidRank", 1, 50_000)]
        accuracy = [(name, 50) for name, _ in ACCURACY]
    known = {contestant.key: contestant for contestant in contestants()}
    result: dict[str, Any] = {
        "environment": {
            **environment(),
            "numpy": version("numpy"),
            "numba": version("numba"),
            "threads": arguments.threads,
        },
        "peers": peers(),
        "config": {
            "dtype": "float32",
            "temperature": TEMPERATURE,
            "neuralsort_temperature": NEURALSORT,
            "seed": SEED,
            "random": asdict(full),
            "others": asdict(shorter),
        },
        "points": points(batches, full, shorter, arguments.threads),
    }
    for name, message in result["peers"].items():
        print(f"{name}: {message}")
    result["accuracy"] = []
    for key, n in accuracy:
        if too_long(result["points"], key, n):
            print(f"{key}, n = {n}: no accuracy, it takes too long")
            continue
        result["accuracy"].append(errors(known[key], n))
        print(f"float32 against float64, {result['accuracy'][-1]}")
    result["memory"] = []
    for key, lists, n in memory:
        if key in known:
            found = measured(key, lists, n)
            print(f"memory, {found or f'{key} failed'}")
            result["memory"] += [found] if found else []
    result["goals"] = goals(result)
    for goal in result["goals"]:
        print(f"{goal['goal']}: {goal['measured']}, asked {goal['asked']}, met: {goal['met']}")
    print(f"{time.perf_counter() - start:.0f} s")
    write(arguments.output, result)


if __name__ == "__main__":
    main()
