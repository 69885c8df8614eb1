"""Compute large arrays in tiles, with derivatives of any order.

A `Tiles` function takes some tensors whole and others tile by tile. The results are summed over the
tiles, or concatenated. The derivatives compute each tile again, and are `Tiles` functions
themselves. So only one tile and the results need memory, in the forward pass and in backward passes
of any order. `by_lists` computes some lists at a time; soft permutations compute some rows of their
matrices at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ltr.kernels.autodiff import Maybe, Rule, differentiable

TILE = 1 << 18
"""The number of elements of an array in a tile: a processor's cache holds a few such arrays."""

MOST_ELEMENTS = 1 << 22
"""An array of at most this many elements, 16 MiB in float32, is not tiled; autograd records it."""

Part = Callable[[Sequence[Tensor], Sequence[Tensor]], tuple[Sequence[Tensor], Sequence[Tensor]]]
"""Maps whole tensors and tiles of other tensors to terms of sums and to tiles of results."""


class Tiles(NamedTuple):
    """A function of whole tensors and of tensors that are split into tiles along the last axis.

    Args:
        part: the function that computes a tile. It works on the last axes, so that more axes may
            come before. It must not close over a tensor.
        whole: the number of tensors that `part` gets whole. The other tensors are tiled.
        sums: the number of results that are summed over the tiles.
        joined: the number of the other results, whose tiles are joined.
        length: the number of array elements in a tile for each index on the tiled axis.
    """

    part: Part
    whole: int
    sums: int
    joined: int
    length: int


def tiles(count: int, length: int) -> Iterator[slice]:
    """Yield slices of 0 ... count - 1, each of at most max(1, `TILE` // length) indices.

    >>> list(tiles(3, TILE // 2))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    size = max(1, TILE // max(1, length))
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def over_tiles(task: Tiles, *tensors: Tensor, most: int = 0) -> tuple[Tensor, ...]:
    """Return the results of a `Tiles` function: the sums, then the concatenated results.

    Args:
        task: the function.
        tensors: the tensors that `task.part` gets whole, then the tiled tensors.
        most: an array of at most this many elements is computed at once, without tiles, and
            recorded by autograd. Under `torch.compile` there are no tiles.

    >>> def part(whole, tiled):  # the rows of exp(x y), summed and one by one
    ...     array = torch.exp(whole[0].unsqueeze(-1) * tiled[0].unsqueeze(-2))
    ...     return [array.sum(-1)], [array.sum(-2)]
    >>> x, y = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 0.0, 1.0])
    >>> over_tiles(Tiles(part, whole=1, sums=1, joined=1, length=2), x, y)
    (tensor([3.0000, 4.7183]), tensor([2.0000, 2.0000, 3.7183]))
    """
    if torch.compiler.is_compiling() or task.length * tensors[task.whole].numel() <= most:
        sums, joined = task.part(tensors[: task.whole], tensors[task.whole :])
        return (*sums, *joined)
    return differentiable(_OverTiles(task), *tensors)


def by_lists(
    compute: Callable[..., Tensor], rows: int, scores: Tensor, *more: tuple[Maybe, int]
) -> Tensor:
    """Return `compute` of tensors with leading batch axes, some lists at a time if lists are large.

    The lists are large if their matrices have more than `MOST_ELEMENTS` elements together.

    Args:
        compute: a function of all the tensors that treats each list separately. It must not close
            over a tensor.
        rows: the number of rows of a list's matrix, which is rows x n.
        scores: (..., n), with all batch axes.
        more: other tensors, or None, each with the number of its own last axes. Their batch axes
            are broadcast.

    >>> x = torch.arange(6.0).view(3, 2)
    >>> by_lists(lambda x: (x.unsqueeze(-1) * x.unsqueeze(-2)).sum(-1), 2, x)
    tensor([[ 0.,  1.],
            [10., 15.],
            [36., 45.]])
    """
    if scores.numel() * rows <= MOST_ELEMENTS or scores.dim() == 1 or torch.compiler.is_compiling():
        return compute(scores, *(x for x, _ in more))
    batch = scores.shape[:-1]
    given = [None if x is None else x.expand(*batch, *x.shape[x.dim() - k :]) for x, k in more]
    known = [x is not None for x in given]
    tensors = [
        x.flatten(0, len(batch) - 1).movedim(0, -1) for x in (scores, *given) if x is not None
    ]

    def part(whole: Sequence[Tensor], tiled: Sequence[Tensor]) -> tuple[Any, Any]:
        scores, *lists = (x.movedim(-1, 0) for x in tiled)
        left = iter(lists)
        return [], [
            compute(scores, *(next(left) if is_given else None for is_given in known)).movedim(
                0, -1
            )
        ]

    (results,) = over_tiles(Tiles(part, 0, 0, 1, rows), *tensors)
    return results.movedim(-1, 0).unflatten(0, batch)


class _OverTiles(Rule):
    def __init__(self, task: Tiles) -> None:
        self.task = task
        self.saved_outputs = tuple(range(task.sums + task.joined))

    def values(self, *tensors: Tensor, **_: Any) -> tuple[Tensor, ...]:
        task = self.task
        whole, tiled = tensors[: task.whole], tensors[task.whole :]
        count, entries = tiled[0].shape[-1], task.length * tiled[0].shape[:-1].numel()
        sums: list[Tensor] = []
        joined: list[Tensor] = []
        for tile in tiles(count, entries) if count else [slice(0)]:
            terms, results = task.part(whole, [x[..., tile] for x in tiled])
            if not tile.start:
                # The results get their own memory: a tensor kept from a tile would fragment the
                # heap.
                sums = [torch.zeros_like(x) for x in terms]
                joined = [y.new_empty((*y.shape[:-1], count)) for y in results]
            for x, y in zip(sums, terms, strict=True):
                x += y
            for x, y in zip(joined, results, strict=True):
                x[..., tile] = y
        return (*sums, *joined)

    def gradients(
        self, needed: Sequence[bool], cotangents: Sequence[Maybe], *saved: Any
    ) -> Sequence[Maybe]:
        task, tensors, results = self.task, saved[: len(needed)], saved[len(needed) :]
        wanted = [i for i, is_needed in enumerate(needed) if is_needed]
        grads = [
            torch.zeros_like(x) if g is None else g
            for x, g in zip(results, cotangents, strict=True)
        ]
        whole, tiled = tensors[: task.whole], tensors[task.whole :]
        inputs = [*whole, *grads[: task.sums], *tiled, *grads[task.sums :]]
        gradients: list[Maybe] = [None] * len(tensors)
        for i, grad in zip(
            wanted, over_tiles(_pullback(task, len(tiled), wanted), *inputs), strict=True
        ):
            gradients[i] = grad
        return gradients


def _pullback(task: Tiles, tiled_count: int, wanted: list[int]) -> Tiles:
    # Return the task that computes the wanted gradients from the tensors and from the gradients of
    # the results.

    def part(whole: Sequence[Tensor], tiled: Sequence[Tensor]) -> tuple[Any, Any]:
        inputs = [*whole[: task.whole], *tiled[:tiled_count]]

        def results(*chosen: Tensor) -> tuple[Tensor, ...]:
            return _flat(task, inputs, wanted, chosen)

        _, pull = torch.func.vjp(results, *[inputs[i] for i in wanted])  # pyright: ignore
        grads = pull((*whole[task.whole :], *tiled[tiled_count:]))
        return grads[:inside], grads[inside:]

    inside = sum(i < task.whole for i in wanted)
    return Tiles(part, task.whole + task.sums, inside, len(wanted) - inside, task.length)


def _flat(
    task: Tiles, inputs: Sequence[Tensor], positions: list[int], chosen: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    # Return the results for the inputs, of which those at `positions` are replaced by `chosen`.
    inputs = list(inputs)
    for i, x in zip(positions, chosen, strict=True):
        inputs[i] = x
    sums, joined = task.part(inputs[: task.whole], inputs[task.whole :])
    return (*sums, *joined)
