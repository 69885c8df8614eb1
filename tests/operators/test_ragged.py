"""Ragged lists: every operator gives each list the same result as on its own."""

import numpy as np
import pytest
import torch
from operator_table import OPERATORS, SOFT_OPERATORS, TAKES_WEIGHTS, draw, every

from ltr.operators import truncated

LENGTHS = torch.tensor([3, 0, 7, 1, 4])
SCORES = draw(15).round(decimals=1)  # with ties


def alone(operator, scores=SCORES):
    parts = scores.split(LENGTHS.tolist())
    return torch.cat([operator(part) for part in parts if len(part)])


@every
def test_ranks_of_each_list(operator):
    torch.testing.assert_close(operator.ragged(SCORES, LENGTHS), alone(operator))
    nothing = operator.ragged(SCORES[:0], LENGTHS[:0])
    assert nothing.shape == (0,)


@every
def test_discounts_of_each_list(operator):
    discount = truncated(lambda ranks: 1 / (1 + ranks), 3, exact=operator.exact_cutoff)
    found = operator.ragged_discounts(discount, SCORES, LENGTHS)
    expected = alone(lambda scores: operator.discounts(discount, scores))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", SOFT_OPERATORS)
def test_gradients_of_each_list(name):
    operator, scores, weights = SOFT_OPERATORS[name], draw(15).requires_grad_(), draw(15, seed=1)
    both = [operator.ragged(scores, LENGTHS), alone(operator, scores)]
    found, expected = (torch.autograd.grad((y * weights).sum(), scores)[0] for y in both)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", OPERATORS)
def test_weights_of_each_list(name):
    operator, weights = OPERATORS[name], draw(15, seed=2).exp()
    if name not in TAKES_WEIGHTS:
        with pytest.raises(ValueError, match="weights must"):
            operator.ragged(SCORES, LENGTHS, weights)
        return
    lists = zip(SCORES.split(LENGTHS.tolist()), weights.split(LENGTHS.tolist()), strict=True)
    expected = torch.cat([operator(s, None, w) for s, w in lists if len(s)])
    torch.testing.assert_close(operator.ragged(SCORES, LENGTHS, weights), expected)


@every
def test_lengths_that_do_not_fit(operator):
    with pytest.raises(ValueError, match=r"lengths.*14"):
        operator.ragged(SCORES, torch.tensor([14]))


@every
@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda x: torch.tensor(x).int()])
def test_lengths_of_any_kind(operator, kind):
    lengths = kind(LENGTHS.tolist())
    torch.testing.assert_close(operator.ragged(SCORES, lengths), operator.ragged(SCORES, LENGTHS))
    found = operator.ragged_discounts(torch.reciprocal, SCORES, lengths)
    torch.testing.assert_close(found, operator.ragged_discounts(torch.reciprocal, SCORES, LENGTHS))
    assert operator.ragged(SCORES[:0], kind([])).shape == (0,)


@every
def test_nested_scores_raise_a_clear_error(operator):
    nested = torch.nested.nested_tensor([SCORES[:3], SCORES[3:]], layout=torch.jagged)
    with pytest.raises(ValueError, match=r"scores.*scores\.values\(\)"):
        operator(nested)
    with pytest.raises(ValueError, match=r"scores.*scores\.values\(\)"):
        operator.ragged(nested, [3, 12])
