"""Every loss with all scores tied, as a zero-initialized head gives them, and with random scores.

    python benchmarks/losses_tied.py

One list, forward and backward, float32, grades 0 to 4: time and memory with equal scores over
those with normal scores. Lists have 100,000 items; losses that visit all pairs, or hold n x n
numbers, have shorter ones, as `n` says. A ratio above 3 is a defect, such as a path that is
quadratic in ties.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from losses import backward_of, losses
from measure import RESULTS, environment, peak_memory, rounded, write
from torch import Tensor

from ltr.losses import NeuralNDCG

LONG = 100_000
PAIRS = 5_000
"""Items, for losses in O(n^2) time."""

MATRICES = 1_000
"""Items, for losses with n x n matrices."""

GOAL = 3.0
WITH_MATRICES = ("SoftERR", "NeuralNDCG(scaling=5)", "all-pairs RankNet", "SoftNDCG dense")
OF_EVERY_PAIR = (
    "PairwiseHinge",
    "PairwiseDCGHinge",
    "PairwiseSoftZeroOne",
    "PairwiseExponential",
    "PairwiseMSE",
    "RankNet without numba",
    "LambdaRank without numba",
    "LambdaLoss(NDCGLoss1())",
    "LambdaLoss(NDCGLoss2())",
    "LambdaLoss(NDCGLoss2(top_k=10))",
    "LambdaLoss(NDCGLoss2PP())",
    "LambdaLoss(ARPLoss1())",
    "LambdaLoss(DeltaMAP())",
    "LambdaLoss(DeltaMRR())",
)
LEAST = 1 << 20
"""Less memory than this many bytes counts as this much, since it never runs out."""

LONGEST = 5.0
"""Seconds of a call that is not repeated."""


def length(name: str) -> int:
    """Return the length of the loss's lists here."""
    if name in WITH_MATRICES:
        return MATRICES
    return PAIRS if name in OF_EVERY_PAIR else LONG


def seconds(call: Callable[[], Tensor], rounds: int) -> float:
    """Return the median CPU time of a call in this process."""
    taken: list[float] = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
        if taken[-1] > LONGEST:
            return taken[-1]
    return statistics.median(taken)


def main() -> None:
    """Read the arguments, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", help="parts of the names to measure")
    parser.add_argument("--without", nargs="+", default=[], help="names to leave out")
    parser.add_argument("--rounds", type=int, default=5, help="repeats")
    parser.add_argument("--output", type=Path, default=RESULTS / "losses_tied.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, loss in {**losses(), "NeuralNDCG(scaling=5)": NeuralNDCG(scaling=5)}.items():
        if arguments.only and not any(part in name for part in arguments.only):
            continue
        if name in arguments.without:
            continue
        n, generator = length(name), torch.Generator().manual_seed(0)
        labels = torch.randint(0, 5, (n,), generator=generator).float()
        found = []
        backward_of(loss, torch.randn(n), labels)()  # compiles before the measurement
        for scores in (torch.randn(n, generator=generator), torch.zeros(n)):
            call = backward_of(loss, scores, labels)
            found.append((seconds(call, arguments.rounds), peak_memory(call)))
        (random, held), (tied, held_tied) = found
        row = {
            "loss": name,
            "n": n,
            "seconds": rounded(random),
            "seconds_tied": rounded(tied),
            "time_ratio": rounded(tied / random),
            "bytes": held,
            "bytes_tied": held_tied,
            "memory_ratio": rounded(max(held_tied, LEAST) / max(held, LEAST)),
        }
        good = max(row["time_ratio"], row["memory_ratio"]) <= GOAL
        print(
            f"{row['time_ratio']:7.2f} x the time {row['memory_ratio']:6.2f} x the memory "
            f"{1e3 * random:9.1f} ms {n:>7}  {name}{'' if good else '  ABOVE THE GOAL'}",
            flush=True,
        )
        rows.append(row)
    write(
        arguments.output,
        {"environment": environment(), "goal": GOAL, "rounds": arguments.rounds, "losses": rows},
    )


if __name__ == "__main__":
    main()
