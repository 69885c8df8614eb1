"""Weighted columns of `ltr.kernels.rows`, and the derivatives of their weights by the points."""

import torch
from torch import Tensor

Block = tuple[int, int, int]
"""A number of adjacent columns, and the (u, v) of their weight; see `ltr.kernels.rows`."""

ONE: tuple[Block, ...] = ((1, 0, 0),)
"""A column of weight 1."""

Term = tuple[float, slice, Block]
"""A factor, the columns that it multiplies, and the block of the result."""


def slopes(blocks: tuple[Block, ...], temperature: float, power: float | None) -> list[Term]:
    """Return the terms of the derivative of w_ij P_ij, without the row's mean.

    The derivative is by x = t_i - t_j for a power, and by t_j for NeuralSort (power None).

    >>> slopes(ONE, 0.5, None)
    [(4.0, slice(0, 1, None), (1, 1, 0))]
    """
    terms: list[Term] = []
    start = 0
    for size, u, v in blocks:
        place = slice(start, start + size)
        start += size
        if power is None:
            terms.append((2 / temperature, place, (size, u + 1, v)))
            continue
        terms.append((-power / temperature, place, (size, u + 1, v + 1)))
        exponent = u * power - v
        if exponent:
            terms.append((exponent, place, (size, u, v + 1)))
    return terms


def sloped(columns: Tensor, terms: list[Term]) -> tuple[Tensor, tuple[Block, ...]]:
    """Return the columns of the terms side by side, and their blocks."""
    # not an index: torch's older vmap takes no index of everything
    parts = [
        factor * columns.narrow(-1, place.start, place.stop - place.start)
        for factor, place, _ in terms
    ]
    return torch.cat(parts, -1), tuple(block for _, _, block in terms)


def folded(products: Tensor, terms: list[Term]) -> Tensor:
    """Return the products of `sloped` columns, summed for each column."""
    parts = products.split([block[0] for _, _, block in terms], -1)
    sums: dict[int, Tensor] = {}
    for (_, place, _), part in zip(terms, parts, strict=True):
        sums[place.start] = sums[place.start] + part if place.start in sums else part
    return torch.cat(list(sums.values()), -1)


def flat(blocks: tuple[Block, ...]) -> list[int]:
    """Return the numbers of all blocks in a row.

    >>> flat(((1, 0, 0), (2, 1, 0)))
    [1, 0, 0, 2, 1, 0]
    """
    return [number for block in blocks for number in block]
