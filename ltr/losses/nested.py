"""Nested tensors (`torch.nested`, jagged) as flat values and lengths."""

from typing import Any

import torch
from torch import Tensor


def any_nested(*tensors: Tensor | None) -> bool:
    """Return whether one of the tensors is nested."""
    return any(isinstance(x, Tensor) and x.is_nested for x in tensors)


def flatten_nested(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """Return the flat values (N,) of nested tensors and their common lengths (R,).

    Gradients flow back into the nested tensors.

    Args:
        tensors: name -> tensor; error messages use the names. The first tensor defines the lengths.

    Raises:
        ValueError: a tensor is not nested, its layout is not `torch.jagged`, it does not have two
            dimensions, or its lists do not have the lengths of the first tensor's lists.

    >>> scores = torch.nested.nested_tensor([[0.1], [0.2, 0.3]], layout=torch.jagged)
    >>> flatten_nested({"scores": scores})
    ({'scores': tensor([0.1000, 0.2000, 0.3000])}, tensor([1, 2]))
    """
    flat: dict[str, Tensor] = {}
    lengths: Tensor | None = None
    for name, x in tensors.items():
        if not isinstance(x, Tensor) or not x.is_nested:
            raise ValueError(f"{name} must be nested if one of {', '.join(tensors)} is nested")
        if x.layout != torch.jagged or x.dim() != 2:
            raise ValueError(
                f"{name} must be nested with layout=torch.jagged and two dimensions "
                f"(lists, items), got {x.layout} and {x.dim()}"
            )
        flat[name], own = _parts(x)
        lengths = own if lengths is None else lengths
        if not _equal(own, lengths):
            raise ValueError(f"{name} must have lists of the same lengths as scores")
    assert lengths is not None
    return flat, lengths


def _parts(x: Any) -> tuple[Tensor, Tensor]:  # torch does not declare the methods of nested tensors
    """Return the values (N,) of the lists, without gaps, and the lengths (R,) of the lists."""
    lengths = x.lengths()
    if lengths is None:
        return x.values(), x.offsets().diff()
    # The result of `torch.nested.narrow` has further values between its lists, and the backward of
    # its `contiguous` fails in torch 2.13.
    before = x.offsets()[:-1] - (lengths.cumsum(0) - lengths)
    positions = before.repeat_interleave(lengths)
    return x.values()[positions + torch.arange(len(positions), device=positions.device)], lengths


def _equal(own: Tensor, lengths: Tensor) -> bool:
    # On a device other than the CPU, a comparison of values would wait for the device. So lengths
    # of the same shape count as equal there.
    if own is lengths or own.shape != lengths.shape:
        return own is lengths
    if own.device.type != "cpu" or torch.compiler.is_compiling():
        return True
    return torch.equal(own, lengths)
