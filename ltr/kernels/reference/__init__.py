"""The kernel sums in plain PyTorch, for any device; tests compare numba's code with them."""

from ltr.kernels.interface import Implementation
from ltr.kernels.reference.sums import kernel_sums

REFERENCE = Implementation("reference", kernel_sums)
"""The implementation in plain PyTorch."""
