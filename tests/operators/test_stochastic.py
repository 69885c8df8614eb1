"""Plackett-Luce samples: their distribution, their reproducibility, and one draw per call."""

import copy
import itertools
import pickle

import pytest
import torch
from operator_table import draw

from ltr.losses import SoftNDCG
from ltr.operators import (
    HardRank,
    SigmoidRank,
    SoftSort,
    SortingNetwork,
    Stochastic,
    StraightThrough,
    gumbel_noise,
)


def seeded(operator, seed=0, **arguments):
    return Stochastic(operator, generator=torch.Generator().manual_seed(seed), **arguments)


def test_orders_follow_plackett_and_luce():
    scores, scale = torch.tensor([0.5, -0.3, 1.0], dtype=torch.float64), 0.8
    ranks = seeded(HardRank(), samples=200_000, scale=scale)(scores)
    weights = (scores / scale).exp()
    for order in itertools.permutations(range(3)):
        left, expected = weights.sum().item(), 1.0
        for item in order:
            expected *= weights[item].item() / left
            left -= weights[item].item()
        target = torch.empty(3, dtype=torch.float64)
        target[list(order)] = torch.arange(1.0, 4).double()
        found = (ranks == target).all(-1).double().mean().item()
        assert found == pytest.approx(expected, abs=4 * (expected / 200_000) ** 0.5)


def test_mean_ranks_are_those_under_logistic_noise():
    # the difference of two Gumbel numbers is logistic
    scores = draw(6, seed=2)
    ranks = seeded(SortingNetwork(0), samples=100_000, scale=0.5)(scores)
    expected = SigmoidRank(0.5)(scores)
    torch.testing.assert_close(ranks.mean(0), expected, rtol=0, atol=0.02)


def test_noise_is_gumbel():
    generator = torch.Generator().manual_seed(0)
    noise = gumbel_noise(draw(1000), 200, scale=2.0, generator=generator)
    assert noise.mean().item() == pytest.approx(2 * 0.5772, abs=0.02)
    assert noise.std().item() == pytest.approx(2 * torch.pi / 6**0.5, abs=0.02)
    for q in [0.1, 0.5, 0.9]:
        below = (noise <= -2 * torch.log(-torch.log(torch.tensor(q)))).double().mean()
        assert below.item() == pytest.approx(q, abs=0.005)
    assert gumbel_noise(draw(3).half(), 2).dtype == torch.float32
    assert gumbel_noise(draw(3), 2).dtype == torch.float64
    assert gumbel_noise(torch.zeros(100_000), 20, generator=generator).isfinite().all()


def test_eval_mode_is_the_plain_operator():
    scores, mask = draw(2, 5), torch.tensor([[True] * 4 + [False], [True] * 5])
    plain = SoftSort(0.5)
    operator = Stochastic(plain).eval()
    assert torch.equal(operator(scores, mask), plain(scores, mask))
    assert torch.equal(operator.permutation(scores).dense(), plain.permutation(scores).dense())
    assert torch.equal(operator.top_k(2, scores, mask), plain.top_k(2, scores, mask))
    assert torch.equal(
        operator.discounts(torch.reciprocal, scores), plain.discounts(torch.reciprocal, scores)
    )


def test_every_method_draws_once():
    scores, mask = draw(2, 5), torch.tensor([[True] * 4 + [False], [True] * 5])
    operator = seeded(SoftSort(0.3), samples=3)

    def again(call):
        operator.generator.manual_seed(7)
        return call()

    ranks = again(lambda: operator(scores, mask))
    assert ranks.shape == (3, 2, 5)
    P = again(lambda: operator.permutation(scores, mask))
    assert P.shape == (3, 2, 5, 5)
    torch.testing.assert_close(P.ranks(), ranks)
    discounts = again(lambda: operator.discounts(torch.reciprocal, scores, mask))
    expected = torch.where(mask, ranks.reciprocal(), 0.0)
    torch.testing.assert_close(discounts, expected)
    noisy, wide, _ = again(lambda: operator.transform(scores, mask))
    members = again(lambda: operator.top_k(2, scores, mask))
    torch.testing.assert_close(members, SoftSort(0.3).top_k(2, noisy, wide))
    assert (ranks[0] != ranks[1]).any()


def test_masked_items_stay_masked_in_every_sample():
    scores = torch.tensor([[0.1, torch.nan, 0.3], [torch.inf, 0.2, -torch.inf]])
    mask = torch.tensor([[True, False, True], [False, True, False]])
    for plain in [SoftSort(0.5), SigmoidRank(0.5), SortingNetwork(0.5, "bitonic")]:
        ranks = Stochastic(plain, samples=50)(scores, mask)
        assert (ranks[:, 0, 1] == 3).all()
        assert (ranks[:, 1, [0, 2]] == 2).all()
        torch.testing.assert_close(ranks[:, 1, 1], torch.ones(50))
        assert ranks.isfinite().all()


def test_the_same_seed_gives_the_same_noise():
    scores = draw(4)
    assert torch.equal(seeded(SoftSort(), 3)(scores), seeded(SoftSort(), 3)(scores))
    assert not torch.equal(seeded(SoftSort(), 3)(scores), seeded(SoftSort(), 4)(scores))
    operator = Stochastic(SoftSort())
    torch.manual_seed(5)
    first, second = operator(scores), operator(scores)
    torch.manual_seed(5)
    assert torch.equal(operator(scores), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_take_the_generator_with_them(clone):
    scores, operator = draw(4), seeded(SoftSort())
    operator(scores)
    cloned = clone(operator)
    expected = operator(scores)
    assert torch.equal(cloned(scores), expected)  # the state, but not the generator itself
    operator(scores)
    operator(scores)
    assert not torch.equal(cloned(scores), operator(scores))
    assert not operator.state_dict()


def test_gradients_are_reparameterized():
    scores = draw(4, seed=1).requires_grad_()

    def call(x):
        return seeded(SoftSort(0.7), samples=2)(x)

    assert torch.autograd.gradcheck(call, scores)
    assert torch.autograd.gradgradcheck(call, scores)


def test_vmap_wants_to_know_about_randomness():
    operator, scores = Stochastic(SoftSort(), samples=2), torch.zeros(3, 4)
    with pytest.raises(RuntimeError, match="randomness"):
        torch.func.vmap(operator)(scores)
    for generator in [None, torch.Generator().manual_seed(0)]:
        operator.generator = generator
        same = torch.func.vmap(operator, randomness="same")(scores)
        assert same.shape == (3, 2, 4)
        assert torch.equal(same[0], same[1])
        different = torch.func.vmap(operator, randomness="different")(scores)
        assert (different[0] != different[1]).any()


def test_a_loss_is_the_mean_over_samples():
    scores = draw(2, 5, dtype=torch.float32).requires_grad_()
    labels = torch.tensor([[2.0, 0, 1, 0, 0], [0, 1.0, 0, 0, 3]])
    operator = seeded(StraightThrough(SoftSort(0.5)), samples=4)
    losses = SoftNDCG(operator, reduction="none", top_k=3, mean="arithmetic")(scores, labels)
    assert losses.shape == (2,)
    operator.generator.manual_seed(0)
    noisy, _, _ = operator.transform(scores)
    each = [
        SoftNDCG(HardRank(), reduction="none", top_k=3, mean="arithmetic")(x, labels) for x in noisy
    ]
    torch.testing.assert_close(losses, torch.stack(each).mean(0))
    losses.sum().backward()
    assert scores.grad.abs().sum() > 0


def test_bad_arguments():
    for samples in [0, 1.5, None, True]:
        with pytest.raises(ValueError, match=f"samples.*{samples}"):
            Stochastic(samples=samples)
    with pytest.raises(ValueError, match=r"scale.*-1"):
        Stochastic(scale=-1)
    message = "Stochastic.permutation needs a permutation: .* got SigmoidRank"
    with pytest.raises(ValueError, match=message):
        Stochastic(SigmoidRank()).permutation(draw(3))
