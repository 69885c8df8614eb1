"""The loss of the element at a quantile, by a relaxed sort."""

import math
from functools import partial

import torch
from torch import Tensor

from ltr.losses.base import Lengths, RankingLoss, Reduction, loss_of_lists
from ltr.losses.soft import check_rows, list_weight, sort_operator
from ltr.operators import SoftSort, SortOperator
from ltr.operators.permutation import take_along
from ltr.shapes import check_levels, count, masked_fill, positions


def check_level(q: float) -> float:
    """Return the quantile level, or raise `ValueError` if it is not in [0, 1].

    >>> check_level(0.5)
    0.5
    """
    check_levels("q", [q])
    return float(q)


class QuantileLoss(RankingLoss):
    """Squared error of the softly chosen element at a quantile: (P values)_row - quantile(labels).

    The scores decide which item is at the quantile. The labels are the items' numbers. The loss
    asks for the right element, by default the median, and not for the order of the others. Between
    two positions the rows are interpolated, as in `torch.quantile`. With a hard permutation, and
    labels as values, it is (label of the item at the quantile - quantile of the labels)^2.

    In the papers' task the numbers are unknown at prediction time. A second model predicts `values`
    from the items, and both models learn from the median alone, by this loss.

    With `expected=True` the loss is the mean squared error under the row, the papers' stochastic
    variant: sum over j of P_row,j (values_j - quantile)^2.

    Special cases: the loss is 0, with a zero gradient, for a fully masked list. It is 0 if all
    labels are equal, and for one item. The operator decides how tied scores share the positions.

    Args:
        operator: any `SortOperator` with a row for each item. Default: `SoftSort()`.
        q: the level, counted from the lowest. Default: 0.5, the median.
        expected: see above. Default: False.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    `forward` has a further argument, `values` (..., n). By default it is the labels. The loss of a
    list is multiplied by the mean weight of its items.

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
        self.q = check_level(q)
        self.expected = expected

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
        values: Tensor | None = None,
    ) -> Tensor:
        """Return the squared error of each list; values (..., n) default to the labels."""
        return _error_at_quantile(
            scores,
            labels,
            mask,
            weights,
            values,
            operator=self.operator,
            q=self.q,
            expected=self.expected,
        )


def _error_at_quantile(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    values: Tensor | None = None,
    *,
    operator: SortOperator,
    q: float,
    expected: bool,
) -> Tensor:
    target = _exact_quantile(labels, mask, q).unsqueeze(-1)
    values = masked_fill(labels if values is None else values, mask)
    P = operator.permutation(scores, mask)
    n = scores.shape[-1]
    check_rows(P.rows, n)
    if n:  # the rows behind the quantile of a full list are not needed
        P = P.top(math.ceil((1 - q) * (n - 1)) + 1)
    if expected:
        errors = (values - target).square().expand(P.scores.shape)
        error = _entry_at_quantile(P.mv(errors), scores, mask, q)
    else:
        chosen = _entry_at_quantile(P.mv(values.expand(P.scores.shape)), scores, mask, q)
        error = (chosen - target.squeeze(-1)).square()
    return error * list_weight(scores, mask, weights)


def _entry_at_quantile(ordered: Tensor, scores: Tensor, mask: Tensor | None, q: float) -> Tensor:
    """Return the entry (...) at quantile q of the m real items, of falling rows (..., rows)."""
    if not scores.shape[-1]:
        return scores.sum(-1)
    last = (count(scores, mask) - 1).clamp(min=0)
    place = last - q * last  # counted from the highest; exact for q = 1
    above = place.floor()
    below = torch.minimum(above + 1, last).clamp(max=ordered.shape[-1] - 1)
    high, low = (take_along(ordered, i.long(), -1).squeeze(-1) for i in (above, below))
    share = (place - above).squeeze(-1)
    return torch.lerp(high, low, share.expand_as(high))


def _exact_quantile(values: Tensor, mask: Tensor | None, q: float) -> Tensor:
    """Return `torch.quantile` of each list's real values, (..., n) -> (...), or 0 without any."""
    ordered = masked_fill(values, mask, -torch.inf).sort(dim=-1, descending=True).values
    ordered = torch.where(positions(values) <= count(values, mask), ordered, 0.0)
    return _entry_at_quantile(ordered, values, mask, q)


def quantile_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    values: Tensor | None = None,
    operator: SortOperator | None = None,
    q: float = 0.5,
    expected: bool = False,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the squared error at a quantile: the function form of `QuantileLoss`.

    >>> quantile_loss(torch.tensor([9.0, 5.0, 1.0]), torch.tensor([0.0, 2.0, 4.0]))
    tensor(0.)
    """
    return loss_of_lists(
        partial(
            _error_at_quantile,
            operator=sort_operator(operator, SoftSort, "quantile_loss"),
            q=check_level(q),
            expected=expected,
        ),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
        grades=False,
        values=values,
    )
