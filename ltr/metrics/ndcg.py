"""Exact discounted cumulative gain, plain (DCG) and normalized (NDCG)."""

from math import isfinite
from numbers import Real
from typing import Unpack

from torch import Tensor
from torch.nn.functional import pad

from ltr.gains import (
    Discount,
    Gain,
    discount_function,
    gain_function,
    item_gains,
    ndcg_gains,
)
from ltr.kernels.sorting import falling_constants
from ltr.metrics.core import CutoffCore, ListArguments, Options
from ltr.metrics.ranked import Ranked
from ltr.metrics.ties import Ties, placed_sum
from ltr.metrics.values import Empty, ListValues, list_values
from ltr.shapes import positions


class DCGCore(CutoffCore):
    """The arithmetic of `dcg`."""

    takes_weights = True

    def __init__(
        self,
        top_k: int | None = None,
        gain: Gain = "exp2",
        discount: Discount = "log2",
        empty: Empty = 0,
        ties: Ties = "stable",
        **options: Unpack[Options],
    ):
        gain_function(gain)  # this checks the gain
        self.gain: Gain = gain
        discount_function(discount)
        self.discount: Discount = discount
        super().__init__(top_k, empty, ties, **options)

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        gains, lists = self._gains(lists)
        discounts = discount_function(self.discount)(positions(gains[..., : self.top_k]))
        values = self._sum(gains, discounts, lists)
        lists = _check_sums(values, lists)
        return list_values(values, (gains > 0).any(-1), lists, self.empty)

    def _gains(self, lists: Ranked) -> tuple[Tensor, Ranked]:
        """Return the gains times the weights, and the lists; check gains from a user's function."""
        gains = self._weighted_gains(lists)
        if isinstance(self.gain, str):
            return gains, lists
        return gains, lists.check(
            (gains < 0).any(-1), lambda: f"gain must be >= 0 for every label, got {gains.min():g}"
        )

    def _weighted_gains(self, lists: Ranked) -> Tensor:
        return item_gains(lists.labels, lists.mask, lists.weights, gain_function(self.gain))

    def _sum(self, gains: Tensor, discounts: Tensor, lists: Ranked) -> Tensor:
        """Return the sum (...) of gain (..., n) * discount over the first positions, (k,)."""
        n, k = gains.shape[-1], discounts.shape[-1]
        if self.ties == "stable":
            return (gains[..., :k] * discounts).sum(-1)
        return placed_sum(pad(discounts, (0, n - k)), gains, lists, self.ties)


class NDCGCore(DCGCore):
    """The arithmetic of `ndcg`."""

    def __init__(
        self,
        top_k: int | None = None,
        gain: Gain = "exp2",
        discount: Discount = "log2",
        empty: Empty = 0,
        short_list_value: float | None = None,
        ties: Ties = "stable",
        **options: Unpack[Options],
    ):
        number = isinstance(short_list_value, Real) and not isinstance(short_list_value, bool)
        if short_list_value is not None and not (number and isfinite(short_list_value)):
            raise ValueError(
                f"short_list_value must be None or a finite number, got {short_list_value!r}"
            )
        self.short_list_value = short_list_value
        super().__init__(top_k, gain, discount, empty, ties, **options)

    def _weighted_gains(self, lists: Ranked) -> Tensor:
        # These have a factor for each list, which cancels, so that large labels do not overflow.
        return ndcg_gains(lists.labels, lists.mask, lists.weights, self.gain)

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        gains, lists = self._gains(lists)
        best = falling_constants(gains)[..., : self.top_k]
        discounts = discount_function(self.discount)(positions(best))
        ideal = (best * discounts).sum(-1)
        lists = _check_sums(ideal, lists)
        values = self._sum(gains, discounts, lists) / ideal.where(ideal > 0, 1.0)
        found = list_values(values, ideal > 0, lists, self.empty)
        if self.short_list_value is None or self.top_k is None:
            return found
        short = (lists.lengths > 0) & (lists.lengths < self.top_k)
        return found._replace(values=found.values.masked_fill(short, float(self.short_list_value)))


def _check_sums(sums: Tensor, lists: Ranked) -> Ranked:
    most = lists.labels
    return lists.check(
        ~sums.isfinite(),
        lambda: f"gains must be finite in {sums.dtype}, got labels up to {most.max():g}",
    )


def ndcg(
    scores: Tensor,
    labels: Tensor,
    *,
    top_k: int | None = None,
    gain: Gain = "exp2",
    discount: Discount = "log2",
    empty: Empty = 0,
    short_list_value: float | None = None,
    ties: Ties = "stable",
    **lists: Unpack[ListArguments],
) -> Tensor:
    """NDCG@k: DCG@k, divided by its largest value for these labels.

    `ltr.metrics.functional` describes the arguments that all metrics share.
    The weights multiply the gains, in the ideal DCG too.

    Args:
        top_k: k. Default: the whole list.
        gain: "exp2" (2^label - 1), "linear", or a function of the labels. "exp2" gains are computed
            relative to 2^(the largest label of the list), so labels of any size are valid.
        discount: "log2" (1 / log2(1 + rank)), "letor4" (LETOR 4's script: 1 at ranks 1 and 2,
            then 1 / log2(rank)), or a function of the ranks.
        short_list_value: the value of a list with fewer than `top_k` items (LETOR 4's script: 0).
            Default: the NDCG of these items.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: two sorts.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong;
            a gain function returns a negative value; or the sum of "linear" gains or of a
            function's gains overflows.

    Reference: Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002;
    Burges et al., "Learning to rank using gradient descent", 2005, for the default gain and
    discount.

    >>> import torch
    >>> ndcg(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.0, 0.0, 1.0]))
    tensor(0.6309)
    """
    metric = NDCGCore(top_k, gain, discount, empty, short_list_value, ties)
    return metric.measure(scores, labels, **lists)


def dcg(
    scores: Tensor,
    labels: Tensor,
    *,
    top_k: int | None = None,
    gain: Gain = "exp2",
    discount: Discount = "log2",
    empty: Empty = 0,
    ties: Ties = "stable",
    **lists: Unpack[ListArguments],
) -> Tensor:
    """DCG@k: the sum of gain * discount over the first k items.

    `ltr.metrics.functional` describes the arguments that all metrics share.
    The weights multiply the gains.

    Args:
        top_k: k. Default: the whole list.
        gain: "exp2" (2^label - 1), "linear", or a function of the labels.
        discount: "log2" (1 / log2(1 + rank)), "letor4" (LETOR 4's script: 1 at ranks 1 and 2,
            then 1 / log2(rank)), or a function of the ranks.

    Returns:
        A scalar, or (...) with reduction="none". A fully masked list is left out. Cost: one sort.

    Raises:
        ValueError: a score is NaN; a label is < 0 or not finite; shapes differ; an option is wrong;
            a gain function returns a negative value; or gains overflow (2^label does so in float32
            from label 128 on).

    Reference: Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002.

    >>> import torch
    >>> dcg(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.0, 0.0, 1.0]))
    tensor(0.6309)
    """
    metric = DCGCore(top_k, gain, discount, empty, ties)
    return metric.measure(scores, labels, **lists)
