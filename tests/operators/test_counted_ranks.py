"""Ranks that count the items above softly: one table of kernels, each against its definition."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from operator_table import draw
from pairwise import each, named, split, together
from scipy.stats import laplace, logistic, norm

from ltr.kernels import use
from ltr.kernels.table import exponential_sum
from ltr.operators import GaussianRank, LaplaceRank, SigmoidRank, SoftplusRank
from ltr.operators.distributions import laplace_cdf


class Counted(NamedTuple):
    """A kernel: what an item with the score t counts for one with s, at x = (t - s) / temperature.

    The item itself counts 1.
    """

    operator: Callable[[float], Any]
    counts: Callable[[float], Any]
    """The definition at one x, by scipy or the standard library."""
    above: Callable[[torch.Tensor], torch.Tensor]
    """The definition by torch, with derivatives."""
    noise: Callable[[np.random.Generator, tuple[int, int]], np.ndarray] | None = None
    """Noise of scores whose mean ranks these are; None if there is none."""
    error: float = 0.0
    """The error of the fitted kernel, for one other item."""
    has_kink: bool = False


KERNELS = {
    "laplace": Counted(
        LaplaceRank, laplace.cdf, laplace_cdf, lambda rng, n: rng.exponential(1, n), has_kink=True
    ),
    "logistic": Counted(
        SigmoidRank,
        logistic.cdf,
        torch.sigmoid,
        lambda rng, n: rng.gumbel(0, 1, n),
        exponential_sum("logistic", "float64").errors[0],
    ),
    "normal": Counted(
        GaussianRank,
        lambda x: norm.cdf(x / math.sqrt(2)),
        lambda x: torch.special.ndtr(x / math.sqrt(2)),
        lambda rng, n: rng.normal(0, 1, n),
        exponential_sum("normal", "float64").errors[0],
    ),
    "softplus": Counted(
        SoftplusRank,
        lambda x: math.log2(1 + math.exp(x)) if x < 500 else x / math.log(2),
        lambda x: torch.logaddexp(x, torch.zeros_like(x)) / math.log(2),
        error=exponential_sum("softplus", "float64").errors[0] / math.log(2),
    ),
}
kernels = each("kernel", KERNELS)
noises = each("kernel", {name: kernel for name, kernel in KERNELS.items() if kernel.noise})
FORMS = named("dense", "sums")


def pairwise(
    kernel: Counted, scores: torch.Tensor, mask: torch.Tensor | None, temperature: float
) -> torch.Tensor:
    """The plain definition, O(n^2)."""
    above = kernel.above((scores.unsqueeze(-2) - scores.unsqueeze(-1)) / temperature)
    own = 1 - kernel.counts(0.0)
    if mask is None:
        return above.sum(-1) + own
    ranks = torch.where(mask.unsqueeze(-2), above, 0.0).sum(-1) + own
    return torch.where(mask, ranks, mask.sum(-1, keepdim=True) + 1)


@together("kernel, temperature", *split(KERNELS, named(0.05, 0.3, 0.7, 20.0)))
def test_the_formula(kernel, temperature):
    scores = draw(6).tolist()
    expected = [
        1 + sum(kernel.counts((t - s) / temperature) for j, t in enumerate(scores) if j != i)
        for i, s in enumerate(scores)
    ]
    ranks = kernel.operator(temperature)(torch.tensor(scores, dtype=torch.float64))
    # The normal distribution is the fitted one here too.
    error = kernel.error if kernel.operator is GaussianRank else 0.0
    np.testing.assert_allclose(ranks, expected, rtol=1e-14, atol=len(scores) * error)


@together(
    "kernel, n, temperature, masked, form",
    *split(
        KERNELS,
        named(1, 2, 3, 4, 5, 8, 9, 31, 64, 100),
        named(1e-3, 0.5, 40.0),
        named(False, True),
        FORMS,
    ),
)
def test_both_forms_are_the_pairwise_sum(kernel, n, temperature, masked, form):
    scores = 1000 + draw(3, n, seed=n)
    mask = draw(3, n, seed=1) > -0.5 if masked else None
    with use(form):
        ranks = kernel.operator(temperature)(scores, mask)
    expected = pairwise(kernel, scores, mask, temperature)
    rtol = 1e-12 if kernel.operator is SoftplusRank else 0  # its ranks are large
    torch.testing.assert_close(ranks, expected, rtol=rtol, atol=1e-11 + n * kernel.error)


@kernels
def test_a_long_list_is_the_pairwise_sum(kernel):
    scores = draw(3000)
    with use("sums"):
        ranks = kernel.operator(0.7)(scores)
    expected = pairwise(kernel, scores, None, 0.7)
    torch.testing.assert_close(ranks, expected, rtol=1e-12, atol=1e-9 + 3000 * kernel.error)


@together("kernel, ties, form", *split(KERNELS, named(False, True), FORMS))
def test_gradients_are_those_of_the_pairwise_sum(kernel, ties, form):
    scores = draw(2, 20, seed=6)
    if ties:
        scores = (2 * scores).round() / 2
    mask, weights = draw(2, 20, seed=7) > -1, draw(2, 20, seed=8)

    def derivatives(ranks):
        x = scores.clone().requires_grad_()
        (first,) = torch.autograd.grad((ranks(x, mask) * weights).sum(), x, create_graph=True)
        if kernel.has_kink:  # whose second derivative at a tie is a spike
            return (first,)
        (second,) = torch.autograd.grad((first * weights).sum(), x)
        return first, second

    expected = derivatives(lambda x, mask: pairwise(kernel, x, mask, 0.4))
    with use(form):
        found = derivatives(kernel.operator(0.4))
    atol = 1e-9 if kernel.error else 1e-12
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


@noises
def test_they_are_the_mean_ranks_of_noisy_scores(kernel):
    rng, draws = np.random.default_rng(0), 100_000
    scores = np.array([0.0, 0.5, 0.6, 2.0])
    drawn = torch.tensor(scores + 0.7 * kernel.noise(rng, (draws, 4)))
    drawn = 1 + drawn.argsort(-1, descending=True).argsort(-1).double()
    error = drawn.std(0) / draws**0.5
    expected = kernel.operator(0.7)(torch.tensor(scores))
    assert ((drawn.mean(0) - expected).abs() < 5 * error).all()


@together("kernel, temperature", *split(KERNELS, named(1e-2, 1.0, 1e2)))
def test_float32_keeps_its_digits_on_long_lists(kernel, temperature):
    scores = draw(5000, dtype=torch.float32)
    double = kernel.operator(temperature)(scores.double())
    single = kernel.operator(temperature)(scores).double()
    # the ranks of softplus are larger than n
    rtol = 2e-6 if kernel.operator is SoftplusRank else 0
    torch.testing.assert_close(single, double, rtol=rtol, atol=1e-6 * 5000)


@kernels
def test_a_long_list_needs_no_matrix(kernel):
    scores = draw(100_000, dtype=torch.float32).requires_grad_()
    ranks = kernel.operator(0.1)(scores)
    ranks[0].backward()
    assert ranks.min() >= 1
    if kernel.noise:
        assert ranks.double().mean().item() == pytest.approx(50_000.5, rel=1e-6)
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_the_slope_of_laplace_at_0_is_that_of_both_sides():
    x = torch.zeros((), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.grad(laplace_cdf(x), x)[0] == 0.5


def test_the_far_tail_of_the_normal_keeps_its_digits():
    ranks = GaussianRank(1.0)(torch.tensor([0.0, 10.0], dtype=torch.float64))
    assert ranks[1].item() - 1 == pytest.approx(norm.sf(10 / np.sqrt(2)), rel=1e-3)


def test_1_2_times_the_temperature_of_sigmoid_ranks_is_as_soft():
    scores = draw(50)
    assert (GaussianRank(0.36)(scores) - SigmoidRank(0.3)(scores)).abs().max() < 0.2


@kernels
def test_long_lists_are_summed_in_sorted_order_to_the_same(kernel, monkeypatch):
    from ltr.operators import pairwise

    scores, g, mask = draw(3, 60).requires_grad_(), draw(3, 60, seed=1), draw(3, 60, seed=2) < 1
    weights = draw(3, 60, seed=3).exp()
    for w in (None, weights):
        results = []
        for length in (1, 1000):
            monkeypatch.setattr(pairwise, "LONG_LIST", length)
            with use("sums"):
                ranks = kernel.operator(0.3)(scores, mask, w)
            results.append([ranks.detach(), *torch.autograd.grad(ranks, scores, g)])
        torch.testing.assert_close(*results)
