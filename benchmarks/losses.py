"""Every loss against plain all-pairs RankNet in torch: one forward and backward.

    python benchmarks/losses.py

The baseline is the pairwise logistic loss in its usual form: the n x n differences of the scores,
softplus, a mask of the pairs with y_i > y_j, autograd. `ratio` is the time of a loss over that of
the baseline, from one run in which all take turns. `SoftNDCG dense` is SoftNDCG on ranks by the n x
n sigmoids, in plain torch; it is the baseline of `SoftNDCG`. Batches have normal scores with grades
0 to 4, in float32. Rows "without numba" use plain PyTorch only.

The forms with n x n matrices get new memory from the system at each call, as in a process that has
freed nothing larger. With `--keep-memory` the process keeps freed memory, as it does after larger
tensors were freed. This saves these forms much of their time. Then NeuralNDCG with 50 iterations of
Sinkhorn scaling, which frees such tensors, takes its turn too.

`--rows` measures 100,000 rows with qids beside the same rows as ragged lists, and only prints.
"""

import argparse
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from measure import KEPT, RESULTS, environment, peak_memory, rounded, times, write
from torch import Tensor

import ltr.losses
from ltr.gains import ideal_dcg, log2_discount
from ltr.kernels.choice import computed_by
from ltr.kernels.reference import REFERENCE
from ltr.losses import (
    ARPLoss1,
    ARPLoss2,
    DeltaMAP,
    DeltaMRR,
    DeltaNDCG,
    DeltaPrecision,
    LabelDifference,
    LambdaLoss,
    LambdaRank,
    ListMLE,
    NDCGLoss1,
    NDCGLoss2,
    NDCGLoss2PP,
    NeuralNDCG,
    RankingLoss,
    RankNet,
    SoftmaxLoss,
    SoftNDCG,
)
from ltr.operators import LaplaceRank, SigmoidRank

BATCHES = ["64x40", "64x120", "16x500"]
Loss = Callable[[Tensor, Tensor], Tensor]


def all_pairs_ranknet(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the baseline: the pairwise logistic loss."""
    differences = scores.unsqueeze(-1) - scores.unsqueeze(-2)
    pairs = (labels.unsqueeze(-1) > labels.unsqueeze(-2)).to(scores.dtype)
    totals = (F.softplus(-differences) * pairs).sum((-1, -2))
    return (totals / pairs.sum((-1, -2)).clamp(min=1)).mean()


def dense_soft_ndcg(scores: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Return SoftNDCG with SigmoidRank by its definition."""
    differences = (scores.unsqueeze(-2) - scores.unsqueeze(-1)) / temperature
    ranks = 0.5 + torch.sigmoid(differences).sum(-1)  # an item itself adds 1/2
    gains = torch.exp2(labels) - 1
    ideal = ideal_dcg(gains, log2_discount)
    return (1 - (gains / torch.log2(1 + ranks)).sum(-1) / ideal.clamp(min=1e-9)).mean()


def without_numba(loss: Loss) -> Loss:
    """Return the loss computed by plain PyTorch instead of numba."""

    def call(scores: Tensor, labels: Tensor) -> Tensor:
        with computed_by(REFERENCE):
            return loss(scores, labels)

    return call


def losses() -> dict[str, Loss]:
    """Return every loss class of `ltr.losses` with default arguments, and some with others."""
    temperature = SigmoidRank().temperature
    found: dict[str, Loss] = {
        "all-pairs RankNet": all_pairs_ranknet,
        "SoftNDCG dense": lambda s, y: dense_soft_ndcg(s, y, temperature),
    }
    for name in ltr.losses.__all__:
        kind = getattr(ltr.losses, name)
        if not inspect.isclass(kind) or not issubclass(kind, RankingLoss):
            continue
        if name not in ("RankingLoss", "PairwiseLoss", "LambdaLoss"):
            found[name] = kind()
    # the ranks of its baseline are sigmoids too
    found["SoftNDCG"] = SoftNDCG(mean="harmonic")
    found["SoftNDCG(LaplaceRank)"] = SoftNDCG(LaplaceRank(), mean="harmonic")
    found["NeuralNDCG(top_k=10)"] = NeuralNDCG(top_k=10)
    found["RankNet without numba"] = without_numba(RankNet())
    found["LambdaRank without numba"] = without_numba(LambdaRank())
    found["LambdaRank(top_k=10)"] = LambdaLoss(DeltaNDCG(10))
    for weights in (
        NDCGLoss1(),
        NDCGLoss2(),
        NDCGLoss2(10),
        NDCGLoss2PP(),
        ARPLoss1(),
        ARPLoss2(),
        LabelDifference(),
        DeltaMAP(),
        DeltaMRR(),
        DeltaPrecision(),
    ):
        cut = "top_k=10" if weights.top_k else ""
        found[f"LambdaLoss({type(weights).__name__}({cut}))"] = LambdaLoss(weights)
    return found


def measure_rows(rounds: int) -> None:
    """Print the times of losses of shuffled rows with qids over those of ragged lists."""
    generator = torch.Generator().manual_seed(0)
    n = 100_000
    qid = torch.randint(0, n // 40, (n,), generator=generator).sort().values
    lengths = qid.unique_consecutive(return_counts=True)[1]
    scores = torch.randn(n, generator=generator).requires_grad_()
    labels = torch.randint(0, 5, (n,), generator=generator).float()
    order = torch.randperm(n, generator=generator)
    for loss in (SoftNDCG(), SoftmaxLoss(), RankNet(), ListMLE()):
        found = times(
            {
                "lengths": lambda loss=loss: loss(scores, labels, lengths=lengths).backward(),
                "sorted": lambda loss=loss: loss(scores, labels, qid=qid).backward(),
                "qid": lambda loss=loss: loss(scores, labels, qid=qid[order]).backward(),
            },
            rounds,
        )
        base = found["lengths"]
        print(
            f"{type(loss).__name__}: lengths {1e3 * base:.1f} ms, qid in order "
            f"{found['sorted'] / base:.2f} x, shuffled {found['qid'] / base:.2f} x"
        )


def keep_memory() -> None:
    """Restart this process with a C library that keeps freed memory."""
    if any(name not in os.environ for name in KEPT):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEPT})


def backward_of(loss: Loss, scores: Tensor, labels: Tensor) -> Callable[[], Tensor]:
    """Return a call that goes forward and backward through the loss."""
    scores = scores.clone().requires_grad_()
    return lambda: torch.autograd.grad(loss(scores, labels), scores)[0]


def main() -> None:
    """Read the arguments, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--batches", nargs="+", default=BATCHES, help="lists x items, as 64x120")
    parser.add_argument(
        "--only", nargs="+", help="parts of the names to measure beside the baseline"
    )
    parser.add_argument("--rounds", type=int, default=5, help="repeats")
    parser.add_argument("--output", type=Path, help="default: losses.json, or losses_kept.json")
    parser.add_argument("--keep-memory", action="store_true", help="see above")
    parser.add_argument("--rows", action="store_true", help="see above")
    arguments = parser.parse_args()
    if arguments.rows:
        torch.set_num_threads(1)
        measure_rows(arguments.rounds)
        return
    everyone, name = losses(), "losses.json"
    if arguments.keep_memory:
        keep_memory()
        everyone["NeuralNDCG(scaling=50)"] = NeuralNDCG(scaling=50)
        name = "losses_kept.json"
    torch.set_num_threads(1)
    batches = []
    for batch in arguments.batches:
        lists, n = map(int, batch.split("x"))
        generator = torch.Generator().manual_seed(n)
        scores = torch.randn(lists, n, generator=generator)
        labels = torch.randint(0, 5, (lists, n), generator=generator).float()
        calls = {
            name: backward_of(loss, scores, labels)
            for name, loss in everyone.items()
            if not arguments.only
            or name == "all-pairs RankNet"
            or any(part in name for part in arguments.only)
        }
        seconds = times(calls, arguments.rounds)
        baseline = seconds["all-pairs RankNet"]
        rows = [
            {
                "loss": name,
                "seconds": rounded(taken),
                "ratio": rounded(taken / baseline),
                "bytes": peak_memory(calls[name]),
            }
            for name, taken in seconds.items()
        ]
        print(f"{lists} lists of {n}: the baseline takes {1e3 * baseline:.2f} ms")
        for row in sorted(rows, key=lambda row: row["ratio"]):
            megabytes = row["bytes"] / 1e6
            print(f"  {row['ratio']:7.2f} x the baseline  {megabytes:7.1f} MB  {row['loss']}")
        batches.append({"lists": lists, "n": n, "losses": rows})
    write(
        arguments.output or RESULTS / name,
        {"environment": environment(), "rounds": arguments.rounds, "batches": batches},
    )


if __name__ == "__main__":
    main()
