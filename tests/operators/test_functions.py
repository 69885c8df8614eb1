"""Each function against its hard limit, its matrix, and itself under dim, mask and direction."""

import numpy as np
import pytest
import torch
from operator_table import draw
from pairwise import named, split, together

from ltr.operators import (
    HardRank,
    SigmoidRank,
    SinkhornSort,
    SoftSort,
    SortingNetwork,
    Stochastic,
    StraightThrough,
    soft_median,
    soft_quantile,
    soft_rank,
    soft_sort,
    soft_topk,
    sort_with,
)
from ltr.operators.isotonic import IsotonicSort

HARD = {
    "SoftSort-0": SoftSort(0),
    "network-0": SortingNetwork(0),
    "nearly hard": SoftSort(1e-6),
    "straight-through": StraightThrough(SoftSort(0.5)),
}
directions = pytest.mark.parametrize("descending", [True, False])
DIMS = [0, 1, 2, -1, -2, -3]
CLOSE = {"rtol": 0, "atol": 1e-12}


@together("operator, descending, dim", *split(HARD, named(True, False), named(*DIMS)))
def test_hard_twins(operator, descending, dim):
    x = draw(3, 4, 5)
    order = x.argsort(dim, descending=descending)
    assert torch.equal(soft_rank(x, operator, None, dim, descending), 1.0 + order.argsort(dim))
    values = soft_sort(x, operator, None, dim, descending)
    torch.testing.assert_close(values, x.sort(dim, descending).values, **CLOSE)
    top = soft_topk(x, 2, operator, None, dim, descending)
    expected = torch.topk(x, 2, dim, largest=descending)
    torch.testing.assert_close(top.values, expected.values, **CLOSE)
    membership = torch.zeros_like(x).scatter(dim, expected.indices, 1.0)
    torch.testing.assert_close(top.membership.round(), membership, **CLOSE)
    for q in [0.0, 0.3, 0.5, 1.0, [0.1, 0.9], torch.tensor([0.25], dtype=torch.float64)]:
        levels = torch.as_tensor(q, dtype=torch.float64)
        torch.testing.assert_close(
            soft_quantile(x, q, operator, None, dim, descending),
            torch.quantile(x, levels, dim),
            **CLOSE,
        )
    torch.testing.assert_close(
        soft_median(x, operator, None, dim, descending), torch.quantile(x, 0.5, dim), **CLOSE
    )
    np.testing.assert_allclose(soft_median(x, operator, dim=dim), np.median(x, dim), atol=1e-12)


@together(
    "operator, descending, dim, trailing",
    *split(HARD, named(True, False), named(*DIMS), named((), (2,), (2, 3))),
)
def test_sort_with_is_indexing(operator, descending, dim, trailing):
    x = draw(3, 4, 5)
    values = draw(3, 4, 5, *trailing, seed=1)
    order = x.argsort(dim, descending=descending)[(..., *[None] * len(trailing))]
    expected = torch.take_along_dim(values, order, dim if dim >= 0 else dim + 3)
    torch.testing.assert_close(
        sort_with(x, values, operator, None, dim, descending), expected, **CLOSE
    )


def test_the_default_is_softsort():
    x = draw(2, 4)
    P = SoftSort().permutation(x)
    torch.testing.assert_close(soft_rank(x), P.ranks(), **CLOSE)
    torch.testing.assert_close(soft_sort(x), P.sort(), **CLOSE)
    torch.testing.assert_close(sort_with(x, x), P.sort(), **CLOSE)
    values, membership = soft_topk(x, 2)
    torch.testing.assert_close(values, P.sort()[:, :2], **CLOSE)
    torch.testing.assert_close(membership, SoftSort().top_k(2, x), **CLOSE)
    torch.testing.assert_close(soft_median(x), P.sort()[:, 1:3].mean(-1), **CLOSE)


def test_one_list_of_values():
    x = torch.tensor([3.0, 1.0, 2.0])
    V = torch.eye(3)
    assert soft_rank(x, HardRank()).tolist() == [1, 3, 2]
    assert soft_rank(x, HardRank(), descending=False).tolist() == [3, 1, 2]
    assert torch.equal(sort_with(x, V, SoftSort(0)), V[[0, 2, 1]])
    assert soft_median(x, SoftSort(0)) == 2


@pytest.mark.parametrize("operator", [SoftSort(0.4), SortingNetwork(0.4, "bitonic")])
@directions
def test_masks_delete(operator, descending):
    x, mask = draw(2, 5, 2), torch.tensor([True, False, True, True, False])
    x[:, 1], x[:, 4] = torch.nan, torch.inf
    real = x[:, mask]
    everywhere = mask[:, None].expand(2, 5, 2)
    arguments = {"dim": 1, "descending": descending}
    masked = {"mask": everywhere, **arguments}
    ranks = soft_rank(x, operator, **masked)
    torch.testing.assert_close(ranks[:, mask], soft_rank(real, operator, **arguments), **CLOSE)
    assert (ranks[:, ~mask] == 4).all()
    for values, expected in [
        (soft_sort(x, operator, **masked), soft_sort(real, operator, **arguments)),
        (
            sort_with(x, x.unsqueeze(-1), operator, **masked).squeeze(-1),
            soft_sort(real, operator, **arguments),
        ),
        (soft_topk(x, 4, operator, **masked).values, soft_topk(real, 3, operator, **arguments)[0]),
    ]:
        torch.testing.assert_close(values[:, :3], expected, **CLOSE)
        assert (values[:, 3:] == 0).all()
    for q in [0.0, 0.3, [0.2, 0.5, 1.0]]:
        torch.testing.assert_close(
            soft_quantile(x, q, operator, **masked),
            soft_quantile(real, q, operator, **arguments),
            **CLOSE,
        )


def test_lists_of_different_lengths_and_empty_ones():
    x = torch.tensor([[1.0, 2.0, 3.0], [5.0, 7.0, torch.nan], [torch.nan] * 3], requires_grad=True)
    mask = ~x.isnan()
    medians = soft_median(x, SoftSort(1e-3), mask)
    torch.testing.assert_close(medians, torch.tensor([2.0, 6.0, 0.0]))
    medians.sum().backward()
    assert x.grad.isfinite().all()


def test_quantile_levels_have_gradients():
    x = torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64)
    q = torch.tensor([0.2, 0.7], dtype=torch.float64, requires_grad=True)
    soft_quantile(x, q, SoftSort(0)).sum().backward()
    torch.testing.assert_close(q.grad, torch.tensor([2.0, 6.0]).double())


@pytest.mark.parametrize("function", [soft_rank, soft_sort, soft_median])
def test_derivatives(function):
    x = draw(4, 2, seed=3).requires_grad_()
    mask = torch.tensor([[True] * 2, [True, False], [True] * 2, [True] * 2])

    def call(x):
        return function(x, SoftSort(0.7), mask, 0, descending=False)

    assert torch.autograd.gradcheck(call, x)
    assert torch.autograd.gradgradcheck(call, x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_in_float32(dtype):
    x = draw(4).to(dtype)
    top = soft_topk(x, 2)
    results = [soft_rank(x), soft_sort(x), soft_median(x), sort_with(x, x), *top]
    assert all(result.dtype == torch.float32 for result in results)


def test_isotonic_sort_sorts():
    x, mask = draw(2, 4, 3), torch.ones(2, 4, 3, dtype=torch.bool)
    mask[0, 2] = False
    operator = IsotonicSort(2.0)
    values = soft_sort(x, operator, mask, 1)
    torch.testing.assert_close(values, operator(x.mT, mask.mT).mT, **CLOSE)
    ascending = soft_sort(x, operator, mask, 1, descending=False)
    torch.testing.assert_close(ascending[1], values[1].flip(0), **CLOSE)
    torch.testing.assert_close(soft_median(x, operator, mask, 1)[0], values[0, 1], **CLOSE)


def test_samples_come_first_and_noise_is_drawn_once():
    x = draw(2, 4, 3)
    operator = Stochastic(SoftSort(0), samples=6, generator=torch.Generator())
    results = {}
    for name, call in {
        "ranks": lambda: soft_rank(x, operator, dim=1),
        "values": lambda: soft_sort(x, operator, dim=1),
        "with": lambda: sort_with(x, x, operator, dim=1),
        "top": lambda: soft_topk(x, 4, operator, dim=1).values,
        "quantile": lambda: soft_quantile(x, [0.0, 1.0], operator, dim=1),
    }.items():
        operator.generator.manual_seed(5)
        results[name] = call()
    assert results["ranks"].shape == results["values"].shape == (6, 2, 4, 3)
    order = results["ranks"].argsort(2)
    torch.testing.assert_close(results["values"], x.expand(6, 2, 4, 3).gather(2, order))
    assert torch.equal(results["values"], results["with"])
    assert torch.equal(results["values"], results["top"])
    torch.testing.assert_close(
        results["quantile"], results["values"][:, :, [3, 0]].permute(2, 0, 1, 3)
    )
    values, membership = soft_topk(x, 2, operator, dim=1)
    torch.testing.assert_close(values.sum(2), (membership * x).sum(2))
    ascending = soft_sort(x, Stochastic(SoftSort(0), scale=0.0), dim=1, descending=False)
    torch.testing.assert_close(ascending[0], x.sort(1).values)


def test_rank_operators_have_no_matrix():
    x, operator = draw(3), SigmoidRank()
    message = "needs a permutation: operator must be a SortOperator, got SigmoidRank"
    for name, call in {
        "soft_sort": lambda: soft_sort(x, operator),
        "soft_topk": lambda: soft_topk(x, 1, operator),
        "soft_quantile": lambda: soft_median(x, operator),
        "sort_with": lambda: sort_with(x, x, operator),
    }.items():
        with pytest.raises(ValueError, match=f"{name} {message}"):
            call()
    assert soft_rank(x, operator).shape == (3,)


def test_bad_arguments():
    x = draw(2, 3)
    with pytest.raises(ValueError, match=r"x.*\(2, 3\)"):
        soft_rank(x, dim=2)
    with pytest.raises(ValueError, match=r"x.*dim = None"):
        soft_rank(x, dim=None)
    with pytest.raises(ValueError, match=r"x.*float"):
        soft_sort(1.0)
    for function in (soft_rank, lambda x: sort_with(x, x)):
        with pytest.raises(ValueError, match=r"x must.*torch\.int64"):
            function(torch.arange(3))
    with pytest.raises(ValueError, match=r"mask.*\(3,\)"):
        soft_rank(x, mask=torch.ones(3, dtype=torch.bool))
    for k in [0, 4, 1.5, True]:
        with pytest.raises(ValueError, match=f"k.*{k}"):
            soft_topk(x, k)
    with pytest.raises(ValueError, match=r"q.*1.5"):
        soft_quantile(x, 1.5)
    for q in [None, [0.5, None]]:
        with pytest.raises(ValueError, match=r"q must be numbers.*None"):
            soft_quantile(x, q)
    with pytest.raises(ValueError, match=r"q.*\(1, 1\)"):
        soft_quantile(x, torch.ones(1, 1))
    with pytest.raises(ValueError, match="x must"):
        soft_median(x[:, :0])
    with pytest.raises(ValueError, match=r"values must"):
        sort_with(x, draw(3, 2))
    with pytest.raises(ValueError, match=r"values.*list"):
        sort_with(x, [1.0, 2.0])
    with pytest.raises(ValueError, match=r"q.*'median'"):
        soft_quantile(x, "median")
    with pytest.raises(ValueError, match=r"operator.*'SoftSort'"):
        soft_rank(x, "SoftSort")
    for function in (soft_median, lambda x, operator: soft_topk(x, 2, operator)):
        with pytest.raises(ValueError, match=r"operator must give 3 rows.*got 2"):
            function(x, SinkhornSort(milestones=2))


FUNCTIONS = {
    "soft_rank": soft_rank,
    "soft_sort": soft_sort,
    "sort_with": lambda x, *args, **options: sort_with(x, 2 * x, *args, **options),
    "soft_topk": lambda x, *args, **options: torch.stack(soft_topk(x, 4, *args, **options)),
    "soft_quantile": lambda x, *args, **options: soft_quantile(x, [0.2, 0.7], *args, **options),
    "soft_median": soft_median,
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("temperature", [0, 0.5])
def test_a_temperature_in_place_of_an_operator(function, temperature):
    x = draw(3, 4)
    expected = function(x, SoftSort(temperature), None, -1, False)
    torch.testing.assert_close(function(x, descending=False, temperature=temperature), expected)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("operator", [SoftSort(0.5), IsotonicSort()], ids=repr)
def test_a_temperature_beside_an_operator(function, operator):
    words = r"temperature must be None if an operator is given, got 0\.5 and (Soft|Isotonic)Sort"
    with pytest.raises(ValueError, match=words):
        function(draw(3, 4), operator, temperature=0.5)
    with pytest.raises(ValueError, match=r"temperature.*-1"):
        function(draw(3, 4), temperature=-1)
