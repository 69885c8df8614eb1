"""Pairwise losses compared with loops over pairs and scikit-learn, and at extreme gaps."""

import math

import numpy as np
import pytest
import torch
from pairwise import named, split, together
from sklearn.metrics import log_loss

from ltr.losses import (
    LambdaLoss,
    NDCGLoss1,
    NDCGLoss2PP,
    PairCost,
    PairWeights,
    PairwiseExponential,
    PairwiseHinge,
    PairwiseLoss,
    PairwiseMSE,
    PairwiseSoftZeroOne,
    RankNet,
)
from ltr.losses.pair_sums import all_pairs

COSTS = {
    RankNet: lambda t, gap: math.log1p(math.exp(-t)),
    PairwiseHinge: lambda t, gap: max(0.0, 1 - t),
    PairwiseSoftZeroOne: lambda t, gap: 1 / (1 + math.exp(t)),
    PairwiseExponential: lambda t, gap: math.exp(-t),
    PairwiseMSE: lambda t, gap: (t - gap) ** 2,
}


def draw(*shape, grades=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    return scores, torch.randint(0, grades, shape, generator=generator).double()


def by_loops(cost, s, y, u=None):
    total = weight = 0.0
    for i in range(len(s)):
        for j in range(len(s)):
            if y[i] > y[j]:
                w = 1.0 if u is None else u[i]
                total += w * cost(s[i] - s[j], y[i] - y[j])
                weight += w
    return total, weight


@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("weighted", [False, True])
def test_by_loops_over_the_pairs(kind, weighted):
    scores, labels = draw(5, 9)
    mask = torch.rand(5, 9, generator=torch.Generator().manual_seed(1)) < 0.8
    weights = draw(5, 9, seed=2)[0].abs() if weighted else None
    mean = kind(reduction="none")(scores, labels, mask, weights)
    sums = kind(normalize=False, reduction="none")(scores, labels, mask, weights)
    for k in range(5):
        m = mask[k]
        u = None if weights is None else weights[k][m].tolist()
        total, weight = by_loops(COSTS[kind], scores[k][m].tolist(), labels[k][m].tolist(), u)
        assert sums[k].item() == pytest.approx(total, rel=1e-12)
        assert mean[k].item() == pytest.approx(total / weight, rel=1e-12)


@together(
    "kind, n, tile",
    *split(
        {kind.__name__: kind for kind in COSTS},
        named(1, 2, 63, 64, 65, 150),
        named(1, 500, 10**9),
    ),
)
def test_tiles_agree_with_the_plain_definition(kind, n, tile, monkeypatch):
    monkeypatch.setattr("ltr.operators.tiles.TILE", tile)
    scores, labels = draw(3, n)
    mask = torch.rand(3, n, generator=torch.Generator().manual_seed(1)) < 0.8
    loss = kind(normalize=False, reduction="sum")
    a, b = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    found = loss(a, labels, mask)
    expected = all_pairs(loss.cost, loss.pair_weights, b, labels, mask)[0].sum()
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    found.backward()
    expected.backward()
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-10, atol=1e-12)


def test_ranknet_is_scikit_learns_log_loss_over_the_pairs():
    s, y = draw(12)
    better = y[:, None] > y[None]
    chances = torch.sigmoid(s[:, None] - s[None])[better].numpy()
    expected = log_loss(np.ones(len(chances)), np.stack([1 - chances, chances], 1), labels=[0, 1])
    assert RankNet()(s, y).item() == pytest.approx(expected, rel=1e-12)


def test_soft_zero_one_tends_to_kendalls_share_of_wrong_pairs():
    s, y = draw(10, grades=100)
    wrong = ((s[:, None] < s[None]) & (y[:, None] > y[None])).sum().item()
    pairs = (y[:, None] > y[None]).sum().item()
    assert PairwiseSoftZeroOne(1e-6)(s, y).item() == pytest.approx(wrong / pairs, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gap", [25.0, 60.0, 90.0, 120.0, 1e4])
@pytest.mark.parametrize("kind", [RankNet, PairwiseHinge, PairwiseExponential, PairwiseMSE])
def test_a_pair_that_is_very_wrong_has_a_finite_loss_and_a_full_gradient(kind, gap, dtype):
    scores = torch.tensor([0.0, gap], dtype=dtype, requires_grad=True)
    loss = kind()(scores, torch.tensor([1.0, 0.0]))
    loss.backward()
    assert loss.isfinite()
    assert scores.grad.isfinite().all()
    assert scores.grad[0] <= -1 + 1e-10
    assert scores.grad[1] == -scores.grad[0]


def test_ranknet_of_a_wrong_pair_is_its_gap():
    for gap in (25.0, 60.0, 90.0, 120.0):
        loss = RankNet()(torch.tensor([0.0, gap]), torch.tensor([1.0, 0.0]))
        assert loss.item() == pytest.approx(gap)


def test_ranknet_of_a_right_pair_keeps_its_digits():
    for gap in (12.0, 25.0, 40.0):
        scores = torch.tensor([gap, 0.0], requires_grad=True)
        loss = RankNet()(scores, torch.tensor([1.0, 0.0]))
        loss.backward()
        assert loss.item() == pytest.approx(math.exp(-gap), rel=1e-5)
        assert scores.grad[1].item() == pytest.approx(math.exp(-gap), rel=1e-5)


def test_soft_zero_one_nearly_ignores_a_very_wrong_pair():
    scores = torch.tensor([0.0, 120.0], requires_grad=True)
    PairwiseSoftZeroOne()(scores, torch.tensor([1.0, 0.0])).backward()
    assert scores.grad.abs().max() < 1e-30


def test_the_exponential_continues_as_its_tangent():
    loss = PairwiseExponential(limit=2.0)
    labels = torch.tensor([1.0, 0.0], dtype=torch.float64)
    scores = torch.tensor([0.0, 5.0], dtype=torch.float64)
    assert loss(scores, labels).item() == pytest.approx(math.exp(2) * (1 + 3))


@pytest.mark.parametrize("limit", [20.0, 60.0])
@pytest.mark.parametrize("gap", [1e19, 1e20, 1e30, 3e38])
def test_no_gap_makes_the_exponential_overflow(gap, limit):
    n = 1000
    scores = torch.zeros(n)
    scores[: n // 2] = gap
    scores.requires_grad_()
    labels = (torch.arange(n) >= n // 2).float()
    loss = PairwiseExponential(limit)(scores, labels)
    loss.backward()
    assert loss.isfinite()
    assert scores.grad.isfinite().all()
    assert (scores.grad[n // 2 :] < 0).all()


@pytest.mark.parametrize("kind", COSTS)
def test_equal_labels_make_no_pair(kind):
    scores = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    loss = kind()(scores, torch.full((3, 6), 2.0))
    loss.backward()
    assert loss == 0
    assert (scores.grad == 0).all()
    one = kind()(scores[:, :1], torch.ones(3, 1))
    assert one == 0
    assert one.requires_grad


@pytest.mark.parametrize("kind", COSTS)
def test_float_labels_and_long_lists_of_grades(kind):
    scores, _ = draw(2, 40)
    labels = torch.rand(2, 40, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 50
    each = kind(reduction="none")(scores, labels)
    for k in range(2):
        total, weight = by_loops(COSTS[kind], scores[k].tolist(), labels[k].tolist())
        assert each[k].item() == pytest.approx(total / weight, rel=1e-12)


@pytest.mark.parametrize("kind", COSTS)
def test_the_order_of_the_list_does_not_matter(kind):
    scores, labels = draw(4, 12)
    scores[0] = 1  # all tied
    order = torch.randperm(12, generator=torch.Generator().manual_seed(4))
    a = kind(reduction="none")(scores, labels)
    torch.testing.assert_close(kind(reduction="none")(scores[:, order], labels[:, order]), a)


def test_temperature_divides_the_scores():
    scores, labels = draw(3, 7)
    torch.testing.assert_close(RankNet(0.2)(scores, labels), RankNet()(scores / 0.2, labels))
    a, b = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    RankNet(0.2)(a, labels).backward()
    RankNet()(b / 0.2, labels).backward()
    torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("weights", [None, NDCGLoss1(), NDCGLoss2PP()], ids=repr)
def test_the_backward_holds_no_pairs(weights):
    scores, labels = draw(4, 50)
    loss = PairwiseLoss(pair_weights=weights)
    held = []
    pack = torch.autograd.graph.saved_tensors_hooks(
        lambda x: held.append(x.numel()) or x, lambda x: x
    )
    with pack:
        loss(scores.requires_grad_(), labels)
    assert max(held) <= 4 * 51


def test_second_derivatives_and_transforms():
    scores, labels = draw(6)
    hessian = torch.func.jacrev(torch.func.jacrev(lambda x: RankNet()(x, labels)))(scores)
    expected = torch.autograd.functional.hessian(
        lambda x: all_pairs(RankNet().cost, PairWeights(), x, labels)[0], scores
    )
    pairs = all_pairs(RankNet().cost, PairWeights(), scores, labels)[1]
    torch.testing.assert_close(hessian, expected / pairs)
    many, grades = draw(5, 6)
    per_list = torch.func.vmap(torch.func.grad(RankNet()))(many, grades)
    whole = torch.func.grad(lambda x: RankNet(reduction="sum")(x, grades))(many)
    torch.testing.assert_close(per_list, whole)


def test_a_users_own_cost_and_weights():
    class Absolute(PairCost):
        def forward(self, t, gap):
            return (t - gap).abs()

    class Square(PairWeights):
        def columns(self, labels, mask):
            return (labels.square(),)

        def by_item(self, upper, lower):
            return (upper[0] - lower[0]).abs()

    s, y = torch.tensor([0.0, 1.0, 3.0]), torch.tensor([2.0, 1.0, 0.0])
    pairs = [(0, 1), (0, 2), (1, 2)]
    weight = [(y[i] ** 2 - y[j] ** 2).item() for i, j in pairs]
    cost = [abs((s[i] - s[j] - y[i] + y[j]).item()) for i, j in pairs]
    expected = sum(w * c for w, c in zip(weight, cost, strict=True)) / sum(weight)
    scores = s.clone().requires_grad_()
    loss = PairwiseLoss(Absolute(), Square())(scores, y)
    loss.backward()
    assert loss.item() == pytest.approx(expected)
    assert scores.grad.tolist() == pytest.approx([-7 / 8, 2 / 8, 5 / 8])


def test_a_cost_without_a_gradient_takes_it_from_autograd():
    class Softplus(PairCost):
        def forward(self, t, gap):
            return torch.nn.functional.softplus(-t)

    class ByFormula(Softplus):
        def gradient(self, t, gap):
            return -torch.sigmoid(-t)

    scores, labels = draw(4, 9)
    mask, weights = draw(4, 9, seed=1)[0] > -0.5, draw(4, 9, seed=2)[1]
    scores.requires_grad_()
    found = []
    for cost in (Softplus(), ByFormula()):
        loss = PairwiseLoss(cost, NDCGLoss2PP())(scores, labels, mask, weights)
        (slope,) = torch.autograd.grad(loss, scores, create_graph=True)
        (second,) = torch.autograd.grad(slope.square().sum(), scores)
        found.append((loss, slope, second))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"temperature.*0"):
        RankNet(0)
    with pytest.raises(ValueError, match=r"margin.*-1"):
        PairwiseHinge(-1)
    with pytest.raises(ValueError, match=r"limit.*61"):
        PairwiseExponential(61)
    with pytest.raises(ValueError, match=r"normalize.*'sum'"):
        RankNet(normalize="sum")
    with pytest.raises(ValueError, match=r"cost.*'hinge'"):
        PairwiseLoss("hinge")
    with pytest.raises(ValueError, match=r"pair_weights.*'ndcg'"):
        LambdaLoss("ndcg")
    with pytest.raises(ValueError, match=r"truncation.*'all'"):
        PairWeights(3, "all")
    with pytest.raises(NotImplementedError, match="PairCost must"):
        PairwiseLoss(PairCost())(*draw(3))
