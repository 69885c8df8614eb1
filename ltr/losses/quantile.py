"""Losses for the item at a quantile of a list, and robust regression by quantiles of the errors."""

import math
from numbers import Real

import torch
from torch import Tensor

from ltr.losses.base import RankingLoss, Reduction
from ltr.losses.soft import check_rows, list_weight, sort_operator
from ltr.operators import SoftSort, SortOperator, soft_quantile, soft_sort
from ltr.operators.permutation import take_along
from ltr.shapes import check_flag, check_levels, check_number, count, masked_fill, positions

FAR = 1024.0
"""The limit on an error, as a multiple of (1 + the largest error that counts)."""

SLIGHTLY_LESS = 1 - 1e-6
"""A factor applied before `ceil`, against rounding errors: in float32, 0.3 * 50 is above 15."""


def check_level(q: float) -> float:
    """Return the quantile level, or raise `ValueError` if it is not a number in [0, 1].

    >>> check_level(0.5)
    0.5
    """
    if not isinstance(q, Real):
        raise ValueError(f"q must lie in [0, 1], got {q!r}")
    check_levels("q", [q])
    return float(q)


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
        self.q = check_level(q)
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


class LeastQuantileRegression(RankingLoss):
    """Robust regression by a soft quantile of the squared errors, such as the median.

    The loss is the soft q-quantile of the squared errors (score - label)^2 of a list. With the
    median, the default, up to half of the labels may be wrong: the loss is a differentiable form of
    least median of squares. Errors are limited to 1,024 times (1 + the error at the quantile), so a
    wrong label does no harm, however wrong it is. The list is a sample to fit, not a ranking: each
    score is a prediction of its label.

    Special cases: the loss is 0, with a zero gradient, for a fully masked list. For one item it is
    the squared error. The operator decides how tied errors share the positions.

    Args:
        operator: any `SortOperator` whose matrix has a row for each item; it sorts the squared
            errors. Default: `SoftSort()`.
        q: the level of the quantile, from 0 (the lowest error) to 1. Default: 0.5, the median.

    Weights multiply the squared errors.

    Raises:
        ValueError: q is not in [0, 1]; the operator has no permutation; in `forward`, the operator
            does not give a row for each item.

    Reference: Cuturi, Teboul and Vert, NeurIPS 2019; Rousseeuw, "Least median of squares
    regression", 1984.

    >>> loss = LeastQuantileRegression(SoftSort(0.01))
    >>> loss(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 4.0, 100.0]))
    tensor(4.)
    """

    grades = False
    every_item = True

    def __init__(
        self,
        operator: SortOperator | None = None,
        q: float = 0.5,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = sort_operator(operator, SoftSort, type(self).__name__)
        self.q = check_level(q)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the soft quantile of each list's squared errors."""
        above = (self.q * (count(scores, mask) - 1) * SLIGHTLY_LESS).ceil()
        errors = _squared_errors(scores, labels, mask, weights, above + 1)
        if not scores.shape[-1]:
            return errors.sum(-1)
        return _inf_or(soft_quantile(errors, self.q, self.operator, mask, descending=False), errors)


class LeastTrimmedSquares(RankingLoss):
    """Robust regression by the mean of the smallest squared errors.

    The squared errors of a list are (score - label)^2. A soft sort selects the smallest ones.

    The largest errors, a fraction of 1 - `keep`, are left out, so wrong labels do no harm, however
    wrong they are. Errors are limited to 1,024 times (1 + the largest error that is kept). The list
    is a sample to fit, not a ranking.

    Special cases: the loss is 0, with a zero gradient, for a fully masked list. For one item it is
    the squared error. The operator decides how tied errors share the positions.

    Args:
        operator: any `SortOperator` whose matrix has a row for each item; it sorts the squared
            errors. Default: `SoftSort()`.
        keep: the fraction of errors that count, in (0, 1]: of m errors, ceil(keep m) count.
            Default: 0.75.

    Weights multiply the squared errors.

    Raises:
        ValueError: keep is not in (0, 1]; the operator has no permutation; in `forward`, the
            operator does not give a row for each item.

    Reference: Cuturi, Teboul and Vert, NeurIPS 2019; Rousseeuw, 1984.

    >>> loss = LeastTrimmedSquares(SoftSort(0.01), keep=0.6)
    >>> loss(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 4.0, 100.0]))
    tensor(2.)
    """

    grades = False
    every_item = True

    def __init__(
        self,
        operator: SortOperator | None = None,
        keep: float = 0.75,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = sort_operator(operator, SoftSort, type(self).__name__)
        self.keep = check_number("keep", keep, minimum=0.0, strict=True)
        if keep > 1:
            raise ValueError(f"keep must lie in (0, 1], got {keep!r}")

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the mean of each list's smallest squared errors."""
        kept = (self.keep * count(scores, mask) * SLIGHTLY_LESS).ceil()
        errors = _squared_errors(scores, labels, mask, weights, kept)
        ordered = soft_sort(errors, self.operator, mask, descending=False)
        check_rows(ordered.shape[-1], scores.shape[-1])
        inside = positions(scores) <= kept
        mean = torch.where(inside, ordered, 0.0).sum(-1) / kept.squeeze(-1).clamp(min=1)
        return _inf_or(mean, errors)


def _inf_or(loss: Tensor, errors: Tensor) -> Tensor:
    """Return the loss (...), or inf if a squared error (..., n) that counts overflows."""
    return torch.where((errors == torch.inf).any(-1), torch.inf, loss)


def _squared_errors(
    scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None, counted: Tensor
) -> Tensor:
    """Return the squared errors times the weights, (..., n), with a limit on large errors.

    Only the smallest errors count; `counted` (..., 1) is their number. The size of an error is
    |score - label| sqrt(weight). The limit is 1,024 times (1 + the largest size that counts), but
    at most an eighth of the fourth root of the largest float, and at least the largest size that
    counts. A size above the limit is replaced by the limit, without a gradient. Such errors are not
    among the smallest with or without the limit, so with a hard sort the limit does not change the
    loss.
    """
    w = torch.ones_like(scores) if weights is None else masked_fill(weights, mask)
    differences = masked_fill(scores, mask) - masked_fill(labels, mask)
    if not scores.shape[-1]:
        return differences
    sizes = (differences.abs() * w.sqrt()).detach()
    ordered = masked_fill(sizes, mask, torch.inf).sort(dim=-1).values
    last = ordered.gather(-1, (counted.long() - 1).clamp(min=0, max=scores.shape[-1] - 1))
    far = (FAR * (1 + last)).clamp(max=torch.finfo(scores.dtype).max ** 0.25 / 8)
    far = torch.maximum(far, masked_fill(last, count(scores, mask) > 0))
    beyond = sizes > far  # it is False for NaN, so NaN errors stay NaN
    near = torch.where(beyond, 0.0, differences).square() * w
    return torch.where(beyond, far.square(), near)
