"""Robust regression by sorted errors: a soft quantile, or the mean of the smallest."""

from typing import Literal

import torch
from torch import Tensor

from ltr.losses import RankingLoss
from ltr.operators import SoftSort, SortOperator, soft_quantile, soft_sort

FAR = 1024.0
"""The limit on an error, as a multiple of (1 + the largest error that counts)."""

SLIGHTLY_LESS = 1 - 1e-6
"""A factor applied before `ceil`, against rounding errors: in float32, 0.3 * 50 is above 15."""


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
        reduction: Literal["mean", "sum", "none"] = "mean",
    ):
        super().__init__(reduction)
        self.operator = _sort_operator(operator)
        if not 0 <= q <= 1:
            raise ValueError(f"q must lie in [0, 1], got {q!r}")
        self.q = q

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the soft quantile of each list's squared errors."""
        above = (self.q * (_count(scores, mask) - 1) * SLIGHTLY_LESS).ceil()
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
        reduction: Literal["mean", "sum", "none"] = "mean",
    ):
        super().__init__(reduction)
        self.operator = _sort_operator(operator)
        if not 0 < keep <= 1:
            raise ValueError(f"keep must lie in (0, 1], got {keep!r}")
        self.keep = keep

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return the mean of each list's smallest squared errors."""
        kept = (self.keep * _count(scores, mask) * SLIGHTLY_LESS).ceil()
        errors = _squared_errors(scores, labels, mask, weights, kept)
        ordered = soft_sort(errors, self.operator, mask, descending=False)
        n = scores.shape[-1]
        if ordered.shape[-1] != n:
            raise ValueError(
                f"operator must give {n} rows, one for each item, got {ordered.shape[-1]}"
            )
        inside = torch.arange(n, device=scores.device) < kept
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
    w = torch.ones_like(scores) if weights is None else _filled(weights, mask)
    differences = _filled(scores, mask) - _filled(labels, mask)
    if not scores.shape[-1]:
        return differences
    sizes = (differences.abs() * w.sqrt()).detach()
    ordered = _filled(sizes, mask, torch.inf).sort(dim=-1).values
    last = ordered.gather(-1, (counted.long() - 1).clamp(min=0, max=scores.shape[-1] - 1))
    far = (FAR * (1 + last)).clamp(max=torch.finfo(scores.dtype).max ** 0.25 / 8)
    far = torch.maximum(far, _filled(last, _count(scores, mask) > 0))
    beyond = sizes > far  # it is False for NaN, so NaN errors stay NaN
    near = torch.where(beyond, 0.0, differences).square() * w
    return torch.where(beyond, far.square(), near)


def _sort_operator(operator: SortOperator | None) -> SortOperator:
    if not (operator is None or isinstance(operator, SortOperator)):
        raise ValueError(f"operator must be a SortOperator, got {operator!r}")
    return SoftSort() if operator is None else operator


def _count(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the number of real items of each list, (..., 1)."""
    real = torch.ones_like(scores) if mask is None else mask.to(scores.dtype)
    return real.sum(-1, keepdim=True)


def _filled(x: Tensor, mask: Tensor | None, value: float = 0.0) -> Tensor:
    """Return x (..., n) with `value` at the masked items."""
    return x if mask is None else torch.where(mask, x, value)
