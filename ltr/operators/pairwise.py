"""Ranks that softly count the items above each item, in the time of one sort, by kernel sums."""

import math
from typing import ClassVar

from torch import Tensor

from ltr.kernels.lists import SortedLists, in_order
from ltr.kernels.named import COUNT_KERNELS, Count, Distribution
from ltr.kernels.sorting import descending_order, in_list_order
from ltr.kernels.sums import kernel_sums, prefers_dense
from ltr.operators.base import RankOperator, TemperatureRank
from ltr.operators.distributions import counts_above
from ltr.operators.order import descending, item_weights
from ltr.operators.tiles import by_lists
from ltr.shapes import check_soft_temperature, count

LONG_LIST = 20_000
"""From this length on, scores are sorted first, so that the sums read memory in order."""


def counts_of(
    kind: Count,
    temperature: float,
    scores: Tensor,
    mask: Tensor | None,
    weights: Tensor | None = None,
) -> Tensor:
    """Return, for each item, how much all items, itself included, count as above it: (..., n).

    An item j counts F((s_j - s_i) / temperature) at item i, where F is the distribution function of
    symmetric noise: the item itself counts 1/2, and the ranks 1/2 + counts of tied items are their
    mean rank. With the kind "softplus", F is softplus / log 2: the item itself counts 1, and the
    counts bound the hard ranks from above. An item of weight w counts as w tied copies of itself.
    In a list with a score that is not finite all counts are NaN.

    Cost: one sort and O(n) time, forward and backward. Short lists use the n x n form
    (`ltr.kernels.use`).

    Args:
        kind: the noise of a score difference: "laplace", "logistic" or "normal"; or "softplus".
        temperature: the scale of the noise, > 0.
        scores: (..., n), float32 or float64, checked, and 0 where masked.
        mask: (..., n) bool, or None.
        weights: (..., n), >= 0, scaled to sum to m; or None.

    >>> import torch
    >>> 0.5 + counts_of("logistic", 0.1, torch.tensor([1.0, 3.0, 3.0]), None)
    tensor([3.0000, 1.5000, 1.5000])
    >>> counts_of("softplus", 0.1, torch.tensor([1.0, 3.0, 3.0]), None)
    tensor([58.7078,  2.0000,  2.0000])
    """
    column = None if weights is None else item_weights(scores, mask, weights)
    if prefers_dense(kind, scores.shape):
        if mask is not None:
            column = mask.to(scores.dtype) if column is None else column

        def dense(scores: Tensor, column: Tensor | None) -> Tensor:
            fixed = scores.detach()
            # An infinite score makes the whole list NaN, as in the kernel sums.
            scales = temperature + (fixed - fixed)
            return counts_above(scores, kind, scales.unsqueeze(-2), column)

        return by_lists(dense, scores.size(-1), scores, (column, 1))
    order = descending_order(scores, mask)
    lists, is_long = SortedLists(order, count(order, mask)), scores.shape[-1] >= LONG_LIST
    if is_long:
        scores = descending(scores, order, mask)
        lists = in_order(scores, mask)
        column = None if column is None else column.gather(-1, order)
    column = scores.new_ones(()).expand(scores.shape) if column is None else column
    kernel = COUNT_KERNELS[kind][scores.dtype]
    (counts,) = kernel_sums(scores, [column], [(0, kernel)], lists, temperature)
    if kind == "softplus":
        counts = counts / math.log(2)
    return in_list_order(counts, order) if is_long else counts


class KernelRank(TemperatureRank):
    """Base class of rank operators whose ranks are kernel sums.

    Attributes:
        distribution: the distribution of the noise of a score difference.
        width: the scale of this noise, as a multiple of the temperature.
    """

    distribution: ClassVar[Distribution]
    width: ClassVar[float] = 1.0
    weighted = True
    spreads_nan = True

    def soft_ranks(self, scores: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
        """Return soft ranks (..., n) of scores (..., n) and item weights (..., n)."""
        scale = self.width * self.temperature
        return 0.5 + counts_of(self.distribution, scale, scores, mask, weights)


class SigmoidRank(KernelRank):
    """Soft ranks by sigmoids of score differences, as in ApproxNDCG.

    The rank of item i is 1 + sum over j != i of F((s_j - s_i) / temperature), with the logistic
    function F. This is the expected rank if each score difference has logistic noise. `ApproxNDCG`
    uses these ranks.

    The ranks of m items lie in [1, m] and sum to m (m + 1) / 2. As the temperature approaches 0,
    they tend to the hard ranks, except that tied items share their mean rank. As the temperature
    grows, all ranks tend to (m + 1) / 2. With weights, item i counts as w_i tied copies. Its rank
    is the mean rank of these copies: 1/2 + w_i / 2 + the sum over j != i of w_j times the F above.

    Args:
        temperature: tau, in units of the scores, >= 0; 0 gives hard ranks (ties in list order, no
            gradient). Default: 0.1, for scores of unit scale.

    Cost: one sort and O(n) time and memory, forward and backward. The errors of the kernel are
    smaller than rounding errors in float32, and below 1e-14 per pair in float64
    (docs/kernels/table.md).

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30).

    Reference: Qin, Liu and Li, "A general approximation framework for direct optimization of
    information retrieval measures", Information Retrieval 2010, equation 13.

    >>> import torch
    >>> SigmoidRank(temperature=0.01)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    >>> SigmoidRank(temperature=0.1)(torch.tensor([1.0, 3.0, 3.0]))
    tensor([3.0000, 1.5000, 1.5000])
    """

    distribution = "logistic"


class GaussianRank(KernelRank):
    """Expected ranks if each score has Gaussian noise.

    The rank of item i is 1 + sum over j != i of F((s_j - s_i) / (sqrt(2) temperature)), with the
    normal distribution function F. This is the exact expected rank if each score has independent
    Gaussian noise of standard deviation `temperature`; the noise of a difference is sqrt(2) times
    as large. `SoftRank` gives the same ranks and also the whole distribution of each rank: its
    `discounts` are means over this distribution, not the discounts of the mean ranks.

    The ranks of m items lie in [1, m] and sum to m (m + 1) / 2. As the temperature approaches 0,
    they tend to the hard ranks, except that tied items share their mean rank. As the temperature
    grows, all ranks tend to (m + 1) / 2. With weights, item i counts as w_i tied copies. Its rank
    is the mean rank of these copies: 1/2 + w_i / 2 + the sum over j != i of w_j times the F above.

    Args:
        temperature: sigma, the standard deviation of one score, in units of the scores, >= 0; 0
            gives hard ranks (ties in list order, no gradient). Default: 0.1, for scores of unit
            scale. The ranks are as soft as those of `SigmoidRank` at temperature / 1.2.

    Cost: one sort and O(n) time and memory, forward and backward. The errors of the kernel are
    smaller than rounding errors in float32, and below 1e-12 per pair in float64
    (docs/kernels/table.md).

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30).

    Reference: Taylor, Guiver, Robertson and Minka, "SoftRank: optimizing non-smooth rank
    metrics", WSDM 2008, equation 9.

    >>> import torch
    >>> GaussianRank(temperature=0.01)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    >>> GaussianRank(temperature=0.1)(torch.tensor([1.0, 3.0, 3.0]))
    tensor([3.0000, 1.5000, 1.5000])
    """

    distribution = "normal"
    width = 2**0.5


class LaplaceRank(KernelRank):
    """Expected ranks if each score has exponential noise: the soft ranks for long lists.

    The rank of item i is 1 + sum over j != i of F((s_j - s_i) / temperature), with the Laplace
    distribution function F(x): exp(x) / 2 below 0 and 1 - exp(-x) / 2 above. This is the exact
    expected rank if each score has independent exponential noise of mean `temperature`: the noise
    of a difference of two scores then has a Laplace distribution. `LaplaceRank` is the recommended
    rank operator for long lists.

    The ranks of m items lie in [1, m] and sum to m (m + 1) / 2. As the temperature approaches 0,
    they tend to the hard ranks, except that tied items share their mean rank. As the temperature
    grows, all ranks tend to (m + 1) / 2. With weights, item i counts as w_i tied copies. Its rank
    is the mean rank of these copies: 1/2 + w_i / 2 + the sum over j != i of w_j times the F above.

    Args:
        temperature: the scale of the Laplace distribution of a difference (the standard deviation
            of a difference divided by sqrt(2)), in units of the scores, >= 0; 0 gives hard ranks
            (ties in list order, no gradient). Default: 0.1, for scores of unit scale.

    Cost: one sort and O(n) time and memory, forward and backward; exact.

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30).

    Reference: Struski, Bednarczyk, Podolak and Tabor, "LapSum: one method to differentiate them
    all: ranking, sorting and top-k selection", ICML 2025.

    >>> import torch
    >>> LaplaceRank(temperature=0.01)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    >>> LaplaceRank(temperature=0.1)(torch.tensor([1.0, 3.0, 3.0]))
    tensor([3.0000, 1.5000, 1.5000])
    """

    distribution = "laplace"


class SoftplusRank(RankOperator):
    """Upper bounds on the ranks, with a gradient that does not vanish for items ranked far too low.

    The rank of item i is 1 + sum over j != i of softplus((s_j - s_i) / temperature) / log 2, with
    softplus(x) = log(1 + exp(x)). Each term is at least 1 if s_j >= s_i, and above 0 otherwise. So
    the rank is at least the hard rank, however ties are ordered. If s_j is far above s_i, the term
    is about (s_j - s_i) / temperature / log 2, while a probability would be about 1, without a
    gradient. So an item ranked far too low keeps its gradient, whatever the scale of the scores.
    `SoftNDCG()` uses these ranks.

    The ranks of m items are at least 1, have the order of the scores, and may exceed m. They do not
    sum to m (m + 1) / 2. As the temperature approaches 0, all ranks except those of the highest
    score grow without bound: there is no hard limit, and a temperature of 0 is refused. As the
    temperature grows, all ranks tend to m, the rank of m tied items. With weights, item i counts as
    w_i tied copies: its rank is w_i + the sum over j != i of w_j times the term above. A cutoff at
    k compares these upper bounds with k + 1/2. So `top_k` counts fewer than k items, often none:
    use another operator for a loss with a cutoff.

    Args:
        temperature: the scale of the softplus, in units of the scores, >= 1e-30. Default: 1.0, for
            a network that learns the scale of its scores.

    Ranks grow in proportion to the differences between scores: float32 overflows for scores that
    are 1e38 temperatures apart.

    Cost: one sort and O(n) time and memory, forward and backward. The errors of the kernel are
    smaller than rounding errors (docs/kernels/table.md).

    Raises:
        ValueError: temperature < 1e-30, 0 included.

    Source: RankNet's logistic cost of a pair (Burges et al., "Learning to rank using gradient
    descent", ICML 2005), divided by log 2 so that the sum bounds the number of items above.

    >>> import torch
    >>> SoftplusRank()(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3.4687, 2.6031, 3.0144])
    >>> SoftplusRank()(torch.tensor([0.0, 50.0]))
    tensor([73.1348,  1.0000])
    """

    weighted = True
    spreads_nan = True

    def __init__(self, temperature: float = 1.0):
        super().__init__()
        self.temperature = check_soft_temperature(temperature)

    def soft_ranks(self, scores: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
        """Return soft ranks (..., n) of scores (..., n) and item weights (..., n)."""
        return counts_of("softplus", self.temperature, scores, mask, weights)

    def extra_repr(self) -> str:
        """Return the hyper-parameter, for `print`."""
        return f"temperature={self.temperature:g}"
