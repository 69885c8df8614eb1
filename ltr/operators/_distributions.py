"""Distribution functions of the noise that decides a pair, elementwise: the plain definitions."""

from collections.abc import Callable

import torch
from torch import Tensor

from ltr.kernels import Distribution


def laplace_cdf(x: Tensor) -> Tensor:
    """Return the distribution function of the Laplace distribution of scale 1.

    It is exp(x) / 2 below 0 and 1 - exp(-x) / 2 above. Its derivative is exp(-|x|) / 2, at 0 too.

    >>> laplace_cdf(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([0.1839, 0.5000, 0.8161])
    """
    up = x > 0
    tail = torch.exp(torch.where(up, -x, x)) / 2
    return torch.where(up, 1 - tail, tail)


def normal_cdf(x: Tensor) -> Tensor:
    """Return Phi(x), with full relative accuracy in the lower tail.

    >>> normal_cdf(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([0.1587, 0.5000, 0.8413])
    """
    return torch.erfc(x * -(0.5**0.5)) / 2


CUMULATIVE: dict[Distribution, Callable[[Tensor], Tensor]] = {
    "laplace": laplace_cdf,
    "logistic": torch.sigmoid,
    "normal": normal_cdf,
}
"""Each distribution of scale 1, by name."""
