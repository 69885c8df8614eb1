"""SoftSort (Prillo and Eisenschlos 2020), a softmax over distances from the sorted scores."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ltr.kernels.sorting import descending_order, in_list_order
from ltr.kernels.sums import prefers_dense
from ltr.operators.base import RankOperator, SortOperator, TemperatureRank
from ltr.operators.distributions import abs_power
from ltr.operators.lazy_permutation import KernelPermutation, PowerPermutation
from ltr.operators.order import descending_scores
from ltr.operators.permutation import DensePermutation, SoftPermutation
from ltr.operators.tiles import by_lists
from ltr.shapes import (
    check_number,
    count,
    masked_fill,
    positions,
)

Metric = Callable[..., Any]  # with a narrower type, a YAML file could not name a module
"""A semi-metric of two scores, elementwise: metric(a, b) >= 0, and 0 if a = b."""


def check_power(power: float | Metric) -> float | Metric:
    """Return `power`, or raise a ValueError if it is neither a number > 0 nor a function."""
    if not callable(power):
        check_number("power", power, minimum=0.0, strict=True)
    return power


def distances(tops: Tensor, scores: Tensor, power: float | Metric) -> Tensor:
    """Return the distances d(t_i, s_j), (..., n, n), for sorted scores t and scores s (..., n)."""
    tops, items = tops.unsqueeze(-1), scores.unsqueeze(-2)
    if not callable(power):
        return abs_power(tops - items, power)
    metric = power(tops, items)
    shape = (*scores.shape, scores.shape[-1])
    if not isinstance(metric, Tensor) or metric.shape != shape:
        got = tuple(metric.shape) if isinstance(metric, Tensor) else type(metric).__name__
        raise ValueError(f"power must return distances of shape {shape}, got {got}")
    return metric


class DistanceRank(TemperatureRank):
    """Base class of `SoftSort` and `SoftSortRank`, with a temperature and a power of the distance.

    Attributes:
        by_item: True if each item has a softmax over positions, False if each position has a
            softmax over items.
    """

    by_item: ClassVar[bool]

    def __init__(self, temperature: float = 0.1, power: float | Metric = 1.0):
        super().__init__(temperature)
        self.power = check_power(power)

    def extra_repr(self) -> str:
        """Return the hyper-parameters, for `print`; a module given as `power` prints itself."""
        if isinstance(self.power, nn.Module):
            return super().extra_repr()
        power = self.power
        shown = getattr(power, "__name__", power) if callable(power) else f"{power:g}"
        return f"{super().extra_repr()}, power={shown}"


class SoftSort(DistanceRank, SortOperator):
    """Soft sort: each position is a softmax over the items, by the distance from its sorted score.

    Row i of the permutation P is the softmax over j of -d(s_[i], s_j) / temperature.

    Here s_[i] is the i-th highest score, and d(a, b) = |a - b|^power or a function given as
    `power`. The hard limit is `torch.argsort(scores, descending=True)` as a one-hot matrix: the
    row-wise argmax gives this matrix at every temperature, if d(a, b) is 0 only for a = b.

    The ranks are the transposed matrix applied to 1..n. Rows sum to 1, but columns need not. So
    ranks can leave [1, n]: one item 5.5 temperatures above a hundred tied items has the rank
    0.92. A soft NDCG of such ranks may exceed 1. (The ranks of `SoftSortRank` stay in [1, n].) As
    the temperature approaches 0, the ranks tend to the hard ranks, except that tied items share
    their mean rank. As the temperature grows, the elements of P tend to 1/n and the ranks to
    (n + 1) / 2.

    Args:
        temperature: tau, in units of score^power, >= 0; 0 gives hard ranks (ties in list order, no
            gradient). Default: 0.1, for scores of unit scale.
        power: the exponent of the distance, > 0, or a semi-metric. Default: 1 (Laplace rows); 2
            gives Gaussian rows. A semi-metric `metric(a, b)` is called once, with the sorted scores
            (..., n, 1) and the scores (..., 1, n), and returns distances (..., n, n). If the
            distances grow with |a - b|, each row has one maximum in sorted order. An `nn.Module`
            becomes a submodule, so that its parameters are learned with the model. The semi-metric
            gets scores in their own units; its result is divided by the temperature.

    Cost: one sort and O(n) time and memory for powers 1 and 2; O(n^2) time and O(n) memory for
    other powers; O(n^2) time and memory for a function. Short lists use the n x n matrix
    (`ltr.kernels.use`).

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30), or power <= 0.

    Reference: Prillo and Eisenschlos, "SoftSort: A Continuous Relaxation for the argsort
    Operator", ICML 2020, equation 4.

    >>> SoftSort(temperature=0.01)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    >>> P = SoftSort(temperature=1.0).permutation(torch.tensor([1.0, 3.0, 2.0]))
    >>> P.dense().round(decimals=2)
    tensor([[0.0900, 0.6700, 0.2400],
            [0.2100, 0.2100, 0.5800],
            [0.6700, 0.0900, 0.2400]])
    >>> log = SoftSort(power=lambda a, b: (a - b).abs().log1p())
    >>> log.permutation(torch.tensor([1.0, 3.0])).sort()
    tensor([3.0000, 1.0000])
    >>> class Scaled(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.log_scale = nn.Parameter(torch.zeros(()))
    ...     def forward(self, a, b):
    ...         return self.log_scale.exp() * (a - b).abs()
    >>> [name for name, _ in SoftSort(power=Scaled()).named_parameters()]
    ['power.log_scale']
    """

    by_item = False
    spreads_nan = True  # the rank of each item is a sum over all items

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return soft ranks (..., n) of scores (..., n); weights are refused."""
        if self.power != 1:
            return super().forward(scores, mask, weights)
        return RankOperator.forward(self, scores, mask, weights)  # this does not build the matrix

    def soft_ranks(self, scores: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
        """Return soft ranks (..., n) for power 1."""
        # These ranks need no order: the compiled sums sort in the same call.
        return KernelPermutation(scores, mask, None, self.temperature, 1).ranks()

    def soft_permutation(
        self, scores: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> SoftPermutation:
        """Return the soft permutation of scores (..., n), whose rows are softmaxes of distances."""
        if not callable(self.power):
            kind = KernelPermutation if self.power in (1, 2) else PowerPermutation
            return kind(scores, mask, None, self.temperature, self.power).ordered()
        order = descending_order(scores, mask)
        logits = -distances(scores.gather(-1, order), scores, self.power) / self.temperature
        rows = None
        if mask is not None:
            # Rows past the real items keep finite logits until after the softmax.
            rows = (positions(scores) <= count(scores, mask)).unsqueeze(-1)
            logits = torch.where(mask.unsqueeze(-2) | ~rows, logits, -torch.inf)
        log_p = masked_fill(torch.log_softmax(logits, dim=-1), rows, -torch.inf)
        return DensePermutation(log_p, scores, mask, order)


class SoftSortRank(DistanceRank):
    """Soft ranks that stay in [1, n], from the distances of `SoftSort`.

    Each item has a softmax over the positions, so its rank stays in [1, n]. The rank of item j is
    the sum over positions i of i times the softmax over i of -d(s_[i], s_j) / temperature, with
    s_[i] the i-th highest score and d(a, b) = |a - b|^power or a function given as `power`.
    `SoftSort` takes the softmax over the items j; here it is over the positions i.

    The ranks of `SoftSort` can leave [1, n]. A rank below 1 has a discount above 1, so a soft NDCG
    can exceed 1. The ranks of `SoftSortRank` are at least 1, so a soft NDCG with one relevant item
    cannot exceed 1. Tied items have equal ranks, and for power >= 1 ranks keep the order of the
    scores. The sum of the ranks may differ from m (m + 1) / 2. As the temperature approaches 0,
    the ranks tend to the hard ranks, except that tied items share their mean rank. As the
    temperature grows, all ranks tend to (n + 1) / 2.

    Args:
        temperature: tau, in units of score^power, >= 0; 0 gives hard ranks (ties in list order, no
            gradient). Default: 0.1, for scores of unit scale.
        power: the exponent of the distance, > 0, default 1; or a semi-metric `metric(a, b)`: see
            `SoftSort`. An `nn.Module` becomes a submodule.

    Cost: one sort and O(n) time and memory for powers 1 and 2; O(n^2) time and O(n) memory for
    other powers; O(n^2) time and memory for a function. Short lists use the n x n matrix
    (`ltr.kernels.use`).

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30), or power <= 0.

    Reference: the matrix of Prillo and Eisenschlos, "SoftSort: A Continuous Relaxation for the
    argsort Operator", ICML 2020, equation 4, normalized by columns.

    >>> SoftSortRank(temperature=0.01)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    >>> SoftSortRank(temperature=0.1)(torch.tensor([1.0, 3.0, 3.0]))
    tensor([3.0000, 1.5000, 1.5000])
    """

    by_item = True

    def soft_ranks(self, scores: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
        """Return soft ranks (..., n); in a list whose scores are not finite they may be wrong."""
        if callable(self.power):  # a power that is a function has only the dense form
            return self._dense(scores, mask)
        has_sums = self.power in (1, 2)
        if has_sums and prefers_dense(f"softsort {self.power:g}", scores.shape):
            return by_lists(self._dense, scores.size(-1), scores, (mask, 1))
        # In sorted order the matrix of distances is symmetric, so the softmax of a column is equal
        # to the softmax of the row with the same index.
        order = descending_order(scores.detach(), mask)
        kind = KernelPermutation if self.power in (1, 2) else PowerPermutation
        P = kind(scores, mask, order, self.temperature, self.power)
        position = positions(scores).expand(scores.shape)
        ranks = P.mv(in_list_order(position, order))
        return in_list_order(ranks, order)

    def _dense(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        rows, tops = None, descending_scores(scores, mask)
        if mask is not None:
            rows = positions(scores) <= count(scores, mask)
            tops = masked_fill(tops, rows)
        logits = distances(tops, scores, self.power) / -self.temperature
        if mask is not None and rows is not None:
            # Columns of masked items keep finite logits until after the softmax.
            logits = torch.where(rows.unsqueeze(-1) | ~mask.unsqueeze(-2), logits, -torch.inf)
        return (torch.softmax(logits, dim=-2) * positions(scores).unsqueeze(-1)).sum(-2)
