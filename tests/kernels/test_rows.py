"""The operations on rows against their matrix, and their derivatives by finite differences."""

import math

import pytest
import torch

from ltr.kernels.choice import computed_by
from ltr.kernels.reference import REFERENCE
from ltr.kernels.reference import rows as plain_rows
from ltr.kernels.reference.rows import row_log_sums as plain_row_log_sums
from ltr.kernels.reference.rows import row_products as plain_row_products
from ltr.kernels.reference.rows import row_vjp as plain_row_vjp
from ltr.kernels.rows import row_log_sums, row_products, row_vjp
from ltr.kernels.rows_function import RowSoftmax

IMPLEMENTATIONS = {
    "fastest": (row_products, row_log_sums),
    "plain": (plain_row_products, plain_row_log_sums),
}


def draw(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def lists(n, dtype=torch.float64, ties=False):
    """Descending points (3, n), of which all, most and half are real, with their lengths."""
    points = draw(3, n, seed=n)
    if ties:
        points = (2 * points).round() / 2
    points = points.sort(-1, descending=True).values.to(dtype)
    lengths = torch.tensor([n, max(n - 3, 0), n // 2])
    for row, m in zip(points, lengths.tolist(), strict=True):
        row[m:] = row[m - 1].clone() if m else 0.0
    return points, lengths


def matrix(points, lengths, temperature):
    """P and the logarithms of its rows' sums, entry by entry from the definition, in float64."""
    t = points.double()
    n = t.shape[-1]
    logits = torch.zeros(*t.shape, n, dtype=torch.float64)
    gaps = t[..., :-1] - t[..., 1:]
    for i in range(n):
        odd = 1 + 2 * torch.arange(n)
        logits[..., i, i + 1 :] = -(odd[: n - 1 - i] * gaps[..., i:]).cumsum(-1)
        logits[..., i, :i] = -(odd[:i] * gaps[..., :i].flip(-1)).cumsum(-1).flip(-1)
    dead = torch.arange(n) >= lengths.unsqueeze(-1)
    logits = (logits / temperature).masked_fill(dead.unsqueeze(-2), -torch.inf)
    log_sums = logits.logsumexp(-1).masked_fill(dead, 0.0)
    return logits.softmax(-1).masked_fill(dead.unsqueeze(-1), 0.0), log_sums


def weight(points, u):
    """The weight (j - i)^u of each entry."""
    position = torch.arange(points.shape[-1]).double()
    return (position - position.unsqueeze(-1)) ** u


@pytest.mark.parametrize("temperature", [1e-6, 0.1, 1.0, 1e6])
@pytest.mark.parametrize("n", [1, 2, 33, 301])
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_products_are_those_of_the_matrix(name, n, temperature):
    products, log_sums = IMPLEMENTATIONS[name]
    for dtype, ties, tolerance in [(torch.float64, True, 1e-11), (torch.float32, False, 3e-6)]:
        points, lengths = lists(n, dtype, ties)
        P, sums = matrix(points, lengths, temperature)
        for rows in {n, min(n, 7)}:
            V, W = draw(3, n, 4, seed=1, dtype=dtype), draw(3, rows, 4, seed=2, dtype=dtype)
            found = products(points, lengths, V, temperature, rows, [2, 0, 2, 1], False)
            turned = products(points, lengths, W, temperature, rows, [2, 0, 2, 1], True)
            assert found.dtype == turned.dtype == dtype
            for u in (0, 1):
                weighted = (P * weight(points, u))[:, :rows]
                size = 1 + weighted.abs().sum(-1).max().item()
                close = {"rtol": 0, "atol": tolerance * size}
                some = slice(2 * u, 2 * u + 2)
                expected = weighted @ V[..., some].double()
                torch.testing.assert_close(found[..., some].double(), expected, **close)
                expected = weighted.mT @ W[..., some].double()
                torch.testing.assert_close(turned[..., some].double(), expected, **close)
            logs = log_sums(points, lengths, temperature, rows)
            torch.testing.assert_close(logs.double(), sums[:, :rows], rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_weights(name):
    points, lengths = lists(12, ties=True)
    P, _ = matrix(points, lengths, 0.7)
    V = draw(3, 12, 3, seed=1)
    found = IMPLEMENTATIONS[name][0](points, lengths, V, 0.7, 12, [1, 0, 1, 1, 1, 2], False)
    for u in (0, 1, 2):
        expected = (P * weight(points, u)) @ V[..., u : u + 1]
        torch.testing.assert_close(found[..., u : u + 1], expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("n", [2, 33, 301])
@pytest.mark.parametrize("vjp", [row_vjp, plain_row_vjp], ids=IMPLEMENTATIONS)
def test_row_vjp_is_the_gradient_by_the_logits(vjp, n):
    for dtype, tolerance in [(torch.float64, 1e-10), (torch.float32, 3e-5)]:
        points, lengths = lists(n, dtype)
        G, V = draw(3, n, 3, seed=1, dtype=dtype), draw(3, n, 3, seed=2, dtype=dtype)
        rows = max(1, n - 2)
        found = vjp(points, lengths, G[:, :rows], V, 0.6, rows, [2, 0, 1, 1]).double()
        M = G.double() @ torch.tensor([1.0, 1, 0]).double().diag() @ V.double().mT
        P, _ = matrix(points, lengths, 0.6)
        M = M + G[..., 2:].double() @ V[..., 2:].double().mT * weight(points, 1)
        D = (P * (M - (P * M).sum(-1, keepdim=True)))[:, :rows]
        offset = weight(points, 1)[:rows]
        expected = torch.stack([D.sum(-2), (offset * D).sum(-2)], -1)
        close = {"rtol": 0, "atol": tolerance * (1 + expected.abs().max().item())}
        torch.testing.assert_close(found, expected, **close)


def test_gaps_far_beyond_rounding():
    # sums of gaps would lose the small ones after the large one
    points = torch.tensor([[2e30, 1e30 + 1e15, 1e30, 3.0, 2.0, 1.0]], dtype=torch.float64)
    V = torch.arange(6.0, dtype=torch.float64).view(1, 6, 1)
    P, _ = matrix(points, torch.tensor([6]), 1.0)
    for products, _ in IMPLEMENTATIONS.values():
        found = products(points, torch.tensor([6]), V, 1.0, 6, [1, 0], False)
        torch.testing.assert_close(found, P @ V, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_not_a_number_stays_in_its_list(name):
    products, log_sums = IMPLEMENTATIONS[name]
    for n in (9, 301):
        points, lengths = lists(n)
        points[1, 0] = torch.nan
        arguments = (draw(3, n, 1), 0.5, n, [1, 0], True)
        found = products(points, lengths, *arguments)[::2]
        alone = products(points[::2].clone(), lengths[::2], draw(3, n, 1)[::2], *arguments[1:])
        torch.testing.assert_close(found, alone, rtol=0, atol=1e-12)
        assert log_sums(points, lengths, 0.5, n)[::2].isfinite().all()


def test_plain_pytorch_takes_over_where_numba_is_missing():
    points, lengths = lists(40)
    arguments = (points, lengths, draw(3, 40, 2), 0.3, 40, [2, 0], True)
    with computed_by(REFERENCE):  # the choice that all kernels share
        found = row_products(*arguments)
    assert torch.equal(found, plain_row_products(*arguments))


def test_threads_agree():
    points, lengths = lists(200)
    one = points[:1], lengths[:1]
    before = torch.get_num_threads()
    arguments = (draw(1, 200, 3), 0.3, 200, [2, 0, 1, 1])
    pairs = (draw(1, 200, 3), *arguments)
    expected = row_products(*one, *arguments, True), row_vjp(*one, *pairs)
    torch.set_num_threads(3)
    try:
        found = row_products(*one, *arguments, True), row_vjp(*one, *pairs)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_blocks_cover_the_rows_and_are_bounded():
    for n, reach in [(1, 0), (700, 3), (700, 60), (700, 700), (20_000, 20_000)]:
        position = torch.arange(n)
        begin, end = (position - reach).clamp(min=0), (position + reach + 1).clamp(max=n)
        left = 0
        for first, last, low, high in plain_rows._blocks(begin, end, 2, 5000):
            assert first == left < last
            assert low <= begin[first]
            assert high >= end[last - 1]
            assert 2 * (last - first) * (high - low) <= 5000 or last - first == 1
            left = last
        assert left == n


@pytest.mark.parametrize("transposed", [False, True])
def test_opcheck(transposed):
    points, lengths = lists(6)
    weights = [1, 0, 2, 1]
    checks = ("test_schema", "test_faketensor")  # differentiated by a Function around it
    arguments = (points, lengths, draw(3, 6, 3), 0.5, 6, weights, transposed)
    torch.library.opcheck(torch.ops.ltr.row_products.default, arguments, test_utils=checks)
    arguments = (points, lengths, draw(3, 6, 3), draw(3, 6, 3), 0.5, 6, weights)
    torch.library.opcheck(torch.ops.ltr.row_vjp.default, arguments, test_utils=checks)
    arguments = (points, lengths, 0.5, 6)
    torch.library.opcheck(torch.ops.ltr.row_log_sums.default, arguments, test_utils=checks)


@pytest.mark.parametrize("rows", [3, 5])
def test_derivatives(rows):
    lengths = torch.tensor([5, 4])
    # x: what the points are made of, so that differences keep their order
    x = draw(2, 5).requires_grad_()
    V = draw(2, 5, 2, seed=1).requires_grad_()
    W = draw(2, rows, 2, seed=2).requires_grad_()
    steps = torch.tensor([5.0, 4, 3, 2, 1], dtype=torch.float64)

    def softmax(x):
        points = steps + 0.3 * x.tanh()
        return RowSoftmax(points, own_slack(points), lengths, 2.0, rows)

    def own_slack(points):  # that of distinct points: S_(j - 1) + S_j - S_m
        sums = points.cumsum(-1)
        return 2 * sums - points - sums.gather(-1, lengths.unsqueeze(-1) - 1)

    functions = [
        (lambda x, V: softmax(x).matmul(V), (x, V)),
        (lambda x, W: softmax(x).transposed_matmul(W), (x, W)),
        (lambda x: softmax(x).log_sums(), (x,)),
    ]
    for function, inputs in functions:
        assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(function, inputs)


def test_inputs_without_gradient_get_none():
    points, lengths = lists(8)
    V = draw(3, 8, 2).requires_grad_()
    P = RowSoftmax(points, torch.zeros_like(points), lengths, 1.0, 8)
    expected, sums = matrix(points, lengths, 1.0)
    G = draw(3, 8, 2, seed=1)
    for product, dense in [(P.matmul, expected), (P.transposed_matmul, expected.mT)]:
        (found,) = torch.autograd.grad((product(V) * G).sum(), V)
        torch.testing.assert_close(found, dense.mT @ G)
    assert math.isclose(P.log_sums()[0, 0].item(), sums[0, 0])
