"""Soft matchings against the published recursion, linear assignment and the noise distribution."""

import copy

import numpy as np
import pytest
import torch
from operator_table import draw
from scipy.optimize import linear_sum_assignment
from torch.func import jvp, vmap

from ltr.operators import GumbelSinkhorn
from ltr.operators.gumbel_sinkhorn import Matching


def naive_sinkhorn(matrix: np.ndarray, iterations: int) -> np.ndarray:
    """Equation 1 of the paper, columns before rows."""
    p = np.exp(matrix)
    for _ in range(iterations):
        p = p / p.sum(0, keepdims=True)
        p = p / p.sum(1, keepdims=True)
    return p


@pytest.mark.parametrize("iterations", [1, 2, 20])
@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_the_published_recursion(iterations, temperature):
    matrix = draw(5, 5)
    P = GumbelSinkhorn(temperature, iterations)(matrix)
    expected = naive_sinkhorn(matrix.numpy() / temperature, iterations)
    np.testing.assert_allclose(P.dense(), expected, rtol=1e-12)


def test_the_solution_is_the_limit_of_the_iterations():
    matrix = draw(3, 6, 6)
    solved = GumbelSinkhorn(iterations=None)(matrix).dense()
    torch.testing.assert_close(solved, GumbelSinkhorn(iterations=1000)(matrix).dense())
    ones = torch.ones(3, 6, dtype=torch.float64)
    torch.testing.assert_close(solved.sum(-1), ones)
    torch.testing.assert_close(solved.sum(-2), ones)


@pytest.mark.parametrize("temperature", [0.0, 1e-3, 1.0, 100.0])
@pytest.mark.parametrize("iterations", [1, 20])
def test_hard_is_the_best_matching_whatever_the_temperature(temperature, iterations):
    matrix = draw(4, 7, 7)
    P = GumbelSinkhorn(temperature, iterations)(matrix)
    expected = [linear_sum_assignment(m.numpy(), maximize=True)[1].tolist() for m in matrix]
    assert P.hard().tolist() == expected


def test_limits_of_the_temperature():
    matrix = draw(3, 5, 5)
    hard = GumbelSinkhorn(0)(matrix)
    one_hot = torch.nn.functional.one_hot(hard.hard(), 5).double()
    assert torch.equal(hard.dense(), one_hot)
    cold = GumbelSinkhorn(1e-3, None)(matrix)
    torch.testing.assert_close(cold.dense(), one_hot, rtol=0, atol=1e-9)
    hot = GumbelSinkhorn(1e9)(matrix)
    torch.testing.assert_close(hot.dense(), torch.full((3, 5, 5), 0.2).double())


@pytest.mark.parametrize("iterations", [5, None])
@pytest.mark.parametrize("hidden", [0.0, 1e30, torch.nan, torch.inf, -torch.inf])
def test_masks_are_deletion(iterations, hidden):
    real = draw(4, 4).requires_grad_()
    columns = torch.tensor([True, False, True, True, False, True])
    rows = torch.tensor([False, True, True, False, True, True])
    matrix = torch.full((6, 6), hidden, dtype=torch.float64)
    matrix = matrix.masked_scatter(rows[:, None] & columns, real).detach().requires_grad_()
    P = GumbelSinkhorn(iterations=iterations)(matrix, columns, rows)
    expected = GumbelSinkhorn(iterations=iterations)(real)
    inside = P.dense()[rows][:, columns]
    torch.testing.assert_close(inside, expected.dense(), rtol=0, atol=1e-12)
    assert P.dense().sum().item() == pytest.approx(4)
    assert (P.dense()[~rows] == 0).all()
    assert (P.dense()[:, ~columns] == 0).all()
    order = P.hard()
    assert sorted(order.tolist()) == list(range(6))
    torch.testing.assert_close(order[rows], columns.nonzero().squeeze(-1)[expected.hard()])
    weights = draw(4, 4, seed=2)
    (inside * weights).sum().backward()
    (expected.dense() * weights).sum().backward()
    grad = matrix.grad[rows][:, columns]
    torch.testing.assert_close(grad, real.grad, rtol=0, atol=1e-12)
    assert matrix.grad.abs().sum().item() == pytest.approx(grad.abs().sum().item())


def test_a_mask_alone_keeps_the_first_rows():
    mask = torch.tensor([[True, False, True], [True, True, True], [False] * 3])
    matrix = draw(3, 3, 3).requires_grad_()
    P = GumbelSinkhorn()(matrix, mask)
    assert P.row_mask().tolist() == [[True, True, False], [True] * 3, [False] * 3]
    torch.testing.assert_close(P.dense().sum(-1), P.row_mask().double())
    assert P.mv(torch.full((3, 3), torch.nan).double().masked_fill(mask, 1.0)).isfinite().all()
    P.dense().square().sum().backward()
    assert matrix.grad.isfinite().all()
    assert GumbelSinkhorn(0)(matrix, mask).dense().sum() == 5


def test_unequal_numbers_of_rows_and_columns():
    rows = torch.tensor([True, True, False])
    P = GumbelSinkhorn(iterations=None)(draw(3, 3), row_mask=rows).dense()
    torch.testing.assert_close(P.sum(-1), rows.double())
    torch.testing.assert_close(P.sum(-2), torch.full((3,), 2 / 3).double())


def test_a_row_without_a_column_is_0_in_the_hard_matching():
    matrix, rows = draw(3, 3), torch.tensor([True, True, True])
    columns = torch.tensor([[True, False, True], [True, True, True], [False] * 3])
    P = GumbelSinkhorn(0)(matrix.expand(3, 3, 3), columns, rows.expand(3, 3))
    torch.testing.assert_close(P.dense().sum(-2), columns.double())
    assert (P.hard().sort(-1).values == torch.arange(3)).all()


def test_a_matching_as_a_soft_permutation():
    P = GumbelSinkhorn()(draw(2, 4, 4))
    v, w, matrix = draw(2, 4, seed=1), draw(2, 4, seed=2), P.dense()
    torch.testing.assert_close(P.mv(v), (matrix @ v.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(P.mT.mv(w), (matrix.mT @ w.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(P.ranks(), P.mT.mv(torch.arange(1.0, 5).double().expand(2, 4)))
    assert P.top(2).shape == (2, 2, 4)
    assert P.log_prob(P.hard()).shape == (2, 4)
    with pytest.raises(ValueError, match="a Matching has no scores to sort"):
        P.sort()
    with pytest.raises(ValueError, match="hard needs all 4 rows"):
        P.top(2).hard()
    with pytest.raises(ValueError, match=r"k.*0"):
        P.top(0)


@pytest.mark.parametrize("iterations", [3, None])
def test_derivatives(iterations):
    matrix = draw(2, 3, 3).requires_grad_()
    mask = torch.tensor([[True, True, False], [True] * 3])
    for m in (None, mask):

        def soft(x, m=m):
            return GumbelSinkhorn(iterations=iterations)(x, m).dense()

        assert torch.autograd.gradcheck(soft, matrix)
        assert torch.autograd.gradgradcheck(soft, matrix)


@pytest.mark.parametrize("iterations", [5, None])
def test_transforms(iterations):
    matrix, tangent = draw(3, 4, 4), draw(3, 4, 4, seed=1)
    operator = GumbelSinkhorn(iterations=iterations)
    P = vmap(operator)(matrix)
    assert isinstance(P, Matching)
    torch.testing.assert_close(P.dense(), operator(matrix).dense())
    value, forward = jvp(lambda x: operator(x).dense(), (matrix,), (tangent,))
    step = 1e-6
    there, back = (operator(matrix + sign * step * tangent).dense() for sign in (1, -1))
    torch.testing.assert_close(forward, (there - back) / (2 * step), rtol=0, atol=1e-8)
    torch.testing.assert_close(value, P.dense())

    class Match(torch.nn.Module):
        def forward(self, x):
            return operator(x)

    compiled = torch.compile(Match(), fullgraph=True, backend="eager")(matrix)
    torch.testing.assert_close(compiled.dense(), P.dense())
    exported = torch.export.export(Match(), (matrix,)).module()(matrix)
    torch.testing.assert_close(exported.dense(), P.dense())


def test_samples_follow_the_noise_and_its_generator():
    generator = torch.Generator().manual_seed(3)
    operator = GumbelSinkhorn(0.5, samples=4, generator=generator)
    matrix = draw(2, 3, 3)
    first = operator(matrix)
    assert first.shape == (4, 2, 3, 3)
    second = operator(matrix)
    assert not torch.equal(first.dense(), second.dense())
    generator.manual_seed(3)
    assert torch.equal(operator(matrix).dense(), first.dense())
    assert operator.eval()(matrix).shape == (2, 3, 3)
    copy.deepcopy(operator)
    mask = torch.tensor([[True, True, False]] * 2)
    assert operator.train()(matrix, mask).dense().sum().item() == pytest.approx(16)


def test_hard_samples_of_two_rows_are_logistic():
    # rows (a, b), (c, d): the identity wins where a + d + noise > b + c + noise, and the noise is
    # the sum of two differences of Gumbel variables, each logistic
    matrix = torch.tensor([[0.7, 0.0], [0.0, 0.0]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    P = GumbelSinkhorn(0, samples=5000, generator=generator)(matrix)
    share = (P.hard()[:, 0] == 0).double().mean().item()
    logistic = np.random.default_rng(0).logistic(size=(2, 1_000_000)).sum(0)
    assert share == pytest.approx((logistic < 0.7).mean(), abs=0.03)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("iterations", [20, None])
def test_dtypes(dtype, iterations):
    matrix = draw(2, 5, 5, dtype=dtype)
    P = GumbelSinkhorn(iterations=iterations)(matrix).dense()
    assert P.dtype == torch.float32
    expected = GumbelSinkhorn(iterations=iterations)(matrix.double()).dense()
    torch.testing.assert_close(P.double(), expected, rtol=0, atol=1e-6)


def test_unusual_matrices():
    assert GumbelSinkhorn()(draw(2, 0, 0)).hard().shape == (2, 0)
    assert GumbelSinkhorn()(draw(1, 1)).dense().item() == 1
    for iterations in (20, None):
        for matrix in (torch.zeros(3, 3), torch.tensor([[1e4, 0, 0], [0, -1e4, 0], [0, 0, 1e4]])):
            x = matrix.clone().requires_grad_()
            P = GumbelSinkhorn(iterations=iterations)(x).dense()
            (P * torch.arange(3.0)).sum().backward()
            assert P.isfinite().all()
            assert x.grad.isfinite().all()
        broken = draw(2, 3, 3)
        broken[0, 1, 1] = torch.nan
        P = GumbelSinkhorn(iterations=iterations)(broken).dense()
        assert P[0].isnan().any()
        assert P[1].isfinite().all()


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"matrix.*\(2, 3\)"):
        GumbelSinkhorn()(draw(2, 3))
    with pytest.raises(ValueError, match=r"matrix.*torch\.int64"):
        GumbelSinkhorn()(torch.ones(2, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"row_mask.*torch.bool \(2,\)"):
        GumbelSinkhorn()(draw(3, 3), row_mask=torch.ones(2, dtype=torch.bool))
    with pytest.raises(ValueError, match="row_mask must be a tensor, got list"):
        GumbelSinkhorn()(draw(2, 2), row_mask=[True, False])
    with pytest.raises(ValueError, match=r"temperature.*-1"):
        GumbelSinkhorn(-1.0)
    with pytest.raises(ValueError, match=r"iterations.*0"):
        GumbelSinkhorn(iterations=0)
    with pytest.raises(ValueError, match=r"samples.*0"):
        GumbelSinkhorn(samples=0)
    with pytest.raises(ValueError, match=r"scale.*-1"):
        GumbelSinkhorn(scale=-1)
