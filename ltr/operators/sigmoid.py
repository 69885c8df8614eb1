"""Sigmoid ranks (Qin, Liu and Li 2010): the rank operator of ApproxNDCG."""

from torch import Tensor

from ltr.operators.pairwise import KernelRank, kernel_ranks
from ltr.shapes import check_temperature


def sigmoid_ranks(
    scores: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    temperature: float = 0.1,
) -> Tensor:
    """Return soft ranks 1 + sum over j != i of sigmoid((s_j - s_i) / temperature).

    The hard twin is 1 + the number of higher scores. These are the expected ranks when logistic
    noise decides each pair.

    Args:
        scores: (..., n), any floating dtype; half precision is computed in float32.
        mask: (..., n) bool, True = a real item. Default: all are real.
        weights: (..., n), >= 0, scaled to sum to m. An item counts as w_i tied copies and gets
            their mean rank, 1/2 + w_i / 2 + sum over j != i of w_j F. Default: 1 each.
        temperature: tau, in units of the scores; >= 0, and 0 gives `hard_ranks`.

    Returns:
        (..., n), between 1 and m; tied items share their mean rank; masked items have m + 1. The
        ranks of a list sum to m (m + 1) / 2. Cost: one sort and O(n) time and memory, forward
        and backward; the errors of the kernel are below rounding (docs/kernels/table.md).

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30), or a mask of the wrong shape.

    Reference: Qin, Liu and Li, "A general approximation framework for direct optimization of
    information retrieval measures", Information Retrieval 2010, equation 13.

    >>> import torch
    >>> sigmoid_ranks(torch.tensor([1.0, 3.0, 3.0]), temperature=0.1)
    tensor([3.0000, 1.5000, 1.5000])
    """
    temperature = check_temperature(temperature)
    return kernel_ranks(scores, mask, "logistic", temperature, weights)


class SigmoidRank(KernelRank):
    """Expected ranks under logistic noise: `SoftNDCG(SigmoidRank())` is ApproxNDCG.

    As the temperature falls to 0 the ranks tend to the hard ranks (tied items share their mean
    rank); as it grows all tend to (n + 1) / 2.

    Args:
        temperature: tau, in units of the scores; >= 0, and 0 is hard (ties in list order, no
            gradient). Default 0.1, for scores of unit scale.

    Cost: one sort and O(n), forward and backward.

    Reference: Qin, Liu and Li 2010; `sigmoid_ranks` is the function.

    >>> import torch
    >>> SigmoidRank(temperature=0.01)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    """

    distribution = "logistic"
