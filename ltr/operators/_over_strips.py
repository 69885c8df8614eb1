"""Sums over strips of an axis with derivatives of any order, without the array that they sum.

A `Strips` function gets some tensors whole, and strips of others. Its derivatives compute each
strip again, and are `Strips` functions themselves. So memory stays that of a strip and of the
results: forward, backward, forward mode and what is made of them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

STRIP = 1 << 16
"""The entries of a strip: 512 KiB in float64, which a processor's cache holds."""

Part = Callable[[Sequence[Tensor], Sequence[Tensor]], tuple[Sequence[Tensor], Sequence[Tensor]]]
"""Maps whole tensors and strips of others to terms of sums, and strips of results."""


class Strips(NamedTuple):
    """A function of whole tensors and of tensors that are cut into strips along the last axis.

    Args:
        part: computes a strip. It works on the last axes, so that more may come before them.
        whole: the number of tensors that it gets whole. The others are cut.
        sums: The number of results that are summed over the strips. The others are joined.
        length: entries of the arrays of a strip for each place on the cut axis.
    """

    part: Part
    whole: int
    sums: int
    length: int


def over_strips(task: Strips, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the results of a `Strips` function: its sums, then what is joined.

    >>> def part(whole, cut):  # the rows of exp(x y), summed and one by one
    ...     array = torch.exp(whole[0].unsqueeze(-1) * cut[0].unsqueeze(-2))
    ...     return [array.sum(-1)], [array.sum(-2)]
    >>> x, y = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 0.0, 1.0])
    >>> over_strips(Strips(part, whole=1, sums=1, length=2), x, y)
    (tensor([3.0000, 4.7183]), tensor([2.0000, 2.0000, 3.7183]))
    """
    return _OverStrips.apply(task, *tensors)  # type: ignore[return-value]


class _OverStrips(torch.autograd.Function):
    @staticmethod
    def forward(task: Strips, *tensors: Tensor) -> tuple[Tensor, ...]:
        whole, cut = tensors[: task.whole], tensors[task.whole :]
        count, entries = cut[0].shape[-1], task.length * cut[0].shape[:-1].numel()
        size = max(1, STRIP // max(1, entries))
        sums: list[Tensor] = []
        joined: list[list[Tensor]] = []
        for start in range(0, max(count, 1), size):
            strip = [x[..., start : start + size] for x in cut]
            terms, results = task.part(whole, strip)
            sums = [x + y for x, y in zip(sums, terms, strict=True)] if start else list(terms)
            joined.append(list(results))
        return (*sums, *(torch.cat(parts, -1) for parts in zip(*joined, strict=True)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        task, *tensors = inputs
        ctx.task = task
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        task, tensors = ctx.task, ctx.saved_tensors
        wanted = [i for i, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        whole, cut = tensors[: task.whole], tensors[task.whole :]
        given = [*whole, *grads[: task.sums], *cut, *grads[task.sums :]]
        results = over_strips(_pullback(task, len(cut), wanted), *given)
        found: list[Tensor | None] = [None] * len(tensors)
        for i, grad in zip(wanted, results, strict=True):
            found[i] = grad
        return (None, *found)

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Tensor | None) -> tuple[Tensor, ...]:  # type: ignore[override]
        task, tensors = ctx.task, ctx.saved_tensors
        moved = [i for i, tangent in enumerate(tangents) if tangent is not None]
        within = [i for i in moved if i < task.whole]
        whole, cut = tensors[: task.whole], tensors[task.whole :]
        given = [
            *whole,
            *(tangents[i] for i in within),
            *cut,
            *(tangents[i] for i in moved if i >= task.whole),
        ]
        return over_strips(_pushforward(task, len(cut), moved), *given)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], task: Strips, *tensors: Tensor) -> Any:  # type: ignore[override]
        batched = [
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(tensors, in_dims[1:], strict=True)
        ]
        results = over_strips(task, *batched)
        return results, (0,) * len(results)


def _pullback(task: Strips, cuts: int, wanted: list[int]) -> Strips:
    # the function of the tensors and of the results' gradients that has the wanted gradients

    def part(whole: Sequence[Tensor], cut: Sequence[Tensor]) -> tuple[Any, Any]:
        inputs = [*whole[: task.whole], *cut[:cuts]]

        def results(*chosen: Tensor) -> tuple[Tensor, ...]:
            return _flat(task, inputs, wanted, chosen)

        _, pull, *_ = torch.func.vjp(results, *[inputs[i] for i in wanted])
        grads = pull((*whole[task.whole :], *cut[cuts:]))
        return grads[:inside], grads[inside:]

    inside = sum(i < task.whole for i in wanted)
    return Strips(part, task.whole + task.sums, inside, task.length)


def _pushforward(task: Strips, cuts: int, moved: list[int]) -> Strips:
    # the function of the tensors and of some tangents that has the results' tangents

    def part(whole: Sequence[Tensor], cut: Sequence[Tensor]) -> tuple[Any, Any]:
        inputs = [*whole[: task.whole], *cut[:cuts]]

        def results(*chosen: Tensor) -> tuple[Tensor, ...]:
            return _flat(task, inputs, moved, chosen)

        # the gradient's gradient is the tangent; torch.func.jvp does not nest in forward mode
        values, pull, *_ = torch.func.vjp(results, *[inputs[i] for i in moved])
        _, push, *_ = torch.func.vjp(pull, tuple(torch.zeros_like(y) for y in values))
        (found,) = push((*whole[task.whole :], *cut[cuts:]))
        return found[: task.sums], found[task.sums :]

    inside = sum(i < task.whole for i in moved)
    return Strips(part, task.whole + inside, task.sums, task.length)


def _flat(
    task: Strips, inputs: Sequence[Tensor], places: list[int], chosen: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    # the results for the inputs, of which those at some places are others
    inputs = list(inputs)
    for i, x in zip(places, chosen, strict=True):
        inputs[i] = x
    sums, joined = task.part(inputs[: task.whole], inputs[task.whole :])
    return (*sums, *joined)
