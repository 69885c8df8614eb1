"""All rank and sort operators at equal sharpness: error, gradient, time, memory.

    python benchmarks/compare_operators.py

The scores are normal, of deviation 1. Each operator has the temperature at which the mean absolute
difference of its ranks to the hard ranks is that of SigmoidRank at a tenth of the deviation. This
is sharpness 10 of `ltr.operators.temperature_for`. At this equal mean error the table shows

- `top`: the mean error of the ten best items, which matters to a loss such as NDCG;
- `largest`: the largest error of any item;
- `gradient`: the Frobenius norm of the Jacobian d ranks / d scores, divided by sqrt(n), so that it
  is a norm per item, in ranks per unit of score; it is estimated from products with random signs;
- `still`: the share of items whose score does not change any rank, to the last digit;
- `seconds` and `bytes`: those of one forward and backward of all lists, see `measure.py`.

Sorted values are compared in the same way, at the temperatures at which the mean absolute
difference to `torch.sort` is that of SoftSort at a tenth of the deviation. GumbelSinkhorn gets
SoftSort's distances, no noise, and 20 iterations.

StraightThrough and Stochastic take SoftSort at its temperature for the ranks; Stochastic adds
noise of scale 0.1 in 5 samples, whose ranks are averaged.
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measure import RESULTS, environment, peak_memory, rounded, times, write
from scipy.optimize import brentq
from torch import Tensor

from ltr.operators import (
    DFTopK,
    GaussianRank,
    GumbelSinkhorn,
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
    SortOperator,
    Stochastic,
    StraightThrough,
    hard_ranks,
    soft_sort,
)

Make = Callable[[float], RankOperator]

WIDTH = 0.1
"""SigmoidRank's temperature, in deviations of the scores: sharpness 10."""

DRAWS = 2
"""Random signs for the norm of a Jacobian."""

# name -> a function that makes the operator, and an initial temperature for lists of n
RANKS: dict[str, tuple[Make, Callable[[int], float]]] = {
    "SigmoidRank": (SigmoidRank, lambda n: WIDTH),
    "GaussianRank": (GaussianRank, lambda n: 1.2 * WIDTH),
    "SoftRank": (SoftRank, lambda n: 1.2 * WIDTH),
    "LaplaceRank": (LaplaceRank, lambda n: 1.3 * WIDTH),
    "LapSum": (LapSum, lambda n: 1.3 * WIDTH),
    "DFTopK": (DFTopK, lambda n: WIDTH),
    "SoftSort": (SoftSort, lambda n: WIDTH),
    "SoftSort, power 2": (lambda t: SoftSort(t, power=2), lambda n: WIDTH**2),
    "SoftSortRank": (SoftSortRank, lambda n: WIDTH),
    "NeuralSort": (NeuralSort, lambda n: n * WIDTH**2),
    "SinkhornSort": (SinkhornSort, lambda n: 0.001),
    "IsotonicRank": (IsotonicRank, lambda n: 10 * WIDTH / n),
    "IsotonicRank, kl": (lambda t: IsotonicRank(t, "kl"), lambda n: 2 * WIDTH),
    "SortingNetwork, odd-even": (SortingNetwork, lambda n: WIDTH),
    "SortingNetwork, bitonic": (lambda t: SortingNetwork(t, "bitonic"), lambda n: WIDTH),
}


def _sorted_by(make: Make) -> Callable[[float], Callable[[Tensor], Tensor]]:
    return lambda t: lambda s: soft_sort(s, make(t))  # type: ignore[arg-type]


def _matched(t: float) -> Callable[[Tensor], Tensor]:
    """GumbelSinkhorn on SoftSort's distances, without noise."""

    def values(s: Tensor) -> Tensor:
        distances = (s.sort(-1, descending=True).values.unsqueeze(-1) - s.unsqueeze(-2)).abs()
        return GumbelSinkhorn(t)(-distances).mv(s)

    return values


VALUES: dict[str, Callable[[float], Callable[[Tensor], Tensor]]] = {
    name: _sorted_by(make)
    for name, (make, _) in RANKS.items()
    if isinstance(make(1.0), SortOperator)
} | {"IsotonicSort": IsotonicSort, "GumbelSinkhorn": _matched}


def lists(number: int, n: int) -> Tensor:
    """Return normal scores (number, n) of mean 0 and deviation 1 in each list."""
    scores = torch.randn(number, n, generator=torch.Generator().manual_seed(0))
    scores = scores - scores.mean(-1, keepdim=True)
    return (scores / scores.std(-1, keepdim=True)).requires_grad_()


def temperature_of(error: Callable[[float], float], wanted: float, guess: float) -> float:
    """Return the temperature at which a ascending error is as wanted, to a thousandth."""

    @torch.no_grad()
    def excess(log_temperature: float) -> float:
        return math.log(max(error(math.exp(log_temperature)), 1e-30) / wanted)

    low = high = math.log(guess)
    value = excess(low)
    step = 0.7 if value < 0 else -0.7
    while True:  # an error of 0 (exactly hard) is far below
        high += step
        if (excess(high) < 0) != (value < 0):
            break
        low, step = high, 1.5 * step
    return math.exp(brentq(excess, min(low, high), max(low, high), xtol=1e-3))


def operators(scores: Tensor) -> dict[str, tuple[RankOperator, float | None]]:
    """Return every operator at its temperature; the temperature is None if it has none."""
    hard = hard_ranks(scores)

    def blur(operator: RankOperator) -> float:
        return (operator(scores) - hard).abs().mean().item()

    wanted = blur(SigmoidRank(WIDTH))
    found: dict[str, tuple[RankOperator, float | None]] = {}
    for name, (make, guess) in RANKS.items():
        n = scores.shape[-1]
        t = (
            WIDTH
            if name == "SigmoidRank"
            else temperature_of(lambda t, make=make: blur(make(t)), wanted, guess(n))
        )
        found[name] = make(t), t
        print(f"n = {n}: {name} at temperature {t:.4g}")
    softsort, t = found["SoftSort"]
    found["StraightThrough(SoftSort)"] = StraightThrough(softsort), t
    found["Stochastic(SoftSort), 5 samples"] = Stochastic(softsort, samples=5, scale=WIDTH), t
    found["HardRank"] = HardRank(), None
    return found


def backward_of(scores: Tensor, function: Callable[[Tensor], Tensor]) -> Callable[[], Tensor]:
    """Return a call that goes forward and backward, by random signs, to the scores' gradient."""
    generator = torch.Generator().manual_seed(1)

    def call() -> Tensor:
        values = function(scores)
        signs = torch.randint(0, 2, values.shape, generator=generator) * 2.0 - 1
        if not values.requires_grad:
            return torch.zeros_like(scores)
        return torch.autograd.grad(values, scores, signs)[0]

    return call


def compare_ranks(
    scores: Tensor, found: dict[str, tuple[RankOperator, float | None]], rounds: int
) -> list[dict[str, Any]]:
    """Return one row per operator."""
    hard = hard_ranks(scores)

    def ranks(operator: RankOperator) -> Callable[[Tensor], Tensor]:
        if isinstance(operator, Stochastic):
            return lambda scores: operator(scores).mean(0)  # over the samples
        return operator

    calls = {name: backward_of(scores, ranks(operator)) for name, (operator, _) in found.items()}
    seconds = times(calls, rounds)
    rows = []
    for name, (operator, temperature) in found.items():
        with torch.no_grad():
            error = (ranks(operator)(scores) - hard).abs()
        gradients = torch.stack([calls[name]() for _ in range(DRAWS)])
        rows.append(
            {
                "operator": name,
                "temperature": None if temperature is None else rounded(temperature),
                "mean": rounded(error.mean().item()),
                "top": rounded(error[hard <= 10].mean().item()),
                "largest": rounded(error.max().item()),
                "gradient": rounded(gradients.square().mean().sqrt().item()),
                "still": rounded((gradients == 0).all(0).float().mean().item()),
                "seconds": rounded(seconds[name]),
                "bytes": peak_memory(calls[name]),
            }
        )
    return rows


def compare_values(
    scores: Tensor, found: dict[str, tuple[RankOperator, float | None]], rounds: int
) -> list[dict[str, Any]]:
    """Return one row for each operator with sorted values."""
    hard = scores.detach().sort(-1, descending=True).values

    def blur(function: Callable[[Tensor], Tensor]) -> float:
        return (function(scores) - hard).abs().mean().item()

    wanted = blur(VALUES["SoftSort"](WIDTH))
    functions: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {}
    for name, make in VALUES.items():
        guess = 1.0 if name == "IsotonicSort" else found[name][1] if name in found else WIDTH
        t = temperature_of(lambda t, make=make: blur(make(t)), wanted, guess or WIDTH)
        functions[name] = make(t), t
        print(f"n = {scores.shape[-1]}: {name} for values at temperature {t:.4g}")
    calls = {name: backward_of(scores, function) for name, (function, _) in functions.items()}
    seconds = times(calls, rounds)
    rows = []
    for name, (function, temperature) in functions.items():
        with torch.no_grad():
            error = (function(scores) - hard).abs()
        gradients = torch.stack([calls[name]() for _ in range(DRAWS)])
        rows.append(
            {
                "operator": name,
                "temperature": rounded(temperature),
                "mean": rounded(error.mean().item()),
                "largest": rounded(error.max().item()),
                "gradient": rounded(gradients.square().mean().sqrt().item()),
                "seconds": rounded(seconds[name]),
                "bytes": peak_memory(calls[name]),
            }
        )
    return rows


def main() -> None:
    """Read the arguments, compare, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000], help="list lengths")
    parser.add_argument(
        "--lists", type=int, default=8, help="lists in a batch, a quarter from 1000 on"
    )
    parser.add_argument("--rounds", type=int, default=7, help="repeats, half from 1000 on")
    parser.add_argument("--output", type=Path, default=RESULTS / "compare_operators.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sizes = []
    for n in arguments.sizes:
        number = max(1, arguments.lists // 4) if n >= 1000 else arguments.lists
        rounds = max(1, arguments.rounds // (2 if n >= 1000 else 1))
        scores = lists(number, n)
        found = operators(scores)
        sizes.append(
            {
                "n": n,
                "lists": number,
                "rounds": rounds,
                "ranks": compare_ranks(scores, found, rounds),
                "values": compare_values(scores, found, rounds),
            }
        )
    write(
        arguments.output,
        {
            "environment": environment(),
            "dtype": "float32",
            "sigmoid_temperature": WIDTH,
            "sizes": sizes,
        },
    )


if __name__ == "__main__":
    main()
