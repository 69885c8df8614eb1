"""Shortcuts for eager calls on the CPU: torch's overhead takes longer than a short list's sums."""

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor as is_batched
from torch._functorch.utils import unwrap_dead_wrappers
from torch.nn import Parameter


def has_values(x: Tensor) -> bool:
    """Return whether x holds numbers, and no tracer or dispatch mode observes the ops.

    Within an `autograd.Function` this check is enough. Elsewhere use `is_eager`.

    >>> has_values(torch.ones(2)), has_values(torch.ones(2, device="meta"))
    (True, False)
    """
    if torch.compiler.is_compiling() or x.is_meta:
        return False
    if type(x) is not Tensor and not isinstance(x, Parameter):
        return False  # a fake tensor, which has no values
    return not torch._C._len_torch_dispatch_stack() and torch._C._get_tracing_state() is None


def is_eager(x: Tensor) -> bool:
    """Return whether x `has_values` on the CPU and no transform of `torch.func` is active.

    >>> is_eager(torch.ones(2))
    True
    """
    if not x.is_cpu or not has_values(x) or is_batched(x):
        return False
    return not torch._C._are_functorch_transforms_active()


def transformed() -> bool:
    """Return whether `torch.compile` or a transform of `torch.func` is active.

    >>> transformed()
    False
    """
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def apply(function: Any, *arguments: Any) -> Any:
    """Return `function.apply(*arguments)` of an `autograd.Function` without default arguments.

    `Function.apply` binds the arguments to the signature of `forward` at every call. That takes
    longer than the rest of a short call, and only transforms need it. So it is skipped otherwise.

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
