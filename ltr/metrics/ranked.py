"""Lists in ranked order, which only `rank` checks and sorts, and the values of such lists."""

from collections.abc import Callable
from math import isfinite
from numbers import Real
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ltr.kernels.sorting import descending_order, in_list_order
from ltr.names import plural
from ltr.shapes import (
    check_choice,
    check_lists,
    count,
    first_wrong_value,
    masked_fill,
    upcast,
    wrong_values,
)

Empty = Literal["skip", "error"] | float
Reduction = Literal["mean", "sum", "none"]


class Ranked(NamedTuple):
    """Lists in order of descending score, with the padding last.

    Attributes:
        scores: (..., n), descending; 0 in the padding.
        labels: (..., n), in the order and the dtype of the scores; 0 in the padding.
        mask: (..., n) bool, True for an item; None without padding.
        weights: (..., n), in the same order, 0 in the padding; None without weights.
        order: (..., n) int64, the index of each item in the original list.
        judged: (..., n) bool, in the same order; None if all items are judged.
        topics: (..., n, topics), the labels by topic, 0 in the padding; `labels` are the sums over
            topics. None without topics.
        wrong: (...) bool, True for a list with a wrong value. It is used only in `torch.compile`,
            where no error can be raised; otherwise None.
    """

    scores: Tensor
    labels: Tensor
    mask: Tensor | None
    weights: Tensor | None
    order: Tensor
    judged: Tensor | None = None
    topics: Tensor | None = None
    wrong: Tensor | None = None

    @property
    def lengths(self) -> Tensor:
        """The number of items of each list, (...), in the dtype of the scores."""
        return count(self.scores, self.mask).squeeze(-1)

    def relevant(self, relevant_from: float | None = None) -> Tensor:
        """Return which items are relevant, (..., n) bool: labels >= `relevant_from`, or above 0.

        >>> rank(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 2, 0])).relevant(2)
        tensor([False,  True, False])
        """
        return self.labels > 0 if relevant_from is None else self.labels >= relevant_from

    def check(self, wrong: Tensor, message: Callable[[], str]) -> "Ranked":
        """Return the lists; raise `ValueError` if `wrong`, (...) bool, is True for a list.

        In `torch.compile`, mark the wrong lists instead: they get the value NaN.
        """
        if torch.compiler.is_compiling():
            return self._replace(wrong=wrong if self.wrong is None else self.wrong | wrong)
        if wrong.any():
            raise ValueError(message())
        return self

    def reorder(self, positions: Tensor) -> "Ranked":
        """Return lists of the items at `positions` (..., n); the padding must stay last."""
        columns: dict[str, Any] = {
            name: _gathered(x, positions)
            for name, x in zip(self._fields, self, strict=True)
            if x is not None and name not in ("mask", "wrong")
        }
        return self._replace(**columns)

    def tied_by(self, values: Tensor, descending: bool = False) -> tuple["Ranked", Tensor]:
        """Return the lists with tied items in order of `values`, and the old position of each item.

        Cost: two sorts.

        >>> lists = rank(torch.tensor([1.0, 1.0, 2.0]), torch.tensor([4.0, 3.0, 5.0]))
        >>> lists.tied_by(lists.labels)[0].labels
        tensor([5., 3., 4.])
        """
        first = values.sort(dim=-1, descending=descending, stable=True).indices
        mask = None if self.mask is None else self.mask.gather(-1, first)
        positions = first.gather(-1, descending_order(self.scores.gather(-1, first), mask))
        return self.reorder(positions), positions

    def in_list_order(self, values: Tensor) -> Tensor:
        """Return values (..., n) or (..., n, d) of the ranked items in the original order.

        >>> lists = rank(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([5.0, 6.0, 7.0]))
        >>> lists.in_list_order(lists.labels)
        tensor([5., 6., 7.])
        """
        if values.dim() == self.order.dim():
            return in_list_order(values, self.order)
        order = self.order.unsqueeze(-1).expand(values.shape)
        return torch.empty_like(values).scatter(-2, order, values)


def rank(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    judged: Tensor | None = None,
    *,
    topics: bool = False,
) -> Ranked:
    """Check lists and sort them by descending score, with ties in list order. Cost: one sort.

    The result has no gradient.

    Args:
        scores: (..., n), not NaN.
        labels: (..., n), finite, >= 0.
        mask: (..., n) bool, True for a real item. Default: all are real.
        weights: (..., n), finite, >= 0. Default: none.
        judged: (..., n) bool, True = judged. Default: all are judged.
        topics: whether labels may have a further axis, (..., n, topics).

    Raises:
        ValueError: shapes differ; `mask` or `judged` is not bool; the score of a real item is NaN,
            or its label or weight is NaN, infinite or negative. In `torch.compile`, a wrong value
            raises no error; its list is marked as wrong.

    >>> rank(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([5, 6, 7])).labels
    tensor([6., 7., 5.])
    """
    by_topic = None
    if topics and isinstance(labels, Tensor) and labels.dim() == scores.dim() + 1:
        check_lists(scores, mask=mask)
        by_topic = _check_topics(scores, labels, mask)
        labels = by_topic.sum(-1).where(~wrong_values(by_topic).any(-1), torch.nan)
    check_lists(scores, labels=labels, mask=mask, weights=weights, judged=judged)
    if judged is not None and judged.dtype != torch.bool:
        raise ValueError(f"judged must be bool (True = judged), got {judged.dtype}")
    scores = upcast(masked_fill(scores.detach(), mask))
    labels = masked_fill(labels.detach().to(scores.dtype), mask)
    weights = None if weights is None else masked_fill(weights.detach().to(scores.dtype), mask)
    wrong = None
    if torch.compiler.is_compiling():
        wrong = scores.isnan() | wrong_values(labels)
        wrong = (wrong if weights is None else wrong | wrong_values(weights)).any(-1)
    else:
        if scores.numel() and bool(scores.amax().isnan()):
            raise ValueError(f"scores must not be NaN, got {int(scores.isnan().sum())} NaN")
        for name, x in (("labels", labels if by_topic is None else by_topic), ("weights", weights)):
            if x is not None and (value := first_wrong_value(x)) is not None:
                raise ValueError(f"{name} must be finite and >= 0, got {value:g}")
    order = descending_order(scores, mask)
    scores, labels = scores.gather(-1, order), labels.gather(-1, order)
    mask, weights, judged = [
        None if x is None else x.gather(-1, order) for x in (mask, weights, judged)
    ]
    by_topic = None if by_topic is None else _gathered(by_topic, order)
    return Ranked(scores, labels, mask, weights, order, judged, by_topic, wrong)


class ListValues(NamedTuple):
    """The result of a metric's `per_list`: one value per list.

    Attributes:
        values: (...); NaN for a list that is left out.
        empty: (...) bool, True for a list with real items on which the metric is not defined.
        wrong: as in `Ranked`. If a list is wrong, the mean and the sum are NaN.
    """

    values: Tensor
    empty: Tensor
    wrong: Tensor | None = None

    def reduce(self, reduction: Reduction) -> Tensor:
        """Return the mean or the sum over the lists that are not left out, or each list's value.

        If all lists are left out, the mean is NaN and the sum is 0.

        >>> values, empty = torch.tensor([0.5, torch.nan, 1.0]), torch.tensor([False, True, False])
        >>> ListValues(values, empty).reduce("mean")
        tensor(0.7500)
        """
        check_choice("reduction", reduction, "mean", "sum", "none")
        values, wrong = self.values, self.wrong
        if reduction != "none":
            values = values.nanmean() if reduction == "mean" else values.nansum()
            wrong = None if wrong is None else wrong.any()
        return values if wrong is None else torch.where(wrong, torch.nan, values)


def check_empty(empty: Empty) -> Empty:
    """Return `empty`, or raise `ValueError` unless it is "skip", "error" or a finite number.

    >>> check_empty("skip")
    'skip'
    """
    number = isinstance(empty, Real) and not isinstance(empty, bool) and isfinite(empty)
    if not number and not (isinstance(empty, str) and empty in ("skip", "error")):
        raise ValueError(f"empty must be 'skip', 'error' or a number, got {empty!r}")
    return empty


def list_values(values: Tensor, defined: Tensor, lists: Ranked, empty: Empty) -> ListValues:
    """Return `values` (...), with the value of `empty` for lists that are not `defined`.

    A list without a real item is always left out.

    Raises:
        ValueError: `empty` is "error", and a list with a real item is not `defined`.

    >>> lists = rank(torch.zeros(2, 3), torch.ones(2, 3))
    >>> list_values(torch.tensor([0.5, 0.0]), torch.tensor([True, False]), lists, "skip").values
    tensor([0.5000,    nan])
    """
    real = None if lists.mask is None else lists.mask.any(-1)
    if lists.scores.shape[-1] == 0:
        real = torch.zeros_like(defined)
    undefined = ~defined if real is None else real & ~defined
    if empty == "error":
        lists = lists.check(undefined, lambda: _without_value(int(undefined.sum())))
    fill = torch.nan if isinstance(empty, str) else float(empty)
    values = torch.where(defined, values, fill)
    values = values if real is None else torch.where(real, values, torch.nan)
    return ListValues(values, undefined, lists.wrong)


def _without_value(count: int) -> str:
    return f"empty is 'error' and {count} {plural(count, 'list has', 'lists have')} no value"


def check_labels(lists: Ranked, max_label: float | None) -> Ranked:
    """Return the lists; raise `ValueError` if a label is above `max_label`.

    >>> check_labels(rank(torch.zeros(2), torch.tensor([0.0, 2.0])), 1)
    Traceback (most recent call last):
    ValueError: labels must be <= max_label 1, got 2
    """
    if max_label is None:
        return lists
    labels = lists.labels
    return lists.check(
        (labels > max_label).any(-1),
        lambda: f"labels must be <= max_label {max_label:g}, got {labels.max():g}",
    )


def _check_topics(scores: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
    """Return labels (..., n, topics) in the dtype of the scores, 0 under the mask."""
    if labels.shape[:-1] != scores.shape:
        raise ValueError(
            f"labels must have the shape of scores {tuple(scores.shape)}, followed by an "
            f"axis of topics, got {tuple(labels.shape)}"
        )
    topics = labels.detach().to(upcast(scores).dtype)
    return topics if mask is None else torch.where(mask.unsqueeze(-1), topics, 0)


def _gathered(values: Tensor, positions: Tensor) -> Tensor:
    """Return the values (..., n) or (..., n, d) of the items at `positions` (..., n)."""
    if values.dim() == positions.dim():
        return values.gather(-1, positions)
    return values.gather(-2, positions.unsqueeze(-1).expand(values.shape))
