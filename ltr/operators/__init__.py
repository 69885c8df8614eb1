"""Differentiable rank and sort operators: one contract, one paper a file.

Ranks are 1-based, and 1 is the highest score. Scores are `(..., n)`, a mask is bool with True for
a real item, and any batch dimensions may come before the list.
"""

from ltr.operators.base import RankOperator, SortOperator, truncated
from ltr.operators.hard import HardRank, descending_order, hard_ranks
from ltr.operators.permutation import DensePermutation, SoftPermutation, TransposedPermutation
from ltr.operators.sigmoid import SigmoidRank, sigmoid_ranks
from ltr.operators.softsort import SoftSort, softsort

__all__ = [
    "DensePermutation",
    "HardRank",
    "RankOperator",
    "SigmoidRank",
    "SoftPermutation",
    "SoftSort",
    "SortOperator",
    "TransposedPermutation",
    "descending_order",
    "hard_ranks",
    "sigmoid_ranks",
    "softsort",
    "truncated",
]
