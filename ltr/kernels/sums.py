"""The basic function: sums of a kernel over sorted scores, and their derivatives of any order.

Short lists, and small batches of longer lists, use n x n matrices instead. The two forms agree up
to rounding. `prefers_dense` decides by the number and the length of the lists, with the thresholds
in `ENTRIES` and `LENGTHS`; `use` overrides this decision.

Let y_i = sum_j k((s_i - s_j) / temperature) v_j, and let g_i be the gradient by y_i. The gradient
by v is the sum of g with the transposed kernel. The gradient by s_i is g_i (k' v)_i - v_i
(k'^T g)_i: k' v is the sum of v with the kernel's derivative by s, and k'^T g is the sum of g with
the transpose of that kernel. All are kernel sums on the same exponentials. So the backward pass
computes kernel sums again, in one call.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ltr.kernels import choice
from ltr.kernels.autodiff import Maybe, Rule, differentiable
from ltr.kernels.choice import FORM, IMPLEMENTATION, compiled
from ltr.kernels.interface import SumNumbers
from ltr.kernels.kernel import Kernel
from ltr.kernels.lists import SortedLists
from ltr.kernels.reference import REFERENCE

Outputs = tuple[tuple[int, Kernel], ...]
"""The sums to compute: pairs of a column's index and the kernel for this column."""

LENGTHS = {
    "laplace": 50,
    "logistic": 50,
    "normal": 50,
    "softplus": 50,
    "softsort 1": 50,
    "softsort 1, ranks": 0,
    "softsort 2": 50,
    "neuralsort": 0,
}
"""For each kind of sum: lists shorter than this use matrices, whatever the number of lists.

"laplace", "logistic" and "normal" are soft ranks, named by the distribution of the noise;
"softplus" is `SoftplusRank`. "softsort 1" and "softsort 2" are the rows of SoftSort, named by its
power. "softsort 1, ranks" are SoftSort's ranks for power 1: one compiled call, which is faster than
a matrix at every length. "neuralsort" is NeuralSort's sum A_j = sum_k |s_j - s_k|.
"""

ENTRIES = {
    "laplace": 2**15,
    "logistic": 2**18,
    "normal": 2**15,
    "softplus": 2**16,
    "softsort 1": 2**17,
    "softsort 2": 2**17,
    "neuralsort": 2**18,
}
"""For each kind of sum: the most entries that all matrices of a call may have together.

Lists that are not shorter than `LENGTHS` use sums if their matrices would have more entries. A call
of the sums has a fixed cost of about 0.4 ms, so the sums pay off only for many or long lists.
`benchmarks/short_lists.py` measures both forms.
"""


def prefers_dense(kind: str, shape: Sequence[int]) -> bool:
    """Return whether scores of shape (..., n) use matrices instead of sums of the given kind.

    >>> prefers_dense("logistic", (128,)), prefers_dense("logistic", (64, 128))
    (True, False)
    >>> prefers_dense("logistic", (4096, 10)), prefers_dense("logistic", (9999,))
    (True, False)
    """
    form = choice.form if torch.compiler.is_compiling() else FORM.get()
    if form is not None:
        return form == "dense"
    n = shape[-1]
    return n < LENGTHS[kind] or math.prod(shape) * n <= ENTRIES.get(kind, 0)


def kernel_sums(
    scores: Tensor,
    columns: Sequence[Tensor],
    outputs: Sequence[tuple[int, Kernel]],
    lists: SortedLists,
    temperature: float = 1.0,
) -> tuple[Tensor, ...]:
    """Return, for each output (c, k), y_i = sum over j in i's list of k((s_i - s_j) / tau) v_cj.

    Args:
        scores: (..., n), float32 or float64.
        columns: the v_c, (..., n) each.
        outputs: pairs of a column's index and a `Kernel`, all with the same nodes.
        lists: the sorted lists of these scores, as `sort_lists` returns them.
        temperature: tau > 0, in units of the scores.

    Returns:
        One tensor (..., n) per output, in the scores' order and dtype; 0 for masked items. All
        sums of a list with a NaN or an infinite score are NaN. The sums are differentiable in
        scores and columns, to any order. Cost: O(n) time per node, column and output, and O(n)
        memory.

    Raises:
        ValueError: scores have another dtype, there is no output, an output's column does not
            exist, kernels have different nodes, shapes differ, or temperature <= 0.

    >>> from ltr.kernels.lists import sort_lists
    >>> from ltr.kernels.named import laplace
    >>> s = torch.tensor([0.0, 2.0, 1.0])
    >>> y, = kernel_sums(s, [torch.ones(3)], [(0, laplace())], sort_lists(s))
    >>> torch.allclose(y, torch.exp(-(s.unsqueeze(-1) - s).abs()).sum(-1))
    True
    """
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
    if shape != scores.shape or lists.lengths.shape != (*scores.shape[:-1], 1):
        raise ValueError(
            f"lists must fit scores {tuple(scores.shape)}, got an order {tuple(shape)} and "
            f"lengths {tuple(lists.lengths.shape)}"
        )
    rule = _KernelSums(tuple(outputs), float(temperature))
    return differentiable(rule, scores, lists.order, lists.lengths, *columns)


def inner_sums(
    scores: Tensor,
    columns: Sequence[Tensor],
    outputs: Sequence[tuple[int, Kernel]],
    lists: SortedLists,
    temperature: float,
) -> tuple[Tensor, ...]:
    """Return the sums of `kernel_sums` without its checks, for use inside a `Rule`.

    Under `torch.compile`, which supports no second derivatives, the sums have no derivatives.
    """
    rule = _KernelSums(tuple(outputs), temperature)
    tensors = scores, lists.order, lists.lengths, *columns
    if torch.compiler.is_compiling():
        return rule.values(*tensors)
    return differentiable(rule, *tensors)  # `vmap` may act on a backward pass without grad mode


@dataclass(frozen=True, eq=False)
class _KernelSums(Rule):
    """The rule of `kernel_sums`: a function of scores, order, lengths and columns."""

    outputs: Outputs
    temperature: float

    def values(
        self, scores: Tensor, order: Maybe, lengths: Tensor, *columns: Tensor
    ) -> tuple[Tensor, ...]:
        numbers = op_numbers if torch.compiler.is_compiling() else _cached_numbers
        given = numbers(self.outputs, self.temperature)
        return tuple(torch.ops.ltr.kernel_sums(scores, order, lengths, list(columns), *given))

    def gradients(
        self, needed: Sequence[bool], cotangents: Sequence[Maybe], *saved: Any
    ) -> list[Maybe]:
        scores, order, lengths, *columns = saved
        by_scores, _, _, *by_column = needed
        some = [(o, g) for o, g in enumerate(cotangents) if g is not None]
        wanted: list[tuple[int, Kernel]] = []
        for g, (o, _) in enumerate(some, len(columns)):
            column, kernel = self.outputs[o]
            if by_scores:
                wanted += [(column, kernel.derivative), (g, kernel.derivative.transpose)]
            if by_column[column]:
                wanted.append((g, kernel.transpose))
        of_scores: Maybe = None
        of_columns: list[Maybe] = [None] * len(columns)
        if wanted:
            lists = SortedLists(order, lengths)
            sources = [*columns, *(g for _, g in some)]
            sums = iter(inner_sums(scores, sources, wanted, lists, self.temperature))
            for o, gradient in some:
                column, _ = self.outputs[o]
                if by_scores:
                    own, others = next(sums), next(sums)
                    part = torch.addcmul(own * gradient, columns[column], others, value=-1)
                    of_scores = part if of_scores is None else of_scores + part
                if by_column[column]:
                    part, total = next(sums), of_columns[column]
                    of_columns[column] = part if total is None else total + part
        return [of_scores, None, None, *of_columns]


def op_numbers(outputs: Outputs, temperature: float) -> SumNumbers:
    """Return the `SumNumbers` of the outputs, for `ltr::kernel_sums`."""
    nodes = outputs[0][1].nodes
    return SumNumbers(
        1 / temperature,
        (nodes.first.real, nodes.first.imag, nodes.step.real, nodes.step.imag, nodes.count),
        tuple([number / temperature**k.derivative_order for _, k in outputs for number in k.row]),
        tuple([column for column, _ in outputs]),
    )


_cached_numbers = lru_cache(op_numbers)


torch.library.define(
    "ltr::kernel_sums",
    "(Tensor scores, Tensor? order, Tensor lengths, Tensor[] columns, float scale,"
    " float[] nodes, float[] rows, int[] sources) -> Tensor[]",
)


def _fake(scores: Tensor, *rest: Any) -> list[Tensor]:
    return [torch.empty(scores.shape, dtype=scores.dtype, device=scores.device) for _ in rest[-1]]


torch.library.register_fake("ltr::kernel_sums", _fake)


def _bare(scores: Tensor, *arguments: Any) -> list[Tensor]:
    if not scores.numel():
        return _fake(scores, *arguments)
    order, lengths, columns, *numbers = arguments
    lists, numbers = SortedLists(order, lengths), SumNumbers(*numbers)
    chosen = IMPLEMENTATION.get() or (compiled() if scores.is_cpu else REFERENCE)
    return chosen.kernel_sums(scores, lists, columns, numbers)


torch.library.impl("ltr::kernel_sums", "CompositeExplicitAutograd", _bare)
