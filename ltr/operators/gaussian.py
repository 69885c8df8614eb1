"""Gaussian expected ranks: the mean of SoftRank's rank distribution (Taylor et al. 2008)."""

from torch import Tensor

from ltr.operators.pairwise import KernelRank, kernel_ranks
from ltr.shapes import check_temperature


def gaussian_ranks(
    scores: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    temperature: float = 0.1,
) -> Tensor:
    """Return soft ranks 1 + sum over j != i of Phi((s_j - s_i) / (sqrt(2) temperature)).

    Phi is the normal distribution function. The hard twin is 1 + the number of higher scores.
    These are the exact expected ranks when each score has independent Gaussian noise of standard
    deviation `temperature`. The standard deviation of a difference is sqrt(2) times as large.

    Args:
        scores: (..., n), any floating dtype; half precision is computed in float32.
        mask: (..., n) bool, True = a real item. Default: all are real.
        weights: (..., n), >= 0, scaled to sum to m. An item counts as w_i tied copies and gets
            their mean rank, 1/2 + w_i / 2 + sum over j != i of w_j F. Default: 1 each.
        temperature: sigma, the standard deviation of one score, in units of the scores; >= 0, and
            0 gives `hard_ranks`.

    Returns:
        (..., n), between 1 and m; tied items share their mean rank; masked items have m + 1. The
        ranks of a list sum to m (m + 1) / 2. Cost: one sort and O(n) time and memory, forward
        and backward; the errors of the kernel are below rounding (docs/kernels/table.md).

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30), or a mask of the wrong shape.

    Reference: Taylor, Guiver, Robertson and Minka, "SoftRank: optimizing non-smooth rank
    metrics", WSDM 2008, equation 9.

    >>> import torch
    >>> gaussian_ranks(torch.tensor([1.0, 3.0, 3.0]), temperature=0.1)
    tensor([3.0000, 1.5000, 1.5000])
    """
    temperature = check_temperature(temperature)
    return kernel_ranks(scores, mask, "normal", 2**0.5 * temperature, weights)


class GaussianRank(KernelRank):
    """Expected ranks when every score has Gaussian noise of standard deviation `temperature`.

    As the temperature falls to 0 the ranks tend to the hard ranks (tied items share their mean
    rank); as it grows all tend to (n + 1) / 2. `SoftRank` has the same ranks and also the whole
    distribution of each rank: its `discounts` are means, not the discounts of the mean ranks.

    Args:
        temperature: sigma, the deviation of one score, in units of the scores; >= 0, and 0 is
            hard (ties in list order, no gradient). Default 0.1, for scores of unit scale. It blurs
            as much as `SigmoidRank` at 1 / 1.2 of the temperature.

    Cost: one sort and O(n), forward and backward.

    Reference: Taylor et al. 2008; `gaussian_ranks` is the function.

    >>> import torch
    >>> GaussianRank(temperature=0.01)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    """

    distribution = "normal"
    width = 2**0.5
