"""A temperature that fits the scale of the scores, for lists of any length."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ltr.operators.base import RankOperator
from ltr.operators.order import hard_ranks
from ltr.operators.pairwise import SigmoidRank
from ltr.shapes import check_lists, check_number, count, masked_fill, widened


def temperature_for(
    scores: Tensor,
    mask: Tensor | None = None,
    *,
    sharpness: float = 10.0,
    operator: Callable[[float], RankOperator] | None = None,
) -> float:
    """Return a temperature that fits the scale of the scores.

    At this temperature, the order of items is uncertain if their scores are closer than
    std / sharpness.

    Here std is the standard deviation of the scores within their lists. `sharpness` is the number
    of temperatures in one standard deviation; it has no unit. So the temperature scales with the
    scores, and depends neither on an offset of the scores nor on the length of the lists: soft
    ranks divided by n stay the same. For normally distributed scores, a fraction of about
    0.28 / sharpness of the items lies within one temperature above an average item. A sharpness of
    10 gives the default temperature, 0.1, for scores of unit scale; 0.1 or less gives nearly equal
    ranks; 100 or more gives nearly hard ranks on short lists.

    The temperature std / sharpness fits operators whose temperature is a width in units of the
    scores: `SigmoidRank`, `GaussianRank`, `LaplaceRank`, `LapSum`, `SoftRank`, and `SoftSort` with
    power 1. Others have other units: with power p, the temperature of `SoftSort` has the unit
    score^p, and the temperatures of `NeuralSort` and the isotonic operators change with n. For
    these, pass `operator`. Then the ranks of the operator at the returned temperature are on
    average as far from the hard ranks of the given lists as the ranks of `SigmoidRank` at std /
    sharpness.

    Args:
        scores: (..., n), such as a model's scores of the first batch.
        mask: (..., n) bool, True for a real item. Default: all are real.
        sharpness: > 0, the number of temperatures in one standard deviation.
        operator: a function from a temperature to an operator: a class such as `NeuralSort`, or
            `lambda t: SoftSort(t, power=2)`. Default: None, which returns std / sharpness.

    Returns:
        A float > 0, without a gradient. Call this function once, or between epochs, since it waits
        for the device. Cost: O(number of scores); with `operator`, about 60 calls of it.

    Raises:
        ValueError: sharpness <= 0; the scores are not finite, or all equal in each list; the
            operator is not a function, or has no hard limit (such as `SoftplusRank`).

    >>> scores = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> round(temperature_for(scores), 4)
    0.1581
    >>> round(temperature_for(1000 * scores, sharpness=5), 4)
    316.2278
    >>> from ltr.operators import SoftSort
    >>> round(temperature_for(scores, operator=lambda t: SoftSort(t, power=2)), 4)
    0.158
    """
    check_number("sharpness", sharpness, minimum=0.0, strict=True)
    check_lists(scores, mask=mask)
    scores = widened(masked_fill(scores.detach(), mask))
    m = count(scores, mask)
    offset = masked_fill(scores - scores.sum(-1, keepdim=True) / m.clamp(min=1), mask)
    # The divisor is m - 1, as for an unbiased variance: with the divisor m, short lists would get a
    # smaller variance.
    variance = (offset.square().sum() / (m - 1).clamp(min=0).sum()).item()
    if not (0 < variance < math.inf):
        raise ValueError(
            "scores must be finite and differ within a list, got a variance within lists of "
            f"{variance}"
        )
    width = math.sqrt(variance) / sharpness
    if isinstance(operator, RankOperator) or not (operator is None or callable(operator)):
        raise ValueError(
            f"operator must be a class or a function of a temperature, got {operator!r}"
        )
    if operator is None:
        return width
    return _as_blurred(scores, mask, width, operator)


def _as_blurred(
    scores: Tensor, mask: Tensor | None, width: float, operator: Callable[[float], RankOperator]
) -> float:
    hard = hard_ranks(scores, mask)

    @torch.no_grad()
    def blur(ranks: RankOperator) -> float:
        return masked_fill(ranks(scores, mask) - hard, mask).abs().sum().item()

    wanted = blur(SigmoidRank(width))
    # The bisection is on a logarithmic scale, over a range that is wide enough for any unit
    # (score^p or score / n).
    low, high = math.log(width) - 40, math.log(width) + 40
    if blur(operator(math.exp(low))) > wanted:
        raise ValueError(
            "operator must have ranks that tend to the hard ranks at low temperatures, got "
            f"{operator(width)!r}"
        )
    for _ in range(60):
        middle = (low + high) / 2
        if blur(operator(math.exp(middle))) < wanted:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)
