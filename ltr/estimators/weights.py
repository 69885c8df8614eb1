"""The search for the weights of several rankers."""

import math
from collections.abc import Callable

import numpy as np

_STEPS = 20
"""The search tries each weight in this many equal steps from 0 to 1."""

_ROUNDS = 5
"""The search goes through all rankers at most this many times."""

_ERRORS = 2
"""The gain over equal weights must exceed this many standard errors."""


def best_weights(count: int, values: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the weights (count,) with the largest mean value, or equal weights; see `Blend`.

    Args:
        count: the number of rankers.
        values: a function from weights, which sum to 1, to the value of each list, (lists,).

    >>> best_weights(2, lambda weights: weights[0] + np.zeros(9)).tolist()
    [1.0, 0.0]
    """
    weights = np.full(count, 1 / count)
    equal, start = weights, values(weights)
    best = start.mean()
    for _ in range(_ROUNDS):
        before = best
        for position in range(count if count > 2 else count - 1):
            own = np.eye(count)[position]
            others = weights * (1 - own)
            others = others / others.sum() if others.sum() else (1 - own) / (count - 1)
            for share in sorted(np.linspace(0, 1, _STEPS + 1), key=lambda x: abs(x - 1 / count)):
                tried = share * own + (1 - share) * others
                value = values(tried).mean()
                if value > best:
                    best, weights = value, tried
        if best == before:
            break
    gain = values(weights) - start
    error = gain.std() / math.sqrt(len(gain))
    return weights if gain.mean() > _ERRORS * error else equal
