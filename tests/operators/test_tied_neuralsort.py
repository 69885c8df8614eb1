"""NeuralSort of tied and nearly tied scores, against the logits of the gaps."""

import math

import pytest
import torch

from ltr.kernels import use
from ltr.operators import NeuralSort

N = 500


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def neuralsort_logits(t):
    """The logits by the gaps, relative to the own position: row by row, from there outwards."""
    n, gaps = len(t), t[:-1] - t[1:]
    odd = (1 + 2 * torch.arange(n)).double()
    logits = torch.zeros(n, n, dtype=torch.float64)
    for i in range(n):
        logits[i, i + 1 :] = -(odd[: n - 1 - i] * gaps[i:]).cumsum(-1)
        logits[i, :i] = -(odd[:i] * gaps[:i].flip(-1)).cumsum(-1).flip(-1)
    return logits


half_tied = torch.cat([torch.zeros(N // 2, dtype=torch.float64), draw(N - N // 2)])
CASES = {
    "tied": (torch.zeros(N, dtype=torch.float64), 1.0),
    "nearly tied": (1e-6 * draw(N), 1.0),
    "wide rows": (1e-3 * draw(N), 1.0),
    "half of them tied": (half_tied, 1.0),
    "half of them tied, cold": (half_tied, 0.01),
    "rounded": (draw(N).mul(4).round() / 4, 1.0),
    "two levels": ((torch.arange(N) < 100).double(), 1.0),
    "apart": (draw(N), 1.0),
    "hot": (draw(N), 100.0),
}


def ranks_by_the_matrix(scores, temperature):
    """Ranks by the logits of the gaps, with the derivatives of the formula at ties too."""
    order = torch.argsort(scores, descending=True, stable=True)
    t, positions = scores[order], torch.arange(1, N + 1).double()
    formula = (N + 1 - 2 * positions).unsqueeze(-1) * t - (t.unsqueeze(-1) - t).abs().sum(0)
    logits = neuralsort_logits(t.detach()) + formula - formula.detach()
    ranks = torch.softmax(logits / temperature, -1).mT @ positions
    return torch.zeros_like(ranks).scatter(0, order, ranks)


def with_gradient(function, scores):
    x = scores.clone().requires_grad_()
    ranks = function(x)
    (gradient,) = torch.autograd.grad(ranks, x, draw(*ranks.shape, seed=3).to(ranks.dtype))
    return ranks.detach().double(), gradient.double()


# float32 scores tie, or part, otherwise. Logits add numbers of size n times the range.
BOUNDS = {torch.float64: 1e-10, torch.float32: 2e-4}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("form", ["sums", "dense"])
@pytest.mark.parametrize("case", CASES)
def test_ranks_and_their_gradients_are_those_of_the_matrix(case, form, dtype):
    scores, temperature = CASES[case]
    expected = with_gradient(lambda x: ranks_by_the_matrix(x, temperature), scores)
    with use(form):
        found = with_gradient(NeuralSort(temperature), scores.to(dtype))
    for ours, right in zip(found, expected, strict=True):
        assert (ours - right).abs().max() <= BOUNDS[dtype] * right.abs().max()


def mixed_batch():
    """Four lists, of which the first and the last have equal real scores, and their mask."""
    scores = draw(4, N)
    scores[0] = 2.0
    scores[3, : N - 50] = -1.0
    mask = torch.ones(4, N, dtype=torch.bool)
    mask[2, 100:], mask[3, N - 50 :] = False, False
    return scores, mask


def test_tied_lists_beside_others():
    scores, mask = mixed_batch()
    with use("sums"):
        sums = with_gradient(lambda x: NeuralSort()(x, mask), scores)
    with use("dense"):
        dense = with_gradient(lambda x: NeuralSort()(x, mask), scores)
    for ours, expected in zip(sums, dense, strict=True):
        assert (ours - expected).abs().max() <= 1e-10 * expected.abs().max()


def test_tied_lists_in_vmap():
    scores = mixed_batch()[0].view(2, 2, N)
    with use("sums"):
        found = torch.func.vmap(NeuralSort())(scores)
        expected = NeuralSort()(scores)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_second_derivatives_of_tied_lists():
    scores, direction = torch.zeros(N, dtype=torch.float64), draw(N, seed=4)

    def product(form):
        x = scores.clone().requires_grad_()
        with use(form):
            total = (NeuralSort()(x) * draw(N, seed=3)).sum()
            (gradient,) = torch.autograd.grad(total, x, create_graph=True)
            return torch.autograd.grad(gradient @ direction, x)[0]

    expected = product("dense")
    assert (product("sums") - expected).abs().max() <= 1e-10 * expected.abs().max()


@pytest.mark.parametrize("form", ["sums", "dense"])
def test_log_probabilities_of_tied_lists(form):
    scores = torch.zeros(N, dtype=torch.float64)
    order = torch.arange(N)
    with use(form):
        found = NeuralSort().permutation(scores).log_prob(order)
    expected = torch.full_like(found, -math.log(N))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
