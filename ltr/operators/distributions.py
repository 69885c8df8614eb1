"""What each pair of items adds to a soft rank, computed elementwise by the plain definitions."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ltr.kernels.named import Count, Distribution
from ltr.shapes import full_precision


def laplace_cdf(x: Tensor) -> Tensor:
    """Return the distribution function of the Laplace distribution of scale 1.

    The function is exp(x) / 2 below 0 and 1 - exp(-x) / 2 above. Its derivative is exp(-|x|) / 2,
    also at 0.

    >>> laplace_cdf(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([0.1839, 0.5000, 0.8161])
    """
    up = x > 0
    tail = torch.exp(torch.where(up, -x, x)) / 2
    return torch.where(up, 1 - tail, tail)


def normal_cdf(x: Tensor) -> Tensor:
    """Return the standard normal distribution function, without cancellation for x < 0.

    >>> normal_cdf(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([0.1587, 0.5000, 0.8413])
    """
    return torch.erfc(x * -(0.5**0.5)) / 2


CUMULATIVE: dict[Distribution, Callable[[Tensor], Tensor]] = {
    "laplace": laplace_cdf,
    "logistic": torch.sigmoid,
    "normal": normal_cdf,
}
"""The distribution functions of noise of scale 1, by the name of the distribution."""


def abs_power(x: Tensor, power: float) -> Tensor:
    """Return |x|^power; derivatives at x = 0 are 0 (except the second derivative of power 2).

    If the result would overflow, it is constant, so that its derivatives stay finite.

    >>> abs_power(torch.tensor([-3.0, 1e30]), 2)
    tensor([9.0000e+00, 2.1268e+37])
    """
    if power == 1:
        return x.abs()
    if power > 1:
        numbers = torch.finfo(x.dtype)
        most = (numbers.max / 16) ** (1 / power)
        if power == 2:
            return x.clamp(-most, most).square()
        return x.abs().clamp(numbers.tiny, most).pow(power)  # the clamp has derivative 0 at 0
    zero = x == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, x).abs().pow(power))


def counts_above(
    scores: Tensor, kind: Count, scales: float | Tensor, column: Tensor | None
) -> Tensor:
    """Return, for each item, the sum of the probabilities that items are above it: (..., n).

    The item itself counts 1/2. The probabilities are `CUMULATIVE[kind]` of the scaled differences;
    this function needs fewer arrays (..., n, n) than those functions. With the kind "softplus", an
    item at a scaled difference x counts log(1 + exp(x)) / log 2, and the item itself counts 1.

    Args:
        scores: (..., n).
        kind: the distribution of the noise, or "softplus".
        scales: the scale of the noise, > 0: one for all items, or one for each item that may be
            above, (..., 1, n). For "laplace", all finite scales of a list must be equal.
        column: (..., n), the weight of each item in the sums; None for weights of 1.

    >>> counts_above(torch.tensor([1.0, 3.0, 3.0]), "laplace", 0.1, None)
    tensor([2.5000, 1.0000, 1.0000])
    """
    # The in-place operations below change no tensor that autograd has saved.
    gaps = (scores.unsqueeze(-2) - scores.unsqueeze(-1)).div_(scales)
    if kind == "softplus":
        return _product(softplus(gaps, threshold=50), column) / math.log(2)
    if kind == "logistic":
        return _product(gaps.sigmoid_(), column)
    if kind == "normal":
        return _product(torch.erfc(gaps.mul_(-(0.5**0.5))), column) / 2
    # The Laplace distribution function is (1 + E(x) - E(-x)) / 2, with E(x) = exp(min(x, 0)). At a
    # tie, the gradient of `minimum` is 1/2.
    tails = torch.minimum(gaps, gaps.new_zeros(())).exp_()
    counts = _product(tails, column) - _product(tails.mT, column)
    total = scores.shape[-1] if column is None else column.sum(-1, keepdim=True)
    return (counts + total) / 2


def _product(matrix: Tensor, column: Tensor | None) -> Tensor:
    if column is None:
        return matrix.sum(-1)
    with full_precision(matrix):
        return torch.matmul(matrix, column.unsqueeze(-1)).squeeze(-1)
