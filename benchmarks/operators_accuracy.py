"""Errors of float32 scores against float64."""

from typing import Any

import torch
from measure import rounded
from operators_contestants import Contestant, scores_of
from torch import Tensor


def errors(contestant: Contestant, n: int) -> dict[str, Any]:
    """Return the errors of one list of n float32 scores against the same scores in float64.

    Returns:
        `values`: the largest absolute error; `relative`: that divided by n; `gradient`: the
        largest error divided by the largest gradient.
    """
    scores = scores_of(1, n)
    values, gradient = _both(contestant, scores)
    exact, slope = _both(contestant, scores.double())
    error = (values - exact).abs().max().item()
    return {
        "name": contestant.name,
        "group": contestant.group,
        "n": n,
        "values": rounded(error),
        "relative": rounded(error / n),
        "gradient": rounded(((gradient - slope).abs().max() / slope.abs().max()).item()),
    }


def _both(contestant: Contestant, scores: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        values = contestant.values(scores)
    return values.double(), contestant.call(scores)().double()
