"""Sorting networks against the papers' loops, and products without the matrix."""

import itertools
import math

import pytest
import torch
from operator_table import draw

from ltr.operators import SortingNetwork, hard_ranks
from ltr.operators.network import NetworkPermutation, network_layers, swap_weight
from ltr.operators.permutation import HardPermutation

NETWORKS = ["odd_even", "bitonic"]
DISTRIBUTIONS = ["logistic", "cauchy", "optimal"]
all_kinds = pytest.mark.parametrize(
    ("network", "distribution"), [*itertools.product(NETWORKS, DISTRIBUTIONS)]
)

FUNCTIONS = {  # as the papers write them, beta = 1
    "logistic": lambda x: 1 / (1 + math.exp(-x)),
    "cauchy": lambda x: math.atan(x) / math.pi + 0.5,
    "optimal": lambda x: -1 / (16 * x) if x < -0.25 else 1 - 1 / (16 * x) if x > 0.25 else x + 0.5,
}


def odd_even_pairs(n):
    for layer in range(n):
        yield [(i, i + 1) for i in range(layer % 2, n - 1, 2)]


def bitonic_pairs(n):
    """The textbook loop for a power of two: blocks that fall and rise by turns."""
    size = 2
    while size <= n:
        distance = size // 2
        while distance:
            pairs = [(i, i ^ distance) for i in range(n) if i ^ distance > i]
            yield [(i, j) if i & size == 0 else (j, i) for i, j in pairs]
            distance //= 2
        size *= 2


def naive_network(scores, pairs, function, temperature):
    """One 2 x 2 block at a time; the matrix is the product of the layers."""
    x, n = list(scores), len(scores)
    P = torch.eye(n, dtype=torch.float64)
    for layer in pairs:
        block = torch.eye(n, dtype=torch.float64)
        for i, j in layer:
            keep = function((x[i] - x[j]) / temperature)
            block[i, i] = block[j, j] = keep
            block[i, j] = block[j, i] = 1 - keep
            x[i], x[j] = keep * x[i] + (1 - keep) * x[j], (1 - keep) * x[i] + keep * x[j]
        P = block @ P
    return P


@all_kinds
@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_the_papers_loop(network, distribution, n):
    scores = draw(n, seed=n)
    pairs = odd_even_pairs(n) if network == "odd_even" else bitonic_pairs(n)
    expected = naive_network(scores.tolist(), pairs, FUNCTIONS[distribution], 0.6)
    P = SortingNetwork(0.6, network, distribution).permutation(scores)
    torch.testing.assert_close(P.dense(), expected, rtol=0, atol=1e-13)
    torch.testing.assert_close(P.sort(), expected @ scores, rtol=0, atol=1e-13)


@pytest.mark.parametrize("n", [3, 5, 7])
def test_odd_lengths(n):
    scores = draw(n)
    expected = naive_network(scores.tolist(), odd_even_pairs(n), FUNCTIONS["cauchy"], 0.6)
    P = SortingNetwork(0.6, "odd_even", "cauchy").permutation(scores)
    torch.testing.assert_close(P.dense(), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("n", [3, 5, 6, 7])
def test_bitonic_of_any_length_is_the_longer_one_with_items_that_never_mix(n):
    scores = draw(n)
    with_last = scores.tolist() + [-1e300] * (8 - n)
    P = SortingNetwork(0.5, "bitonic").permutation(scores).dense()
    whole = naive_network(with_last, bitonic_pairs(8), lambda x: float(_stable(x)), 0.5)
    rows = P.new_zeros(8, 8)
    rows[:n, :n] = P
    if n > 4:
        torch.testing.assert_close(P, whole[:n, :n], rtol=0, atol=1e-12)
    else:  # the last merge of eight wires is not there for three or four items
        whole = naive_network(with_last[:4], bitonic_pairs(4), lambda x: float(_stable(x)), 0.5)
        torch.testing.assert_close(P, whole[:n, :n], rtol=0, atol=1e-12)


def _stable(x):
    return torch.sigmoid(torch.tensor(x, dtype=torch.float64))


@pytest.mark.parametrize("n", [*range(2, 11)])
def test_all_zeros_and_ones_are_sorted(n):
    """The 0-1 principle: a network that sorts these sorts everything."""
    scores = torch.tensor(list(itertools.product([0.0, 1.0], repeat=n)), dtype=torch.float64)
    for network in NETWORKS:
        values = SortingNetwork(1e-9, network).permutation(scores).sort()
        torch.testing.assert_close(values, scores.sort(descending=True).values)


def test_number_of_layers():
    assert [len(network_layers("odd_even", n)) for n in [2, 5, 8]] == [2, 5, 8]
    assert [len(network_layers("bitonic", n)) for n in [2, 4, 5, 8, 1024]] == [1, 3, 6, 6, 55]


@all_kinds
def test_doubly_stochastic(network, distribution):
    scores, mask = draw(3, 7), torch.tensor([[1, 1, 0, 1, 1, 0, 1], [1] * 7, [0] * 7]).bool()
    operator = SortingNetwork(0.7, network, distribution)
    matrix = operator.permutation(scores, mask).dense()
    assert (matrix >= 0).all()
    rows = torch.arange(7) < mask.sum(-1, keepdim=True)
    torch.testing.assert_close(matrix.sum(-1), rows.double())
    torch.testing.assert_close(matrix.sum(-2), mask.double())
    ranks = operator(scores, mask)
    m = mask.sum(-1).double()
    torch.testing.assert_close((ranks * mask).sum(-1), m * (m + 1) / 2)


@pytest.mark.parametrize("distribution", ["cauchy", "optimal"])
def test_no_soft_value_falls_as_a_score_rises(distribution):
    scores = draw(50, 2, seed=1) * 3
    operator = SortingNetwork(0.5, "odd_even", distribution)
    jacobian = torch.func.vmap(torch.func.jacrev(lambda x: operator.permutation(x).sort()))
    assert (jacobian(scores) >= -1e-12).all()
    logistic = SortingNetwork(0.5, "odd_even", "logistic")
    jacobian = torch.func.vmap(torch.func.jacrev(lambda x: logistic.permutation(x).sort()))
    assert (jacobian(scores) < -1e-3).any()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_swap_weights(distribution):
    x = torch.linspace(-30, 30, 241, dtype=torch.float64)
    weight = swap_weight(x, distribution)
    expected = torch.tensor([FUNCTIONS[distribution](v) for v in x.tolist()]).double()
    torch.testing.assert_close(weight, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(weight + weight.flip(0), torch.ones_like(x))
    assert (weight.diff() > 0).all()


def test_a_permuted_list_has_other_ranks_so_the_network_is_not_equivariant():
    scores, order = torch.tensor([0.1, 0.3, 0.2, 0.0]), torch.tensor([2, 0, 3, 1])
    operator = SortingNetwork(0.5)
    assert (operator(scores[order]) - operator(scores)[order]).abs().max() > 0.01


@pytest.mark.parametrize("network", NETWORKS)
def test_no_matrix_for_ranks_and_sorted_values(network, monkeypatch):
    def refuse(self):
        raise AssertionError("the matrix was built")

    monkeypatch.setattr(NetworkPermutation, "dense", refuse)
    P = SortingNetwork(0.1, network).permutation(draw(2, 6))
    P.ranks(), P.sort(), P.top(3).sort(), P.matmul(draw(6, 2)), P.mT.matmul(draw(6, 2))


@pytest.mark.parametrize("network", NETWORKS)
def test_logarithm_of_zeros(network):
    scores = draw(5).requires_grad_()
    P = SortingNetwork(1e-3, network).permutation(scores)
    log_p = P.log_dense()
    zero = P.dense() == 0
    assert zero.any()
    assert (log_p[zero] == -torch.inf).all()
    torch.testing.assert_close(log_p.exp(), P.dense())
    log_p[~zero].sum().backward()
    assert scores.grad.isfinite().all()
    soft = SortingNetwork(1.0, network).permutation(scores)
    order = scores.argsort(descending=True)
    torch.testing.assert_close(
        soft.log_prob(order), soft.dense().gather(-1, order.unsqueeze(-1)).squeeze(-1).log()
    )


def test_temperature_0_is_a_gather():
    scores = torch.tensor([1.0, 2.0, 1.0, 2.0], requires_grad=True)
    for network in NETWORKS:
        P = SortingNetwork(0, network).permutation(scores)
        assert isinstance(P, HardPermutation)
        assert P.ranks().tolist() == [3, 1, 4, 2]
        assert torch.equal(P.sort(), scores.sort(descending=True).values)


def test_long_bitonic_lists_sort():
    scores = draw(3000)
    ranks = SortingNetwork(1e-9, "bitonic")(scores)
    torch.testing.assert_close(ranks, hard_ranks(scores), rtol=0, atol=1e-3)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    "scores", [[-1e9, 5.08, 1.04, -1e6, -0.39], [0.5, 1e12, 0.25, -3e7, 2.0], [1e30, 0.0, 1.0]]
)
def test_scores_far_below_the_largest_keep_their_digits_in_float32(network, scores):
    x = torch.tensor(scores, requires_grad=True)
    operator, exact = SortingNetwork(0.7, network), x.detach().double().requires_grad_()
    ranks, expected = operator(x), operator(exact)
    torch.testing.assert_close(ranks.double(), expected, rtol=1e-5, atol=0)
    factors = torch.arange(1, len(scores) + 1).double()
    (slope,) = torch.autograd.grad((ranks * factors).sum(), x)
    (wanted,) = torch.autograd.grad((expected * factors).sum(), exact)
    torch.testing.assert_close(slope.double(), wanted, rtol=1e-4, atol=1e-6)


def test_bad_names():
    with pytest.raises(ValueError, match=r"network.*'merge'"):
        SortingNetwork(network="merge")
    with pytest.raises(ValueError, match=r"distribution.*'normal'"):
        SortingNetwork(distribution="normal")
    with pytest.raises(ValueError, match=r"k.*0"):
        SortingNetwork().permutation(draw(3)).top(0)
    with pytest.raises(ValueError, match="ranks needs all 3 rows of the permutation, got 2"):
        SortingNetwork().permutation(draw(3)).top(2).ranks()
