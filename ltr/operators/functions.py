"""Soft ranks, sorts, top-k and quantiles as functions; each docstring names the hard limit.

Each function takes x and, after any arguments of its own,
`operator=None, mask=None, dim=-1, descending=True, *, temperature=None`. The operator is any
`RankOperator`, or any `SortOperator` if a matrix is needed. The default is `SoftSort()`, with
temperature 0.1 for values of unit scale. `temperature=0.5` is short for `operator=SoftSort(0.5)`.
`dim` is the axis of the list. With `descending=False` the operator gets -x. A `Stochastic` operator
in training mode draws noise once per call and adds a first axis of samples. Half-precision input
gives float32 results.
"""

from collections.abc import Sequence
from numbers import Integral
from typing import NamedTuple, cast

import torch
from torch import Tensor

from ltr.operators.base import RankOperator, SortOperator, check_operator
from ltr.operators.isotonic import IsotonicSort
from ltr.operators.permutation import SoftPermutation, check_rows, take_along
from ltr.operators.softsort import SoftSort
from ltr.operators.stochastic import needs_matrix, one_draw
from ltr.shapes import (
    check_levels,
    check_lists,
    check_whole,
    count,
    refuse_nested,
    upcast,
)


class SoftTopK(NamedTuple):
    """The result of `soft_topk`.

    Attributes:
        values: the k highest values; the list axis has length k.
        membership: the soft membership of each item in the first k, in the shape of x.

    >>> soft_topk(torch.tensor([0.3, 0.7, 0.5]), 1, SoftSort(0.01)).values
    tensor([0.7000])
    """

    values: Tensor
    membership: Tensor


def soft_rank(
    x: Tensor,
    operator: RankOperator | None = None,
    mask: Tensor | None = None,
    dim: int = -1,
    descending: bool = True,
    *,
    temperature: float | None = None,
) -> Tensor:
    """Return soft ranks along `dim`; 1 = the highest value, or the lowest if not `descending`.

    The hard limit is `1 + x.argsort(dim, descending=True).argsort(dim)`.

    Args:
        x: any shape with at least one axis, any floating dtype.
        operator: any `RankOperator`. Default: `SoftSort()`.
        mask: bool in the shape of x, True for a real item; masked items have rank m + 1 in a list
            with m real items. Default: all are real.
        dim: the axis of the list. Default: the last axis.
        descending: whether rank 1 is the highest value (default) or the lowest.
        temperature: the temperature of `SoftSort`, instead of an operator; 0 gives the hard
            limit. Default: 0.1.

    Returns:
        A tensor in the shape of x; a `Stochastic` operator in training mode adds a first axis.

    Raises:
        ValueError: x or mask is not as described above, or operator and temperature are both given.

    >>> soft_rank(torch.tensor([0.3, 0.7, 0.5]), temperature=0.01)
    tensor([3., 1., 2.])
    >>> soft_rank(torch.tensor([0.3, 0.7, 0.5]), SoftSort(0.01), descending=False)
    tensor([1., 3., 2.])
    """
    chosen = _chosen(operator, temperature)
    x, mask, back = _lists(x, mask, dim)
    ranks = chosen(x if descending else -x, mask)
    return ranks.movedim(-1, back)


def soft_sort(
    x: Tensor,
    operator: SortOperator | IsotonicSort | None = None,
    mask: Tensor | None = None,
    dim: int = -1,
    descending: bool = True,
    *,
    temperature: float | None = None,
) -> Tensor:
    """Return softly sorted values along `dim`: the soft permutation applied to x.

    The hard limit is `torch.sort(x, dim, descending=True).values` (note that torch's own default
    is ascending). With a mask, the m real values come first, then zeros. A `Stochastic` operator
    adds noise to the keys that decide the order, not to the values.

    Args:
        x: any shape with at least one axis, any floating dtype.
        operator: a `SortOperator`, or an `IsotonicSort`. Default: `SoftSort()`.
        mask: bool in the shape of x, True for a real item. Default: all are real.
        dim: the axis of the list. Default: the last axis.
        descending: whether the highest value comes first (default) or the lowest.
        temperature: the temperature of `SoftSort`, instead of an operator; 0 gives the hard
            limit. Default: 0.1.

    Raises:
        ValueError: the operator has no permutation, or operator and temperature are both given.

    >>> soft_sort(torch.tensor([0.3, 0.7, 0.5]), SoftSort(0.01))
    tensor([0.7000, 0.5000, 0.3000])
    """
    x, mask, back = _lists(x, mask, dim)
    return _sorted(x, operator, temperature, mask, descending, "soft_sort").movedim(-1, back)


def sort_with(
    x: Tensor,
    values: Tensor,
    operator: SortOperator | None = None,
    mask: Tensor | None = None,
    dim: int = -1,
    descending: bool = True,
    *,
    temperature: float | None = None,
) -> Tensor:
    """Return `values` softly sorted along `dim` by the keys x.

    The soft permutation of x is applied to the values. The hard limit is
    `values[x.argsort(descending=True)]`. With the values 0..n-1 these are soft indices.

    Args:
        x: the keys.
        values: the values, in the shape of x plus any trailing axes: one number, vector, image or
            other tensor per key.
        operator: a `SortOperator`. Default: `SoftSort()`.
        mask: bool in the shape of x, True for a real item. Default: all are real.
        dim: the axis of x that is the list. Default: the last axis of x.
        descending: whether the highest key comes first (default) or the lowest.
        temperature: the temperature of `SoftSort`, instead of an operator; 0 gives the hard
            limit. Default: 0.1.

    Returns:
        A tensor in the shape of values; a `Stochastic` operator in training mode adds a first axis.

    Raises:
        ValueError: the shape of values does not begin with that of x, the operator has no
            permutation, or operator and temperature are both given.

    >>> colors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> sort_with(torch.tensor([0.3, 0.7, 0.5]), colors, SoftSort(0.01)).round()
    tensor([[0., 1.],
            [0., 0.],
            [1., 0.]])
    """
    refuse_nested(x=x, values=values)
    keys, mask, back = _lists(x, mask, dim)
    if not isinstance(values, Tensor) or values.shape[: x.dim()] != x.shape:
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"values must begin with the shape of x, {tuple(x.shape)}, got {got}")
    trailing = values.shape[x.dim() :]
    axis = dim % x.dim()
    values = values.movedim(axis, x.dim() - 1).reshape(*_moved(x.shape, axis), trailing.numel())
    P = _permutation(keys, _chosen(operator, temperature), mask, descending, "sort_with")
    result = P.matmul(upcast(values)).unflatten(-1, trailing if trailing else (1,))
    if not trailing:
        return result.squeeze(-1).movedim(-1, back)
    return result.movedim(-1 - len(trailing), back - len(trailing))


def soft_topk(
    x: Tensor,
    k: int,
    operator: SortOperator | None = None,
    mask: Tensor | None = None,
    dim: int = -1,
    descending: bool = True,
    *,
    temperature: float | None = None,
) -> SoftTopK:
    """Return the k highest values, and each item's membership in the first k, as a `SoftTopK`.

    The hard limit is `torch.topk(x, k, dim, largest=True)`. Memberships, from 0 to 1 in the shape
    of x, replace the indices that `torch.topk` returns. The values of a list with fewer than k real
    items end with zeros.

    Args:
        x: any shape with at least one axis, any floating dtype.
        k: a whole number from 1 to the length of the list.
        operator: a `SortOperator`. Default: `SoftSort()`.
        mask: bool in the shape of x, True for a real item. Default: all are real.
        dim: the axis of the list. Default: the last axis.
        descending: whether to take the highest (default) or the lowest values.
        temperature: the temperature of `SoftSort`, instead of an operator; 0 gives the hard
            limit. Default: 0.1.

    Raises:
        ValueError: k is out of range, the operator has no permutation with one row for each item,
            or operator and temperature are both given.

    >>> values, membership = soft_topk(torch.tensor([0.3, 0.7, 0.5]), 2, SoftSort(0.01))
    >>> values, membership.round()
    (tensor([0.7000, 0.5000]), tensor([0., 1., 1.]))
    """
    chosen = _chosen(operator, temperature)
    x, mask, back = _lists(x, mask, dim)
    n = x.shape[-1]
    if check_whole("k", k, f"a whole number from 1 to {n}") > n:
        raise ValueError(f"k must be a whole number from 1 to {n}, got {k!r}")
    plain, keys, noisy_mask = one_draw(chosen, x if descending else -x, mask)
    P = needs_matrix(plain, "soft_topk").permutation(keys, noisy_mask)
    check_rows(P.rows, n)
    values = P.top(k).mv(upcast(x))
    membership = plain.top_k(k, keys, noisy_mask)
    return SoftTopK(values.movedim(-1, back), membership.movedim(-1, back))


def soft_quantile(
    x: Tensor,
    q: float | Sequence[float] | Tensor,
    operator: SortOperator | IsotonicSort | None = None,
    mask: Tensor | None = None,
    dim: int = -1,
    descending: bool = True,
    *,
    temperature: float | None = None,
) -> Tensor:
    """Return soft quantiles along `dim`: soft sorted values, interpolated linearly.

    The quantile of level q is at position q (m - 1) of the m real values, counted from 0 for the
    lowest value. The hard limit is `torch.quantile(x, q, dim)`. A list with no real item gives 0.

    Args:
        x: any shape with at least one axis, any floating dtype.
        q: one level in [0, 1], or several in a sequence or a tensor (Q,).
        operator: a `SortOperator`, or an `IsotonicSort`. Default: `SoftSort()`.
        mask: bool in the shape of x, True for a real item. Default: all are real.
        dim: the axis of the list. Default: the last axis.
        descending: how values are sorted internally; it does not change the meaning of q.
        temperature: the temperature of `SoftSort`, instead of an operator; 0 gives the hard
            limit. Default: 0.1.

    Returns:
        A tensor in the shape of x without `dim`; Q levels add a first axis, as in `torch.quantile`.

    Raises:
        ValueError: x has no items, a level is outside [0, 1] (not checked for a tensor), the
            operator has no permutation with one row for each item, or operator and temperature are
            both given.

    >>> soft_quantile(torch.tensor([0.0, 1.0, 2.0, 3.0]), 0.25, SoftSort(0.01))
    tensor(0.7500)
    """
    x, mask, _ = _lists(x, mask, dim)
    if not isinstance(q, Tensor):  # a check of a tensor's values would wait for the device
        check_levels("q", q)
    if x.shape[-1] == 0:
        raise ValueError(f"x must have at least one item, got shape {tuple(x.shape)}")
    values = _sorted(x, operator, temperature, mask, descending, "soft_quantile")
    check_rows(values.shape[-1], x.shape[-1])
    levels = torch.as_tensor(q, dtype=values.dtype, device=values.device)
    if levels.dim() > 1:
        raise ValueError(f"q must be one level or a list of levels, got {tuple(levels.shape)}")
    m = count(upcast(x), mask)  # (..., 1)
    # The positions count from 0 for the lowest value.
    position = levels.reshape(-1) * (m - 1).clamp(min=0)  # (..., Q)
    below = position.detach().floor()
    above = torch.minimum(below + 1, (m - 1).clamp(min=0))
    low, high = (
        take_along(values, (m - 1 - i if descending else i).clamp(min=0).long(), -1)
        for i in (below, above)
    )
    result = torch.lerp(low, high, (position - below).to(values.dtype).expand_as(low))
    return result.squeeze(-1) if levels.dim() == 0 else result.movedim(-1, 0)


def soft_median(
    x: Tensor,
    operator: SortOperator | IsotonicSort | None = None,
    mask: Tensor | None = None,
    dim: int = -1,
    descending: bool = True,
    *,
    temperature: float | None = None,
) -> Tensor:
    """Return the soft median along `dim`: for an even number of items, the mean of the middle two.

    The hard limit is `torch.quantile(x, 0.5, dim)`, which is numpy's median (`torch.median` takes
    the lower of the two middle values). The arguments are those of `soft_quantile`.

    >>> soft_median(torch.tensor([5.0, 0.0, 1.0, 2.0]), SoftSort(0.01))
    tensor(1.5000)
    """
    return soft_quantile(x, 0.5, operator, mask, dim, descending, temperature=temperature)


def _chosen(
    operator: RankOperator | IsotonicSort | None, temperature: float | None
) -> RankOperator:
    """Return the chosen operator; at most one of `operator` and `temperature` may be given."""
    if operator is None:
        return SoftSort() if temperature is None else SoftSort(temperature)
    if temperature is not None:
        raise ValueError(
            f"temperature must be None if an operator is given, got {temperature!r} and "
            f"{operator!r}"
        )
    return check_operator(cast(RankOperator, operator))


def _lists(x: Tensor, mask: Tensor | None, dim: int) -> tuple[Tensor, Tensor | None, int]:
    # Move the list axis to the end. Also return the old index of this axis, counted from the
    # end, because the result may get a first axis of samples.
    refuse_nested(x=x, mask=mask)
    has_axis = isinstance(x, Tensor) and isinstance(dim, (int, Integral))
    if not has_axis or not -x.dim() <= dim < x.dim():
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x must be a tensor with an axis dim = {dim!r}, got {got}")
    if not x.is_floating_point():
        raise ValueError(f"x must be floating point, got {x.dtype}")
    if isinstance(mask, Tensor) and mask.shape != x.shape:
        raise ValueError(f"mask must have the shape of x {tuple(x.shape)}, got {tuple(mask.shape)}")
    mask = mask.movedim(dim, -1) if isinstance(mask, Tensor) else mask
    back = dim if dim < 0 else dim - x.dim()
    x = x.movedim(dim, -1)
    check_lists(x, mask=mask)
    return x, mask, back


def _moved(shape: torch.Size, axis: int) -> list[int]:
    return [*shape[:axis], *shape[axis + 1 :], shape[axis]]


def _permutation(
    x: Tensor, operator: RankOperator, mask: Tensor | None, descending: bool, name: str
) -> SoftPermutation:
    plain, keys, mask = one_draw(operator, x if descending else -x, mask)
    return needs_matrix(plain, name).permutation(keys, mask)


def _sorted(
    x: Tensor,
    operator: SortOperator | IsotonicSort | None,
    temperature: float | None,
    mask: Tensor | None,
    descending: bool,
    name: str,
) -> Tensor:
    if isinstance(operator, IsotonicSort) and temperature is None:
        return operator(x, mask) if descending else -operator(-x, mask)
    chosen = _chosen(operator, temperature)
    return _permutation(x, chosen, mask, descending, name).mv(upcast(x))
