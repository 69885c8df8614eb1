"""Differentiable rank and sort operators with a common interface; one paper per file.

Ranks start at 1, and the highest score has rank 1. Scores are `(..., n)`: the last axis is the
list, and any batch axes may come before it. A mask is bool, with True for a real item.

Each operator is a class: `SoftSort(0.1)(scores)` returns ranks, and
`SoftSort(0.1).permutation(scores)` returns the soft permutation. The functions (`soft_rank`,
`soft_sort`, ...) take an operator, too.
"""

from typing import TYPE_CHECKING

from ltr.gains import truncated
from ltr.kernels.sorting import descending_order
from ltr.names import package_names
from ltr.operators.base import RankOperator, SortOperator
from ltr.operators.dftopk import DFTopK
from ltr.operators.functions import (
    SoftTopK,
    soft_median,
    soft_quantile,
    soft_rank,
    soft_sort,
    soft_topk,
    sort_with,
)
from ltr.operators.gumbel_sinkhorn import GumbelSinkhorn
from ltr.operators.hard import HardRank
from ltr.operators.isotonic import IsotonicRank, IsotonicSort
from ltr.operators.lapsum import LapSum
from ltr.operators.network import SortingNetwork
from ltr.operators.neuralsort import NeuralSort
from ltr.operators.order import hard_ranks
from ltr.operators.pairwise import GaussianRank, LaplaceRank, SigmoidRank, SoftplusRank
from ltr.operators.permutation import DensePermutation, SoftPermutation
from ltr.operators.sinkhorn import SinkhornSort
from ltr.operators.softrank import SoftRank
from ltr.operators.softsort import SoftSort, SoftSortRank
from ltr.operators.standardized import Standardized
from ltr.operators.stochastic import Stochastic, gumbel_noise
from ltr.operators.straight_through import StraightThrough
from ltr.operators.temperature import temperature_for

__all__ = [
    "DFTopK",
    "DensePermutation",
    "GaussianRank",
    "GumbelSinkhorn",
    "HardRank",
    "IsotonicRank",
    "IsotonicSort",
    "LapSum",
    "LaplaceRank",
    "NeuralSort",
    "RankOperator",
    "SigmoidRank",
    "SinkhornSort",
    "SoftPermutation",
    "SoftRank",
    "SoftSort",
    "SoftSortRank",
    "SoftTopK",
    "SoftplusRank",
    "SortOperator",
    "SortingNetwork",
    "Standardized",
    "Stochastic",
    "StraightThrough",
    "descending_order",
    "gumbel_noise",
    "hard_ranks",
    "soft_median",
    "soft_quantile",
    "soft_rank",
    "soft_sort",
    "soft_topk",
    "sort_with",
    "temperature_for",
    "truncated",
]


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any name
    __getattr__, __dir__ = package_names(__name__, __all__)
