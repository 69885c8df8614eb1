"""NeuralSort as published, in O(n^3), against ours, in O(n^2).

    python benchmarks/neuralsort_cubed.py

Equation 3 needs A_j = sum over k of |s_j - s_k| in every row. The published code, in both of its
frameworks, multiplies the n x n matrix of differences by an n x n matrix of ones: n^3
multiplications where n^2 additions are enough. `published` is that line, in float32 as published.
`row sums` is the same with one association moved (the product with a vector of ones). `ours` is
`ltr.operators.NeuralSort`, which computes the sums from one sort. Times are of one forward and
backward; the differences are between the matrices, in float64 and in float32.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from measure import RESULTS, environment, peak_memory, rounded, times, write
from torch import Tensor

from ltr.operators import NeuralSort

TEMPERATURE = 1.0


def published(scores: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """Return the matrix of Grover et al. 2019 as in their code, for scores (lists, n)."""
    s = scores.unsqueeze(-1)
    n = s.shape[1]
    one = torch.ones(n, 1, dtype=s.dtype)
    A = (s - s.mT).abs()
    B = torch.matmul(A, torch.matmul(one, one.mT))
    return _rows(s, B, temperature)


def row_sums(scores: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """Return the same matrix with (A 1) 1^T for A (1 1^T)."""
    s = scores.unsqueeze(-1)
    one = torch.ones(s.shape[1], 1, dtype=s.dtype)
    B = torch.matmul(torch.matmul((s - s.mT).abs(), one), one.mT)
    return _rows(s, B, temperature)


def _rows(s: Tensor, B: Tensor, temperature: float) -> Tensor:
    n = s.shape[1]
    scaling = (n + 1 - 2 * (torch.arange(n) + 1)).to(s.dtype)
    C = torch.matmul(s, scaling.unsqueeze(0))
    return torch.softmax((C - B).mT / temperature, -1)


def ours(scores: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """Return the matrix of `ltr.operators.NeuralSort`."""
    return NeuralSort(temperature).permutation(scores).dense()


def backward_of(function: Callable[[Tensor], Tensor], scores: Tensor) -> Callable[[], Tensor]:
    """Return a call that goes forward and backward through the matrix."""
    scores = scores.clone().requires_grad_()
    weight = torch.linspace(-1, 1, scores.shape[-1])

    def call() -> Tensor:
        return torch.autograd.grad((function(scores) @ weight).square().sum(), scores)[0]

    return call


def main() -> None:
    """Read the arguments, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 200, 500, 1000, 2000])
    parser.add_argument("--lists", type=int, default=4, help="lists in a batch")
    parser.add_argument("--rounds", type=int, default=5, help="repeats")
    parser.add_argument("--output", type=Path, default=RESULTS / "neuralsort_cubed.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sizes = []
    for n in arguments.sizes:
        generator = torch.Generator().manual_seed(n)
        exact = torch.randn(arguments.lists, n, generator=generator, dtype=torch.float64)
        functions = {"published": published, "row_sums": row_sums, "ours": ours}
        calls = {name: backward_of(f, exact.float()) for name, f in functions.items()}
        seconds = times(calls, arguments.rounds)
        # the same float32 scores for both precisions: only the arithmetic differs
        P = published(exact.float().double())
        sizes.append(
            {
                "n": n,
                "seconds": {name: rounded(s) for name, s in seconds.items()},
                "bytes": {name: peak_memory(call) for name, call in calls.items()},
                "ratio": rounded(seconds["published"] / seconds["ours"]),
                "difference_float64": rounded(
                    (ours(exact.float().double()) - P).abs().max().item()
                ),
                "error_float32": {
                    name: rounded((f(exact.float()) - P).abs().max().item())
                    for name, f in functions.items()
                },
            }
        )
        print(f"n = {n}: the published association takes {sizes[-1]['ratio']} times as long")
    write(
        arguments.output,
        {
            "environment": environment(),
            "lists": arguments.lists,
            "rounds": arguments.rounds,
            "temperature": TEMPERATURE,
            "sizes": sizes,
        },
    )


if __name__ == "__main__":
    main()
