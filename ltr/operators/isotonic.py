"""Projections onto the permutahedron (Blondel et al. 2020): soft ranks and sorted values."""

from itertools import count as counting
from math import exp, log1p
from typing import Literal

import torch
from torch import Tensor, nn

from ltr.kernels.sorting import descending_order, in_list_order
from ltr.operators.base import TemperatureRank, hard_or_soft, hard_sort
from ltr.operators.order import nan_in_list
from ltr.shapes import (
    check_choice,
    check_temperature,
    count,
    positions,
    widened,
)


@torch.library.custom_op("ltr::isotonic_blocks", mutates_args=())
def isotonic_blocks(p: Tensor, q: Tensor, length: Tensor, kl: bool) -> Tensor:
    """Return the blocks of the ascending isotonic fit whose value on a block is A(p) - A(q).

    A is the mean (`kl=False`) or the log-sum-exp (`kl=True`) over the block. Such fits give the
    projections onto the permutahedron in Blondel et al. 2020, sections 4 and 5.

    The blocks are returned as whole numbers without a gradient. From the blocks, the operators
    compute values and derivatives by formulas in plain PyTorch. So second derivatives are correct,
    and no caller has to find the blocks by comparing rounded values.

    Args:
        p: (..., n), float64.
        q: (..., n), float64.
        length: (..., 1) int64, the number of items to fit; each later item is its own block.
        kl: whether A is the log-sum-exp (True) or the mean (False).

    Returns:
        (..., n) int64: the index of the first item of each item's block. Cost: O(n), on the CPU,
        in plain Python.
    """
    if p.numel() == 0:
        return p.new_empty(p.shape, dtype=torch.int64)
    n = p.shape[-1]
    ids = torch.arange(n).repeat(p.numel() // n, 1)
    rows = zip(p.reshape(-1, n).tolist(), q.reshape(-1, n).tolist(), strict=True)
    pool = _pool_log_sums if kl else _pool_means
    for i, (top, bottom), m in zip(counting(), rows, length.reshape(-1).tolist(), strict=False):
        sizes = torch.tensor(pool(top[:m], bottom[:m]), dtype=torch.int64)
        ids[i, :m] = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    return ids.view(p.shape).to(p.device)


@isotonic_blocks.register_fake
def _(p: Tensor, q: Tensor, length: Tensor, kl: bool) -> Tensor:
    return p.new_empty(p.shape, dtype=torch.int64)


def _over_batches(info, in_dims, p: Tensor, q: Tensor, length: Tensor, kl: bool):
    tensors = [
        x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
        for x, dim in zip((p, q, length), in_dims, strict=False)
    ]
    return isotonic_blocks(*tensors, kl), 0


isotonic_blocks.register_vmap(_over_batches)


def _pool_means(p: list[float], q: list[float]) -> list[int]:
    sums: list[float] = []
    sizes: list[int] = []
    for above, below in zip(p, q, strict=True):
        total, size = above - below, 1
        # A mean above the next mean violates the ascending order, so the two blocks are joined. A
        # comparison with NaN is False, so the loop also ends with NaN.
        while sizes and sums[-1] * size > total * sizes[-1]:
            total += sums.pop()
            size += sizes.pop()
        sums.append(total)
        sizes.append(size)
    return sizes


def _pool_log_sums(p: list[float], q: list[float]) -> list[int]:
    tops: list[float] = []
    bottoms: list[float] = []
    sizes: list[int] = []
    for top, bottom in zip(p, q, strict=True):
        size = 1
        while sizes and tops[-1] - bottoms[-1] > top - bottom:
            top = _log_add_exp(top, tops.pop())
            bottom = _log_add_exp(bottom, bottoms.pop())
            size += sizes.pop()
        tops.append(top)
        bottoms.append(bottom)
        sizes.append(size)
    return sizes


def _log_add_exp(a: float, b: float) -> float:
    return a + log1p(exp(b - a)) if a > b else b + log1p(exp(a - b))


Regularization = Literal["l2", "kl"]


def _lengths(x: Tensor, mask: Tensor | None) -> Tensor:
    return count(x, mask).to(torch.int64)


def _block_sum(x: Tensor, ids: Tensor) -> Tensor:
    """Return, for each item, the sum over its block."""
    return torch.zeros_like(x).scatter_add(-1, ids, x).gather(-1, ids)


def _block_max(x: Tensor, ids: Tensor) -> Tensor:
    """Return, for each item, the largest value of its block, without a derivative."""
    return (
        torch.zeros_like(x).scatter_reduce(-1, ids, x, "amax", include_self=False).gather(-1, ids)
    )


def _block_log_softmax(x: Tensor, temperature: float, ids: Tensor) -> Tensor:
    # Subtracting before dividing gives exactly 0 for a block of one item at any temperature.
    logits = (x - _block_max(x.detach(), ids)) / temperature
    return logits - _block_sum(logits.exp(), ids).log()


class IsotonicRank(TemperatureRank):
    """Soft ranks that equal the hard ranks if the scores differ enough (isotonic regression).

    The ranks are -scores / temperature, projected onto the permutahedron: the convex hull of all
    orders of (1, ..., m), for m real items. The hard limit is `hard_ranks`, the vertex of the
    permutahedron that is farthest in the direction of -scores. The pool-adjacent-violators
    algorithm divides the descending scores t into blocks. For position i, counted from 1, in block
    B, the ranks are

    - l2: rank_i = mean_B(i) - (t_i - mean_B(t)) / temperature;
    - kl: rank_i = sum_B(i) * softmax_B(-t / temperature)_i.

    The ranks lie between 1 and m, the ranks of a list sum to m (m + 1) / 2, and tied items share
    their mean rank. At a low temperature the ranks equal the hard ranks to the last digit. The
    temperature is low enough if neighboring scores are at least one temperature apart (with kl:
    log((i + 1) / i) temperatures at position i). As the temperature grows, all ranks tend to
    (m + 1) / 2.

    Derivatives of any order are exact. With l2 the second derivatives are 0, since the ranks are
    piecewise linear. An item that is alone in its block has gradient 0.

    Args:
        temperature: the strength of the regularization, in units of the scores per rank, >= 0; 0
            gives hard ranks (ties in list order, no gradient). Default: 1.
        regularization: "l2" (default; the Euclidean projection, with piecewise linear ranks) or
            "kl" (the projection of the exponentials by Kullback-Leibler divergence; the ranks are
            smooth within a block).

    Cost: one sort and O(n) in float64; the blocks are found on the CPU.

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30), or regularization is unknown.

    Reference: Blondel, Teboul, Berthet and Djolonga, "Fast Differentiable Sorting and Ranking",
    ICML 2020, equation 8 and proposition 3.

    >>> IsotonicRank(temperature=0.1)(torch.tensor([0.3, 0.7, 0.5]))
    tensor([3., 1., 2.])
    >>> IsotonicRank(temperature=1.0)(torch.tensor([2.0, 5.0, 2.5]))
    tensor([2.7500, 1.0000, 2.2500])
    """

    def __init__(self, temperature: float = 1.0, regularization: Regularization = "l2"):
        super().__init__(temperature)
        check_choice("regularization", regularization, "l2", "kl")
        self.regularization: Regularization = regularization

    def soft_ranks(self, scores: Tensor, mask: Tensor | None, weights: Tensor | None) -> Tensor:
        """Return the projection's ranks (..., n) of scores (..., n)."""
        # Sums over long blocks lose digits in float32, and float64 costs almost nothing here.
        exact = widened(scores)
        order = descending_order(exact, mask)
        descending = exact.gather(-1, order)
        position = positions(exact).expand(exact.shape)
        kl = self.regularization == "kl"
        level = -descending.detach() / self.temperature
        ids = isotonic_blocks(level, position.log() if kl else position, _lengths(exact, mask), kl)
        if kl:
            share = _block_log_softmax(-descending, self.temperature, ids).exp()
            ranked = share * _block_sum(position, ids)
        else:
            size = _block_sum(torch.ones_like(position), ids)
            inside = descending - _block_sum(descending, ids) / size
            ranked = _block_sum(position, ids) / size - inside / self.temperature
        return in_list_order(ranked, order).to(scores.dtype)

    def extra_repr(self) -> str:
        """Return the hyper-parameters, for `print`."""
        return f"temperature={self.temperature:g}, regularization={self.regularization!r}"


class IsotonicSort(nn.Module):
    """Soft sorted values, exact if neighboring scores are close enough (isotonic regression).

    The m values are (m, ..., 1) / temperature, projected onto the permutahedron of the m real
    scores: the convex hull of all their orders. The hard limit is
    `torch.sort(scores, descending=True).values`. For position i, counted from 1, in block B of the
    descending scores t, the values are

    - l2: value_i = mean_B(t) - (i - mean_B(i)) / temperature;
    - kl: value_i = logsumexp_B(t) + log_softmax_B(-i / temperature)_i.

    There is no matrix, so this class is not a `SortOperator`: `forward` returns the values. At a
    low temperature the values are exactly the sorted scores. As the temperature grows, all values
    tend to the mean of the scores (with kl: to the logarithm of the mean of their exponentials).
    With l2 the values have the same sum as the scores; with kl the exponentials of the values have
    the same sum as those of the scores.

    Args:
        temperature: the strength of the regularization, in ranks per unit of the scores (the
            inverse of the unit in `IsotonicRank`), >= 0; 0 gives the hard values with their
            gradient. Default: 0.1; with l2 the values are then exact if no gap between neighboring
            scores exceeds 10, which is 1 / temperature.
        regularization: "l2" (default) or "kl".

    Cost: one sort and O(n) in float64; the blocks are found on the CPU.

    Raises:
        ValueError: temperature < 0 or in (0, 1e-30), or regularization is unknown.

    Reference: Blondel et al., ICML 2020, equation 7 and proposition 3.

    >>> IsotonicSort()(torch.tensor([0.3, 0.7, 0.5]))
    tensor([0.7000, 0.5000, 0.3000])
    >>> IsotonicSort(temperature=1.0)(torch.tensor([2.0, 7.0, 2.5]))
    tensor([4.8333, 3.8333, 2.8333])
    """

    def __init__(self, temperature: float = 0.1, regularization: Regularization = "l2"):
        super().__init__()
        self.temperature = check_temperature(temperature)
        check_choice("regularization", regularization, "l2", "kl")
        self.regularization: Regularization = regularization

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Return soft sorted values (..., n) of scores (..., n); weights are refused.

        The values descend, and are 0 past the m real items.
        """
        return hard_or_soft(self, hard_sort, self.soft_sort, scores, mask, weights)

    @property
    def is_hard(self) -> bool:
        """Return whether the temperature is 0."""
        return self.temperature == 0

    def soft_sort(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return the projection's values (..., n), for `forward`; scores are 0 where masked."""
        exact = widened(scores)
        descending = exact.gather(-1, descending_order(exact.detach(), mask))
        position = positions(exact).expand(exact.shape)
        kl = self.regularization == "kl"
        floor = -position / self.temperature
        ids = isotonic_blocks(descending.detach(), floor, _lengths(exact, mask), kl)
        if kl:
            peak = _block_max(descending.detach(), ids)
            total = peak + _block_sum((descending - peak).exp(), ids).log()
            values = total + _block_log_softmax(-position, self.temperature, ids)
        else:
            size = _block_sum(torch.ones_like(position), ids)
            inside = position - _block_sum(position, ids) / size
            values = _block_sum(descending, ids) / size - inside / self.temperature
        if mask is not None:
            values = torch.where(positions(exact) <= count(exact, mask), values, 0.0)
        return nan_in_list(values, scores).to(scores.dtype)

    def extra_repr(self) -> str:
        """Return the hyper-parameters, for `print`."""
        return f"temperature={self.temperature:g}, regularization={self.regularization!r}"
