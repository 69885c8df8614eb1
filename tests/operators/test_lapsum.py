"""LapSum: thresholds, memberships that sum to k, and the doubly stochastic matrix."""

import numpy as np
import pytest
import torch
from operator_table import draw
from scipy.optimize import brentq
from scipy.stats import laplace

from ltr.operators import HardRank, LaplaceRank, LapSum, hard_ranks
from ltr.operators.distributions import laplace_cdf


def naive_top_k(scores: np.ndarray, k: float, temperature: float) -> np.ndarray:
    """The threshold by a root finder."""

    def excess(b: float) -> float:
        return laplace.cdf((scores - b) / temperature).sum() - k

    reach = 50 * temperature
    b = brentq(excess, scores.min() - reach, scores.max() + reach, xtol=1e-14, rtol=1e-15)
    return laplace.cdf((scores - b) / temperature)


@pytest.mark.parametrize("k", [0.2, 1, 1.5, 3, 5.9])
@pytest.mark.parametrize("temperature", [0.05, 1.0, 50.0])
@pytest.mark.parametrize("ties", [False, True])
def test_thresholds(k, temperature, ties):
    scores = draw(6).round() if ties else draw(6)
    expected = naive_top_k(scores.numpy(), k, temperature)
    found = LapSum(temperature).top_k(k, scores)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 1000])
@pytest.mark.parametrize("temperature", [1e-3, 0.1, 1.0, 50.0, 1e4])
def test_memberships_sum_to_k_exactly(n, temperature):
    scores = 1e4 + draw(n, seed=n)
    scores[: n // 3] = scores[0]
    sizes = torch.linspace(0.01, n - 0.01, 23).double()
    sizes = torch.cat([sizes, torch.arange(1.0, min(n, 20)).double()])
    members = LapSum(temperature).top_k(sizes, scores)
    assert members.shape == (len(sizes), n)
    assert ((members >= 0) & (members <= 1)).all()
    torch.testing.assert_close(members.sum(-1), sizes, rtol=1e-13, atol=0)
    single = LapSum(temperature).top_k(sizes, scores.float())
    torch.testing.assert_close(single.sum(-1).double(), sizes, rtol=2e-6, atol=0)


def test_one_k_a_list_with_a_mask():
    scores, mask = draw(4, 6), torch.tensor([[True] * 6, [True, False] * 3] * 2)
    k = torch.tensor([1.5, 2.0, 0.0, 7.0], dtype=torch.float64)
    members = LapSum(0.3).top_k(k, scores, mask)
    torch.testing.assert_close(members.sum(-1), torch.tensor([1.5, 2, 0, 3]).double())
    assert (members[~mask] == 0).all()
    assert torch.equal(members[3], mask[3].double())
    for i in range(2):
        alone = LapSum(0.3).top_k(k[i].item(), scores[i, mask[i]])
        torch.testing.assert_close(members[i, mask[i]], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("hidden", [0.0, 1e30, torch.nan, -torch.inf])
def test_masked_items_do_not_count(hidden):
    mask = torch.tensor([[True, False, True, True, False, True], [False] * 6])
    scores = draw(2, 6).where(mask, hidden).requires_grad_()
    real = scores.detach()[0, mask[0]].requires_grad_()
    for method in [
        lambda x, m=None: LapSum(0.4).top_k(1.7, x, m),
        lambda x, m=None: LapSum(0.4).permutation(x, m).mv(torch.arange(x.shape[-1]).double() ** 0),
        lambda x, m=None: LapSum(0.4).permutation(x, m).mT.mv(torch.ones(x.shape[-1]).cumsum(-1)),
    ]:
        found = method(scores, mask)
        assert (found[1] == 0).all()
        (gradient,) = torch.autograd.grad(found.square().sum(), scores)
        (expected,) = torch.autograd.grad(method(real).square().sum(), real)
        torch.testing.assert_close(gradient[0, mask[0]], expected, rtol=0, atol=1e-12)
        assert (gradient[~mask] == 0).all()


def test_derivatives():
    scores = draw(2, 5).requires_grad_()
    k = torch.tensor([1.3, 3.0], dtype=torch.float64, requires_grad=True)

    def members(scores, k):
        return LapSum(0.6).top_k(k, scores)

    def second(scores, k):
        loss = members(scores, k).pow(3).sum()
        return torch.autograd.grad(loss, (scores, k), create_graph=True)

    assert torch.autograd.gradcheck(members, (scores, k))
    assert torch.autograd.gradgradcheck(members, (scores, k))
    assert torch.autograd.gradgradcheck(second, (scores, k))
    assert torch.autograd.gradcheck(lambda x: LapSum(0.6).permutation(x).log_dense(), scores)
    assert torch.autograd.gradgradcheck(lambda x: LapSum(0.6).permutation(x).dense(), scores)


@pytest.mark.parametrize("temperature", [1e-3, 0.5])
def test_gradients_by_the_softmax_of_the_densities(temperature):
    # dp_i/ds_j = f_i (delta_ij - softmax(log f)_j), where all f may underflow
    scores = torch.tensor([0.0, 0.1, 0.1, 2.0, 5.0], dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(
        lambda x: LapSum(temperature).top_k(2.0, x), scores
    )
    members = LapSum(temperature).top_k(2.0, scores)
    density = torch.minimum(members, 1 - members) / temperature
    share = density / density.sum().clamp(min=1e-300)
    expected = torch.diag(density) - density[:, None] * share
    torch.testing.assert_close(jacobian, expected, rtol=1e-9, atol=1e-12)


def test_where_every_density_underflows_gradients_stay_finite():
    scores = torch.tensor([0.0, 0.0, 1e4, 1e4], requires_grad=True)
    k = torch.tensor(2.0, requires_grad=True)
    members = LapSum(1e-3).top_k(k, scores)
    assert members.tolist() == [0, 0, 1, 1]
    gradients = torch.autograd.grad(members[0], (scores, k))
    assert all(g.isfinite().all() for g in gradients)


def test_temperature_0_is_hard_with_a_fraction():
    scores = torch.tensor([0.3, 0.9, 0.5, 0.9])
    assert LapSum(0).top_k(2, scores).tolist() == [0, 1, 0, 1]
    assert LapSum(0).top_k(2.25, scores).tolist() == [0, 1, 0.25, 1]
    near = LapSum(1e-5).top_k(2.25, scores)
    torch.testing.assert_close(near, LapSum(0).top_k(2.25, scores))
    assert LapSum(0).permutation(scores).sort().tolist() == scores.sort(descending=True)[0].tolist()


def test_large_temperatures_share_k_equally():
    members = LapSum(1e9).top_k(3.2, draw(8))
    torch.testing.assert_close(members, torch.full((8,), 0.4).double(), rtol=0, atol=1e-8)
    matrix = LapSum(1e9).permutation(draw(8)).dense()
    torch.testing.assert_close(matrix, torch.full((8, 8), 1 / 8).double(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("temperature", [1e-2, 0.5, 20.0])
def test_the_matrix_is_made_of_differences_and_doubly_stochastic(temperature):
    scores = draw(2, 7)
    scores[1, 2:4] = scores[1, 0]
    matrix = LapSum(temperature).permutation(scores).dense()
    tops = [LapSum(temperature).top_k(k, scores) for k in range(1, 8)]
    tops = torch.stack([torch.zeros(2, 7).double(), *tops], -2)
    torch.testing.assert_close(matrix, tops.diff(dim=-2), rtol=0, atol=1e-13)
    for axis in [-1, -2]:
        sums = matrix.sum(axis)
        torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-12)


def test_rows_are_unimodal_in_sorted_order():
    matrix = LapSum(0.5).permutation(draw(20).sort(descending=True).values).dense()
    for row in matrix:
        top = row.argmax()
        assert (row[: top + 1].diff() >= 0).all()
        assert (row[top:].diff() <= 0).all()


def test_log_probabilities_are_right_where_the_matrix_underflows():
    P = LapSum(1.0).permutation(torch.tensor([0.0, 1000.0, 2000.0]).double())
    order = torch.tensor([0, 0, 2])
    # b_1 = 1500 and b_2 = 500 by symmetry
    expected = [-1500 - np.log(2), -500 - np.log(2), -1500 - np.log(2)]
    np.testing.assert_allclose(P.log_prob(order), expected, rtol=1e-12)


def test_ranks_are_the_laplace_ranks():
    scores, mask = draw(2, 6), torch.tensor([[True] * 6, [True, False] * 3])
    expected = LaplaceRank(0.4)(scores, mask)
    assert torch.equal(LapSum(0.4)(scores, mask), expected)
    P = LapSum(0.4).permutation(scores, mask)
    assert torch.equal(P.ranks(), expected)
    # the transpose gives the Laplace ranks among the thresholds: near, and inside [1, m] too
    near = P.mT.mv(torch.arange(1.0, 7).double().expand(2, 6))
    assert (near - expected)[mask].abs().max() < 0.5
    assert torch.equal(P.hard(), torch.argsort(hard_ranks(scores, mask), stable=True))
    leaves, spec = torch.utils._pytree.tree_flatten(P)
    again = torch.utils._pytree.tree_unflatten(leaves, spec)
    assert torch.equal(again.ranks(), expected)
    with pytest.raises(ValueError, match="ranks needs all 6 rows of the permutation, got 2"):
        P.top(2).ranks()


def test_transforms():
    scores, k = draw(3, 5), torch.tensor([1.0, 2.5, 4.0]).double()

    def members(scores, k):
        return LapSum(0.5).top_k(k, scores)

    expected = members(scores, k)
    torch.testing.assert_close(torch.func.vmap(members)(scores, k), expected)
    compiled = torch.compile(members, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(scores, k), expected)


def test_nan_stays_in_its_list():
    scores = draw(2, 3)
    scores[1, 0] = torch.nan
    for found in [
        LapSum().top_k(3.0, scores),
        LapSum().top_k(1.5, scores),
        LapSum().permutation(scores).sort(),
    ]:
        assert found.isnan().any(-1).tolist() == [False, True]
        assert found[1].isnan().all()


@pytest.mark.parametrize("n", [0, 1])
def test_short_lists(n):
    P = LapSum(0.5).permutation(torch.zeros(3, n))
    assert P.shape == (3, n, n)
    torch.testing.assert_close(P.dense(), torch.ones(3, n, n))
    torch.testing.assert_close(LapSum().top_k(1, torch.zeros(3, n)), torch.ones(3, n))
    torch.testing.assert_close(LapSum().top_k(0.25, torch.zeros(3, n)), torch.full((3, n), 0.25))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_is_computed_in_float32(dtype):
    scores = draw(2, 6, dtype=dtype)
    for method in [lambda x: LapSum().top_k(2.5, x), lambda x: LapSum().permutation(x).dense()]:
        assert method(scores).dtype == torch.float32
        expected = method(scores.double())
        torch.testing.assert_close(method(scores).double(), expected, rtol=0, atol=5e-6)


def test_the_threshold_moves_with_each_score_by_its_share():
    # what makes a selection fair: raising all scores alike changes nothing
    scores = draw(9).requires_grad_()
    members = LapSum(0.3).top_k(4.0, scores)
    (gradient,) = torch.autograd.grad(members[2], scores)
    assert abs(gradient.sum().item()) < 1e-13
    assert laplace_cdf(torch.zeros(())) == 0.5


@pytest.mark.parametrize("k", [0, -1.5, torch.nan, "all"])
def test_k_must_be_positive(k):
    with pytest.raises(ValueError, match=f"k.*{k!r}"):
        LapSum().top_k(k, draw(3))


def test_more_than_all_is_all():
    assert LapSum(0.3).top_k(9, draw(3)).tolist() == [1, 1, 1]
    assert torch.equal(LapSum(0)(draw(3)), HardRank()(draw(3)))
