"""The kernel sums: all implementations against the dense float64 definition."""

import threading

import numpy as np
import pytest
import torch
from dense import dense_sum
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise import covering, named, split, together
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, vmap
from torch.library import opcheck

from ltr.kernels.choice import computed_by
from ltr.kernels.cpu import CPU
from ltr.kernels.kernel import Kernel, Profile
from ltr.kernels.lists import SortedLists, in_order, sort_lists
from ltr.kernels.named import COUNT_KERNELS, gaussian, laplace
from ltr.kernels.reference import REFERENCE
from ltr.kernels.sums import kernel_sums
from ltr.kernels.table import Nodes

IMPLEMENTATIONS = {"torch": REFERENCE, "numba": CPU}
both = pytest.mark.parametrize("implementation", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)


def any_kernel(seed: int, complex_nodes: bool) -> Kernel:
    """Everything a profile has, different on both sides."""
    rng = np.random.default_rng(seed)
    nodes = Nodes(0.9 + 0.3j, 0.1 + 1.1j, 3) if complex_nodes else Nodes(1.0, 1.0, 3)

    def profile() -> Profile:
        weights = rng.normal(size=3) + 1j * complex_nodes * rng.normal(size=3)
        constant, linear, tie = rng.normal(size=3)
        return Profile(tuple(weights), (), constant, linear, tie)

    return Kernel(nodes, profile(), profile(), float(rng.normal()))


def only_exponentials(kernel: Kernel) -> Kernel:
    # differentiable where no two scores are tied
    above = Profile(kernel.above.weights)
    return Kernel(kernel.nodes, above, Profile(kernel.below.weights), kernel.own)


KERNELS = {
    "laplace": laplace(),
    "laplace slope": laplace().derivative,
    "gaussian": gaussian(),
    "logistic": COUNT_KERNELS["logistic"][torch.float64],
    "normal": COUNT_KERNELS["normal"][torch.float64],
    "laplace chance": COUNT_KERNELS["laplace"][torch.float64],
    "real": any_kernel(0, False),
    "complex": any_kernel(1, True),
}
kernels = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()


def call(implementation, scores, columns, outputs, lists, temperature=1.0):
    with computed_by(implementation):
        return kernel_sums(scores, columns, outputs, lists, temperature)


def scale_of(y: torch.Tensor) -> float:
    return max(1.0, float(y.abs().max())) if y.numel() else 1.0


# lengths around the blocks and chunks in use, with ties
@together(
    "implementation, kernel, n",
    *split(IMPLEMENTATIONS, KERNELS, named(1, 2, 3, 17, 300, 900)),
)
def test_the_dense_definition(implementation, kernel, n):
    scores, v = draw(n).round(decimals=2), draw(n, seed=1)
    lists = sort_lists(scores)
    found = call(implementation, scores, [v], [(0, kernel)], lists, 0.3)[0]
    expected = dense_sum(scores, v, kernel, lists, 0.3)
    tolerance = 1e-12 * n * scale_of(expected)
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


@both
@pytest.mark.parametrize("size", [(64, 128), (3, 700), (130, 5), (1, 40), (16, 500)])
def test_several_columns_and_outputs(implementation, size):
    kernel, other = KERNELS["complex"], KERNELS["complex"].derivative.transpose
    scores, mask = draw(*size).round(decimals=1), draw(*size, seed=3) < 1
    columns = [draw(*size, seed=1), torch.tensor(2.0).double().expand(size), draw(*size, seed=2)]
    outputs = [(0, kernel), (2, other), (2, kernel), (1, kernel.transpose)]
    lists = sort_lists(scores, mask)
    found = call(implementation, scores, columns, outputs, lists, 0.7)
    for i in range(0, size[0], 13):
        row = SortedLists(lists.order[i], lists.lengths[i])
        for y, (c, k) in zip(found, outputs, strict=True):
            expected = dense_sum(scores[i], columns[c][i], k, row, 0.7)
            torch.testing.assert_close(y[i], expected, rtol=1e-9, atol=1e-9)
    assert all((y[~mask] == 0).all() for y in found)


@both
def test_points_in_order_and_broken_layouts(implementation):
    kernel = KERNELS["logistic"]
    scores = draw(4, 600).sort(descending=True).values
    v = draw(600, 4, seed=1).mT  # not contiguous
    found = call(implementation, scores, [v], [(0, kernel)], in_order(scores))[0]
    expected = call(implementation, scores, [v.contiguous()], [(0, kernel)], sort_lists(scores))[0]
    torch.testing.assert_close(found, expected)
    same = scores[:1].expand(4, 600)
    found = call(implementation, same, [v], [(0, kernel)], sort_lists(same))[0]
    expected = call(implementation, same.clone(), [v], [(0, kernel)], sort_lists(same))[0]
    torch.testing.assert_close(found, expected)


@together(
    "implementation, kernel, temperature",
    *split(IMPLEMENTATIONS, KERNELS, named(1e-6, 1e-4, 1.0, 1e6)),
)
def test_any_temperature(implementation, kernel, temperature):
    scores, v = draw(80).round(decimals=1), draw(80, seed=1)  # gaps of 0 and of 1e4 temperatures
    lists = sort_lists(scores)
    found = call(implementation, scores, [v], [(0, kernel)], lists, temperature)[0]
    expected = dense_sum(scores, v, kernel, lists, temperature)
    assert found.isfinite().all()
    torch.testing.assert_close(found / scale_of(expected), expected / scale_of(expected))


@both
def test_lists_of_any_length_and_a_spoiled_one(implementation):
    lengths = torch.tensor([3, 0, 500, 1, 400, 90])
    mask = torch.arange(506) < lengths.unsqueeze(-1)
    scores, v = draw(6, 506), draw(6, 506, seed=1)
    rows = [(i, sort_lists(scores[i], mask[i])) for i in (0, 2, 3, 5)]
    for kernel in KERNELS.values():
        expected = torch.stack([dense_sum(scores[i], v[i], kernel, row) for i, row in rows])
        for bad in [float("nan"), float("inf"), -float("inf")]:
            broken = scores.clone()
            broken[4, 196] = bad
            lists = sort_lists(broken, mask)
            found = call(implementation, broken, [v], [(0, kernel)], lists)[0]
            assert found[4, :400].isnan().all()
            assert (found[~mask] == 0).all()
            scale = scale_of(expected)
            torch.testing.assert_close(found[[0, 2, 3, 5]] / scale, expected / scale)


@both
def test_scores_under_the_mask_are_in_no_gap(implementation):
    scores, v = draw(2, 5), draw(2, 5, seed=1)
    mask = torch.tensor([[False, True, True, True, False], [True, True, False, False, True]])
    for hidden in (1e308, -1e308, torch.inf, torch.nan):
        given = torch.where(mask, scores, hidden)
        lists = sort_lists(given, mask)
        for kernel in KERNELS.values():
            found = call(implementation, given, [v], [(0, kernel)], lists, 0.1)[0]
            for row in range(2):
                part, w = scores[row, mask[row]], v[row, mask[row]]
                expected = dense_sum(part, w, kernel, sort_lists(part), 0.1)
                torch.testing.assert_close(found[row, mask[row]], expected)


@both
def test_a_nan_in_a_column_stays_in_its_outputs_and_its_list(implementation):
    scores, kernel = draw(2, 30), KERNELS["normal"]
    broken = draw(2, 30, seed=1)
    broken[1, 7] = float("nan")
    outputs = [(0, kernel), (1, kernel)]
    first, second = call(implementation, scores, [scores, broken], outputs, sort_lists(scores))
    assert first.isfinite().all()
    assert second[0].isfinite().all()
    assert second[1].isnan().all()


@both
def test_no_items_and_all_masked(implementation):
    kernel = KERNELS["logistic"]
    for shape in [(0,), (3, 0), (0, 4)]:
        scores = torch.zeros(shape)
        assert (
            call(implementation, scores, [scores], [(0, kernel)], sort_lists(scores))[0].shape
            == shape
        )
    scores = draw(2, 3).requires_grad_()
    lists = sort_lists(scores, torch.zeros(2, 3, dtype=torch.bool))
    y = call(implementation, scores, [torch.ones(2, 3).double()], [(0, kernel)], lists)[0]
    y.sum().backward()
    assert (y == 0).all()
    assert (scores.grad == 0).all()


@covering(
    "implementation, name",
    IMPLEMENTATIONS,
    named("laplace", "gaussian", "logistic", "normal", "laplace chance", "complex"),
)
def test_derivatives(implementation, name):
    kernel = KERNELS[name] if name != "complex" else only_exponentials(KERNELS[name])
    scores, v = draw(2, 7).requires_grad_(), draw(2, 7, seed=1).requires_grad_()
    fixed, lists = draw(2, 7, seed=2), sort_lists(scores, draw(2, 7, seed=4) < 0.9)

    def both_sides(scores, v):
        outputs = [(0, kernel), (0, kernel.transpose), (1, kernel)]
        with computed_by(implementation):
            return kernel_sums(scores, [v, fixed], outputs, lists, 0.7)

    assert gradcheck(both_sides, (scores, v), atol=1e-7)
    assert gradgradcheck(both_sides, (scores, v), atol=1e-6)


@kernels
def test_tied_scores_have_the_derivatives_of_the_dense_form(kernel):
    # autograd through the true kernels, at ties: exp(-|x|) has slope 0, a distribution its density
    true = {
        "laplace": lambda x: torch.exp(-x.abs()),
        "gaussian": lambda x: torch.exp(-x.square()),
        "logistic": lambda x: torch.sigmoid(-x),
        "normal": lambda x: torch.erfc(x / 2**0.5) / 2,
    }
    name = next((name for name, k in KERNELS.items() if k is kernel), "")
    if name not in true:
        pytest.skip("no closed form here")
    scores = torch.tensor([0.3, 0.3, -0.2, 1.0, 1.0, 1.0]).double().requires_grad_()
    v, g = draw(6, seed=1), draw(6, seed=2)
    y = kernel_sums(scores, [v], [(0, kernel)], sort_lists(scores), 0.5)[0]
    dense = (true[name]((scores.unsqueeze(-1) - scores) / 0.5) * v).sum(-1)
    torch.testing.assert_close(y, dense)
    slopes = [torch.autograd.grad((f * g).sum(), scores, create_graph=True)[0] for f in (y, dense)]
    torch.testing.assert_close(*slopes)
    if name != "laplace":  # whose second derivative at a tie is a spike
        second = [torch.autograd.grad(s.square().sum(), scores)[0] for s in slopes]
        torch.testing.assert_close(*second, rtol=1e-6, atol=1e-8)


@both
def test_transforms(implementation):
    kernel, scores, v = KERNELS["normal"], draw(5, 6), draw(5, 6, seed=1)

    def f(scores, v):
        with computed_by(implementation):
            return kernel_sums(scores, [v], [(0, kernel)], sort_lists(scores))[0]

    torch.testing.assert_close(vmap(f)(scores, v), f(scores, v))
    torch.testing.assert_close(
        vmap(f, in_dims=(1, None))(scores.mT, v[0]), f(scores, v[:1].expand(5, 6))
    )
    each = vmap(grad(lambda s, v: f(s, v).square().sum()))(scores, v)
    whole = grad(lambda s: f(s, v).square().sum())(scores)
    torch.testing.assert_close(each, whole)


def test_the_bare_ops():
    scores, mask = draw(3, 5), draw(3, 5, seed=1) < 1
    lists, kernel = sort_lists(scores, mask), KERNELS["complex"]
    nodes = kernel.nodes
    numbers = [nodes.first.real, nodes.first.imag, nodes.step.real, nodes.step.imag, nodes.count]
    arguments = (lists.order, lists.lengths, [scores.cos()], 2.0, numbers)
    opcheck(torch.ops.ltr.kernel_sums, (scores, *arguments, list(kernel.row), [0]))
    opcheck(torch.ops.ltr.descending_order, (scores, mask))


def test_compiled_whole():
    scores, v = draw(3, 8).requires_grad_(), draw(3, 8, seed=1)
    first, second = KERNELS["logistic"], KERNELS["gaussian"]

    def f(scores):
        lists = sort_lists(scores)
        a = kernel_sums(scores, [v, v.exp()], [(0, first), (1, first)], lists)
        return (a[0] * kernel_sums(scores, [a[1]], [(0, second)], lists, 0.5)[0]).sum()

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    (found,), (expected,) = (torch.autograd.grad(g(scores), scores) for g in (compiled, f))
    torch.testing.assert_close(found, expected)


def test_autocast_changes_nothing():
    scores, kernel = draw(3, 8).float(), KERNELS["logistic"]
    lists = sort_lists(scores)
    with torch.autocast("cpu", torch.bfloat16):
        found = kernel_sums(scores, [scores], [(0, kernel)], lists)[0]
    assert found.dtype == torch.float32
    assert (found == kernel_sums(scores, [scores], [(0, kernel)], lists)[0]).all()


def test_float32_at_length():
    # float64 inside: the error is that of rounding the result, and of the float32 scores' gaps
    n = 100_000
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(n, generator=generator)
    ones = scores.new_ones(()).expand(n)
    for law in ("laplace", "logistic", "normal"):
        ranks = []
        for s in (scores, scores.double()):
            kernel = COUNT_KERNELS[law][s.dtype]
            ranks.append(kernel_sums(s, [ones.to(s.dtype)], [(0, kernel)], sort_lists(s), 0.1)[0])
        assert (ranks[0] - ranks[1]).abs().max() <= 6e-8 * n
    for s in (scores, scores.double()):
        ranks.append(kernel_sums(s, [ones.to(s.dtype)], [(0, laplace())], sort_lists(s), 100.0)[0])
    assert ((ranks[-2] - ranks[-1]) / ranks[-1]).abs().max() < 3e-7


def test_threads_give_the_same(monkeypatch):
    scores, v = draw(300, 40), draw(300, 40, seed=1)
    lists, kernel = sort_lists(scores), KERNELS["complex"]
    expected = call(CPU, scores, [v], [(0, kernel)], lists)[0]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        monkeypatch.setattr("ltr.kernels.cpu.jit.LEAST_WORK", 1)
        results = []

        def work():
            results.extend(call(CPU, scores, [v], [(0, kernel)], lists))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        torch.set_num_threads(before)
    assert len(results) == 4
    assert all((y == expected).all() for y in results)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-5, 5, width=16), min_size=1, max_size=40),
    st.sampled_from(sorted(KERNELS)),
    st.floats(0.01, 100),
)
def test_both_implementations_agree_on_odd_lists(scores, name, temperature):
    scores = torch.tensor(scores).double()
    lists = sort_lists(scores)
    outputs = [(0, KERNELS[name])]
    found, expected = (
        call(f, scores, [scores.cos()], outputs, lists, temperature)[0]
        for f in IMPLEMENTATIONS.values()
    )
    scale = scale_of(expected)
    torch.testing.assert_close(found / scale, expected / scale, rtol=1e-9, atol=1e-11)
