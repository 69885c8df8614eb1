"""The plain sums of long lists, a chunk at a time, and the sign, against the dense definition."""

import pytest
import torch
from dense import dense_sum
from test_sums import KERNELS, any_kernel, both, draw

from ltr.kernels.choice import computed_by
from ltr.kernels.lists import in_order, sort_lists
from ltr.kernels.named import sign
from ltr.kernels.reference import REFERENCE
from ltr.kernels.reference import sums as plain_sums
from ltr.kernels.sums import kernel_sums


@pytest.fixture(params=[1, 2, 7])
def size(request, monkeypatch):
    """Positions in a chunk."""
    monkeypatch.setattr(plain_sums, "CHUNK", request.param)
    monkeypatch.setattr(plain_sums, "SCAN_VALUES", 16)  # rows and nodes are taken in parts
    return request.param


def plain(*arguments, **options):
    with computed_by(REFERENCE):
        return kernel_sums(*arguments, **options)


def check(scores, lists, columns, outputs, temperature):
    found = plain(scores, columns, outputs, lists, temperature)
    for y, (column, kernel) in zip(found, outputs, strict=True):
        expected = dense_sum(scores, columns[column], kernel, lists, temperature)
        torch.testing.assert_close(y, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("length", [0, 1, 2, 9, 11])
def test_pieces_of_lists(kernel, length, size):
    scores = draw(11).mul(3).round().div(3)  # with ties
    lists = sort_lists(scores, torch.arange(11) < length)
    check(scores, lists, [draw(11, seed=1)], [(0, kernel)], 0.3)


def test_pieces_of_many_columns_and_outputs(size):
    scores, kernels = draw(20), [any_kernel(seed, True) for seed in range(3)]
    columns = [torch.ones(()).double().expand(20), draw(20, seed=1)]
    lists = sort_lists(scores, torch.arange(20) % 5 > 0)
    check(scores, lists, columns, [(1, kernels[0]), (0, kernels[1]), (1, kernels[2])], 0.7)
    points = scores.sort(descending=True).values
    check(points, in_order(points), columns, [(0, kernels[0])], 0.7)


def test_pieces_of_rows_are_each_row_alone(size):
    scores, v = draw(5, 11), draw(5, 11, seed=1)
    mask = torch.arange(11) < torch.tensor([[11], [3], [0], [1], [7]])
    outputs = [(0, any_kernel(0, False)), (0, any_kernel(1, False))]
    found = plain(scores, [v], outputs, sort_lists(scores, mask), 0.5)
    for row in range(5):
        lists = sort_lists(scores[row], mask[row])
        for y, (_, kernel) in zip(found, outputs, strict=True):
            expected = dense_sum(scores[row], v[row], kernel, lists, 0.5)
            torch.testing.assert_close(y[row], expected, rtol=1e-11, atol=1e-11)
            assert (y[row][~mask[row]] == 0).all()


def test_non_finite_numbers_make_every_piece_of_their_list_nan(size):
    scores, v, one = draw(3, 7), draw(3, 7, seed=1), torch.ones(3, 7).double()
    mask = torch.arange(7) < torch.tensor([[4], [7], [4]])
    outputs = [(0, any_kernel(0, False)), (1, KERNELS["real"])]
    clean = plain(scores, [v, one], outputs, sort_lists(scores, mask), 0.5)
    for bad in (torch.nan, torch.inf, -torch.inf):
        spoiled = scores.clone()
        spoiled[1, 2] = bad
        found = plain(spoiled, [v, one], outputs, sort_lists(spoiled, mask), 0.5)
        for y, expected in zip(found, clean, strict=True):
            assert y[1].isnan().all()
            torch.testing.assert_close(y[::2], expected[::2], rtol=0, atol=0)
        w = v.clone()
        w[1, 2] = bad
        y, other = plain(scores, [w, one], outputs, sort_lists(scores, mask), 0.5)
        assert y[1].isnan().all()
        torch.testing.assert_close(other, clean[1])


@both
def test_the_sign(implementation):
    for n in (0, 1, 2, 30, 1200):
        scores, v = draw(n).mul(20).round(), draw(n, seed=1).requires_grad_()
        matrix = (scores.unsqueeze(-1) - scores).sign()
        with computed_by(implementation):
            (found,) = kernel_sums(scores, [v], [(0, sign())], sort_lists(scores))
            (slope,) = torch.autograd.grad((found * scores).sum(), v)
        torch.testing.assert_close(found, matrix @ v)
        torch.testing.assert_close(slope, matrix.mT @ scores)
