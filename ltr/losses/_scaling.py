"""Sinkhorn scaling of a relaxed permutation, with derivatives through its iterations."""

import math
from typing import Any

import torch
from torch import Tensor

from ltr.kernels._eager import is_eager
from ltr.kernels.implementations import implementation
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
    log_p = P.log_dense()
    # what is lost beside 1 anyway: subnormal numbers and products take a hundred times as long
    least = math.log(torch.finfo(log_p.dtype).tiny) + 16
    matrix = torch.where(log_p < least, -torch.inf, log_p).exp()
    if columns_last:
        matrix = matrix.mT
    function = _Potentials if torch.compiler.is_compiling() else _PotentialsForward
    us, vs = function.apply(matrix, iterations)
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


def adjoint(
    matrix: Tensor, us: Tensor, vs: Tensor, of_us: Tensor, of_vs: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of K v and of K^T u in each iteration, of those of `potentials`.

    All (..., iterations, n). From the last iteration to the first, O(n^2) each.

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


def tangents(matrix: Tensor, moved: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """How `potentials` move with the matrix: both (..., n, n) -> (..., iterations, n) each.

    Each iteration and its derivative side by side, O(n^2); made of differentiable operations.

    >>> of_us, of_vs = tangents(torch.full((1, 1), 4.0), torch.ones(1, 1), 1)
    >>> of_vs  # of v = 1 / K
    tensor([[-0.0625]])
    """
    u = torch.ones_like(matrix.mT[..., :1, :])
    of_u = torch.zeros_like(u)
    of_us, of_vs = [], []
    for _ in range(iterations):
        v = _inverse(torch.matmul(u, matrix))
        of_v = -v.square() * (torch.matmul(of_u, matrix) + torch.matmul(u, moved))
        u = _inverse(torch.matmul(v, matrix.mT))
        of_u = -u.square() * (torch.matmul(of_v, matrix.mT) + torch.matmul(v, moved.mT))
        of_us.append(of_u)
        of_vs.append(of_v)
    return torch.cat(of_us, -2), torch.cat(of_vs, -2)


def _compiled(x: Tensor) -> bool:
    # whether numba's code is to be run: one matrix after the other, in the cache
    return is_eager(x) and x.numel() > 0 and implementation("cpu").__module__.endswith("._numba")


def _inverse(sums: Tensor) -> Tensor:
    none = sums == 0
    return torch.where(none, 0.0, 1 / sums.clamp(min=torch.finfo(sums.dtype).tiny))


class _Potentials(torch.autograd.Function):
    """`potentials`; autograd itself would add a matrix an iteration to the gradient.

    Without `jvp`, which `torch.compile` does not take.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, iterations: int) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        if not _compiled(matrix):
            return potentials(matrix, iterations)
        from ltr.kernels import _scaling_numba

        return _scaling_numba.potentials(matrix, iterations)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.iterations = inputs[1]
        ctx.save_for_backward(inputs[0], *output)
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        matrix, us, vs = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative needs the graph of these too
            us, vs = potentials(matrix, ctx.iterations)
            left, right = adjoint(matrix, us, vs, *grads)
        elif _compiled(matrix) and _compiled(grads[0]):
            from ltr.kernels import _scaling_numba

            left, right = _scaling_numba.adjoint(matrix, us, vs, *grads)
        else:
            left, right = adjoint(matrix, us, vs, *grads)
        before = torch.cat([torch.ones_like(us[..., :1, :]), us[..., :-1, :]], -2)
        rows, columns = torch.cat([left, before], -2), torch.cat([vs, right], -2)
        return torch.matmul(rows.mT, columns), None


class _PotentialsForward(_Potentials):
    """The same with forward mode, and a `vmap` that forward mode can be differentiated through."""

    generate_vmap_rule = False

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> tuple[Tensor, Tensor]:
        (matrix,) = ctx.saved_tensors
        return tangents(matrix, grad_inputs[0], ctx.iterations)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], *args: Any
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        matrix, iterations = args
        us, vs = _PotentialsForward.apply(matrix.movedim(in_dims[0], 0), iterations)
        return (us, vs), (0, 0)
