"""Hard values, soft gradients."""

import pytest
import torch
from operator_table import draw

from ltr.losses import SoftNDCG
from ltr.operators import (
    DensePermutation,
    HardRank,
    SigmoidRank,
    SoftSort,
    SortingNetwork,
    SortOperator,
    Stochastic,
    StraightThrough,
    truncated,
)
from ltr.operators.permutation import HardPermutation

SOFT = [SoftSort(0.5), SigmoidRank(0.5), SortingNetwork(0.5), SortingNetwork(0.5, "bitonic")]
every = pytest.mark.parametrize("soft", SOFT, ids=str)
MASK = torch.tensor([[True, False, True, True, True], [True] * 5])


def gradient(call, *arguments):
    scores = draw(2, 5, seed=4).requires_grad_()
    y = call(*arguments, scores)
    (y * draw(*y.shape, seed=5)).sum().backward()
    return scores.grad


@every
@pytest.mark.parametrize("mask", [None, MASK], ids=["full", "masked"])
def test_values_are_hard_and_gradients_soft(soft, mask):
    scores, operator = draw(2, 5, seed=4), StraightThrough(soft)
    real = torch.ones(2, 5, dtype=torch.bool) if mask is None else mask
    ranks = HardRank()(scores, mask)
    calls = {
        "ranks": (lambda o, x: o(x, mask), ranks),
        "discounts": (
            lambda o, x: o.discounts(torch.reciprocal, x, mask),
            ranks.reciprocal() * real,
        ),
        "cut discounts": (
            lambda o, x: o.discounts(truncated(torch.reciprocal, 2, exact=False), x, mask),
            ranks.reciprocal() * (real & (ranks <= 2)),
        ),
        "top": (lambda o, x: o.top_k(2, x, mask), (real & (ranks <= 2)).double()),
    }
    for call, expected in calls.values():
        assert torch.equal(call(operator, scores), expected)
        torch.testing.assert_close(
            gradient(call, operator),
            gradient(call, soft),
        )


@pytest.mark.parametrize("soft", [s for s in SOFT if isinstance(s, SortOperator)], ids=str)
@pytest.mark.parametrize("mask", [None, MASK], ids=["full", "masked"])
def test_permutations(soft, mask):
    scores, v = draw(2, 5, seed=4), draw(2, 5, seed=6)
    operator = StraightThrough(soft)
    P = operator.permutation(scores, mask)
    expected = SoftSort(0).permutation(scores, mask)
    assert torch.equal(P.dense(), expected.dense())
    assert torch.equal(P.log_dense(), expected.log_dense())
    torch.testing.assert_close(P.mv(v), expected.mv(v), rtol=0, atol=1e-14)
    torch.testing.assert_close(P.ranks(), expected.ranks(), rtol=0, atol=1e-14)
    assert torch.equal(P.hard(), expected.hard())
    for call in [
        lambda o, x: o.permutation(x, mask).dense(),
        lambda o, x: o.permutation(x, mask).mv(v),
        lambda o, x: o.permutation(x, mask).mT.mv(v),
        lambda o, x: o.permutation(x, mask).top(2).matmul(v.unsqueeze(-1)),
        lambda o, x: o.permutation(x, mask).ranks(),
    ]:
        torch.testing.assert_close(
            gradient(call, operator),
            gradient(call, soft),
        )
    order = P.hard()
    torch.testing.assert_close(
        gradient(lambda x: operator.permutation(x, mask).log_prob(order)),
        gradient(lambda x: soft.permutation(x, mask).log_prob(order)),
    )


def test_sorted_values_get_the_hard_gradient():
    operator, v = StraightThrough(SoftSort(0.5)), draw(5, seed=6).requires_grad_()
    operator.permutation(draw(5)).mv(v)[0].backward()
    assert v.grad.tolist() == SoftSort(0).permutation(draw(5)).dense()[0].tolist()


def test_soft_ndcg_is_the_metric_with_a_gradient():
    scores = draw(3, 6, dtype=torch.float32).requires_grad_()
    labels = torch.randint(0, 4, (3, 6), generator=torch.Generator().manual_seed(0)).float()
    for top_k in [None, 2]:
        loss = SoftNDCG(StraightThrough(SigmoidRank(0.5)), top_k=top_k, mean="arithmetic")(
            scores, labels
        )
        exact = SoftNDCG(HardRank(), top_k=top_k, mean="arithmetic")(scores, labels)
        torch.testing.assert_close(loss, exact, rtol=0, atol=1e-6)
        grad = torch.autograd.grad(loss, scores)[0]
        soft = SoftNDCG(SigmoidRank(0.5), top_k=top_k, mean="arithmetic")(scores, labels)
        torch.testing.assert_close(grad, torch.autograd.grad(soft, scores)[0])


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"operator.*Stochastic\(Str"):
        StraightThrough(Stochastic(SoftSort()))
    message = "StraightThrough.permutation needs a permutation: .* got SigmoidRank"
    with pytest.raises(ValueError, match=message):
        StraightThrough(SigmoidRank()).permutation(draw(3))


def test_permutations_that_cannot_be_frozen_are_refused():
    class Unnamed(HardPermutation):
        pass

    class Odd(SortOperator):
        def __init__(self, make):
            super().__init__()
            self.make = make

        def permutation(self, scores, mask=None, weights=None):
            return self.make(scores)

    order = torch.tensor([0, 1, 2])
    with pytest.raises(ValueError, match=r"operator.*Unnamed"):
        StraightThrough(Odd(lambda x: Unnamed(order, x))).permutation(draw(3))
    short = StraightThrough(Odd(lambda x: DensePermutation(x.log_softmax(-1).unsqueeze(-2), x)))
    with pytest.raises(ValueError, match=r"operator.*1"):
        short.permutation(draw(3))
