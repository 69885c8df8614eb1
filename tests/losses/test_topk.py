"""Top-k classification losses compared with their formulas and the hard error."""

import math

import pytest
import torch
from sklearn.metrics import top_k_accuracy_score

from ltr.losses import TopKCrossEntropy, TopKLoss
from ltr.operators import (
    HardRank,
    NeuralSort,
    SigmoidRank,
    SinkhornSort,
    SoftSort,
    SortingNetwork,
    Stochastic,
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
    assert TopKLoss(operator, k, "cutoff")(scores, one_hot).item() == pytest.approx(error)
    rank = (scores > scores.gather(1, label[:, None])).sum(1) + 1.0
    found = TopKLoss(operator, k)(scores, one_hot)
    torch.testing.assert_close(found, (rank - k).relu().mean().double())


@pytest.mark.parametrize("operator", [SigmoidRank(0.3), SinkhornSort(0.01)], ids=repr)
def test_the_papers_j_of_the_ascending_rank(operator):
    scores, label, one_hot = draw(10)
    found = TopKLoss(operator, 2, reduction="none")(scores, one_hot)
    ascending = operator(-scores).gather(1, label[:, None]).squeeze(1)  # rank n for the largest
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
    found = TopKCrossEntropy(operator, None, distribution, reduction="none")(scores, one_hot)
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
@pytest.mark.parametrize("loss", [TopKCrossEntropy(), TopKCrossEntropy(SoftSort(1.0), 1)])
def test_a_label_far_behind_has_a_gradient_and_no_inf(loss, gap):
    scores = torch.tensor([gap, 0.0, -1.0, -2, -3, -4, -5], requires_grad=True)
    found = loss(scores, torch.tensor([0.0, 0, 0, 0, 0, 0, 1]))
    found.backward()
    assert found.isfinite()
    assert scores.grad[-1] < -1e-3


def test_an_exact_zero_is_finite():
    operator = SortingNetwork(distribution="optimal", temperature=1e-6)
    scores = torch.tensor([3.0, 2.0, 1.0], requires_grad=True)
    found = TopKCrossEntropy(operator, 1)(scores, torch.tensor([0.0, 0.0, 1.0]))
    found.backward()
    assert 10 < found < 100
    assert scores.grad.isfinite().all()


BOTH = pytest.mark.parametrize("loss", [TopKLoss, TopKCrossEntropy])


@BOTH
@pytest.mark.parametrize("k", [1, 3])
def test_top_k_is_a_distribution_of_one_k(loss, k):
    scores, _, one_hot = draw()
    found = loss(SoftSort(0.5), k)(scores, one_hot)
    expected = loss(SoftSort(0.5), distribution=[0.0] * (k - 1) + [1.0])(scores, one_hot)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("step", ["linear", "cutoff"])
def test_a_distribution_is_the_mean_of_the_losses_of_each_k(step):
    scores, _, one_hot = draw()
    found = TopKLoss(SoftSort(0.5), step=step, distribution=[0.2, 0.0, 0.8])(scores, one_hot)
    first, third = (TopKLoss(SoftSort(0.5), k, step)(scores, one_hot) for k in (1, 3))
    torch.testing.assert_close(found, 0.2 * first + 0.8 * third)


def test_one_draw_of_noise_serves_each_k():
    scores, _, one_hot = draw()
    loss = TopKLoss(Stochastic(SoftSort(0.5), samples=3), step="cutoff", distribution=[0.5, 0.5])
    torch.manual_seed(1)
    found = loss(scores, one_hot)
    each = []
    for k in (1, 2):
        torch.manual_seed(1)
        each.append(TopKLoss(loss.operator, k, "cutoff")(scores, one_hot))
    torch.testing.assert_close(found, (each[0] + each[1]) / 2)


@BOTH
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_class_indices_are_labels(loss, dtype):
    scores, label, one_hot = draw()
    torch.testing.assert_close(loss()(scores, label.to(dtype)), loss()(scores, one_hot))
    assert loss()(scores[0], label[0]) == loss()(scores[0], one_hot[0])
    deep = scores.view(4, 10, 7).requires_grad_()
    found = loss(reduction="none")(deep, label.view(4, 10).to(dtype))
    expected = loss(reduction="none")(scores, one_hot)
    torch.testing.assert_close(found, expected.view(4, 10))
    found.sum().backward()
    assert deep.grad.abs().sum() > 0


@BOTH
def test_class_indices_with_mask_weights_vmap_and_compile(loss):
    scores, label, one_hot = draw()
    mask = torch.ones_like(scores, dtype=torch.bool)
    mask[::3, 2:4] = False
    weights = torch.rand(40, 7, dtype=torch.float64)
    found, expected = (loss()(scores, y, mask, weights) for y in (label, one_hot))
    torch.testing.assert_close(found, expected)
    each = torch.func.vmap(loss())(scores, label)
    torch.testing.assert_close(each, loss(reduction="none")(scores, label))
    torch.compiler.reset()
    compiled = torch.compile(loss(), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(scores, label), loss()(scores, label))


@BOTH
@pytest.mark.parametrize("wrong", [-1, 7, -100])
def test_class_indices_out_of_range(loss, wrong):
    scores, label, _ = draw()
    label[3] = wrong
    with pytest.raises(ValueError, match=f"labels.*{wrong}"):
        loss()(scores, label)
    with pytest.raises(ValueError, match=r"labels must"):
        loss()(scores, label.double())


@BOTH
def test_bad_cuts(loss):
    with pytest.raises(ValueError, match=r"top_k.*2 and \[1\.0\]"):
        loss(top_k=2, distribution=[1.0])
    with pytest.raises(ValueError, match=r"top_k.*1\.5"):
        loss(top_k=1.5)
    for wrong in [[0.5, 0.4], [1.5, -0.5], []]:
        with pytest.raises(ValueError, match="distribution must"):
            loss(distribution=wrong)


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"step.*'hinge'"):
        TopKLoss(step="hinge")
    with pytest.raises(ValueError, match=r"top_k.*0"):
        TopKLoss(top_k=0)
    with pytest.raises(ValueError, match="TopKCrossEntropy needs a permutation"):
        TopKCrossEntropy(SigmoidRank())
