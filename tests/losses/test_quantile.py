"""The quantile loss compared with numpy."""

import numpy as np
import pytest
import torch

from ltr.losses import QuantileLoss
from ltr.operators import NeuralSort, SigmoidRank, SinkhornSort, SoftSort, Stochastic


def draw(*shape: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3))


LEVELS = pytest.mark.parametrize("q", [0.0, 0.25, 0.5, 0.9, 1.0])


@LEVELS
def test_a_hard_permutation_gives_the_value_of_the_item_at_the_quantile(q):
    scores, labels, values = draw(12, 7)
    mask = torch.rand(12, 7, generator=torch.Generator().manual_seed(2)) < 0.8
    loss = QuantileLoss(SoftSort(0), q, reduction="none")
    both = [loss(scores, labels, mask), loss(scores, labels, mask, values=values)]
    for carried, found in zip((labels, values), both, strict=True):
        for s, y, v, m, error in zip(scores, labels, carried, mask, found, strict=True):
            ordered = v[m][s[m].argsort()].numpy()
            chosen = np.interp(q * (len(ordered) - 1), range(len(ordered)), ordered)
            assert error.item() == pytest.approx((chosen - np.quantile(y[m], q)) ** 2, abs=1e-12)


@pytest.mark.parametrize("operator", [SoftSort(0.5), NeuralSort()], ids=repr)
def test_the_median_row_by_the_papers_formulas(operator):
    scores, labels, values = draw(6, 5)
    row = operator.permutation(scores).dense()[:, 2]
    median = labels.median(-1).values  # the median of five
    mean = ((row * values).sum(-1) - median) ** 2
    expected = (row * (values - median.unsqueeze(-1)) ** 2).sum(-1)
    for flag, wanted in [(False, mean), (True, expected)]:
        loss = QuantileLoss(operator, expected=flag, reduction="none")
        torch.testing.assert_close(loss(scores, labels, values=values), wanted)


def test_scores_and_values_both_learn_from_the_median_alone():
    scores, labels, values = (x.requires_grad_() for x in draw(5))
    QuantileLoss(SoftSort(1.0))(scores, labels.detach(), values=values).backward()
    assert (scores.grad != 0).any()
    assert (values.grad != 0).all()
    median = labels.detach().median().expand(5)
    again = QuantileLoss(SoftSort(1.0))(scores, median, values=values)
    torch.testing.assert_close(again, QuantileLoss(SoftSort(1.0))(scores, labels, values=values))


def test_right_scores_at_the_quantile_cost_nothing():
    labels = torch.tensor([3.0, 9.0, 1.0, 7.0, 5.0])
    assert QuantileLoss(SoftSort(0.01))(labels, labels) == 0


def test_weights_multiply_the_list():
    scores, labels, _ = draw(2, 5)
    mask = torch.tensor([[True] * 5, [True, True, True, False, False]])
    weights = torch.tensor([[2.0] * 5, [1.0, 2.0, 6.0, 100.0, 100.0]])
    loss = QuantileLoss(reduction="none")
    expected = loss(scores, labels, mask) * torch.tensor([2.0, 3.0])
    torch.testing.assert_close(loss(scores, labels, mask, weights), expected.double())


def test_samples_are_averaged_after_the_square():
    scores, labels, values = draw(3, 5)
    generator = torch.Generator().manual_seed(0)
    operator = Stochastic(SoftSort(), samples=4, generator=generator)
    found = QuantileLoss(operator)(scores, labels, values=values)
    generator.manual_seed(0)
    noisy, _, _ = operator.transform(scores)
    wide = [x.expand(4, 3, 5) for x in (labels, values)]
    torch.testing.assert_close(found, QuantileLoss()(noisy, wide[0], values=wide[1]))


@pytest.mark.parametrize("expected", [False, True])
def test_values_of_ragged_lists(expected):
    scores, labels, values = draw(9)
    lengths = torch.tensor([4, 0, 5])
    loss = QuantileLoss(expected=expected, reduction="none")
    found = loss(scores, labels, lengths=lengths, values=values)
    parts = [x.split(lengths.tolist()) for x in (scores, labels, values)]
    apart = [loss(s, y, values=v) for s, y, v in zip(*parts, strict=True)]
    torch.testing.assert_close(found, torch.stack(apart), rtol=0, atol=1e-12)


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"q.*1.5"):
        QuantileLoss(q=1.5)
    with pytest.raises(ValueError, match=r"operator must"):
        QuantileLoss(SinkhornSort(milestones=2))(torch.zeros(4), torch.zeros(4))
    with pytest.raises(ValueError, match="QuantileLoss needs a permutation"):
        QuantileLoss(SigmoidRank())
    with pytest.raises(ValueError, match="values must"):
        QuantileLoss()(torch.zeros(4), torch.zeros(4), values=torch.zeros(3))
