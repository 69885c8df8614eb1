"""Options of other libraries, compared with those libraries' formulas."""

from math import exp, log

import pytest
import torch

from ltr.losses import PairwiseDCGHinge, PairwiseHinge, SoftmaxLoss, UniqueSoftmax


def draw(*shape: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, shape, generator=generator).double()
    return scores, labels, torch.rand(shape, generator=generator, dtype=torch.float64) + 0.1


def rax_softmax(scores, labels, weights):
    """Return the loss of rax and TF-Ranking: cross-entropy with labels times weights."""
    total = sum(exp(s) for s in scores)
    each = zip(scores, labels, weights, strict=True)
    return -sum(w * y * (s - log(total)) for s, y, w in each)


def unique_softmax(scores, labels, weights, gain):
    """Return the loss of rax and TF-Ranking, by default with 2^y - 1: a sum over the items."""
    value = 0.0
    for s, y, w in zip(scores, labels, weights, strict=True):
        rivals = sum(exp(other) for other, z in zip(scores, labels, strict=True) if z < y)
        value -= w * gain(y) * log(exp(s) / (exp(s) + rivals))
    return value


def pytorchltr_dcg_hinge(scores, labels):
    """Return -1 / ln(2 + the sum of hinges over pairs)."""
    pairs = [
        (s, t)
        for s, y in zip(scores, labels, strict=True)
        for t, z in zip(scores, labels, strict=True)
        if y > z
    ]
    return -1 / log(2 + sum(max(0.0, 1 - (s - t)) for s, t in pairs))


def test_softmax_loss_with_unnormalized_labels_is_rax_s_less_its_least_value():
    scores, labels, weights = draw(10, 6)
    scores.requires_grad_()
    found = SoftmaxLoss(normalize=False, reduction="none")(scores, labels, None, weights)
    peer = SoftmaxLoss(normalize=False)  # it has the peer's gradient, and differs by a constant
    for s, y, w, value in zip(scores, labels, weights, found, strict=True):
        best = [log(max(a * b, 1e-300)) for a, b in zip(y.tolist(), w.tolist(), strict=True)]
        least = rax_softmax(best, y.tolist(), w.tolist())
        expected = rax_softmax(s.tolist(), y.tolist(), w.tolist()) - least
        assert value.item() == pytest.approx(expected, rel=1e-10)
        (slope,) = torch.autograd.grad(peer(s, y, None, w), s)
        relevance = w * y
        torch.testing.assert_close(slope, relevance.sum() * s.softmax(-1) - relevance)


def test_a_list_with_more_relevance_counts_for_more_without_normalize():
    scores = torch.zeros(2, 3)
    labels = torch.tensor([[1.0, 0.0, 0.0], [3.0, 0.0, 0.0]])
    found = SoftmaxLoss(normalize=False, reduction="none")(scores, labels)
    assert found.tolist() == pytest.approx([log(3), 3 * log(3)])


@pytest.mark.parametrize(
    ("gain", "function"), [("linear", lambda y: y), ("exp2", lambda y: 2**y - 1)]
)
def test_unique_softmax_as_a_sum_is_rax_s_and_tf_ranking_s(gain, function):
    scores, labels, weights = draw(10, 6)
    mask = torch.rand(10, 6, generator=torch.Generator().manual_seed(3)) < 0.8
    loss = UniqueSoftmax(gain, normalize=False, reduction="none")
    found = loss(scores, labels, mask, weights)
    for s, y, w, m, value in zip(scores, labels, weights, mask, found, strict=True):
        real = [x[m].tolist() for x in (s, y, w)]
        assert value.item() == pytest.approx(unique_softmax(*real, function), rel=1e-10)


def test_unique_softmax_by_default_is_that_sum_over_the_gains():
    scores, labels, weights = draw(10, 6)
    total = UniqueSoftmax("linear", normalize=False, reduction="none")
    mean = UniqueSoftmax("linear", reduction="none")
    gains = (labels * weights).sum(-1)
    torch.testing.assert_close(
        mean(scores, labels, None, weights) * gains, total(scores, labels, None, weights)
    )


def test_the_dcg_hinge_is_pytorchltr_s_scaled_to_fall_to_0():
    scores, labels, _ = draw(10, 6)
    found = PairwiseDCGHinge(reduction="none")(scores, labels)
    for s, y, value in zip(scores.tolist(), labels.tolist(), found.tolist(), strict=True):
        assert value == pytest.approx(1 + log(2) * pytorchltr_dcg_hinge(s, y), abs=1e-12)


def test_the_dcg_hinge_bounds_the_dcg_of_one_relevant_item():
    for seed in range(20):
        scores, _, _ = draw(7, seed=seed)
        labels = torch.zeros(7)
        labels[2] = 1
        rank = 1 + (scores > scores[2]).sum()
        dcg = 1 / torch.log2(1 + rank)
        assert PairwiseDCGHinge()(2 * scores, labels) >= 1 - dcg


def test_the_dcg_hinge_counts_a_list_less_the_more_of_it_is_wrong():
    labels = torch.tensor([1.0, 0.0, 0.0])
    slopes = []
    for gap in (0.0, 10.0, 100.0):
        scores = torch.tensor([0.0, gap, gap], requires_grad=True)
        PairwiseDCGHinge()(scores, labels).backward()
        slopes.append(-scores.grad[0].item())
    assert slopes[0] > slopes[1] > slopes[2] > 0
    weights = torch.tensor([3.0, 9.0, 9.0])  # the weight of the relevant item counts
    hinges = 3 * 2 * PairwiseHinge()(torch.zeros(3), labels).item()
    found = PairwiseDCGHinge()(torch.zeros(3), labels, None, weights).item()
    assert found == pytest.approx(1 - 1 / (log(2 + hinges) / log(2)))


def test_bad_arguments():
    for loss in (SoftmaxLoss, UniqueSoftmax):
        with pytest.raises(ValueError, match=r"normalize.*'sum'"):
            loss(normalize="sum")
    with pytest.raises(ValueError, match=r"margin.*0"):
        PairwiseDCGHinge(margin=0)
