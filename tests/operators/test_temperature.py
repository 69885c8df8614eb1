"""A temperature that does not depend on the scale of the scores or the length of the lists."""

import pytest
import torch
from operator_table import draw

from ltr.operators import (
    IsotonicRank,
    NeuralSort,
    SigmoidRank,
    SoftSort,
    hard_ranks,
    temperature_for,
)


def squared(temperature: float) -> SoftSort:
    return SoftSort(temperature, power=2)


def test_it_is_the_deviation_within_lists_over_the_sharpness():
    scores = draw(3, 20)
    expected = scores.var(-1).mean().sqrt().item()
    assert temperature_for(scores, sharpness=4) == pytest.approx(expected / 4)
    offsets = torch.tensor([[0.0], [100.0], [-7.0]])  # differences between lists do not count
    assert temperature_for(scores + offsets, sharpness=4) == pytest.approx(expected / 4)


def test_a_mask_is_deletion():
    scores, mask = draw(2, 7), torch.tensor([[True] * 7, [True, False] * 3 + [True]])
    hidden = scores.where(mask, torch.nan)
    first, second = scores[0], scores[1, mask[1]]
    squares = first.var() * 6 + second.var() * 3
    assert temperature_for(hidden, mask) == pytest.approx((squares / 9).sqrt().item() / 10)


@pytest.mark.parametrize("operator", [None, SigmoidRank, squared, NeuralSort, IsotonicRank])
def test_ranks_do_not_change_with_the_scale(operator):
    scores = draw(4, 15)
    make = operator or SigmoidRank
    expected = make(temperature_for(scores, operator=operator))(scores)
    for scale in [1e-3, 1e4]:
        found = make(temperature_for(scale * scores, operator=operator))(scale * scores)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("operator", [None, squared, NeuralSort, IsotonicRank])
def test_sharpness_does_not_change_with_the_length(operator):
    make = operator or SigmoidRank
    shares = []
    for n in [30, 300]:
        scores = torch.special.ndtri((torch.arange(n) + 0.5) / n).double()[None]
        ranks = make(temperature_for(scores, sharpness=4, operator=operator))(scores)
        shares.append((ranks - hard_ranks(scores)).abs().mean().item() / n)
    assert shares[0] == pytest.approx(shares[1], rel=0.1)


@pytest.mark.parametrize("operator", [squared, NeuralSort, IsotonicRank])
def test_operators_of_other_units_get_the_blur_of_sigmoid_ranks(operator):
    scores, mask = draw(4, 15), torch.arange(15) < torch.tensor([[15], [9], [15], [4]])
    hard = hard_ranks(scores, mask)
    wanted = (SigmoidRank(temperature_for(scores, mask))(scores, mask) - hard).abs().sum()
    temperature = temperature_for(scores, mask, operator=operator)
    found = (operator(temperature)(scores, mask) - hard).abs().sum()
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "scores", [torch.ones(2, 5), torch.zeros(3, 1), torch.tensor([0.0, torch.nan])]
)
def test_scores_without_a_spread_are_refused(scores):
    with pytest.raises(ValueError, match="scores must"):
        temperature_for(scores)


def test_sharpness_must_be_positive():
    with pytest.raises(ValueError, match=r"sharpness.*0"):
        temperature_for(draw(5), sharpness=0)


@pytest.mark.parametrize("operator", [SigmoidRank(), "SigmoidRank"], ids=repr)
def test_an_operator_is_made_from_its_temperature(operator):
    with pytest.raises(ValueError, match="operator must"):
        temperature_for(draw(5), operator=operator)
