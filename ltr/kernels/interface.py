"""The interface of both implementations of the kernel sums: numba's code and plain PyTorch."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from ltr.kernels.lists import SortedLists


class SumNumbers(NamedTuple):
    """The constants of the kernel sums to compute, in the form that `ltr::kernel_sums` takes."""

    scale: float
    """1 / temperature."""
    nodes: Sequence[float]
    """`first.real`, `first.imag`, `step.real`, `step.imag` and `count` of the nodes."""
    rows: Sequence[float]
    """The `Kernel.row` of each output, over temperature^derivative_order, one after the other."""
    sources: Sequence[int]
    """The index of each output's column."""


class Implementation(NamedTuple):
    """An implementation of the kernel sums. All implementations agree up to rounding."""

    name: str
    """The name of the implementation's folder: "cpu" or "reference"."""
    kernel_sums: Callable[[Tensor, SortedLists, Sequence[Tensor], SumNumbers], list[Tensor]]
    """Returns one sum (..., n) per output, from scores (..., n), lists and columns (..., n)."""
