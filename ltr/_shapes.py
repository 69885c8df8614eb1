"""Shape work that every operator, loss and metric shares: done once, here."""

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)


def check_number(name: str, value: float, *, minimum: float, strict: bool = False) -> float:
    """`value` as a float, or a ValueError that names the argument.

    >>> check_number("temperature", 0.1, minimum=0.0)
    0.1
    >>> check_number("temperature", -1.0, minimum=0.0)
    Traceback (most recent call last):
    ValueError: temperature must be >= 0, got -1.0
    """
    good = isinstance(value, (int, float)) and (value > minimum if strict else value >= minimum)
    if not good or value == float("inf"):
        sign = ">" if strict else ">="
        raise ValueError(f"{name} must be {sign} {minimum:g}, got {value!r}")
    return float(value)


def check_top_k(top_k: int | None, name: str = "top_k") -> int | None:
    """`top_k` if it is None or a whole number >= 1, else a ValueError that names the argument."""
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1):
        raise ValueError(f"{name} must be None or a whole number >= 1, got {top_k!r}")
    return top_k


def check_lists(scores: Tensor, **others: Tensor | None) -> None:
    """Raise a ValueError unless all are tensors of one shape `(..., n)` and a `mask` is bool."""
    if not isinstance(scores, Tensor) or scores.dim() == 0:
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"scores must be a tensor (..., n), got {got}")
    if not scores.is_floating_point():
        raise ValueError(f"scores must be floating point, got {scores.dtype}")
    for name, other in others.items():
        if other is None:
            continue
        if not isinstance(other, Tensor):
            raise ValueError(f"{name} must be a tensor, got {type(other).__name__}")
        if other.shape != scores.shape:
            raise ValueError(
                f"{name} must have the shape of scores {tuple(scores.shape)}, "
                f"got {tuple(other.shape)}"
            )
        if name == "mask" and other.dtype != torch.bool:
            raise ValueError(f"mask must be bool (True = a real item), got {other.dtype}")


def refuse_weights(operator: object, weights: Tensor | None) -> None:
    """Raise a ValueError if `weights` are given to an operator that has no weighted form."""
    if weights is not None:
        raise ValueError(f"weights must be None: {type(operator).__name__} has no weighted form")


def upcast(x: Tensor) -> Tensor:
    """Half precision as float32, anything else as it is: ranks of 257 and more need the digits."""
    return x.float() if x.dtype in HALF else x


def hide(x: Tensor, mask: Tensor | None, value: float = 0.0) -> Tensor:
    """`x` with `value` under the mask; NaN and inf there reach neither values nor gradients."""
    return x if mask is None else torch.where(mask, x, value)


def count(x: Tensor, mask: Tensor | None) -> Tensor:
    """The number of real items m of each list, `(..., 1)`, in the dtype of `x`."""
    if mask is None:
        return x.new_full((*x.shape[:-1], 1), x.shape[-1])
    return mask.sum(-1, keepdim=True).to(x.dtype)


def positions(x: Tensor, n: int | None = None) -> Tensor:
    """1, 2, ..., n on the device and in the dtype of `x`; n is the length of its last axis."""
    return torch.arange(1, (x.shape[-1] if n is None else n) + 1, device=x.device, dtype=x.dtype)
