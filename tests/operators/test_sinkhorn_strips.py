"""SinkhornSort in strips: it agrees with the form that keeps the array, in less memory."""

import pytest
import torch
from operator_table import draw
from torch.func import hessian, jacfwd, jacrev, jvp, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from ltr.kernels import use
from ltr.kernels.choice import LENGTHS
from ltr.operators import SinkhornSort
from ltr.operators import sinkhorn_strips as solver
from ltr.operators import tiles as over
from ltr.operators.sinkhorn_permutation import LongSinkhornPermutation, SinkhornPermutation

OPTIONS = {
    "an item each": {},
    "few rows": {"milestones": 7},
    "placed": {"milestones": [1.2, 0.7, 0.1], "milestone_weights": [1.0, 3.0, 2.0], "cost": 1.5},
    "kinks": {"cost": 1.0, "epsilon": 0.1},
    "sharp": {"epsilon": 1e-3},
    "iterations": {"iterations": 4},
    "unrolled": {"iterations": 4, "gradient": "unrolled", "epsilon": 0.1},
}
options = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


@pytest.fixture
def small(monkeypatch):
    """Strips and groups so small that a list of 40 has many, and coarser problems."""
    monkeypatch.setattr(over, "TILE", 128)
    monkeypatch.setattr(solver, "GROUPS", 6)


def in_both_forms(compute):
    with use("dense"):
        array = compute()
    with use("sums"):
        return array, compute()


@options
@pytest.mark.parametrize("masked", [False, True], ids=["full", "masked"])
def test_ranks_and_two_derivatives_agree(options, masked, small):
    x, weights = draw(2, 40).requires_grad_(), draw(2, 40, seed=1).abs().requires_grad_()
    mask, direction = draw(2, 40, seed=2) < 0.8 if masked else None, draw(2, 40, seed=3)
    operator = SinkhornSort(**options)

    def found():
        ranks = operator(x, mask, weights)
        slopes = torch.autograd.grad((ranks * direction).sum(), (x, weights), create_graph=True)
        twice = torch.autograd.grad((slopes[0] * direction).sum(), (x, weights))
        return ranks, *slopes, *twice

    for array, strips in zip(*in_both_forms(found), strict=True):
        scale = array.abs().max().item()
        torch.testing.assert_close(strips, array, rtol=1e-7, atol=1e-7 * scale)


@options
@pytest.mark.parametrize("k", [None, 2])
def test_products_agree(options, k, small):
    x, mask = draw(3, 20).requires_grad_(), draw(3, 20, seed=2) < 0.8
    v, operator = draw(3, 20, 2, seed=1), SinkhornSort(**options)

    def found():
        P = operator.permutation(x, mask)
        P = P if k is None else P.top(k)
        w = v[:, : P.rows]
        picked = torch.arange(P.rows).expand(3, P.rows)
        given = [P.mv(v[..., 0]), P @ v, P.mT.mv(w[..., 0]), P.mT @ w, P.sort(), P.dense()]
        given += [
            P.log_prob(picked).clamp(min=-50),
            P @ v[0],
            P.mv(v[0, :, 0]),
            P.spread(w[..., 0]),
        ]
        total = torch.stack([y.square().sum() for y in given]).sum()
        return [*given, torch.autograd.grad(total, x)[0]]

    for array, strips in zip(*in_both_forms(found), strict=True):
        torch.testing.assert_close(strips, array, rtol=1e-8, atol=1e-8)


def test_quantiles_and_normalized_scores_agree(small):
    x, operator = draw(2, 30).requires_grad_(), SinkhornSort(0.01)
    for compute in (
        lambda: operator.quantiles([0.0, 0.3, 0.3, 1.0], x),
        lambda: operator.normalize(x, draw(9)),
    ):
        array, strips = in_both_forms(compute)
        torch.testing.assert_close(strips, array, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("options", [OPTIONS["an item each"], OPTIONS["unrolled"]])
def test_transforms_agree(options):
    x, tangent, operator = draw(3, 5), draw(3, 5, seed=1), SinkhornSort(**options)

    def found():
        return [
            vmap(operator)(x),
            vmap(operator.permutation)(x).dense(),
            jacrev(operator)(x[0]),
            jacfwd(operator)(x[0]),
            jvp(operator, (x,), (tangent,))[1],
            hessian(lambda x: operator(x).square().sum())(x[0]),
            vmap(jacrev(lambda x: operator(x)))(x),
        ]

    for array, strips in zip(*in_both_forms(found), strict=True):
        torch.testing.assert_close(strips, array, rtol=1e-7, atol=1e-8)


def test_derivatives_are_right(small):
    operator, x = SinkhornSort(0.1), draw(12).requires_grad_()
    with use("sums"):
        assert torch.autograd.gradcheck(operator, x)
        assert torch.autograd.gradgradcheck(operator, x)


@pytest.mark.parametrize("cost", [1, 2])
@pytest.mark.parametrize("epsilon", [1e-2, 1.0, 100.0])
def test_columns_are_right_for_any_epsilon(cost, epsilon, small):
    lists = torch.stack([draw(40), draw(40).round(), torch.arange(40.0).double()])
    weights = draw(3, 40, seed=2).abs() ** 4
    with use("sums"):
        P = SinkhornSort(epsilon, cost=cost).permutation(lists, None, weights)
        columns = P.mT.mv(P.row_weights)
    torch.testing.assert_close(columns, P.item_weights, rtol=0, atol=1e-8)


def test_float32_and_nan_agree():
    x = draw(3, 50, dtype=torch.float32)
    x[1, 4] = torch.nan
    array, strips = in_both_forms(lambda: SinkhornSort()(x))
    assert strips.dtype == torch.float32
    torch.testing.assert_close(strips, array, equal_nan=True, rtol=2e-6, atol=2e-5)


class Largest(TorchDispatchMode):
    """Note the largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(x, torch.Tensor):
                self.numel = max(self.numel, x.untyped_storage().nbytes() // x.element_size())
        return result


def test_no_array_is_larger_than_a_tile():
    n = 1700
    x = draw(n, dtype=torch.float32).requires_grad_()
    with Largest() as largest:
        ranks = SinkhornSort(0.01)(x)
        torch.autograd.grad(ranks.square().sum(), x)
    assert largest.numel <= max(over.TILE, solver.GROUPS**2) < n * n / 10


def test_the_choice_is_by_rows_and_memory():
    def in_strips(rows, items, epsilon=0.01, **device):
        operator = SinkhornSort(epsilon)
        return operator._takes_strips(2.0, rows, torch.zeros(items, **device))

    rows = LENGTHS["sinkhorn"]
    assert not in_strips(rows - 1, rows)
    assert in_strips(rows, 5)
    assert not in_strips(rows, 5, epsilon=1e-6)
    assert not in_strips(2, over.MOST // 2)
    assert in_strips(2, over.MOST // 2 + 1)
    assert not in_strips(9999, 9, device="meta")
    with use("sums"):
        assert in_strips(1, 1)
        P = SinkhornSort().permutation(draw(4))
        assert isinstance(P, LongSinkhornPermutation)
        assert isinstance(P.detach(), LongSinkhornPermutation)
        assert not isinstance(SinkhornSort(cost=torch.square).permutation(draw(4)), type(P))
    with use("dense"):
        assert not in_strips(9999, 9999)
        assert type(SinkhornSort().permutation(draw(4))) is SinkhornPermutation


def test_windows_hold_the_rows_that_take_from_a_strip(small):
    n, line = 40, solver.Line(2, 1e-5)
    positions, weights = torch.linspace(1, 0, n).double(), torch.full((2, n), 1 / n).double()
    t = solver.Transport(positions, positions - 0.01, *weights)
    state = solver._pass(t, line, torch.zeros(n).double())
    kernel = solver.log_kernel(t.points, positions, line)
    kernel = (kernel - kernel.amax(-1, keepdim=True)).exp()
    assert len(state.windows) == len(list(over.tiles(n, n))) > 10
    for items, window in zip(over.tiles(n, n), state.windows, strict=True):
        taking = (kernel[items] > 1e-30).any(0).nonzero()
        assert window == slice(int(taking.min()), int(taking.max()) + 1)
        assert window.stop - window.start < n / 2
