"""The gradient of every loss, operator and differentiable function, in every mode of torch.

A function has one gradient, whatever computes it: `vmap`, `torch.func.grad`, a checkpoint, autocast
or `torch.compile`, with matrices or with kernel sums, with a mask or without one. What `__all__`
lists is found by itself; a new function that is not an operator or a loss needs a line in `MORE`.
"""

import inspect
import itertools
from collections.abc import Callable
from functools import cache
from typing import Literal

import pytest
import torch
from _pytest.mark import ParameterSet
from loss_table import LOSSES as PUBLIC_LOSSES
from loss_table import draw
from loss_variants import LOSSES
from operator_table import OPERATORS, SORT_OPERATORS, TAKES_WEIGHTS
from pairwise import together
from torch import Tensor
from torch.func import grad, vmap
from torch.utils.checkpoint import checkpoint

import ltr.losses
import ltr.operators
import ltr.preferences
from ltr.gains import log2_discount
from ltr.kernels import use
from ltr.kernels.choice import computed_by
from ltr.kernels.reference import REFERENCE
from ltr.losses import (
    PairCost,
    PairwiseLoss,
    PositionBias,
    Unbiased,
    inverse_propensity_weights,
)
from ltr.operators import (
    IsotonicSort,
    RankOperator,
    SoftSort,
    soft_median,
    soft_quantile,
    soft_rank,
    soft_sort,
    soft_topk,
    sort_with,
    truncated,
)
from ltr.preferences import PreferenceLoss

Call = Callable[..., Tensor]
"""Maps scores, labels, mask and weights (..., n) each to a tensor (..., *own axes)."""


class LogCosh(PairCost):
    """A user's own cost, whose derivative comes from autograd."""

    uses_gap = False

    def forward(self, t, gap):
        return torch.log(torch.cosh(t - 1))


def of_loss(loss: torch.nn.Module) -> Call:
    return lambda scores, labels, mask, weights: loss(scores, labels, mask, weights)


def of_operator(name: str) -> Call:
    operator, weighted = OPERATORS[name], name in TAKES_WEIGHTS
    return lambda scores, labels, mask, weights: operator(
        scores, mask, weights if weighted else None
    )


def of_permutation(name: str) -> Call:
    # Sorted scores, the transpose and logarithms; a lazy matrix computes each of them by itself.
    def call(scores, labels, mask, weights):
        P = SORT_OPERATORS[name].permutation(scores, mask)
        order = torch.arange(scores.shape[-1]).expand(scores.shape)
        found = [P.sort(), P.mT.mv(labels), P.log_prob(order).clamp(min=-50.0)]
        return torch.cat(found, -1)

    return call


def of_methods(name: str) -> dict[str, Call]:
    """Return the methods of an operator that its class defines itself."""
    operator = OPERATORS[name]
    methods: dict[str, Call] = {
        "discounts": lambda s, y, m, w: operator.discounts(log2_discount, s, m),
        "top_k": lambda s, y, m, w: operator.top_k(2, s, m),
        "before": lambda s, y, m, w: operator.before(s, m),
    }
    return {
        f"{name}.{method}()": call
        for method, call in methods.items()
        if getattr(type(operator), method) is not getattr(RankOperator, method)
    }


def votes(scores, labels, mask, weights):
    pairs = [[0, 1], [2, 3], [1, 5]]
    flat = scores.reshape(-1, scores.shape[-1])
    each = [PreferenceLoss(reduction="none")(row, pairs) for row in flat]
    return torch.stack(each).view(*scores.shape[:-1], 3)


MORE: dict[str, Call] = {
    "IsotonicSort": lambda s, y, m, w: IsotonicSort(0.7)(s, m),
    "IsotonicSort-kl": lambda s, y, m, w: IsotonicSort(0.7, "kl")(s, m),
    "soft_rank": lambda s, y, m, w: soft_rank(s, SoftSort(0.7), m, descending=False),
    "soft_sort": lambda s, y, m, w: soft_sort(s, None, m, temperature=0.7),
    "sort_with": lambda s, y, m, w: sort_with(s, s.sin(), SoftSort(0.7), m),
    "soft_topk": lambda s, y, m, w: soft_topk(s, 2, SoftSort(0.7), m).values,
    "soft_topk.membership": lambda s, y, m, w: soft_topk(s, 2, SoftSort(0.7), m).membership,
    "soft_quantile": lambda s, y, m, w: soft_quantile(s, 0.3, SoftSort(0.7), m),
    "soft_median": lambda s, y, m, w: soft_median(s, IsotonicSort(0.7), m),
    "truncated": lambda s, y, m, w: truncated(log2_discount, 2, exact=False)(s.square() + 1),
    "inverse_propensity_weights": lambda s, y, m, w: inverse_propensity_weights(s.square() + 1),
    "PositionBias": lambda s, y, m, w: PositionBias(0.5)(s.square() + 1),
    "PreferenceLoss": votes,
    "PairwiseLoss-own": of_loss(PairwiseLoss(LogCosh(), reduction="none")),
    "Unbiased-normalized-sum": of_loss(Unbiased(PairwiseLoss(normalize=False), reduction="none")),
}
# These return no numbers, or numbers without a derivative by the scores.
WITHOUT = {"descending_order", "gumbel_noise", "hard_ranks", "temperature_for"}
WITHOUT |= {"bradley_terry", "lists_from_preferences"}

COSTS: dict[str, Call] = {
    name: lambda s, y, m, w, kind=kind: kind()(s, y + 1)
    for name, kind in vars(ltr.losses).items()
    if name in ltr.losses.__all__ and inspect.isclass(kind)
    if issubclass(kind, PairCost) and kind is not PairCost
}
SCORES = draw(3, 6, seed=3)[0].float().double()  # exact in float32 too
LABELS = torch.tensor([[2, 0, 1, 0, 3, 1], [0, 1, 0, 2, 0, 0], [1, 1, 0, 2, 2, 0]]).double()
MASK = torch.arange(6) < torch.tensor([[6], [4], [5]])
WEIGHTS = torch.rand(3, 6, generator=torch.Generator().manual_seed(1)).double()


def per_list(call: Call) -> Call:
    """Return a function with one number a list; each element has its own factor."""

    def total(scores, labels, mask, weights):
        each = call(scores, labels, mask, weights)
        each = each.reshape(*scores.shape[:-1], -1)
        # Elements that are masked may be inf or NaN by their function, such as a discount.
        factors = torch.arange(1, each.shape[-1] + 1, dtype=each.dtype).sin() + 2
        return (factors * each).sum(-1)

    return total


# Hard operators have no gradient.
SOFT = [name for name in OPERATORS if name != "HardRank" and not name.endswith("-0")]
CALLS: dict[str, Call] = {
    **{name: of_loss(make(reduction="none")) for name, make in LOSSES.items()},
    **COSTS,
    **{f"{name}()": of_operator(name) for name in SOFT},
    **{f"{name}.permutation()": of_permutation(name) for name in SOFT if name in SORT_OPERATORS},
    **{method: call for name in SOFT for method, call in of_methods(name).items()},
    **MORE,
}
SUBJECTS = {name: (per_list(call),) for name, call in CALLS.items()}


def axes(*given: Tensor | None) -> tuple[int | None, ...]:
    """Return the axes of `vmap` for tensors of which some are None."""
    return tuple(None if x is None else 0 for x in given)


def backward(compute: Callable[[Tensor], Tensor], scores: Tensor) -> Tensor:
    leaf = scores.clone().requires_grad_()
    compute(leaf).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


def plain(total: Call, scores: Tensor, *more: Tensor | None) -> Tensor:
    return backward(lambda s: total(s, *more), scores)


def by_vmap(total: Call, scores: Tensor, *more: Tensor | None) -> Tensor:
    return backward(lambda s: vmap(total, axes(scores, *more))(s, *more), scores)


def by_vmap_of_grad(total: Call, scores: Tensor, *more: Tensor | None) -> Tensor:
    return vmap(grad(total), axes(scores, *more))(scores, *more)


def by_grad_of_vmap(total: Call, scores: Tensor, *more: Tensor | None) -> Tensor:
    with torch.no_grad():  # which is no matter of `grad`
        return grad(lambda s: vmap(total, axes(scores, *more))(s, *more).sum())(scores)


def by_vmap_of_backward(total: Call, scores: Tensor, *more: Tensor | None) -> Tensor:
    leaf = scores.clone().requires_grad_()
    value = total(leaf, *more)
    rows = torch.eye(len(value), dtype=value.dtype)
    return vmap(lambda row: torch.autograd.grad(value, leaf, row)[0])(rows).sum(0)


def by_checkpoint(total: Call, scores: Tensor, *more: Tensor | None) -> Tensor:
    found = [
        backward(lambda s: checkpoint(total, s, *more, use_reentrant=reentrant), scores)  # noqa: B023
        for reentrant in (False, True)
    ]
    torch.testing.assert_close(*found, rtol=0, atol=0)
    return found[0]


def by_compile(total: Call, scores: Tensor, *more: Tensor | None) -> Tensor:
    torch.compiler.reset()
    compiled = torch.compile(total, backend="aot_eager", fullgraph=True)
    return backward(lambda s: compiled(s, *more), scores)


MODES = [by_vmap, by_vmap_of_grad, by_grad_of_vmap, by_vmap_of_backward, by_checkpoint]


def arguments(masked: bool) -> tuple[Tensor | None, ...]:
    return (LABELS, MASK, WEIGHTS) if masked else (LABELS, None, None)


@cache  # three modes and autocast are compared with each
def plain_gradient(total: Call, form: Literal["dense", "sums"], masked: bool) -> Tensor:
    with use(form):
        return plain(total, SCORES, *arguments(masked))


def test_everything_public_is_here():
    for package in (ltr.losses, ltr.operators, ltr.preferences):
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.isfunction(value):
                assert (name in MORE) != (name in WITHOUT), name
    assert set(PUBLIC_LOSSES) <= set(SUBJECTS)


def modes() -> list[ParameterSet]:
    """Return all modes in both forms, with masks and without.

    Each mode meets each form and each kind of mask in a fast test.
    """
    cases = []
    for i, mode in enumerate(MODES):
        for form, masked in itertools.product(("dense", "sums"), (False, True)):
            fast = (form == "sums") == (masked == bool(i % 2))
            name = f"{mode.__name__}-{form}-{'masked' if masked else 'plain'}"
            # seconds each: the values that are left differ from the fast ones in one argument
            marks = [] if fast else [pytest.mark.slow]
            cases.append(pytest.param(mode, form, masked, id=name, marks=marks))
    return cases


@pytest.mark.parametrize(("mode", "form", "masked"), modes())
@together("total", SUBJECTS)
def test_one_gradient_in_every_mode(total, mode, form, masked):
    given = SCORES, *arguments(masked)
    expected = plain_gradient(total, form, masked)
    assert (expected != 0).any()
    with use(form):
        torch.testing.assert_close(mode(total, *given), expected, rtol=1e-9, atol=1e-11)


# Numba's code computes these on the CPU; elsewhere PyTorch does.
NUMBA = ["RankNet", "LambdaRank", "SigmoidRank()", "SoftSort()", "NeuralNDCG-scaled"]


@together("total", {name: SUBJECTS[name] for name in NUMBA})
def test_one_gradient_without_numba(total):
    given = SCORES, *arguments(True)
    with use("sums"):
        expected = plain(total, *given)
        with computed_by(REFERENCE):
            for mode in (plain, *MODES):
                torch.testing.assert_close(mode(total, *given), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("form", "masked"), [("dense", True), ("sums", False)])
@together("total", SUBJECTS)
def test_autocast_keeps_float32(total, form, masked):
    scores, *more = SCORES, *arguments(masked)
    expected = plain_gradient(total, form, masked)
    with use(form):
        single = [x.float() if x is not None and x.is_floating_point() else x for x in more]
        leaf = scores.float().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            value = total(leaf, *single)
        (found,) = torch.autograd.grad(value.sum(), leaf)  # outside, as torch asks for
    assert found.dtype == torch.float32
    size = expected.abs().max().item()
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5 * size)


def compiled_gradient(total: Call, form: Literal["dense", "sums"], masked: bool) -> None:
    """Compare the gradient of compiled code with the plain one."""
    given = SCORES, *arguments(masked)
    with use(form):
        found = by_compile(total, *given)
        torch.testing.assert_close(found, plain(total, *given), rtol=1e-9, atol=1e-11)


# One of each way to compute a gradient: sums over pairs, sums of exponentials, these sums in
# one call, logarithms. Each trace takes a second.
COMPILED = {
    "RankNet": ("dense", True),
    "SigmoidRank()": ("sums", True),
    "SoftSort()": ("sums", False),
    "ListMLE": ("dense", True),
}


@together("name, form, masked", {name: (name, *case) for name, case in COMPILED.items()})
def test_one_gradient_in_compiled_code(name, form, masked):
    compiled_gradient(*SUBJECTS[name], form, masked)


@pytest.mark.slow  # each function is traced, half a second to seconds
@pytest.mark.parametrize(("form", "masked"), [("dense", True), ("sums", False)])
@together("total", SUBJECTS)
def test_every_gradient_in_compiled_code(total, form, masked):
    compiled_gradient(total, form, masked)
