"""SoftRank (Taylor, Guiver, Robertson and Minka 2008): the distribution of noisy scores' ranks."""

from collections.abc import Callable

from torch import Tensor

from ltr.gains import Cut
from ltr.operators.expected_discounts import expected_discounts
from ltr.operators.gaussian import gaussian_ranks
from ltr.operators.hard import hard_ranks
from ltr.operators.pairwise import TemperatureRank
from ltr.operators.rank_distribution import (
    RankDistribution,
    check_distribution,
    mean_by_recursion,
    noise_nodes,
    rank_distribution,
)
from ltr.shapes import check_lists, masked_fill, positions, refuse_weights, upcast

SHORT = 16
"""Lists up to this length use the recursion, which is as fast for them."""


class SoftRank(TemperatureRank):
    """The rank distribution under Gaussian noise; `SoftNDCG(SoftRank())` is the paper's loss.

    `forward` returns the expected ranks, which are those of `GaussianRank`. `discounts` returns the
    expected discount E[D(rank)], where other operators return D(expected rank). `top_k` returns the
    probability to be among the first k. Both are averages over whole ranks, in which a cut at k is
    exact. As the temperature falls to 0, all three tend to the hard values. As it grows, with the
    exact distribution, they tend to the same value for all items. With the exact distribution the
    sum of expected discounts is the sum of D(1..m).

    Args:
        temperature: sigma, the deviation of one score, in units of the scores; >= 0, and 0 is
            hard (ties in list order, no gradient). Default 0.1, for scores of unit scale.
        distribution: "paper" (default), which treats the comparisons of an item as independent, or
            "exact"; see `rank_distribution`.

    Cost: ranks and smooth discounts take a sort, O(n) time and O(n) memory, the backward pass
    too. A cut at k < n takes O(n^2 k) time, a discount with a step O(n^3), both in memory for
    some rows at a time (all of them in a second derivative, and under `torch.compile`). Up to 43
    times the time for the exact distribution, 57 in float64.

    Reference: Taylor et al., WSDM 2008; `rank_distribution` is the function.

    >>> import torch
    >>> from ltr.operators import truncated
    >>> operator = SoftRank(temperature=0.5, distribution="exact")
    >>> scores = torch.tensor([0.3, 0.7, 0.5])
    >>> operator(scores)
    tensor([2.3255, 1.6745, 2.0000])
    >>> operator.top_k(1, scores).sum()
    tensor(1.)
    """

    def __init__(self, temperature: float = 0.1, distribution: RankDistribution = "paper"):
        super().__init__(temperature)
        check_distribution(distribution)
        self.distribution: RankDistribution = distribution

    @property
    def whole_ranks(self) -> bool:
        """Return True: `discounts` averages over whole ranks."""
        return True

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return expected ranks (..., n) of scores (..., n); weights are refused."""
        refuse_weights(self, weights)
        return gaussian_ranks(scores, mask, temperature=self.temperature)

    def rank_distribution(
        self, scores: Tensor, mask: Tensor | None = None, top_k: int | None = None
    ) -> Tensor:
        """Return P(rank of item i = r), (..., n, n): see the function of this name."""
        return rank_distribution(
            scores, mask, temperature=self.temperature, distribution=self.distribution, top_k=top_k
        )

    def discounts(
        self, discount: Callable[[Tensor], Tensor], scores: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Return the expected discount (..., n), 0 where masked.

        It takes sort time if the discount is a sum of few powers z^rank. All smooth discounts are
        such sums, to 1e-6 (1e-8 for float64 scores) of their largest value; `discount` is then
        called on the CPU. Lists of up to 16 items, steps, cuts by `truncated`, and discounts with
        parameters that need a gradient use the recursion.
        """
        if self.temperature == 0:
            return masked_fill(discount(hard_ranks(scores, mask)), mask)
        check_lists(scores, mask=mask)
        n, k, smooth = scores.shape[-1], None, discount
        if isinstance(discount, Cut) and discount.is_exact:
            k, smooth = discount.k, discount.discount
        if n > SHORT and (k is None or k >= n):
            exact = self.distribution == "exact"
            noise, chances = noise_nodes(upcast(scores).dtype) if exact else ((), ())
            found = expected_discounts(
                smooth, scores, mask, temperature=self.temperature, noise=noise, chances=chances
            )
            if found is not None:
                return found
        ranks = positions(upcast(scores), n if k is None else min(n, k))
        values = discount(ranks).to(ranks.dtype).expand(ranks.shape)
        return mean_by_recursion(
            values, scores, mask, temperature=self.temperature, distribution=self.distribution
        )

    def extra_repr(self) -> str:
        """Return the hyper-parameters, for `print`."""
        return f"temperature={self.temperature:g}, distribution={self.distribution!r}"
