"""Exact discounted cumulative gain, plain (DCG) and normalized (NDCG)."""

from dataclasses import KW_ONLY
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
from ltr.kernels.sorting import falling_values
from ltr.metrics.core import CutoffArguments, CutoffCore, EmptyCore, measured_by
from ltr.metrics.ranked import ListValues, Ranked, list_values
from ltr.metrics.ties import placed_sum
from ltr.shapes import positions


class DCGCore(CutoffCore, EmptyCore):
    """The arithmetic of `dcg`."""

    takes_weights = True

    gain: Gain = "exp2"
    discount: Discount = "log2"

    def __post_init__(self) -> None:
        gain_function(self.gain)  # this checks the gain
        discount_function(self.discount)
        super().__post_init__()

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        gains = item_gains(lists.labels, lists.mask, lists.weights, gain_function(self.gain))
        discounts = discount_function(self.discount)(positions(gains[..., : self.top_k]))
        values = self.discounted(gains, discounts, lists)
        lists = self.checked(gains, values, lists)
        return list_values(values, (gains > 0).any(-1), lists, self.empty)

    def discounted(self, gains: Tensor, discounts: Tensor, lists: Ranked) -> Tensor:
        """Return the sum (...) of gain (..., n) * discount over the first positions, (k,)."""
        n, k = gains.shape[-1], discounts.shape[-1]
        if self.ties == "stable":
            return (gains[..., :k] * discounts).sum(-1)
        return placed_sum(pad(discounts, (0, n - k)), gains, lists, self.ties)

    def checked(self, gains: Tensor, sums: Tensor, lists: Ranked) -> Ranked:
        """Return the lists; refuse gains (..., n) below 0 and sums (...) that overflow."""
        if not isinstance(self.gain, str):
            lists = lists.check(
                (gains < 0).any(-1),
                lambda: f"gain must be >= 0 for every label, got {gains.min():g}",
            )
        return lists.check(
            ~sums.isfinite(),
            lambda: (
                f"gains must be finite in {sums.dtype}, got labels up to {lists.labels.max():g}"
            ),
        )


class NDCGCore(DCGCore):
    """The arithmetic of `ndcg`."""

    _: KW_ONLY
    short_list_value: float | None = None

    def __post_init__(self) -> None:
        value = self.short_list_value
        number = isinstance(value, Real) and not isinstance(value, bool)
        if value is not None and not (number and isfinite(value)):
            raise ValueError(f"short_list_value must be None or a finite number, got {value!r}")
        super().__post_init__()

    def per_list(self, lists: Ranked) -> ListValues:
        """Return the value of each list."""
        # These have a factor for each list, which cancels, so that large labels do not overflow.
        gains = ndcg_gains(lists.labels, lists.mask, lists.weights, self.gain)
        best = falling_values(gains)[..., : self.top_k]
        discounts = discount_function(self.discount)(positions(best))
        ideal = (best * discounts).sum(-1)
        lists = self.checked(gains, ideal, lists)
        values = self.discounted(gains, discounts, lists) / ideal.where(ideal > 0, 1.0)
        of_lists = list_values(values, ideal > 0, lists, self.empty)
        if self.short_list_value is None or self.top_k is None:
            return of_lists
        short = (lists.lengths > 0) & (lists.lengths < self.top_k)
        values = of_lists.values.masked_fill(short, float(self.short_list_value))
        return of_lists._replace(values=values)


@measured_by(NDCGCore)
def ndcg(
    scores: Tensor,
    labels: Tensor,
    *,
    gain: Gain = "exp2",
    discount: Discount = "log2",
    short_list_value: float | None = None,
    **shared: Unpack[CutoffArguments],
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
    ...


@measured_by(DCGCore)
def dcg(
    scores: Tensor,
    labels: Tensor,
    *,
    gain: Gain = "exp2",
    discount: Discount = "log2",
    **shared: Unpack[CutoffArguments],
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
    ...
