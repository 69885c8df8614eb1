"""Entropic optimal transport in the log domain, with implicit derivatives.

The kernel K is (rows, n). The coupling is T = diag(u) K diag(v), whose row sums are b, the row
weights, and whose column sums are a, the item weights. The row potentials r = log u and the item
potentials log v are the logarithms of Sinkhorn's scaling vectors u and v. The solver looks only for
r: the column sums a determine v from u, and computing u once more, from v, makes the row sums
exactly b. The row potentials minimize the dual, a convex function:
sum_j a_j log(sum_i exp(r_i + log K_ij)) - sum_i b_i r_i. At the minimum, the softmax Q of
r_i + log K_ij over the rows i satisfies sum_j a_j Q_ij = b_i.
"""

import math

import torch
from torch import Tensor

from ltr.shapes import widened

STAGE = 4.0
"""The factor by which the kernel gets sharper from one stage of the solver to the next."""

RIDGE = 1e-14
"""Added to the diagonal of the scaled Hessian. Links between rows weaker than this do not count."""

MOST_STEPS = 100
"""The largest number of Newton steps at the full kernel; about 10 are usual."""


def safe_log(weights: Tensor) -> Tensor:
    """Return the logarithm of the weights; -inf, with derivative 0, for a weight of 0.

    >>> safe_log(torch.tensor([1.0, 0.0]))
    tensor([0., -inf])
    """
    zero = weights == 0
    return torch.where(zero, -torch.inf, torch.where(zero, 1.0, weights).log())


def row_potentials(
    log_kernel: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    iterations: int | None = None,
    threshold: float = 1e-9,
    implicit: bool = True,
) -> Tensor:
    """Return the row potentials (..., rows) of the coupling; -inf where b is 0.

    Args:
        log_kernel: (..., rows, n), finite: -cost / epsilon.
        a: (..., n) item weights, summing to 1; 0 deletes an item.
        b: (..., rows) row weights, summing to 1; 0 deletes a row.
        iterations: the number of Sinkhorn iterations, from u = 1. Default: Newton's
            method, until the error is below `threshold`.
        threshold: the error below which Newton's method stops: the sum over rows of |row sum - b|.
            One more step follows, which squares the error.
        implicit: whether derivatives come from the implicit function theorem (True) or go through
            the iterations (False).
    """
    if not implicit:
        return _iterate(log_kernel, a, b, (iterations or 1) - 1)
    rows, inverse = solve_rows(
        log_kernel.detach(), a.detach(), b.detach(), threshold, iterations or 0
    )
    # These steps of Newton's method, with a fixed inverse, start from a solution that is correct
    # but has no graph. Each step has the value 0 and makes one more order of derivatives correct:
    # if x(c) solves r(x, c) = 0 and x is correct to order zero in c, then x - r(x, c) / r' is
    # correct to order one. Autograd sees two softmaxes and two products, which every transform
    # supports.
    for _ in range(2):
        residual = ((rows.unsqueeze(-1) + log_kernel).softmax(-2) * a.unsqueeze(-2)).sum(-1) - b
        step = (inverse * (residual - residual.detach()).unsqueeze(-2)).sum(-1)
        rows = rows - step
    return rows


def log_matrix(rows: Tensor, log_kernel: Tensor, a: Tensor) -> Tensor:
    """Return the logarithm of the coupling (..., rows, n), with each row divided by its sum.

    The row potentials and the item weights a determine the item potentials.
    """
    items = safe_log(a) - (rows.unsqueeze(-1) + log_kernel).logsumexp(-2)
    return (items.unsqueeze(-2) + log_kernel).log_softmax(-1)


def _iterate(log_kernel: Tensor, a: Tensor, b: Tensor, times: int) -> Tensor:
    """Return the row potentials after some Sinkhorn iterations, from u = 1."""
    log_a, log_b = safe_log(a), safe_log(b)
    rows = torch.where(b == 0, -torch.inf, 0.0).to(b.dtype)
    for _ in range(times):
        items = log_a - (rows.unsqueeze(-1) + log_kernel).logsumexp(-2)
        rows = log_b - (items.unsqueeze(-2) + log_kernel).logsumexp(-1)
    return rows


@torch.library.custom_op("ltr::sinkhorn_rows", mutates_args=())
def solve_rows(
    log_kernel: Tensor, a: Tensor, b: Tensor, threshold: float, iterations: int
) -> tuple[Tensor, Tensor]:
    """Return the row potentials and, at these, the inverse Hessian of the dual; no derivatives.

    The solver runs `iterations` Sinkhorn iterations or, if `iterations` is 0, Newton's method:
    damped steps for a sequence of kernels that sharpen to the full kernel. The solution for one
    kernel is the start for the next. A Newton step costs O(rows^2 n + rows^3); 10 to 25 steps are
    usual, while Sinkhorn needs on the order of 1 / epsilon iterations. Newton's method reads the
    error after each step, which waits for the device.

    Returns:
        rows (..., rows), inverse (..., rows, rows), in the dtype of log_kernel. The arithmetic is
        in float64 if the device supports it.
    """
    dtype = log_kernel.dtype
    if log_kernel.numel() == 0:
        return log_kernel.new_zeros(b.shape), log_kernel.new_zeros((*b.shape, b.shape[-1]))
    log_kernel, a, b = widened(log_kernel), widened(a), widened(b)
    if iterations > 0:
        rows = _iterate(log_kernel, a, b, iterations - 1)
    else:
        rows = _newton(log_kernel, a, b, safe_log(b), threshold)
    inverse = _inverse(log_kernel, a, b, rows)
    # Compiled code relies on the strides that the fake kernel below declares, but LAPACK stores the
    # inverse column by column. So the results are made contiguous.
    return rows.to(dtype).contiguous(), inverse.to(dtype).contiguous()


@solve_rows.register_fake
def _(log_kernel: Tensor, a: Tensor, b: Tensor, threshold: float, iterations: int):
    rows = log_kernel.shape[-2]
    return log_kernel.new_empty(b.shape), log_kernel.new_empty((*b.shape, rows))


def _over_batches(info, in_dims, *arguments):
    tensors = [
        x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
        for x, dim in zip(arguments[:3], in_dims, strict=False)
    ]
    return solve_rows(*tensors, *arguments[3:]), (0, 0)


solve_rows.register_vmap(_over_batches)


def _newton(log_kernel: Tensor, a: Tensor, b: Tensor, log_b: Tensor, threshold: float) -> Tensor:
    """Return the row potentials (..., rows) by Newton's method; the arguments are float64."""
    dead = ((a == 0).unsqueeze(-2) | (b == 0).unsqueeze(-1)).flatten(-2)
    logits = log_kernel.flatten(-2)
    spread = (
        logits.masked_fill(dead, -torch.inf).amax(-1) - logits.masked_fill(dead, torch.inf).amin(-1)
    ).nan_to_num(0.0)
    start = (2 / spread).clamp(max=1.0)
    stages = max(0, math.ceil(-math.log(start.min().item(), STAGE)))
    # No error can fall below the rounding errors of the kernel.
    goal = torch.full_like(spread, threshold).maximum(2e-15 * spread)
    # These are the row potentials minus log b, in units of the stage's epsilon.
    u = torch.zeros_like(b)
    for stage in range(stages + 1):
        sharpness = start ** ((stages - stage) / max(stages, 1))
        kernel = log_kernel * sharpness[..., None, None]
        last = stage == stages
        for _ in range(MOST_STEPS if last else 20):
            u, error = _step(u, kernel, a, b, log_b)
            if not (error > (goal if last else 0.1)).any():
                break
        if not last:
            u = u * (start ** (-1 / stages)).unsqueeze(-1)
    return log_b + u


def _step(u: Tensor, kernel: Tensor, a: Tensor, b: Tensor, log_b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the potentials after one damped Newton step, and the error before the step."""
    shares = ((log_b + u).unsqueeze(-1) + kernel).softmax(-2)
    lack = b - (shares * a.unsqueeze(-2)).sum(-1)
    hessian, scale = _scaled_hessian(shares, a, b)
    solution = torch.linalg.solve_ex(hessian, (scale * lack).unsqueeze(-1)).result
    step = scale * solution.squeeze(-1)
    # The range of a step is its largest minus its smallest element. A fraction
    # log(1 + range) / range of the step always lowers the dual, which is self-concordant with
    # respect to this range. Longer steps, up to the full step, are tried too, and the step to the
    # lowest value of the dual is taken.
    span = step.amax(-1) - step.amin(-1)
    if not (span > 0.1).any():
        return u + step, lack.abs().sum(-1)
    sure = torch.where(span > 0, span.log1p() / span, 1.0)
    tries = torch.stack([sure ** (i / 4) for i in (4, 3, 2, 1, 0)])
    points = u + tries.unsqueeze(-1) * step
    values = torch.stack(
        [
            (((log_b + x).unsqueeze(-1) + kernel).logsumexp(-2) * a).sum(-1) - (b * x).sum(-1)
            for x in points
        ]
    )
    best = values.argmin(0)[None, ..., None].expand(1, *u.shape)
    return points.gather(0, best).squeeze(0), lack.abs().sum(-1)


def _scaled_hessian(shares: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Hessian of the dual, scaled to a diagonal of about 1, and the scale.

    The scale multiplies rows and columns. The Hessian is the Laplacian of a graph, so each
    diagonal element is the sum of the absolute values of the other elements of its row, and no
    digits cancel. An added term fills the null space (constants, and rows of weight 0), so that the
    matrix is invertible.
    """
    links = (shares * a.unsqueeze(-2)) @ shares.mT
    dead = b == 0
    scale = torch.where(dead, 0.0, torch.where(dead, 1.0, b).rsqrt())
    links = links - torch.diag_embed(links.diagonal(dim1=-2, dim2=-1))
    diagonal = links.sum(-1) * scale.square() + dead.to(b.dtype) + RIDGE
    root = b.sqrt()
    fill = root.unsqueeze(-1) * root.unsqueeze(-2)
    scaled = links * scale.unsqueeze(-1) * scale.unsqueeze(-2)
    return torch.diag_embed(diagonal) - scaled + fill, scale


def _inverse(log_kernel: Tensor, a: Tensor, b: Tensor, rows: Tensor) -> Tensor:
    shares = (rows.unsqueeze(-1) + log_kernel).softmax(-2)
    hessian, scale = _scaled_hessian(shares, a, b)
    inverse = torch.linalg.inv_ex(hessian).inverse
    return inverse * scale.unsqueeze(-1) * scale.unsqueeze(-2)
