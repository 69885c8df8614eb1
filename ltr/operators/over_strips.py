"""Sums over strips of an axis with derivatives of any order, without the array that they sum.

A `Strips` function gets some tensors whole, and strips of others. Its derivatives compute each
strip again, and are `Strips` functions themselves. So memory stays that of a strip and of the
results: forward, backward, forward mode and what is made of them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ltr.kernels.autodiff import Maybe, Rule, differentiable

STRIP = 1 << 16
"""The entries of a strip: 512 KiB in float64, which a processor's cache holds."""

Part = Callable[[Sequence[Tensor], Sequence[Tensor]], tuple[Sequence[Tensor], Sequence[Tensor]]]
"""Maps whole tensors and strips of others to terms of sums, and strips of results."""


class Strips(NamedTuple):
    """A function of whole tensors and of tensors that are cut into strips along the last axis.

    Args:
        part: computes a strip. It works on the last axes, so that more may come before them.
        whole: the number of tensors that it gets whole. The others are cut.
        sums: The number of results that are summed over the strips.
        joined: The number of the other results, whose strips are joined.
        length: entries of the arrays of a strip for each position on the cut axis.
    """

    part: Part
    whole: int
    sums: int
    joined: int
    length: int


def over_strips(task: Strips, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the results of a `Strips` function: its sums, then what is joined.

    >>> def part(whole, cut):  # the rows of exp(x y), summed and one by one
    ...     array = torch.exp(whole[0].unsqueeze(-1) * cut[0].unsqueeze(-2))
    ...     return [array.sum(-1)], [array.sum(-2)]
    >>> x, y = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 0.0, 1.0])
    >>> over_strips(Strips(part, whole=1, sums=1, joined=1, length=2), x, y)
    (tensor([3.0000, 4.7183]), tensor([2.0000, 2.0000, 3.7183]))
    """
    return differentiable(_OverStrips(task), *tensors)


class _OverStrips(Rule):
    def __init__(self, task: Strips) -> None:
        self.task = task
        self.kept = tuple(range(task.sums + task.joined))

    def values(self, *tensors: Tensor, **_: Any) -> tuple[Tensor, ...]:
        task = self.task
        whole, cut = tensors[: task.whole], tensors[task.whole :]
        count, entries = cut[0].shape[-1], task.length * cut[0].shape[:-1].numel()
        size = max(1, STRIP // max(1, entries))
        sums: list[Tensor] = []
        joined: list[Tensor] = []
        for start in range(0, max(count, 1), size):
            strip = [x[..., start : start + size] for x in cut]
            terms, results = task.part(whole, strip)
            if not start:
                # No strip leaves a tensor behind: between those freed it would break the heap up.
                sums = [torch.zeros_like(x) for x in terms]
                joined = [y.new_empty((*y.shape[:-1], count)) for y in results]
            for x, y in zip(sums, terms, strict=True):
                x += y
            for x, y in zip(joined, results, strict=True):
                x[..., start : start + size] = y
        return (*sums, *joined)

    def gradients(
        self, needed: Sequence[bool], given: Sequence[Maybe], *saved: Any
    ) -> Sequence[Maybe]:
        task, tensors, results = self.task, saved[: len(needed)], saved[len(needed) :]
        wanted = [i for i, one in enumerate(needed) if one]
        grads = [
            torch.zeros_like(x) if g is None else g for x, g in zip(results, given, strict=True)
        ]
        whole, cut = tensors[: task.whole], tensors[task.whole :]
        inputs = [*whole, *grads[: task.sums], *cut, *grads[task.sums :]]
        found: list[Maybe] = [None] * len(tensors)
        for i, grad in zip(
            wanted, over_strips(_pullback(task, len(cut), wanted), *inputs), strict=True
        ):
            found[i] = grad
        return found

    def tangents(self, moved: Sequence[Maybe], *saved: Any) -> tuple[Maybe, ...]:
        task, tensors = self.task, saved[: len(moved)]
        known = {i: x for i, x in enumerate(moved) if x is not None}
        whole, cut = tensors[: task.whole], tensors[task.whole :]
        inputs = [
            *whole,
            *(x for i, x in known.items() if i < task.whole),
            *cut,
            *(x for i, x in known.items() if i >= task.whole),
        ]
        return over_strips(_pushforward(task, len(cut), [*known]), *inputs)


def _pullback(task: Strips, cuts: int, wanted: list[int]) -> Strips:
    # the function of the tensors and of the results' gradients that has the wanted gradients

    def part(whole: Sequence[Tensor], cut: Sequence[Tensor]) -> tuple[Any, Any]:
        inputs = [*whole[: task.whole], *cut[:cuts]]

        def results(*chosen: Tensor) -> tuple[Tensor, ...]:
            return _flat(task, inputs, wanted, chosen)

        _, pull = torch.func.vjp(results, *[inputs[i] for i in wanted])  # pyright: ignore
        grads = pull((*whole[task.whole :], *cut[cuts:]))
        return grads[:inside], grads[inside:]

    inside = sum(i < task.whole for i in wanted)
    return Strips(part, task.whole + task.sums, inside, len(wanted) - inside, task.length)


def _pushforward(task: Strips, cuts: int, moved: list[int]) -> Strips:
    # the function of the tensors and of some tangents that has the results' tangents

    def part(whole: Sequence[Tensor], cut: Sequence[Tensor]) -> tuple[Any, Any]:
        inputs = [*whole[: task.whole], *cut[:cuts]]

        def results(*chosen: Tensor) -> tuple[Tensor, ...]:
            return _flat(task, inputs, moved, chosen)

        # the gradient's gradient is the tangent; torch.func.jvp does not nest in forward mode
        values, pull = torch.func.vjp(results, *[inputs[i] for i in moved])  # pyright: ignore
        _, push = torch.func.vjp(pull, tuple(torch.zeros_like(y) for y in values))  # pyright: ignore
        (found,) = push((*whole[task.whole :], *cut[cuts:]))
        return found[: task.sums], found[task.sums :]

    inside = sum(i < task.whole for i in moved)
    return Strips(part, task.whole + inside, task.sums, task.joined, task.length)


def _flat(
    task: Strips, inputs: Sequence[Tensor], places: list[int], chosen: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    # the results for the inputs, of which those at some positions are others
    inputs = list(inputs)
    for i, x in zip(places, chosen, strict=True):
        inputs[i] = x
    sums, joined = task.part(inputs[: task.whole], inputs[task.whole :])
    return (*sums, *joined)
