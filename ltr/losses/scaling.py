"""Sinkhorn scaling of a soft permutation matrix, with derivatives through the iterations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ltr.kernels.autodiff import Maybe, Rule, differentiable
from ltr.operators import SoftPermutation


def sinkhorn_scaled(P: SoftPermutation, iterations: int, *, columns_last: bool = False) -> Tensor:
    """Return P's matrix (..., n, n), with columns and rows divided by their sums in alternation.

    The iterations compute scaling vectors u and v; the result is diag(u) P diag(v). Derivatives of
    any order go through the iterations, whether these have converged or not. The backward keeps the
    matrix twice, and 2 n values for each iteration. One matrix product adds the derivatives of all
    iterations.

    Args:
        P: a soft permutation with all its rows. Masked rows and columns stay 0.
        iterations: >= 1; each iteration divides the columns and the rows once. There is no test of
            convergence.
        columns_last: if True, the last step makes the columns sum to exactly 1. If False (default),
            it makes the rows sum to exactly 1.

    >>> from ltr.operators import SoftSort
    >>> P = SoftSort(1.0).permutation(torch.tensor([0.0, 1.0, 3.0]))
    >>> P.dense().sum(-2)
    tensor([0.9921, 1.0389, 0.9689])
    >>> sinkhorn_scaled(P, 30).sum(-2)
    tensor([1., 1., 1.])
    """
    log_p = P.log_dense()
    # Values below exp(`least`) do not change a sum of about 1. They are set to 0, since subnormal
    # values and products would take a hundred times as long.
    least = math.log(torch.finfo(log_p.dtype).tiny) + 16
    matrix = torch.where(log_p < least, -torch.inf, log_p).exp()
    if columns_last:
        matrix = matrix.mT
    us, vs = differentiable(_Potentials(iterations), matrix)
    scaled = us[..., -1, :].unsqueeze(-1) * matrix * vs[..., -1, :].unsqueeze(-2)
    return scaled.mT if columns_last else scaled


def potentials(matrix: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """Return the scaling vectors u and v after each iteration: (..., iterations, n) each.

    u scales the rows of the matrix K, and v its columns. u starts at 1. Each iteration computes
    v = 1 / (K^T u), then u = 1 / (K v). The value for a row or column of zeros is 0.

    >>> us, vs = potentials(torch.tensor([[1.0, 1.0], [0.0, 2.0]]), 100)
    >>> us.shape
    torch.Size([100, 2])
    """
    # u and v are row vectors, so K^T u is computed as u K, and K v as v K^T.
    kernel, turned = matrix.contiguous(), matrix.mT.contiguous()
    u = torch.ones_like(turned[..., :1, :])
    us, vs = [], []
    for _ in range(iterations):
        v = _inverse(torch.matmul(u, kernel))
        u = _inverse(torch.matmul(v, turned))
        us.append(u)
        vs.append(v)
    return torch.cat(us, -2), torch.cat(vs, -2)


def adjoint(
    matrix: Tensor, us: Tensor, vs: Tensor, of_us: Tensor, of_vs: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients with respect to K v and K^T u, given those with respect to u and v.

    K is the matrix, u and v are the scaling vectors after each iteration, `us` and `vs`, and
    `of_us` and `of_vs` are those gradients. All tensors except the matrix are (..., iterations,
    n). The computation goes from the last iteration to the first. Cost: O(n^2) for each iteration.

    >>> K, one = torch.full((1, 1), 4.0), torch.ones(1, 1)
    >>> adjoint(K, *potentials(K, 1), one, torch.zeros(1, 1))
    (tensor([[-1.]]), tensor([[0.2500]]))
    """
    kernel, turned = matrix.contiguous(), matrix.mT.contiguous()
    a, left, right = torch.zeros_like(us[..., :1, :]), [], []
    for t in reversed(range(us.shape[-2])):
        u, v = us[..., t : t + 1, :], vs[..., t : t + 1, :]
        y = -(of_us[..., t : t + 1, :] + a) * u.square()
        z = -(of_vs[..., t : t + 1, :] + torch.matmul(y, kernel)) * v.square()
        a = torch.matmul(z, turned)
        left.append(y)
        right.append(z)
    return torch.cat(left[::-1], -2), torch.cat(right[::-1], -2)


def _inverse(sums: Tensor) -> Tensor:
    none = sums == 0
    return torch.where(none, 0.0, 1 / sums.clamp(min=torch.finfo(sums.dtype).tiny))


@dataclass(frozen=True, eq=False)
class _Potentials(Rule):
    """The `Rule` of `potentials`. Its backward adds the gradients of all iterations in one product.

    Autograd alone would add one matrix to the gradient for each iteration.
    """

    iterations: int
    saved_outputs = (0, 1)

    def values(self, matrix: Tensor) -> tuple[Tensor, ...]:
        return potentials(matrix, self.iterations)

    def gradients(
        self, needed: Sequence[bool], cotangents: Sequence[Maybe], *saved: Any
    ) -> tuple[Maybe, ...]:
        matrix, us, vs = saved
        of_us, of_vs = (
            torch.zeros_like(x) if g is None else g
            for g, x in zip(cotangents, (us, vs), strict=True)
        )
        if torch.is_grad_enabled():  # second derivatives need the graph of `us` and `vs`
            us, vs = potentials(matrix, self.iterations)
        left, right = adjoint(matrix, us, vs, of_us, of_vs)
        before = torch.cat([torch.ones_like(us[..., :1, :]), us[..., :-1, :]], -2)
        rows, columns = torch.cat([left, before], -2), torch.cat([vs, right], -2)
        return (torch.matmul(rows.mT, columns),)
