"""The contract of losses, and the one place where lists become a number."""

from collections.abc import Callable
from numbers import Real
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ltr.kernels import Lengths, check_lengths, pad_lists
from ltr.losses.nested import any_nested, flatten_nested
from ltr.shapes import check_lists, full_precision, upcast

Reduction = Literal["mean", "sum", "none"]


class RankingLoss(nn.Module):
    """Base class of losses: scores, labels, mask=None, weights=None -> a scalar.

    With reduction="none" the result has one number for each list. To write a new loss, subclass
    this and define `per_list`. Every loss follows these rules:

    - All arguments are (..., n). Labels are graded relevance >= 0, or any numbers if the class
      sets `grades = False`. The mask is bool, True for a real item. Masked values, NaN included,
      change neither the value nor the gradient.
    - The loss is >= 0, and its minimum is 0. A list that defines no loss (no relevant item, no
      pair, all masked) gives 0 with a zero gradient. A NaN score makes the loss of its own list
      NaN, and of no other.
    - Half-precision scores are computed in float32. `torch.autocast` does not apply inside.

    Args:
        reduction: "mean" over the lists that have a real item, "sum", or "none".

    Attributes:
        grades: whether labels are grades. If True, a negative label is an error, since it is most
            likely the padding of another library. False if any number is a valid target, as in
            regression.
        side_inputs: the arguments beyond the weights that training must give, such as `groups`.
            A `Ranker` takes them from the batches. Default: none.

    Raises:
        ValueError: reduction is unknown; shapes differ; mask is not bool; a grade is negative.

    >>> class Spread(RankingLoss):
    ...     def per_list(self, scores, labels, mask, weights):
    ...         return scores.amax(-1) - scores.amin(-1)
    >>> Spread()(torch.tensor([[1.0, 3.0], [0.0, 4.0]]), torch.zeros(2, 2))
    tensor(3.)
    """

    grades: ClassVar[bool] = True
    side_inputs: tuple[str, ...] = ()

    def __init__(self, reduction: Reduction = "mean"):
        super().__init__()
        self.reduction: Reduction = check_reduction(reduction)

    def per_list(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Return one number for each list: (..., n) each -> (...).

        The result may have more axes in front, for samples. A loss that needs more tensors
        (..., n), such as `groups`, names them after `weights` with the default None; `forward`
        passes them on.
        """
        raise NotImplementedError(f"{type(self).__name__} must define per_list")

    def per_ragged_list(
        self,
        scores: Tensor,
        labels: Tensor,
        lengths: Tensor,
        weights: Tensor | None,
        **extra: Tensor,
    ) -> Tensor:
        """Return one number for each ragged list: (N,) each and lengths (R,) -> (R,).

        By default the lists are padded and given to `per_list`. If a loss defines this method, as
        `SoftNDCG` does, a subclass that overrides `per_list` must override this method too.
        """
        return pad_and_call(self.per_list, scores, labels, lengths, weights, **extra)

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        *,
        lengths: Lengths | None = None,
        padding: float | None = None,
        **extra: Tensor | None,
    ) -> Tensor:
        """Return the loss of scores (..., n) against labels (..., n); mask and weights (..., n).

        Args:
            scores: (..., n), any floating dtype.
            labels: (..., n), any dtype.
            mask: (..., n) bool, True for a real item. Default: all items are real.
            weights: (..., n), one for each item. Default: 1.
            lengths: (R,) whole numbers, instead of a mask. The lists are then ragged: scores,
                labels and weights are (N,), one list after the other. With reduction="none" the
                result is (R,). Nested tensors (`torch.nested`, jagged) carry their own lengths.
            padding: the label that marks padding, such as -1 in allRank and TF-Ranking. Items
                with this label count as masked. Default: no label marks padding.
            extra: further tensors that `per_list` names, in the shape of the scores.

        Raises:
            ValueError: a shape or dtype is wrong; a label is negative and `grades` is True. Labels
                are checked on the CPU only: elsewhere the check would wait for the device, and in
                `torch.compile` and `vmap` labels have no value to check.
        """
        return loss_of_lists(
            self.per_list,
            scores,
            labels,
            mask,
            weights,
            lengths=lengths,
            padding=padding,
            reduction=self.reduction,
            grades=self.grades,
            per_ragged_list=self.per_ragged_list,
            **extra,
        )

    def extra_repr(self) -> str:
        """Return the reduction, unless it is the default."""
        return "" if self.reduction == "mean" else f"reduction={self.reduction!r}"


def loss_of_lists(
    per_list: Callable[..., Tensor],
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    lengths: Lengths | None = None,
    padding: float | None = None,
    reduction: Reduction = "mean",
    grades: bool = True,
    per_ragged_list: Callable[..., Tensor] | None = None,
    **extra: Tensor | None,
) -> Tensor:
    """Return the loss whose number for one list is `per_list`.

    All losses go through this function. The function form of a loss and its class both call it
    with the same `per_list`. `RankingLoss.forward` documents the common arguments in full.

    Args:
        per_list: scores, labels, mask, weights (..., n) and `extra` -> (...). See
            `RankingLoss.per_list`.
        scores: (..., n).
        labels: (..., n).
        mask: (..., n) bool.
        weights: (..., n).
        lengths: (R,), instead of a mask.
        padding: the label that marks padding.
        reduction: "mean" over the lists that have a real item, "sum", or "none".
        grades: whether a negative label is an error.
        per_ragged_list: see `RankingLoss.per_ragged_list`. Default: pad, then `per_list`.
        extra: further tensors that `per_list` names.

    >>> def spread(scores, labels, mask, weights):
    ...     return scores.amax(-1) - scores.amin(-1)
    >>> loss_of_lists(spread, torch.tensor([1.0, 3.0, 0.0, 4.0]), torch.zeros(4), lengths=[2, 2])
    tensor(3.)
    """
    check_reduction(reduction)
    others = {"labels": labels, "weights": weights, **extra}
    given = {name: x for name, x in others.items() if x is not None}
    if any_nested(scores, *given.values()):
        if lengths is not None or mask is not None:
            raise ValueError("mask and lengths must be None if scores are nested")
        given, lengths = flatten_nested({"scores": scores, **given})
        scores = given.pop("scores")
    if lengths is not None and mask is not None:
        raise ValueError("mask must be None if lengths are given: ragged lists have no mask")
    check_lists(scores, mask=mask, **given)
    labels = given.pop("labels")
    if padding is not None:
        if lengths is not None:
            raise ValueError(
                f"padding must be None if lengths are given: ragged lists have no padding, "
                f"got {padding!r}"
            )
        mask = real_items(labels, mask, padding)
    if grades:
        check_grades(labels, mask)
    scores = upcast(scores)
    labels = labels.to(scores.dtype)
    more = {name: x.to(scores.dtype) for name, x in given.items()}
    weights = more.pop("weights", None)
    with full_precision(scores):
        if lengths is None:
            each = per_list(scores, labels, mask, weights, **more)
            samples = each.dim() - (labels.dim() - 1)
        else:
            lengths = check_lengths(scores, lengths)
            if per_ragged_list is None:
                each = pad_and_call(per_list, scores, labels, lengths, weights, **more)
            else:
                each = per_ragged_list(scores, labels, lengths, weights, **more)
            samples = each.dim() - 1
    if samples:
        each = each.mean(tuple(range(samples)))
    if reduction == "none":
        return each
    if reduction == "sum":
        return each.sum()
    if lengths is not None:
        counted = (lengths > 0).sum().clamp(min=1)
    elif mask is not None:
        counted = mask.any(-1).sum().clamp(min=1)
    else:  # all lists, if they have items
        counted = max(1, each.numel() if scores.shape[-1] else 0)
    return each.sum() / counted


def pad_and_call(
    per_list: Callable[..., Tensor],
    scores: Tensor,
    labels: Tensor,
    lengths: Tensor,
    weights: Tensor | None,
    **extra: Tensor,
) -> Tensor:
    """Pad ragged lists and return their `per_list`: (N,) each and lengths (R,) -> (R,)."""
    given = extra if weights is None else {"weights": weights, **extra}
    mask, scores, labels, *padded = pad_lists(lengths, scores, labels, *given.values())
    named = {"weights": None, **dict(zip(given, padded, strict=True))}
    return per_list(scores, labels, mask, **named)


def check_reduction(reduction: Reduction) -> Reduction:
    """Return `reduction`, or raise `ValueError` if it is unknown."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    return reduction


def check_flag(name: str, value: bool) -> bool:
    """Return `value`, or raise `ValueError` if it is not True or False.

    >>> check_flag("normalize", "sum")
    Traceback (most recent call last):
    ValueError: normalize must be True or False, got 'sum'
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return value


def real_items(labels: Tensor, mask: Tensor | None, padding: float) -> Tensor:
    """Return the mask (..., n) with False for the items whose label is `padding`.

    Raises:
        ValueError: padding is not a number.

    >>> real_items(torch.tensor([2, 0, -1]), None, -1)
    tensor([ True,  True, False])
    """
    if isinstance(padding, bool) or not isinstance(padding, Real) or padding != padding:
        raise ValueError(f"padding must be the label of a padded item, such as -1, got {padding!r}")
    real = labels != padding
    return real if mask is None else real & mask


def check_grades(labels: Tensor, mask: Tensor | None) -> None:
    """Raise `ValueError` if a real item has a label below 0, which marks padding elsewhere.

    Cost: one pass over labels on the CPU. Labels elsewhere, in `torch.compile` and in `vmap` are
    not checked: see `first_value`.

    >>> check_grades(torch.tensor([2, 0, -1]), torch.tensor([True, True, False]))
    """
    found = first_value(labels, lambda: labels < 0 if mask is None else (labels < 0) & mask, 0)
    if found is not None:
        raise ValueError(
            f"labels must be >= 0, got {found:g}: if that marks padding, give "
            f"mask=labels != {found:g} or padding={found:g}"
        )


def first_value(
    x: Tensor, find: Callable[[], Tensor], minimum: float | None = None
) -> float | None:
    """Return the first value of x (...) at the places (...) that `find` returns, or None.

    The result is None if `find` returns no place. It is also None if the values cannot be read
    without waiting for a device, or not at all: off the CPU, in `torch.compile` and in `vmap`.

    Args:
        x: any shape.
        find: returns the places as a bool tensor of the shape of x.
        minimum: if no value is below this number, no place is found. One quick check of the
            smallest value then avoids the call of `find`.

    >>> x = torch.tensor([3, -1])
    >>> first_value(x, lambda: x < 0)
    -1
    """
    if x.device.type != "cpu" or torch.compiler.is_compiling() or not x.numel():
        return None
    try:
        if minimum is not None and x.min().item() >= minimum:
            return None
        where = find()
        return x[where][0].item() if where.any() else None
    except RuntimeError:  # raised by `vmap`
        return None
