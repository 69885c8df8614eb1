"""Dropout by 16 random bits is dropout."""

import pytest
import torch
from torch import nn

from ltr.models import MLPScorer
from ltr.models.dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_share_scale_and_gradient(p: float, dtype: torch.dtype):
    torch.manual_seed(0)
    # drawn as float32: some versions draw zeros of bfloat16
    x = torch.randn(400, 501).to(dtype).requires_grad_()
    y = Dropout(p)(x)
    dropped = y == 0
    # five standard deviations of the share of dropped numbers
    assert dropped.double().mean() == pytest.approx(p, abs=5 * (p * (1 - p) / x.numel()) ** 0.5)
    expected = torch.where(dropped, 0, x / (1 - p))
    torch.testing.assert_close(y, expected, rtol=2e-2 if dtype == torch.bfloat16 else 1e-4, atol=0)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad == 0, dropped)
    # columns and rows are independent: no number is drawn for two positions
    rows = dropped.double() - p
    covariance = (rows[:, 1:] * rows[:, :-1]).mean()
    assert covariance.abs() < 5 * p * (1 - p) / x.numel() ** 0.5


def test_what_is_drawn_depends_on_the_seed_alone():
    x, dropout = torch.ones(10, 7), Dropout(0.5)
    torch.manual_seed(1)
    one = dropout(x)
    torch.manual_seed(1)
    assert torch.equal(dropout(x), one)
    assert not torch.equal(dropout(x), one)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 3, 5)])
def test_any_shape(shape: tuple[int, ...]):
    assert Dropout(0.5)(torch.ones(shape)).shape == shape


def test_outside_training_and_at_the_ends():
    x = torch.randn(9, 3)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert (Dropout(1.0)(x) == 0).all()


def test_the_network_has_it():
    layers = [*MLPScorer(3, hidden=(4,), dropout=0.5).modules()]
    assert sum(isinstance(one, Dropout) for one in layers) == 1
    assert all(isinstance(one, Dropout) for one in layers if isinstance(one, nn.Dropout))
