"""Derivatives in reverse mode for functions that autograd cannot trace: a rule for each.

Autograd registered on a custom op breaks `vmap(grad)`, and `jvp` of it is silently zero. So the ops
of this package have no derivatives of their own. A `Rule` computes the values of a function and its
gradients; `differentiable` applies it. No other file of the kernels and losses has an
`autograd.Function`.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

Maybe = Tensor | None

FORWARD_MODE = (
    "forward-mode derivatives are not supported here: use reverse mode, "
    "such as torch.func.grad, vjp or jacrev instead of jvp, jacfwd or hessian"
)
"""The error of `torch.func.jvp`."""


class Rule:
    """A function of tensors with its derivatives. Subclasses hold all arguments except the tensors.

    A tensor may be None. `saved_outputs` names the outputs that the derivatives need, and
    `constant` the outputs without a derivative. All batch axes come first, so that `vmap` adds one
    more.
    """

    saved_outputs: tuple[int, ...] = ()
    constant: tuple[int, ...] = ()

    def values(self, *tensors: Any, **_: Any) -> tuple[Tensor, ...]:
        """Return the outputs."""
        raise NotImplementedError

    def gradients(
        self, needed: Sequence[bool], given: Sequence[Maybe], *saved: Any
    ) -> Sequence[Maybe]:
        """Return the gradient by each tensor, or None.

        If grad mode is enabled, they must be differentiable.

        Args:
            needed: for each tensor, whether its gradient is needed.
            given: The gradients by the outputs, None for 0.
            saved: the tensors, then the outputs of `saved_outputs`.
        """
        raise NotImplementedError


def differentiable(rule: Rule, *tensors: Maybe) -> tuple[Tensor, ...]:
    """Return the values of the rule, with gradients of any order and a rule for `vmap`.

    Forward mode is refused.

    Raises:
        RuntimeError: `torch.func.jvp`, `jacfwd` or `hessian`, or another use of forward mode.

    >>> class Cube(Rule):
    ...     def values(self, x):
    ...         return (x**3,)
    ...
    ...     def gradients(self, needed, given, x):
    ...         return (3 * x**2 * given[0],)
    >>> x = torch.tensor(2.0, requires_grad=True)
    >>> (y,) = differentiable(Cube(), x)
    >>> torch.autograd.grad(y, x)
    (tensor(12.),)
    """
    if not torch.compiler.is_compiling():
        return _Function.apply(rule, *tensors)
    # torch.compile counts the arguments of a Function that needs no gradient. This one takes any
    # number.
    wanted = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    return _Compiled.apply(rule, *tensors) if wanted else rule.values(*tensors)


def batch_first(x: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    """Return a tensor under `vmap` with its batch axis in front, expanded if it has none.

    >>> batch_first(torch.ones(3), None, 2).shape
    torch.Size([2, 3])
    """
    if x is None:
        return None
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


class _Compiled(torch.autograd.Function):
    """A rule for `torch.compile`, which takes no Function with a jvp."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        rule, *tensors = inputs
        return tuple(rule.values(*tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        rule, *tensors = inputs
        ctx.rule = rule
        saved = *tensors, *[output[k] for k in rule.saved_outputs]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*saved)
        if rule.constant:
            ctx.mark_non_differentiable(*[output[k] for k in rule.constant])

    @staticmethod
    def backward(ctx: Any, *given: Maybe) -> tuple[Maybe, ...]:
        needed = ctx.needs_input_grad[1:]
        if all(g is None for g in given):
            return (None,) * (1 + len(needed))
        return None, *ctx.rule.gradients(needed, given, *ctx.saved_tensors)


class _Function(_Compiled):
    """A rule that refuses forward mode, with its batch rule."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(FORWARD_MODE)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        rule, *tensors = inputs
        pairs = zip(tensors, in_dims[1:], strict=True)
        found = _Function.apply(rule, *(batch_first(x, dim, info.batch_size) for x, dim in pairs))
        return found, (0,) * len(found)


# Without it torch would look the signature up at every call.
_Compiled.forward.__signature__ = inspect.signature(_Compiled.forward)
