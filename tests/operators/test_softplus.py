"""Softplus ranks: the bounds that make them useful. `test_counted_ranks.py` has their values."""

import itertools
import math

import pytest
import torch
from operator_table import draw

from ltr.kernels import use
from ltr.operators import HardRank, SoftplusRank, Standardized, hard_ranks, temperature_for


@pytest.mark.parametrize("temperature", [1e-3, 0.1, 1.0, 100.0])
def test_they_bound_the_hard_ranks_of_every_order_of_ties(temperature):
    scores = (2 * draw(50, 5)).round() / 2
    bounds = SoftplusRank(temperature)(scores)
    for order in itertools.permutations(range(5)):
        ranks = hard_ranks(scores[:, order])
        assert (bounds[:, order] >= ranks - 1e-9).all()


def test_tied_items_have_the_last_rank_of_their_tie():
    torch.testing.assert_close(SoftplusRank()(torch.zeros(4)), torch.full((4,), 4.0))


def test_high_temperatures_give_the_number_of_items():
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    ranks = SoftplusRank(1e9)(draw(2, 6), mask)
    expected = torch.tensor([[6.0] * 6, [4.0] * 4 + [5.0] * 2], dtype=torch.float64)
    torch.testing.assert_close(ranks, expected, rtol=0, atol=1e-6)


def test_the_gradient_of_an_item_far_too_low_does_not_vanish():
    scores = torch.tensor([1000.0, 999.0, 0.0], requires_grad=True)
    SoftplusRank()(scores)[2].backward()
    torch.testing.assert_close(scores.grad, torch.tensor([1.0, 1.0, -2.0]) / math.log(2))


def test_ranks_are_in_the_order_of_the_scores():
    scores = draw(20, 9)
    assert torch.equal(HardRank()(-SoftplusRank(0.2)(scores)), HardRank()(scores))


def test_a_weight_counts_like_copies():
    # 7 copies against weights that sum to 4: ranks scale by 4 / 7
    scores, copies = draw(4), torch.tensor([2, 1, 3, 1])
    ranks = SoftplusRank(0.7)(scores.repeat_interleave(copies))
    mean = torch.stack([part.mean() for part in ranks.split(copies.tolist())])
    for form in ("dense", "sums"):
        with use(form):
            weighted = SoftplusRank(0.7)(scores, None, copies.double())
        torch.testing.assert_close(weighted, mean * 4 / 7)


def test_standardized_scores_bound_the_hard_ranks_too():
    scores = draw(3, 8)
    operator = Standardized(SoftplusRank())
    assert (operator(scores) >= hard_ranks(scores)).all()
    torch.testing.assert_close(operator(100 * scores + 7), operator(scores))


def test_it_has_no_hard_limit():
    for temperature in (0, 0.0, -1.0, 1e-300, torch.nan, torch.inf):
        with pytest.raises(ValueError, match=f"temperature must be >= 1e-30, got {temperature}"):
            SoftplusRank(temperature)
    for temperature in ("warm", None, True, torch.tensor(0.1)):
        with pytest.raises(ValueError, match="temperature must be a number >= 1e-30, got"):
            SoftplusRank(temperature)


def test_the_ends_of_the_temperature():
    x = torch.tensor([[0.3, 0.7, 0.5, 0.5], [1e4, 0, -1e4, 0]], requires_grad=True)
    for temperature, form in itertools.product((1e-30, 1e300), ("dense", "sums")):
        with use(form):
            ranks = SoftplusRank(temperature)(x)
        (gradient,) = torch.autograd.grad((ranks * torch.arange(4)).sum(), x)
        assert ranks.isfinite().all()
        assert gradient.isfinite().all()


def test_no_temperature_blurs_as_little_as_asked():
    with pytest.raises(ValueError, match=r"operator must have ranks that tend to the hard ranks"):
        temperature_for(draw(20), operator=SoftplusRank)
