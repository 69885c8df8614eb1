"""Differentiable rank and sort operators that share one contract; each file holds one paper.

Ranks start at 1, and 1 is the highest score. Scores are `(..., n)`: the list is the last axis, and
any batch axes may come before it. A mask is bool, with True for a real item.
"""

from typing import TYPE_CHECKING, Any

from ltr.gains import truncated
from ltr.names import no_attribute
from ltr.operators.base import RankOperator, SortOperator
from ltr.operators.dense_permutation import DensePermutation
from ltr.operators.dftopk import DFTopK, df_top_k
from ltr.operators.distributions import laplace_cdf
from ltr.operators.functions import (
    SoftTopK,
    soft_argsort,
    soft_median,
    soft_quantile,
    soft_rank,
    soft_sort,
    soft_topk,
    sort_with,
)
from ltr.operators.gaussian import GaussianRank, gaussian_ranks
from ltr.operators.gumbel_sinkhorn import GumbelSinkhorn, Matching, gumbel_sinkhorn
from ltr.operators.hard import HardRank, descending_order, hard_ranks
from ltr.operators.hard_permutation import HardPermutation
from ltr.operators.isotonic import IsotonicRank, IsotonicSort, isotonic_ranks, isotonic_sort
from ltr.operators.kernel_permutation import KernelPermutation
from ltr.operators.laplace import LaplaceRank, laplace_ranks
from ltr.operators.lapsum import LapSum, LapSumPermutation, lapsum, lapsum_top_k
from ltr.operators.lapsum_sort import lapsum_sort
from ltr.operators.network import NetworkPermutation, SortingNetwork, sorting_network
from ltr.operators.neuralsort import NeuralSort, neuralsort
from ltr.operators.permutation import SoftPermutation, TransposedPermutation, register_permutation
from ltr.operators.sigmoid import SigmoidRank, sigmoid_ranks
from ltr.operators.sinkhorn import SinkhornSort
from ltr.operators.sinkhorn_long import LongSinkhornPermutation
from ltr.operators.sinkhorn_permutation import SinkhornPermutation
from ltr.operators.softrank import SoftRank, rank_distribution
from ltr.operators.softsort import SoftSort, softsort
from ltr.operators.softsort_rank import SoftSortRank, softsort_ranks
from ltr.operators.stochastic import Stochastic, gumbel_noise
from ltr.operators.straight_through import (
    StraightThrough,
    StraightThroughPermutation,
    straight_through,
)
from ltr.operators.temperature import temperature_for
from ltr.operators.tiled import TiledPermutation

__all__ = [
    "DFTopK",
    "DensePermutation",
    "GaussianRank",
    "GumbelSinkhorn",
    "HardPermutation",
    "HardRank",
    "IsotonicRank",
    "IsotonicSort",
    "KernelPermutation",
    "LapSum",
    "LapSumPermutation",
    "LaplaceRank",
    "LongSinkhornPermutation",
    "Matching",
    "NetworkPermutation",
    "NeuralSort",
    "RankOperator",
    "SigmoidRank",
    "SinkhornPermutation",
    "SinkhornSort",
    "SoftPermutation",
    "SoftRank",
    "SoftSort",
    "SoftSortRank",
    "SoftTopK",
    "SortOperator",
    "SortingNetwork",
    "Stochastic",
    "StraightThrough",
    "StraightThroughPermutation",
    "TiledPermutation",
    "TransposedPermutation",
    "descending_order",
    "df_top_k",
    "gaussian_ranks",
    "gumbel_noise",
    "gumbel_sinkhorn",
    "hard_ranks",
    "isotonic_ranks",
    "isotonic_sort",
    "laplace_cdf",
    "laplace_ranks",
    "lapsum",
    "lapsum_sort",
    "lapsum_top_k",
    "neuralsort",
    "rank_distribution",
    "register_permutation",
    "sigmoid_ranks",
    "soft_argsort",
    "soft_median",
    "soft_quantile",
    "soft_rank",
    "soft_sort",
    "soft_topk",
    "softsort",
    "softsort_ranks",
    "sort_with",
    "sorting_network",
    "straight_through",
    "temperature_for",
    "truncated",
]


if not TYPE_CHECKING:  # with __getattr__ in view, a type checker would accept any name

    def __getattr__(name: str) -> Any:
        raise no_attribute(__name__, name, __all__)
