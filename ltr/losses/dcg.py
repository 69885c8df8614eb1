"""Discounted cumulative gain, written once: for the metric, and for the loss on soft ranks."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ltr._shapes import hide, positions
from ltr.kernels.sorting import falling_values
from ltr.operators import truncated

Gain = Literal["exp2", "linear"] | Callable[[Tensor], Tensor]
Discount = Literal["log2", "letor4"] | Callable[[Tensor], Tensor]


def log2_discount(ranks: Tensor) -> Tensor:
    """1 / log2(1 + rank), the discount of Järvelin and Kekäläinen as the field uses it.

    >>> log2_discount(torch.tensor([1.0, 3.0]))
    tensor([1.0000, 0.5000])
    """
    return torch.log2(1 + ranks).reciprocal()


def letor4_discount(ranks: Tensor) -> Tensor:
    """1 at ranks 1 and 2, then 1 / log2(rank): the discount of LETOR 4's evaluation script.

    >>> letor4_discount(torch.tensor([1.0, 2.0, 4.0]))
    tensor([1.0000, 1.0000, 0.5000])
    """
    return torch.log2(ranks.clamp(min=2)).reciprocal()


def exp2_gain(labels: Tensor) -> Tensor:
    """2^label - 1: each grade is worth twice the one below, and one more.

    >>> exp2_gain(torch.tensor([0.0, 1.0, 4.0]))
    tensor([ 0.,  1., 15.])
    """
    return torch.exp2(labels) - 1


def linear_gain(labels: Tensor) -> Tensor:
    """The label itself.

    >>> linear_gain(torch.tensor([0.0, 1.0, 4.0]))
    tensor([0., 1., 4.])
    """
    return labels


def gain_function(gain: Gain) -> Callable[[Tensor], Tensor]:
    """The function labels -> gains, by name or as it is.

    >>> gain_function("exp2")(torch.tensor([2.0]))
    tensor([3.])
    """
    if gain == "exp2":
        return exp2_gain
    if gain == "linear":
        return linear_gain
    if callable(gain):
        return gain
    raise ValueError(f"gain must be 'exp2', 'linear' or a function, got {gain!r}")


def discount_function(discount: Discount) -> Callable[[Tensor], Tensor]:
    """The function ranks -> discounts, by name or as it is.

    >>> discount_function("log2")(torch.tensor([1.0]))
    tensor([1.])
    """
    if discount == "log2":
        return log2_discount
    if discount == "letor4":
        return letor4_discount
    if callable(discount):
        return discount
    raise ValueError(f"discount must be 'log2', 'letor4' or a function, got {discount!r}")


def item_gains(
    labels: Tensor, mask: Tensor | None, weights: Tensor | None, gain: Callable[[Tensor], Tensor]
) -> Tensor:
    """Gain of each item times its weight, (..., n), 0 under the mask.

    >>> item_gains(torch.tensor([2.0, 1.0]), None, torch.tensor([1.0, 0.5]), gain_function("exp2"))
    tensor([3.0000, 0.5000])
    """
    gains = gain(hide(labels, mask))
    return hide(gains if weights is None else gains * weights, mask)


def ideal_dcg(
    gains: Tensor, discount: Callable[[Tensor], Tensor], top_k: int | None = None
) -> Tensor:
    """The largest DCG that any order of the items has: gains (..., n) -> (...). One sort.

    >>> ideal_dcg(torch.tensor([1.0, 3.0]), log2_discount)
    tensor(3.6309)
    """
    if top_k is not None:
        discount = truncated(discount, top_k, exact=True)
    best = falling_values(gains)
    return (best * discount(positions(best))).sum(-1)
