"""`MonotoneScorer`: no weights make the score fall with a feature that it may only rise with."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ltr.datasets import (
    Join,
    MinMaxPerList,
    PiecewiseLinearBins,
    Quantile,
    SignedLog1pStandardize,
    Standardize,
    TableTransform,
)
from ltr.datasets.coded import Coded
from ltr.models import MonotoneScorer


def _scorer(directions: list[int], seed: int, scale: float = 1.0) -> MonotoneScorer:
    torch.manual_seed(seed)
    scorer = MonotoneScorer(directions, hidden=(8, 6))
    scorer.build(len(directions))
    with torch.no_grad():
        for weight in scorer.parameters():
            weight.copy_(scale * torch.randn_like(weight))
    return scorer.double().eval()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=6))
def test_any_weights_are_monotone(seed, directions):
    if not any(directions):
        directions = [*directions, 1]
    scorer = _scorer(directions, seed, scale=10.0)
    x = torch.randn(40, len(directions), dtype=torch.float64)
    up = x + torch.rand_like(x) * torch.tensor(directions)  # all monotone features at once
    before, after = scorer(x), scorer(up)
    assert (after >= before - 1e-9 * before.abs()).all()


def test_it_is_the_formula():
    scorer = _scorer([1, 0, -1], seed=0)
    x = torch.randn(5, 3, dtype=torch.float64)
    parts = scorer.layers
    found = parts.context(x * torch.tensor([0, 1, 0]))
    f, gates, biases = found[:, 0], found[:, 1:7], found[:, 7:]
    inner = x[:, [0, 2]] * torch.tensor([1, -1]) @ parts.weight.abs().T + biases
    bent = torch.cat([inner[:, :3].relu(), -(-inner[:, 3:]).relu()], dim=1)
    want = f + (torch.log1p(gates.exp()) * bent).sum(1) / 6
    torch.testing.assert_close(scorer(x), want)


def test_free_features_may_do_anything():
    scorer = _scorer([1, 0], seed=3)
    x = torch.stack([torch.zeros(50), torch.linspace(-3, 3, 50)], dim=1).double()
    change = scorer(x).diff()
    assert change.min() < 0 < change.max()


def test_gradients_to_all_weights():
    scorer = _scorer([1, 0, -1], seed=1)
    x = torch.randn(30, 3, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(scorer, (x,))
    scorer(x).square().sum().backward()
    assert all(bool(one.grad.abs().sum() > 0) for one in scorer.parameters())


def test_codes_give_the_scores_of_one_hot_numbers():
    scorer = _scorer([0, 1, 0, 0, 0], seed=2)
    coded = Coded(torch.randn(4, 2).double(), torch.tensor([[0], [1], [2], [3]]), width=3)
    torch.testing.assert_close(scorer(coded), scorer(coded.dense()))


def test_monotone_columns():
    x = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    x[:9, 1] = np.nan
    for one in (PiecewiseLinearBins(2), Standardize(), Quantile(), SignedLog1pStandardize()):
        fitted = TableTransform(Join([one, Standardize()])).fit(x, categories=np.ones((60, 1), int))
        columns = fitted.monotone_columns()
        assert len(columns) == fitted.out_features
        codes = torch.ones(100, 1, dtype=torch.int64)
        for column in range(2):
            rows = torch.zeros(100, 2)
            rows[:, column] = torch.linspace(-4, 4, 100)
            change = fitted(rows, categories=codes).diff(dim=0)
            assert (change[:, columns == column] >= -1e-6).all()
            assert (change[:, columns != column] == 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"directions": [0, 0]}, "not all 0"),
        ({"directions": [2, 0]}, r"got \[2, 0\]"),
        ({"directions": [1, None]}, r"directions.*got \[1, None\]"),
        ({"directions": 1}, "directions.*got 1"),
        ({"directions": [1], "hidden": ()}, "at least one width"),
        ({"directions": [1], "hidden": (0,)}, "hidden"),
        ({"directions": [1], "dropout": 1.0}, "dropout"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        MonotoneScorer(**arguments)


def test_another_width():
    with pytest.raises(ValueError, match="num_features must be 2"):
        MonotoneScorer([1, 0]).build(3)


def test_a_transform_that_cannot_say():
    with pytest.raises(ValueError, match="MinMaxPerList does not say"):
        MinMaxPerList().monotone_columns()
