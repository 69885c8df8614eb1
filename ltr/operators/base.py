"""The base classes of rank and sort operators.

A new operator is one subclass. A `RankOperator` defines `forward`, and a `SortOperator` defines
`permutation`. Every loss accepts the new operator without registration.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ltr.gains import CUT_WIDTH, truncated
from ltr.operators.permutation import SoftPermutation
from ltr.shapes import check_temperature, masked_fill


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

    >>> class HingeRank(RankOperator):
    ...     def forward(self, scores, mask=None, weights=None):
    ...         above = torch.relu(1 + scores.unsqueeze(-2) - scores.unsqueeze(-1))
    ...         return above.sum(-1)
    >>> HingeRank()(torch.tensor([0.0, 50.0]))
    tensor([52.,  1.])
    """

    @property
    def exact_cutoff(self) -> bool:
        """Return whether `discounts` uses only whole ranks, so that a cutoff is exact.

        True for hard ranks (temperature 0), and for an operator whose `discounts` are averages over
        a distribution of whole ranks. The soft ranks of such an operator are not whole.
        """
        return False

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return soft ranks of scores, with an optional bool mask and weights; all are (..., n)."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def discounts(
        self, discount: Callable[[Tensor], Tensor], scores: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Return `discount` of the soft ranks, (..., n), 0 where masked.

        An operator that knows the distribution of each rank returns the mean discount instead. To
        set a discount to 0 after rank k, wrap it in `truncated`.
        """
        return masked_fill(discount(self(scores, mask)), mask)

    def top_k(self, k: int, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return soft membership in the first k, (..., n) in [0, 1], 0 where masked.

        The membership is a smooth form of `ranks <= k`, by the cutoff of `truncated`, so items
        outside the first k have a gradient. The cutoff is exact if `exact_cutoff` is True.

        Raises:
            ValueError: k is not a whole number >= 1.
        """
        return self.discounts(truncated(torch.ones_like, k, exact=self.exact_cutoff), scores, mask)

    def before(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return how surely item j comes before item i, (..., n, n) in [0, 1]: row i, column j.

        The value is a smooth step function of the difference between the two ranks, as wide as the
        smooth cutoff of `truncated`. It is 1/2 for equal ranks. If `exact_cutoff` is True, the
        value is 0 or 1. The diagonal is 0.
        """
        return rank_steps(self(scores, mask), exact=self.exact_cutoff)


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
    def exact_cutoff(self) -> bool:
        """Return whether the temperature is 0."""
        return self.temperature == 0

    def extra_repr(self) -> str:
        """Return the hyper-parameter, for `print`."""
        return f"temperature={self.temperature:g}"
