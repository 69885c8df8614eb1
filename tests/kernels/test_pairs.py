"""Sums over graded pairs against every pair written out in float64."""

import math

import pytest
import torch
from pairwise import named, split, together

from ltr.kernels.choice import computed_by
from ltr.kernels.cpu import CPU
from ltr.kernels.pairs import MOST_GRADES, GradedWeights, graded_item_costs, graded_pair_sums
from ltr.kernels.reference import REFERENCE

both = pytest.mark.parametrize("implementation", [REFERENCE, CPU], ids=["torch", "numba"])
GRADES = [0.0, 1.0, 2.0, 4.0]


def draw(*shape, seed=0, decimals=1):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64).round(decimals=decimals)
    labels = torch.tensor(GRADES, dtype=torch.float64)
    labels = labels[torch.randint(0, len(GRADES), shape, generator=generator)]
    mask = torch.rand(shape, generator=generator) < 0.8
    weights = torch.rand(shape, generator=generator, dtype=torch.float64)
    return scores, labels, mask, weights


def costs_of(scores, temperature):
    x = (scores.unsqueeze(-2) - scores.unsqueeze(-1)).double() / temperature  # [i, j]: s_j - s_i
    return torch.logaddexp(torch.zeros_like(x), x)


def dense_pairs(scores, labels, mask, weights, kind, temperature):
    """Sum of weighted costs, of weights: (B,) each, from the definition in `GradedWeights`."""
    B, n = scores.shape
    order = torch.where(mask, scores, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter(-1, order, torch.arange(n).expand(B, n))
    w = (labels.unsqueeze(-1) > labels.unsqueeze(-2)) & mask.unsqueeze(-1) & mask.unsqueeze(-2)
    w = w * weights.unsqueeze(-1)
    if kind.gains is not None:
        w = w * (kind.gains.unsqueeze(-1) - kind.gains.unsqueeze(-2)).abs()
    if kind.discounts is not None:
        discounts = kind.discounts[rank]
        w = w * (discounts.unsqueeze(-1) - discounts.unsqueeze(-2)).abs()
    if kind.ideal is not None:
        best = torch.where(mask, kind.gains, 0.0).sort(-1, descending=True).values
        w = w / (best * kind.ideal).sum(-1).clamp(min=1e-300)[:, None, None]
    upper, lower = (
        torch.minimum(rank[:, :, None], rank[:, None]),
        rank[:, :, None].maximum(rank[:, None]),
    )
    w = w * (upper < (n if kind.upper is None else kind.upper))
    w = w * (lower < (n if kind.last is None else kind.last))
    return (w * costs_of(scores, temperature)).sum((-1, -2)), w.sum((-1, -2))


def test_a_tied_pair_has_half_the_slope():
    scores, labels = torch.zeros(3).double(), torch.tensor([1.0, 0.0, 1.0]).double()
    _, _, slopes = graded_pair_sums(scores, labels)
    torch.testing.assert_close(slopes, torch.tensor([-0.5, 1.0, -0.5], dtype=torch.float64))


RANKED = 1 / torch.log2(torch.arange(2, 72).double())
KINDS = {
    "one": lambda labels: GradedWeights(),
    "gains": lambda labels: GradedWeights(labels.square()),
    "discounts": lambda labels: GradedWeights(None, RANKED[: labels.shape[-1]]),
    "both": lambda labels: GradedWeights(labels.square(), RANKED[: labels.shape[-1]]),
    "ideal": lambda labels: GradedWeights(labels, *(RANKED[: labels.shape[-1]],) * 2),
    "upper": lambda labels: GradedWeights(labels, RANKED[: labels.shape[-1]], upper=4),
    "last": lambda labels: GradedWeights(labels, RANKED[: labels.shape[-1]], last=5),
}


@together("n, kind, weighted", *split(named(1, 2, 9, 70), named(*KINDS), named(False, True)))
def test_pairs_against_all_pairs(n, kind, weighted):
    scores, labels, mask, weights = draw(40, n)
    mask[0] = False
    weights = weights if weighted else torch.ones_like(weights)
    weigh = KINDS[kind](labels)
    found = graded_pair_sums(
        torch.where(mask, scores, torch.nan),
        torch.where(mask, labels, torch.nan),
        mask,
        torch.where(mask, weights, torch.nan) if weighted else None,
        weigh,
        0.7,
    )
    assert found is not None
    scores.requires_grad_()
    total, weight = dense_pairs(scores, labels, mask, weights, weigh, 0.7)
    slopes = torch.autograd.grad(total.sum(), scores)[0]
    torch.testing.assert_close(found[0], total.detach(), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(found[1], weight, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[2], slopes, rtol=1e-10, atol=1e-10)


@together("n, grades, temperature", *split(named(1, 2, 9, 70), named(1, 4, 32), named(0.7, 5.0)))
def test_item_costs_against_all_pairs(n, grades, temperature):
    scores, _, mask, _ = draw(40, n)
    labels = torch.randint(0, grades, (40, n), generator=torch.Generator().manual_seed(3)) / 7.0
    labels = labels.double()
    mask[0] = False
    hidden = (torch.where(mask, x, torch.nan) for x in (scores, labels))
    costs, ideal = graded_item_costs(*hidden, mask, temperature)
    lower = (labels.unsqueeze(-1) > labels.unsqueeze(-2)) & mask.unsqueeze(-2) & mask.unsqueeze(-1)
    expected = (lower * costs_of(scores, temperature)).sum(-1)
    torch.testing.assert_close(costs, expected, rtol=1e-11, atol=1e-11)
    for s, y, real, ranks in zip(scores, labels, mask, ideal, strict=True):
        items = sorted(real.nonzero().ravel().tolist(), key=lambda i: (-y[i].item(), -s[i].item()))
        expected = torch.full((n,), len(items) + 1.0, dtype=torch.float64)
        expected[items] = torch.arange(1.0, len(items) + 1, dtype=torch.float64)
        assert torch.equal(ranks, expected)


@pytest.mark.parametrize("gap", [25.0, 60.0, 120.0, 1e4])
def test_item_costs_of_pairs_far_apart(gap):
    scores = torch.tensor([0.0, gap, -gap])
    costs, _ = graded_item_costs(scores, torch.tensor([1.0, 0.0, 0.0]))
    torch.testing.assert_close(costs, torch.tensor([gap, 0.0, 0.0]))
    right, _ = graded_item_costs(-scores, torch.tensor([1.0, 0.0, 2.0]))
    torch.testing.assert_close(right, torch.zeros(3))


def test_the_accuracy_of_float32_scores():
    scores, labels, mask, weights = (x.expand(3, -1) for x in draw(500, decimals=12))
    single = scores.float()
    double = single.double().requires_grad_()
    kind = KINDS["both"](labels)._replace(discounts=1 / torch.arange(2, 502).log2())
    total, _ = dense_pairs(double, labels, mask, weights, kind, 0.1)
    slopes = torch.autograd.grad(total.sum(), double)[0]
    kind = kind._replace(gains=labels.float().square())
    found = graded_pair_sums(single, labels.float(), mask, weights.float(), kind, 0.1)
    torch.testing.assert_close(found[0].double(), total.detach(), rtol=3e-7, atol=0)
    assert (found[2] - slopes).abs().max() < 3e-7 * slopes.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gap", [25.0, 60.0, 120.0, 1e4])
def test_pairs_far_apart(gap, dtype):
    scores = torch.tensor([0.0, gap, 0.0], dtype=dtype)
    labels = torch.tensor([2.0, 1.0, 1.0], dtype=dtype)
    total, weight, slopes = graded_pair_sums(scores, labels)
    assert weight == 2
    torch.testing.assert_close(total, torch.tensor(gap + math.log(2), dtype=dtype))
    torch.testing.assert_close(slopes, torch.tensor([-1.5, 1.0, 0.5], dtype=dtype))


def test_inputs_that_use_all_pairs():
    scores, labels, _, _ = draw(3, 50)
    assert graded_pair_sums(scores, labels) is not None
    with computed_by(REFERENCE):
        assert graded_pair_sums(scores, labels) is None
    assert graded_pair_sums(scores.to("meta"), labels.to("meta")) is None
    grades = (torch.arange(150) % (MOST_GRADES + 1)).double().view(3, 50)
    assert graded_pair_sums(scores, grades.clamp(max=MOST_GRADES - 1)) is not None
    assert graded_pair_sums(scores, grades) is None
    assert graded_item_costs(scores, grades) is None
    assert graded_item_costs(scores.to("meta"), labels.to("meta")) is None
    for x in (torch.nan, torch.inf, -torch.inf):
        spoiled = scores.clone()
        spoiled[1, 3] = x
        assert graded_pair_sums(spoiled, labels) is None
        assert graded_item_costs(spoiled, labels) is None
        spoiled = labels.clone()
        spoiled[1, 3] = x
        assert graded_pair_sums(scores, spoiled) is None


def test_layouts_threads_and_no_items():
    scores, labels, mask, weights = draw(6, 400, 8)
    whole = graded_pair_sums(scores, labels, mask, weights)
    turned = [x.mT.contiguous().mT for x in (scores, labels, mask, weights)]
    for a, b in zip(graded_pair_sums(*turned), whole, strict=True):
        assert torch.equal(a, b)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        for a, b in zip(graded_pair_sums(scores, labels, mask, weights), whole, strict=True):
            assert torch.equal(a, b)
        several = graded_item_costs(scores, labels, mask)
        torch.set_num_threads(1)
        for a, b in zip(several, graded_item_costs(*turned[:3]), strict=True):
            assert torch.equal(a, b)
    finally:
        torch.set_num_threads(threads)
    for shape in [(0,), (2, 0), (0, 5)]:
        total, weight, slopes = graded_pair_sums(torch.zeros(shape), torch.zeros(shape))
        assert total.shape == weight.shape == shape[:-1]
        assert slopes.shape == shape
        assert (total == 0).all()
        costs, ideal = graded_item_costs(torch.zeros(shape), torch.zeros(shape))
        assert costs.shape == ideal.shape == shape
