"""The primitive: sums of a kernel over sorted scores, and their derivatives of any order.

Let g be the gradient of y_i = sum_j k((s_i - s_j) / temperature) v_j. The gradient of v is the
transposed kernel's sum of g. The gradient of s_i is g_i (k' v)_i - v_i (k'^T g)_i, with k' the
derivative by s. Both are kernel sums again, on the same exponentials. So the backward pass is one
more call of the same function.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ltr.kernels._eager import apply, has_values, is_batched
from ltr.kernels.implementations import implementation
from ltr.kernels.kernel import Kernel
from ltr.kernels.lists import SortedLists
from ltr.kernels.sorting import batch_first

Outputs = tuple[tuple[int, Kernel], ...]
"""The sums to compute: pairs of a column's index and the kernel to sum it with."""


def kernel_sums(
    scores: Tensor,
    columns: Sequence[Tensor],
    outputs: Sequence[tuple[int, Kernel]],
    lists: SortedLists,
    temperature: float = 1.0,
) -> tuple[Tensor, ...]:
    """Return, for each output (c, k), y_i = sum over j in i's list of k((s_i - s_j) / tau) v_cj.

    Args:
        scores: (..., N), float32 or float64.
        columns: the v_c, (..., N) each.
        outputs: pairs of a column's index and a `Kernel`, all with the same nodes.
        lists: the sorted lists of these scores, by `sort_lists`.
        temperature: tau > 0, in units of the scores.

    Returns:
        One tensor (..., N) per output, in the scores' order and dtype; 0 for items of no list. A
        list with a NaN or an infinite score is NaN. It is differentiable in scores and columns, to
        any order. Cost: O(N) time per node, column and output, and O(N) memory.

    Raises:
        ValueError: scores of another dtype, no output, an unknown column, kernels with different
            nodes, different shapes, or temperature <= 0.

    >>> from ltr.kernels import laplace, sort_lists
    >>> s = torch.tensor([0.0, 2.0, 1.0])
    >>> y, = kernel_sums(s, [torch.ones(3)], [(0, laplace())], sort_lists(s))
    >>> torch.allclose(y, torch.exp(-(s.unsqueeze(-1) - s).abs()).sum(-1))
    True
    """
    check_sums(scores, columns, outputs, lists, temperature)
    arguments = lists.order, lists.starts, lists.lengths, tuple(outputs), float(temperature)
    if not torch.compiler.is_compiling():
        return apply(_KernelSums, scores, *arguments, *columns)
    # it counts the arguments of a function that needs no gradient, which here are any number
    graph = torch.is_grad_enabled() and any(x.requires_grad for x in (scores, *columns))
    return (_Compiled.apply if graph else _KernelSums.forward)(scores, *arguments, *columns)


def bare_sums(
    scores: Tensor,
    columns: list[Tensor],
    outputs: Outputs,
    lists: SortedLists,
    temperature: float,
) -> list[Tensor]:
    """Return the `kernel_sums` of an eager call, without checks and derivatives."""
    numbers = _kept_numbers(outputs, temperature)
    arguments = lists.order, lists.starts, lists.lengths, columns, 1 / temperature
    return _bare(scores, *arguments, *numbers)


def check_sums(
    scores: Tensor,
    columns: Sequence[Tensor],
    outputs: Sequence[tuple[int, Kernel]],
    lists: SortedLists,
    temperature: float,
) -> None:
    """Raise a ValueError unless these arguments of `kernel_sums` belong together."""
    if scores.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"scores must be float32 or float64, got {scores.dtype}")
    if not temperature > 0:
        raise ValueError(f"temperature must be > 0, got {temperature!r}")
    for column in columns:
        if column.shape != scores.shape:
            raise ValueError(
                f"columns must have the shape of scores {tuple(scores.shape)}, "
                f"got {tuple(column.shape)}"
            )
    if not outputs:
        raise ValueError("outputs must name at least one column and kernel, got none")
    nodes = outputs[0][1].nodes
    for column, kernel in outputs:
        if not 0 <= column < len(columns):
            raise ValueError(f"outputs must name one of {len(columns)} columns, got {column}")
        if kernel.nodes is not nodes and kernel.nodes != nodes:
            raise ValueError(f"outputs must share their nodes, got {nodes} and {kernel.nodes}")
    shape = scores.shape if lists.order is None else lists.order.shape
    if shape != scores.shape or lists.starts.shape[:-1] != scores.shape[:-1]:
        raise ValueError(
            f"lists must be those of scores {tuple(scores.shape)}, got an order {tuple(shape)} "
            f"and starts {tuple(lists.starts.shape)}"
        )


class _KernelSums(torch.autograd.Function):
    """The op with its derivatives, backward and forward, and a batch rule for `vmap`."""

    @staticmethod
    def forward(
        scores: Tensor,
        order: Tensor | None,
        starts: Tensor,
        lengths: Tensor,
        outputs: Outputs,
        temperature: float,
        *columns: Tensor,
    ) -> tuple[Tensor, ...]:
        lists = order, starts, lengths, list(columns), 1 / temperature
        if torch.compiler.is_compiling():
            return tuple(
                torch.ops.ltr.kernel_sums(scores, *lists, *op_numbers(outputs, temperature))
            )
        numbers = _kept_numbers(outputs, temperature)
        # torch.autograd.grad(is_grads_batched=True) and functional.jacobian(vectorize=True): torch
        # loops over an op then, but not over one that takes a list
        if any(map(is_batched, columns)):
            lists = order, starts, lengths, torch.stack(columns), 1 / temperature
            return torch.ops.ltr.stacked_kernel_sums(scores, *lists, *numbers).unbind()
        # Skip the dispatcher, which takes longer than the sums of a short list, unless a dispatch
        # mode must see the op.
        call = _bare if has_values(scores) else torch.ops.ltr.kernel_sums
        return tuple(call(scores, *lists, *numbers))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        scores, order, starts, lengths, ctx.outputs, ctx.temperature, *columns = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(scores, order, starts, lengths, *columns)
        ctx.save_for_forward(scores, order, starts, lengths, *columns)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        # Without second derivatives the op itself is enough. torch.compile has no second
        # derivatives, and does not support this function in its own backward.
        bare = torch.compiler.is_compiling() or not torch.is_grad_enabled()
        call = _KernelSums.forward if bare else _KernelSums.apply
        scores, order, starts, lengths, *columns = ctx.saved_tensors
        given = [(o, g) for o, g in enumerate(gradients) if g is not None]
        sources = [*columns, *(g for _, g in given)]
        wanted: list[tuple[int, Kernel]] = []
        for g, (o, _) in enumerate(given, len(columns)):
            column, kernel = ctx.outputs[o]
            if ctx.needs_input_grad[0]:
                wanted += [(column, kernel.derivative), (g, kernel.derivative.transpose)]
            if ctx.needs_input_grad[6 + column]:
                wanted.append((g, kernel.transpose))
        of_scores: Tensor | None = None
        of_columns: list[Tensor | None] = [None] * len(columns)
        if wanted:
            lists = order, starts, lengths
            # for long lists this saves two tensors at the peak
            in_place = bare and not torch.compiler.is_compiling()
            in_place = in_place and not any(is_batched(gradient) for _, gradient in given)
            found = iter(call(scores, *lists, tuple(wanted), ctx.temperature, *sources))
            for o, gradient in given:
                column, _ = ctx.outputs[o]
                if ctx.needs_input_grad[0]:
                    own, others = next(found), next(found)
                    own = own.mul_(gradient) if in_place else own * gradient
                    moved = torch.addcmul(own, columns[column], others, value=-1)
                    of_scores = _add(of_scores, moved, in_place)
                if ctx.needs_input_grad[6 + column]:
                    of_columns[column] = _add(of_columns[column], next(found))
        return of_scores, None, None, None, None, None, *of_columns

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> tuple[Tensor | None, ...]:
        x, order, starts, lengths, *columns = ctx.saved_tensors
        scores, moved = grad_inputs[0], grad_inputs[6:]
        sources, wanted, parts = list(columns), [], []
        for column, kernel in ctx.outputs:
            if scores is not None:
                sources.append(columns[column] * scores)
                wanted += [(column, kernel.derivative), (len(sources) - 1, kernel.derivative)]
            if moved[column] is not None:
                sources.append(moved[column])
                wanted.append((len(sources) - 1, kernel))
        lists = SortedLists(order, starts, lengths)
        found = iter(kernel_sums(x, sources, wanted, lists, ctx.temperature) if wanted else ())
        for column, _ in ctx.outputs:
            part = torch.zeros_like(x)
            if scores is not None:
                part = part + scores * next(found) - next(found)
            if moved[column] is not None:
                part = part + next(found)
            parts.append(part)
        return tuple(parts)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], *args: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        outputs, temperature = args[4:6]
        tensors = [*args[:4], *args[6:]]
        dims = [*in_dims[:4], *in_dims[6:]]
        pairs = zip(tensors, dims, strict=True)
        tensors = [batch_first(x, dim, info.batch_size) for x, dim in pairs]
        found = _KernelSums.apply(*tensors[:4], outputs, temperature, *tensors[4:])
        return found, (0,) * len(outputs)


class _Compiled(torch.autograd.Function):
    """The parent's twin without `jvp`, which `torch.compile` does not support."""

    forward = staticmethod(_KernelSums.forward)
    setup_context = staticmethod(_KernelSums.setup_context)
    backward = staticmethod(_KernelSums.backward)


def op_numbers(outputs: Outputs, temperature: float) -> tuple[tuple[Any, ...], ...]:
    """Return nodes, rows and sources of the outputs, as `ltr::kernel_sums` takes them."""
    nodes = outputs[0][1].nodes
    return (
        (nodes.first.real, nodes.first.imag, nodes.step.real, nodes.step.imag, nodes.count),
        tuple([number / temperature**k.order for _, k in outputs for number in k.row]),
        tuple([column for column, _ in outputs]),
    )


_kept_numbers = lru_cache(op_numbers)


def _add(total: Tensor | None, more: Tensor, in_place: bool = False) -> Tensor:
    if total is None:
        return more
    return total.add_(more) if in_place else total + more


torch.library.define(
    "ltr::kernel_sums",
    "(Tensor scores, Tensor? order, Tensor starts, Tensor lengths, Tensor[] columns, float scale,"
    " float[] nodes, float[] rows, int[] sources) -> Tensor[]",
)


def _fake(scores: Tensor, *rest: Any) -> list[Tensor]:
    return [torch.empty(scores.shape, dtype=scores.dtype, device=scores.device) for _ in rest[-1]]


torch.library.register_fake("ltr::kernel_sums", _fake)


def _bare(scores: Tensor, *arguments: Any) -> list[Tensor]:
    if not scores.numel():
        return _fake(scores, *arguments)
    return implementation(scores.device.type)(scores, *arguments)


torch.library.impl("ltr::kernel_sums", "CompositeExplicitAutograd", _bare)


def _stacked(
    scores: Tensor,
    order: Tensor | None,
    starts: Tensor,
    lengths: Tensor,
    columns: Tensor,
    *numbers: Any,
) -> Tensor:
    return torch.stack(_bare(scores, order, starts, lengths, list(columns), *numbers))


torch.library.define(
    "ltr::stacked_kernel_sums",
    "(Tensor scores, Tensor? order, Tensor starts, Tensor lengths, Tensor columns, float scale,"
    " float[] nodes, float[] rows, int[] sources) -> Tensor",
)
torch.library.impl("ltr::stacked_kernel_sums", "CompositeExplicitAutograd", _stacked)


@torch.library.register_fake("ltr::stacked_kernel_sums")
def _(scores: Tensor, *rest: Any) -> Tensor:
    return torch.stack(_fake(scores, *rest))
