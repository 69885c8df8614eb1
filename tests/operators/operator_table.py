"""The operators that every property test runs over: those of `ltr.operators.__all__`.

A new operator needs no line here. `MORE` has other arguments of some operators. Where a property
fails by an operator's mathematics, its name goes into the set of that property below, with the
reason. No bound is weakened for it.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext

import torch
from pairwise import split, together

import ltr.operators
from ltr.kernels import use
from ltr.kernels.choice import computed_by
from ltr.kernels.reference import REFERENCE
from ltr.operators import (
    IsotonicRank,
    RankOperator,
    SigmoidRank,
    SinkhornSort,
    SoftRank,
    SoftSort,
    SoftSortRank,
    SortingNetwork,
    SortOperator,
    StraightThrough,
)


def log_distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A semi-metric that is no power."""
    return (a - b).abs().log1p()


def public() -> dict[str, tuple[type[RankOperator], str]]:
    """The public operators by name, each with the name of its first argument."""
    listed = {name: getattr(ltr.operators, name) for name in ltr.operators.__all__}
    return {
        name: (cls, next(iter(inspect.signature(cls).parameters), ""))
        for name, cls in listed.items()
        if isinstance(cls, type) and issubclass(cls, RankOperator)
        if cls not in (RankOperator, SortOperator)
    }


# Upper bounds of the ranks: they have no hard limit, and refuse temperature 0 (test_softplus.py).
BOUNDS = {"SoftplusRank"}
PUBLIC = {
    name: cls for name, (cls, first) in public().items() if first in ("temperature", "epsilon")
}
MORE: dict[str, Callable[[float], RankOperator]] = {
    "SoftSort-2": lambda temperature: SoftSort(temperature, power=2),
    "SoftSort-1.5": lambda temperature: SoftSort(temperature, power=1.5),
    "SoftSort-log": lambda temperature: SoftSort(temperature, power=log_distance),
    "SoftSortRank-2": lambda temperature: SoftSortRank(temperature, power=2),
    "SoftRank-exact": lambda temperature: SoftRank(temperature, distribution="exact"),
    "SortingNetwork-cauchy": lambda temperature: SortingNetwork(temperature, "odd_even", "cauchy"),
    "SortingNetwork-bitonic": lambda temperature: SortingNetwork(temperature, "bitonic"),
    "SortingNetwork-optimal": lambda temperature: SortingNetwork(temperature, "bitonic", "optimal"),
    "SinkhornSort-1": lambda epsilon: SinkhornSort(epsilon, cost=1, squash="logistic"),
    "IsotonicRank-kl": lambda temperature: IsotonicRank(temperature, "kl"),
}

# name -> temperature -> operator; temperature 0 must be hard, but for those in BOUNDS
SOFT: dict[str, Callable[[float], RankOperator]] = {**PUBLIC, **MORE}
SOFT_OPERATORS: dict[str, RankOperator] = {name: make(0.7) for name, make in SOFT.items()}
# Those without a temperature: hard ones, and wrappers, which a test of equal results takes in eval
# mode, since a stochastic one draws noise in training.
OTHERS: dict[str, RankOperator] = {
    name: (cls(SoftSort(0.7)) if first == "operator" else cls()).eval()
    for name, (cls, first) in public().items()
    if name not in PUBLIC
}
OPERATORS: dict[str, RankOperator] = {
    **SOFT_OPERATORS,
    **OTHERS,
    **{f"{name}-0": make(0) for name, make in PUBLIC.items() if name not in BOUNDS},
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
NETWORKS = {name for name in SOFT if name.startswith("SortingNetwork")}

# Permuting the items does not just permute the ranks: a network acts on the given order.
NOT_EQUIVARIANT: set[str] = NETWORKS
# Tied items have different soft ranks: in a network it depends on whom they met before.
TIES_DIFFER: set[str] = NETWORKS
# The ranks do not all tend to (n + 1) / 2: a network of swaps by one half is not uniform, and the
# bounds tend to n.
NOT_FLAT_WHEN_HOT: set[str] = NETWORKS | BOUNDS
# The ranks tend to the hard ones like temperature / gap, not exponentially: heavy tails.
HEAVY_TAILED: set[str] = {"SortingNetwork-cauchy", "SortingNetwork-optimal"}
# An item that is alone in its block has its hard rank already, and gradient 0.
SPARSE_GRADIENT: set[str] = {"IsotonicRank-kl"}
# Row by row a softmax of distances: the argmax sorts and rows are unimodal, but columns do not sum
# to 1, nor do the ranks to 1 + ... + n.
ROW_SOFTMAX: set[str] = {"SoftSort", "SoftSort-2", "SoftSort-1.5", "SoftSort-log", "NeuralSort"}
ROW_SOFTMAX |= {"Stochastic", "Standardized"}  # around SoftSort
# The ranks do not sum to 1 + ... + n.
RANK_SUM_DIFFERS: set[str] = ROW_SOFTMAX | BOUNDS | {"SoftSortRank", "SoftSortRank-2", "DFTopK"}
# Discounts are means over whole ranks, not discounts of the mean rank.
AVERAGES_OVER_RANKS: set[str] = {"SoftRank", "SoftRank-exact"}


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Normal numbers, the same at every call."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def _accepts_weights(operator: RankOperator) -> bool:
    try:
        operator(draw(3), None, torch.ones(3, dtype=torch.float64))
    except ValueError:
        return False
    return True


def _takes_sums(operator: RankOperator) -> bool:
    # whether short lists are kernel sums or rows if sums are pinned
    taken: list[bool] = []

    def noted(compute: Callable) -> Callable:
        def call(*arguments: object) -> object:
            taken.append(True)
            return compute(*arguments)

        return call

    name, *functions = REFERENCE
    with computed_by(type(REFERENCE)(name, *map(noted, functions))), use("sums"):
        operator(draw(8))
    return bool(taken)


# Operators that accept item weights. The others refuse them, and a test looks at their message.
TAKES_WEIGHTS: set[str] = {name for name, made in OPERATORS.items() if _accepts_weights(made)}
# Operators that take their n x n matrix for short lists and kernel sums for long ones. The property
# suites run them in both forms.
TWO_FORMS: set[str] = {name for name, made in SOFT_OPERATORS.items() if _takes_sums(made)}
SUMS = " by sums"


def over(
    operators: Mapping[str, object],
    *axes: Mapping[str, object],
    but: Collection[str] = (),
    arguments: str = "operator",
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test, as `together` does, with the values of a table, but for some names.

    Those of two forms are called a second time, with sums.

    Args:
        operators: The table.
        axes: Values of more arguments. Some combinations are fast, as in `covering`.
        but: The names in the table that are left out.
        arguments: The test's arguments that take the values.
    """
    left = {name: value for name, value in operators.items() if name not in but}

    def both(cases: Mapping[str, tuple]) -> dict[str, tuple]:
        twice = {n + SUMS: v for n, v in cases.items() if n.partition("/")[0] in TWO_FORMS}
        return {**cases, **twice}

    fast, others = split(left, *axes)
    return together(
        arguments,
        both(fast),
        both(others),
        around=lambda name: use("sums") if name.endswith(SUMS) else nullcontext(),
    )


every = over(OPERATORS)
soft = over(SOFT_OPERATORS)
