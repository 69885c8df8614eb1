"""SoftRank's expected discounts, against the distribution of ranks and against free sums."""

import pytest
import torch
from operator_table import draw
from torch.func import grad, vmap

from ltr.gains import inverse_log2, log2_discount
from ltr.losses import SoftNDCG
from ltr.operators import SoftRank, truncated

distributions = pytest.mark.parametrize("distribution", ["paper", "exact"])
DISCOUNTS = {
    "log2": log2_discount,
    "inverse log2": inverse_log2,
    "natural": lambda r: 3 / torch.log(1 + r),
    "reciprocal": lambda r: 1 / r,
    "linear": lambda r: 1 - r / 40,
    "rank": lambda r: -r,
    "geometric": lambda r: 0.85**r,
    "constant": torch.ones_like,
    "zero": torch.zeros_like,
}
STEP = lambda r: (r <= 10).to(r.dtype)  # noqa: E731
LISTS = {
    "normal": draw(30),
    "tied": torch.zeros(30).double(),
    "rounded": draw(30).round(),
    "far": 1e4 * draw(30),
    "crowd": torch.cat([torch.tensor([3.0]), torch.zeros(29)]).double(),
    "offset": 1e6 + draw(30),
}


def by_recursion(discount, scores, mask=None, *, temperature, distribution="paper"):
    found = SoftRank(temperature, distribution).rank_distribution(scores, mask)
    return (found * discount(torch.arange(1.0, scores.shape[-1] + 1).double())).sum(-1)


def with_derivatives(function, scores):
    x, g, t = scores.clone().requires_grad_(), draw(*scores.shape, seed=7), draw(30, seed=8)
    y = function(x)
    (first,) = torch.autograd.grad((y * g).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad((first * t).sum(), x)
    return y.detach(), first.detach(), second


@pytest.mark.parametrize("scores", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize(
    ("distribution", "temperature"),
    [("paper", 0.05), ("paper", 0.7), ("paper", 20.0), ("exact", 0.7)],
)
def test_the_recursion(distribution, scores, temperature):
    operator = SoftRank(temperature, distribution)
    found = with_derivatives(lambda x: operator.discounts(log2_discount, x), scores)
    expected = with_derivatives(
        lambda x: by_recursion(
            log2_discount, x, temperature=temperature, distribution=distribution
        ),
        scores,
    )
    unit = 1.0
    for y, z in zip(found, expected, strict=True):  # each derivative is by score / temperature
        assert ((y - z).abs().max() * unit) < 3e-8
        unit *= temperature


@pytest.mark.parametrize("discount", DISCOUNTS.values(), ids=DISCOUNTS)
def test_any_discount_is_that_of_the_recursion(discount):
    scores = draw(40)
    largest = discount(torch.arange(1.0, 41)).abs().max().item()
    for dtype, bound in [(torch.float64, 1e-13), (torch.float32, 2e-6)]:
        found = SoftRank(0.3).discounts(discount, scores.to(dtype))
        expected = by_recursion(discount, scores.to(dtype).double(), temperature=0.3)
        assert found.dtype == dtype
        assert (found - expected).abs().max() <= bound * largest


@distributions
def test_steps_and_cutoffs_use_the_recursion(distribution):
    scores, operator = draw(2, 18), SoftRank(0.3, distribution)
    smooth = truncated(log2_discount, 3, exact=False)
    for discount in (STEP, smooth, truncated(log2_discount, 3, exact=True)):
        torch.testing.assert_close(
            operator.discounts(discount, scores),
            by_recursion(discount, scores, temperature=0.3, distribution=distribution),
            rtol=0,
            atol=1e-12,
        )
    torch.testing.assert_close(
        operator.discounts(lambda r: r <= 10, scores), operator.discounts(STEP, scores)
    )
    whole = truncated(log2_discount, 18, exact=True)  # which cuts nothing
    assert torch.equal(operator.discounts(whole, scores), operator.discounts(log2_discount, scores))


def test_a_discount_that_learns_keeps_its_gradient():
    scores, power = draw(20), torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    SoftRank(0.3).discounts(lambda r: r**-power, scores).sum().backward()
    distribution, ranks = SoftRank(0.3).rank_distribution(scores), torch.arange(1.0, 21).double()
    torch.testing.assert_close(power.grad, -(distribution * ranks**-0.5 * ranks.log()).sum())


def test_exact_discounts_sum_to_those_of_all_ranks():
    for scores in (draw(60), torch.cat([torch.full((1,), 4.0), torch.zeros(59)]).double()):
        total = SoftRank(0.8, "exact").discounts(log2_discount, scores).sum()
        expected = log2_discount(torch.arange(1.0, 61).double()).sum()
        assert abs(total - expected) < 60 * 1e-9


def test_the_constant_and_the_mean_rank():
    # E[1] = 1 and E[rank] is the operator's own soft rank, whatever the length
    scores, operator = draw(70), SoftRank(0.2)
    ones = operator.discounts(torch.ones_like, scores)
    torch.testing.assert_close(ones, torch.ones_like(scores), rtol=0, atol=1e-12)
    ranks = operator.discounts(lambda r: r, scores)
    torch.testing.assert_close(ranks, operator(scores), rtol=0, atol=1e-8)


@distributions
def test_masks_delete_and_nan_stays_in_its_list(distribution):
    operator, mask = SoftRank(0.4, distribution), draw(4, 25, seed=2) < 0.6
    mask[3] = False
    scores = draw(4, 25).where(mask, torch.nan).requires_grad_()
    found = operator.discounts(log2_discount, scores, mask)
    assert (found[~mask] == 0).all()
    (found * draw(4, 25, seed=3)).sum().backward()
    assert (scores.grad[~mask] == 0).all()
    for row in range(3):
        real = scores.detach()[row][mask[row]].requires_grad_()
        expected = by_recursion(log2_discount, real, temperature=0.4, distribution=distribution)
        (expected * draw(4, 25, seed=3)[row][mask[row]]).sum().backward()
        torch.testing.assert_close(found[row][mask[row]], expected, rtol=0, atol=3e-9)
        torch.testing.assert_close(scores.grad[row][mask[row]], real.grad, rtol=0, atol=3e-8)
    broken = scores.detach().where(mask, 0.0)
    broken[1, mask[1].nonzero()[0]] = torch.nan
    again = operator.discounts(log2_discount, broken, mask)
    assert again[1][mask[1]].isnan().all()
    assert torch.equal(again[[0, 2, 3]], found.detach()[[0, 2, 3]])


@distributions
@pytest.mark.parametrize("masked", [False, True])
def test_transforms(distribution, masked):
    operator, mask = SoftRank(0.4, distribution), draw(3, 20, seed=4) < 0.7 if masked else None
    scores, g = draw(3, 20), draw(20, seed=6)

    def discounts(x, mask=mask):
        return operator.discounts(log2_discount, x, mask)

    x = scores.clone().requires_grad_()
    value = discounts(x)
    (whole,) = torch.autograd.grad((value * g).sum(), x, create_graph=True)
    batch = (scores, mask) if masked else (scores,)
    both = vmap(lambda *row: discounts(*row) if masked else discounts(*row, None))(*batch)
    torch.testing.assert_close(both, value.detach())
    each = vmap(grad(lambda *row: (discounts(row[0], *row[1:] or (None,)) * g).sum()))(*batch)
    torch.testing.assert_close(each, whole.detach())
    if not masked or distribution == "exact":
        return  # a trace takes a second, and is of the same code
    torch._dynamo.reset()
    y = torch.compile(discounts, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(y, value)
    torch.testing.assert_close(torch.autograd.grad((y * g).sum(), x)[0], whole.detach())


@distributions
def test_tiles_of_rows_change_nothing(distribution, monkeypatch):
    scores, operator = draw(2, 60), SoftRank(0.3, distribution)
    expected = with_gradient(operator, scores)
    monkeypatch.setattr("ltr.operators.softrank.MOST_ELEMENTS", 0)
    monkeypatch.setattr("ltr.operators.tiles.TILE", 1000)
    torch.testing.assert_close(with_gradient(operator, scores), expected, rtol=0, atol=1e-13)


def with_gradient(operator, scores):
    x = scores.clone().requires_grad_()
    y = operator.discounts(log2_discount, x)
    (y * draw(*scores.shape, seed=3)).sum().backward()
    return y.detach(), x.grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_and_float32(dtype):
    scores = draw(2, 80, dtype=dtype).requires_grad_()
    found = SoftRank(0.3).discounts(log2_discount, scores)
    assert found.dtype == torch.float32
    found.sum().backward()
    assert scores.grad.dtype == dtype
    expected = SoftRank(0.3).discounts(log2_discount, scores.detach().double())
    torch.testing.assert_close(found.detach().double(), expected, rtol=0, atol=2e-6)


def test_long_lists():
    # a crowd of ties far below one item, against a transform of the mean of z^count, which is a
    # product over the other items
    n = 150
    scores = torch.cat([torch.tensor([2.0]), draw(n - 1).round(decimals=1) - 3]).requires_grad_()
    found = SoftRank(0.5).discounts(log2_discount, scores)
    found[:50].sum().backward()
    assert scores.grad.isfinite().all()
    x = scores.detach()
    z = torch.exp(2j * torch.pi * torch.arange(n).double() / n).unsqueeze(-1)
    for i in (0, 1, 17, n - 1):
        others = torch.cat([x[:i], x[i + 1 :]])
        above = torch.special.ndtr((others - x[i]) / (0.5 * 2**0.5)).double()
        chances = torch.fft.fft((1 + (z - 1) * above).prod(-1)).real / n
        expected = (chances * log2_discount(torch.arange(1.0, n + 1).double())).sum()
        assert abs(found[i].item() - expected.item()) < 1e-9
    loss = SoftNDCG(SoftRank(0.5), mean="harmonic")(x.float(), (draw(n, seed=1) > 1).float())
    assert 0 < loss < 1


def test_extreme_temperatures_and_steep_gaps():
    for temperature in (1e-30, 1e-6, 1e6):
        for scores in (draw(40), 1e4 * draw(40), torch.zeros(40).double()):
            x = scores.float().requires_grad_()
            y = SoftRank(temperature).discounts(log2_discount, x)
            assert y.isfinite().all()
            y.sum().backward()
            assert x.grad.isfinite().all()
    cold = SoftRank(1e-9).discounts(log2_discount, draw(40))
    torch.testing.assert_close(
        cold, SoftRank(0).discounts(log2_discount, draw(40)), rtol=0, atol=2e-9
    )


@distributions
def test_the_recursion_in_tiles(distribution, monkeypatch):
    operator, mask = SoftRank(0.3, distribution), draw(2, 19, seed=1) < 0.6
    scores, tangent, g = draw(2, 19), draw(2, 19, seed=2), draw(19, seed=3)
    cut = truncated(log2_discount, 4, exact=True)

    def discounts(x, mask=mask):
        return operator.discounts(cut, x, mask)

    def everything():
        x = scores.clone().requires_grad_()
        y = discounts(x)
        (first,) = torch.autograd.grad((y * g).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((first * tangent).sum(), x)
        each = vmap(grad(lambda x, mask: (discounts(x, mask) * g).sum()))(scores, mask)
        step = operator.discounts(STEP, scores, mask)
        return [y.detach(), first.detach(), second, each, step]

    expected = everything()
    of_all = SoftRank(0.3, distribution).rank_distribution(scores, mask, top_k=4)
    kept = (of_all * log2_discount(torch.arange(1.0, 5).double())).sum(-1)
    torch.testing.assert_close(expected[0], kept)
    monkeypatch.setattr("ltr.operators.softrank.MOST_ELEMENTS", 500)
    torch.testing.assert_close(everything(), expected, rtol=0, atol=1e-13)
