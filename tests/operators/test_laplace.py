"""Laplace expected ranks: the scans against the pairwise sum, and against noise that is drawn."""

import numpy as np
import pytest
import torch
from operator_table import draw
from pairwise import named, split, together
from scipy.stats import laplace

from ltr.operators import LaplaceRank
from ltr.operators.distributions import laplace_cdf


def pairwise(scores: torch.Tensor, mask: torch.Tensor | None, temperature: float) -> torch.Tensor:
    """The plain definition, O(n^2)."""
    above = laplace_cdf((scores.unsqueeze(-2) - scores.unsqueeze(-1)) / temperature)
    if mask is None:
        return above.sum(-1) + 0.5
    ranks = torch.where(mask.unsqueeze(-2), above, 0.0).sum(-1) + 0.5
    return torch.where(mask, ranks, mask.sum(-1, keepdim=True) + 1)


def test_the_formula():
    scores = draw(6).tolist()
    expected = [
        1 + sum(laplace.cdf((t - s) / 0.3) for j, t in enumerate(scores) if j != i)
        for i, s in enumerate(scores)
    ]
    ranks = LaplaceRank(0.3)(torch.tensor(scores, dtype=torch.float64))
    np.testing.assert_allclose(ranks, expected, rtol=1e-14)


@together(
    "n, temperature, masked",
    *split(named(1, 2, 3, 4, 5, 8, 9, 31, 64, 100), named(1e-3, 0.5, 40.0), named(False, True)),
)
def test_scans_are_the_pairwise_sum(n, temperature, masked):
    scores = 1000 + draw(3, n, seed=n)
    mask = draw(3, n, seed=1) > -0.5 if masked else None
    ranks = LaplaceRank(temperature)(scores, mask)
    torch.testing.assert_close(ranks, pairwise(scores, mask, temperature), rtol=0, atol=1e-11)


@pytest.mark.parametrize("ties", [False, True])
def test_gradients_are_those_of_the_pairwise_sum(ties):
    scores = draw(2, 20, seed=6)
    if ties:
        scores = (2 * scores).round() / 2
    mask, weights = draw(2, 20, seed=7) > -1, draw(2, 20, seed=8)

    def gradient(ranks):
        x = scores.clone().requires_grad_()
        return torch.autograd.grad((ranks(x, mask) * weights).sum(), x)[0]

    expected = gradient(lambda x, mask: pairwise(x, mask, 0.4))
    torch.testing.assert_close(gradient(LaplaceRank(0.4)), expected, rtol=0, atol=1e-12)


def test_they_are_the_mean_ranks_of_scores_with_exponential_noise():
    rng, draws = np.random.default_rng(0), 100_000
    scores = np.array([0.0, 0.5, 0.6, 2.0])
    drawn = torch.tensor(scores + rng.exponential(0.7, (draws, 4)))
    drawn = 1 + drawn.argsort(-1, descending=True).argsort(-1).double()
    error = drawn.std(0) / draws**0.5
    expected = LaplaceRank(0.7)(torch.tensor(scores))
    assert ((drawn.mean(0) - expected).abs() < 5 * error).all()


@pytest.mark.parametrize("temperature", [1e-2, 1.0, 1e2])
def test_float32_keeps_its_digits_on_long_lists(temperature):
    scores = draw(5000, dtype=torch.float32)
    double = LaplaceRank(temperature)(scores.double())
    single = LaplaceRank(temperature)(scores)
    assert (single - double).abs().max() / 5000 < 1e-6


def test_a_long_list_needs_no_matrix():
    scores = draw(100_000, dtype=torch.float32).requires_grad_()
    ranks = LaplaceRank()(scores)
    ranks[0].backward()
    assert ranks.double().mean().item() == pytest.approx(50_000.5, rel=1e-6)
    assert scores.grad.isfinite().all()


def test_the_distribution_function_has_one_slope_at_0():
    x = torch.zeros((), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.grad(laplace_cdf(x), x)[0] == 0.5
