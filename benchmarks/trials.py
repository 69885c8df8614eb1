"""Measure what a special case of `ltr.kernels` earns: two copies of the package, in turns.

    python benchmarks/trials.py NAME FOLDER [--cases ...]

FOLDER holds a copy of the package `ltr` in which the special case NAME is taken out. One process
imports it, another one this repository. For each operator and size they take turns of forward and
backward, so that both see the same load of the machine. A turn is the median of its calls, in CPU
time of one thread, and the least turn counts. A special case stays if a whole training step gets
at least `EARNED` times faster by it, so it must gain as much in one operator or loss. The result is
added to
benchmarks/results/trials.json, and `python docs/tables.py` writes benchmarks/trials.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = ((64, 40), (64, 128), (16, 500), (1, 100_000), (1, 1_000_000))
ROUNDS = 7
TURN = 0.06
"""Seconds of one turn: a long call is one turn, a short one is repeated, 50 times at most."""

EARNED = 1.5
HERE = Path(__file__).resolve().parent.parent
RESULT = HERE / "benchmarks" / "results" / "trials.json"


def cases() -> dict[str, tuple[Callable[..., Any], int]]:
    """Return what is measured: a function of scores and labels, and its longest list."""
    from ltr import losses, operators

    def ranks(operator: Any) -> Callable[..., Any]:
        return lambda scores, labels: operator(scores)

    def rows(operator: Any) -> Callable[..., Any]:
        return lambda scores, labels: operator.permutation(scores).mv(labels)

    long, middle, short = 1_000_000, 100_000, 500
    return {
        "LaplaceRank": (ranks(operators.LaplaceRank(0.1)), long),
        "SigmoidRank": (ranks(operators.SigmoidRank(0.1)), long),
        "GaussianRank": (ranks(operators.GaussianRank(0.1)), long),
        "SoftSort": (ranks(operators.SoftSort(0.1)), long),
        "SoftSort, sorted labels": (rows(operators.SoftSort(0.1)), long),
        "SoftSort(power=2)": (ranks(operators.SoftSort(0.1, power=2.0)), long),
        "SoftSort(power=3)": (ranks(operators.SoftSort(0.1, power=3.0)), short),
        "SoftSortRank": (ranks(operators.SoftSortRank(0.1)), long),
        "NeuralSort": (ranks(operators.NeuralSort(1.0)), middle),
        "SoftNDCG(SoftRank)": (losses.SoftNDCG(operators.SoftRank(0.1)), 40),
        "ApproxNDCG": (losses.ApproxNDCG(), long),
        "SoftNDCG(LaplaceRank)": (losses.SoftNDCG(operators.LaplaceRank(0.1)), long),
        "RankNet": (losses.RankNet(), long),
        "LambdaRank": (losses.LambdaRank(), long),
        "NeuralNDCG": (losses.NeuralNDCG(), short),
        "NeuralNDCG(scaling=10)": (losses.NeuralNDCG(scaling=10), short),
        "PiRank": (losses.PiRank(), short),
    }


def serve() -> None:
    """Read a case and a size from each line of the input, and print the seconds of a turn."""
    import torch

    torch.set_num_threads(1)
    known, kept = cases(), {}
    for line in sys.stdin:
        name, lists, n = json.loads(line)
        key = name, lists, n
        if key not in kept:
            generator = torch.Generator().manual_seed(n)
            scores = torch.randn(lists, n, generator=generator).requires_grad_()
            labels = torch.randint(0, 5, (lists, n), generator=generator).float()
            kept.clear()
            kept[key] = scores, labels, torch.randn(lists, n, generator=generator)
            seconds = _turn(known[name][0], *kept[key])  # compiles
        seconds = _turn(known[name][0], *kept[key])
        print(json.dumps(seconds), flush=True)


def _turn(function: Callable[..., Any], scores: Any, labels: Any, gradient: Any) -> float:
    import torch

    found, end = [], time.perf_counter() + TURN
    for _ in range(50):
        start = time.process_time()
        value = function(scores, labels)
        torch.autograd.grad(value, scores, None if value.dim() == 0 else gradient)
        found.append(time.process_time() - start)
        if time.perf_counter() > end:
            break
    return statistics.median(found)


class _Worker:
    """A process that measures one copy of the package."""

    def __init__(self, folder: Path):
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--serve"],
            env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, *case: object) -> float:
        """Return the seconds of one call, in one turn."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(case), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """Let the process end."""
        self.process.communicate()


def main() -> None:
    """Compare the two copies and add the result to the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", help="the special case that FOLDER has not")
    parser.add_argument("folder", type=Path, help="a folder with the other copy of ltr")
    parser.add_argument("--cases", nargs="+", required=True, help="operators and losses")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each copy")
    parser.add_argument("--output", type=Path, default=RESULT, help="the JSON file")
    arguments = parser.parse_args()
    sys.path.insert(0, str(HERE))
    import torch
    from measure import environment, write

    longest = {name: most for name, (_, most) in cases().items()}
    torch.set_num_threads(1)  # as in the workers, for the description
    kept, without = _Worker(HERE), _Worker(arguments.folder)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in arguments.cases:
        found[name] = {}
        for lists, n in SIZES:
            if n > longest[name]:
                continue
            turns = [
                (kept.seconds(name, lists, n), without.seconds(name, lists, n))
                for _ in range(arguments.rounds)
            ]
            ours, theirs = (min(seconds) for seconds in zip(*turns, strict=True))
            found[name][f"{lists}x{n}"] = {
                "with_ms": float(f"{1e3 * ours:.4g}"),
                "without_ms": float(f"{1e3 * theirs:.4g}"),
            }
            print(f"{name:24} {lists:3} x {n:<8} {theirs / ours:6.2f}", flush=True)
    kept.close()
    without.close()
    known = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
    known["environment"], known["earned"] = environment(), EARNED
    known["sizes"] = [f"{lists}x{n}" for lists, n in SIZES]
    known.setdefault("trials", {})[arguments.name] = found
    write(arguments.output, known)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        main()
