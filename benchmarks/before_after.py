"""Time losses, metrics and operators in another checkout and in this one, in turns.

    python benchmarks/before_after.py OTHER

OTHER is a checkout of an earlier commit. Each turn is a new process that imports one of the two
packages, so that a change of the machine's speed meets both. Times are CPU milliseconds of one
thread, forward and backward; the least of all turns counts. The result is written to
benchmarks/results/before_after.json.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
TURNS = 3


def milliseconds(call: Callable[[], Any], calls: int) -> float:
    """Return the least CPU time of a call, after one that does not count."""
    call()
    times = []
    for _ in range(calls):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return 1e3 * min(times)


def measure() -> dict[str, float]:
    """Return the time of each case, for the package that this process imports."""
    import torch

    from ltr import losses, metrics, operators

    torch.set_num_threads(1)
    torch.manual_seed(0)

    def lists(batch: int, n: int) -> tuple[Any, Any, Any]:
        real = torch.arange(n) < torch.randint(n // 2, n + 1, (batch, 1))
        scores = torch.randn(batch, n, requires_grad=True)
        return scores, torch.randint(0, 4, (batch, n)), real

    def step(loss: Any, batch: int, n: int) -> Callable[[], Any]:
        scores, labels, mask = lists(batch, n)
        return lambda: torch.autograd.grad(loss(scores, labels, mask), scores)

    def ranks(operator: Any, *shape: int) -> Callable[[], Any]:
        scores, signs = torch.randn(shape, requires_grad=True), torch.randn(shape).sign()
        return lambda: torch.autograd.grad(operator(scores), scores, signs)

    def naive(scores: Any) -> Any:
        gaps = scores.unsqueeze(-2) - scores.unsqueeze(-1)
        return 0.5 + torch.sigmoid(gaps / 0.1).sum(-1)

    def training_step(loss: Any, batch: int, n: int) -> Callable[[], Any]:
        # a small network on 136 features
        inner = torch.nn.Linear(136, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)
        network = torch.nn.Sequential(*inner, torch.nn.ReLU(), torch.nn.Linear(64, 1))
        features, (_, labels, mask) = torch.randn(batch, n, 136), lists(batch, n)

        def train() -> None:
            network.zero_grad()
            loss(network(features).squeeze(-1), labels, mask).backward()

        return train

    def collection() -> Callable[[], Any]:
        scores, labels, mask = lists(512, 100)
        names = {"ndcg": metrics.NDCG(top_k=10), "map": metrics.MAP(), "mrr": metrics.MRR()}
        found = metrics.RankingMetrics(names)

        def update() -> None:
            found.reset()
            found.update(scores.detach(), labels, mask=mask)
            found.compute()

        return update

    soft_sort = losses.SoftNDCG(operators.SoftSort(0.1))
    soft_rank = losses.SoftNDCG(operators.SoftRank(0.1))
    neural_sort = losses.SoftNDCG(operators.NeuralSort(1.0))
    long = torch.randn(1_000_000)
    cases = {
        "SoftNDCG 64 x 120": (step(losses.ApproxNDCG(), 64, 120), 30),
        "SoftNDCG 16 x 500": (step(losses.ApproxNDCG(), 16, 500), 30),
        "SoftNDCG(SoftSort) 64 x 120": (step(soft_sort, 64, 120), 30),
        "SoftNDCG(SoftRank) 16 x 500": (step(soft_rank, 16, 500), 10),
        "ListNet 64 x 120": (step(losses.ListNet(), 64, 120), 30),
        "ListMLE 64 x 120": (step(losses.ListMLE(), 64, 120), 30),
        "RankNet 64 x 40": (step(losses.RankNet(), 64, 40), 30),
        "RankNet 16 x 500": (step(losses.RankNet(), 16, 500), 30),
        "LambdaLoss 64 x 40": (step(losses.LambdaLoss(), 64, 40), 30),
        "SoftMAP 64 x 40": (step(losses.SoftMAP(), 64, 40), 30),
        "NDCG@10, MAP, MRR 512 x 100": (collection(), 30),
        "SoftNDCG(NeuralSort) 16 x 500": (step(neural_sort, 16, 500), 10),
        "torch.sort 1 x 1,000,000": (long.sort, 5),
        "SoftSort ranks 1 x 1,000,000": (ranks(operators.SoftSort(0.1), 1_000_000), 5),
        "SigmoidRank ranks 1 x 1,000,000": (ranks(operators.SigmoidRank(0.1), 1_000_000), 5),
        "PairwiseHinge 16 x 500": (step(losses.PairwiseHinge(), 16, 500), 10),
        "SinkhornSort ranks 1 x 1,000": (ranks(operators.SinkhornSort(0.01), 1000), 2),
        "SoftSort, power 1.5, 16 x 500": (ranks(operators.SoftSort(0.1, 1.5), 16, 500), 5),
    }
    scaled, cut = losses.NeuralNDCG(scaling=10), losses.SoftNDCG(operators.SoftSort(0.1, 1.5))
    for batch, n in ((64, 40), (64, 120), (16, 500)):
        name = f"training step, {{}} {batch} x {n}"
        cases[name.format("NeuralNDCG(scaling=10)")] = training_step(scaled, batch, n), 3
        cases[name.format("SoftNDCG(SoftSort, power 1.5)")] = training_step(cut, batch, n), 3
    short = {
        "SoftSort": operators.SoftSort(0.1),
        "SoftSort, power 2": operators.SoftSort(0.1, power=2),
        "SoftSortRank": operators.SoftSortRank(0.1),
        "LaplaceRank": operators.LaplaceRank(0.1),
        "SigmoidRank": operators.SigmoidRank(0.1),
        "GaussianRank": operators.GaussianRank(0.1),
        "NeuralSort": operators.NeuralSort(1.0),
        "n x n sigmoids": naive,
    }
    for batch, n in ((1, 10), (1, 100), (64, 10), (64, 100), (64, 128)):
        for name, operator in short.items():
            cases[f"{name} {batch} x {n}"] = ranks(operator, batch, n), 20
    return {name: milliseconds(*case) for name, case in cases.items()}


def turn(folder: Path) -> dict[str, float]:
    """Return the times of a new process that imports the package of a folder."""
    clean = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", str(folder)]
    done = subprocess.run(command, cwd=folder, env=clean, check=True, capture_output=True)
    return json.loads(done.stdout)


def main() -> None:
    """Run the turns, print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--turns", type=int, default=TURNS)
    default = HERE / "benchmarks" / "results" / "before_after.json"
    parser.add_argument("--output", type=Path, default=default)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure()))
        return
    turns = [(turn(options.other.resolve()), turn(HERE)) for _ in range(options.turns)]
    result = {}
    for name in turns[0][0]:
        before, after = (min(one[side][name] for one in turns) for side in (0, 1))
        result[name] = {"before": before, "after": after, "ratio": after / before}
        print(f"{name:34}{before:10.3f}{after:10.3f} ms  {after / before:.2f}")
    options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
