"""CUDA, compiled by Triton: the kernel sums. The rows are those of plain PyTorch."""

from ltr.kernels.reference import REFERENCE
from ltr.kernels.triton.sums import kernel_sums

TRITON = REFERENCE._replace(name="triton", kernel_sums=kernel_sums)
"""Triton's sums."""
