"""Apply any operator to standardized scores, so that their scale does not change the result."""

from __future__ import annotations

import torch
from torch import Tensor

from ltr.operators.base import RankOperator, check_operator
from ltr.operators.softsort import SoftSort
from ltr.operators.stochastic import Stochastic, TransformedScores
from ltr.shapes import count, largest, masked_fill, real_scores


class Standardized(TransformedScores):
    r"""An operator on standardized scores, so that one temperature fits any scale.

    The unit of the temperature is the spread of each list.

    The operator gets z = (s - mean) / sd, with the mean and the standard deviation sd of the real
    items of each list (with the divisor m, the number of real items, not m - 1). So the result f
    satisfies

        f(a s + b) = f(s) for all a > 0,   and the gradient at a s + b is 1/a times that at s

    for lists of three or more items. The gradient also goes through sd, and is therefore orthogonal
    to the scores: the sum of s_i df/ds_i is 0. So training cannot lower a loss by spreading all
    scores of a list until the ranks are hard. The scale of a network's scores does not matter:
    scores of about 0.01 train like scores of about 100. The drawback: a small spread of the scores
    can no longer express that the order is uncertain.

    Special cases: in a list without items, with one item, or with only tied scores, sd counts as 1,
    and the ranks are those of z = 0. In a list of two items, sd counts as 1 too; otherwise z would
    always be 1 and -1, without a gradient. So the result for a list of two items depends on the
    scale. Scores that differ only by rounding errors are scaled to a standard deviation of 1 too.
    Masked items are ignored.

    Args:
        operator: any `RankOperator`, with its temperature in units of sd; `permutation` needs a
            `SortOperator`. Default: `SoftSort(0.3)`. To add noise, write
            `Stochastic(Standardized(...))`; the scale of the noise is then in units of the scores.

    `P = permutation(scores)` sorts the standardized scores: `P.sort()` returns standardized scores.

    Cost: the cost of the operator, plus O(n).

    Raises:
        ValueError: the operator is not a `RankOperator`, or is a `Stochastic`; `permutation` is
            called, and the operator has no permutation.

    >>> from ltr.operators import SigmoidRank
    >>> scores = torch.tensor([0.3, 0.7, 0.5])
    >>> operator = Standardized(SigmoidRank(0.3))
    >>> torch.allclose(operator(scores), operator(100 * scores + 7), rtol=1e-4)
    True
    """

    def __init__(self, operator: RankOperator | None = None):
        super().__init__()
        if isinstance(operator, Stochastic):
            raise ValueError(
                "operator must not be a Stochastic, since its noise would be standardized too: "
                "write Stochastic(Standardized(...))"
            )
        self.operator = SoftSort(0.3) if operator is None else check_operator(operator)

    def standardize(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return (s - mean) / sd of each list's real items, (..., n), 0 where masked."""
        values = real_scores(scores, mask)
        fixed, number = values.detach(), count(values, mask)
        top = largest(masked_fill(fixed, mask, -torch.inf)).unsqueeze(-1)
        bottom = -largest(masked_fill(-fixed, mask, -torch.inf)).unsqueeze(-1)
        units = masked_fill(_units(values, top, bottom, number), mask)
        centered = masked_fill(units - units.sum(-1, keepdim=True) / number.clamp(min=1), mask)
        return centered / _spread(centered.square().sum(-1, keepdim=True), number)

    def transform(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the standardized scores, and the unchanged mask and weights."""
        return self.standardize(scores, mask), mask, weights


def _units(values: Tensor, top: Tensor, bottom: Tensor, number: Tensor) -> Tensor:
    # Return the scores minus the highest score, scaled to [-1, 0] in lists of three or more items.
    # The standardized scores do not depend on this shift and scale. Without them, sums of tied
    # scores would not be exact, and squares could overflow.
    width = top - bottom
    return (values - top) / torch.where((width > 0) & (number > 2), width, 1.0)


def _spread(squares: Tensor, number: Tensor) -> Tensor:
    # Return the standard deviation. It is 1, without a gradient, if all scores are tied or the list
    # has at most two items.
    own = (squares > 0) & (number > 2)
    return (torch.where(own, squares, 1.0) / torch.where(own, number, 1.0)).sqrt()
