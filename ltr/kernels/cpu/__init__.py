"""The sums on the CPU, compiled by numba.

Import this package only if a compiled function is needed. Besides the kernel sums, it has the sums
over pairs of graded items (`pairs`) and SoftSort's ranks (`softsort`), each in one call.
"""

from ltr.kernels.cpu.sums import kernel_sums
from ltr.kernels.interface import Implementation

CPU = Implementation("cpu", kernel_sums)
"""The implementation that numba compiles."""
