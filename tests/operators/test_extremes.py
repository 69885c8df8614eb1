"""Scores whose gaps, powers or quotients leave the dtype give numbers, and the hard limits."""

import pytest
import torch
from operator_table import over

from ltr.operators import LapSum, SoftSort

LISTS = {
    "one high": [1e30, 1.0, 0.0],
    "both ends": [1e30, -1e30, 0.0],
    "all apart": [1e30, 2e30, -1e30, 0.0],
    "the dtype's ends": [3e38, -3e38, 1.0, 2.0],
    "tied high": [1e30, 1e30, 0.0],
}


@pytest.mark.parametrize("temperature", [0.1, 1e-20, 1e-30])
@over(LISTS, arguments="scores")
def test_lapsum_beyond_float32(scores, temperature):
    for k in (1, 1.5, 2):
        x = torch.tensor(scores, requires_grad=True)
        member = LapSum(temperature).top_k(k, x)
        assert ((member >= 0) & (member <= 1)).all()
        assert member.sum().item() == pytest.approx(k, rel=1e-6)
        (gradient,) = torch.autograd.grad(member[0], x)
        assert gradient.isfinite().all()
    matrix = LapSum(temperature).permutation(torch.tensor(scores)).dense()
    torch.testing.assert_close(matrix.sum(-1), torch.ones(len(scores)))
    assert LapSum(temperature)(torch.tensor(scores)).isfinite().all()


@pytest.mark.parametrize("power", [1.5, 2, 3])
@pytest.mark.parametrize("padding", [0, 300])
@over(LISTS, arguments="scores")
def test_powers_of_wide_gaps(scores, padding, power):
    x = torch.cat([torch.tensor(scores), torch.linspace(-1, 1, padding)]).requires_grad_()
    P = SoftSort(0.1, power).permutation(x)
    backwards = P.hard().flip(0)
    weight = torch.arange(len(x)).float()
    for found in (P.ranks(), P.mv(weight), P.dense(), P.log_prob(backwards), P.log_dense()):
        assert found.isfinite().all()
        (gradient,) = torch.autograd.grad(
            (found * found.detach().sign()).sum(), x, retain_graph=True
        )
        assert gradient.isfinite().all()
    assert SoftSort(0.1, power=power).permutation(x).hard().sort().values.equal(weight.long())
