"""DFTopK against the paper's formula."""

import numpy as np
import pytest
import torch
from operator_table import draw
from scipy.special import expit
from torch.autograd import gradcheck

from ltr.kernels import use
from ltr.operators import DFTopK


def by_the_formula(scores, k, temperature):
    descending = np.sort(scores)[::-1]
    return expit((scores - (descending[k - 1] + descending[k]) / 2) / temperature)


@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_memberships(k, temperature):
    scores = draw(5, 7)
    expected = np.stack([by_the_formula(row, k, temperature) for row in scores.numpy()])
    found = DFTopK(temperature).top_k(k, scores)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("form", ["dense", "sums"])
def test_ranks_count_the_cuts_that_an_item_misses(form):
    scores, temperature = draw(7), 0.4
    missed = [1 - by_the_formula(scores.numpy(), k, temperature) for k in range(1, 7)]
    with use(form):
        found = DFTopK(temperature)(scores)
    np.testing.assert_allclose(found, 1 + np.sum(missed, 0), rtol=1e-10)


def test_a_mask_deletes_and_short_lists_belong_whole():
    scores = torch.tensor([[0.3, torch.nan, 0.9, 0.1], [0.5, 0.2, torch.inf, torch.inf]]).double()
    mask = torch.tensor([[True, False, True, True], [True, True, False, False]])
    found = DFTopK().top_k(2, scores, mask)
    alone = DFTopK().top_k(2, scores[0, mask[0]])
    torch.testing.assert_close(found[0, mask[0]], alone)
    assert found[0, 1] == 0
    assert found[1].tolist() == [1, 1, 0, 0]
    assert DFTopK().top_k(2, scores[1, :2]).tolist() == [1, 1]
    assert DFTopK().top_k(9, scores[1, :2]).tolist() == [1, 1]


def test_the_sum_is_not_k():
    assert DFTopK().top_k(2, torch.zeros(10)).sum() == 5
    assert DFTopK(1e6).top_k(2, draw(10)).sum().item() == pytest.approx(5, abs=1e-4)


def test_only_two_scores_move_the_threshold():
    # p_i depends on s_i, and on s_[2] and s_[3] by -1/2 each
    scores = torch.tensor([0.9, 0.1, 0.5, 0.7], dtype=torch.float64)
    jacobian = torch.func.jacrev(lambda s: DFTopK(1.0).top_k(2, s))(scores)
    p = DFTopK(1.0).top_k(2, scores)
    moved = torch.eye(4).double() - torch.tensor([0, 0, 0.5, 0.5])
    torch.testing.assert_close(jacobian, (p * (1 - p)).unsqueeze(-1) * moved)


def test_derivatives():
    x = draw(2, 6).requires_grad_()
    mask = torch.tensor([[True] * 6, [True, True, False, True, True, False]])
    assert gradcheck(lambda s: DFTopK().top_k(2, s, mask), (x,))
    assert gradcheck(lambda s: DFTopK(0.3)(s, mask), (x,))


@pytest.mark.parametrize("scores", [[3e38, -3e38, 3e38], [1e30, 0.0, 1.0]])
def test_large_scores(scores):
    x = torch.tensor(scores, requires_grad=True)
    found = DFTopK().top_k(2, x)
    assert found.isfinite().all()
    assert torch.autograd.grad(found.sum(), x)[0].isfinite().all()


def test_bad_arguments():
    for k in (0, 1.5, True):
        with pytest.raises(ValueError, match="k must"):
            DFTopK().top_k(k, torch.zeros(3))  # type: ignore[arg-type]
