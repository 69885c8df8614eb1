"""The sums over pairs in sort time, compared with the definition over all pairs."""

import pytest
import torch
from pairwise import each, named, split, together

from ltr.gains import log2_discount
from ltr.kernels.choice import computed_by
from ltr.kernels.reference import REFERENCE
from ltr.losses import (
    ARPLoss1,
    ARPLoss2,
    DeltaNDCG,
    DeltaPrecision,
    LabelDifference,
    LambdaLoss,
    LambdaRank,
    PairWeights,
    PairwiseLoss,
    RankNet,
    pair_sums,
)
from ltr.losses.pair_sums import all_pairs
from ltr.losses.pairwise import LogisticCost

WEIGHTS = {
    "one": PairWeights(),
    "one, any": PairWeights(3, "any"),
    "one, both": PairWeights(3, "both"),
    "labels": LabelDifference(),
    "ARP 2": ARPLoss2(),
    "precision": DeltaPrecision(4),
    "NDCG": DeltaNDCG(),
    "NDCG, letor4": DeltaNDCG(discount="letor4", gain="linear"),
    "NDCG@5": DeltaNDCG(5),
    "NDCG@5, any": DeltaNDCG(5, "any"),
    "NDCG@5, both": DeltaNDCG(5, "both"),
}
weighings = each("weights", WEIGHTS)


def draw(*shape, grades=5, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=generator, dtype=dtype).round(decimals=1)  # ties
    labels = torch.randint(0, grades, shape, generator=generator).to(dtype)
    mask = torch.rand(shape, generator=generator) < 0.8
    return scores, labels, mask, torch.rand(shape, generator=generator, dtype=dtype)


@pytest.fixture
def no_blocks(monkeypatch):
    """Make every sum fail that does not take sort time."""
    monkeypatch.setattr(pair_sums._PairSums, "_tile_sums", None)


@together(
    "weights, n, temperature, by_item",
    *split(WEIGHTS, named(1, 2, 40), named(1.0, 0.05), named(False, True)),
)
def test_all_pairs(weights, n, temperature, by_item, no_blocks):
    scores, labels, mask, items = draw(4, 3, n)
    mask[0, 0] = False
    items = items if by_item else None
    loss = LambdaLoss(weights, temperature, normalize=False, reduction="none")
    a, b = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    found = loss(a, labels, mask, items)
    expected, total = all_pairs(LogisticCost(temperature), weights, b, labels, mask, items)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-11)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-9, atol=1e-10)
    mean = LambdaLoss(weights, temperature, reduction="none")(scores, labels, mask, items)
    wanted = expected / torch.where(total > 0, total, 1.0)
    torch.testing.assert_close(mean, wanted, rtol=1e-10, atol=1e-11)


@weighings
def test_padding_changes_nothing(weights, no_blocks):
    scores, labels, _, items = draw(5, 20)
    scores = (
        scores + torch.arange(20) * 1e-3
    )  # without ties, D does not depend on the order of the list
    loss = LambdaLoss(weights, reduction="none")
    scores.requires_grad_()
    plain = loss(scores, labels, weights=items)
    (slopes,) = torch.autograd.grad(plain.sum(), scores)
    order = torch.randperm(33, generator=torch.Generator().manual_seed(1))
    mask, at = (order < 20).expand(5, 33), order.clamp(max=19)
    padded = (torch.where(mask, x.detach()[:, at], torch.nan) for x in (scores, labels, items))
    scores, labels, items = padded
    again = loss(scores.requires_grad_(), labels, mask, items)
    torch.testing.assert_close(again, plain, rtol=1e-12, atol=1e-12)
    (moved,) = torch.autograd.grad(again.sum(), scores)
    expected = torch.where(mask, slopes[:, at], 0.0)
    torch.testing.assert_close(moved, expected, rtol=1e-12, atol=1e-12)


@weighings
def test_float32_is_as_exact_as_its_scores(weights, no_blocks):
    scores, labels, mask, items = draw(8, 300, dtype=torch.float32)
    scores.requires_grad_()
    loss = LambdaLoss(weights, 0.3, reduction="none")(scores, labels, mask, items)
    (slopes,) = torch.autograd.grad(loss.sum(), scores)
    exact = scores.detach().double().requires_grad_()
    total, weight = all_pairs(
        LogisticCost(0.3), weights, exact, labels.double(), mask, items.double()
    )
    expected = total / weight.clamp(min=1e-300)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=0)
    (wanted,) = torch.autograd.grad(expected.sum(), exact)
    assert (slopes - wanted).abs().max() < 1e-6 * wanted.abs().max()


def test_other_cases_take_all_pairs_and_agree(monkeypatch):
    scores, labels, mask, items = draw(4, 40)
    grades = torch.arange(160).double().view(4, 40) / 7
    loss = LambdaRank(reduction="none")
    for given in (scores, grades, mask, items), (scores, labels, mask, items):
        with computed_by(REFERENCE):
            plain = loss(*given)
        torch.testing.assert_close(loss(*given), plain, rtol=1e-10, atol=1e-12)
    spoiled = scores.clone()
    spoiled[0, mask[0].nonzero()[0]] = torch.nan
    one = loss(spoiled, labels, mask, items)
    assert one[0].isnan()
    torch.testing.assert_close(one[1:], loss(scores, labels, mask, items)[1:])


class Steps(LogisticCost):
    """A user's cost that inherits from the logistic cost."""

    def both(self, t, gap, slopes):
        return (t < 0).to(t.dtype), 0 * t


class Doubled(DeltaNDCG):
    """A user's weights that inherit from weights with sums in sort time."""

    def by_item(self, upper, lower):
        return 2 * super().by_item(upper, lower)


class Kept(PairWeights):
    """A user's choice of pairs."""

    def kept(self, i, j):
        return super().kept(i, j) & (j == i + 1)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_logistic_cost_of_a_reversed_pair(temperature):
    cost, t = LogisticCost(temperature), torch.tensor([0.0, 1e-9, 0.3, 40.0, 1e5]).double()
    for slopes in (True, False):
        reversed_pair = cost.reversed(t, t, *cost.both(t, t, slopes))
        torch.testing.assert_close(reversed_pair, cost.both(-t, t, slopes), rtol=1e-12, atol=0)


def test_a_user_s_cost_counts_in_both_orders():
    scores, labels, mask, _ = draw(4, 12)
    found = PairwiseLoss(Steps(), ARPLoss1(), normalize=False)(scores, labels, mask)
    wrong = (scores.unsqueeze(-1) < scores.unsqueeze(-2)) & mask.unsqueeze(-1) & mask.unsqueeze(-2)
    expected = (wrong * labels.unsqueeze(-1)).sum() / 4
    torch.testing.assert_close(found, expected)


def test_what_a_user_overrides_counts():
    scores, labels, mask, _ = draw(4, 12)
    wrong = PairwiseLoss(Steps(), normalize=False)(scores, labels, mask)
    expected = all_pairs(Steps(), PairWeights(), scores, labels, mask)[0].sum() / 4
    torch.testing.assert_close(wrong, expected)
    twice = LambdaLoss(Doubled(), normalize=False)(scores, labels, mask)
    torch.testing.assert_close(twice, 2 * LambdaRank(normalize=False)(scores, labels, mask))
    neighbors = LambdaLoss(Kept(), normalize=False, reduction="none")(scores, labels, mask)
    expected = all_pairs(LogisticCost(), Kept(), scores, labels, mask)[0]
    torch.testing.assert_close(neighbors, expected)
    halves = LambdaRank(gain=lambda y: torch.exp2(y) - 1, normalize=False)
    whole = LambdaRank(discount=lambda r: log2_discount(r), normalize=False)
    for loss in halves, whole:
        expected = LambdaRank(normalize=False)(scores, labels, mask)
        torch.testing.assert_close(loss(scores, labels, mask), expected)


@pytest.mark.parametrize("loss", [RankNet(), LambdaRank()], ids=["RankNet", "LambdaRank"])
def test_no_pair_is_zero_with_a_graph(loss, no_blocks):
    scores = torch.randn(3, 6, requires_grad=True)
    mask = torch.tensor([True, False, True]).unsqueeze(-1).expand(3, 6)
    found = loss(scores, torch.tensor([[1.0], [3.0], [0.0]]).expand(3, 6), mask)
    assert found == 0
    assert (torch.autograd.grad(found, scores)[0] == 0).all()


@pytest.mark.parametrize("loss", [RankNet(), LambdaRank()], ids=["RankNet", "LambdaRank"])
@pytest.mark.parametrize("gap", [25.0, 60.0, 120.0])
def test_a_wrong_pair_far_apart_among_right_ones(loss, gap, no_blocks):
    scores = torch.tensor([0.0, gap, -gap, -gap], requires_grad=True)
    found = loss(scores, torch.tensor([1.0, 0.0, 0.0, 0.0]))
    (slopes,) = torch.autograd.grad(found, scores)
    share = 1 / 3
    if isinstance(loss, LambdaRank):
        d = [log2_discount(torch.tensor(r)).item() for r in (1.0, 2.0, 3.0, 4.0)]
        share = (d[0] - d[1]) / (d[0] - d[1] + d[1] - d[2] + d[1] - d[3])
    assert found.item() == pytest.approx(share * gap, rel=1e-6)
    assert slopes[:2].tolist() == pytest.approx([-share, share], rel=1e-6)


@pytest.mark.parametrize("loss", [RankNet(0.7), LambdaRank(temperature=0.7)], ids=repr)
def test_second_derivatives(loss):
    scores, labels, mask, items = draw(2, 7)
    scores = scores + torch.arange(7) * 1e-2  # without ties, the ranks are constants
    scores.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda s: loss(s, labels, mask, items), scores)


@pytest.mark.parametrize("loss", [RankNet(), LambdaRank()], ids=["RankNet", "LambdaRank"])
def test_transforms(loss):
    scores, labels, _, _ = draw(5, 9)
    each = torch.func.vmap(torch.func.grad(loss))(scores, labels)
    whole = scores.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(whole, labels), whole)
    torch.testing.assert_close(each / 5, expected)
