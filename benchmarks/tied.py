"""Tied scores against random ones: time and memory of each operator, forward and backward.

    python benchmarks/tied.py

A head that starts at zero gives all items the same score. No operator may then need more than
`LIMIT` times the time or memory that it needs for normal scores. Lists have n = 100,000 items;
operators that are slower than sort time by definition have shorter ones, as the table says.
`nearly` has normal scores of deviation 1e-6. A case is a name, a length and a function of scores:
losses can be added as `cases`.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from measure import RESULTS, environment, peak_memory, rounded, write
from torch import Tensor

from ltr.gains import log2_discount
from ltr.operators import (
    DFTopK,
    GaussianRank,
    HardRank,
    IsotonicRank,
    IsotonicSort,
    LaplaceRank,
    LapSum,
    NeuralSort,
    RankOperator,
    SigmoidRank,
    SinkhornSort,
    SoftRank,
    SoftSort,
    SoftSortRank,
    SortingNetwork,
    Stochastic,
    StraightThrough,
)

LIMIT = 3.0
LONG = 100_000

SCORES: dict[str, Callable[[int], Tensor]] = {
    "random": lambda n: torch.randn(n, generator=torch.Generator().manual_seed(0)),
    "nearly": lambda n: 1e-6 * torch.randn(n, generator=torch.Generator().manual_seed(0)),
    "tied": torch.zeros,
}


@dataclass(frozen=True)
class Case:
    """A function `value` (n,) -> any shape, whose sum of squares is differentiated."""

    name: str
    n: int
    value: Callable[[Tensor], Tensor]

    def call(self, scores: Tensor) -> None:
        """Run one forward and backward pass."""
        x = scores.clone().requires_grad_()
        y = self.value(x)
        if y.requires_grad:
            y.square().sum().backward()


def operators() -> Iterator[Case]:
    """Return cases for the ranks of every operator, and for other separate code paths."""
    fast: dict[str, RankOperator] = {
        "HardRank": HardRank(),
        "SoftSort, power 1": SoftSort(0.1),
        "SoftSort, power 2": SoftSort(0.1, power=2),
        "SoftSortRank": SoftSortRank(0.1),
        "SigmoidRank": SigmoidRank(0.1),
        "GaussianRank": GaussianRank(0.1),
        "LaplaceRank": LaplaceRank(0.1),
        "LapSum": LapSum(0.1),
        "DFTopK": DFTopK(0.1),
        "SoftRank": SoftRank(0.1),
        "IsotonicRank, l2": IsotonicRank(0.1),
        "IsotonicRank, kl": IsotonicRank(0.1, "kl"),
        "StraightThrough(SoftSort)": StraightThrough(SoftSort(0.1)),
        "Stochastic(SoftSort)": Stochastic(SoftSort(0.1), samples=2),
    }
    for name, operator in fast.items():
        yield Case(name, LONG, operator)
    yield Case("LapSum.top_k", LONG, lambda x: LapSum().top_k(10, x))
    yield Case("DFTopK.top_k", LONG, lambda x: DFTopK().top_k(10, x))
    yield Case("LapSum.sort", LONG, lambda x: LapSum().sort(x))
    yield Case("IsotonicSort", LONG, IsotonicSort(0.1))
    # n x n, or n log(n)^2, by definition
    exact = SoftRank(0.1, distribution="exact")
    yield Case("SoftRank, discounts", 200, lambda x: SoftRank(0.1).discounts(log2_discount, x))
    yield Case("SoftRank, exact discounts", 60, lambda x: exact.discounts(log2_discount, x))
    yield Case("SoftRank, top 10", 500, lambda x: SoftRank(0.1).top_k(10, x))
    neural = NeuralSort(1.0)
    yield Case("NeuralSort", 5000, neural)
    yield Case("NeuralSort, sorted values", 5000, lambda x: neural.permutation(x).sort())
    yield Case("SoftSort, power 1.5", 5000, SoftSort(0.1, power=1.5))
    yield Case("LapSum, matrix", 1000, lambda x: LapSum(0.1).permutation(x).sort())
    yield Case("SinkhornSort", 1000, SinkhornSort(0.1))
    yield Case("SortingNetwork, bitonic", 2000, SortingNetwork(0.1, "bitonic"))
    yield Case("SortingNetwork, odd-even", 200, SortingNetwork(0.1))


def measure(case: Case, shrink: int, rounds: int) -> dict[str, object]:
    """Return seconds and bytes of one call by kind of scores, and the ratios to random ones."""
    n = max(case.n // shrink, 2)
    scores = {kind: SCORES[kind](n) for kind in SCORES}
    row: dict[str, object] = {"name": case.name, "n": n}
    seconds: dict[str, list[float]] = {kind: [] for kind in scores}
    for x in scores.values():
        case.call(x)
    for _ in range(rounds):
        for kind, x in scores.items():
            start = time.process_time()
            case.call(x)
            seconds[kind].append(time.process_time() - start)
    held = {kind: peak_memory(lambda x=x: case.call(x)) for kind, x in scores.items()}
    row["seconds"] = {kind: rounded(statistics.median(s)) for kind, s in seconds.items()}
    row["bytes"] = held
    for kind in ("nearly", "tied"):
        time_ratio = statistics.median(seconds[kind]) / statistics.median(seconds["random"])
        row[kind] = {
            "time": rounded(time_ratio),
            "memory": rounded(held[kind] / max(held["random"], 1)),
        }
    return row


def main() -> None:
    """Measure all cases, print a table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS / "tied.json")
    parser.add_argument("--shrink", type=int, default=1, help="divide all lengths by this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for case in operators():
        if options.only not in case.name:
            continue
        row = measure(case, options.shrink, options.rounds)
        rows.append(row)
        print(row["name"], row["n"], row["seconds"], row["tied"], row["nearly"], flush=True)
    write(options.output, {"environment": environment(), "limit": LIMIT, "rows": rows})


if __name__ == "__main__":
    main()
