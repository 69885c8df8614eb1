"""The sums on the CPU, compiled by numba. Import this only if a compiled function is needed.

Besides the kernel sums, this package has the sums over graded pairs (`pairs`), SoftSort's ranks
(`softsort`) and Sinkhorn scaling (`scaling`), each in one call.
"""

from ltr.kernels.cpu.sums import kernel_sums
from ltr.kernels.interface import Implementation

CPU = Implementation("cpu", kernel_sums)
"""The implementation that numba compiles."""
