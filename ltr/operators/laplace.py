"""Laplace expected ranks, in sort time: the ranks of LapSum (Struski et al. 2025)."""

import torch
from torch import Tensor

from ltr._shapes import (
    check_lists,
    check_temperature,
    count,
    hide,
    positions,
    upcast,
)
from ltr.operators._pairwise import (
    TemperatureRank,
    falling,
    hard_expected_ranks,
    inverse,
    with_masked,
)
from ltr.operators._transport import item_weights
from ltr.operators.hard import descending_order


def laplace_ranks(
    scores: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    temperature: float = 0.1,
) -> Tensor:
    """Soft ranks 1 + sum over j != i of F((s_j - s_i) / temperature), F the Laplace distribution.

    F(x) is exp(x) / 2 below 0 and 1 - exp(-x) / 2 above (`laplace_cdf`). The hard twin is 1 + the
    number of higher scores. These are the exact expected ranks when each score has exponential
    noise of its own, of mean `temperature`: the difference of two is a Laplace variable.

    Args:
        scores: (..., n), any floating dtype; half precision is computed in float32.
        mask: (..., n) bool, True = a real item. Default: all are real.
        weights: (..., n), >= 0, scaled to sum to m: an item counts as so many tied copies,
            1/2 + w_i / 2 + sum over j != i of w_j F, their mean rank. Default: 1 each.
        temperature: the scale of the Laplace law (its deviation is sqrt(2) as much), in units of
            the scores; >= 0, and 0 gives `hard_ranks`.

    Returns:
        (..., n), between 1 and m; tied items share their mean rank; masked items have m + 1. The
        ranks of a list sum to m (m + 1) / 2. Cost: one sort and O(n log n) time, backward too;
        O(n) memory, O(n log n) while gradients are recorded.

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30), or a mask of the wrong shape.

    Reference: Struski, Bednarczyk, Podolak and Tabor, "LapSum: one method to differentiate them
    all: ranking, sorting and top-k selection", ICML 2025.

    >>> laplace_ranks(torch.tensor([1.0, 3.0, 3.0]), temperature=0.1)
    tensor([3.0000, 1.5000, 1.5000])
    """
    temperature = check_temperature(temperature)
    if temperature == 0:
        return hard_expected_ranks(scores, mask, weights)
    check_lists(scores, mask=mask, weights=weights)
    scores = upcast(hide(scores, mask))
    order = descending_order(scores.detach(), mask)
    points = falling(scores, order, mask)
    if weights is None:
        above, below = laplace_sums(points, mask, temperature)
        place = positions(scores)
    else:
        w = item_weights(scores, mask, weights).gather(-1, order)
        above, below = laplace_sums(points, mask, temperature, w)
        place = 0.5 + w.cumsum(-1) - w / 2
    # F is 1 - exp / 2 for each of the i - 1 items above, and exp / 2 for each below
    ranks = place + (below - above) / 2
    return with_masked(ranks.gather(-1, inverse(order)), mask)


def laplace_cdf(x: Tensor) -> Tensor:
    """The distribution function of the Laplace law of scale 1: exp(x) / 2 below 0.

    Its derivative is exp(-|x|) / 2, at 0 too.

    >>> laplace_cdf(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([0.1839, 0.5000, 0.8161])
    """
    up = x > 0
    tail = torch.exp(torch.where(up, -x, x)) / 2
    return torch.where(up, 1 - tail, tail)


def laplace_sums(
    points: Tensor, mask: Tensor | None, temperature: float, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """For each of the falling points, the sum of exp(-|t_j - t_i| / temperature) on both sides.

    Two scans by doubling: after the step of width w a point holds the sum over the 2 w nearest on
    its side, itself included. Every decay comes from a difference of two points and lies in
    [0, 1], so nothing overflows or cancels, whatever the temperature is. Tied points count on
    the side where the order has them: for a kernel like the Laplace distribution, whose slope is
    the same from both sides, the derivatives are then right too.

    Args:
        points: (..., n), as `falling` gives them.
        mask: the mask of the scores, in any order: the first m points are the real ones.
        temperature: > 0.
        weights: (..., n) of the points, 0 past the real ones. Default: 1 each.

    Returns:
        The sums over j <= i and over j >= i, both (..., n), the point itself with it. Cost:
        O(n log n) time.
    """
    line = torch.stack([points, -points.flip(-1)])
    sums = 1 + 0 * line  # one point has a graph too, and a NaN in it shows
    if weights is None and mask is not None:
        weights = (positions(points) <= count(points, mask)).to(points.dtype)
    if weights is not None:
        sums = sums * torch.stack([weights, weights.flip(-1)])
    width, n = 1, points.shape[-1]
    while width < n:
        decay = torch.exp((line[..., width:] - line[..., :-width]) / temperature)
        near = decay * sums[..., :-width]
        sums = sums + torch.nn.functional.pad(near, (width, 0))
        width *= 2
    return sums[0], sums[1].flip(-1)


class LaplaceRank(TemperatureRank):
    """Expected ranks when every score has exponential noise of mean `temperature`.

    As the temperature falls to 0 the ranks tend to the hard ranks (tied items share their mean
    rank); as it grows all tend to (n + 1) / 2. This is the rank operator to take for long lists.

    Args:
        temperature: the scale of the Laplace law of a difference, in units of the scores; >= 0,
            and 0 is hard (ties in list order, no gradient). Default 0.1, for scores of unit scale.

    Cost: one sort and O(n log n) time, backward too; O(n) memory, O(n log n) while gradients are
    recorded.

    Reference: Struski et al., "LapSum", 2025; `laplace_ranks` is the function.

    >>> LaplaceRank(temperature=0.01)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    """

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Soft ranks (..., n) of scores (..., n), item weights (..., n)."""
        return laplace_ranks(scores, mask, weights, temperature=self.temperature)
