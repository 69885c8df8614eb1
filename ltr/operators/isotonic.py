"""Projections onto the permutahedron (Blondel et al. 2020): soft ranks and sorted values."""

from typing import Literal

import torch
from torch import Tensor, nn

from ltr.operators.base import RankOperator
from ltr.operators.hard import descending_order, hard_ranks
from ltr.operators.isotonic_blocks import isotonic_blocks
from ltr.shapes import (
    check_lists,
    check_temperature,
    count,
    masked_fill,
    positions,
    refuse_weights,
    upcast,
    widened,
)

Regularization = Literal["l2", "kl"]


def isotonic_ranks(
    scores: Tensor,
    mask: Tensor | None = None,
    *,
    temperature: float = 1.0,
    regularization: Regularization = "l2",
) -> Tensor:
    """Return soft ranks: -scores / temperature projected onto the permutahedron of (1, ..., m).

    The hard twin is `hard_ranks`, the vertex of the permutahedron that lies farthest in that
    direction. In falling order of the scores t, the pool-adjacent-violators algorithm cuts the
    list into blocks B. With positions i from 1, the ranks are

    - l2: rank_i = mean_B(i) - (t_i - mean_B(t)) / temperature;
    - kl: rank_i = sum_B(i) * softmax_B(-t / temperature)_i.

    Args:
        scores: (..., n), any floating dtype; computed in float64.
        mask: (..., n) bool, True = a real item. Default: all are real.
        temperature: The strength of the regularization, in units of the scores per rank; >= 0, and
            0 gives `hard_ranks`. The ranks are hard to the last digit once neighboring scores are
            one temperature apart (kl: log((i + 1) / i) temperatures at position i).
        regularization: "l2" (Euclidean projection) or "kl" (of the exponentials, by
            Kullback-Leibler divergence).

    Returns:
        (..., n), between 1 and m; a list's ranks sum to m (m + 1) / 2; tied items share their mean
        rank; masked items have m + 1. Cost: one sort and O(n), the blocks on the CPU.

    Derivatives of any order are exact. With l2 the second ones are 0, since the ranks are
    piecewise linear. An item that is alone in its block has gradient 0.

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30), an unknown regularization, or a mask of the
            wrong shape.

    Reference: Blondel, Teboul, Berthet and Djolonga, "Fast Differentiable Sorting and Ranking",
    ICML 2020, equation 8 and proposition 3.

    >>> isotonic_ranks(torch.tensor([2.0, 5.0, 2.5]), temperature=1.0)
    tensor([2.7500, 1.0000, 2.2500])
    """
    temperature = check_temperature(temperature)
    _check_regularization(regularization)
    if temperature == 0:
        return hard_ranks(scores, mask)
    check_lists(scores, mask=mask)
    dtype = upcast(scores).dtype
    # sums over long blocks lose digits in float32, and float64 costs almost nothing here
    exact = widened(masked_fill(scores, mask))
    order = descending_order(exact.detach(), mask)
    falling = exact.gather(-1, order)
    place = positions(exact).expand(exact.shape)
    kl = regularization == "kl"
    level = -falling.detach() / temperature
    ids = isotonic_blocks(level, place.log() if kl else place, _lengths(exact, mask), kl)
    if kl:
        share = _block_log_softmax(-falling, temperature, ids).exp()
        ranked = share * _block_sum(place, ids)
    else:
        size = _block_sum(torch.ones_like(place), ids)
        inside = falling - _block_sum(falling, ids) / size
        ranked = _block_sum(place, ids) / size - inside / temperature
    ranks = torch.zeros_like(ranked).scatter(-1, order, ranked)
    if mask is not None:
        ranks = torch.where(mask, ranks, count(ranks, mask) + 1)
    broken = exact.isnan().any(-1, keepdim=True)
    return torch.where(broken, torch.nan, ranks).to(dtype)


def isotonic_sort(
    scores: Tensor,
    mask: Tensor | None = None,
    *,
    temperature: float = 0.1,
    regularization: Regularization = "l2",
) -> Tensor:
    """Return soft sorted values: (m, ..., 1) / temperature projected onto the scores' hull.

    The hull is the convex hull of all orders of the scores. The hard twin is `torch.sort(scores,
    descending=True).values`. With sorted scores t, blocks B and positions i from 1, the values are

    - l2: value_i = mean_B(t) - (i - mean_B(i)) / temperature;
    - kl: value_i = logsumexp_B(t) + log_softmax_B(-i / temperature)_i.

    Args:
        scores: (..., n), any floating dtype; computed in float64.
        mask: (..., n) bool, True = a real item. Default: all are real.
        temperature: The strength of the regularization, in ranks per unit of the scores (the
            inverse of the unit in `isotonic_ranks`); >= 0, and 0 gives the hard values with their
            gradient. With l2 the values are exact as long as no gap exceeds 1 / temperature.
        regularization: "l2" or "kl".

    Returns:
        (..., n), falling, 0 past the m real items, in float32 for half-precision scores. With l2
        their sum is the sum of the scores; with kl this holds for the exponentials. Cost: as
        `isotonic_ranks`.

    Raises:
        ValueError: as `isotonic_ranks`.

    Reference: Blondel et al. 2020, equation 7 and proposition 3.

    >>> isotonic_sort(torch.tensor([2.0, 7.0, 2.5]), temperature=1.0)
    tensor([4.8333, 3.8333, 2.8333])
    """
    temperature = check_temperature(temperature)
    _check_regularization(regularization)
    check_lists(scores, mask=mask)
    dtype = upcast(scores).dtype
    exact = widened(masked_fill(scores, mask))
    falling = exact.gather(-1, descending_order(exact.detach(), mask))
    values = falling
    if temperature > 0:
        kl = regularization == "kl"
        place = positions(exact).expand(exact.shape)
        ids = isotonic_blocks(falling.detach(), -place / temperature, _lengths(exact, mask), kl)
        if kl:
            peak = _block_max(falling.detach(), ids)
            total = peak + _block_sum((falling - peak).exp(), ids).log()
            values = total + _block_log_softmax(-place, temperature, ids)
        else:
            size = _block_sum(torch.ones_like(place), ids)
            inside = place - _block_sum(place, ids) / size
            values = _block_sum(falling, ids) / size - inside / temperature
    if mask is not None:
        values = torch.where(positions(exact) <= count(exact, mask), values, 0.0)
    broken = exact.isnan().any(-1, keepdim=True)
    return torch.where(broken, torch.nan, values).to(dtype)


def _check_regularization(regularization: str) -> None:
    if regularization not in ("l2", "kl"):
        raise ValueError(f"regularization must be 'l2' or 'kl', got {regularization!r}")


def _lengths(x: Tensor, mask: Tensor | None) -> Tensor:
    return count(x, mask).to(torch.int64)


def _block_sum(x: Tensor, ids: Tensor) -> Tensor:
    """Return the sum over each item's block, at each item."""
    return torch.zeros_like(x).scatter_add(-1, ids, x).gather(-1, ids)


def _block_max(x: Tensor, ids: Tensor) -> Tensor:
    """Return the largest value of each item's block, at each item, without a derivative."""
    return (
        torch.zeros_like(x).scatter_reduce(-1, ids, x, "amax", include_self=False).gather(-1, ids)
    )


def _block_log_softmax(x: Tensor, temperature: float, ids: Tensor) -> Tensor:
    # subtract before dividing: then a block of one item gives exactly 0 at any temperature
    logits = (x - _block_max(x.detach(), ids)) / temperature
    return logits - _block_sum(logits.exp(), ids).log()


class IsotonicRank(RankOperator):
    """Soft ranks by projection onto the permutahedron, in O(n log n).

    As the temperature falls the ranks become exactly the hard ranks, already above temperature 0
    (tied items share their mean rank). As it grows all ranks tend to (n + 1) / 2.

    Args:
        temperature: The strength of the regularization, in units of the scores per rank; >= 0, and
            0 is hard (ties in list order, no gradient). Default 1.
        regularization: "l2" (default; piecewise linear ranks) or "kl" (smooth within a block).

    Cost: one sort and O(n); the blocks are found on the CPU.

    Reference: Blondel et al., ICML 2020; `isotonic_ranks` is the function.

    >>> IsotonicRank(temperature=0.1)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    """

    def __init__(self, temperature: float = 1.0, regularization: Regularization = "l2"):
        super().__init__()
        self.temperature = check_temperature(temperature)
        _check_regularization(regularization)
        self.regularization: Regularization = regularization

    @property
    def whole_ranks(self) -> bool:
        """Return whether the temperature is 0."""
        return self.temperature == 0

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return soft ranks (..., n) of scores (..., n); weights are refused."""
        refuse_weights(self, weights)
        return isotonic_ranks(
            scores, mask, temperature=self.temperature, regularization=self.regularization
        )

    def extra_repr(self) -> str:
        """Return the hyper-parameters, for `print`."""
        return f"temperature={self.temperature:g}, regularization={self.regularization!r}"


class IsotonicSort(nn.Module):
    """Soft sorted values by projection onto the permutahedron of the scores, in O(n log n).

    There is no matrix, so this is not a `SortOperator`: `forward` returns the values. As the
    temperature falls they become exactly the sorted values. As it grows all tend to the mean of
    the scores (kl: to the logarithm of the mean of their exponentials).

    Args:
        temperature: the strength of the regularization, in ranks per unit of the scores; >= 0,
            and 0 is hard. Default 0.1: exact as long as no gap exceeds 10.
        regularization: "l2" (default) or "kl".

    Cost: one sort and O(n); the blocks are found on the CPU.

    Reference: Blondel et al., ICML 2020; `isotonic_sort` is the function.

    >>> IsotonicSort()(torch.tensor([0.3, 0.7, 0.5]))
    tensor([0.7000, 0.5000, 0.3000])
    """

    def __init__(self, temperature: float = 0.1, regularization: Regularization = "l2"):
        super().__init__()
        self.temperature = check_temperature(temperature)
        _check_regularization(regularization)
        self.regularization: Regularization = regularization

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return soft sorted values (..., n), falling, of scores (..., n); weights are refused."""
        refuse_weights(self, weights)
        return isotonic_sort(
            scores, mask, temperature=self.temperature, regularization=self.regularization
        )

    def extra_repr(self) -> str:
        """Return the hyper-parameters, for `print`."""
        return f"temperature={self.temperature:g}, regularization={self.regularization!r}"
