"""The operators that every property test runs over. A new operator is one line in SOFT.

Where a property fails by an operator's mathematics, its name goes into the set of that property
below, with the reason. No bound is weakened for it.
"""

from collections.abc import Callable, Collection, Mapping

import pytest
import torch

from ltr.operators import (
    GaussianRank,
    HardRank,
    IsotonicRank,
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
)


def log_distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A semi-metric that is no power."""
    return (a - b).abs().log1p()


# name -> temperature -> operator; temperature 0 must be hard
SOFT: dict[str, Callable[[float], RankOperator]] = {
    "SoftSort-1": lambda temperature: SoftSort(temperature, power=1),
    "SoftSort-2": lambda temperature: SoftSort(temperature, power=2),
    "SoftSort-1.5": lambda temperature: SoftSort(temperature, power=1.5),
    "SoftSort-log": lambda temperature: SoftSort(temperature, power=log_distance),
    "SoftSortRank-1": lambda temperature: SoftSortRank(temperature),
    "SoftSortRank-2": lambda temperature: SoftSortRank(temperature, power=2),
    "NeuralSort": lambda temperature: NeuralSort(temperature),
    "SigmoidRank": lambda temperature: SigmoidRank(temperature),
    "GaussianRank": lambda temperature: GaussianRank(temperature),
    "LaplaceRank": lambda temperature: LaplaceRank(temperature),
    "LapSum": lambda temperature: LapSum(temperature),
    "SoftRank": lambda temperature: SoftRank(temperature),
    "SoftRank-exact": lambda temperature: SoftRank(temperature, distribution="exact"),
    "OddEven": lambda temperature: SortingNetwork(temperature),
    "OddEven-cauchy": lambda temperature: SortingNetwork(temperature, distribution="cauchy"),
    "Bitonic": lambda temperature: SortingNetwork(temperature, "bitonic"),
    "Bitonic-optimal": lambda temperature: SortingNetwork(temperature, "bitonic", "optimal"),
    "Sinkhorn": lambda epsilon: SinkhornSort(epsilon),
    "Sinkhorn-1": lambda epsilon: SinkhornSort(epsilon, cost=1, squash="logistic"),
    "Isotonic-l2": lambda temperature: IsotonicRank(temperature),
    "Isotonic-kl": lambda temperature: IsotonicRank(temperature, "kl"),
}
SOFT_OPERATORS: dict[str, RankOperator] = {name: make(0.7) for name, make in SOFT.items()}
OPERATORS: dict[str, RankOperator] = SOFT_OPERATORS | {
    "HardRank": HardRank(),
    "Sinkhorn-0": SinkhornSort(0),
    "Isotonic-0": IsotonicRank(0),
    "SoftSort-0": SoftSort(0),
    "SigmoidRank-0": SigmoidRank(0),
    "SoftSortRank-0": SoftSortRank(0),
    "NeuralSort-0": NeuralSort(0),
    "LapSum-0": LapSum(0),
    "SoftRank-0": SoftRank(0),
    "OddEven-0": SortingNetwork(0),
    "Stochastic-eval": Stochastic(SoftSort(0.7)).eval(),
    "StraightThrough": StraightThrough(SoftSort(0.7)),
    "StraightThrough-rank": StraightThrough(SigmoidRank(0.7)),
    "StraightThrough-network": StraightThrough(SortingNetwork(0.7, "bitonic")),
}

# Those with a matrix; a StraightThrough around a rank operator has none.
SORT_OPERATORS: dict[str, RankOperator] = {
    name: operator
    for name, operator in OPERATORS.items()
    if isinstance(operator, SortOperator) and name != "StraightThrough-rank"
}

# Names for which a property does not hold, and why.
NETWORKS = {"OddEven", "OddEven-cauchy", "Bitonic", "Bitonic-optimal"}

# Permuting the items does not just permute the ranks: a network acts on the given order.
NOT_EQUIVARIANT: set[str] = NETWORKS
# Tied items have different soft ranks: in a network it depends on whom they met before.
TIES_DIFFER: set[str] = NETWORKS
# The ranks do not all tend to (n + 1) / 2: a network of swaps by one half is not uniform.
NOT_FLAT_WHEN_HOT: set[str] = NETWORKS
# The ranks tend to the hard ones like temperature / gap, not exponentially: heavy tails.
HEAVY_TAILED: set[str] = {"OddEven-cauchy", "Bitonic-optimal"}

# Operators that accept item weights; the others refuse them.
TAKES_WEIGHTS: set[str] = {"Sinkhorn", "Sinkhorn-1", "Sinkhorn-0"}
TAKES_WEIGHTS |= {"SigmoidRank", "GaussianRank", "LaplaceRank"}
TAKES_WEIGHTS |= {"SigmoidRank-0"}
# An item that is alone in its block has its hard rank already, and gradient 0.
SPARSE_GRADIENT: set[str] = {"Isotonic-kl"}
# Row by row a softmax of distances: the argmax sorts and rows are unimodal, but columns do not sum
# to 1, nor do the ranks to 1 + ... + n.
ROW_SOFTMAX: set[str] = {"SoftSort-1", "SoftSort-2", "SoftSort-1.5", "SoftSort-log", "NeuralSort"}
ROW_SOFTMAX |= {"Stochastic-eval"}
# The ranks do not sum to 1 + ... + n.
RANK_SUM_DIFFERS: set[str] = ROW_SOFTMAX | {"SoftSortRank-1", "SoftSortRank-2"}
# Discounts are means over whole ranks, not discounts of the mean rank.
AVERAGES_OVER_RANKS: set[str] = {"SoftRank", "SoftRank-exact"}


def over(
    operators: Mapping[str, object], but: Collection[str] = (), argument: str = "operator"
) -> pytest.MarkDecorator:
    """Parametrize a test over the values of a table, but for some names."""
    left = {name: value for name, value in operators.items() if name not in but}
    return pytest.mark.parametrize(argument, left.values(), ids=left)


every = over(OPERATORS)
soft = over(SOFT_OPERATORS)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Normal numbers, the same at every call."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


# Operators that take their n x n matrix for short lists and kernel sums for long ones. The property
# suites run them in both forms.
TWO_FORMS: set[str] = {
    *(name for name in SOFT if name.startswith(("SoftSort", "NeuralSort"))),
    *("SigmoidRank", "GaussianRank", "LaplaceRank", "LapSum"),
} - {"SoftSort-log"}
