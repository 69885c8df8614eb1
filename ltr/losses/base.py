"""The base class of losses, which also reduces the values of all lists to one number."""

import inspect
import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from numbers import Real
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ltr.names import nearest
from ltr.ragged import (
    Lengths,
    check_exclusive,
    check_lengths,
    chunks,
    flatten_nested,
    from_chunks,
    group_columns,
    sum_lists,
)
from ltr.shapes import (
    HALF,
    check_choice,
    check_lists,
    first_wrong_value,
    full_precision,
    wrong_values,
)

Reduction = Literal["mean", "sum", "none"]


class Loss(nn.Module):
    """Base class of what training minimizes: every `RankingLoss`, and `SeveralLabels`."""

    reduction: Reduction
    side_inputs: tuple[str, ...] = ()


class RankingLoss(Loss):
    """Base class of losses, which map the scores and labels of lists to one number.

    The arguments are scores, labels, mask=None, weights=None; the result is a scalar.

    With reduction="none" the result has one value for each list. To write a new loss, subclass
    `RankingLoss` and define `per_list`. Every loss follows these rules:

    - The four arguments are (..., n). Labels are graded relevance >= 0, or any finite numbers if
      the class sets `grades = False`. The mask is bool, True for a real item. The values of masked
      items, NaN included, change neither the loss nor the gradient.
    - The loss is >= 0, and its minimum is 0. The docstrings of losses name the exceptions: with
      some soft ranks a loss may be below 0, and a few losses have a minimum above 0. A list for
      which the loss is not defined (no relevant item, no pair, all masked) gives 0 with a zero
      gradient. A NaN score makes only the loss of its own list NaN.
    - An irrelevant item may have a score of -inf, as a filter of candidates gives, in the pairwise
      losses (except `PairwiseMSE`), `SoftmaxLoss`, `PolyOneSoftmax`, `CalibratedSoftmax`,
      `UniqueSoftmax`, `SoftmaxLossAtK`, `SoftNDCG(mean="tight")`, `PointwiseSigmoid` and
      `PointwiseOrdinal`. The loss and its gradients are then finite. In other losses, an infinite
      score may make the loss of its list NaN or inf, since a rank is undefined or the loss grows
      without bound: mask the item instead.
    - With half-precision scores, the loss is computed in float32. `torch.autocast` has no effect
      inside a loss.
    - Under DDP each process computes the loss of its own lists only; no values are gathered.

    Args:
        reduction: "mean" over the lists that have a real item (default), "sum", or "none".

    Attributes:
        grades: whether labels are grades. If True, a negative label is an error, since it most
            likely marks padding, as in other libraries. False if any finite number is a valid
            target, as in regression.
        every_item: whether `Unbiased` weights all items of a list (True) or only the clicked items
            (False, the default). True is for losses in which every item counts, relevant or not, as
            in regression. False is for losses whose terms each belong to a relevant item.
        side_inputs: the names of the further arguments that training must pass to `forward`, such
            as `protected`. A `Ranker` takes these arguments from the batches. Default: none.

    Raises:
        ValueError: reduction is unknown.

    >>> class Spread(RankingLoss):
    ...     def per_list(self, scores, labels, mask, weights):
    ...         return scores.amax(-1) - scores.amin(-1)
    >>> Spread()(torch.tensor([[1.0, 3.0], [0.0, 4.0]]), torch.zeros(2, 2))
    tensor(3.)
    """

    grades: ClassVar[bool] = True
    most_label: float = math.inf
    every_item: bool = False

    def __init__(self, reduction: Reduction = "mean"):
        super().__init__()
        check_choice("reduction", reduction, "mean", "sum", "none")
        self.reduction: Reduction = reduction

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return one value for each list: (..., n) each -> (...).

        The result may have further leading axes, such as the samples of a `Stochastic` operator;
        `forward` takes the mean over these axes. If a loss needs further tensors (..., n), such as
        `protected`, its `per_list` has parameters of these names after `weights`, with the default
        None; `forward` passes the tensors on.
        """
        raise NotImplementedError(f"{type(self).__name__} must define per_list")

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        *,
        lengths: Lengths | None = None,
        qid: Tensor | None = None,
        padding: float | None = None,
        **extra: Tensor | None,
    ) -> Tensor:
        """Return the loss of scores (..., n) against labels (..., n).

        At most one of mask, lengths and qid may be given, and none of them with nested tensors.

        Args:
            scores: (..., n), float16, bfloat16, float32 or float64.
            labels: (..., n), one of these dtypes, any integer dtype, or bool.
            mask: (..., n) bool, True for a real item. Default: all are real.
            weights: (..., n), >= 0, one for each item. Default: 1.
            lengths: (R,) whole numbers, the number of items of each list, instead of a mask. The
                lists are then ragged: scores, labels and weights are (N,), one list after the
                other. With reduction="none" the result is (R,). Nested tensors (`torch.nested`,
                jagged) carry their own lengths.
            qid: (N,) integers, the query of each item, instead of a mask. Scores, labels and
                weights are (N,) too, with the items in any order. The items with the same qid form
                a list. With reduction="none" the result has one value for each list, by ascending
                qid; in `torch.compile` the result is (N,), with 0 after the last list. Cost: one
                sort of the qids.
            padding: the label that marks padding, such as -1 in allRank and TF-Ranking. Items with
                this label count as masked. Not allowed with lengths, qid or nested tensors.
                Default: no label marks padding.
            extra: further tensors for parameters of `per_list`, in the shape of the scores.

        Raises:
            ValueError: a shape or dtype is wrong; `per_list` does not return one value for each
                list; a label or a weight of a real item is not finite; a weight is negative; a
                label is negative and `grades` is True; a label is above `most_label`. Values are
                checked on the CPU only: on a GPU the check would wait for the device, and in
                `torch.compile` and `vmap` tensors have no values to read. In these cases an invalid
                label or weight makes the loss of its list NaN.
            TypeError: an argument of `extra` is unknown to `per_list`.

        >>> from ltr.losses import SoftmaxLoss
        >>> scores, labels = torch.tensor([1.0, 0.0, 2.0]), torch.tensor([1.0, 1.0, 0.0])
        >>> SoftmaxLoss(reduction="none")(scores, labels, qid=torch.tensor([7, 3, 7]))
        tensor([0.0000, 1.3133])
        """
        if labels is None:
            raise ValueError("labels must be a tensor, got None")
        if extra and not torch.compiler.is_compiling():  # `torch.compile` cannot read signatures
            self._check_names(name for name, x in extra.items() if x is not None)
        given: dict[str, Any] = {"labels": labels, "weights": weights, **extra}
        nested = isinstance(scores, Tensor) and scores.is_nested
        if nested or lengths is not None or qid is not None or padding is not None:
            check_exclusive(mask, lengths, qid, nested, padding)
        if nested:
            scores, given, lengths = flatten_nested(scores, **given)
        check_lists(scores, mask=mask, **given)
        if padding is not None:
            mask = real_items(given["labels"], mask, padding)
        columns = {"scores": scores, **{name: x for name, x in given.items() if x is not None}}
        if qid is not None:
            columns, lengths = group_columns(columns, qid)
        dtype = torch.float32 if scores.dtype in HALF else scores.dtype
        columns, wrong = self._checked(columns, mask, dtype)
        with full_precision(scores):
            if lengths is None:
                each = self.per_list(mask=mask, **{"weights": None, **columns})
                lists = scores.shape[:-1]
                if not isinstance(each, Tensor) or each.shape[each.dim() - len(lists) :] != lists:
                    raise self._wrong_result(each, lists)
                bad = None if wrong is None else wrong.any(-1)
                samples = each.dim() - len(lists)
            else:
                lengths = check_lengths(scores, lengths)
                each = self._per_ragged_list(columns, lengths)
                bad = None if wrong is None else sum_lists(wrong.long(), lengths) > 0
                samples = each.dim() - 1
        if bad is not None:
            each = each * torch.where(bad, torch.nan, 1.0)
        if samples:
            each = each.mean(tuple(range(samples)))
        if self.reduction != "mean":
            return each if self.reduction == "none" else each.sum()
        if lengths is not None:
            counted = (lengths > 0).sum().clamp(min=1)
        elif mask is not None:
            counted = mask.any(-1).sum().clamp(min=1)
        else:  # all lists count if n > 0
            counted = max(1, each.numel() if scores.shape[-1] else 0)
        return each.sum() / counted

    def _per_ragged_list(self, columns: dict[str, Tensor], lengths: Tensor) -> Tensor:
        """Return `per_list` of ragged lists: (N,) each and lengths (R,) -> (..., R)."""
        parts = []
        for lists, mask, tensors in chunks(lengths, *columns.values()):
            padded = dict(zip(columns, tensors, strict=True))
            each = self.per_list(mask=mask, **{"weights": None, **padded})
            if not isinstance(each, Tensor) or each.shape[-1:] != lists.shape:
                raise self._wrong_result(each, lists.shape)
            parts.append((lists, each))
        return from_chunks(parts, len(lengths))

    def _wrong_result(self, each: Any, lists: torch.Size) -> ValueError:
        """Return the error for a result of `per_list` that is not one value for each list."""
        got = tuple(each.shape) if isinstance(each, Tensor) else f"a {type(each).__name__}"
        return ValueError(
            f"{type(self).__name__}.per_list must return one value for each list, a tensor "
            f"{tuple(lists)}, got {got}"
        )

    def _check_names(self, names: Iterable[str]) -> None:
        """Raise `TypeError` if one of the names is no argument of `forward` or `per_list`."""
        known = self._argument_names()
        if known is None:
            return
        for name in names:
            if name not in known:
                raise TypeError(
                    f"{type(self).__name__}() got an unexpected keyword argument {name!r}: "
                    f"{nearest(name, known)}"
                )

    def _argument_names(self) -> set[str] | None:
        """Return the names of the optional arguments, or None if any name may be given.

        If `per_list` takes any name, as that of a loss around other losses does, the names are also
        those of the inner losses.
        """
        names, any_name = _optional(type(self).per_list)
        known = {"mask", "weights", "lengths", "qid", "padding", *names}
        if not any_name:
            return known
        inner = [
            part._argument_names() for part in self.children() if isinstance(part, RankingLoss)
        ]
        if not inner or None in inner:
            return None
        return known.union(*(own for own in inner if own is not None))

    def _checked(
        self, columns: dict[str, Tensor], mask: Tensor | None, dtype: torch.dtype
    ) -> tuple[dict[str, Tensor], Tensor | None]:
        """Check labels and weights; return the tensors in `dtype`, and the bad items.

        If the values cannot be read (see `check_values`), no error is raised: bad values are
        replaced by 0, and the bad items are returned, (..., n) bool. Otherwise the second result is
        None.
        """
        tensors, wrong = {}, None
        for name, x in columns.items():
            if name in ("labels", "weights"):
                least = 0.0 if self.grades or name == "weights" else -math.inf
                most = self.most_label if name == "labels" else math.inf
                bad = check_values(name, x, mask, least, most)
                if bad is not None:
                    x = torch.where(bad, 0, x)
                    wrong = bad if wrong is None else wrong | bad
            tensors[name] = x.to(dtype)
        return tensors, wrong

    def extra_repr(self) -> str:
        """Return the reduction, unless it is the default."""
        return "" if self.reduction == "mean" else f"reduction={self.reduction!r}"


@lru_cache
def _optional(per_list: Callable[..., Tensor]) -> tuple[tuple[str, ...], bool]:
    """Return the names of the optional parameters, and whether any other name may be given."""
    several = inspect.signature(per_list).parameters.values()
    names = tuple(one.name for one in several if one.default is not one.empty)
    return names, any(one.kind is one.VAR_KEYWORD for one in several)


def check_one_number(loss: nn.Module) -> None:
    """Raise `ValueError` if the loss returns one value for each list, which cannot be minimized.

    >>> from ltr.losses import SoftmaxLoss
    >>> check_one_number(SoftmaxLoss(reduction="none"))
    Traceback (most recent call last):
    ValueError: loss.reduction must be 'mean' or 'sum', got 'none'
    """
    if getattr(loss, "reduction", None) == "none":
        raise ValueError("loss.reduction must be 'mean' or 'sum', got 'none'")


def real_items(labels: Tensor, mask: Tensor | None, padding: float) -> Tensor:
    """Return the mask (..., n), with False also for the items whose label is `padding`.

    Raises:
        ValueError: padding is not a number, or is NaN.

    >>> real_items(torch.tensor([2, 0, -1]), None, -1)
    tensor([ True,  True, False])
    """
    if isinstance(padding, bool) or not isinstance(padding, Real) or padding != padding:
        raise ValueError(f"padding must be the label of a padded item, such as -1, got {padding!r}")
    real = labels != padding
    return real if mask is None else real & mask


def check_values(
    name: str, x: Tensor, mask: Tensor | None, least: float, most: float = math.inf
) -> Tensor | None:
    """Raise `ValueError` if a real item has a value that is not finite or not in [least, most].

    Args:
        name: the name of the argument, for the message.
        x: (..., n).
        mask: (..., n) bool or None.
        least: 0, or -inf if any finite value is valid.
        most: the largest valid value.

    Returns:
        None if the values are good. If the values cannot be read (on a device other than the CPU,
        in `torch.compile` or in `vmap`): (..., n) bool, True for a bad value. Cost: one pass over
        the values on the CPU.

    >>> check_values("labels", torch.tensor([2, 0, -1]), torch.tensor([True, True, False]), 0.0)
    """
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return wrong_values(x, mask, least, most)
    try:
        value = first_wrong_value(x, mask, least, most)
    except RuntimeError:  # `vmap` raises this
        return wrong_values(x, mask, least, most)
    if value is None:
        return None
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value:g}")
    if value > most:
        raise ValueError(f"{name} must be <= {most:g}, got {value:g}")
    hint = f": if that marks padding, give mask=labels != {value:g} or padding={value:g}"
    raise ValueError(f"{name} must be >= 0, got {value:g}{hint if name == 'labels' else ''}")


def without_removed(scores: Tensor, relevance: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mask (..., n), False also for removed items: relevance 0 and a score of -inf.

    A loss that tends to a limit as the score of an irrelevant item falls has this limit, with
    finite gradients, if it masks removed items or takes the scores of `finite_if_removed`. The
    differences and products of infinite scores would be NaN.

    >>> scores = torch.tensor([1.0, -torch.inf, -torch.inf, torch.nan])
    >>> without_removed(scores, torch.tensor([0.0, 1.0, 0.0, 0.0]), None)
    tensor([ True,  True, False,  True])
    """
    kept = (scores != -torch.inf) | (relevance > 0)
    return kept if mask is None else mask & kept


def finite_if_removed(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the scores (..., n), with a very low number for removed items, without a gradient.

    The number is so large that sums over the pairs of 130,000 items stay finite.

    >>> scores = torch.tensor([1.0, -torch.inf, -torch.inf])
    >>> finite_if_removed(scores, torch.tensor([0.0, 1.0, 0.0]))
    tensor([ 1.0000e+00,        -inf, -1.9807e+28])
    """
    lowest = -torch.finfo(scores.dtype).max / 2**34
    return torch.where((scores == -torch.inf) & (labels <= 0), lowest, scores)
