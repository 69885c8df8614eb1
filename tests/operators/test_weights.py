"""Item weights of the expected ranks: a weight of w is w tied copies."""

import pytest
import torch
from operator_table import BOUNDS, OPERATORS, SOFT_OPERATORS, TAKES_WEIGHTS, over

WEIGHTED = {name: OPERATORS[name] for name in sorted(TAKES_WEIGHTS)}
# The copies of an item are milestones too, so more of them make finer ranks.
MILESTONES = {name for name in WEIGHTED if name.startswith("SinkhornSort")}
every = over(WEIGHTED)
SCORES = torch.tensor([0.3, -1.2, 0.9, 0.1], dtype=torch.float64)
COPIES = torch.tensor([2, 1, 3, 1])


# the bounds count the item itself as 1, not 1/2: test_softplus.py
@over(WEIGHTED, but=MILESTONES | BOUNDS)
def test_a_weight_counts_like_copies(operator):
    # 7 copies against weights that sum to 4: ranks from 1/2 on scale by 4 / 7
    ranks = operator(SCORES.repeat_interleave(COPIES))
    mean = torch.stack([part.mean() for part in ranks.split(COPIES.tolist())])
    weighted = operator(SCORES, None, COPIES.double())
    torch.testing.assert_close(weighted, 0.5 + (mean - 0.5) * 4 / 7)


@every
def test_equal_weights_change_nothing(operator):
    weights = torch.full((4,), 3.0, dtype=torch.float64)
    torch.testing.assert_close(operator(SCORES, None, weights), operator(SCORES))


@every
def test_masked_weights_do_not_count(operator):
    scores = torch.cat([SCORES, SCORES.new_tensor([torch.nan])])
    weights = torch.cat([COPIES.double(), SCORES.new_tensor([torch.nan])])
    mask = torch.tensor([True] * 4 + [False])
    expected = operator(SCORES, None, COPIES.double())
    ranks = operator(scores, mask, weights)
    torch.testing.assert_close(ranks[:4], expected)
    assert ranks[4] == 5


@over({name: made for name, made in WEIGHTED.items() if name in SOFT_OPERATORS})
def test_derivatives(operator):
    scores, weights = SCORES.clone().requires_grad_(), COPIES.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda s, w: operator(s, None, w), (scores, weights))
    assert torch.autograd.gradgradcheck(lambda s, w: operator(s, None, w), (scores, weights))


@every
def test_weights_of_another_shape_are_refused(operator):
    with pytest.raises(ValueError, match=r"weights must"):
        operator(SCORES, None, torch.ones(3))
