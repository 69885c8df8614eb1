"""SoftSort's ranks for power 1: kernel sums, fused into one compiled call each way on the CPU.

In sorted order the ranks are y = K u, with u = rho / c, c = K 1, rho = 1..n and K the matrix of
exp(-|t_i - t_j| / temperature). With h = dLoss/dy, grad_c = -(K h) u / c = dLoss/dc, and S v = K'
v, the sums of the slopes, dLoss/dt = h S u + u S h + grad_c S 1 + S grad_c.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ltr._shapes import positions
from ltr.kernels._eager import apply, has_values, is_batched, transformed
from ltr.kernels.implementations import implementation
from ltr.kernels.lists import SortedLists
from ltr.kernels.named import laplace
from ltr.kernels.sorting import batch_first
from ltr.kernels.sums import kernel_sums


def compiled_ranks(
    scores: Tensor, order: Tensor, lengths: Tensor | None, temperature: float
) -> Tensor:
    """The ranks (..., n) of `SoftSort(temperature)`, m + 1 where masked, where `fused` says so.

    Args:
        scores: (..., n), float32 or float64, on the CPU.
        order: (..., n) int64, their falling order, masked items last.
        lengths: (..., 1) int64, how many are real; None for all.
        temperature: > 0.

    Cost: O(n), one call each way; differentiable to any order, then by `kernel_sums`.

    >>> scores = torch.tensor([0.1, 0.9, 0.4])
    >>> compiled_ranks(scores, torch.tensor([1, 2, 0]), None, 0.2)
    tensor([2.7751, 1.0788, 2.1461])
    """
    if transformed():
        return _Ranks.apply(scores, order, lengths, temperature)[0]
    return apply(_Eager, scores, order, lengths, temperature)


def fused(scores: Tensor) -> bool:
    """Return whether `compiled_ranks` takes these scores: eager, on the CPU, with numba."""
    if not scores.is_cpu or not has_values(scores) or not scores.numel():
        return False
    return implementation("cpu").__module__ == "ltr.kernels._numba"


class _Ranks(torch.autograd.Function):
    # gives c, in sorted order, as well: the compiled backward needs it

    @staticmethod
    def forward(
        scores: Tensor, order: Tensor, lengths: Tensor | None, temperature: float
    ) -> tuple[Tensor, Tensor]:
        ranks, sums = _forward(_arrays(scores, order, lengths), temperature)
        shape = scores.shape
        return torch.from_numpy(ranks.reshape(shape)), torch.from_numpy(sums.reshape(shape))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        scores, order, lengths, ctx.temperature = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(scores, order, lengths, output[1])
        ctx.save_for_forward(scores, order, lengths)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        scores, order, lengths, sums = ctx.saved_tensors
        gradient = grad_outputs[0]
        if _in_parts(gradient):
            found = _gradient(scores, order, lengths, gradient, ctx.temperature)
        else:
            arrays = _arrays(scores, order, lengths)
            found = _backward(arrays, _rows(sums, scores.shape[-1]), gradient, ctx.temperature)
        return found, None, None, None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> tuple[Tensor, None]:
        scores, order, lengths = ctx.saved_tensors
        lists, u, c, one = _parts(scores, order, lengths, ctx.temperature)
        moved, k = grad_inputs[0], laplace()
        slope = k.derivative
        outputs = [(0, slope), (1, slope), (2, slope), (3, slope)]
        columns = [one, moved, u, moved * u]
        a, b, e, f = kernel_sums(scores, columns, outputs, lists, ctx.temperature)
        of_u = -u * (moved * a - b) / c
        (g,) = kernel_sums(scores, [of_u], [(0, k)], lists, ctx.temperature)
        return moved * e - f + g, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, tuple[int, int]]:
        pairs = zip(args[:3], in_dims[:3], strict=True)
        tensors = [batch_first(x, dim, info.batch_size) for x, dim in pairs]
        return _Ranks.apply(*tensors, args[3]), (0, 0)


class _Eager(torch.autograd.Function):
    # the same where no transform is at work, with half of what a call costs a short list: the
    # context keeps what the backward takes as it is, beside the tensors that autograd watches

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, order: Tensor, lengths: Tensor | None, temperature: float
    ) -> Tensor:
        arrays = _arrays(scores, order, lengths)
        ranks, sums = _forward(arrays, temperature)
        ctx.save_for_backward(scores, order, lengths)
        ctx.save_for_forward(scores, order, lengths)
        ctx.arrays, ctx.sums, ctx.temperature = arrays, sums, temperature
        return torch.from_numpy(ranks.reshape(scores.shape))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        scores, order, lengths = ctx.saved_tensors
        (gradient,) = grad_outputs
        if _in_parts(gradient):
            found = _gradient(scores, order, lengths, gradient, ctx.temperature)
        else:
            found = _backward(ctx.arrays, ctx.sums, gradient, ctx.temperature)
        return found, None, None, None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Tensor:
        return _Ranks.jvp(ctx, *grad_inputs)[0]


def _in_parts(gradient: Tensor) -> bool:
    # where it is to be differentiated again, or is one of several gradients
    return torch.is_grad_enabled() or is_batched(gradient)


def _forward(arrays: tuple[Any, Any, Any], temperature: float) -> tuple[Any, Any]:
    from ltr.kernels._softsort_numba import forward

    x = arrays[0]
    ranks, sums = np.empty_like(x), np.empty_like(x)
    _each_row(forward, *arrays, 1 / temperature, ranks, sums)
    return ranks, sums


def _backward(
    arrays: tuple[Any, Any, Any], sums: Any, gradient: Tensor, temperature: float
) -> Tensor:
    from ltr.kernels._softsort_numba import backward

    found = np.empty_like(arrays[0])
    given = _rows(gradient, found.shape[1])
    _each_row(backward, *arrays, 1 / temperature, sums, given, found)
    return torch.from_numpy(found.reshape(gradient.shape))


def _parts(
    scores: Tensor, order: Tensor, lengths: Tensor | None, temperature: float
) -> tuple[SortedLists, Tensor, Tensor, Tensor]:
    # the lists, u and c in the items' order, and ones
    if lengths is None:
        lengths = order.new_full((*scores.shape[:-1], 1), scores.shape[-1])
    lists = SortedLists(order, torch.zeros_like(lengths), lengths)
    one = scores.new_ones(()).expand(scores.shape)
    (c,) = kernel_sums(scores, [one], [(0, laplace())], lists, temperature)
    rho = torch.empty_like(scores).scatter(-1, order, positions(scores).expand(scores.shape))
    real = rho <= lengths
    c = torch.where(real, c, 1.0)
    return lists, torch.where(real, rho / c, 0.0), c, one


def _gradient(
    scores: Tensor, order: Tensor, lengths: Tensor | None, h: Tensor, temperature: float
) -> Tensor:
    # the formula above, by `kernel_sums`: the plain definition of the compiled backward
    lists, u, c, one = _parts(scores, order, lengths, temperature)
    k = laplace()
    slope = k.derivative
    outputs = [(0, slope), (1, slope), (2, slope), (1, k)]
    a, b, e, w = kernel_sums(scores, [u, h, one], outputs, lists, temperature)
    grad_c = -w * u / c
    (f,) = kernel_sums(scores, [grad_c], [(0, slope)], lists, temperature)
    return h * a + u * b + grad_c * e + f


def _arrays(scores: Tensor, order: Tensor, lengths: Tensor | None) -> tuple[Any, Any, Any]:
    # scores and order (lists, n), lengths (lists,), of one layout: or numba would compile more
    n = scores.shape[-1]
    x = _rows(scores, n)
    return x, _rows(order, n), _all(*x.shape) if lengths is None else _rows(lengths, 1)[:, 0]


@lru_cache(16)
def _all(lists: int, n: int) -> Any:
    lengths = np.full((lists, 1), n)  # numpy keeps it writable, as all others are
    return lengths[:, 0]


def _rows(x: Tensor, n: int) -> Any:
    return np.ascontiguousarray(x.numpy()).reshape(-1, n)


def _each_row(function: Any, x: Any, *rest: Any) -> None:
    from ltr.kernels._jit import run_parallel

    run_parallel(lambda a, b: function(x, *rest, a, b), len(x), 8 * x.size)
