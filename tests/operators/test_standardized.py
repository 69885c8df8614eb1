"""Standardized operators: the formula, invariance, ties, odd scales and derivatives."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ltr.operators import (
    HardRank,
    NeuralSort,
    SigmoidRank,
    SoftRank,
    SoftSort,
    Standardized,
    Stochastic,
    hard_ranks,
)

OPERATORS = [SigmoidRank(0.3), SoftSort(0.3), SoftRank(0.3), NeuralSort(0.3)]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def by_definition(scores: torch.Tensor) -> torch.Tensor:
    return (scores - scores.mean()) / scores.std(correction=0)


@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
def test_it_is_the_operator_of_the_standardized_scores(operator):
    scores, mask = draw(3, 8), draw(3, 8, seed=1) < 0.7
    found = Standardized(operator)(scores, mask)
    wrapped = Standardized(operator)
    for s, m, ranks in zip(scores, mask, found, strict=True):
        z = by_definition(s[m])
        torch.testing.assert_close(ranks[m], operator(z))
        inverse = torch.reciprocal
        expected = operator.discounts(inverse, z)
        torch.testing.assert_close(wrapped.discounts(inverse, s, m)[m], expected)
        torch.testing.assert_close(wrapped.top_k(2, s, m)[m], operator.top_k(2, z))


def test_the_permutation_sorts_the_standardized_scores():
    scores = draw(6)
    P = Standardized(SoftSort(0.2)).permutation(scores)
    torch.testing.assert_close(P.sort(), SoftSort(0.2).permutation(by_definition(scores)).sort())
    with pytest.raises(ValueError, match=r"operator.*SigmoidRank"):
        Standardized(SigmoidRank()).permutation(scores)


@settings(deadline=None)
@given(st.floats(-12, 12), st.floats(-5, 5), st.integers(0, 99))
def test_scale_and_shift_change_nothing(power, shift, seed):
    scores, scale = draw(7, seed=seed), 10.0**power
    results = []
    for a, b in ((1.0, 0.0), (scale, scale * shift)):
        x = (a * scores + b).requires_grad_()
        ranks = Standardized()(x)
        (slopes,) = torch.autograd.grad((ranks * torch.arange(7)).sum(), x)
        results.append((ranks, a * slopes))
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-9)


def test_the_gradient_is_orthogonal_to_the_scores():
    x = draw(4, 9).requires_grad_()
    (Standardized()(x) * draw(4, 9, seed=1)).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close((x.grad * x).sum(-1), torch.zeros(4).double(), atol=1e-12, rtol=0)


@pytest.mark.parametrize("value", [0.0, 0.1, -3e4, 1e30])
@pytest.mark.parametrize("n", [1, 3, 8])
def test_ties_have_the_mean_rank_and_no_gradient_of_the_spread(value, n):
    x = torch.full((2, n), value, requires_grad=True)
    ranks = Standardized(SigmoidRank(0.3))(x)
    torch.testing.assert_close(ranks, torch.full((2, n), (n + 1) / 2))
    ranks[:, 0].sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    plain = torch.zeros(2, n, requires_grad=True)
    if n > 1:  # the unit of a list of ties is 1
        SigmoidRank(0.3)(plain)[:, 0].sum().backward()
        torch.testing.assert_close(x.grad, plain.grad)


def test_a_list_of_two_keeps_its_gradient():
    mask = torch.tensor([True, True, False])
    for s, m in ((torch.tensor([0.2, 0.5]), None), (torch.tensor([0.2, 0.5, 9.0]), mask)):
        x = s.double().requires_grad_()
        ranks = Standardized(SigmoidRank(0.3))(x, m)
        torch.testing.assert_close(ranks[:2], SigmoidRank(0.3)(x[:2]))
        ranks[0].backward()
        assert x.grad is not None
        assert x.grad[0] < 0 < x.grad[1]


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e30, 1e38])
def test_scores_of_any_size_in_float32(scale):
    scores = scale * torch.tensor([0.1, 0.9, -0.9, 0.5])
    torch.testing.assert_close(
        Standardized()(scores), Standardized()(scores / scale), rtol=1e-4, atol=1e-4
    )


def test_empty_and_masked_lists():
    assert Standardized()(torch.zeros(2, 0)).shape == (2, 0)
    x = torch.full((1, 3), torch.nan, requires_grad=True)
    ranks = Standardized()(x, torch.zeros(1, 3, dtype=torch.bool))
    ranks.sum().backward()
    assert ranks.tolist() == [[1.0, 1.0, 1.0]]
    assert x.grad is not None
    assert x.grad.tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("operator", [SigmoidRank(0.3), SoftSort(0.5)], ids=repr)
def test_derivatives(operator):
    x, mask = draw(2, 5).requires_grad_(), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])

    def ranks(x):
        return Standardized(operator)(x, mask)

    assert torch.autograd.gradcheck(ranks, x)
    if isinstance(operator, SigmoidRank):
        assert torch.autograd.gradgradcheck(ranks, x)


def test_hard_ranks_stay():
    scores = draw(5, 7)
    operator = Standardized(HardRank())
    assert operator.exact_cutoff
    torch.testing.assert_close(operator(scores), hard_ranks(scores))


def test_half_precision_and_transforms():
    scores = draw(3, 6)
    low = Standardized()(scores.bfloat16())
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, Standardized()(scores.bfloat16().float()))
    torch.testing.assert_close(torch.func.vmap(Standardized())(scores), Standardized()(scores))


@pytest.mark.parametrize("operator", [Stochastic(), "SoftSort", SoftSort], ids=str)
def test_what_it_refuses(operator):
    with pytest.raises(ValueError, match="operator must"):
        Standardized(operator)
