"""Robust regression by soft quantiles: least quantile and least trimmed squares."""

from functools import partial

import torch
from torch import Tensor

from ltr.losses.base import Lengths, RankingLoss, Reduction, loss_of_lists
from ltr.losses.quantile import check_level
from ltr.losses.soft import check_rows, sort_operator
from ltr.operators import SoftSort, SortOperator, soft_quantile, soft_sort
from ltr.shapes import check_number, count, masked_fill, positions

FAR = 1024.0
"""Errors are limited to this many times (1 + the largest error that counts)."""


class LeastQuantileRegression(RankingLoss):
    """The soft q-quantile of the squared errors (score - label)^2 of a list.

    With the median, the default, half of the labels may be wrong: this is least median of squares,
    made differentiable. Errors are limited to 1,024 times (1 + the error at the quantile), so
    infinite labels do no harm. The list is a sample to fit, not a ranking: each score is a
    prediction of its label.

    Special cases: the loss is 0, with a zero gradient, for a fully masked list. For one item it is
    the squared error. The operator decides how tied errors share the positions.

    Args:
        operator: any `SortOperator` with a row for each item, which sorts the squared errors.
            Default: `SoftSort()`.
        q: the level, counted from the lowest. Default: 0.5.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

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
        return _error_quantile(scores, labels, mask, weights, operator=self.operator, q=self.q)


class LeastTrimmedSquares(RankingLoss):
    """The mean of the smallest squared errors (score - label)^2 of a list, softly chosen.

    The largest errors, a share of 1 - `keep`, are left out, so labels that are wrong by any amount
    do no harm. Errors are limited to 1,024 times (1 + the largest error that is kept), so
    infinite labels do no harm either. The list is a sample to fit, not a ranking.

    Special cases: the loss is 0, with a zero gradient, for a fully masked list. For one item it is
    the squared error. The operator decides how tied errors share the positions.

    Args:
        operator: any `SortOperator` with a row for each item, which sorts the squared errors.
            Default: `SoftSort()`.
        keep: the share in (0, 1] of the m errors that count: ceil(keep m) of them. Default: 0.75.
        reduction: "mean" over the lists with a real item (default), "sum", "none".

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

    def __init__(
        self,
        operator: SortOperator | None = None,
        keep: float = 0.75,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction)
        self.operator = sort_operator(operator, SoftSort, type(self).__name__)
        self.keep = _check_keep(keep)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the mean of each list's smallest squared errors."""
        return _trimmed_mean(scores, labels, mask, weights, operator=self.operator, keep=self.keep)


def _error_quantile(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    operator: SortOperator,
    q: float,
) -> Tensor:
    above = (q * (count(scores, mask) - 1) * (1 - 1e-6)).ceil()  # in floats 0.7 * 10 is above 7
    errors = _squared_errors(scores, labels, mask, weights, above + 1)
    if not scores.shape[-1]:
        return errors.sum(-1)
    return soft_quantile(errors, q, operator, mask, descending=False)


def _trimmed_mean(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None,
    *,
    operator: SortOperator,
    keep: float,
) -> Tensor:
    kept = (keep * count(scores, mask) * (1 - 1e-6)).ceil()  # in floats 0.7 * 10 is above 7
    errors = _squared_errors(scores, labels, mask, weights, kept)
    ordered = soft_sort(errors, operator, mask, descending=False)
    check_rows(ordered.shape[-1], scores.shape[-1])
    inside = positions(scores) <= kept
    return torch.where(inside, ordered, 0.0).sum(-1) / kept.squeeze(-1).clamp(min=1)


def _squared_errors(
    scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None, counted: Tensor
) -> Tensor:
    """Return the squared errors times weights, (..., n), with far errors limited.

    The `counted` (..., 1) smallest errors matter. An error is far if its size is above 1,024 times
    (1 + the largest of those). It is replaced by that limit, which has no gradient and does not
    overflow. Such an error is not among the smallest with either size, so the loss is the same.
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
    beyond = sizes > far  # False for NaN, which stays NaN
    near = torch.where(beyond, 0.0, differences).square() * w
    return torch.where(beyond, far.square(), near)


def _check_keep(keep: float) -> float:
    share = check_number("keep", keep, minimum=0.0, strict=True)
    if share > 1:
        raise ValueError(f"keep must lie in (0, 1], got {keep!r}")
    return share


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
    """Return the soft quantile of squared errors: the function form of `LeastQuantileRegression`.

    >>> least_quantile_loss(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 4.0, 100.0]))
    tensor(4.)
    """
    return loss_of_lists(
        partial(
            _error_quantile,
            operator=sort_operator(operator, SoftSort, "least_quantile_loss"),
            q=check_level(q),
        ),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
        grades=False,
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
    """Return the mean of the smallest squared errors: the function form of `LeastTrimmedSquares`.

    >>> least_trimmed_loss(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 100.0]), keep=0.5)
    tensor(0.)
    """
    return loss_of_lists(
        partial(
            _trimmed_mean,
            operator=sort_operator(operator, SoftSort, "least_trimmed_loss"),
            keep=_check_keep(keep),
        ),
        scores,
        labels,
        mask,
        weights,
        lengths=lengths,
        padding=padding,
        reduction=reduction,
        grades=False,
    )
