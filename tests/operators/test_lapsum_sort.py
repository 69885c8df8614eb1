"""LapSum's soft sort against bisection of the plain sum of Laplace distributions."""

import math

import pytest
import torch
from scipy.optimize import brentq
from torch.autograd import gradcheck

from ltr.operators import LapSum


def soft_count(scores, b, temperature):
    total = 0.0
    for s in scores:
        x = (s - b) / temperature
        total += 1 - math.exp(-x) / 2 if x > 0 else math.exp(x) / 2
    return total


def by_bisection(scores, temperature):
    reach = temperature * math.log(4 * len(scores)) + 1e-3
    ends = min(scores) - reach, max(scores) + reach
    return [
        brentq(lambda b, i=i: soft_count(scores, b, temperature) - (i + 0.5), *ends, xtol=1e-14)
        for i in range(len(scores))
    ]


LISTS = {
    "one": [0.4],
    "pair": [0.1, 0.3],
    "spread": [0.3, 0.7, 0.5, -1.0, 2.0],
    "ties": [1.0, 0.0, 1.0, 1.0, 0.0],
    "tied": [0.5] * 6,
    "far apart": [1000.0, 0.0, 1000.2, -50.0],
}


@pytest.mark.parametrize("temperature", [1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("scores", LISTS.values(), ids=LISTS)
def test_thresholds_are_the_roots(scores, temperature):
    found = LapSum(temperature).sort(torch.tensor(scores, dtype=torch.float64))
    expected = torch.tensor(by_bisection(scores, temperature), dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_derivatives(temperature):
    scores = torch.tensor([0.3, 0.7, 0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: LapSum(temperature).sort(x), scores)
    assert torch.autograd.gradgradcheck(lambda x: LapSum(temperature).sort(x), scores)
    # a shift of all scores shifts all values
    rows = torch.autograd.functional.jacobian(lambda x: LapSum(1.0).sort(x), scores)
    torch.testing.assert_close(rows.sum(-1), torch.ones_like(scores))


def test_limits_mask_and_half_precision():
    scores = torch.tensor([[0.3, 0.7, 0.5, 9.0], [1.0, 2.0, 4.0, 3.0]])
    mask = torch.tensor([[True, True, True, False], [False] * 4])
    hard = LapSum(0).sort(scores, mask)
    assert hard.tolist() == [[pytest.approx(x) for x in (0.7, 0.5, 0.3, 0.0)], [0.0] * 4]
    soft = LapSum(0.2).sort(scores, mask)
    torch.testing.assert_close(soft[0, :3], LapSum(0.2).sort(scores[0, :3]))
    assert soft[0, 3] == 0
    assert (soft[1] == 0).all()
    scores[0, 3] = math.nan
    torch.testing.assert_close(LapSum(0.2).sort(scores, mask), soft)
    for temperature in (0, 0.2):
        assert LapSum(temperature).sort(scores)[0].isnan().all()
    assert LapSum().sort(torch.ones(3, dtype=torch.bfloat16)).dtype == torch.float32
    assert LapSum().sort(torch.ones(2, 0)).shape == (2, 0)


def test_long_lists_take_no_matrix():
    scores = torch.zeros(100_000, dtype=torch.float64, requires_grad=True)
    values = LapSum(1.0).sort(scores)
    values[0].backward()
    # the quantile of one Laplace distribution at 1 / (2 n)
    assert values[0].item() == pytest.approx(math.log(len(scores)), rel=1e-12)
    assert scores.grad is not None
    torch.testing.assert_close(scores.grad, torch.full_like(scores, 1 / len(scores)).detach())
