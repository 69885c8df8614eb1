"""NeuralSort's rows of tied and nearly tied points, against the matrix."""

import math

import pytest
import torch

from ltr.kernels import rows, use
from ltr.kernels.reference import rows as plain_rows
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


sizes = torch.tensor([0.0, 1e-6, 1e-4, 1e-2, 1.0, 40.0], dtype=torch.float64)
some = torch.randint(6, (N,), generator=torch.Generator().manual_seed(5))
all_gaps = sizes[some].cumsum(-1)
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
MATRIX_CASES = {
    **CASES,
    "two levels, cold": ((torch.arange(N) < 100).double(), 0.02),
    "gaps of all sizes": (all_gaps, 1.0),
}
PATHS = {
    "compiled": (rows.row_products, rows.row_log_sums, rows.row_vjp),
    "plain": (
        plain_rows.row_products,
        plain_rows.row_log_sums,
        plain_rows.row_vjp,
    ),
}


@pytest.mark.parametrize("real", [N, N - 30])
@pytest.mark.parametrize("case", MATRIX_CASES)
@pytest.mark.parametrize("path", PATHS)
def test_products_and_gradients_are_those_of_the_matrix(path, case, real):
    points, temperature = MATRIX_CASES[case]
    points = points.sort(descending=True).values
    points[real:] = points[real - 1]
    products, log_sums, vjp = PATHS[path]
    one, m = points.unsqueeze(0), torch.tensor([real])
    L = torch.full((N, N), -math.inf, dtype=torch.float64)
    L[:real, :real] = neuralsort_logits(points[:real]) / temperature
    P = torch.softmax(L, -1).nan_to_num()
    # elements beyond the cutoff are lost
    P = torch.where(P < 1e-18, 0.0, P)
    offset = (torch.arange(N) - torch.arange(N).unsqueeze(-1)).double()
    V, G = draw(N, 3, seed=1), draw(N, 3, seed=2)
    blocks = [1, 0, 1, 1, 1, 2]
    weighted = [P * offset**u for u in range(3)]

    def close(found, expected, scale):
        assert (found - expected).abs().max() <= 2e-14 * scale.max()

    for transposed in (False, True):
        some = [w.mT if transposed else w for w in weighted]
        found = products(one, m, V.unsqueeze(0), temperature, N, blocks, transposed)[0]
        for u in range(3):
            close(found[:, u], some[u] @ V[:, u], some[u].abs() @ V[:, u].abs())
    found = log_sums(one, m, temperature, N)[0]
    torch.testing.assert_close(found[:real], L[:real].logsumexp(-1), rtol=0, atol=2e-14)
    assert (found[real:] == 0).all()
    M = sum(offset**u * G[:, [u]] * V[:, u] for u in range(3))
    D = P * (M - (P * M).sum(-1, keepdim=True))
    size = P * (M.abs() + (P * M.abs()).sum(-1, keepdim=True))
    found = vjp(one, m, G.unsqueeze(0), V.unsqueeze(0), temperature, N, blocks)[0]
    close(found[:, 0], D.sum(0), size.sum(0))
    close(found[:, 1], (offset * D).sum(0), (offset.abs() * size).sum(0))


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


# float32 scores tie, or part, otherwise. The dense form adds numbers of size n times the range.
BOUNDS = {("sums", torch.float64): 1e-12, ("dense", torch.float64): 1e-10}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("form", ["sums", "dense"])
@pytest.mark.parametrize("case", CASES)
def test_ranks_and_their_gradients_are_those_of_the_matrix(case, form, dtype):
    scores, temperature = CASES[case]
    expected = with_gradient(lambda x: ranks_by_the_matrix(x, temperature), scores)
    with use(form):
        found = with_gradient(NeuralSort(temperature), scores.to(dtype))
    for ours, right in zip(found, expected, strict=True):
        bound = BOUNDS.get((form, dtype), 2e-4)
        assert (ours - right).abs().max() <= bound * right.abs().max()


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


def test_long_lists_of_tied_scores_have_the_mean_rank():
    scores = torch.zeros(200_000, dtype=torch.float64, requires_grad=True)
    ranks = NeuralSort()(scores)
    ranks[0].backward()
    n = len(scores)
    assert (ranks - (n + 1) / 2).abs().max() < 1e-9 * n
    assert scores.grad is not None
    # d rank_0 / d s_k by the definition, all entries 1 / n: the sum over i of i (n + 1 - 2 i) / n
    own = -(n + 1) * (n - 1) / 6
    torch.testing.assert_close(scores.grad[0].item(), own * (1 - 1 / n), rtol=1e-9, atol=0)
    torch.testing.assert_close(scores.grad[1].item(), -own / n, rtol=1e-9, atol=0)
