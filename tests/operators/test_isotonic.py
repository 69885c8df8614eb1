"""Projections onto the permutahedron against scikit-learn, brute force and finite differences."""

import itertools

import numpy as np
import pytest
import torch
from operator_table import draw
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.isotonic import isotonic_regression
from torch.func import hessian, jacfwd, jacrev, jvp, vmap

from ltr.operators import IsotonicRank, IsotonicSort, hard_ranks

both = pytest.mark.parametrize("kind", ["l2", "kl"])
ranks_and_sort = pytest.mark.parametrize("operator", [IsotonicRank, IsotonicSort])


def blocks_of(n):
    """Every way to cut 0..n-1 into runs."""
    for cuts in itertools.product([False, True], repeat=n - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), n]
        yield [list(range(*pair)) for pair in itertools.pairwise(edges)]


def brute_force_projection(z, w, kind):
    """Propositions 3 and 4: P(z, w) for descending z and w, by the best of all block structures."""
    best, least = None, np.inf
    for blocks in blocks_of(len(z)):
        v = np.empty(len(z))
        for block in blocks:
            if kind == "l2":
                v[block] = np.mean(z[block] - w[block])
            else:
                v[block] = logsumexp(z[block]) - logsumexp(w[block])
        if (np.diff(v) > 1e-12).any():
            continue
        if kind == "l2":
            value = 0.5 * ((v - (z - w)) ** 2).sum()
        else:
            value = np.exp(z - v).sum() + (np.exp(w) * v).sum()
        if value < least:
            best, least = z - v, value
    return best


@both
@pytest.mark.parametrize("temperature", [0.05, 0.3, 1.0, 5.0])
def test_ranks_are_the_papers_projection(kind, temperature):
    for seed in range(4):
        scores = draw(7, seed=seed)
        order = scores.argsort()  # -scores / temperature falls
        z = (-scores[order] / temperature).numpy()
        w = np.arange(7.0, 0, -1)
        projected = brute_force_projection(z, w if kind == "l2" else np.log(w), kind)
        expected = projected if kind == "l2" else np.exp(projected)
        ranks = IsotonicRank(temperature, kind)(scores)
        np.testing.assert_allclose(ranks[order], expected, rtol=1e-12)


@both
@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0, 20.0])
def test_sorted_values_are_the_papers_projection(kind, temperature):
    for seed in range(4):
        scores = draw(7, seed=seed)
        z = np.arange(7.0, 0, -1) / temperature
        w = scores.sort(descending=True).values.numpy()
        values = IsotonicSort(temperature, kind)(scores)
        np.testing.assert_allclose(values, brute_force_projection(z, w, kind), atol=1e-12)


def test_l2_ranks_are_the_nearest_point_of_the_permutahedron():
    scores = draw(4, seed=1)
    corners = np.array(list(itertools.permutations(range(1, 5))), dtype=float)
    target = -scores.numpy() / 0.8
    found = minimize(
        lambda p: ((p @ corners - target) ** 2).sum(),
        np.full(24, 1 / 24),
        bounds=[(0, 1)] * 24,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    np.testing.assert_allclose(IsotonicRank(0.8)(scores), found.x @ corners, atol=1e-5)


def test_l2_against_scikit_learn_on_long_lists():
    for seed, temperature in enumerate([0.001, 0.01, 1.0]):
        scores = draw(500, seed=seed)
        order = scores.argsort(descending=True)
        z, positions = (-scores[order] / temperature).numpy(), np.arange(1.0, 501)
        expected = z - isotonic_regression(z - positions)
        ranks = IsotonicRank(temperature)(scores)
        np.testing.assert_allclose(ranks[order], expected, atol=1e-9)
        t, z = scores[order].numpy(), -positions / temperature
        expected = z + isotonic_regression(t - z)
        np.testing.assert_allclose(IsotonicSort(temperature)(scores), expected, atol=1e-9)


def test_ranks_are_exactly_hard_at_a_temperature_above_0():
    scores = torch.tensor([0.3, -0.7, 1.3, 2.4], dtype=torch.float64)  # gaps of 1.1, 1, 1
    for kind, edge in [("l2", 1.0), ("kl", 1.1 / np.log(2))]:
        below, above = (IsotonicRank(edge * factor, kind)(scores) for factor in (0.999, 1.001))
        assert below.tolist() == [3, 4, 2, 1]
        assert above.tolist() != [3, 4, 2, 1]


def test_l2_sorted_values_are_exact_while_no_gap_is_wide():
    scores = draw(20)
    values = scores.sort(descending=True).values
    widest = -values.diff().min()
    assert torch.equal(IsotonicSort(float(0.99 / widest))(scores), values)
    assert not torch.equal(IsotonicSort(float(1.01 / widest))(scores), values)


@both
def test_limits_of_the_sort(kind):
    scores = draw(3, 6)
    hard = scores.sort(-1, descending=True).values
    for temperature in [0, 1e-9]:
        soft = IsotonicSort(temperature, kind)(scores)
        torch.testing.assert_close(soft, hard, rtol=0, atol=0 if temperature == 0 else 1e-8)
    hot = IsotonicSort(1e9, kind)(scores)
    mean = scores.mean(-1, keepdim=True) if kind == "l2" else scores.exp().mean(-1, True).log()
    torch.testing.assert_close(hot, mean.expand(3, 6), rtol=0, atol=1e-7)


@both
def test_sums(kind):
    scores = draw(5, 9)
    ranks = IsotonicRank(0.4, kind)(scores)
    torch.testing.assert_close(ranks.sum(-1), torch.full((5,), 45.0).double())
    values = IsotonicSort(3.0, kind)(scores)
    assert (values.diff(dim=-1) <= 0).all()
    if kind == "kl":
        values, scores = values.exp(), scores.exp()
    torch.testing.assert_close(values.sum(-1), scores.sum(-1))


@both
@ranks_and_sort
def test_first_and_second_derivatives(operator, kind):
    scores = draw(6, seed=3).requires_grad_()
    temperature = 1.3 if operator is IsotonicRank else 5.0

    def soft(x):
        return operator(temperature, kind)(x)

    assert torch.autograd.gradcheck(soft, scores)
    assert torch.autograd.gradgradcheck(soft, scores)
    step, weights = 1e-5, draw(6, seed=4)
    second = hessian(lambda x: (soft(x) * weights).sum())(scores.detach())
    jacobian = jacrev(lambda x: (soft(x) * weights).sum())
    for i, unit in enumerate(torch.eye(6, dtype=torch.float64)):
        x = scores.detach()
        expected = (jacobian(x + step * unit) - jacobian(x - step * unit)) / (2 * step)
        torch.testing.assert_close(second[i], expected, rtol=0, atol=1e-8)
    if kind == "kl":
        assert second.abs().max() > 1e-2


def test_the_jacobian_of_a_block_is_that_of_a_mean():
    scores = torch.tensor([0.0, 0.1, 5.0], dtype=torch.float64)
    jacobian = jacrev(IsotonicRank())(scores)
    expected = torch.tensor([[-0.5, 0.5, 0], [0.5, -0.5, 0], [0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(jacobian, expected)


@both
@ranks_and_sort
def test_transforms(operator, kind):
    scores, tangent = draw(4, 7), draw(4, 7, seed=1)

    def soft(x, mask=None):
        return operator(0.9, kind)(x, mask)

    mask = draw(4, 7, seed=2) > -0.5
    torch.testing.assert_close(vmap(soft)(scores), soft(scores))
    torch.testing.assert_close(vmap(soft)(scores, mask), soft(scores, mask))
    torch.testing.assert_close(vmap(soft, (None, 0))(scores[0], mask), soft(scores[[0] * 4], mask))
    jacobian = jacrev(soft)(scores[0])
    torch.testing.assert_close(jacfwd(soft)(scores[0]), jacobian)
    _, forward = jvp(soft, (scores[0],), (tangent[0],))
    torch.testing.assert_close(forward, jacobian @ tangent[0])


@pytest.mark.parametrize(
    ("operator", "kind"),
    [  # half a second each
        (IsotonicRank, "kl"),
        (IsotonicSort, "l2"),
        pytest.param(IsotonicRank, "l2", marks=pytest.mark.slow),
        pytest.param(IsotonicSort, "kl", marks=pytest.mark.slow),
    ],
)
def test_compile_and_export(operator, kind):
    class Soft(torch.nn.Module):
        def forward(self, scores):
            return operator(0.9, kind)(scores)

    scores = draw(2, 5).requires_grad_()
    expected = Soft()(scores)
    compiled = torch.compile(Soft(), fullgraph=True, backend="aot_eager")(scores)
    torch.testing.assert_close(compiled, expected)
    grads = [
        torch.autograd.grad((y * draw(2, 5, seed=1)).sum(), scores) for y in (compiled, expected)
    ]
    torch.testing.assert_close(*grads)
    exported = torch.export.export(Soft(), (scores.detach(),)).module()
    torch.testing.assert_close(exported(scores.detach()), expected)


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_lists_of_2100_end(kind, dtype):
    scores = draw(2100).to(dtype).requires_grad_()  # full of ties
    for operator in (IsotonicRank(0.01, kind), IsotonicSort(0.01, kind)):
        soft = operator(scores)
        assert soft.dtype == torch.float32
        expected = operator(scores.double())
        torch.testing.assert_close(soft.double(), expected, rtol=1e-6, atol=1e-6)
        (grad,) = torch.autograd.grad((soft / 2100).square().sum(), scores)
        assert grad.isfinite().all()
        assert grad.dtype == dtype


@both
def test_float32_gradients_of_long_lists_are_right(kind):
    weights = draw(10_000, seed=1)
    temperature = 0.1 if kind == "l2" else 10.0
    grads = []
    for dtype in (torch.float32, torch.float64):
        scores = draw(10_000).float().to(dtype).requires_grad_()
        ranks = IsotonicRank(temperature, kind)(scores)
        (ranks * weights.to(dtype)).sum().backward()
        grads.append(scores.grad.double())
    torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-5 * grads[1].abs().max().item())
    # most items share a block, and blocks are wide
    assert (grads[1] != 0).double().mean() > 0.9


@both
def test_long_lists(kind):
    scores = draw(100_000)
    ranks = IsotonicRank(1e-9, kind)(scores)
    torch.testing.assert_close(ranks, hard_ranks(scores), rtol=0, atol=1.0)
    assert IsotonicRank(1.0, kind)(scores).isfinite().all()


@both
@pytest.mark.parametrize("hidden", [0.0, 1e30, torch.nan, -torch.inf])
def test_mask_is_deletion_in_the_sort(kind, hidden):
    real, mask = draw(2, 5), torch.tensor([[True, False, True, True, False, True, True]] * 2)
    scores = torch.full((2, 7), hidden, dtype=torch.float64).masked_scatter(mask, real)
    scores.requires_grad_()
    values = IsotonicSort(2.0, kind)(scores, mask)
    torch.testing.assert_close(values[:, :5], IsotonicSort(2.0, kind)(real), rtol=0, atol=1e-12)
    assert (values[:, 5:] == 0).all()
    values.square().sum().backward()
    assert (scores.grad[~mask] == 0).all()
    assert scores.grad[mask].isfinite().all()


def test_unusual_lists_in_the_sort():
    sort = IsotonicSort()
    assert sort(draw(3, 0)).shape == (3, 0)
    torch.testing.assert_close(sort(draw(2, 1)), draw(2, 1))
    scores = draw(2, 4)
    scores[0, 1] = torch.nan
    assert sort(scores)[0].isnan().all()
    assert sort(scores)[1].isfinite().all()
    nothing = sort(draw(4), torch.zeros(4, dtype=torch.bool))
    assert (nothing == 0).all()


@both
@pytest.mark.parametrize(
    "scores", [[0.0] * 5, [1e4, 0.0, -1e4, 0.0, 1e4], [3.0, 3.0, 1.0, 1.0, 0.0]]
)
def test_gradients_of_the_sort_are_finite(kind, scores):
    for temperature in [1e-6, 1.0, 1e6]:
        x = torch.tensor(scores, requires_grad=True)
        values = IsotonicSort(temperature, kind)(x)
        (values * torch.arange(5)).sum().backward()
        assert values.isfinite().all()
        assert x.grad.isfinite().all()


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"regularization.*'l1'"):
        IsotonicRank(1.0, "l1")
    with pytest.raises(ValueError, match=r"regularization.*'l1'"):
        IsotonicSort(regularization="l1")(draw(3))
    with pytest.raises(ValueError, match=r"temperature.*-1"):
        IsotonicSort(-1)
    with pytest.raises(ValueError, match="weights must"):
        IsotonicSort()(draw(3), None, torch.ones(3))
    with pytest.raises(ValueError, match="mask must"):
        IsotonicSort()(draw(3), torch.ones(2, dtype=torch.bool))
