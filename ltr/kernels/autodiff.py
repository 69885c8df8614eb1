"""Rules that give reverse-mode derivatives to functions that autograd cannot trace.

If autograd is registered on a custom op, `vmap(grad)` of the op fails and its `jvp` is silently
zero. So the ops of this package have no derivatives of their own. A `Rule` computes the values of a
function and its gradients; `differentiable` applies the rule. No other file of the kernels and
losses has an `autograd.Function`.
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
"""The error message for forward mode, such as `torch.func.jvp`."""


class Rule:
    """A function of tensors with its derivatives. Subclasses hold other arguments as attributes.

    A tensor may be None. `saved_outputs` has the indices of the outputs that the derivatives need,
    and `constant` the indices of the outputs without a derivative. All batch axes come first, so
    that `vmap` can add another one.
    """

    saved_outputs: tuple[int, ...] = ()
    constant: tuple[int, ...] = ()

    def values(self, *tensors: Any, **_: Any) -> tuple[Tensor, ...]:
        """Return the outputs."""
        raise NotImplementedError

    def gradients(
        self, needed: Sequence[bool], cotangents: Sequence[Maybe], *saved: Any
    ) -> Sequence[Maybe]:
        """Return the gradient by each tensor; None if it is 0 or is not needed.

        If grad mode is enabled, the gradients must be differentiable.

        Args:
            needed: for each tensor, whether its gradient is needed.
            cotangents: the gradients by the outputs, None for 0.
            saved: the tensors, then the outputs of `saved_outputs`.
        """
        raise NotImplementedError


def differentiable(rule: Rule, *tensors: Maybe) -> tuple[Tensor, ...]:
    """Return the values of the rule, with gradients of any order and support for `vmap`.

    Forward mode is refused.

    Raises:
        RuntimeError: forward mode is used, as by `torch.func.jvp`, `jacfwd` or `hessian`.

    >>> class Cube(Rule):
    ...     def values(self, x):
    ...         return (x**3,)
    ...
    ...     def gradients(self, needed, cotangents, x):
    ...         return (3 * x**2 * cotangents[0],)
    >>> x = torch.tensor(2.0, requires_grad=True)
    >>> (y,) = differentiable(Cube(), x)
    >>> torch.autograd.grad(y, x)
    (tensor(12.),)
    """
    if not torch.compiler.is_compiling():
        return _Function.apply(rule, *tensors)
    # If no gradient is needed, do not use `_Compiled`: for an `autograd.Function` that needs none,
    # `torch.compile` checks the number of arguments, which varies here.
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
    """The `autograd.Function` of a rule under `torch.compile`, which supports no `jvp` method."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        rule, *tensors = inputs
        return tuple(rule.values(*tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        rule, *tensors = inputs
        ctx.rule = rule
        saved = *tensors, *map(output.__getitem__, rule.saved_outputs)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*saved)
        if rule.constant:
            ctx.mark_non_differentiable(*map(output.__getitem__, rule.constant))

    @staticmethod
    def backward(ctx: Any, *cotangents: Maybe) -> tuple[Maybe, ...]:
        needed = ctx.needs_input_grad[1:]
        if all(g is None for g in cotangents):
            return (None,) * (1 + len(needed))
        return None, *ctx.rule.gradients(needed, cotangents, *ctx.saved_tensors)


class _Function(_Compiled):
    """The `autograd.Function` of a rule outside `torch.compile`: with `vmap`, not forward mode."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(FORWARD_MODE)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        rule, *tensors = inputs
        pairs = zip(tensors, in_dims[1:], strict=True)
        results = _Function.apply(rule, *(batch_first(x, dim, info.batch_size) for x, dim in pairs))
        return results, (0,) * len(results)


# Without this attribute, torch would look up the signature at every call.
_Compiled.forward.__signature__ = inspect.signature(_Compiled.forward)
