"""Kernel sums over sorted scores: the engine below operators, losses and metrics."""

from ltr.kernels.choice import prefers_dense, use
from ltr.kernels.kernel import Kernel, Profile
from ltr.kernels.lists import (
    Lengths,
    SortedLists,
    check_lengths,
    group_by_qid,
    in_order,
    length_tiles,
    list_ids,
    pad_lists,
    places_in_lists,
    sort_lists,
    sort_ragged,
    sum_lists,
)
from ltr.kernels.named import Distribution, gaussian, laplace, level_of, softplus, survival
from ltr.kernels.pairs import GradedWeights, graded_pair_sums, graded_softplus_sums
from ltr.kernels.sorting import descending_order
from ltr.kernels.sums import kernel_sums
from ltr.kernels.table import Nodes
from ltr.kernels.two_sets import kernel_sums_at

__all__ = [
    "Distribution",
    "GradedWeights",
    "Kernel",
    "Lengths",
    "Nodes",
    "Profile",
    "SortedLists",
    "check_lengths",
    "descending_order",
    "gaussian",
    "graded_pair_sums",
    "graded_softplus_sums",
    "group_by_qid",
    "in_order",
    "kernel_sums",
    "kernel_sums_at",
    "laplace",
    "length_tiles",
    "level_of",
    "list_ids",
    "pad_lists",
    "places_in_lists",
    "prefers_dense",
    "softplus",
    "sort_lists",
    "sort_ragged",
    "sum_lists",
    "survival",
    "use",
]
