"""SoftRank: both rank distributions, by enumeration, by integration and by drawn noise."""

import itertools

import numpy as np
import pytest
import torch
from operator_table import AVERAGES_OVER_RANKS, OPERATORS, draw, over
from pairwise import named, split, together
from scipy.integrate import quad
from scipy.stats import norm

from ltr.gains import log2_discount
from ltr.losses import SoftNDCG
from ltr.operators import GaussianRank, HardRank, SoftRank, truncated

DISTRIBUTIONS = ["paper", "exact"]
averages = over({name: OPERATORS[name] for name in sorted(AVERAGES_OVER_RANKS)})


def enumerated(chances: list[float]) -> np.ndarray:
    """The distribution of the number of independent events that happen, over all their subsets."""
    counts = np.zeros(len(chances) + 1)
    for happens in itertools.product([0, 1], repeat=len(chances)):
        counts[sum(happens)] += np.where(happens, chances, 1 - np.array(chances)).prod()
    return counts


def by_enumeration(scores: list[float], sigma: float) -> np.ndarray:
    """Independent comparisons."""
    return np.array(
        [
            enumerated([norm.cdf((t - s) / (2**0.5 * sigma)) for t in scores[:i] + scores[i + 1 :]])
            for i, s in enumerate(scores)
        ]
    )


def by_integration(scores: list[float], sigma: float) -> np.ndarray:
    """Comparisons that share the item's own noise x, integrated over it."""

    def given(x: float, i: int, r: int) -> float:
        others = scores[:i] + scores[i + 1 :]
        return norm.pdf(x) * enumerated([norm.cdf((t - scores[i]) / sigma - x) for t in others])[r]

    n = len(scores)
    return np.array([[quad(given, -8, 8, args=(i, r))[0] for r in range(n)] for i in range(n)])


@together(
    "scores, sigma",
    *split(
        named([0.4], [0.1, 0.3], [0.1, -0.4, 0.1], [1.0, 0.0, 0.2, 0.9]),
        named(0.1, 0.6, 5.0),
    ),
)
def test_distributions_by_enumeration(scores, sigma):
    x = torch.tensor(scores, dtype=torch.float64)
    paper = SoftRank(sigma).rank_distribution(x)
    np.testing.assert_allclose(paper, by_enumeration(scores, sigma), atol=1e-14)
    if len(scores) < 4 or sigma == 0.6:
        exact = SoftRank(sigma, "exact").rank_distribution(x)
        np.testing.assert_allclose(exact, by_integration(scores, sigma), atol=1e-6)


def test_the_exact_distribution_has_the_nodes_that_float64_needs():
    # two items: P(rank 1) = Phi(gap / (sqrt(2) sigma)); its mean square by the normal distribution
    gap, sigma = 0.3, 0.2
    chance = norm.cdf(gap / (2**0.5 * sigma))
    operator = SoftRank(sigma, distribution="exact")
    found = operator.rank_distribution(torch.tensor([gap, 0.0], dtype=torch.float64))
    assert found[0, 0].item() == pytest.approx(chance, abs=1e-11)
    # in sort time: of n tied items the sum of the expected discounts is the discounts' sum, and all
    # are equal
    x = torch.zeros(40, dtype=torch.float64)
    power = 0.9 ** torch.arange(40, dtype=torch.float64)
    found = operator.discounts(lambda ranks: 0.9 ** (ranks - 1), x)
    torch.testing.assert_close(found, power.mean().expand(40), rtol=1e-10, atol=0)


def test_distributions_by_draws():
    generator = torch.Generator().manual_seed(0)
    scores, sigma, draws = draw(8), 0.7, 100_000
    noisy = scores + sigma * torch.randn(draws, 8, dtype=torch.float64, generator=generator)
    above = noisy.argsort(-1, descending=True).argsort(-1)
    exact = torch.nn.functional.one_hot(above, 8).double().mean(0)
    gaps = (scores - scores[:, None]) / (2**0.5 * sigma)
    noise = torch.randn(draws, 8, 8, generator=generator)  # of each comparison, and each side
    above = ((noise < gaps) & ~torch.eye(8, dtype=torch.bool)).sum(-1)
    paper = torch.nn.functional.one_hot(above, 8).double().mean(0)
    for distribution, drawn in [("exact", exact), ("paper", paper)]:
        found = SoftRank(sigma, distribution).rank_distribution(scores)
        error = (found * (1 - found) / draws).sqrt() + 1e-6
        assert ((found - drawn).abs() < 5 * error).all()
    assert (exact - paper).abs().max() > 0.1  # the two are far apart


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_distributions_are_valid_and_have_the_same_mean(distribution):
    scores, mask = draw(3, 6), torch.tensor([[True] * 6, [True, False] * 3, [False] * 6])
    found = SoftRank(0.5, distribution).rank_distribution(scores, mask)
    assert (found >= 0).all()
    assert (found[~mask] == 0).all()
    assert (found[1, :, 3:] == 0).all()
    torch.testing.assert_close(found.sum(-1), mask.double())
    mean = (found * torch.arange(1.0, 7)).sum(-1)
    expected = GaussianRank(0.5)(scores, mask)
    torch.testing.assert_close(mean[mask], expected[mask], rtol=0, atol=1e-6)
    assert torch.equal(SoftRank(0.5, distribution)(scores, mask), expected)


def test_only_exact_columns_sum_to_one():
    scores = draw(2, 12)
    exact = SoftRank(0.6, "exact").rank_distribution(scores)
    torch.testing.assert_close(exact.sum(-2), torch.ones_like(scores), rtol=0, atol=2e-6)
    total = SoftRank(0.6, "exact").discounts(log2_discount, scores).sum(-1)
    all_ranks = log2_discount(torch.arange(1.0, 13).double()).sum()
    torch.testing.assert_close(total, all_ranks.expand(2), rtol=0, atol=2e-6)
    paper = SoftRank(0.6).rank_distribution(scores)
    assert (paper.sum(-2) - 1).abs().max() > 0.05


def test_a_crowd_far_below_is_integrated_well():
    for gap in [0.0, 1.0, 3.0, 6.0]:
        scores = torch.cat([torch.tensor([gap]), torch.zeros(150)]).double()
        distribution = SoftRank(1.0, "exact").rank_distribution(scores, top_k=3)
        first = quad(lambda x, gap=gap: norm.pdf(x) * norm.cdf(x + gap) ** 150, -9, 9)[0]
        assert distribution[0, 0].item() == pytest.approx(first, abs=3e-6)
        assert distribution[:, 0].sum().item() == pytest.approx(
            1, abs=1e-5
        )  # 151 errors of one sign


@averages
def test_discounts_are_means_and_cuts_are_truncated_recursions(operator):
    scores, mask = draw(2, 6), torch.tensor([[True] * 6, [True, False] * 3])
    distribution = operator.rank_distribution(scores, mask)
    positions = torch.arange(1.0, 7).double()
    expected = (distribution * log2_discount(positions)).sum(-1)
    torch.testing.assert_close(operator.discounts(log2_discount, scores, mask), expected)
    for k in [1, 3, 9]:
        torch.testing.assert_close(
            operator.rank_distribution(scores, mask, k), distribution[..., :k]
        )
        cut = operator.discounts(truncated(log2_discount, k, exact=True), scores, mask)
        torch.testing.assert_close(cut, (distribution * log2_discount(positions))[..., :k].sum(-1))
        members = operator.top_k(k, scores, mask)
        torch.testing.assert_close(members, distribution[..., :k].sum(-1))
        smooth = truncated(log2_discount, k, exact=False)
        torch.testing.assert_close(
            operator.discounts(smooth, scores, mask), (distribution * smooth(positions)).sum(-1)
        )


@averages
def test_derivatives_of_discounts(operator):
    scores = draw(2, 4, seed=5).requires_grad_()
    mask = torch.tensor([[True, True, False, True], [True] * 4])

    def discounts(x):
        return operator.discounts(log2_discount, x, mask)

    assert torch.autograd.gradcheck(discounts, scores)
    assert torch.autograd.gradgradcheck(discounts, scores)
    for hard in [[0.0] * 5, [1e4, 0.0, -1e4, 0.0, 1e4]]:
        x = torch.tensor(hard, dtype=torch.float64, requires_grad=True)
        (operator.discounts(log2_discount, x) * draw(5, seed=3)).sum().backward()
        assert x.grad.isfinite().all()


@averages
def test_a_mask_deletes_from_the_distribution(operator):
    mask = torch.tensor([True, False, True, True, False, True])
    real = draw(4, seed=9).requires_grad_()
    scores = torch.full((6,), torch.nan).double().masked_scatter(mask, real.detach())
    scores.requires_grad_()
    found, expected = (
        operator.discounts(log2_discount, scores, mask)[mask],
        operator.discounts(log2_discount, real),
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    (found * draw(4)).sum().backward()
    (expected * draw(4)).sum().backward()
    torch.testing.assert_close(scores.grad[mask], real.grad, rtol=0, atol=1e-12)
    assert (scores.grad[~mask] == 0).all()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_temperature_0_is_hard(distribution):
    scores = torch.tensor([1.0, 2.0, 1.0, torch.nan])
    mask = torch.tensor([True, True, True, False])
    operator = SoftRank(0, distribution)
    assert operator.rank_distribution(scores, mask).tolist() == [
        [0, 1, 0, 0],
        [1, 0, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 0],
    ]
    assert torch.equal(
        operator.discounts(log2_discount, scores, mask),
        HardRank().discounts(log2_discount, scores, mask),
    )


@averages
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_is_computed_in_float32(operator, dtype):
    scores = draw(2, 5, dtype=dtype)
    discounts = operator.discounts(log2_discount, scores)
    assert discounts.dtype == torch.float32
    expected = operator.discounts(log2_discount, scores.double())
    torch.testing.assert_close(discounts.double(), expected, rtol=0, atol=2e-6)


@averages
def test_nan_stays_in_its_list(operator):
    scores = torch.tensor([[0.0, torch.nan], [1.0, 2.0]])
    broken = operator.discounts(log2_discount, scores).isnan()
    assert broken.tolist() == [[True, True], [False, False]]
    assert operator.discounts(log2_discount, scores[:1, 1:]).isnan().all()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("n", [0, 1])
def test_short_lists(distribution, n):
    found = SoftRank(distribution=distribution).rank_distribution(torch.zeros(3, n))
    assert found.shape == (3, n, n)
    torch.testing.assert_close(found, torch.ones(3, n, n))


def test_soft_ndcg_on_it_is_softrank():
    scores, labels = draw(1, 5), torch.tensor([[2.0, 0.0, 1.0, 0.0, 1.0]]).double()
    distribution = SoftRank(0.3).rank_distribution(scores)
    gains, positions = 2**labels - 1, torch.arange(1.0, 6).double()
    best = gains.sort(descending=True).values
    for k in [None, 2]:
        discount = log2_discount(positions) * (positions <= (k or 5))
        expected = 1 - (gains * (distribution @ discount)).sum() / (best * discount).sum()
        loss = SoftNDCG(SoftRank(0.3), top_k=k, mean="arithmetic")(scores, labels)
        torch.testing.assert_close(loss, expected)


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"distribution.*'true'"):
        SoftRank(0.1, distribution="true")
    with pytest.raises(ValueError, match=r"top_k.*0"):
        SoftRank().rank_distribution(draw(3), top_k=0)
