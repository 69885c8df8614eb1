"""The sums on the CPU, compiled by numba. Import it only when a compiled function is needed.

Beside the functions of `reference` it has the sums over graded pairs (`pairs`), SoftSort's ranks
(`softsort`) and Sinkhorn scaling (`scaling`), each in one call.
"""

from ltr.kernels.cpu.rows import row_log_sums, row_products, row_vjp
from ltr.kernels.cpu.sums import kernel_sums
from ltr.kernels.interface import Implementation

CPU = Implementation("cpu", kernel_sums, row_products, row_log_sums, row_vjp)
"""numba's code."""
