"""Kernel sums of ones, whose backward has one column: the same as the sums of any column."""

import pytest
import torch
from torch.autograd.functional import jacobian

from ltr.kernels import kernel_sums, kernel_totals, laplace, sort_lists, sort_ragged, survival

KERNELS = {"laplace": laplace(), "logistic": survival("logistic", "float64")}
kernels = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def plain(scores, kernel, lists, temperature):
    ones = torch.ones_like(scores)
    return kernel_sums(scores, [ones], [(0, kernel)], lists, temperature)[0]


@kernels
@pytest.mark.parametrize("ragged", [False, True])
def test_values_and_gradients(kernel, ragged):
    scores = draw(11) if ragged else draw(2, 3, 9)
    mask = torch.rand(2, 3, 9) < 0.7
    lists = sort_ragged(scores, torch.tensor([4, 0, 7])) if ragged else sort_lists(scores, mask)
    found, expected = (f(scores, kernel, lists, 0.3) for f in (kernel_totals, plain))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    g = draw(*scores.shape, seed=1).detach()
    for _ in range(2):  # what is kept is not changed
        (one,) = torch.autograd.grad(found, scores, g, retain_graph=True)
        (two,) = torch.autograd.grad(expected, scores, g, retain_graph=True)
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


@kernels
def test_derivatives_of_all_kinds(kernel):
    scores = draw(2, 5)

    def totals(x):
        return kernel_totals(x, kernel, sort_lists(x), 0.3)

    assert torch.autograd.gradcheck(totals, scores, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(totals, scores)
    x = scores.detach()
    rows, at_once = (jacobian(totals, x, vectorize=vectorize) for vectorize in (False, True))
    torch.testing.assert_close(rows, at_once)
    torch.testing.assert_close(rows, torch.func.jacrev(totals)(x))
    torch.testing.assert_close(rows, torch.func.jacfwd(totals)(x))
    torch.testing.assert_close(torch.vmap(totals)(scores), totals(scores))


@kernels
def test_weights_are_a_column(kernel):
    scores, weights = draw(2, 6), draw(2, 6, seed=1).detach().abs()
    lists = sort_lists(scores)
    found = kernel_totals(scores, kernel, lists, 0.3, weights)
    (expected,) = kernel_sums(scores, [weights], [(0, kernel)], lists, 0.3)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("gradient", [False, True])
def test_bad_arguments(gradient):
    scores = draw(2, 6).detach().requires_grad_(gradient)
    lists, k = sort_lists(scores), laplace()
    with pytest.raises(ValueError, match="temperature must be > 0, got 0"):
        kernel_totals(scores, k, lists, 0.0)
    with pytest.raises(ValueError, match="temperature must be > 0, got nan"):
        kernel_totals(scores, k, lists, float("nan"))
    half = scores.detach().half().requires_grad_(gradient)
    with pytest.raises(ValueError, match=r"scores must be float32 or float64, got torch\.float16"):
        kernel_totals(half, k, lists)
    with pytest.raises(ValueError, match=r"lists must be those of scores \(2, 5\), got an order"):
        kernel_totals(scores[:, :5], k, lists)
    with pytest.raises(ValueError, match="columns must have the shape of scores"):
        kernel_totals(scores, k, lists, weights=scores[:, :5])


@pytest.mark.parametrize("n", [0, 1])
def test_short_and_spoiled_lists(n):
    scores = draw(3, n)
    totals = kernel_totals(scores, laplace(), sort_lists(scores))
    torch.testing.assert_close(totals, torch.ones_like(scores))
    (gradient,) = torch.autograd.grad(totals.sum(), scores)
    torch.testing.assert_close(gradient, torch.zeros_like(scores))
    scores = draw(3, 4).detach()
    scores[0, 1], scores[1, 2] = torch.nan, torch.inf
    scores.requires_grad_()
    totals = kernel_totals(scores, laplace(), sort_lists(scores))
    (gradient,) = torch.autograd.grad(totals.sum(), scores)
    for found in (totals, gradient):
        assert found[:2].isnan().all()
        assert found[2].isfinite().all()
    masked = kernel_totals(scores, laplace(), sort_lists(scores, torch.zeros(3, 4, dtype=bool)))
    assert (masked == 0).all()
