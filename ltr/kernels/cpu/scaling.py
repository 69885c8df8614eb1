"""Sinkhorn scaling, matrix by matrix: each matrix stays in the CPU's cache for all iterations."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ltr.kernels.cpu.jit import entry, jit, run_parallel
from ltr.kernels.cpu.vectors import sums_jit


@sums_jit
def _right(K, v, zero, out):  # this sets out to K v
    for i in range(K.shape[0]):
        total = zero
        for j in range(K.shape[1]):
            total += K[i, j] * v[j]
        out[i] = total


@jit
def _left(u, K, out):  # this sets out to u K
    out[:] = 0
    for i in range(K.shape[0]):
        factor = u[i]
        for j in range(K.shape[1]):
            out[j] += factor * K[i, j]


@jit
def _invert(x, tiny):
    for i in range(len(x)):
        if x[i] != 0:
            x[i] = 1 / (tiny if x[i] < tiny else x[i])


@entry
@jit
def _potentials(matrices, tiny, us, vs, begin, stop):
    ones, zero = np.ones(matrices.shape[1], matrices.dtype), np.zeros(1, matrices.dtype)[0]
    for b in range(begin, stop):
        u = ones
        for t in range(us.shape[1]):
            _left(u, matrices[b], vs[b, t])
            _invert(vs[b, t], tiny)
            u = us[b, t]
            _right(matrices[b], vs[b, t], zero, u)
            _invert(u, tiny)


@entry
@jit
def _adjoint(matrices, us, vs, of_us, of_vs, begin, stop):
    # `of_us` and `of_vs` hold the gradients with respect to `us` and `vs`. The gradients with
    # respect to K v and K^T u overwrite them.
    carried = np.empty(matrices.shape[1], matrices.dtype)
    product, zero = np.empty(matrices.shape[2], matrices.dtype), np.zeros(1, matrices.dtype)[0]
    for b in range(begin, stop):
        carried[:] = 0
        for t in range(us.shape[1] - 1, -1, -1):
            y, z = of_us[b, t], of_vs[b, t]
            for i in range(len(y)):
                y[i] = -(y[i] + carried[i]) * us[b, t, i] * us[b, t, i]
            _left(y, matrices[b], product)
            for j in range(len(z)):
                z[j] = -(z[j] + product[j]) * vs[b, t, j] * vs[b, t, j]
            _right(matrices[b], z, zero, carried)


def potentials(matrix: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """Compute `ltr.losses.scaling.potentials` for matrices (..., n, m) on the CPU."""
    *batch, n, m = matrix.shape
    matrices = _flat(matrix)
    us = np.empty((len(matrices), iterations, n), matrices.dtype)
    vs = np.empty((len(matrices), iterations, m), matrices.dtype)
    tiny = np.finfo(matrices.dtype).tiny
    work = matrices.size * iterations
    run_parallel(lambda a, b: _potentials(matrices, tiny, us, vs, a, b), len(matrices), work)
    shape = (*batch, iterations)
    return torch.from_numpy(us).view(*shape, n), torch.from_numpy(vs).view(*shape, m)


def adjoint(
    matrix: Tensor, us: Tensor, vs: Tensor, of_us: Tensor, of_vs: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients by K v and K^T u of each iteration, from those by `us` and `vs`.

    K is the matrix, and u and v are the scaling vectors of rows and columns after each iteration.
    `of_us` and `of_vs` are the given gradients.
    """
    matrices, *given = (_flat(x) for x in (matrix, us, vs))
    grads = [_flat(x.clone(memory_format=torch.contiguous_format)) for x in (of_us, of_vs)]
    work = 2 * matrices.size * us.shape[-2]
    run_parallel(lambda a, b: _adjoint(matrices, *given, *grads, a, b), len(matrices), work)
    return torch.from_numpy(grads[0]).view_as(us), torch.from_numpy(grads[1]).view_as(vs)


def _flat(x: Tensor) -> Any:
    return np.ascontiguousarray(x.numpy()).reshape(-1, *x.shape[-2:])
