"""The base classes of rank and sort operators.

A new operator is one subclass. A `RankOperator` defines `forward`, and a `SortOperator` defines
`permutation`. Every loss accepts the new operator without registration.

The operators of `ltr` define `soft_ranks`, `soft_permutation`, `soft_top_k` and `soft_discounts`
instead, which are mathematics alone: the `forward`, `permutation`, `top_k` and `discounts` of the
base classes do the rest for them, in this order. They check the arguments, refuse weights, set
masked scores to 0, compute half precision in float32, give hard results if `is_hard`, call the
operator's method, set the ranks of masked items to m + 1 and their memberships and discounts to 0,
and make the ranks of a list with a NaN score NaN. A method that only one operator has goes through
`hard_or_soft`.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ltr.gains import CUT_WIDTH, truncated
from ltr.kernels.sorting import descending_order
from ltr.operators.order import expected_ranks, hard_membership, nan_unless_finite
from ltr.operators.permutation import HardPermutation, SoftPermutation
from ltr.shapes import (
    check_temperature,
    check_whole,
    masked_fill,
    real_scores,
    refuse_weights,
    with_masked,
)


class RankOperator(nn.Module):
    """Base class of rank operators, which map scores to soft ranks.

    The scores, the mask and the ranks are (..., n); rank 1 = the highest score.

    Every operator follows these rules:

    - The m real items of a list get the same ranks as without the masked items. A masked item has
      rank m + 1 and gradient 0. NaN and inf under the mask do not affect any result.
    - Half-precision scores give float32 ranks.
    - A NaN score makes all ranks of its own list NaN and does not affect other lists. An infinite
      score makes at least its own rank NaN (inf - inf is NaN). Only hard operators rank infinite
      scores.
    - Weights are scaled to sum to m. In `SinkhornSort` the weights are the masses of the items.
      `SigmoidRank`, `GaussianRank`, `LaplaceRank` and `SoftplusRank` count an item of weight w as w
      tied items. Weights that are all 0 count as equal. Weights are not checked for negative
      values, since a check would wait for the device.
    - An operator without a weighted form refuses `weights` with a ValueError, because each position
      holds one item. A loss can weight its terms instead, as `SoftNDCG` weights the gains.

    Attributes:
        weighted: whether the operator has a weighted form; if False, `forward` and `permutation`
            refuse weights before they call `soft_ranks` or `soft_permutation`.
        spreads_nan: whether `soft_ranks` itself gives NaN for all items of a list with a score that
            is not finite, as sums over all items do; if False, `forward` sets them to NaN.

    >>> class HingeRank(RankOperator):
    ...     def forward(self, scores, mask=None, weights=None):
    ...         above = torch.relu(1 + scores.unsqueeze(-2) - scores.unsqueeze(-1))
    ...         return above.sum(-1)
    >>> HingeRank()(torch.tensor([0.0, 50.0]))
    tensor([52.,  1.])
    """

    weighted: ClassVar[bool] = False
    spreads_nan: ClassVar[bool] = False

    @property
    def is_hard(self) -> bool:
        """Return whether the results are hard, as at temperature 0."""
        return False

    @property
    def exact_cutoff(self) -> bool:
        """Return whether `discounts` uses only whole ranks, so that a cutoff is exact.

        True for hard ranks (temperature 0), and for an operator whose `discounts` are averages over
        a distribution of whole ranks. The soft ranks of such an operator are not whole.
        """
        return self.is_hard

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return soft ranks of scores, with an optional bool mask and weights; all are (..., n)."""
        if weights is not None and not self.weighted:
            refuse_weights(self, weights)
        scores = real_scores(scores, mask, weights)
        if self.is_hard:
            return expected_ranks(scores, mask, weights)
        ranks = with_masked(self.soft_ranks(scores, mask, weights), mask)
        return ranks if self.spreads_nan else nan_unless_finite(ranks, scores)

    def soft_ranks(self, scores: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
        """Return the soft ranks (..., n) of the real items, for `forward`.

        The scores are checked, float32 or float64, and 0 where masked; the results for masked items
        are not used. `weights` is None unless the class sets `weighted`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def discounts(
        self, discount: Callable[[Tensor], Tensor], scores: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Return `discount` of the soft ranks, (..., n), 0 where masked.

        An operator that knows the distribution of each rank returns the mean discount instead. To
        set a discount to 0 after rank k, wrap it in `truncated`.
        """
        if type(self).soft_discounts is RankOperator.soft_discounts or self.is_hard:
            return masked_fill(discount(self(scores, mask)), mask)
        scores = real_scores(scores, mask)
        return masked_fill(self.soft_discounts(discount, scores, mask), mask)

    def soft_discounts(
        self, discount: Callable[[Tensor], Tensor], scores: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Return the mean discounts (..., n) of the real items, for `discounts`.

        The scores are as in `soft_ranks`. An operator without this method has the discounts of its
        ranks.
        """
        raise NotImplementedError(f"{type(self).__name__} has no discounts besides its ranks")

    def top_k(self, k: int, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return soft membership in the first k, (..., n) in [0, 1], 0 where masked.

        The membership is a smooth form of `ranks <= k`, by the cutoff of `truncated`, so items
        outside the first k have a gradient. The cutoff is exact if `exact_cutoff` is True.

        Raises:
            ValueError: k is not a whole number >= 1.
        """
        k = check_whole("k", k)
        if type(self).soft_top_k is RankOperator.soft_top_k:  # `forward` treats the arguments
            cutoff = truncated(torch.ones_like, k, exact=self.exact_cutoff)
            return self.discounts(cutoff, scores, mask)
        return self._membership(k, real_scores(scores, mask), mask)

    def _membership(self, k: int | Tensor, scores: Tensor, mask: Tensor | None) -> Tensor:
        # The arguments are checked, and the scores 0 where masked.
        if self.is_hard:
            return hard_membership(k, scores, mask)
        return masked_fill(self.soft_top_k(k, scores, mask), mask)

    def soft_top_k(self, k: Any, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return the soft membership (..., n) of the real items, for `top_k`.

        k is checked, and the scores are as in `soft_ranks`. An operator without this method has the
        memberships that its ranks give.
        """
        raise NotImplementedError(f"{type(self).__name__} has no memberships besides its ranks")

    def before(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return how surely item j comes before item i, (..., n, n) in [0, 1]: row i, column j.

        The value is a smooth step function of the difference between the two ranks, as wide as the
        smooth cutoff of `truncated`. It is 1/2 for equal ranks. If `exact_cutoff` is True, the
        value is 0 or 1. The diagonal is 0.
        """
        return rank_steps(self(scores, mask), exact=self.exact_cutoff)


Form = Callable[[Tensor, Tensor | None], Tensor]
"""Maps checked scores (..., n), which are 0 where masked, and the mask to a result."""


def hard_or_soft(
    operator: Any,
    hard: Form,
    soft: Form,
    scores: Tensor,
    mask: Tensor | None,
    weights: Tensor | None = None,
) -> Tensor:
    """Check the arguments, refuse weights, and return the result of `hard` or `soft`.

    This is the door of the methods that only one operator has. `is_hard` of the operator decides
    which function is called, with scores as in `soft_ranks`.

    >>> from ltr.operators import SoftSort
    >>> hard_or_soft(SoftSort(0), expected_ranks, SoftSort(1), torch.tensor([0.3, 0.7]), None)
    tensor([2., 1.])
    """
    refuse_weights(operator, weights)
    scores = real_scores(scores, mask)
    return (hard if operator.is_hard else soft)(scores, mask)


def hard_sort(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the scores (..., n) in descending order, 0 past the real items, with their gradient.

    The scores are as in `soft_ranks`. A list with a NaN score is NaN.

    >>> hard_sort(torch.tensor([0.3, 0.7, 0.5]), None)
    tensor([0.7000, 0.5000, 0.3000])
    """
    return HardPermutation(descending_order(scores, mask), scores, mask).sort()


def rank_steps(ranks: Tensor, *, exact: bool) -> Tensor:
    """Return the steps (..., n, n) between ranks (..., n), as in `RankOperator.before`.

    >>> rank_steps(torch.tensor([1.0, 2.0, 2.0]), exact=False)
    tensor([[0.0000, 0.0317, 0.0317],
            [0.9683, 0.0000, 0.5000],
            [0.9683, 0.5000, 0.0000]])
    """
    gaps = ranks.unsqueeze(-1) - ranks.unsqueeze(-2)
    before = (gaps > 0).to(gaps.dtype) if exact else 0.5 + torch.atan(gaps / CUT_WIDTH) / torch.pi
    itself = torch.eye(gaps.shape[-1], dtype=torch.bool, device=gaps.device)
    return torch.where(itself, 0.0, before)


def check_operator(operator: RankOperator) -> RankOperator:
    """Return `operator`, or raise a ValueError if it is not an operator.

    A wrapper such as a compiled operator is accepted.

    >>> check_operator("SoftSort")
    Traceback (most recent call last):
    ValueError: operator must be a RankOperator, got 'SoftSort'
    """
    if isinstance(operator, type) or not hasattr(operator, "discounts"):
        raise ValueError(f"operator must be a RankOperator, got {operator!r}")
    return operator


class SortOperator(RankOperator):
    """Base class of rank operators with a soft permutation matrix.

    The transpose of the matrix, applied to 1..n, gives the ranks.

    >>> from ltr.operators import DensePermutation
    >>> class SquaredSort(SortOperator):
    ...     def permutation(self, scores, mask=None, weights=None):
    ...         tops = scores.sort(descending=True).values.unsqueeze(-1)
    ...         logits = -(tops - scores.unsqueeze(-2)).square()
    ...         return DensePermutation(logits.log_softmax(-1), scores, mask)
    >>> SquaredSort()(torch.tensor([0.0, 9.0, 4.0])).round()
    tensor([3., 1., 2.])
    """

    def permutation(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> SoftPermutation:
        """Return the `SoftPermutation` that sorts scores (..., n) in descending order."""
        if weights is not None and not self.weighted:
            refuse_weights(self, weights)
        scores = real_scores(scores, mask, weights)
        form = self.hard_permutation if self.is_hard else self.soft_permutation
        return form(scores, mask, weights)

    def hard_permutation(
        self, scores: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> SoftPermutation:
        """Return the hard permutation, for `permutation`; the arguments are as in `soft_ranks`."""
        return HardPermutation(descending_order(scores, mask), scores, mask)

    def soft_permutation(
        self, scores: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> SoftPermutation:
        """Return the soft permutation, for `permutation`; the arguments are as in `soft_ranks`."""
        raise NotImplementedError(f"{type(self).__name__} must define permutation")

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return soft ranks (..., n): the transposed permutation applied to 1..n."""
        return self.permutation(scores, mask, weights).ranks()


class TemperatureRank(RankOperator):
    """Base class of rank operators with a temperature; 0 gives hard ranks.

    A sort operator with a temperature lists this class, or a subclass, before `SortOperator` among
    its bases.

    Args:
        temperature: the temperature, >= 0, in units of the scores. Default: 0.1, for scores of unit
            scale.
    """

    def __init__(self, temperature: float = 0.1):
        super().__init__()
        self.temperature = check_temperature(temperature)

    @property
    def is_hard(self) -> bool:
        """Return whether the temperature is 0."""
        return self.temperature == 0

    def extra_repr(self) -> str:
        """Return the hyper-parameter, for `print`."""
        return f"temperature={self.temperature:g}"
