"""The squared error of the value at a quantile of a list, such as the median."""

import math

import torch
from torch import Tensor

from ltr.losses.base import RankingLoss, Reduction
from ltr.losses.soft import list_weight, sort_operator
from ltr.operators import SoftSort, SortOperator
from ltr.operators.permutation import check_rows, take_along
from ltr.shapes import check_flag, check_fraction, count, masked_fill, positions


class QuantileLoss(RankingLoss):
    """Squared error of the value at a soft quantile of the list, such as the median.

    The error is (P values)_row - quantile(labels). P is the operator's soft permutation matrix, and
    `row` is its row at the quantile.

    The scores decide which item is at the quantile, and the labels are the items' true values. The
    loss needs only the correct item at the quantile (by default the median) and not the order of
    the other items. If the quantile is between two positions, the result is interpolated between
    their two rows, as in `torch.quantile`. With a hard permutation, and the labels as `values`, the
    loss is (label of the item at the quantile - quantile of the labels)^2.

    In the papers' task the true values are unknown at prediction time. A second model predicts
    `values` from the items, and both models learn only from the median of the labels, by this loss.

    With `expected=True` the loss is the expected squared error, with the row as probabilities of
    the items: sum over j of P_row,j (values_j - quantile)^2. This is the papers' stochastic
    variant.

    Special cases: the loss is 0, with a zero gradient, for a fully masked list. With the labels as
    `values`, the loss is also 0 if all labels are equal, and for one item. The operator decides how
    tied scores share the positions.

    Args:
        operator: any `SortOperator` whose matrix has a row for each item. Default: `SoftSort()`.
        q: the level of the quantile, from 0 (the lowest) to 1. Default: 0.5, the median.
        expected: see above. Default: False.

    `forward` has one more argument, `values` (..., n). Default: the labels. The loss of a list is
    multiplied by the mean weight of its items.

    Raises:
        ValueError: q is not in [0, 1]; the operator has no permutation; in `forward`, the operator
            does not give a row for each item.

    Reference: Grover, Wang, Zweig and Ermon, ICLR 2019, section 6.2; Prillo and Eisenschlos, ICML
    2020.

    >>> loss = QuantileLoss(SoftSort(0.01))
    >>> labels = torch.tensor([7.0, 1.0, 3.0])
    >>> loss(torch.tensor([0.9, 0.1, 0.5]), labels), loss(torch.tensor([0.5, 0.1, 0.9]), labels)
    (tensor(0.), tensor(16.))
    """

    grades = False

    def __init__(
        self,
        operator: SortOperator | None = None,
        q: float = 0.5,
        expected: bool = False,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = sort_operator(operator, SoftSort, type(self).__name__)
        self.q = check_fraction("q", q, zero=True, one=True)
        self.expected = check_flag("expected", expected)

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
        values: Tensor | None = None,
    ) -> Tensor:
        """Return the squared error of each list; `values` (..., n) are by default the labels."""
        target = _exact_quantile(labels, mask, self.q).unsqueeze(-1)
        values = masked_fill(labels if values is None else values, mask)
        P = self.operator.permutation(scores, mask)
        n = scores.shape[-1]
        check_rows(P.rows, n)
        # With m real items, the quantile is at row (1 - q) (m - 1); later rows are not needed.
        if n:
            P = P.top(math.ceil((1 - self.q) * (n - 1)) + 1)
        if self.expected:
            errors = (values - target).square().expand(P.scores.shape)
            ordered = P.mv(errors)
            error = _entry_at_quantile(ordered, scores, mask, self.q)
        else:
            ordered = P.mv(values.expand(P.scores.shape))
            chosen = _entry_at_quantile(ordered, scores, mask, self.q)
            error = (chosen - target.squeeze(-1)).square()
        # All computed rows are added, times 0: a NaN in any of them makes the loss NaN too.
        return (error + (0 * ordered).sum(-1)) * list_weight(scores, mask, weights)


def _entry_at_quantile(ordered: Tensor, scores: Tensor, mask: Tensor | None, q: float) -> Tensor:
    """Return the value (...) at quantile q of each list's real items.

    `ordered` (..., rows) are the values of each list in descending order.
    """
    if not scores.shape[-1]:
        return scores.sum(-1)
    last = (count(scores, mask) - 1).clamp(min=0)
    # The position is counted from the highest value. It is exact for q = 1.
    position = last - q * last
    above = position.floor()
    below = torch.minimum(above + 1, last).clamp(max=ordered.shape[-1] - 1)
    high, low = (take_along(ordered, i.long(), -1).squeeze(-1) for i in (above, below))
    share = (position - above).squeeze(-1)
    return torch.lerp(high, low, share.expand_as(high))


def _exact_quantile(values: Tensor, mask: Tensor | None, q: float) -> Tensor:
    """Return `torch.quantile` of each list's real values, (..., n) -> (...); 0 if it has none."""
    ordered = masked_fill(values, mask, -torch.inf).sort(dim=-1, descending=True).values
    ordered = torch.where(positions(values) <= count(values, mask), ordered, 0.0)
    return _entry_at_quantile(ordered, values, mask, q)
