"""Time losses, metrics and operators in another checkout and in this one, in turns.

    python benchmarks/before_after.py OTHER

OTHER is a checkout of an earlier commit. Each turn is a new process that imports one of the two
packages, so that a change of the machine's speed meets both. Times are CPU milliseconds of one
thread, forward and backward; the least of all turns counts. The result is written to
benchmarks/results/before_after.json: the times of all cases, and `GOALS`, ratios of two of them
with the most that each may be.
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

SHORT = ("1 x 10", "1 x 100", "64 x 10", "64 x 128")
GOALS = [
    *(
        (f"{name} ranks 1 x 1,000,000", "torch.sort 1 x 1,000,000", 2.0)
        for name in ("SoftSort", "SigmoidRank")
    ),
    *(
        (f"{name} {size}", f"n x n {name} {size}", 1.5)
        for name in ("SoftSort", "SigmoidRank", "NeuralSort")
        for size in SHORT
    ),
    *((f"NeuralSort {size}", f"n x n NeuralSort {size}", 1.5) for size in ("16 x 500", "1 x 2000")),
    *((f"SoftRank {size}", f"n x n SoftRank {size}", 1.5) for size in ("16 x 500", "1 x 2000")),
    ("SoftNDCG 64 x 120", "n x n SoftNDCG 64 x 120", 1 / 2),
    ("SoftNDCG 16 x 500", "n x n SoftNDCG 16 x 500", 1 / 6),
    ("RankNet 16 x 500", "all pairs 16 x 500", 1.0),
    ("NDCG@10, MAP, MRR 512 x 100", "torchmetrics NDCG@10, MAP, MRR 512 x 100", 1 / 30),
]
"""(case, beside, the most that their ratio may be)."""


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

    # the forms with matrices that a user writes

    def sigmoids(scores: Any) -> Any:
        gaps = scores.unsqueeze(-2) - scores.unsqueeze(-1)
        return 0.5 + torch.sigmoid(gaps / 0.1).sum(-1)

    def soft_sort_matrix(scores: Any) -> Any:
        tops = scores.sort(descending=True).values
        P = (-(tops.unsqueeze(-1) - scores.unsqueeze(-2)).abs() / 0.1).softmax(-1)
        return (P * torch.arange(1.0, P.shape[-1] + 1).unsqueeze(-1)).sum(-2)

    def neural_sort_matrix(scores: Any) -> Any:
        n = scores.shape[-1]
        gaps = (scores.unsqueeze(-1) - scores.unsqueeze(-2)).abs().sum(-1)
        scale = (n + 1 - 2 * torch.arange(1.0, n + 1)).unsqueeze(-1)
        P = (scale * scores.unsqueeze(-2) - gaps.unsqueeze(-2)).softmax(-1)
        return (P * torch.arange(1.0, n + 1).unsqueeze(-1)).sum(-2)

    def normal_ranks(scores: Any) -> Any:
        gaps = scores.unsqueeze(-2) - scores.unsqueeze(-1)
        return 0.5 + torch.special.ndtr(gaps / (0.1 * 2**0.5)).sum(-1)

    def dense_ndcg(scores: Any, labels: Any, mask: Any) -> Any:
        pairs = mask.unsqueeze(-1) & mask.unsqueeze(-2)
        gaps = scores.unsqueeze(-2) - scores.unsqueeze(-1)
        ranks = 0.5 + torch.where(pairs, torch.sigmoid(gaps / 0.1), 0.0).sum(-1)
        gains = torch.where(mask, 2.0**labels - 1, 0.0)
        best = gains.sort(descending=True).values
        ideal = (best / torch.log2(torch.arange(2.0, best.shape[-1] + 2))).sum(-1)
        return 1 - ((gains / torch.log2(1 + ranks)).sum(-1) / ideal.clamp(min=1e-9)).mean()

    def all_pairs(scores: Any, labels: Any, mask: Any) -> Any:
        higher = labels.unsqueeze(-1) > labels.unsqueeze(-2)
        pairs = higher & mask.unsqueeze(-1) & mask.unsqueeze(-2)
        gaps = scores.unsqueeze(-1) - scores.unsqueeze(-2)
        return torch.where(pairs, torch.nn.functional.softplus(-gaps), 0.0).sum()

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

    def peers() -> Callable[[], Any]:
        from torchmetrics.retrieval import RetrievalMAP, RetrievalMRR, RetrievalNormalizedDCG

        scores, labels, mask = lists(512, 100)
        indexes = torch.arange(512).unsqueeze(-1).expand(512, 100)[mask]
        flat = scores.detach()[mask], labels[mask], indexes
        several = RetrievalNormalizedDCG(top_k=10), RetrievalMAP(), RetrievalMRR()

        def update() -> None:
            for number, metric in enumerate(several):
                metric.reset()
                metric.update(flat[0], flat[1] if number == 0 else flat[1] > 0, flat[2])
                metric.compute()

        return update

    soft_sort = losses.SoftNDCG(operators.SoftSort(0.1))
    soft_rank = losses.SoftNDCG(operators.SoftRank(0.1))
    neural_sort = losses.SoftNDCG(operators.NeuralSort(1.0))
    long = torch.randn(1_000_000)
    cases = {
        "SoftNDCG 64 x 120": (step(losses.ApproxNDCG(), 64, 120), 30),
        "SoftNDCG 16 x 500": (step(losses.ApproxNDCG(), 16, 500), 30),
        "SoftNDCG(SoftSort) 64 x 120": (step(soft_sort, 64, 120), 30),
        "SoftNDCG(SoftRank) 64 x 40": (step(soft_rank, 64, 40), 10),
        "ListNet 64 x 120": (step(losses.ListNet(), 64, 120), 30),
        "ListMLE 64 x 120": (step(losses.ListMLE(), 64, 120), 30),
        "RankNet 64 x 40": (step(losses.RankNet(), 64, 40), 30),
        "RankNet 16 x 500": (step(losses.RankNet(), 16, 500), 30),
        "LambdaLoss 64 x 40": (step(losses.LambdaLoss(), 64, 40), 30),
        "SoftMAP 64 x 40": (step(losses.SoftMAP(), 64, 40), 30),
        "NDCG@10, MAP, MRR 512 x 100": (collection(), 30),
        "SoftNDCG(NeuralSort) 16 x 500": (step(neural_sort, 16, 500), 10),
        "n x n SoftNDCG 64 x 120": (step(dense_ndcg, 64, 120), 10),
        "n x n SoftNDCG 16 x 500": (step(dense_ndcg, 16, 500), 10),
        "all pairs 16 x 500": (step(all_pairs, 16, 500), 10),
        "torchmetrics NDCG@10, MAP, MRR 512 x 100": (peers(), 2),
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
        "n x n SoftSort": soft_sort_matrix,
        "n x n SigmoidRank": sigmoids,
        "n x n NeuralSort": neural_sort_matrix,
    }
    long_lists = {
        "SoftRank": operators.SoftRank(0.1),
        "n x n SoftRank": normal_ranks,
        **{name: short[name] for name in ("NeuralSort", "n x n NeuralSort")},
    }
    for batch, n in ((16, 500), (1, 2000)):
        for name, operator in long_lists.items():
            cases[f"{name} {batch} x {n}"] = ranks(operator, batch, n), 5
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
    result: dict[str, Any] = {"cases": {}, "goals": []}
    cases = result["cases"]
    for name in turns[0][0]:
        before, after = (min(one[side][name] for one in turns) for side in (0, 1))
        cases[name] = {"before": before, "after": after, "ratio": after / before}
        print(f"{name:42}{before:10.3f}{after:10.3f} ms  {after / before:.2f}")
    for name, beside, most in GOALS:
        ratios = {side: cases[name][side] / cases[beside][side] for side in ("before", "after")}
        result["goals"].append({"case": name, "beside": beside, "most": most, **ratios})
        print(f"{name:34} / {beside:42}", *(f"{x:.3f}" for x in ratios.values()), f"<= {most:.3f}")
    options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
