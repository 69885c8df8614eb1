"""The function that both implementations provide: the kernel sums."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from ltr.kernels.lists import SortedLists


class SumNumbers(NamedTuple):
    """The constants of the kernel sums to compute, in the form that `ltr::kernel_sums` takes."""

    scale: float
    """1 / temperature."""
    nodes: Sequence[float]
    """first.real, first.imag, step.real, step.imag and count of the nodes."""
    rows: Sequence[float]
    """`Kernel.row` of each output, one after the other."""
    sources: Sequence[int]
    """The column of each output."""


class Implementation(NamedTuple):
    """One implementation. Its results are those of `ltr.kernels.reference`, up to rounding."""

    name: str
    """The name of its folder: "cpu" or "reference"."""
    kernel_sums: Callable[[Tensor, SortedLists, Sequence[Tensor], SumNumbers], list[Tensor]]
    """Returns one sum (..., N) per output, from scores (..., N), lists and columns (..., N)."""
