"""Tiles of what is large: the same values and derivatives, less memory."""

import gc

import pytest
import torch
from operator_table import OPERATORS, TWO_FORMS, draw
from pairwise import each, named, split, together
from torch.func import grad, jacrev, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from ltr.kernels import use
from ltr.operators import NeuralSort, SigmoidRank, SoftSort
from ltr.operators import tiles as over
from ltr.operators.tiles import by_lists

both = each("name", {name: name for name in sorted(TWO_FORMS)})
N, LISTS = 6, 5


@pytest.fixture
def small_tiles(monkeypatch):
    """Two lists of N items are one tile: five make three, and the last has one list."""
    monkeypatch.setattr("ltr.operators.tiles.TILE", 2 * N**2)

    def limit(entries):
        for file in ("tiles", "lazy_permutation"):
            monkeypatch.setattr(f"ltr.operators.{file}.MOST_ELEMENTS", entries)

    return limit


def in_one_and_in_tiles(limit, compute):
    with use("dense"):
        limit(1 << 40)
        one = compute()
        limit(2 * N**2)
        return one, compute()


def assert_same(found):
    for one, tiles in zip(*found, strict=True):
        torch.testing.assert_close(one, tiles, rtol=1e-12, atol=1e-12)


@together(
    "name, masked, shape",
    *split(named(*sorted(TWO_FORMS)), named(False, True), named((LISTS, N), (2, 3, N), (LISTS, 1))),
)
def test_ranks_and_derivatives(name, masked, shape, small_tiles):
    operator, x, weights = OPERATORS[name], draw(*shape).requires_grad_(), draw(*shape, seed=1)
    mask = draw(*shape, seed=2) < 0.5 if masked else None  # some lists may have no item

    def found():
        ranks = operator(x, mask)
        (slope,) = torch.autograd.grad((ranks * weights).sum(), x, create_graph=True)
        (twice,) = torch.autograd.grad((slope * weights).sum(), x, create_graph=True)
        third = twice
        if twice.requires_grad:
            (third,) = torch.autograd.grad(twice.square().sum(), x, allow_unused=True)
        return [y for y in (ranks, slope, twice, third) if y is not None]

    assert_same(in_one_and_in_tiles(small_tiles, found))


@both
def test_transforms(name, small_tiles):
    operator, x = OPERATORS[name], draw(LISTS, N)

    def loss(x):
        return operator(x).square().sum()

    def found():
        batched = torch.stack([x, 2 * x])
        return [
            vmap(operator)(batched),
            vmap(grad(loss))(batched),
            jacrev(operator)(x),
            jacrev(jacrev(loss))(x),
        ]

    assert_same(in_one_and_in_tiles(small_tiles, found))


def test_weights_have_a_gradient(small_tiles):
    x, weights = draw(LISTS, N), draw(LISTS, N, seed=1).abs().requires_grad_()
    mask = draw(LISTS, N, seed=2) < 1

    def found():
        ranks = SigmoidRank()(x, mask, weights)
        return [ranks, *torch.autograd.grad(ranks.square().sum(), weights)]

    assert_same(in_one_and_in_tiles(small_tiles, found))


@pytest.mark.parametrize("power", [None, 1, 2, 1.5])
@pytest.mark.parametrize("k", [None, 2])
def test_products(power, k, small_tiles):
    x, v = draw(LISTS, N).requires_grad_(), draw(LISTS, N, 2, seed=1).requires_grad_()
    mask = draw(LISTS, N, seed=2) < 1

    def found():
        P = (
            SoftSort(power=power).permutation(x, mask)
            if power
            else NeuralSort(0.7).permutation(x, mask)
        )
        P = P if k is None else P.top(k)
        top, shared = v[:, : P.rows], v[0]
        order = torch.arange(P.rows).expand(LISTS, P.rows)
        given = [P.mv(v[..., 0]), P @ v, P.mT.mv(top[..., 0]), P.mT @ top, P.sort()]
        given += [P @ shared, P.mv(shared[..., 0]), P.mT.mv(top[0, :, 0]), P.mT @ top[0]]
        given += [P.log_prob(order).clamp(min=-50), P.mv(v[..., 0].expand(2, LISTS, N))]
        total = torch.stack([y.square().sum() for y in given]).sum()
        return [*given, *torch.autograd.grad(total, [x, v])]

    assert_same(in_one_and_in_tiles(small_tiles, found))


class Largest(TorchDispatchMode):
    """The most entries of a tensor that an operation returns, and of those that autograd saves."""

    def __init__(self):
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for y in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(y, torch.Tensor):
                self.entries = max(self.entries, y.numel())
        return found


@both
def test_no_tensor_has_more_entries_than_a_tile(name, monkeypatch):
    lists, n, tile = 200, 20, 4000
    monkeypatch.setattr("ltr.operators.tiles.TILE", tile)
    monkeypatch.setattr("ltr.operators.tiles.MOST_ELEMENTS", 0)
    monkeypatch.setattr("ltr.operators.lazy_permutation.MOST_ELEMENTS", 0)
    x, saved = draw(lists, n).requires_grad_(), []

    def save(y):
        saved.append(y.numel())
        return y

    operator = OPERATORS[name]
    hooks = torch.autograd.graph.saved_tensors_hooks(save, lambda y: y)
    with use("sums" if name == "NeuralSort" else "dense"), Largest() as largest:
        with hooks:
            ranks = operator(x)
        assert largest.entries <= tile == lists * n
        (slope,) = torch.autograd.grad(ranks.square().sum(), x, create_graph=True)
        torch.autograd.grad(slope.sum(), x)
    assert max(saved) <= lists * n
    assert largest.entries <= tile


def test_a_list_larger_than_a_tile_is_one_tile(small_tiles):
    x = draw(3, 4 * N)

    def found():
        return [SigmoidRank()(x), SoftSort()(x)]

    assert_same(in_one_and_in_tiles(small_tiles, found))


def test_no_lists():
    assert by_lists(lambda x: x, 1, torch.zeros(0, 3)).shape == (0, 3)


def test_tiles_of_any_function(monkeypatch):
    monkeypatch.setattr(over, "TILE", 6)

    def part(whole, cut):
        array = torch.exp(whole[0].unsqueeze(-1) * cut[0].unsqueeze(-2) / 3)
        return [array.sum(-1), (array * cut[1].unsqueeze(-2)).sum(-1)], [array.square().sum(-2)]

    task = over.Tiles(part, whole=1, sums=2, joined=1, length=3)
    x, y, z = (draw(2, n, seed=n).requires_grad_() for n in (3, 5, 5))
    for found, expected in zip(
        over.over_tiles(task, x, y, z), [y for ys in part([x], [y, z]) for y in ys], strict=True
    ):
        torch.testing.assert_close(found, expected)
    tensors = (x, y, z)
    assert torch.autograd.gradcheck(
        lambda *t: over.over_tiles(task, *t),
        tensors,
        check_batched_grad=True,
    )
    assert torch.autograd.gradgradcheck(lambda *t: over.over_tiles(task, *t), tensors)


def test_tiles_leave_no_tensor_behind(monkeypatch):
    monkeypatch.setattr(over, "TILE", 10)
    alive = []

    def part(whole, cut):
        alive.append(sum(type(x) is torch.Tensor for x in gc.get_objects()))
        return [whole[0] * cut[0].sum()], [cut[0] + 1]

    x, y = torch.ones(3), torch.arange(50.0)
    total, joined = over.over_tiles(over.Tiles(part, 1, 1, 1, 1), x, y)
    assert len(alive) == 5
    assert alive[2] == alive[3] == alive[4]
    torch.testing.assert_close((total, joined), (x * y.sum(), y + 1))
