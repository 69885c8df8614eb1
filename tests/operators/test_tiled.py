"""The permutation without a matrix against the matrix of the same scores."""

import pytest
import torch
from operator_table import draw
from pairwise import named, split, together

from ltr.kernels import use
from ltr.operators import (
    DensePermutation,
    NeuralSort,
    SoftSort,
    SoftSortRank,
    Stochastic,
    StraightThrough,
    descending_order,
)
from ltr.operators.lazy_permutation import NeuralSortPermutation, PowerPermutation

POWERS = [None, 0.5, 1.5, 3.0]
MASK = torch.tensor([[True, False, True, True, True], [True] * 5, [False] * 5])


def make(scores, mask=None, temperature=0.7, power=None, k=None):
    """The same permutation without its matrix, and with it."""
    clean = scores if mask is None else torch.where(mask, scores, 0.0)
    order = descending_order(clean.detach(), mask)
    if power is None:
        P = NeuralSortPermutation(clean, mask, order, temperature)
    else:
        P = PowerPermutation(clean, mask, order, temperature, power)
    P = P if k is None else P.top(k)
    return P, DensePermutation(P.log_dense(), clean, mask, order)


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Short lists too go without their matrix, and powers in tiles of a few rows."""
    monkeypatch.setattr("ltr.operators.tiles.TILE", 1000)
    monkeypatch.setattr("ltr.operators.lazy_permutation.MOST_ELEMENTS", 0)
    with use("sums"):
        yield


def products(rows, n):
    """Name -> (P, v) -> one of P's products, that of the vector v (..., n) where it takes one."""
    reverse = torch.arange(n).flip(0)[:rows]
    return {
        "mv": lambda P, v: P.mv(v),
        "sort": lambda P, v: P.sort(),
        "matmul": lambda P, v: P.matmul(torch.stack([v, v.square()], -1)),
        "mT.mv": lambda P, v: P.mT.mv(v[..., :rows]),
        "mT.matmul": lambda P, v: P.mT.matmul(torch.stack([v, v.square()], -1)[..., :rows, :]),
        "log_prob": lambda P, v: P.log_prob(reverse.expand(*v.shape[:-1], rows)).clamp(min=-1e9),
    }


CASES = {
    "distinct": (draw(2, 6), None, 0.7),
    "ties": (torch.tensor([[1.0, 3, 3, 2, 3, 2], [0.5] * 6]).double(), None, 0.7),
    "one item": (draw(2, 1), None, 0.7),
    "two items": (draw(2, 2), None, 0.7),
    "masked": (draw(3, 5, seed=1), MASK, 0.7),
    "tied and masked": (draw(3, 5, seed=1).round(), MASK, 0.7),
    "far apart": (torch.tensor([[1e4, 0, 1e4 + 0.3, 0.2, -7000]]).double(), None, 0.7),
    "cold": (draw(2, 6), None, 1e-6),
    "hot": (draw(2, 6), None, 1e6),
    "several tiles": (draw(2, 120), torch.arange(120) < torch.tensor([[120], [100]]), 0.3),
}


@together("case, power, k", *split(named(*CASES), named(*POWERS), named(None, 2)))
def test_products_and_their_derivatives_are_those_of_the_matrix(case, power, k):
    scores, mask, temperature = CASES[case]
    n = scores.shape[-1]
    rows = n if k is None else min(n, k)
    direction, weight = draw(*scores.shape, seed=3), draw(*scores.shape, seed=4)
    for name, product in products(rows, n).items():
        results = []
        for which in (0, 1):
            x, v = scores.clone().requires_grad_(), draw(*scores.shape, seed=2).requires_grad_()
            y = product(make(x, mask, temperature, power, k)[which], v)
            cotangent = draw(*y.shape, seed=5)
            inputs = (x,) if name in ("sort", "log_prob") else (x, v)
            first = torch.autograd.grad((y * cotangent).sum(), inputs, create_graph=True)
            along = (first[0] * direction).sum()
            if len(first) == 2:
                along = along + (first[1] * weight).sum()
            second = torch.autograd.grad(along, inputs, allow_unused=True)
            results.append((y, *first, *(s for s in second if s is not None)))
        for found, expected in zip(*results, strict=True):
            assert expected.isfinite().all(), name
            size = expected.detach().abs().max().item() if expected.numel() else 0.0
            close = {"rtol": 1e-9, "atol": 1e-10 * max(size, 1.0)}
            torch.testing.assert_close(found, expected, **close, msg=lambda m: f"{name}: {m}")  # noqa: B023


@pytest.mark.parametrize("power", POWERS)
def test_empty_lists(power):
    P, _ = make(draw(2, 0), power=power)
    assert P.sort().shape == P.mT.mv(P.sort()).shape == P.ranks().shape == (2, 0)
    assert P.matmul(draw(2, 0, 3)).shape == (2, 0, 3)
    assert P.log_prob(P.hard()).shape == (2, 0)
    P, _ = make(draw(0, 7), power=power)
    assert P.ranks().shape == (0, 7)


@pytest.mark.parametrize("power", POWERS)
def test_batches_broadcast_by_the_rules_of_matmul(power):
    P, Q = make(draw(2, 1, 5), power=power)
    v, V, W = draw(5), draw(3, 5, 2), draw(4, 1, 1, 5, 2)
    torch.testing.assert_close(P.mv(v), Q.mv(v))
    torch.testing.assert_close(P.mT.mv(v), Q.mT.mv(v))
    torch.testing.assert_close(P.matmul(v), Q.matmul(v.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(P.mT.matmul(v), Q.mT.matmul(v.unsqueeze(-1)).squeeze(-1))
    for U in (V, W):
        torch.testing.assert_close(P @ U, Q @ U)
        torch.testing.assert_close(P.mT @ U, Q.mT @ U)
    assert P.matmul(draw(5, 0)).shape == (2, 1, 5, 0)


@pytest.mark.parametrize("power", POWERS)
def test_strange_strides_and_dtypes(power):
    scores = draw(6, 40).mT[:, ::2]  # (40, 3), not contiguous
    expected = make(scores.contiguous(), power=power)[0].ranks()
    torch.testing.assert_close(make(scores, power=power)[0].ranks(), expected)
    one = draw(40)
    wide = make(one.expand(3, 40), power=power)[0].ranks()
    torch.testing.assert_close(wide, make(one, power=power)[0].ranks().expand(3, 40))
    P = make(one.float(), power=power)[0]
    assert P.mv(torch.ones(40, dtype=torch.int64)).dtype == torch.float32
    assert P.mv(draw(40)).dtype == torch.float32
    assert P.mT.mv(torch.ones(40).double()).dtype == torch.float32
    assert P.matmul(draw(40, 2)).dtype == torch.float32


@pytest.mark.parametrize("operator", [NeuralSort(3.0), SoftSort(0.3, 1.5), SoftSortRank(0.3, 3)])
def test_half_precision_is_computed_in_single(operator):
    scores = draw(2500, dtype=torch.float32).half()
    ranks = operator(scores)
    assert ranks.dtype == torch.float32
    torch.testing.assert_close(ranks, operator(scores.float()))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("operator", [NeuralSort(0.5), SoftSort(0.5, 1.5), SoftSortRank(0.5, 1.5)])
def test_non_finite_numbers_make_only_their_list_nan(operator, bad):
    scores = draw(3, 90).requires_grad_()
    clean = operator(scores)
    (expected,) = torch.autograd.grad((clean[::2] * draw(2, 90, seed=1)).sum(), scores)
    spoiled = scores.detach().clone()
    spoiled[1, 7] = bad
    spoiled.requires_grad_()
    ranks = operator(spoiled)
    assert ranks[1].isnan().all()
    torch.testing.assert_close(ranks[::2], clean[::2])
    (found,) = torch.autograd.grad((ranks[::2] * draw(2, 90, seed=1)).sum(), spoiled)
    torch.testing.assert_close(found[::2], expected[::2])


@pytest.mark.parametrize(
    ("power", "temperature"),
    [  # more of the same tiles, for a second each
        (1.5, 0.1),
        pytest.param(None, 1.0, marks=pytest.mark.slow),
        pytest.param(3.0, 1e-3, marks=pytest.mark.slow),
    ],
)
def test_float32_keeps_its_digits(power, temperature):
    scores = 100 + draw(1500, dtype=torch.float32)
    ranks = []
    for x in (scores, scores.double()):
        x = x.clone().requires_grad_()
        y = make(x, temperature=temperature, power=power)[0].ranks()
        (slope,) = torch.autograd.grad((y * draw(1500, seed=1)).sum(), x)
        ranks.append((y.double() / 1500, slope.double() / slope.abs().max()))
    for single, double in zip(*ranks, strict=True):
        assert (single - double).abs().max() < 3e-6


def test_only_a_function_as_power_has_a_matrix():
    assert isinstance(NeuralSort().permutation(draw(30)), NeuralSortPermutation)
    assert isinstance(SoftSort(power=1.5).permutation(draw(30)), PowerPermutation)
    assert isinstance(
        SoftSort(power=lambda a, b: (a - b).abs()).permutation(draw(30)), DensePermutation
    )


@pytest.mark.parametrize("operator", [NeuralSort(0.5), SoftSort(0.3, 1.5), SoftSortRank(0.3, 1.5)])
def test_saved_memory_grows_like_n(operator):
    kept = {}
    for n in (400, 800):
        sizes = []
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda x: (sizes.append(x.numel()), x)[1],  # noqa: B023
            lambda x: x,
        )
        with hooks:
            operator(draw(2, n).requires_grad_()).sum()
        kept[n] = sum(sizes)
        assert max(sizes) <= 4 * n
    assert kept[800] <= 2.1 * kept[400]


def test_ranks_by_positions_are_those_of_the_matrix():
    scores, mask = draw(3, 5, seed=1), MASK
    for power in (0.5, 1.5, 3.0):
        found = SoftSortRank(power=power)(scores, mask)
        by_function = SoftSortRank(power=lambda a, b: (a - b).abs() ** power)(scores, mask)  # noqa: B023
        torch.testing.assert_close(found, by_function)


OPERATORS = [NeuralSort(0.7), SoftSort(0.7, 1.5), SoftSortRank(0.7, 1.5)]
compiles = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


@pytest.mark.parametrize("operator", OPERATORS)
def test_torch_func(operator):
    scores, w = draw(3, 5), draw(5, seed=2)
    torch.testing.assert_close(torch.func.vmap(operator)(scores), operator(scores))
    torch.testing.assert_close(torch.func.vmap(operator)(scores, MASK), operator(scores, MASK))

    def f(x):
        return (operator(x) * w).sum()

    each = torch.func.vmap(torch.func.grad(f))(scores)
    x = scores.clone().requires_grad_()
    torch.testing.assert_close(each, torch.autograd.grad((operator(x) * w).sum(), x)[0])
    hessian = torch.func.jacrev(torch.func.jacrev(f))(scores[0])
    torch.testing.assert_close(hessian, torch.autograd.functional.hessian(f, scores[0]))
    torch.testing.assert_close(hessian, hessian.mT)


@compiles
@pytest.mark.parametrize(
    "operator",
    # three quarters of a second each
    [pytest.param(one, marks=[pytest.mark.slow] if n else []) for n, one in enumerate(OPERATORS)],
)
def test_compile_and_export(operator):
    torch._dynamo.reset()
    scores, weights = draw(3, 5).requires_grad_(), draw(3, 5, seed=1)
    expected = operator(scores, MASK)
    found = torch.compile(operator, fullgraph=True, backend="aot_eager")(scores, MASK)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad((y * weights).sum(), scores)[0] for y in (found, expected)]
    torch.testing.assert_close(*gradients)
    exported = torch.export.export(operator, (scores.detach(), MASK)).module()
    torch.testing.assert_close(exported(weights, MASK), operator(weights, MASK))


@compiles
def test_a_permutation_leaves_vmap_compile_and_export():
    class Sort(torch.nn.Module):
        def forward(self, scores):
            P = NeuralSort(0.5).permutation(scores)
            return P, P.top(2), P.log_prob(P.hard())

    torch._dynamo.reset()
    scores = draw(2, 5)
    P, Q, logs = Sort()(scores)
    assert isinstance(P, NeuralSortPermutation)
    outside = torch.compile(Sort(), fullgraph=True, backend="eager")(scores)
    for found in (outside, torch.export.export(Sort(), (scores,)).module()(scores)):
        torch.testing.assert_close(found[0].dense(), P.dense())
        torch.testing.assert_close(found[1].sort(), Q.sort())
        torch.testing.assert_close(found[2], logs)
    R = torch.func.vmap(NeuralSort(0.5).permutation)(scores)
    torch.testing.assert_close(R.ranks(), P.ranks())


def test_wrappers_take_it():
    scores = draw(2, 40).requires_grad_()
    P = StraightThrough(NeuralSort(0.5)).permutation(scores)
    values = P.sort()
    torch.testing.assert_close(values, scores.sort(-1, descending=True).values)
    w = draw(2, 40, seed=1)
    (found,) = torch.autograd.grad((P.mv(w) * w).sum(), scores)
    soft = NeuralSort(0.5).permutation(scores).mv(w)
    torch.testing.assert_close(found, torch.autograd.grad((soft * w).sum(), scores)[0])
    assert Stochastic(NeuralSort(0.5), samples=3)(scores).shape == (3, 2, 40)


def test_autocast_leaves_it_in_single_precision():
    scores = draw(2, 300, dtype=torch.float32)
    P = SoftSort(0.3, 1.5).permutation(scores)
    with torch.autocast("cpu", torch.bfloat16):
        found = P.matmul(scores.unsqueeze(-1).expand(2, 300, 2)), P.ranks()
    torch.testing.assert_close(found[0], P.matmul(scores.unsqueeze(-1).expand(2, 300, 2)))
    torch.testing.assert_close(found[1], P.ranks())
