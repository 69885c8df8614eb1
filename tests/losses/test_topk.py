"""Top-k classification losses against their formulas and the hard error."""

import math

import pytest
import torch
from sklearn.metrics import top_k_accuracy_score

from ltr.losses import TopKCrossEntropy, TopKLoss, top_k_cross_entropy, top_k_loss
from ltr.operators import (
    HardRank,
    NeuralSort,
    SigmoidRank,
    SinkhornSort,
    SoftSort,
    SortingNetwork,
    StraightThrough,
)


def draw(examples: int = 40, classes: int = 7):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(examples, classes, generator=generator, dtype=torch.float64)
    label = torch.randint(0, classes, (examples,), generator=generator)
    return scores, label, torch.nn.functional.one_hot(label, classes)


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("operator", [HardRank(), SoftSort(0), StraightThrough()], ids=repr)
def test_hard_ranks_make_it_the_error(operator, k):
    scores, label, one_hot = draw()
    error = 1 - top_k_accuracy_score(label, scores, k=k, labels=range(7))
    assert TopKLoss(operator, k, "cut")(scores, one_hot).item() == pytest.approx(error)
    rank = (scores > scores.gather(1, label[:, None])).sum(1) + 1.0
    found = TopKLoss(operator, k)(scores, one_hot)
    torch.testing.assert_close(found, (rank - k).relu().mean().double())


@pytest.mark.parametrize("operator", [SigmoidRank(0.3), SinkhornSort(0.01)], ids=repr)
def test_the_papers_j_of_the_ascending_rank(operator):
    scores, label, one_hot = draw(10)
    found = TopKLoss(operator, 2, reduction="none")(scores, one_hot)
    ascending = operator(-scores).gather(1, label[:, None]).squeeze(1)  # L for the largest
    expected = (7 - ascending - 2 + 1).clamp(min=0)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_weights_and_several_true_classes():
    scores, labels = torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 0.0, 1.0])
    weights = torch.tensor([5.0, 3.0, 5.0, 1.0])
    assert TopKLoss(HardRank())(scores, labels).item() == (1 + 3) / 2
    assert TopKLoss(HardRank())(scores, labels, None, weights).item() == (3 * 1 + 1 * 3) / 4


@pytest.mark.parametrize("operator", [SoftSort(0.4), NeuralSort(), SortingNetwork()], ids=repr)
@pytest.mark.parametrize("distribution", [[1.0], [0.0, 1.0], [0.5, 0, 0, 0, 0.5], [0.1] * 10])
def test_cross_entropy_by_the_papers_formula(operator, distribution):
    scores, label, one_hot = draw(10)
    found = TopKCrossEntropy(operator, distribution, reduction="none")(scores, one_hot)
    P = operator.permutation(scores).dense()
    for i in range(10):
        column = P[i, :, label[i]].tolist()
        chance = sum(p * sum(column[:k]) for k, p in enumerate(distribution, 1))
        assert found[i].item() == pytest.approx(max(-math.log(chance), 0), abs=1e-9)


def test_padding_and_lists_shorter_than_the_distribution():
    scores, _, one_hot = draw(5, 3)
    wide = torch.nn.functional.pad(scores, (0, 6), value=torch.nan)
    mask = torch.arange(9) < 3
    found = TopKCrossEntropy()(wide, torch.nn.functional.pad(one_hot, (0, 6)), mask.expand(5, 9))
    torch.testing.assert_close(found, TopKCrossEntropy()(scores, one_hot), rtol=0, atol=1e-12)


@pytest.mark.parametrize("gap", [25.0, 60.0, 90.0, 120.0])
@pytest.mark.parametrize("loss", [TopKCrossEntropy(), TopKCrossEntropy(SoftSort(1.0), [1.0])])
def test_a_label_far_behind_has_a_gradient_and_no_inf(loss, gap):
    scores = torch.tensor([gap, 0.0, -1.0, -2, -3, -4, -5], requires_grad=True)
    found = loss(scores, torch.tensor([0.0, 0, 0, 0, 0, 0, 1]))
    found.backward()
    assert found.isfinite()
    assert scores.grad[-1] < -1e-3


def test_an_exact_zero_is_finite():
    operator = SortingNetwork(distribution="optimal", temperature=1e-6)
    scores = torch.tensor([3.0, 2.0, 1.0], requires_grad=True)
    found = TopKCrossEntropy(operator, [1.0])(scores, torch.tensor([0.0, 0.0, 1.0]))
    found.backward()
    assert 10 < found < 100
    assert scores.grad.isfinite().all()


def test_functions_equal_classes():
    scores, _, one_hot = draw()
    found = top_k_loss(scores, one_hot, operator=SoftSort(0.2), top_k=2, step="cut")
    torch.testing.assert_close(found, TopKLoss(SoftSort(0.2), 2, "cut")(scores, one_hot))
    found = top_k_cross_entropy(scores, one_hot, distribution=[0.3, 0.7])
    expected = TopKCrossEntropy(distribution=[0.3, 0.7])
    torch.testing.assert_close(found, expected(scores, one_hot))


def test_bad_arguments():
    with pytest.raises(ValueError, match="step must be 'linear' or 'cut', got 'hinge'"):
        TopKLoss(step="hinge")
    with pytest.raises(ValueError, match="top_k must be a whole number >= 1, got 0"):
        TopKLoss(top_k=0)
    for wrong in [[0.5, 0.4], [1.5, -0.5], []]:
        with pytest.raises(ValueError, match="distribution must be >= 0 and sum to 1, got "):
            TopKCrossEntropy(distribution=wrong)
    with pytest.raises(ValueError, match="TopKCrossEntropy needs a permutation"):
        TopKCrossEntropy(SigmoidRank())
