"""One rule gives a function gradients of any order, in every mode of torch but forward mode."""

from dataclasses import dataclass

import pytest
import torch
from torch.autograd.functional import hessian, jacobian
from torch.utils.flop_counter import FlopCounterMode

from ltr.kernels.autodiff import Rule, differentiable
from ltr.kernels.sorting import descending_order


@dataclass(frozen=True, eq=False)
class Cube(Rule):
    """Of x the scaled cube, and a constant."""

    factor: float
    constant = (1,)

    def values(self, x):
        return self.factor * x**3, torch.ones_like(x)

    def gradients(self, needed, given, x):
        return (3 * self.factor * x**2 * given[0],)


def cube(x):
    return differentiable(Cube(2.0), x)[0]


def test_derivatives_are_those_of_autograd():
    x = torch.randn(4, dtype=torch.float64)
    expected = 6 * x**2
    torch.testing.assert_close(torch.func.grad(lambda x: cube(x).sum())(x), expected)
    torch.testing.assert_close(torch.vmap(torch.func.grad(cube))(x), expected)
    torch.testing.assert_close(
        torch.func.jacrev(torch.func.jacrev(cube))(x[:1]).ravel(), 12 * x[:1]
    )
    leaf = x.clone().requires_grad_()
    assert torch.autograd.gradcheck(cube, (leaf,))
    assert torch.autograd.gradgradcheck(cube, (leaf,))
    for vectorize in (False, True):
        torch.testing.assert_close(jacobian(cube, x, vectorize=vectorize).diagonal(), expected)
        found = hessian(lambda x: cube(x).sum(), x, vectorize=vectorize)
        torch.testing.assert_close(found.diagonal(), 12 * x)


def test_forward_mode_is_refused_in_one_line():
    x = torch.randn(3)
    message = "forward-mode derivatives are not supported here: use reverse mode, [^\n]*$"
    for call in (
        lambda: torch.func.jvp(cube, (x,), (x,)),
        lambda: torch.func.jacfwd(cube)(x),
        lambda: torch.func.hessian(lambda x: cube(x).sum())(x),
        lambda: torch.func.jvp(torch.func.grad(lambda x: cube(x).sum()), (x,), (x,)),
        lambda: jacobian(cube, x, vectorize=True, strategy="forward-mode"),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()


def test_a_constant_output_has_no_gradient():
    x = torch.randn(3, requires_grad=True)
    y, one = differentiable(Cube(1.0), x)
    assert y.requires_grad
    assert not one.requires_grad


def test_a_tensor_that_came_out_of_a_transform_can_be_used():
    kept = []

    def keep(x):
        kept.append(x)
        return x.sum()

    x = torch.randn(3)
    torch.func.grad(keep)(x)
    torch.testing.assert_close(cube(kept[0]), 2 * x**3)  # a wrapper whose transform is over


def test_compiled_code_has_no_other_numbers():
    x = torch.randn(4, requires_grad=True)
    compiled = torch.compile(cube, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x.detach()), cube(x.detach()))
    (found,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(found, 6 * x.detach() ** 2)


def test_a_vmapped_order_is_that_of_each_list():
    scores = torch.randn(5, 2, 7)
    assert torch.vmap(descending_order)(scores).equal(descending_order(scores))
    with FlopCounterMode(display=False):
        assert descending_order(scores).shape == (5, 2, 7)
