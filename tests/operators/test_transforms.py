"""Every operator under every transform: it works, or docs/operators/transforms.md has its error."""

import itertools
import re
from pathlib import Path

import pytest
import torch
from operator_table import OPERATORS, SOFT_OPERATORS, SORT_OPERATORS, draw
from pairwise import chosen, together
from torch.func import grad, vmap

from ltr.operators import SoftSort, Stochastic, soft_median, soft_rank, soft_topk, sort_with

PAGE = Path(__file__).parents[2] / "docs" / "operators" / "transforms.md"
MASK = torch.tensor([[True, False, True, True], [True] * 4, [True] * 2 + [False] * 2])
TABLE = OPERATORS | {
    "Stochastic in training": Stochastic(SoftSort(0.7), samples=2),
    "Stochastic with a generator": Stochastic(SoftSort(0.7), 2, generator=torch.Generator()),
}


ONE_OF_EACH_CLASS = {
    type(operator.permutation(draw(3, 4))).__name__: operator
    for operator in SORT_OPERATORS.values()
}
PRODUCTS = {"KernelPermutation", "SinkhornPermutation", "HardPermutation"}


def unsupported() -> dict[tuple[str, str], str]:
    """(operator, transform) -> error, from the page. A name is that of a class or of the table."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {(operator, transform): error for operator, transform, error in cells[1:]}


ROWS = unsupported()


def known_error(name: str, transform: str) -> str | None:
    names = [name] if name.startswith("Stochastic") else [name, type(TABLE[name]).__name__]
    return next((ROWS[key] for key in [(n, transform) for n in names] if key in ROWS), None)


def is_soft(operator) -> bool:
    # whole ranks may have gradients all the same: SoftRank's discounts are means over them
    return operator in SOFT_OPERATORS.values() or not operator.exact_cutoff


class Reset(torch.nn.Module):
    """An operator that draws the same noise at every call."""

    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def reseed(self):
        torch.manual_seed(0)
        if isinstance(self.operator, Stochastic) and self.operator.generator is not None:
            self.operator.generator.manual_seed(0)
        return self.operator


def check_vmap(operator):
    scores, cotangent = draw(3, 4), draw(4, seed=1)
    torch.testing.assert_close(vmap(operator)(scores), operator(scores))
    torch.testing.assert_close(vmap(operator)(scores, MASK), operator(scores, MASK))
    torch.testing.assert_close(vmap(operator, in_dims=1)(scores.mT), operator(scores))
    each = vmap(grad(lambda x: (operator(x) * cotangent).sum()))(scores)
    if is_soft(operator):
        x = scores.requires_grad_()
        whole = torch.autograd.grad((operator(x) * cotangent).sum(), x)[0]
        torch.testing.assert_close(each, whole)


def check_double_backward(operator):
    if not is_soft(operator):
        return
    seed = Reset(operator)
    scores, tangent, cotangent = draw(3, 4), draw(3, 4, seed=1), draw(3, 4, seed=2)

    def slope(x):
        ranks = (seed.reseed()(x, MASK) * cotangent).sum()
        return (torch.autograd.grad(ranks, x, create_graph=True)[0] * tangent).sum()

    def first(x):
        x = x.requires_grad_()
        ranks = (seed.reseed()(x, MASK) * cotangent).sum()
        return torch.autograd.grad(ranks, x)[0]

    x = scores.clone().requires_grad_()
    along = slope(x)
    if not along.requires_grad:  # piecewise linear: the second derivative is 0
        second = torch.zeros_like(x)
    else:
        second = torch.autograd.grad(along, x, allow_unused=True)[0]
        second = torch.zeros_like(x) if second is None else second
    # the Hessian is symmetric: its product with the tangent, by differences of gradients
    h = 1e-5
    expected = (first(scores + h * tangent) - first(scores - h * tangent)) / (2 * h)
    torch.testing.assert_close(second, expected, rtol=1e-4, atol=1e-6)


def check_compile(operator, backend="eager"):
    torch._dynamo.reset()
    seed = Reset(operator)
    x = draw(3, 4).requires_grad_()
    seed.reseed()
    ranks = torch.compile(operator, fullgraph=True, backend=backend)(x, MASK)
    expected = seed.reseed()(x, MASK)
    torch.testing.assert_close(ranks, expected)
    if is_soft(operator):
        weights = draw(3, 4, seed=1)
        found, wanted = (torch.autograd.grad((y * weights).sum(), x)[0] for y in (ranks, expected))
        torch.testing.assert_close(found, wanted)


def check_lengths(operator):
    torch._dynamo.reset()
    seed = Reset(operator)
    seed.reseed()
    compiled = torch.compile(operator, fullgraph=True, backend="eager")
    for n in (4, 6, 7):
        x = draw(3, n).requires_grad_()
        seed.reseed()
        ranks = compiled(x)
        expected = seed.reseed()(x)
        torch.testing.assert_close(ranks, expected)
        if is_soft(operator):
            weights = draw(3, n, seed=1)
            one, two = (torch.autograd.grad((y * weights).sum(), x)[0] for y in (ranks, expected))
            torch.testing.assert_close(one, two)


def check_export(operator):
    scores, other = draw(3, 4), draw(3, 4, seed=1)
    try:
        exported = torch.export.export(operator, (scores, MASK)).module()
    except NotImplementedError as error:
        if "torch._C.Generator" not in str(error):
            raise
        pytest.skip("this torch exports no module that has a generator")
    found, expected = exported(other, MASK), operator(other, MASK)
    if isinstance(operator, Stochastic) and operator.training:  # the exported noise is its own
        assert found.shape == expected.shape
    else:
        torch.testing.assert_close(found, expected)


CHECKS = {
    "vmap": check_vmap,
    "double backward": check_double_backward,
    "compile": check_compile,
    "compile, several n": check_lengths,
    "export": check_export,
}


# Without a trace a check takes milliseconds. torch traces for up to seconds, and a bitonic network
# of any n for most of a minute: the fast tests trace an operator of each class in one of the ways.
EAGER = ["vmap", "double backward"]
TRACED = {transform: check for transform, check in CHECKS.items() if transform not in EAGER}
ONE_OF_EACH = {type(operator): name for name, operator in reversed(TABLE.items())}
FAST = {("SortingNetwork-bitonic", "compile")} | chosen(
    {name: TABLE[name] for name in ONE_OF_EACH.values()}, TRACED
)


def check(name, transform):
    """Apply a transform, or find the error that the page names."""
    error = known_error(name, transform)
    if error is None:
        CHECKS[transform](TABLE[name])
    else:
        with pytest.raises(Exception, match=re.escape(error)):
            CHECKS[transform](TABLE[name])


@pytest.mark.parametrize("transform", EAGER)
@together("name", {name: (name,) for name in TABLE})
def test_eager_transforms_work_or_are_in_the_table(name, transform):
    check(name, transform)


@pytest.mark.parametrize(
    ("name", "transform"),
    [
        pytest.param(*case, marks=[] if case in FAST else [pytest.mark.slow])
        for case in itertools.product(TABLE, TRACED)
    ],
)
def test_works_or_is_in_the_table(name, transform):
    check(name, transform)


def test_the_page_names_known_operators():
    classes = {type(operator).__name__ for operator in TABLE.values()}
    for operator, transform in ROWS:
        assert operator in classes | set(TABLE), operator
        assert transform in CHECKS, transform


@pytest.mark.parametrize(
    "name",
    [  # half a second each: sums over items, the plan of Sinkhorn and an order are fast
        pytest.param(name, marks=[] if name in PRODUCTS else [pytest.mark.slow])
        for name in ONE_OF_EACH_CLASS
    ],
)
def test_products_compile(name):
    operator = ONE_OF_EACH_CLASS[name]
    torch._dynamo.reset()
    scores, v, V = draw(3, 4), draw(3, 4, seed=1), draw(3, 4, 2, seed=2)

    def products(scores):
        P = operator.permutation(scores)
        Q = P.top(2)
        return P, P.ranks(), P.mT.matmul(V), Q.mv(v)

    compiled = torch.compile(products, fullgraph=True, backend="eager")
    (P, *found), (Q, *expected) = compiled(scores), products(scores)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(P.dense(), Q.dense())


@pytest.mark.slow  # inductor compiles C++ for every operator
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", OPERATORS)
def test_compile_to_code(name, backend):
    check_compile(OPERATORS[name], backend)


def test_functions_under_transforms():
    x, values, operator = draw(3, 4), draw(3, 4, 2, seed=1), SoftSort(0.7)

    def call(x, mask):
        return (
            soft_rank(x, operator, mask, descending=False),
            soft_topk(x, 2, operator, mask),
            soft_median(x, operator, mask),
            sort_with(x, values, operator, mask),
        )

    expected = call(x, MASK)
    compiled = torch.compile(call, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, MASK), expected)
    torch.testing.assert_close(vmap(soft_median)(x), soft_median(x))
    torch.testing.assert_close(vmap(soft_rank, in_dims=1)(x), soft_rank(x.mT))
