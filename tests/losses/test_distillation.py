"""Distillation compared with torch's divergence."""

import math

import pytest
import torch

from ltr.losses import Distillation


def draw(*shape: int):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3)]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_it_equals_torchs_kl_div(temperature):
    scores, teacher, _ = draw(5, 7)
    expected = torch.nn.functional.kl_div(
        (scores / temperature).log_softmax(-1),
        (teacher / temperature).log_softmax(-1),
        reduction="batchmean",
        log_target=True,
    )
    found = Distillation(temperature)(scores, teacher)
    torch.testing.assert_close(found, temperature**2 * expected)


def test_a_weight_counts_like_copies():
    scores, teacher, _ = draw(4)
    counts = torch.tensor([3, 1, 0, 2])
    copies = [x.repeat_interleave(counts) for x in (scores, teacher)]
    found = Distillation()(scores, teacher, weights=counts)
    torch.testing.assert_close(found, Distillation()(*copies))


def test_a_large_temperature_gives_half_the_variance_of_the_differences():
    scores, teacher, _ = draw(6)
    expected = (scores - teacher).var(unbiased=False) / 2
    assert Distillation(1e4)(scores, teacher).item() == pytest.approx(expected.item(), rel=1e-3)


@pytest.mark.parametrize("gap", [25.0, 90.0, 120.0])
def test_a_wrong_item_far_ahead_has_a_gradient_and_no_inf(gap):
    scores = torch.tensor([gap, 0.0], requires_grad=True)
    found = Distillation()(scores, torch.tensor([0.0, gap]))
    found.backward()
    assert found.item() == pytest.approx(gap, rel=1e-3)
    assert scores.grad.tolist() == pytest.approx([1, -1], abs=1e-3)


def test_the_teachers_scores_up_to_a_constant_cost_nothing():
    _, teacher, _ = draw(3, 5)
    scores = (teacher + torch.tensor([[1.0], [-2.0], [5.0]])).requires_grad_()
    found = Distillation()(scores, teacher)
    found.backward()
    assert found.item() == pytest.approx(0, abs=1e-12)
    assert scores.grad.abs().max() < 1e-12


def test_one_item_and_weights_of_0_count_0():
    scores = torch.randn(2, 1, requires_grad=True)
    assert Distillation()(scores, torch.randn(2, 1)) == 0
    found = Distillation()(scores, torch.randn(2, 1), weights=torch.zeros(2, 1))
    found.backward()
    assert found == 0


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"temperature.*0"):
        Distillation(0)


def test_labels_of_any_size_keep_their_ties():
    labels = torch.tensor([1e30, 1e30, 0.0, 5e29])  # the softmax is 1/2, 1/2, 0, 0
    assert Distillation()(torch.zeros(4), labels).item() == pytest.approx(math.log(2))
    assert Distillation()(labels, labels) == 0
