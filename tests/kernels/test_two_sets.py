"""Kernel sums at separate queries, against every pair."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, vmap

from ltr.kernels.named import COUNT_KERNELS, gaussian, laplace
from ltr.kernels.two_sets import kernel_sums_at

KERNELS = {
    "laplace": (laplace(), lambda x: torch.exp(-x.abs())),
    "gaussian": (gaussian(), lambda x: torch.exp(-x.square())),
    "logistic": (COUNT_KERNELS["logistic"][torch.float64], lambda x: torch.sigmoid(-x)),
}
kernels = pytest.mark.parametrize(("kernel", "k"), KERNELS.values(), ids=KERNELS)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@kernels
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("q", "n"), [(1, 1), (7, 40), (300, 20)])
def test_every_pair(kernel, k, masked, q, n):
    queries, scores, v = draw(3, q), draw(3, n, seed=1), draw(3, n, seed=2)
    wanted = torch.ones(3, q).bool()
    real = torch.ones(3, n).bool()
    if masked:
        wanted, real = draw(3, q, seed=3) < 0.5, draw(3, n, seed=4) < 0.5
        scores = scores.where(real, torch.nan)
    pairs = k((queries.unsqueeze(-1) - scores.unsqueeze(-2)) / 0.3)
    expected = (pairs * v.unsqueeze(-2)).where(real.unsqueeze(-2), 0.0).sum(-1) * wanted
    masks = (wanted, real) if masked else ()
    (found,) = kernel_sums_at(queries, scores, [v], [(0, kernel)], 0.3, *masks)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11 * n)


@kernels
def test_derivatives(kernel, k):
    given = [x.requires_grad_() for x in (draw(2, 3), draw(2, 4, seed=1), draw(2, 4, seed=2))]

    def sums(queries, scores, v):
        return kernel_sums_at(queries, scores, [v], [(0, kernel)], 0.7)[0]

    assert gradcheck(sums, given)
    assert gradgradcheck(sums, given)


def test_vmap_and_bad_queries():
    queries, scores, v = draw(3, 5), draw(3, 6, seed=1), draw(3, 6, seed=2)

    def total(queries, scores, v):
        return kernel_sums_at(queries, scores, [v], [(0, gaussian())])[0].sum()

    each = vmap(grad(total))(queries, scores, v)
    torch.testing.assert_close(each, grad(total)(queries, scores, v))
    queries[1, 2] = torch.nan
    found = kernel_sums_at(queries, scores, [v], [(0, gaussian())])[0].isnan()
    assert found.all(-1).tolist() == [False, True, False]
    assert found.any(-1).tolist() == [False, True, False]
