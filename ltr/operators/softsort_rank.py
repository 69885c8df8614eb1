"""SoftSort's ranks normalized for each item: they stay between 1 and n."""

from collections.abc import Callable

import torch
from torch import Tensor

from ltr.kernels import Lengths, prefers_dense
from ltr.operators.by_lists import by_lists
from ltr.operators.hard import descending_order, hard_ranks
from ltr.operators.kernel_permutation import KernelPermutation, ragged_ranks, thresholds_of
from ltr.operators.pairwise import TemperatureRank, falling_scores, with_masked
from ltr.operators.softsort import Metric, check_power, distances, repr_of
from ltr.operators.tiled import TiledPermutation
from ltr.shapes import (
    check_lists,
    check_temperature,
    count,
    masked_fill,
    positions,
    refuse_weights,
    upcast,
)


def softsort_ranks(
    scores: Tensor,
    mask: Tensor | None = None,
    *,
    temperature: float = 0.1,
    power: float | Metric = 1.0,
) -> Tensor:
    """Return soft ranks sum over i of i * softmax over i of -d(s_[i], s_j) / temperature.

    Here s_[i] is the i-th highest score, and d(a, b) = |a - b|^power or a function given as
    `power`. `softsort` takes the softmax over the items j; here it is over the positions i. The
    hard twin is 1 + the number of higher scores, with ties at their mean rank.

    Args:
        scores: (..., n), any floating dtype; half precision is computed in float32.
        mask: (..., n) bool, True = a real item. Default: all are real.
        temperature: tau, in units of score^power; >= 0, and 0 gives `hard_ranks`.
        power: exponent of the distance, > 0, or a semi-metric `metric(a, b)`, see `softsort`.

    Returns:
        (..., n), between 1 and m, equal for tied items; for power >= 1 in the order of the scores.
        Masked items have m + 1. The sum may differ from m (m + 1) / 2. Cost: as for `softsort`.

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30), power <= 0, or a mask of the wrong shape.

    Reference: the matrix of Prillo and Eisenschlos, "SoftSort: A Continuous Relaxation for the
    argsort Operator", ICML 2020, equation 4, normalized by columns.

    >>> softsort_ranks(torch.tensor([1.0, 3.0, 3.0]), temperature=0.1)
    tensor([3.0000, 1.5000, 1.5000])
    """
    temperature = check_temperature(temperature)
    check_power(power)
    if temperature == 0:
        return hard_ranks(scores, mask)
    check_lists(scores, mask=mask)
    scores = upcast(masked_fill(scores, mask))
    if not callable(power) and not prefers_dense(thresholds_of(power), scores):
        return _by_sums(scores, mask, temperature, power)

    if callable(power):  # it may have parameters
        return _dense(scores, mask, temperature, power)

    def dense(scores: Tensor, mask: Tensor | None) -> Tensor:
        return _dense(scores, mask, temperature, power)

    return by_lists(dense, scores.size(-1), scores, (mask, 1))


def _dense(
    scores: Tensor, mask: Tensor | None, temperature: float, power: float | Metric
) -> Tensor:
    rows, tops = None, falling_scores(scores, mask)
    if mask is not None:
        rows = positions(scores) <= count(scores, mask)
        tops = masked_fill(tops, rows)
    logits = distances(tops, scores, power) / -temperature
    if mask is not None and rows is not None:
        # columns of masked items keep finite logits until after the softmax
        logits = torch.where(rows.unsqueeze(-1) | ~mask.unsqueeze(-2), logits, -torch.inf)
    fixed = tops.detach()
    places = positions(scores) + (fixed - fixed)  # NaN for the whole list if a score is not finite
    ranks = (torch.softmax(logits, dim=-2) * places.unsqueeze(-1)).sum(-2)
    return with_masked(ranks, mask)


def _by_sums(scores: Tensor, mask: Tensor | None, temperature: float, power: float) -> Tensor:
    # in sorted order the distances are symmetric: a softmax of columns is one of rows
    order = descending_order(scores.detach(), mask)
    kind = KernelPermutation if power in (1, 2) else TiledPermutation
    P = kind(scores, mask, order, temperature, power)
    places = positions(scores).expand(scores.shape)
    ranks = P.mv(torch.empty_like(scores).scatter(-1, order, places))
    return with_masked(torch.empty_like(ranks).scatter(-1, order, ranks), mask)


class SoftSortRank(TemperatureRank):
    """SoftSort's distances as ranks that stay in [1, n]: a softmax over positions for each item.

    The ranks of `SoftSort` itself can leave [1, n], and then a `SoftNDCG` can exceed 1. With these
    ranks it cannot. As the temperature falls to 0 the ranks tend to
    the hard ranks (tied items share their mean rank); as it grows all tend to (n + 1) / 2.

    Args:
        temperature: tau, in units of score^power; >= 0, and 0 is hard (ties in list order, no
            gradient). Default 0.1, for scores of unit scale.
        power: exponent of the distance, > 0, default 1; or a semi-metric `metric(a, b)`, see
            `softsort`. An `nn.Module` becomes a submodule.

    Cost: one sort and O(n) time and memory for powers 1 and 2; O(n w) time for rows w entries wide
    and O(n) memory for other powers; O(n^2) time and memory for a function.

    Reference: after Prillo and Eisenschlos, ICML 2020; `softsort_ranks` is the function.

    >>> SoftSortRank(temperature=0.01)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    """

    def __init__(self, temperature: float = 0.1, power: float | Metric = 1.0):
        super().__init__(temperature)
        check_power(power)
        self.power = power

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return soft ranks (..., n) of scores (..., n); weights are refused."""
        refuse_weights(self, weights)
        return softsort_ranks(scores, mask, temperature=self.temperature, power=self.power)

    def ragged(self, scores: Tensor, lengths: Lengths, weights: Tensor | None = None) -> Tensor:
        """Return soft ranks (N,) of flat scores (N,), lengths (R,): one sweep for powers 1, 2."""
        refuse_weights(self, weights)
        if self.temperature == 0 or callable(self.power) or self.power not in (1, 2):
            return super().ragged(scores, lengths)
        return ragged_ranks(scores, lengths, self.temperature, self.power, by_item=True)

    def ragged_discounts(
        self, discount: Callable[[Tensor], Tensor], scores: Tensor, lengths: Lengths
    ) -> Tensor:
        """Return `discount` of the soft ranks, (N,)."""
        return discount(self.ragged(scores, lengths))

    def extra_repr(self) -> str:
        """Return the hyper-parameters, for `print`."""
        return repr_of(self.temperature, self.power)
