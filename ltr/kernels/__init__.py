"""Kernel sums over sorted scores: the engine below operators, losses and metrics."""

from ltr.kernels.kernel import Kernel, Profile
from ltr.kernels.lists import SortedLists, in_order, sort_lists
from ltr.kernels.named import Law, chance_above, gaussian, laplace, level_of
from ltr.kernels.sorting import descending_order
from ltr.kernels.sums import kernel_sums
from ltr.kernels.table import Nodes

__all__ = [
    "Kernel",
    "Law",
    "Nodes",
    "Profile",
    "SortedLists",
    "chance_above",
    "descending_order",
    "gaussian",
    "in_order",
    "kernel_sums",
    "laplace",
    "level_of",
    "sort_lists",
]
