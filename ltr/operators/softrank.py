"""SoftRank (Taylor, Guiver, Robertson and Minka 2008): the law of the ranks of noisy scores."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from ltr._shapes import (
    check_lists,
    check_temperature,
    check_top_k,
    hide,
    positions,
    refuse_weights,
    upcast,
)
from ltr.operators._pairwise import TemperatureRank
from ltr.operators.base import _Cut
from ltr.operators.expected_discounts import expected_discounts
from ltr.operators.gaussian import gaussian_ranks, normal_cdf
from ltr.operators.hard import hard_ranks

Law = Literal["paper", "exact"]

STEP, STEPS = 0.25, 21
"""The trapezoid rule of the exact law: 43 nodes on [-5.25, 5.25] in units of the deviation."""

NOISE = tuple(STEP * step for step in range(-STEPS, STEPS + 1))
CHANCES = tuple(math.exp(-x * x / 2) / sum(math.exp(-y * y / 2) for y in NOISE) for x in NOISE)

SHORT = 16
"""Lists up to this length take the recursion, which is no slower there."""


def rank_distribution(
    scores: Tensor,
    mask: Tensor | None = None,
    *,
    temperature: float = 0.1,
    law: Law = "paper",
    top_k: int | None = None,
) -> Tensor:
    """P(rank of item i = r) when each score has Gaussian noise of deviation `temperature`.

    The hard twin is the one-hot matrix of `hard_ranks`. Item j is above item i with the chance
    Phi((s_j - s_i) / (sqrt(2) temperature)), and a rank is 1 + the number of items above.

    Args:
        scores: (..., n), any floating dtype; half precision is computed in float32.
        mask: (..., n) bool, True = a real item. Default: all are real.
        temperature: sigma, the deviation of one score, in units of the scores; >= 0, and 0 gives
            `hard_ranks` for certain.
        law: "paper" adds the items above up as if they were independent. "exact" is the true
            law: all comparisons of an item share its own noise, so that it conditions on that
            noise and integrates (trapezoid rule, 43 nodes; the sum over ranks is 1 and errors are
            below 1e-6). Both have the same mean, `gaussian_ranks`; where the temperature is near
            the gaps of the scores or above, the paper's law is much too narrow.
        top_k: only the first so many ranks, in less time. Default: all.

    Returns:
        (..., n, n), rows are items and columns are ranks 1..n; (..., n, min(n, top_k)) with a
        cut. Rows of masked items and columns past the m real items are 0. Columns sum to 1 with
        the exact law only. Cost: O(n^2 k) time, k the number of columns, and O(n^2) memory, but
        O(n^2 k) while gradients are recorded; 43 times that for the exact law.

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30), an unknown law, top_k < 1, or a mask of the
            wrong shape.

    Reference: Taylor, Guiver, Robertson and Minka, "SoftRank: optimizing non-smooth rank
    metrics", WSDM 2008, section 3.2.

    >>> rank_distribution(torch.tensor([0.0, 0.1]), temperature=0.1).round(decimals=2)
    tensor([[0.2400, 0.7600],
            [0.7600, 0.2400]])
    >>> rank_distribution(torch.zeros(3), law="exact").round(decimals=2)
    tensor([[0.3300, 0.3300, 0.3300],
            [0.3300, 0.3300, 0.3300],
            [0.3300, 0.3300, 0.3300]])
    >>> rank_distribution(torch.zeros(3), law="paper")
    tensor([[0.2500, 0.5000, 0.2500],
            [0.2500, 0.5000, 0.2500],
            [0.2500, 0.5000, 0.2500]])
    """
    temperature = check_temperature(temperature)
    _check_law(law)
    check_top_k(top_k)
    check_lists(scores, mask=mask)
    width = scores.shape[-1] if top_k is None else min(top_k, scores.shape[-1])
    if temperature == 0:
        ranks = hard_ranks(scores, mask).unsqueeze(-1)
        found = (ranks == positions(ranks, width)).to(ranks.dtype) + 0 * ranks
    else:
        scores = upcast(hide(scores, mask))
        gaps = (scores.unsqueeze(-2) - scores.unsqueeze(-1)) / temperature  # [i, j]: j above i
        others = ~torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
        if mask is not None:
            others = others & mask.unsqueeze(-2)
        if law == "paper":
            found = _law_of_sum(hide(normal_cdf(gaps / 2**0.5), others), width)
        else:
            noise = torch.arange(-STEPS, STEPS + 1, device=scores.device) * STEP
            noise = noise.to(scores.dtype)[(..., *[None] * gaps.dim())]
            laws = _law_of_sum(hide(normal_cdf(gaps - noise), others), width)
            found = (torch.softmax(-noise.square() / 2, 0) * laws).sum(0)
        found = found + 0 * scores.unsqueeze(-1)  # one NaN item is compared with nothing
    return found if mask is None else hide(found, mask.unsqueeze(-1))


def _law_of_sum(chances: Tensor, width: int) -> Tensor:
    # chances (..., n) of independent events -> the law of how many happen, (..., width) from 0.
    # One event after the other, all terms positive; what goes past the width is dropped.
    law = chances.new_ones((*chances.shape[:-1], min(width, 1)))
    for chance in chances.unsqueeze(-1).unbind(-2):
        stay, move = law * (1 - chance), law * chance
        law = (pad(stay, (0, 1)) + pad(move, (1, 0)))[..., :width]
    return pad(law, (0, width - law.shape[-1]))


def _check_law(law: str) -> None:
    if law not in ("paper", "exact"):
        raise ValueError(f"law must be 'paper' or 'exact', got {law!r}")


class SoftRank(TemperatureRank):
    """The law of ranks under Gaussian noise on the scores: `SoftNDCG(SoftRank())` is SoftRank.

    `forward` gives the expected ranks, those of `GaussianRank`. `discounts` gives the expected
    discount E[D(rank)], where other operators give D(expected rank), and `top_k` the chance to
    be among the first k: averages over whole ranks, in which a cut at k is exact. As the
    temperature falls to 0 they tend to the hard ones; as it grows, with the exact law, to the
    same for all items. With the exact law the sum of expected discounts is the sum of D(1..m).

    Args:
        temperature: sigma, the deviation of one score, in units of the scores; >= 0, and 0 is
            hard (ties in list order, no gradient). Default 0.1, for scores of unit scale.
        law: "paper" (default), which takes the comparisons of an item as independent, or "exact":
            see `rank_distribution`.

    Cost: O(n^2) time and memory for ranks; for discounts O(n^3), or O(n^2 k) with a cut at k, in
    time, and in memory while gradients are recorded; 43 times that for the exact law.

    Reference: Taylor et al., WSDM 2008; `rank_distribution` is the function.

    >>> from ltr.operators import truncated
    >>> operator = SoftRank(temperature=0.5, law="exact")
    >>> scores = torch.tensor([0.3, 0.7, 0.5])
    >>> operator(scores)
    tensor([2.3255, 1.6745, 2.0000])
    >>> operator.top_k(1, scores).sum()
    tensor(1.)
    """

    def __init__(self, temperature: float = 0.1, law: Law = "paper"):
        super().__init__(temperature)
        _check_law(law)
        self.law: Law = law

    @property
    def whole_ranks(self) -> bool:
        """Always: `discounts` averages over whole ranks."""
        return True

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Expected ranks (..., n) of scores (..., n); weights are refused."""
        refuse_weights(self, weights)
        return gaussian_ranks(scores, mask, temperature=self.temperature)

    def rank_distribution(
        self, scores: Tensor, mask: Tensor | None = None, top_k: int | None = None
    ) -> Tensor:
        """P(rank of item i = r), (..., n, n): see the function of this name."""
        return rank_distribution(
            scores, mask, temperature=self.temperature, law=self.law, top_k=top_k
        )

    def discounts(
        self, discount: Callable[[Tensor], Tensor], scores: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """The expected discount (..., n), 0 where masked.

        In sort time where the discount is a sum of few powers of the rank, as all smooth ones are
        to 1e-6 (1e-8 for float64 scores) of their largest value. Lists of up to 16, steps, cuts
        by `truncated`, and discounts with parameters that have a gradient take the recursion.
        """
        if self.temperature == 0:
            return hide(discount(hard_ranks(scores, mask)), mask)
        check_lists(scores, mask=mask)
        n, k = scores.shape[-1], None
        if isinstance(discount, _Cut) and discount.is_exact:
            k = discount.k
        if n > SHORT and (k is None or k >= n):
            smooth = discount if k is None else discount.discount
            noise, chances = (NOISE, CHANCES) if self.law == "exact" else ((), ())
            found = expected_discounts(
                smooth, scores, mask, temperature=self.temperature, noise=noise, chances=chances
            )
            if found is not None:
                return found
        law = self.rank_distribution(scores, mask, k)
        return (law * discount(positions(law))).sum(-1)

    def extra_repr(self) -> str:
        """The hyper-parameters, for `print`."""
        return f"temperature={self.temperature:g}, law={self.law!r}"
