"""Gaussian expected ranks against the formula and against noise that is drawn."""

import numpy as np
import pytest
import torch
from operator_table import draw
from scipy.stats import norm

from ltr.kernels import use
from ltr.kernels.table import exponential_sum
from ltr.operators import GaussianRank, SigmoidRank


@pytest.mark.parametrize("sigma", [0.05, 0.7, 20.0])
def test_the_formula(sigma):
    scores = draw(6).tolist()
    expected = [
        1 + sum(norm.cdf((t - s) / (np.sqrt(2) * sigma)) for j, t in enumerate(scores) if j != i)
        for i, s in enumerate(scores)
    ]
    ranks = GaussianRank(sigma)(torch.tensor(scores, dtype=torch.float64))
    error = exponential_sum("normal", "float64").errors[0]  # of each of the other items
    np.testing.assert_allclose(ranks, expected, rtol=1e-13, atol=len(scores) * error)


def test_they_are_the_mean_ranks_of_noisy_scores():
    generator = torch.Generator().manual_seed(0)
    scores, draws = torch.tensor([0.0, 0.5, 0.6, 2.0]).double(), 100_000
    noise = torch.randn(draws, 4, dtype=torch.float64, generator=generator)
    drawn = 1 + (scores + 0.7 * noise).argsort(-1, descending=True).argsort(-1).double()
    error = drawn.std(0) / draws**0.5
    assert ((drawn.mean(0) - GaussianRank(0.7)(scores)).abs() < 5 * error).all()


def test_the_far_tail_keeps_its_digits():
    ranks = GaussianRank(1.0)(torch.tensor([0.0, 10.0], dtype=torch.float64))
    assert ranks[1].item() - 1 == pytest.approx(norm.sf(10 / np.sqrt(2)), rel=1e-3)


def test_1_2_times_the_temperature_of_sigmoid_ranks_is_as_soft():
    scores = draw(50)
    assert (GaussianRank(0.36)(scores) - SigmoidRank(0.3)(scores)).abs().max() < 0.2


def test_long_lists_are_summed_in_sorted_order_to_the_same(monkeypatch):
    from ltr.operators import pairwise

    scores, g, mask = draw(3, 60).requires_grad_(), draw(3, 60, seed=1), draw(3, 60, seed=2) < 1
    weights = draw(3, 60, seed=3).exp()
    for w in (None, weights):
        results = []
        for length in (1, 1000):
            monkeypatch.setattr(pairwise, "LONG", length)
            with use("sums"):
                ranks = GaussianRank(0.3)(scores, mask, w)
            results.append([ranks.detach(), *torch.autograd.grad(ranks, scores, g)])
        torch.testing.assert_close(*results)
