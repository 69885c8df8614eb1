"""LapSum's soft sort (Struski et al. 2025): the thresholds at which the soft counts are halves."""

from __future__ import annotations

import torch
from torch import Tensor

from ltr.kernels import laplace, survival
from ltr.kernels.two_sets import kernel_sums_at
from ltr.operators.hard import descending_order
from ltr.operators.lapsum import threshold
from ltr.operators.permutation import take_along
from ltr.shapes import check_lists, check_temperature, count, masked_fill, positions, upcast


def lapsum_sort(scores: Tensor, mask: Tensor | None = None, *, temperature: float = 0.1) -> Tensor:
    """Return soft sorted scores: thresholds above which soft counts of items are 1/2, 3/2, ...

    They are the falling b for which the sum over j of F((s_j - b_i) / temperature) is i - 1/2. F
    is the distribution function of the Laplace distribution (`laplace_cdf`). The soft number of
    items above b_i is i - 1, and the item at b_i counts one half. The hard twin is
    `torch.sort(scores, descending=True).values`. `lapsum(scores).sort()` is another soft sort,
    by a doubly stochastic matrix, whose values stay within the scores.

    Args:
        scores: (..., n), any floating dtype; half precision is computed in float32.
        mask: (..., n) bool, True = a real item. Default: all are real.
        temperature: the scale of the Laplace distribution, in units of the scores; >= 0, and 0 is
            the hard sort.

    Returns:
        (..., n), strictly falling except for rounding; 0 past the m real items. Their sum is not
        the sum of the scores: as the temperature grows, the first and the last move beyond the
        scores by about temperature * log(m). Of n tied scores they are the quantiles of one Laplace
        distribution. A list with a NaN gives NaN. Cost: one sort of 2 n points and O(n) time and
        memory. Derivatives are exact up to the third order.

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30), or a mask of the wrong shape.

    Reference: Struski, Bednarczyk, Podolak and Tabor, "LapSum: one method to differentiate them
    all: ranking, sorting and top-k selection", ICML 2025, and the authors' `soft_sort`.

    >>> lapsum_sort(torch.tensor([0.3, 0.7, 0.5]), temperature=0.01)
    tensor([0.7000, 0.5000, 0.3000])
    >>> lapsum_sort(torch.tensor([0.3, 0.7, 0.5]), temperature=0.2)
    tensor([0.7815, 0.5000, 0.2185])
    """
    temperature = check_temperature(temperature)
    check_lists(scores, mask=mask)
    scores = upcast(masked_fill(scores, mask))
    if not scores.shape[-1]:
        return scores
    rows = None if mask is None else positions(scores) <= count(scores, mask)
    if temperature == 0:
        order = descending_order(scores.detach(), mask)
        return masked_fill(take_along(scores, order, -1), rows)
    if mask is not None:  # an empty list is computed as a full one and masked at the end
        mask = mask | ~mask.any(-1, keepdim=True)
    places = positions(scores).expand(scores.shape)
    wanted = torch.minimum(places, count(scores, mask)) - 0.5
    anchor, log_p = threshold(scores.detach(), wanted, mask, temperature)
    b = anchor + temperature * log_p
    # A Newton step does not change the value here, but doubles the number of correct derivatives.
    # The nearest item is at most log n temperatures away, so the density does not underflow.
    one = torch.ones_like(scores)
    above, density = survival("laplace"), laplace()
    for _ in range(2):
        outputs = [(0, above), (0, density)]
        counts, twice = kernel_sums_at(b, scores, [one], outputs, temperature, mask=mask)
        b = b + temperature * (counts - counts.detach()) / (twice / 2)
    return masked_fill(b, rows)
