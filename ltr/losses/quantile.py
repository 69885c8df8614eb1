"""Soft quantiles: the element at a quantile, and least-quantile and least-trimmed regression."""

import math

import torch
from torch import Tensor

from ltr._shapes import check_levels, check_number, count, masked_fill, positions
from ltr.losses._soft import list_weight, sort_operator
from ltr.losses.base import Lengths, RankingLoss, Reduction
from ltr.operators import SoftSort, SortOperator, soft_quantile, soft_sort
from ltr.operators.permutation import take_along

FAR = 1024.0
"""An error so many times as large as the largest that counts is one that does not."""


def _level(q: float, name: str = "q") -> float:
    check_levels(name, [q])
    return float(q)


class QuantileLoss(RankingLoss):
    """Squared error of the softly chosen element at a quantile: (P values)_row - quantile(labels).

    The scores decide which item stands at the quantile, the labels say what number it has: the
    loss asks for the right element, median by default, without the order of the others. In the
    papers' task the numbers are not known when predicting: a second model gives `values` from the
    items, and both learn by this loss from the median alone. Between two positions the rows are
    interpolated, as `torch.quantile` does. With a hard permutation and labels as values it is
    (label of the item at the quantile - quantile of the labels)^2.

    With `expected=True` it is the mean squared error under the row, sum over j of
    P_row,j (values_j - quantile)^2: the papers' stochastic variant.

    What unusual lists give: all masked: 0, with a graph. All labels equal: 0. One item: 0. Tied
    scores: what the operator gives them.

    Args:
        operator: any `SortOperator` with a row for each item. Default: `SoftSort()`.
        q: the level, counted from the lowest. Default: 0.5, the median.
        expected: see above. Default: False.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    `forward` has a further argument, `values` (..., n), by default the labels. The mean weight of
    a list's items multiplies its loss.

    Raises:
        ValueError: q is not in [0, 1]; an operator that has no permutation or, in `forward`,
            not a row for each item.

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
        self.q = _level(q)
        self.expected = expected

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
        values: Tensor | None = None,
    ) -> Tensor:
        """The squared error of each list; values (..., n) default to the labels."""
        target = _exact_quantile(labels, mask, self.q).unsqueeze(-1)
        values = masked_fill(labels if values is None else values, mask)
        P = self.operator.permutation(scores, mask)
        n = scores.shape[-1]
        if P.rows != n:
            raise ValueError(f"operator must give {n} rows, one for each item, got {P.rows}")
        if n:  # no row behind the quantile of a full list is needed
            P = P.top(math.ceil((1 - self.q) * (n - 1)) + 1)
        if self.expected:
            errors = (values - target).square().expand(P.scores.shape)
            error = _at_place(P.mv(errors), scores, mask, self.q)
        else:
            chosen = _at_place(P.mv(values.expand(P.scores.shape)), scores, mask, self.q)
            error = (chosen - target.squeeze(-1)).square()
        return error * list_weight(scores, mask, weights)


def _at_place(ordered: Tensor, scores: Tensor, mask: Tensor | None, q: float) -> Tensor:
    """The entry (...) of falling rows (..., rows) at quantile q of the m real items."""
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
    """`torch.quantile` of each list's real values, (..., n) -> (...); 0 where there are none."""
    ordered = masked_fill(values, mask, -torch.inf).sort(dim=-1, descending=True).values
    ordered = torch.where(positions(values) <= count(values, mask), ordered, 0.0)
    return _at_place(ordered, values, mask, q)


class LeastQuantileRegression(RankingLoss):
    """The soft q-quantile of the squared errors (score - label)^2 of a list.

    With the median, the default, half of the labels may be anything: least median of squares,
    made differentiable. An error far above the quantile's (1,024 times it, plus 1) counts as just
    that far, so that infinite labels do no harm. The list is the sample that is fitted, and no
    ranking: every item's score is a prediction of its label.

    What unusual lists give: all masked: 0, with a graph. One item: its squared error. Tied errors:
    what the operator gives them.

    Args:
        operator: any `SortOperator` with a row for each item, which sorts the squared errors.
            Default: `SoftSort()`.
        q: the level, counted from the lowest. Default: 0.5.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights multiply the squared errors.

    Raises:
        ValueError: q is not in [0, 1]; an operator that has no permutation or, in `forward`,
            not a row for each item.

    Reference: Cuturi, Teboul and Vert, NeurIPS 2019; Rousseeuw, "Least median of squares
    regression", 1984.

    >>> loss = LeastQuantileRegression(SoftSort(0.01))
    >>> loss(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 4.0, 100.0]))
    tensor(4.)
    """

    grades = False

    def __init__(
        self,
        operator: SortOperator | None = None,
        q: float = 0.5,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = sort_operator(operator, SoftSort, type(self).__name__)
        self.q = _level(q)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """The soft quantile of each list's squared errors."""
        above = (self.q * (count(scores, mask) - 1) * (1 - 1e-6)).ceil()  # 0.7 * 10 is above 7
        errors = _errors(scores, labels, mask, weights, above + 1)
        if not scores.shape[-1]:
            return errors.sum(-1)
        return soft_quantile(errors, self.q, self.operator, mask, descending=False)


class LeastTrimmedSquares(RankingLoss):
    """The mean of the smallest squared errors (score - label)^2 of a list, softly chosen.

    The largest errors, a share of 1 - `keep`, are left out: labels that are wrong by any amount do
    no harm, infinite ones included: an error far above those kept (1,024 times the largest, plus
    1) counts as just that far. The list is the sample that is fitted, and no ranking.

    What unusual lists give: all masked: 0, with a graph. One item: its squared error. Tied errors:
    what the operator gives them.

    Args:
        operator: any `SortOperator` with a row for each item, which sorts the squared errors.
            Default: `SoftSort()`.
        keep: the share in (0, 1] of the m errors that count: ceil(keep m) of them. Default: 0.75.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

    Weights multiply the squared errors.

    Raises:
        ValueError: keep is not in (0, 1]; an operator that has no permutation or, in `forward`,
            not a row for each item.

    Reference: Cuturi, Teboul and Vert, NeurIPS 2019; Rousseeuw, 1984.

    >>> loss = LeastTrimmedSquares(SoftSort(0.01), keep=0.6)
    >>> loss(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 4.0, 100.0]))
    tensor(2.)
    """

    grades = False

    def __init__(
        self,
        operator: SortOperator | None = None,
        keep: float = 0.75,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = sort_operator(operator, SoftSort, type(self).__name__)
        self.keep = check_number("keep", keep, minimum=0.0, strict=True)
        if self.keep > 1:
            raise ValueError(f"keep must lie in (0, 1], got {keep!r}")

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """The mean of each list's smallest squared errors."""
        kept = (self.keep * count(scores, mask) * (1 - 1e-6)).ceil()  # 0.7 * 10 is above 7
        errors = _errors(scores, labels, mask, weights, kept)
        ordered = soft_sort(errors, self.operator, mask, descending=False)
        n = scores.shape[-1]
        if ordered.shape[-1] != n:
            raise ValueError(
                f"operator must give {n} rows, one for each item, got {ordered.shape[-1]}"
            )
        inside = positions(scores) <= kept
        return torch.where(inside, ordered, 0.0).sum(-1) / kept.squeeze(-1).clamp(min=1)


def _errors(
    scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None, counted: Tensor
) -> Tensor:
    """Squared errors times weights, (..., n), of which the `counted` (..., 1) smallest matter.

    One far above those, by its size 1,024 times the largest of them plus 1, counts as just that:
    it is not among them, whatever its size. It has no gradient and overflows nothing.
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
    beyond = sizes > far  # not NaN, which stays one
    near = torch.where(beyond, 0.0, differences).square() * w
    return torch.where(beyond, far.square(), near)


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
    """Squared error of the element at a quantile, as a function. See `QuantileLoss`.

    >>> quantile_loss(torch.tensor([9.0, 5.0, 1.0]), torch.tensor([0.0, 2.0, 4.0]))
    tensor(0.)
    """
    return QuantileLoss(operator, q, expected, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding, values=values
    )


def least_quantile_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    operator: SortOperator | None = None,
    q: float = 0.5,
    reduction: Reduction = "mean",
) -> Tensor:
    """The soft quantile of squared errors, as a function. See `LeastQuantileRegression`.

    >>> least_quantile_loss(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 4.0, 100.0]))
    tensor(4.)
    """
    return LeastQuantileRegression(operator, q, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )


def least_trimmed_loss(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    operator: SortOperator | None = None,
    keep: float = 0.75,
    reduction: Reduction = "mean",
) -> Tensor:
    """The mean of the smallest squared errors, as a function. See `LeastTrimmedSquares`.

    >>> least_trimmed_loss(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 100.0]), keep=0.5)
    tensor(0.)
    """
    return LeastTrimmedSquares(operator, keep, reduction)(
        scores, labels, mask, weights, lengths=lengths, padding=padding
    )
