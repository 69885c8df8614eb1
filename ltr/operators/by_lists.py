"""Functions of lists that need n x n matrices, some lists at a time: bounded memory both ways."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ltr.kernels.autodiff import Maybe, Rule, differentiable
from ltr.kernels.choice import MOST

TILE = 1 << 20
"""The most entries of the matrices of a tile, if it is more than one list: 4 MiB in float32."""

Compute = Callable[..., tuple[Tensor, ...]]


def by_lists(
    compute: Callable[..., Tensor], rows: int, scores: Tensor, *more: tuple[Maybe, int]
) -> Tensor:
    """Return compute of tensors with batch axes in front, some lists at a time if they are many.

    They are if their matrices have more than `MOST` entries. Then a tile has as many lists as have
    `TILE` entries. Derivatives of any order store the tensors alone, and compute each tile again.
    With `torch.compile` all lists are taken at once.

    Args:
        compute: a function of all the tensors, list by list. With tiles the tensors have one batch
            axis. It must close over no tensor that needs a gradient.
        rows: of the matrix of a list, rows x n.
        scores: (..., n), with all batch axes.
        more: other tensors, or None, and for each the number of its own last axes. Their batch axes
            are broadcast.

    >>> x = torch.arange(6.0).view(3, 2)
    >>> by_lists(lambda x: (x.unsqueeze(-1) * x.unsqueeze(-2)).sum(-1), 2, x)
    tensor([[ 0.,  1.],
            [10., 15.],
            [36., 45.]])
    """
    if scores.numel() * rows <= MOST or scores.dim() == 1 or torch.compiler.is_compiling():
        return compute(scores, *(x for x, _ in more))
    batch = scores.shape[:-1]
    tensors = [
        None if x is None else x.expand(*batch, *x.shape[x.dim() - own :]) for x, own in more
    ]
    size = max(1, TILE // (rows * scores.shape[-1]))
    rule = _Tiles(lambda *tile: (compute(*tile),), size, (1, *(own for _, own in more)))
    return differentiable(rule, scores, *tensors)[0]


@dataclass(frozen=True, eq=False)
class _Tiles(Rule):
    """A function of tensors with the same batch axes, `size` lists at a time.

    Args:
        compute: returns a tuple of tensors.
        size: of a tile.
        own: for each tensor, the number of its own last axes.
    """

    compute: Compute
    size: int
    own: tuple[int, ...]

    def values(self, *tensors: Maybe, **_: Any) -> tuple[Tensor, ...]:
        pairs = list(zip(tensors, self.own, strict=True))
        batch = next(x.shape[: x.dim() - own] for x, own in pairs if x is not None)
        lists = [
            None if x is None else x.reshape(-1, *x.shape[x.dim() - own :]) for x, own in pairs
        ]
        tiles = [
            self.compute(*[None if x is None else x[start : start + self.size] for x in lists])
            for start in range(0, math.prod(batch), self.size)
        ]
        found = (torch.cat(pieces) for pieces in zip(*tiles, strict=True))
        return tuple(y.view(*batch, *y.shape[1:]) for y in found)

    def gradients(
        self, needed: Sequence[bool], given: Sequence[Maybe], *saved: Any
    ) -> tuple[Maybe, ...]:
        free = [i for i, need in enumerate(needed) if need]
        known = [k for k, g in enumerate(given) if g is not None]

        def compute(*tile: Any) -> tuple[Tensor, ...]:
            tensors, slopes = tile[: len(saved)], tile[len(saved) :]

            def outputs(*some: Tensor) -> tuple[Tensor, ...]:
                found = _partial(self.compute, tensors, free)(*some)
                return tuple(found[k] for k in known)

            return torch.func.vjp(outputs, *(tensors[i] for i in free))[1](slopes)

        found = iter(self._apply(compute, saved, [given[k] for k in known]))
        return tuple(next(found) if need else None for need in needed)

    def tangents(self, moved: Sequence[Maybe], *saved: Any) -> tuple[Maybe, ...]:
        free = [i for i, change in enumerate(moved) if change is not None]

        def compute(*tile: Any) -> tuple[Tensor, ...]:
            tensors, changes = tile[: len(saved)], tile[len(saved) :]
            at = tuple(tensors[i] for i in free)
            return torch.func.jvp(_partial(self.compute, tensors, free), at, changes)[1]

        return self._apply(compute, saved, [moved[i] for i in free])

    def _apply(
        self, compute: Compute, saved: Sequence[Maybe], more: Sequence[Maybe]
    ) -> tuple[Tensor, ...]:
        # tiles of a function of the saved tensors and of more, with the same batch axes
        axes = next(x.dim() - k for x, k in zip(saved, self.own, strict=True) if x is not None)
        own = *self.own, *(0 if x is None else x.dim() - axes for x in more)
        return differentiable(_Tiles(compute, self.size, own), *saved, *more)


def _partial(compute: Compute, tensors: Sequence[Any], free: list[int]) -> Compute:
    # compute as a function of some of its tensors alone
    def function(*some: Tensor) -> tuple[Tensor, ...]:
        whole = list(tensors)
        for i, x in zip(free, some, strict=True):
            whole[i] = x
        return compute(*whole)

    return function
