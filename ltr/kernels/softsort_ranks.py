"""SoftSort's ranks for power 1, by kernel sums that are fused into one compiled call on the CPU.

Let t be the sorted scores. Their ranks are y = K u, with u = rho / c, c = K 1 and rho = 1..n, where
K is the matrix of exp(-|t_i - t_j| / temperature). Let h = dLoss/dy, and let S v = K' v be the sums
of v with the derivative of the kernel. Then grad_c = dLoss/dc = -(K h) u / c, and dLoss/dt =
h S u + u S h + grad_c S 1 + S grad_c. The backward pass is another compiled call.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ltr.kernels.autodiff import Maybe, Rule, differentiable
from ltr.kernels.choice import IMPLEMENTATION, compiled
from ltr.kernels.lists import SortedLists
from ltr.kernels.named import laplace
from ltr.kernels.sorting import in_list_order
from ltr.kernels.sums import inner_sums, prefers_dense
from ltr.shapes import count, positions

PLAIN = (Tensor, nn.Parameter)
"""The types of tensors whose values are in memory."""


def compiled_ranks(
    scores: Tensor, mask: Tensor | None, order: Tensor | None, temperature: float
) -> Tensor:
    """Return the ranks (..., n) of `SoftSort(temperature)`.

    In a list with m real items, masked items have rank m + 1. Call this function only if `fused`
    returns True.

    Args:
        scores: (..., n), float32 or float64, on the CPU.
        mask: (..., n) bool, True = a real item; None if all are real.
        order: (..., n) int64, the descending order of the scores, masked items last; None to sort
            here, in the same call.
        temperature: > 0.

    Cost: the sort and O(n), one compiled call each for forward and backward. The ranks are
    differentiable to any order; derivatives of higher order use `kernel_sums`.

    >>> compiled_ranks(torch.tensor([0.1, 0.9, 0.4]), None, None, 0.2)
    tensor([2.7751, 1.0788, 2.1461])
    """
    return differentiable(_Ranks(temperature), scores, mask, order)[0]


def fused(scores: Tensor) -> bool:
    """Return whether `compiled_ranks` can be called for these scores.

    They must be a plain tensor on the CPU and not empty, and numba must be installed. Within
    `use("dense")` and under `torch.compile` the result is always False. If it is False, SoftSort
    computes its ranks with its matrix or with `kernel_sums`.
    """
    if torch.compiler.is_compiling() or type(scores) not in PLAIN:
        return False
    if not scores.numel() or not scores.is_cpu:
        return False
    if prefers_dense("softsort 1, ranks", scores.shape):
        return False
    return (IMPLEMENTATION.get() or compiled()).name == "cpu"  # this loads numba's code


@dataclass(frozen=True, eq=False)
class _Ranks(Rule):
    # Output 1 is c in sorted order; output 2 is the order. The compiled backward pass needs both.
    temperature: float
    saved_outputs = (1, 2)
    constant = (1, 2)

    def values(self, scores: Tensor, mask: Maybe, order: Maybe) -> tuple[Tensor, ...]:
        return torch.ops.ltr.softsort_ranks(scores, mask, order, self.temperature)

    def gradients(
        self, needed: Sequence[bool], cotangents: Sequence[Maybe], *saved: Any
    ) -> tuple[Maybe, ...]:
        scores, mask, _, sums, order = saved
        h = cotangents[0]
        assert h is not None
        if torch.is_grad_enabled() or not fused(h):
            return _gradient(scores, mask, order, h, self.temperature), None, None
        return *differentiable(_Slopes(self.temperature), scores, mask, order, sums, h), None, None


@dataclass(frozen=True, eq=False)
class _Slopes(Rule):
    # The compiled backward pass. It runs only without grad mode, so it needs no gradients, but it
    # must support `vmap`.
    temperature: float

    def values(
        self, scores: Tensor, mask: Maybe, order: Tensor, sums: Tensor, h: Tensor
    ) -> tuple[Tensor, ...]:
        return (torch.ops.ltr.softsort_slopes(scores, mask, order, sums, h, self.temperature),)


def _parts(
    scores: Tensor, mask: Tensor | None, order: Tensor, temperature: float
) -> tuple[SortedLists, Tensor, Tensor, Tensor]:
    # Return the lists, then u and c in the order of the items, and then ones.
    lengths = count(order, mask)
    lists = SortedLists(order, lengths)
    ones = scores.new_ones(()).expand(scores.shape)
    (c,) = inner_sums(scores, [ones], [(0, laplace())], lists, temperature)
    rho = in_list_order(positions(scores).expand(scores.shape), order)
    real = rho <= lengths
    c = torch.where(real, c, 1.0)
    return lists, torch.where(real, rho / c, 0.0), c, ones


def _gradient(
    scores: Tensor, mask: Tensor | None, order: Tensor, h: Tensor, temperature: float
) -> Tensor:
    # This formula, with kernel sums, defines the gradient that the compiled code computes.
    lists, u, c, ones = _parts(scores, mask, order, temperature)
    k = laplace()
    slope = k.derivative
    outputs = [(0, slope), (1, slope), (2, slope), (1, k)]
    a, b, e, w = inner_sums(scores, [u, h, ones], outputs, lists, temperature)
    grad_c = -w * u / c
    (f,) = inner_sums(scores, [grad_c], [(0, slope)], lists, temperature)
    return h * a + u * b + grad_c * e + f


# These are ops, so that a trace such as that of `make_fx` records a call and not its results.
torch.library.define(
    "ltr::softsort_ranks",
    "(Tensor scores, Tensor? mask, Tensor? order, float temperature) -> (Tensor, Tensor, Tensor)",
)
torch.library.define(
    "ltr::softsort_slopes",
    "(Tensor scores, Tensor? mask, Tensor order, Tensor sums, Tensor given, float temperature)"
    " -> Tensor",
)


@torch.library.register_fake("ltr::softsort_ranks")
def _fake_ranks(scores: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    numbers = _fake_slopes(scores)
    return numbers, torch.empty_like(numbers), torch.empty_like(numbers, dtype=torch.int64)


@torch.library.register_fake("ltr::softsort_slopes")
def _fake_slopes(scores: Tensor, *_: Any) -> Tensor:
    return torch.empty(scores.shape, dtype=scores.dtype, device=scores.device)


@torch.library.impl("ltr::softsort_ranks", "CPU")
def _ranks_on_cpu(
    scores: Tensor, mask: Tensor | None, order: Tensor | None, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    from ltr.kernels.cpu import softsort

    return softsort.ranks(scores, mask, order, temperature)


@torch.library.impl("ltr::softsort_slopes", "CPU")
def _slopes_on_cpu(
    scores: Tensor,
    mask: Tensor | None,
    order: Tensor,
    sums: Tensor,
    given: Tensor,
    temperature: float,
) -> Tensor:
    from ltr.kernels.cpu import softsort

    return softsort.gradient(scores, mask, order, sums, given, temperature)
