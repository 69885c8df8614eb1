"""Short cuts for eager calls on the CPU: what torch does around a call outlasts a short list."""

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor as is_batched
from torch._functorch.utils import unwrap_dead_wrappers
from torch.nn import Parameter


def has_values(x: Tensor) -> bool:
    """Return whether these are numbers, and no one traces the ops or wants to see them.

    Within an `autograd.Function` that is all; see `is_eager` for elsewhere.

    >>> has_values(torch.ones(2)), has_values(torch.ones(2, device="meta"))
    (True, False)
    """
    if torch.compiler.is_compiling() or x.is_meta:
        return False
    if type(x) is not Tensor and not isinstance(x, Parameter):
        return False  # a fake tensor, which has no values
    return not torch._C._len_torch_dispatch_stack() and torch._C._get_tracing_state() is None


def is_eager(x: Tensor) -> bool:
    """`has_values`, on the CPU, and no `vmap` or other transform of `torch.func` is at work.

    >>> is_eager(torch.ones(2))
    True
    """
    if not x.is_cpu or not has_values(x) or is_batched(x):
        return False
    return not torch._C._are_functorch_transforms_active()


def transformed() -> bool:
    """Return whether `torch.compile` or a transform of `torch.func` is at work.

    >>> transformed()
    False
    """
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def apply(function: Any, *arguments: Any) -> Any:
    """`function.apply(*arguments)` of an `autograd.Function` whose `forward` has no defaults.

    But torch binds the arguments to the signature of `forward` at every call, which takes longer
    than all else, and needs that for its transforms alone.

    >>> class Double(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(x):
    ...         return 2 * x
    ...     @staticmethod
    ...     def setup_context(ctx, inputs, output):
    ...         pass
    >>> apply(Double, torch.ones(1))
    tensor([2.])
    """
    if transformed():
        return function.apply(*arguments)
    plain: Any = super(torch.autograd.Function, function)
    return plain.apply(*unwrap_dead_wrappers(arguments))
