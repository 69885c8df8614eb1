"""The kernel sums of ranks: all weights are 1, so the forward sweep computes half of the gradient.

Let y_i = sum_j k((s_i - s_j) / temperature), and let g be the gradient of y. The gradient of s_i is
g_i sum_j k'_ij - sum_j k'_ji g_j. The first sum does not depend on g. So the forward sweep computes
it together with y, and the backward pass sweeps one column instead of two.
"""

from typing import Any

import torch
from torch import Tensor

from ltr.kernels._eager import apply, is_batched, is_eager
from ltr.kernels.kernel import Kernel
from ltr.kernels.lists import SortedLists
from ltr.kernels.sums import bare_sums, check_sums, kernel_sums


def kernel_totals(
    scores: Tensor,
    kernel: Kernel,
    lists: SortedLists,
    temperature: float = 1.0,
    weights: Tensor | None = None,
) -> Tensor:
    """Return y_i = sum over the items j of i's list of k((s_i - s_j) / tau) w_j.

    Args:
        scores: (..., N), float32 or float64.
        kernel: k.
        lists: the sorted lists of these scores, by `sort_lists`.
        temperature: tau > 0, in units of the scores.
        weights: w, (..., N). Default: all 1, which has a faster backward pass.

    Returns:
        (..., N), see `kernel_sums`. Cost: O(N) time per node and O(N) memory.

    >>> from ltr.kernels import laplace, sort_lists
    >>> s = torch.tensor([0.0, 2.0, 1.0])
    >>> kernel_totals(s, laplace(), sort_lists(s)).round(decimals=2)
    tensor([1.5000, 1.5000, 1.7400])
    """
    wanted = scores.requires_grad and torch.is_grad_enabled()
    if weights is None and wanted and is_eager(scores):
        check_sums(scores, (scores,), ((0, kernel),), lists, temperature)
        return apply(_Totals, scores, lists.order, lists.starts, lists.lengths, kernel, temperature)
    column = _ones(scores) if weights is None else weights
    (totals,) = kernel_sums(scores, [column], [(0, kernel)], lists, temperature)
    return totals


class _Totals(torch.autograd.Function):
    # only for eager calls without transforms of torch.func

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        order: Tensor | None,
        starts: Tensor,
        lengths: Tensor,
        kernel: Kernel,
        temperature: float,
    ) -> Tensor:
        lists = SortedLists(order, starts, lengths)
        outputs = (0, kernel), (0, kernel.derivative)
        totals, own = bare_sums(scores, [_ones(scores)], outputs, lists, temperature)
        ctx.save_for_backward(scores, order, starts, lengths, own)
        ctx.save_for_forward(scores, order, starts, lengths, own)
        ctx.kernel, ctx.temperature = kernel, temperature
        return totals

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        scores, *lists, own = ctx.saved_tensors
        (g,) = grad_outputs
        back = ctx.kernel.derivative.transpose
        lists = SortedLists(*lists)
        if torch.is_grad_enabled() or is_batched(g):
            outputs = [(0, ctx.kernel.derivative), (1, back)]
            columns = [_ones(scores), g]
            own, others = kernel_sums(scores, columns, outputs, lists, ctx.temperature)
            return own * g - others, *[None] * 5
        (others,) = bare_sums(scores, [g], ((0, back),), lists, ctx.temperature)
        return torch.addcmul(others.neg_(), own, g, out=others), *[None] * 5

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Tensor:
        scores, *lists, own = ctx.saved_tensors
        moved, slope = grad_inputs[0], [(0, ctx.kernel.derivative)]
        (others,) = kernel_sums(scores, [moved], slope, SortedLists(*lists), ctx.temperature)
        return moved * own - others


def _ones(scores: Tensor) -> Tensor:
    return scores.new_ones(()).expand(scores.shape)
