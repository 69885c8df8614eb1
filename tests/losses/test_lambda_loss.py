"""Pair weights compared with their metrics, by brute force, and with the papers' formulas."""

from math import exp as e
from math import log, log1p, log2

import pytest
import torch

from ltr.losses import (
    ARPLoss1,
    ARPLoss2,
    DeltaMAP,
    DeltaMRR,
    DeltaNDCG,
    DeltaPrecision,
    LabelDifference,
    LambdaLoss,
    LambdaRank,
    NDCGLoss1,
    NDCGLoss2,
    NDCGLoss2PP,
    RankNet,
)
from ltr.metrics.functional import average_precision, mrr, ndcg


def draw(*shape, grades=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    return scores, torch.randint(0, grades, shape, generator=generator).double()


def ranks(s):
    return [1 + sum(t > x for t in s) for x in s]


def weighted_sum(s, y, weight, pair=lambda a, b: a > b, u=None):
    """Return the sums over pairs of weight(i, j, ranks) * logistic and of the weights, by loops."""
    r, total, count = ranks(s), 0.0, 0.0
    for i in range(len(s)):
        for j in range(len(s)):
            if i != j and pair(y[i], y[j]):
                w = weight(i, j, r) * (1.0 if u is None else u[i])
                total += w * log1p(e(-(s[i] - s[j])))
                count += w
    return total, count


def check(weights, s, y, weight, pair=lambda a, b: a > b):
    total, count = weighted_sum(s.tolist(), y.tolist(), weight, pair)
    loss = LambdaLoss(weights, normalize=False)(s, y)
    assert loss.item() == pytest.approx(total, rel=1e-11, abs=1e-13)
    mean = total / count if count else 0.0
    assert LambdaLoss(weights)(s, y).item() == pytest.approx(mean, rel=1e-11, abs=1e-13)
    # the shuffled list with padding gives the same
    n = len(s)
    order = torch.randperm(n + 4, generator=torch.Generator().manual_seed(n))
    mask = order < n
    at = order.clamp(max=n - 1)
    padded = torch.where(mask, s[at], torch.nan), torch.where(mask, y[at], 77.0)
    again = LambdaLoss(weights, normalize=False)(*padded, mask)
    torch.testing.assert_close(again, loss, rtol=1e-12, atol=1e-12)


def gains_of(y, k=None, gain=lambda v: 2**v - 1):
    y = y.tolist()
    ideal = sum(gain(v) / log2(2 + i) for i, v in enumerate(sorted(y, reverse=True)[:k]))
    return [gain(v) / ideal if ideal else 0.0 for v in y]


def discount(rank, k=None):
    return 1 / log2(1 + rank) if k is None or rank <= k else 0.0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("top_k", [None, 1, 3, 20])
@pytest.mark.parametrize("gain", ["exp2", "linear"])
def test_delta_ndcg_is_the_change_of_the_metric(seed, top_k, gain):
    s, y = draw(8, seed=seed)

    def change(i, j, r):
        swapped = s.clone()
        swapped[i], swapped[j] = s[j], s[i]
        options = {"top_k": top_k, "gain": gain}
        return abs((ndcg(s, y, **options) - ndcg(swapped, y, **options)).item())

    check(DeltaNDCG(top_k, gain=gain), s, y, change)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("top_k", [None, 1, 3, 20])
@pytest.mark.parametrize(
    "kind", [(DeltaMAP, average_precision), (DeltaMRR, mrr)], ids=["MAP", "MRR"]
)
def test_delta_map_and_mrr_are_the_changes_of_the_metrics(seed, top_k, kind):
    weights, metric = kind
    s, y = draw(9, grades=3, seed=seed)

    def change(i, j, r):
        swapped = s.clone()
        swapped[i], swapped[j] = s[j], s[i]
        return abs((metric(s, y, top_k=top_k) - metric(swapped, y, top_k=top_k)).item())

    check(weights(top_k), s, y, change)


@pytest.mark.parametrize("top_k", [1, 3, 10, 20])
def test_delta_precision_is_the_change_of_the_metric(top_k):
    s, y = draw(12, grades=3)

    def precision(r):
        return (
            sum(1 for rank, v in zip(r, y.tolist(), strict=True) if rank <= top_k and v > 0) / top_k
        )

    def change(i, j, r):
        swapped = list(r)
        swapped[i], swapped[j] = r[j], r[i]
        return abs(precision(r) - precision(swapped))

    check(DeltaPrecision(top_k), s, y, change)


@pytest.mark.parametrize("kind", [LabelDifference, ARPLoss2])
def test_label_difference(kind):
    s, y = draw(8)
    check(kind(), s, y, lambda i, j, r: (y[i] - y[j]).item())


def test_arp_loss_1_is_over_all_ordered_pairs():
    s, y = draw(8)
    check(ARPLoss1(), s, y, lambda i, j, r: y[i].item(), pair=lambda a, b: True)


def test_arp_losses_bound_the_average_relevance_position():
    s, y = draw(8)
    r = ranks(s.tolist())
    arp = sum(v * rank for v, rank in zip(y.tolist(), r, strict=True))
    bound = LambdaLoss(ARPLoss1(), normalize=False)(s, y).item() / log(2) + y.sum().item()
    assert arp <= bound
    # the difference does not depend on the order of the scores: both bound the same metric
    best = sum(v * (i + 1) for i, v in enumerate(sorted(y.tolist(), reverse=True)))
    assert arp - best <= LambdaLoss(ARPLoss2(), normalize=False)(s, y).item() / log(2)


@pytest.mark.parametrize("top_k", [None, 3])
def test_ndcg_loss_1(top_k):
    s, y = draw(8)
    g = gains_of(y, top_k)
    weight = lambda i, j, r: g[i] * discount(r[i], top_k)  # noqa: E731
    check(NDCGLoss1(top_k), s, y, weight, pair=lambda a, b: True)


def bound_step(r, i, j, k=None):
    apart = abs(r[i] - r[j])
    last = max(r[i], r[j])
    factor = 1 / (1 - discount(last)) if k is not None and last > k else 1
    return factor * (discount(apart) - discount(apart + 1))


@pytest.mark.parametrize("top_k", [None, 1, 3])
def test_ndcg_loss_2_and_its_correction_at_k(top_k):
    s, y = draw(8)
    g = gains_of(y, top_k)
    check(NDCGLoss2(top_k), s, y, lambda i, j, r: abs(g[i] - g[j]) * bound_step(r, i, j, top_k))


@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("mu", [0.0, 10.0])
def test_ndcg_loss_2_plus_plus(top_k, mu):
    s, y = draw(8)
    g = gains_of(y, top_k)

    def weight(i, j, r):
        change = abs(discount(r[i], top_k) - discount(r[j], top_k))
        return abs(g[i] - g[j]) * (mu * bound_step(r, i, j, top_k) + change)

    check(NDCGLoss2PP(mu, top_k), s, y, weight)


@pytest.mark.parametrize(("truncation", "counts"), [("any", any), ("both", all)])
def test_the_two_truncations_of_pairs(truncation, counts):
    s, y = draw(8)
    g, k = gains_of(y, 3), 3

    def weight(i, j, r):
        kept = counts([r[i] <= k, r[j] <= k])
        return kept * abs(g[i] - g[j]) * abs(discount(r[i]) - discount(r[j]))

    check(DeltaNDCG(k, truncation), s, y, weight)
    weight_2 = lambda i, j, r: (  # noqa: E731
        counts([r[i] <= k, r[j] <= k]) * abs(g[i] - g[j]) * bound_step(r, i, j)
    )
    check(NDCGLoss2(k, truncation), s, y, weight_2)


def test_item_weights_are_those_of_the_item_that_should_be_above():
    s, y = draw(8)
    u = draw(8, seed=5)[0].abs()
    g = gains_of(y)
    change = lambda i, j, r: abs(g[i] - g[j]) * abs(discount(r[i]) - discount(r[j]))  # noqa: E731
    total, weight = weighted_sum(s.tolist(), y.tolist(), change, u=u.tolist())
    assert LambdaRank()(s, y, weights=u).item() == pytest.approx(total / weight)
    every = lambda a, b: True  # noqa: E731
    label = lambda i, j, r: y[i].item()  # noqa: E731
    total, weight = weighted_sum(s.tolist(), y.tolist(), label, every, u.tolist())
    assert LambdaLoss(ARPLoss1())(s, y, weights=u).item() == pytest.approx(total / weight)


def test_lambdarank_gradient_is_the_papers_lambda():
    s, y = draw(7)
    g, r = gains_of(y), ranks(s.tolist())
    expected = [0.0] * 7
    for i in range(7):
        for j in range(7):
            if y[i] > y[j]:
                change = abs(g[i] - g[j]) * abs(discount(r[i]) - discount(r[j]))
                force = change / (1 + e((s[i] - s[j]).item()))
                expected[i] -= force
                expected[j] += force
    s.requires_grad_()
    LambdaRank(normalize=False)(s, y).backward()
    assert s.grad.tolist() == pytest.approx(expected, rel=1e-11)


def test_tied_scores_take_the_order_of_the_list():
    y = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    s = torch.zeros(3, dtype=torch.float64)
    first, second, third = (discount(r) for r in (1, 2, 3))
    expected = (first - second + second - third) * log(2)
    assert LambdaRank(normalize=False)(s, y).item() == pytest.approx(expected)


@pytest.mark.parametrize("weights", [DeltaNDCG(), NDCGLoss1(), NDCGLoss2PP()], ids=repr)
@pytest.mark.parametrize("least", [0, 27, 31, 124, 200])
def test_large_labels_do_not_overflow(weights, least):
    s, y = draw(3, 8)
    y = y + least
    exact = LambdaLoss(weights)(s, y)
    scores = s.float().requires_grad_()
    loss = LambdaLoss(weights)(scores, y.float())
    loss.backward()
    assert scores.grad.isfinite().all()
    assert scores.grad.abs().max() > 0
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)


def test_float_labels():
    s, _ = draw(8)
    y = torch.rand(8, generator=torch.Generator().manual_seed(7), dtype=torch.float64) * 3
    g = gains_of(y)
    change = lambda i, j, r: abs(g[i] - g[j]) * abs(discount(r[i]) - discount(r[j]))  # noqa: E731
    check(DeltaNDCG(), s, y, change)


@pytest.mark.parametrize("gap", [25.0, 60.0, 90.0, 120.0])
@pytest.mark.parametrize(
    "weights",
    [DeltaMAP(), DeltaMRR(), DeltaNDCG(), DeltaPrecision(1), NDCGLoss2PP(), ARPLoss1()],
    ids=repr,
)
def test_a_pair_that_is_very_wrong_has_a_full_gradient(weights, gap):
    scores = torch.tensor([0.0, gap], requires_grad=True)
    loss = LambdaLoss(weights)(scores, torch.tensor([1.0, 0.0]))
    loss.backward()
    assert loss.item() == pytest.approx(gap)
    assert scores.grad.tolist() == pytest.approx([-1.0, 1.0])


def test_a_batch_without_a_pair_has_a_graph():
    for weights in [DeltaMAP(), DeltaMRR(), DeltaNDCG(2), DeltaPrecision(), NDCGLoss2PP()]:
        scores = torch.randn(2, 5, requires_grad=True)
        for labels in [torch.zeros(2, 5), torch.ones(2, 5)]:
            scores.grad = None
            loss = LambdaLoss(weights)(scores, labels)
            loss.backward()
            assert loss == 0
            assert (scores.grad == 0).all()


def test_precision_of_a_list_of_at_most_k_items_has_no_pair():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(50, 30, generator=generator, dtype=torch.float64).requires_grad_()
    labels, weights = torch.rand(2, 50, 30, generator=generator, dtype=torch.float64)
    for given in (None, weights):
        loss = LambdaLoss(DeltaPrecision(40))(scores, labels.round(), weights=given)
        assert loss == 0
        assert (torch.autograd.grad(loss, scores)[0] == 0).all()


def test_a_subclass_with_another_discount_is_not_summed_in_sort_time():
    class Flat(DeltaNDCG):
        @property
        def truncated_discount(self):
            return torch.ones_like

    assert LambdaLoss(Flat(), normalize=False)(*draw(4, 6)) == 0


def test_a_mean_over_equal_weights_is_ranknet():
    s, y = draw(4, 6, grades=2)
    torch.testing.assert_close(LambdaLoss(LabelDifference())(s, y), RankNet()(s, y))


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"gain.*'exp'"):
        LambdaRank(gain="exp")
    with pytest.raises(ValueError, match=r"top_k.*0"):
        NDCGLoss2(0)
    with pytest.raises(ValueError, match=r"mu.*-1"):
        NDCGLoss2PP(-1)
    with pytest.raises(ValueError, match=r"top_k.*None"):
        DeltaPrecision(None)
