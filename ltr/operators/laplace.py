"""Laplace expected ranks, in sort time: the ranks of LapSum (Struski et al. 2025)."""

from torch import Tensor

from ltr.kernels import Kernel, Profile, SortedLists, kernel_sums, laplace
from ltr.operators.pairwise import KernelRank, kernel_ranks
from ltr.shapes import check_temperature

ABOVE = Kernel(laplace().nodes, laplace().above, Profile((0,))).ready()
BELOW = Kernel(laplace().nodes, Profile((0,)), laplace().below).ready()


def laplace_ranks(
    scores: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    temperature: float = 0.1,
) -> Tensor:
    """Return soft ranks 1 + sum over j != i of F((s_j - s_i) / temperature), with Laplace's F.

    F(x) is exp(x) / 2 below 0 and 1 - exp(-x) / 2 above (`laplace_cdf`). The hard twin is 1 + the
    number of higher scores. These are the exact expected ranks when each score has independent
    exponential noise of mean `temperature`: a difference of two is then a Laplace variable.

    Args:
        scores: (..., n), any floating dtype; half precision is computed in float32.
        mask: (..., n) bool, True = a real item. Default: all are real.
        weights: (..., n), >= 0, scaled to sum to m. An item counts as w_i tied copies and gets
            their mean rank, 1/2 + w_i / 2 + sum over j != i of w_j F. Default: 1 each.
        temperature: the scale of the Laplace distribution (its deviation is sqrt(2) as much), in
            units of the scores; >= 0, and 0 gives `hard_ranks`.

    Returns:
        (..., n), between 1 and m; tied items share their mean rank; masked items have m + 1. The
        ranks of a list sum to m (m + 1) / 2. Cost: one sort and O(n) time and memory, forward
        and backward; exact.

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30), or a mask of the wrong shape.

    Reference: Struski, Bednarczyk, Podolak and Tabor, "LapSum: one method to differentiate them
    all: ranking, sorting and top-k selection", ICML 2025.

    >>> import torch
    >>> laplace_ranks(torch.tensor([1.0, 3.0, 3.0]), temperature=0.1)
    tensor([3.0000, 1.5000, 1.5000])
    """
    temperature = check_temperature(temperature)
    return kernel_ranks(scores, mask, "laplace", temperature, weights)


def laplace_sums(scores: Tensor, lists: SortedLists, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the exact sums of exp(-|s_j - s_i| / temperature) above and below each item i.

    The sums are over the places before and after the item in the sorted order. So the order says
    on which side a tied item counts, and the item itself counts on neither.

    Args:
        scores: (..., n).
        lists: the sorted lists of these scores.
        temperature: > 0.

    Returns:
        Both sums, (..., n), 0 where masked. Cost: O(n).

    >>> import torch
    >>> from ltr.kernels import sort_lists
    >>> laplace_sums(torch.zeros(3), sort_lists(torch.zeros(3)), 1.0)
    (tensor([0., 1., 2.]), tensor([2., 1., 0.]))
    """
    one = scores.new_ones(()).expand(scores.shape)
    first, second = kernel_sums(scores, [one], [(0, ABOVE), (0, BELOW)], lists, temperature)
    return first, second


class LaplaceRank(KernelRank):
    """Expected ranks when every score has exponential noise of mean `temperature`.

    As the temperature falls to 0 the ranks tend to the hard ranks (tied items share their mean
    rank); as it grows all tend to (n + 1) / 2. This is the recommended rank operator for long
    lists.

    Args:
        temperature: the scale of the Laplace distribution of a difference, in units of the scores;
            >= 0, and 0 is hard (ties in list order, no gradient). Default 0.1, for scores of unit
            scale.

    Cost: one sort and O(n), forward and backward.

    Reference: Struski et al., "LapSum", 2025; `laplace_ranks` is the function.

    >>> import torch
    >>> LaplaceRank(temperature=0.01)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    """

    distribution = "laplace"
