"""Argument checks and masking for all operators, losses and metrics.

The checks of `__all__` are also for classes of your own: an error names the argument and the value.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral, Real

import numpy as np
import torch
from torch import Tensor

__all__ = ["check_at_least", "check_choice", "check_number", "check_whole"]

_AUTOCAST = ("cpu", "cuda", "mps", "xpu")
"""Device types known to have autocast. In `torch.compile`, torch cannot always be asked."""

HALF = (torch.float16, torch.bfloat16)

LARGE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
"""Integer dtypes of which torch neither selects items nor compares or bounds values."""

LEAST_TEMPERATURE = 1e-30
"""The least temperature above 0. Below it, float32 divides 0 by 0, and the results are NaN."""


def check_number(name: str, value: float, *, minimum: float, strict: bool = False) -> float:
    """Return `value` as a float, or raise a ValueError unless it is finite and >= `minimum`.

    If `strict` is True, the value must be > `minimum`. Any type of real number is accepted, numpy
    scalars included. A bool or a tensor is refused. The message names the argument.

    >>> check_number("temperature", 0.1, minimum=0.0)
    0.1
    >>> check_number("temperature", -1.0, minimum=0.0)
    Traceback (most recent call last):
    ValueError: temperature must be >= 0, got -1.0
    """
    sign = ">" if strict else ">="
    if isinstance(value, bool) or not isinstance(value, (int, float, Real)):
        raise ValueError(f"{name} must be a number {sign} {minimum:g}, got {value!r}")
    good = value > minimum if strict else value >= minimum
    if not good or value == float("inf"):
        raise ValueError(f"{name} must be {sign} {minimum:g}, got {value!r}")
    return float(value)


def check_positive(name: str, value: float | None) -> float | None:
    """Return `value` as a float, or raise a ValueError unless it is None or finite and > 0.

    >>> check_positive("max_label", 0)
    Traceback (most recent call last):
    ValueError: max_label must be > 0, got 0
    """
    return None if value is None else check_number(name, value, minimum=0.0, strict=True)


def check_temperature(value: float, name: str = "temperature") -> float:
    """Return `value` as a float, or raise a ValueError unless it is 0 or >= `LEAST_TEMPERATURE`.

    >>> check_temperature(1e-300)
    Traceback (most recent call last):
    ValueError: temperature must be 0 (hard) or >= 1e-30, got 1e-300
    """
    temperature = check_number(name, value, minimum=0.0)
    if 0 < temperature < LEAST_TEMPERATURE:
        raise ValueError(f"{name} must be 0 (hard) or >= {LEAST_TEMPERATURE:g}, got {value!r}")
    return temperature


def check_soft_temperature(value: float, name: str = "temperature") -> float:
    """Return `value` as a float, or raise a ValueError unless it is >= `LEAST_TEMPERATURE`.

    >>> check_soft_temperature(0)
    Traceback (most recent call last):
    ValueError: temperature must be >= 1e-30, got 0
    """
    return check_number(name, value, minimum=LEAST_TEMPERATURE)


def check_whole(name: str, value: int, wanted: str = "a whole number >= 1") -> int:
    """Return `value` as an int, or raise a ValueError unless it is a whole number >= 1.

    >>> check_whole("k", 2.5)
    Traceback (most recent call last):
    ValueError: k must be a whole number >= 1, got 2.5
    """
    if isinstance(value, bool) or not isinstance(value, (int, Integral)) or value < 1:
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    return int(value)


def check_at_least(name: str, value: int, minimum: int) -> int:
    """Return `value` as an int, or raise a ValueError unless it is a whole number >= `minimum`.

    >>> check_at_least("seed", -1, 0)
    Traceback (most recent call last):
    ValueError: seed must be >= 0, got -1
    """
    if isinstance(value, bool) or not isinstance(value, (int, Integral)):
        raise ValueError(f"{name} must be a whole number >= {minimum}, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be >= {minimum}, got {value!r}")
    return int(value)


def check_choice(name: str, value: str, *choices: str) -> None:
    """Raise a ValueError unless `value` is one of the choices.

    >>> check_choice("missing", "drop", "keep", "error")
    Traceback (most recent call last):
    ValueError: missing must be "keep" or "error", got 'drop'
    """
    if value not in choices:
        wanted = " or ".join(f'"{choice}"' for choice in choices)
        raise ValueError(f"{name} must be {wanted}, got {value!r}")


def check_top_k(top_k: int | None, name: str = "top_k") -> int | None:
    """Return `top_k`, or raise a ValueError unless it is None or a whole number >= 1."""
    return None if top_k is None else check_whole(name, top_k, "None or a whole number >= 1")


def check_fraction(name: str, value: float, *, zero: bool = False, one: bool = False) -> float:
    """Return `value` as a float, or raise a ValueError unless 0 < `value` < 1.

    If `zero` or `one` is True, the value may be 0 or 1 too. A bool is refused.

    >>> check_fraction("p", 0.8)
    0.8
    >>> check_fraction("dropout", 1, zero=True)
    Traceback (most recent call last):
    ValueError: dropout must lie in [0, 1), got 1
    """
    number = isinstance(value, (int, float, Real)) and not isinstance(value, bool)
    if not number or not (0 < value < 1 or (zero and value == 0) or (one and value == 1)):
        interval = f"{'[' if zero else '('}0, 1{']' if one else ')'}"
        raise ValueError(f"{name} must lie in {interval}, got {value!r}")
    return float(value)


def check_flag(name: str, value: bool) -> bool:
    """Return `value`, or raise `ValueError` if it is not True or False.

    >>> check_flag("normalize", "sum")
    Traceback (most recent call last):
    ValueError: normalize must be True or False, got 'sum'
    """
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_floats(name: str, values: Sequence[float]) -> list[float]:
    """Return `values` as a list of floats, or raise `ValueError` if they are not numbers.

    >>> check_floats("thresholds", 0.5)
    Traceback (most recent call last):
    ValueError: thresholds must be a sequence of numbers, got 0.5
    """
    try:
        return [float(x) for x in values]
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a sequence of numbers, got {values!r}") from None


def check_levels(name: str, levels: float | Sequence[float]) -> list[float]:
    """Return one or several quantile levels as a list; raise a ValueError if one is not in [0, 1].

    >>> check_levels("q", 0.5)
    [0.5]
    """
    try:
        several = [levels] if isinstance(levels, (int, float, Real, str)) else list(levels)
        for level in several:
            if isinstance(level, (bool, str)) or not 0 <= level <= 1:
                raise ValueError(f"{name} must lie in [0, 1], got {level!r}")
        return [float(level) for level in several]
    except TypeError:  # this is neither a number nor a sequence of numbers
        raise ValueError(f"{name} must be numbers in [0, 1], got {levels!r}") from None


def check_lists(scores: Tensor, **others: Tensor | None) -> None:
    """Raise a ValueError unless `scores` and all others are tensors of one shape (..., n).

    `scores` must be floating point, and `mask` bool. Others that are None are not checked.
    """
    if not isinstance(scores, Tensor) or scores.is_nested or scores.dim() == 0:
        refuse_nested(scores=scores)
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"scores must be a tensor (..., n), got {got}")
    if not scores.is_floating_point():
        raise ValueError(f"scores must be floating point, got {scores.dtype}")
    for name, other in others.items():
        if other is None:
            continue
        if not isinstance(other, Tensor):
            raise ValueError(f"{name} must be a tensor, got {type(other).__name__}")
        if other.is_nested:
            refuse_nested(**{name: other})
        if other.shape != scores.shape:
            raise ValueError(
                f"{name} must have the shape of scores {tuple(scores.shape)}, "
                f"got {tuple(other.shape)}"
            )
        if name == "mask" and other.dtype != torch.bool:
            raise ValueError(f"mask must be bool (True = a real item), got {other.dtype}")


def check_mask(mask: Tensor, shape: torch.Size) -> None:
    """Raise a ValueError unless `mask` is a bool tensor of the given shape.

    >>> check_mask(torch.ones(3), torch.Size([3]))
    Traceback (most recent call last):
    ValueError: mask must be bool of shape (3,), got torch.float32 (3,)
    """
    if not isinstance(mask, Tensor):
        raise ValueError(f"mask must be a tensor, got {type(mask).__name__}")
    if mask.dtype != torch.bool or mask.shape != shape:
        raise ValueError(
            f"mask must be bool of shape {tuple(shape)}, got {mask.dtype} {tuple(mask.shape)}"
        )


def refuse_nested(**tensors: Tensor | None) -> None:
    """Raise a ValueError if any argument is a nested tensor."""
    for name, x in tensors.items():
        if isinstance(x, Tensor) and x.is_nested:
            raise ValueError(
                f"{name} must not be nested here: give the flat values, {name}.values(), and "
                f"the lengths, {name}.offsets().diff(), or pad the lists and give a mask"
            )


def refuse_weights(operator: object, weights: Tensor | None) -> None:
    """Raise a ValueError if `weights` are given to an operator that has no weighted form."""
    if weights is not None:
        raise ValueError(f"weights must be None: {type(operator).__name__} has no weighted form")


def wrong_values(
    x: Tensor, mask: Tensor | None = None, least: float = 0.0, most: float = math.inf
) -> Tensor:
    """Return True for each real item whose value is not finite or not in [least, most], (..., n).

    The default is the rule of labels and weights.

    >>> wrong_values(torch.tensor([0.0, -1.0, torch.inf, torch.nan]))
    tensor([False,  True,  True,  True])
    """
    x = selectable(x)
    wrong = ~x.isfinite() | (x < least) | (x > most)
    return wrong if mask is None else wrong & mask


def first_wrong_value(
    x: Tensor, mask: Tensor | None = None, least: float = 0.0, most: float = math.inf
) -> float | None:
    """Return the first of the `wrong_values`, or None. Cost: one pass over values without any.

    >>> first_wrong_value(torch.tensor([3, -1]))
    -1
    """
    if not x.numel():
        return None
    lowest, highest = selectable(x.detach()).aminmax()  # both are NaN if any value is NaN
    low, high = lowest.item(), highest.item()
    if low >= least and high <= most and math.isfinite(low) and math.isfinite(high):
        return None
    return first_value(x, wrong_values(x, mask, least, most))


def first_value(x: Tensor, where: Tensor) -> float | None:
    """Return the first value of x (...) for which `where` (...) is True; None if there is none.

    >>> first_value(torch.tensor([3, -1]), torch.tensor([False, True]))
    -1
    """
    return x[where][0].item() if where.any() else None


def upcast(x: Tensor) -> Tensor:
    """Return a half-precision tensor as float32, and any other tensor unchanged.

    bfloat16 cannot hold ranks above 256 exactly.
    """
    return x.float() if x.dtype in HALF else x


NO_FLOAT64 = ["mps"]
"""Device types without float64, which compute in float32 what other devices compute in float64."""


def widened(x: Tensor) -> Tensor:
    """Return x in float64, or in float32 on a device that has no float64, such as MPS.

    >>> widened(torch.ones(1)).dtype
    torch.float64
    """
    return x.to(torch.float32 if x.device.type in NO_FLOAT64 else torch.float64)


def selectable(x: Tensor) -> Tensor:
    """Return x in float64 if its dtype is one of `LARGE_UNSIGNED`, and any other tensor unchanged.

    >>> selectable(torch.tensor([2, 0]).to(torch.uint16)).index_select(0, torch.tensor([1]))
    tensor([0.], dtype=torch.float64)
    """
    return widened(x) if x.dtype in LARGE_UNSIGNED else x


def masked_fill(x: Tensor, mask: Tensor | None, value: float = 0.0) -> Tensor:
    """Return `x` with `value` in place of the masked items, whose `mask` is False.

    A NaN or inf at a masked item reaches neither values nor gradients. The masks of `ltr` are True
    for real items, while `Tensor.masked_fill` fills the items for which its mask is True.
    """
    return x if mask is None else torch.where(mask, x, value)


def real_scores(scores: Tensor, mask: Tensor | None, weights: Tensor | None = None) -> Tensor:
    """Check the arguments (..., n), and return the scores, with 0 for masked items.

    Half precision becomes float32. Every operator calls this function first.

    Raises:
        ValueError: see `check_lists`.

    >>> real_scores(torch.tensor([2.0, torch.nan]).half(), torch.tensor([True, False]))
    tensor([2., 0.])
    """
    check_lists(scores, mask=mask, weights=weights)
    if mask is not None:
        scores = torch.where(mask, scores, 0.0)
    return scores.float() if scores.dtype in HALF else scores


def count(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return the number of real items of each list, `(..., 1)`, in the dtype of `x`."""
    if mask is None:
        return x.new_full((*x.shape[:-1], 1), x.shape[-1])
    return mask.sum(-1, keepdim=True).to(x.dtype)


def with_masked(ranks: Tensor, mask: Tensor | None) -> Tensor:
    """Return the ranks (..., n) with m + 1 for the masked items of a list with m real items.

    >>> with_masked(torch.tensor([1.0, 9.0, 2.0]), torch.tensor([True, False, True]))
    tensor([1., 3., 2.])
    """
    if mask is None:
        return ranks
    return ranks.where(mask, mask.sum(-1, keepdim=True).to(ranks.dtype) + 1)


def positions(x: Tensor, n: int | None = None) -> Tensor:
    """Return 1, 2, ..., n on the device and in the dtype of `x`.

    The default n is the length of the last axis of `x`.
    """
    return torch.arange(1, (x.shape[-1] if n is None else n) + 1, device=x.device, dtype=x.dtype)


def largest(x: Tensor) -> Tensor:
    """Return the largest value of each list, (..., n) -> (...); 0 for an empty list."""
    return x.amax(-1) if x.shape[-1] else x.sum(-1)


def below_largest(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the scores minus the largest score of each list, (..., n), 0 for masked items.

    A function of score differences keeps its value, with smaller rounding errors: float32 numbers
    near 1e6 are 1/16 apart.

    >>> below_largest(torch.tensor([3.0, 5.0, 4.0]), None)
    tensor([-2.,  0., -1.])
    """
    top = largest(masked_fill(scores.detach(), mask, -torch.inf)).unsqueeze(-1)
    return masked_fill(scores - torch.where(top.isfinite(), top, 0.0), mask)


def full_precision(x: Tensor) -> AbstractContextManager[object]:
    """Return a context without autocast, which would round sums and gradients to half precision."""
    device = x.device.type
    known = device in _AUTOCAST or torch.amp.is_autocast_available(device)
    if not known or not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)
