"""NeuralSort's rows of tied and nearly tied points, many at a time, against the matrix."""

import math

import pytest
import torch

from ltr.kernels import rows, use
from ltr.kernels.reference import row_blocks as plain_blocks
from ltr.kernels.reference import rows as plain_rows
from ltr.operators import NeuralSort

N = 500


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def neuralsort_logits(t):
    """The logits by the gaps, relative to the own place: row by row, from there outwards."""
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
PATHS = {
    "compiled": (rows.row_products, rows.row_log_sums, rows.row_vjp),
    "plain": (
        plain_rows.row_products,
        plain_rows.row_log_sums,
        plain_rows.row_vjp,
    ),
}


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Blocks for shorter lists than is worth while."""
    monkeypatch.setattr(plain_rows, "LONG", 256)


@pytest.mark.parametrize("real", [N, N - 30])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("path", PATHS)
def test_products_and_gradients_are_those_of_the_matrix(path, case, real):
    points, temperature = CASES[case]
    points = points.sort(descending=True).values
    points[real:] = points[real - 1]
    products, log_sums, vjp = PATHS[path]
    m = torch.tensor(real)
    L = torch.full((N, N), -math.inf, dtype=torch.float64)
    L[:real, :real] = neuralsort_logits(points[:real]) / temperature
    P = torch.softmax(L, -1).nan_to_num()
    # entries behind the cut are lost
    P = torch.where(P < 1e-18, 0.0, P)
    offset = (torch.arange(N) - torch.arange(N).unsqueeze(-1)).double()
    V, G = draw(N, 3, seed=1), draw(N, 3, seed=2)
    blocks = [1, 0, 0, 1, 1, 0, 1, 2, 0]
    weighted = [P * offset**u for u in range(3)]

    def close(found, expected, scale):
        assert (found - expected).abs().max() <= 2e-14 * scale.max()

    for transposed in (False, True):
        some = [w.mT if transposed else w for w in weighted]
        found = products(points, m, V, temperature, None, N, blocks, transposed)
        for u in range(3):
            close(found[:, u], some[u] @ V[:, u], some[u].abs() @ V[:, u].abs())
    found = log_sums(points, m, temperature, None, N)
    torch.testing.assert_close(found[:real], L[:real].logsumexp(-1), rtol=0, atol=2e-14)
    assert (found[real:] == 0).all()
    M = sum(offset**u * G[:, [u]] * V[:, u] for u in range(3))
    D = P * (M - (P * M).sum(-1, keepdim=True))
    size = P * (M.abs() + (P * M.abs()).sum(-1, keepdim=True))
    found = vjp(points, m, G, V, temperature, None, N, blocks)
    close(found[:, 0], D.sum(0), size.sum(0))
    close(found[:, 1], (offset * D).sum(0), (offset.abs() * size).sum(0))


def ranks_by_the_matrix(scores, temperature):
    """Ranks by the logits of the gaps, with the derivatives of the formula at ties too."""
    order = torch.argsort(scores, descending=True, stable=True)
    t, places = scores[order], torch.arange(1, N + 1).double()
    formula = (N + 1 - 2 * places).unsqueeze(-1) * t - (t.unsqueeze(-1) - t).abs().sum(0)
    logits = neuralsort_logits(t.detach()) + formula - formula.detach()
    ranks = torch.softmax(logits / temperature, -1).mT @ places
    return torch.zeros_like(ranks).scatter(0, order, ranks)


def with_gradient(function, scores):
    x = scores.clone().requires_grad_()
    ranks = function(x)
    (gradient,) = torch.autograd.grad(ranks, x, draw(N, seed=3).to(ranks.dtype))
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


def test_tied_points_are_one_block():
    n = 100_000
    numba_blocks = pytest.importorskip("ltr.kernels.cpu.row_blocks")
    points, work = torch.zeros(n), numba_blocks.new_work(n)
    given = numba_blocks.Points(points.numpy(), 1.0, n, 20.0)
    found, _ = numba_blocks.find_block(given, 0, n, numba_blocks.FIRST, work)
    assert found == (0, n, 0, n, 1)
    whole = torch.zeros(n, dtype=torch.int64), torch.full((n,), n)
    (place,) = plain_blocks.plan_blocks(points, *whole, 1.0)
    assert place == (0, n, 0, n, 0.0)
    block = plain_blocks.RowBlock(points.unsqueeze(0), place, 1.0, 20.0)
    assert block.F.shape == block.X.shape == (1, n, 1)


def test_rows_share_blocks_where_they_are_wide():
    # what a row costs does not grow with its width
    points = draw(20_000).sort(descending=True).values
    for temperature in (1.0, 1e2, 1e4):
        gaps = ((points[:-1] - points[1:]) / temperature).unsqueeze(0)
        bands = plain_rows._bands(gaps, 44.0)
        places = list(plain_blocks.plan_blocks(points, *bands, temperature))
        entries = sum(right - left for _, _, left, right, _ in places)
        assert entries < 60 * len(points)


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
