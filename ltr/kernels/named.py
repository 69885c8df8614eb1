"""The kernels that operators and losses use: constants, built once from the table."""

from typing import Literal

import torch

from ltr.kernels.kernel import Kernel, Profile
from ltr.kernels.table import Level, Nodes, exponential_sum

Distribution = Literal["laplace", "logistic", "normal"]
Count = Distribution | Literal["softplus"]
"""How a pair of items counts: by the distribution function of noise, or by softplus / log 2."""

DISTRIBUTIONS: tuple[Distribution, ...] = ("laplace", "logistic", "normal")
LEVELS: dict[torch.dtype, Level] = {torch.float32: "float32", torch.float64: "float64"}


def _profile(name: Literal["laplace", "logistic", "softplus", "gaussian", "normal"], level: Level):
    total = exponential_sum(name, level)
    return Profile(total.weights[0], total.weights[1:]), total.nodes


def _even(profile: Profile, nodes: Nodes) -> Kernel:
    return Kernel(nodes, profile, profile, own=profile.at_zero).ready()


def _survival(distribution: Distribution, level: Level) -> Kernel:
    psi, nodes = _profile(distribution, level)
    if distribution == "laplace":
        psi = psi.scaled(0.5)
    return Kernel(nodes, psi.scaled(-1.0).plus(constant=1.0), psi, own=0.5).ready()


def _softplus(level: Level) -> Kernel:
    profile, nodes = _profile("softplus", level)
    return Kernel(nodes, profile.plus(linear=1.0), profile, own=profile.at_zero).ready()


# These are constants of the module, because `torch.compile` cannot trace a cached function.
_LAPLACE = _even(*_profile("laplace", "float64"))
_GAUSSIAN = {dtype: _even(*_profile("gaussian", level)) for dtype, level in LEVELS.items()}
_SIGN = Kernel(
    Nodes(1 + 0j, 1 + 0j, 1),
    Profile((0.0,), constant=-1.0, tie=1.0),
    Profile((0.0,), constant=1.0, tie=-1.0),
).ready()

COUNT_KERNELS: dict[Count, dict[torch.dtype, Kernel]] = {
    **{
        distribution: {dtype: _survival(distribution, level) for dtype, level in LEVELS.items()}
        for distribution in DISTRIBUTIONS
    },
    "softplus": {dtype: _softplus(level) for dtype, level in LEVELS.items()},
}
"""For each kind and dtype, how much item j counts as above item i, as a kernel of x = s_i - s_j.

For "laplace", "logistic" and "normal" the kernel is the survival function 1 - F(x) = F(-x) of this
distribution: if noise of this distribution is added to x, it is the probability that item j ends up
above item i. For x > 0 it is psi(x) = 1 / (1 + exp(x)) (logistic), exp(-x) / 2 (laplace) or Phi(-x)
(normal), and for x < 0 it is 1 - psi(-x). It is 1/2 for tied items and for an item with itself.

For "softplus" the kernel is log(1 + exp(-x)), the cost of a pair whose first item should be above.
For items above (x < 0), it is the sum of |x| and a decaying part; for items below, it is only the
decaying part. No part is negative, so nothing cancels in a sum, and even the small loss of a list
in the correct order is accurate.
"""


def laplace() -> Kernel:
    """Return the kernel exp(-|x|), without an approximation error.

    Its derivative counts as 0 for tied items.

    >>> laplace().below.weights
    (1,)
    """
    return _LAPLACE


def gaussian(dtype: torch.dtype = torch.float64) -> Kernel:
    """Return the kernel exp(-x^2).

    >>> round(gaussian().below.at_zero, 12)
    1.0
    """
    return _GAUSSIAN[dtype]


def sign() -> Kernel:
    """Return the sign of x as a kernel: -1, 1, or 0 for tied items. Its derivative is 0.

    >>> k = sign()
    >>> k.above.constant, k.below.constant, k.own
    (-1.0, 1.0, 0.0)
    """
    return _SIGN
