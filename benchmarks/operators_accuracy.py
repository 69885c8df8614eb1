"""Errors of float32, and SoftRank's discounts against the recursion they replace."""

import time
from typing import Any

import torch
from measure import rounded
from operators_contestants import Contestant, contestants, recursion, scores_of, signs_of
from torch import Tensor


def errors(contestant: Contestant, n: int) -> dict[str, Any]:
    """Return the errors of one list of n float32 scores against the same scores in float64.

    Returns:
        `values`: the largest absolute error; `relative`: that divided by n (the discounts'
        largest is 1, and theirs is not divided); `gradient`: the largest error divided by the
        largest gradient.
    """
    scores = scores_of(1, n)
    values, gradient = _both(contestant, scores)
    exact, slope = _both(contestant, scores.double())
    error = (values - exact).abs().max().item()
    scale = 1 if "discounts" in contestant.name else n
    return {
        "name": contestant.name,
        "group": contestant.group,
        "n": n,
        "values": rounded(error),
        "relative": rounded(error / scale),
        "gradient": rounded(((gradient - slope).abs().max() / slope.abs().max()).item()),
    }


def _both(contestant: Contestant, scores: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        values = contestant.values(scores)
    return values.double(), contestant.call(scores)().double()


def against_recursion(n: int) -> dict[str, Any]:
    """Return the time of SoftRank's O(n^3) recursion, and the difference of our results from it.

    Returns:
        `cpu` and `wall`: seconds of the recursion; `values` and `gradient`: the largest
        difference of the discounts, and of the gradients over the largest gradient.
    """
    (ours,) = (c for c in contestants() if c.key == "SoftRank, discounts")
    scores = scores_of(1, n).requires_grad_()
    signs = signs_of(scores)
    start = time.process_time(), time.perf_counter()
    expected = recursion(scores)
    (slope,) = torch.autograd.grad(expected, scores, signs)
    cpu, wall = time.process_time() - start[0], time.perf_counter() - start[1]
    found = ours.function(scores)
    (own,) = torch.autograd.grad(found, scores, signs)
    return {
        "n": n,
        "cpu": rounded(cpu),
        "wall": rounded(wall),
        "values": rounded((found - expected).abs().max().item()),
        "gradient": rounded(((own - slope).abs().max() / slope.abs().max()).item()),
    }
