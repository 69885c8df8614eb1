"""Exponentials of vectors, and a numba compiler that allows sums in any order."""

import numpy as np

from ltr.kernels.cpu.jit import compiler, jit

sums_jit = compiler("reassoc", "contract", "nsz")
"""Compile like `jit`, but allow sums in any order, so that they use vector lanes."""

# This is 1.5 * 2^52. Adding it leaves the nearest whole number in the low bits of the sum.
SHIFT = 6755399441055744.0
BIAS = 1023 << 52
FARTHEST = 600.0
"""exp(-600) is negligible in any sum, and far larger than the subnormal numbers."""


@jit
def exp(x, scale):
    """Replace each x, in [-FARTHEST, 0], by e^x, in place; `scale` is scratch memory.

    The last digit or two of a result may be wrong.
    """
    for k in range(len(x)):
        shifted = x[k] * 1.4426950408889634 + SHIFT
        scale[k] = shifted
        whole = shifted - SHIFT
        r = (x[k] - whole * 0.693147180369123816490) - whole * 1.90821492927058770002e-10
        p = 1.6059043836821613e-10
        p = p * r + 2.08767569878681e-09
        p = p * r + 2.505210838544172e-08
        p = p * r + 2.755731922398589e-07
        p = p * r + 2.7557319223985893e-06
        p = p * r + 2.48015873015873e-05
        p = p * r + 0.0001984126984126984
        p = p * r + 0.001388888888888889
        p = p * r + 0.008333333333333333
        p = p * r + 0.041666666666666664
        p = p * r + 0.16666666666666666
        p = p * r + 0.5
        p = p * r + 1.0
        x[k] = p * r + 1.0
    bits = scale.view(np.int64)
    for k in range(len(x)):
        bits[k] = (bits[k] << 52) + BIAS  # this is 2 to the power of the whole number
    for k in range(len(x)):
        x[k] *= scale[k]
