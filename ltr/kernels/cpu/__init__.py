"""The sums on the CPU, compiled by numba. Import it only when a compiled function is needed.

Beside the functions of `reference` it has the sums over graded pairs (`pairs`), SoftSort's ranks
(`softsort`) and Sinkhorn scaling (`scaling`), each in one call.
"""

from ltr.kernels.cpu.sums import kernel_sums
from ltr.kernels.interface import Implementation

CPU = Implementation("cpu", kernel_sums)
"""numba's code."""
