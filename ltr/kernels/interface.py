"""The function that both implementations provide: the kernel sums."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from ltr.kernels.lists import SortedLists


class SumNumbers(NamedTuple):
    """The kernel sums to compute: the kernels' constants in the form of `ltr::kernel_sums`."""

    scale: float
    """1 / temperature."""
    nodes: Sequence[float]
    """first.real, first.imag, step.real, step.imag and count of the nodes."""
    rows: Sequence[float]
    """`Kernel.row` of each output, one after the other."""
    sources: Sequence[int]
    """The column of each output."""


class Implementation(NamedTuple):
    """The functions of one implementation. Their results are those of `ltr.kernels.reference`."""

    name: str
    """The folder: "cpu" or "reference"."""
    kernel_sums: Callable[[Tensor, SortedLists, Sequence[Tensor], SumNumbers], list[Tensor]]
    """Returns a sum (..., N) per output, from scores (..., N), their lists and columns (..., N)."""
