"""The shortcuts for eager calls are taken only if no transform or mode is active."""

import torch
from torch._subclasses import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from ltr.kernels import descending_order
from ltr.kernels._eager import apply, has_values, is_eager


class Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, factor):
        return factor * x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.factor = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, *gradients):
        (x,) = ctx.saved_tensors
        return 3 * ctx.factor * x**2 * gradients[0], None

    @staticmethod
    def jvp(ctx, *tangents):
        (x,) = ctx.saved_tensors
        return 3 * ctx.factor * x**2 * tangents[0]


def cube(x):
    return apply(Cube, x, 2.0)


def test_apply_is_that_of_torch_under_every_transform():
    x = torch.randn(4, dtype=torch.float64)
    expected = 6 * x**2
    torch.testing.assert_close(cube(x), Cube.apply(x, 2.0))
    torch.testing.assert_close(torch.func.grad(lambda x: cube(x).sum())(x), expected)
    torch.testing.assert_close(torch.vmap(torch.func.grad(cube))(x), expected)
    torch.testing.assert_close(torch.func.jvp(cube, (x,), (torch.ones_like(x),))[1], expected)
    leaf = x.clone().requires_grad_()
    assert torch.autograd.gradcheck(cube, (leaf,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(cube, (leaf,))


def test_apply_takes_what_came_out_of_a_transform():
    kept = []

    def keep(x):
        kept.append(x)
        return x.sum()

    x = torch.randn(3)
    torch.func.grad(keep)(x)
    torch.testing.assert_close(cube(kept[0]), 2 * x**3)  # a wrapper whose transform is over


def test_numbers_are_read_only_where_there_are_some():
    x = torch.randn(3)
    assert has_values(x)
    assert is_eager(x)
    assert is_eager(torch.nn.Parameter(x))
    assert not has_values(x.to("meta"))
    with FakeTensorMode() as mode:
        assert not has_values(mode.from_tensor(x))
    with FlopCounterMode(display=False):
        assert not has_values(x)


def test_transforms_are_not_eager():
    seen = []

    def look(x):
        seen.append(is_eager(x))
        return x.sum()

    x = torch.randn(2, 3)
    torch.vmap(look)(x)
    torch.func.grad(look)(x)
    leaf = x.clone().requires_grad_()
    hooked = leaf * 1
    hooked.register_hook(lambda g: look(g) * 0 + g)
    basis = torch.eye(6).view(6, 2, 3)
    torch.autograd.grad(hooked, leaf, basis, is_grads_batched=True)
    assert seen == [False] * 3


def test_a_vmapped_order_is_that_of_each_list():
    scores = torch.randn(5, 2, 7)
    assert torch.vmap(descending_order)(scores).equal(descending_order(scores))
