"""Sums of the logistic loss over pairs of items with different grades, in the time of a sort."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ltr.kernels.choice import IMPLEMENTATION, compiled
from ltr.kernels.named import COUNT_KERNELS
from ltr.kernels.sorting import descending_order

MOST_GRADES = 32
"""The most grades of a list in `graded_pair_sums`, whose cost per item is O(grades)."""


class GradedWeights(NamedTuple):
    """Pair weights |g_i - g_j| |D_i - D_j| of `graded_pair_sums`; by default all are 1.

    g is a function of the grade. D is a function of the rank (the position in the order of the
    scores), and never increases with the rank. Without `gains` the first factor is 1 for each pair
    of items with different grades, and without `discounts` the second factor is 1.
    """

    gains: Tensor | None = None
    """The gains g, (..., n)."""
    discounts: Any = None
    """The discounts D of ranks 1, 2, ..., (n,), an array or a tensor."""
    ideal: Any = None
    """The discounts of the ideal DCG, (n,), or None. If `gains` are given too, the weights are
    divided by the ideal DCG: the largest sum, over all orders of the items, of g times these
    discounts. If that sum is not positive, the weights are not divided."""
    upper: int | None = None
    """Pairs count only if their higher-scored item has at most this rank. Default: all count."""
    last: int | None = None
    """Pairs count only if both items have at most this rank. Default: all count."""


def graded_pair_sums(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    pair_weights: GradedWeights | None = None,
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return each list's weighted sum of pair costs, its sum of weights, and a gradient.

    The sums are over the pairs with y_i > y_j. The cost is log(1 + exp((s_j - s_i) / tau)), and the
    weight is the pair weight times the item weight of i. The gradient is that of the first sum by
    the scores. One compiled sweep in each direction computes all three results, and autograd
    records nothing.

    Args:
        scores: (..., n), the s, float32 or float64.
        labels: (..., n), the y, in the scores' dtype.
        mask: (..., n) bool, True = a real item. Default: all are real.
        weights: (..., n) item weights in the scores' dtype. Default: 1.
        pair_weights: see `GradedWeights`. Default: 1.
        temperature: tau > 0, in units of the scores.

    Returns:
        Sums (...), sums of weights (...) and gradients (..., n). None if the sweeps do not apply:
        the scores are not on the CPU, numba is missing, a list has more than `MOST_GRADES` distinct
        labels, or a score or label is not finite. Time O(n log n + n grades), memory O(n).

    >>> s, y = torch.tensor([0.0, 1.0, 0.0]), torch.tensor([1.0, 0.0, 2.0])
    >>> graded_pair_sums(s, y)
    (tensor(3.3197), tensor(3.), tensor([-0.2311,  1.4621, -1.2311]))
    """
    kind = pair_weights or GradedWeights()
    lists = _lists(scores, labels, mask, weights, kind.gains)
    if lists is None:
        return None
    from ltr.kernels.cpu.jit import run_parallel
    from ltr.kernels.cpu.pairs import PairTotals, graded_pairs

    n, batch, dtype = scores.shape[-1], scores.shape[:-1], lists.x.dtype
    size = batch.numel()
    total, weight = np.zeros(size, dtype), np.zeros(size, dtype)
    slopes, flags = np.zeros((size, n), dtype), np.zeros(size, np.int8)
    rule = _rule(kind, n, temperature, scores)
    results = PairTotals(total, weight, slopes, flags)
    if n and size:
        run_parallel(graded_pairs, (lists, rule, results), size, 20 * size * n)
    if flags.any():
        return None
    sums, of = torch.from_numpy(total.reshape(batch)), torch.from_numpy(weight.reshape(batch))
    return sums, of, torch.from_numpy(slopes.reshape(scores.shape))


def graded_item_costs(
    scores: Tensor, grades: Tensor, mask: Tensor | None = None, temperature: float = 1.0
) -> tuple[Tensor, Tensor] | None:
    """Return the cost of each item with all items of lower grades, and its ideal rank.

    The cost of item i is the sum of log(1 + exp((s_j - s_i) / tau)) over the items j of lower
    grades. So the total of `graded_pair_sums` is the sum of the costs times the item weights. The
    ideal rank is the rank by descending grade, with equal grades by descending score.

    Args:
        scores: (..., n), the s, float32 or float64.
        grades: (..., n), in the scores' dtype.
        mask: (..., n) bool, True = a real item. Default: all are real.
        temperature: tau > 0, in units of the scores.

    Returns:
        Costs and ideal ranks, (..., n) each, without gradients. A masked item has cost 0 and, in a
        list of m items, rank m + 1. None where `graded_pair_sums` returns None. Time O(n log n + n
        grades), memory O(n).

    >>> graded_item_costs(torch.tensor([0.0, 1.0, 0.0]), torch.tensor([1.0, 0.0, 2.0]))
    (tensor([1.3133, 0.0000, 2.0064]), tensor([2., 3., 1.]))
    """
    lists = _lists(scores, grades, mask)
    if lists is None:
        return None
    from ltr.kernels.cpu.jit import run_parallel
    from ltr.kernels.cpu.pairs import ItemSums, lower_costs

    n, size = scores.shape[-1], scores.shape[:-1].numel()
    rule = _rule(GradedWeights(), n, temperature, scores)
    results = ItemSums(np.zeros_like(lists.x), np.zeros_like(lists.x), np.zeros(size, np.int8))
    if n and size:
        run_parallel(lower_costs, (lists, rule, results), size, 20 * size * n)
    if results.flags.any():
        return None
    costs, ideal = (torch.from_numpy(y.reshape(scores.shape)) for y in results[:2])
    return costs, ideal


def _lists(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    weights: Tensor | None = None,
    gains: Tensor | None = None,
) -> Any:
    # Return the arrays of the compiled sweeps; None if numba's code does not run on these scores.
    if not scores.is_cpu or (IMPLEMENTATION.get() or compiled()).name != "cpu":
        return None
    from ltr.kernels.cpu.pairs import Lists

    n = scores.shape[-1]
    return Lists(
        _rows(scores, n),
        _rows(descending_order(scores, mask), n),
        _rows(labels, n, scores),
        np.empty((0, 0), np.bool_) if mask is None else _rows(mask, n),
        _rows(weights, n, scores),
        _rows(gains, n, scores),
    )


def _rule(kind: GradedWeights, n: int, temperature: float, scores: Tensor) -> Any:
    from ltr.kernels.cpu.pairs import PairRule

    return PairRule(
        np.asarray([] if kind.discounts is None else kind.discounts, np.float64),
        np.asarray([] if kind.ideal is None else kind.ideal, np.float64),
        n if kind.upper is None else kind.upper,
        n if kind.last is None else kind.last,
        1 / temperature,
        _fit(scores.dtype),
        MOST_GRADES,
    )


def _rows(x: Tensor | None, n: int, like: Tensor | None = None) -> Any:
    # Return an array (lists, n) for numba, or an empty array for None. The layout is always the
    # same, so that numba compiles once.
    if x is None:
        assert like is not None
        return np.empty((0, 0), np.float64 if like.dtype == torch.float64 else np.float32)
    x = x.detach()
    if like is not None and x.dtype != like.dtype:
        x = x.to(like.dtype)
    return np.ascontiguousarray(x.numpy()).reshape(x.shape[:-1].numel(), n)


@cache
def _fit(dtype: torch.dtype) -> Any:
    # Return the weights of softplus and its derivative, padded with 0 to a multiple of four nodes.
    profile = COUNT_KERNELS["softplus"][dtype].below
    fit = np.zeros((2, -(-len(profile.weights) // 4) * 4))
    fit[:, : len(profile.weights)] = np.real([profile.weights, profile.slopes[0]])
    return fit
