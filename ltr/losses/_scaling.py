"""Sinkhorn scaling of a relaxed permutation, with derivatives through its iterations."""

from typing import Any

import torch
from torch import Tensor

from ltr.operators import SoftPermutation


def sinkhorn_scaled(P: SoftPermutation, iterations: int, *, columns_last: bool = False) -> Tensor:
    """The matrix (..., n, n) of P, its columns and rows divided by their sums in turn.

    As potentials u, v of diag(u) P diag(v). Derivatives are those of the iterations as they are,
    converged or not, to any order. The backward keeps the matrix twice and 2 n numbers an
    iteration, and puts the derivatives of all iterations together in one product.

    Args:
        P: with all its rows. Masked rows and columns stay 0.
        iterations: >= 1, each of both sides. They are not run to convergence.
        columns_last: whether the columns sum to 1 exactly, or the rows (default).

    >>> from ltr.operators import SoftSort
    >>> P = SoftSort(1.0).permutation(torch.tensor([0.0, 1.0, 3.0]))
    >>> P.dense().sum(-2)
    tensor([0.9921, 1.0389, 0.9689])
    >>> sinkhorn_scaled(P, 30).sum(-2)
    tensor([1., 1., 1.])
    """
    matrix = P.dense()
    if columns_last:
        matrix = matrix.mT
    us, vs = _Potentials.apply(matrix, iterations)
    scaled = us[..., -1, :].unsqueeze(-1) * matrix * vs[..., -1, :].unsqueeze(-2)
    return scaled.mT if columns_last else scaled


def potentials(matrix: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """The potentials after each iteration, (..., iterations, n) of the rows and of the columns.

    v = 1 / (K^T u), then u = 1 / (K v), from u = 1; 0 where all of a row or column is 0.

    >>> us, vs = potentials(torch.tensor([[1.0, 1.0], [0.0, 2.0]]), 100)
    >>> us.shape
    torch.Size([100, 2])
    """
    kernel, turned = matrix.contiguous(), matrix.mT.contiguous()  # for a vector from the left
    u = torch.ones_like(turned[..., :1, :])
    us, vs = [], []
    for _ in range(iterations):
        v = _inverse(torch.matmul(u, kernel))
        u = _inverse(torch.matmul(v, turned))
        us.append(u)
        vs.append(v)
    return torch.cat(us, -2), torch.cat(vs, -2)


def _inverse(sums: Tensor) -> Tensor:
    none = sums == 0
    return torch.where(none, 0.0, 1 / sums.clamp(min=torch.finfo(sums.dtype).tiny))


class _Potentials(torch.autograd.Function):
    """`potentials`; autograd itself would add a matrix an iteration to the gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, iterations: int) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return potentials(matrix, iterations)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.iterations = inputs[1]
        ctx.save_for_backward(inputs[0], *output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        matrix, us, vs = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative needs the graph of these too
            us, vs = potentials(matrix, ctx.iterations)
        kernel, turned = matrix.contiguous(), matrix.mT.contiguous()
        before = torch.cat([torch.ones_like(us[..., :1, :]), us[..., :-1, :]], -2)
        a, left, right = torch.zeros_like(us[..., :1, :]), [], []
        for t in reversed(range(ctx.iterations)):
            u, v = us[..., t : t + 1, :], vs[..., t : t + 1, :]
            y = -(grads[0][..., t : t + 1, :] + a) * u.square()
            z = -(grads[1][..., t : t + 1, :] + torch.matmul(y, kernel)) * v.square()
            a = torch.matmul(z, turned)
            left.append(y)
            right.append(z)
        left, right = torch.cat(left[::-1], -2), torch.cat(right[::-1], -2)
        rows, columns = torch.cat([left, before], -2), torch.cat([vs, right], -2)
        return torch.matmul(rows.mT, columns), None
