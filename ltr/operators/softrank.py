"""SoftRank (Taylor, Guiver, Robertson and Minka 2008): the ranks of noisy scores."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from ltr.gains import Cut
from ltr.operators.base import TemperatureRank, hard_or_soft, rank_steps
from ltr.operators.distributions import normal_cdf
from ltr.operators.order import expected_ranks
from ltr.operators.pairwise import counts_of
from ltr.operators.tiles import MOST_ELEMENTS, Tiles, over_tiles
from ltr.shapes import (
    check_choice,
    check_top_k,
    full_precision,
    masked_fill,
    positions,
)

RankDistribution = Literal["paper", "exact"]

NOISE_STEP = 0.25
"""The step of the trapezoid rule over an item's noise, in standard deviations, for "exact"."""


def noise_nodes(dtype: torch.dtype) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the quadrature nodes of an item's noise, in standard deviations, and their weights.

    43 nodes on [-5.25, 5.25] leave a fraction of 2e-7 of the normal distribution outside. For
    float64, 57 nodes on [-7, 7] leave a fraction of 3e-12 outside.

    >>> [len(noise_nodes(dtype)[0]) for dtype in (torch.float32, torch.float64)]
    [43, 57]
    """
    steps = 28 if dtype == torch.float64 else 21
    nodes = tuple(NOISE_STEP * step for step in range(-steps, steps + 1))
    density = [math.exp(-x * x / 2) for x in nodes]
    return nodes, tuple(y / sum(density) for y in density)


Law = Callable[[Tensor], Tensor]
"""Maps probabilities (..., n) of independent events to values (..., width) that depend on how many
of the events happen."""


def _by_item(
    law: Law,
    scores: Tensor,
    mask: Tensor | None,
    position: Tensor,
    own: Tensor,
    temperature: float,
    distribution: RankDistribution,
) -> Tensor:
    # Return the values (..., r, width) of `law` for the number of items above each of r items.
    # These have the indices `position` (..., r) and the scores `own` (..., r). Masked scores are 0
    # already.
    # The gap of items i and j is positive if j is above i.
    gaps = (scores.unsqueeze(-2) - own.unsqueeze(-1)) / temperature
    others = position.unsqueeze(-1) != torch.arange(scores.shape[-1], device=scores.device)
    if mask is not None:
        others = others & mask.unsqueeze(-2)
    if distribution == "paper":
        values = law(masked_fill(normal_cdf(gaps / 2**0.5), others))
    else:
        nodes, _ = noise_nodes(scores.dtype)
        noise = torch.tensor(nodes, dtype=scores.dtype, device=scores.device)
        noise = noise[(..., *[None] * gaps.dim())]
        given_noise = law(masked_fill(normal_cdf(gaps - noise), others))
        values = (torch.softmax(-noise.square() / 2, 0) * given_noise).sum(0)
    return values + 0 * own.unsqueeze(-1)  # a NaN stays NaN even in a list of one item


def _count_distribution(chances: Tensor, width: int) -> Tensor:
    # Return the probabilities (..., width) that exactly 0, 1, ... of n independent events happen,
    # for the probabilities `chances` (..., n) of the events. Events are added one by one, and all
    # terms are positive. Counts from `width` on are dropped.
    counts = chances.new_ones((*chances.shape[:-1], min(width, 1)))
    for chance in chances.unsqueeze(-1).unbind(-2):
        counts = torch.lerp(pad(counts, (0, 1)), pad(counts, (1, 0)), chance)[..., :width]
    return pad(counts, (0, width - counts.shape[-1]))


def mean_by_recursion(
    values: Tensor,
    scores: Tensor,
    mask: Tensor | None,
    *,
    temperature: float,
    distribution: RankDistribution,
) -> Tensor:
    """Return `SoftRank.rank_distribution(..., top_k=k) @ values`, (..., n), for values (k,).

    The results for masked items are not 0.
    Only some rows are in memory at a time, except under `torch.compile`.

    >>> mean_by_recursion(torch.ones(1), torch.zeros(3), None, temperature=1, distribution="paper")
    tensor([0.2500, 0.2500, 0.2500])
    """
    x, n, k = scores, scores.shape[-1], len(values)
    law = partial(_count_distribution, width=k)
    position = torch.arange(n, device=x.device).expand(x.shape)
    values = values.to(x.dtype).expand(*x.shape[:-1], k)
    given = x, values, *([] if mask is None else [mask])

    def part(whole: Sequence[Tensor], tiled: Sequence[Tensor]) -> tuple[Any, Any]:
        scores, values, *masks = whole
        mask = masks[0] if masks else None
        position, own = tiled
        chances = _by_item(law, scores, mask, position, own, temperature, distribution)
        with full_precision(chances):
            return [], [(chances @ values.unsqueeze(-1)).squeeze(-1)]

    copies = len(noise_nodes(x.dtype)[0]) if distribution == "exact" else 1
    task = Tiles(part, len(given), 0, 1, n * k * copies)
    (means,) = over_tiles(task, *given, position, x, most=MOST_ELEMENTS)
    return means


class SoftRank(TemperatureRank):
    """Expected ranks, discounts and top-k probabilities under noise on the scores.

    The noise is Gaussian. `SoftNDCG(SoftRank(), mean="arithmetic")` is the paper's loss.

    `forward` returns the expected ranks, as `GaussianRank` does. `discounts` returns the expected
    discount E[D(rank)]; other operators return D(expected rank). `top_k` returns the probability of
    a rank of at most k. `discounts` and `top_k` are averages over whole ranks, so a cutoff at k is
    exact. As the temperature approaches 0, all three results tend to the hard values, except that
    tied items have equal values. With the exact distribution, the expected discounts of a list sum
    to D(1) + ... + D(m). As the temperature grows, each of its results tends to the same value for
    all items.

    Args:
        temperature: sigma, the standard deviation of one score, in units of the scores, >= 0; 0
            gives hard results (ties in list order, no gradient). Default: 0.1, for scores of unit
            scale.
        distribution: "paper" (default) treats the comparisons of an item with other items as
            independent: item j is above item i with probability
            Phi((s_j - s_i) / (sqrt(2) temperature)), with the normal distribution function Phi.
            "exact" takes into account that all comparisons of an item share the item's own noise:
            it conditions on that noise and integrates over it (trapezoid rule with 43 nodes, or 57
            for float64 scores; the probabilities sum to 1 over the ranks, and errors are below
            1e-6, or 1e-11 for float64). Both distributions have the same mean. If the temperature
            is similar to the gaps between scores, or larger, the paper's distribution is much too
            narrow.

    Cost: ranks take a sort, and O(n) time and memory, forward and backward. Discounts take O(n^3)
    time, or O(n^2 k) with a cutoff at k < n, so the loss suits lists of up to about a hundred
    items. They need memory for some rows at a time (for all rows under `torch.compile`). The exact
    distribution takes up to 43 times as long, 57 times in float64.

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30), or distribution is unknown.

    Reference: Taylor, Guiver, Robertson and Minka, "SoftRank: optimizing non-smooth rank
    metrics", WSDM 2008, section 3.2.

    >>> import torch
    >>> operator = SoftRank(temperature=0.5, distribution="exact")
    >>> scores = torch.tensor([0.3, 0.7, 0.5])
    >>> operator(scores)
    tensor([2.3255, 1.6745, 2.0000])
    >>> operator.top_k(1, scores).sum()
    tensor(1.)
    """

    spreads_nan = True

    def __init__(self, temperature: float = 0.1, distribution: RankDistribution = "paper"):
        super().__init__(temperature)
        check_choice("distribution", distribution, "paper", "exact")
        self.distribution: RankDistribution = distribution

    @property
    def exact_cutoff(self) -> bool:
        """Return True: `discounts` averages over whole ranks."""
        return True

    def soft_ranks(self, scores: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
        """Return expected ranks (..., n) of scores (..., n)."""
        return 0.5 + counts_of("normal", 2**0.5 * self.temperature, scores, mask)

    def before(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the steps (..., n, n) between expected ranks.

        The steps are smooth, since expected ranks are not whole, but exact at temperature 0.
        """
        return rank_steps(self(scores, mask), exact=self.is_hard)

    def rank_distribution(
        self, scores: Tensor, mask: Tensor | None = None, top_k: int | None = None
    ) -> Tensor:
        """Return the probability that item i has rank r, (..., n, n): row i, columns r = 1..n.

        The hard limit is the one-hot matrix of `hard_ranks`. Rows of masked items and columns past
        the m real items are 0. Columns sum to 1 with the exact distribution only. Cost with k
        columns: O(n^2 k) time and O(n^2) memory, or O(n^2 k) memory while gradients are recorded;
        43 times as much for the exact distribution (57 in float64).

        Args:
            scores: (..., n).
            mask: (..., n) bool.
            top_k: compute only the first top_k ranks, (..., n, min(n, top_k)), in less time.
                Default: all.

        Raises:
            ValueError: top_k < 1, or the mask has the wrong shape.

        >>> import torch
        >>> SoftRank(0.1).rank_distribution(torch.tensor([0.0, 0.1])).round(decimals=2)
        tensor([[0.2400, 0.7600],
                [0.7600, 0.2400]])
        >>> SoftRank(distribution="exact").rank_distribution(torch.zeros(3))[0].round(decimals=2)
        tensor([0.3300, 0.3300, 0.3300])
        >>> SoftRank(distribution="paper").rank_distribution(torch.zeros(3))[0]
        tensor([0.2500, 0.5000, 0.2500])
        """
        check_top_k(top_k)

        def hard(scores: Tensor, mask: Tensor | None) -> Tensor:
            ranks = expected_ranks(scores, mask).unsqueeze(-1)
            return (ranks == positions(scores)).to(ranks.dtype) + 0 * ranks

        def soft(scores: Tensor, mask: Tensor | None) -> Tensor:
            n = scores.shape[-1]
            law = partial(_count_distribution, width=n if top_k is None else min(top_k, n))
            position = torch.arange(n, device=scores.device)
            law_of = self.temperature, self.distribution
            return _by_item(law, scores, mask, position, scores, *law_of)

        chances = hard_or_soft(self, hard, soft, scores, mask)[..., :top_k]
        return chances if mask is None else masked_fill(chances, mask.unsqueeze(-1))

    def soft_discounts(
        self, discount: Callable[[Tensor], Tensor], scores: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Return the expected discount (..., n), for `discounts`.

        This is `rank_distribution` times the discounts of the ranks 1 to n: O(n^3) time, or
        O(n^2 k) for a discount with an exact cutoff at k (`truncated`). Only some rows are in
        memory at a time.
        """
        k = scores.shape[-1]
        if isinstance(discount, Cut) and discount.is_exact:
            k, discount = min(k, discount.k), discount.discount
        ranks = positions(scores, k)
        values = discount(ranks).to(ranks.dtype).expand(ranks.shape)
        law = {"temperature": self.temperature, "distribution": self.distribution}
        return mean_by_recursion(values, scores, mask, **law)

    def extra_repr(self) -> str:
        """Return the hyper-parameters, for `print`."""
        return f"temperature={self.temperature:g}, distribution={self.distribution!r}"
