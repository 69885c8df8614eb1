"""Losses on soft ranks compared with their formulas, and with the metrics in the hard limit."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import rankdata, spearmanr
from sklearn.metrics import average_precision_score

from ltr.gains import stop_probabilities
from ltr.losses import (
    ADRMSE,
    ApproxNDCG,
    SoftERR,
    SoftMAP,
    SoftMRR,
    SoftNDCG,
    SoftPrecision,
    SoftRecall,
    SpearmanLoss,
)
from ltr.losses.soft import list_weight, weighted_mean
from ltr.losses.soft_metrics import average_ranks, ideal_err, weighted_ranks
from ltr.metrics.functional import average_precision, mrr
from ltr.operators import (
    HardRank,
    SigmoidRank,
    SoftRank,
    SoftSort,
    Standardized,
    Stochastic,
    StraightThrough,
)

HARD = pytest.mark.parametrize(
    "operator", [HardRank(), SoftSort(0), SigmoidRank(0), StraightThrough(SigmoidRank())], ids=repr
)
CUTS = pytest.mark.parametrize("top_k", [None, 1, 3, 20])


def draw(*shape: int, seed: int = 0, grades: int = 4):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    return scores, torch.randint(0, grades, shape, generator=generator).double()


def lists(seed: int = 0):
    scores, labels = draw(30, 8, seed=seed)
    labels = torch.where(
        torch.rand(30, 8, generator=torch.Generator().manual_seed(2)) < 0.5, 0.0, labels
    )
    mask = torch.rand(30, 8, generator=torch.Generator().manual_seed(3)) < 0.8
    return scores, labels, mask


def real(scores, labels, mask):
    """Yield each list's real labels in the order of descending scores."""
    for s, y, m in zip(scores, labels, mask, strict=True):
        yield y[m][s[m].argsort(descending=True)].tolist()


@HARD
@CUTS
def test_hard_ranks_make_mrr_and_map_the_metrics(operator, top_k):
    scores, labels, mask = lists()
    for loss, metric in [(SoftMRR, mrr), (SoftMAP, average_precision)]:
        soft = loss(operator, top_k, reduction="none")(scores, labels, mask)
        exact = metric(scores, labels, mask=mask, top_k=top_k, empty=1, reduction="none")
        torch.testing.assert_close(1 - soft, exact.nan_to_num(1))


def test_map_is_scikit_learns():
    scores, labels = draw(20, 9, grades=2)
    labels[:, 0] = 1
    loss = SoftMAP(HardRank(), reduction="none")(scores, labels)
    for s, y, value in zip(scores.numpy(), labels.numpy(), loss.tolist(), strict=True):
        assert value == pytest.approx(1 - average_precision_score(y, s), abs=1e-12)


def err(labels, max_label, weights=None, k=None):
    """Return ERR of labels in ranked order, by definition. A weight is a number of looks."""
    weights = [1.0] * len(labels) if weights is None else weights
    value, left = 0.0, 1.0
    for position, (label, weight) in enumerate(zip(labels, weights, strict=True), 1):
        if k is not None and position > k:
            break
        stop = 1 - (1 - (2**label - 1) / 2**max_label) ** weight
        value += left * stop / position
        left *= 1 - stop
    return value


@HARD
@CUTS
def test_hard_ranks_make_err_the_metric(operator, top_k):
    scores, labels, mask = lists()
    raw = SoftERR(operator, top_k, max_label=4, normalize=False, reduction="none")
    whole = SoftERR(operator, top_k, reduction="none")
    found = zip(raw(scores, labels, mask), whole(scores, labels, mask), strict=True)
    for ranked, (plain, divided) in zip(real(scores, labels, mask), found, strict=True):
        if not any(ranked):
            assert plain == divided == 0
            continue
        assert plain.item() == pytest.approx(1 - err(ranked, 4, k=top_k), abs=1e-12)
        best = err(sorted(ranked, reverse=True), max(ranked), k=top_k)
        assert divided.item() == pytest.approx(1 - err(ranked, max(ranked), k=top_k) / best)


def test_the_ideal_err_is_that_of_the_best_order():
    labels = torch.tensor([0.0, 1.0, 3.0, 2.0, 1.0], dtype=torch.float64)
    best = max(err(order, 3) for order in itertools.permutations(labels.tolist()))
    found = SoftERR(HardRank())(labels, labels)
    assert found.item() == pytest.approx(0, abs=1e-12)
    stops = stop_probabilities(labels, None, None)
    assert ideal_err(stops).item() == pytest.approx(best, abs=1e-12)


def test_soft_err_tends_to_the_metric_as_far_as_its_steps_are_sharp():
    scores, labels = draw(20, 8)
    expected = SoftERR(HardRank())(scores, labels).item()
    assert SoftERR(SigmoidRank(1e-6))(scores, labels).item() == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("top_k", [None, 3])
def test_soft_err_over_a_straight_through_operator_is_the_metric_with_a_gradient(top_k):
    scores, labels = draw(20, 8)
    scores[0] = 0  # ties in list order
    mask = torch.ones(20, 8, dtype=torch.bool)
    mask[1, 2:5] = False
    exact = SoftERR(HardRank(), top_k, normalize=False)(scores, labels, mask)
    for inner in (SigmoidRank(), SoftSort(), SoftRank(), Standardized()):
        for operator in (StraightThrough(inner), Standardized(StraightThrough(inner))):
            s = scores.clone().requires_grad_()
            loss = SoftERR(operator, top_k, normalize=False)(s, labels, mask)
            torch.testing.assert_close(loss, exact)
            loss.backward()
            assert s.grad.isfinite().all()
            assert s.grad[2].any()


def test_soft_err_over_softrank_has_smooth_steps_between_its_ranks():
    ties, labels = torch.zeros(4), torch.tensor([2.0, 1.0, 1.0, 0.0])
    stops = [3 / 4, 1 / 4, 1 / 4, 0.0]
    best = err([2.0, 1.0, 1.0, 0.0], 2)
    for distribution in ("paper", "exact"):
        # each of the others is half before; "paper": 1 + a binomial number of others is the rank
        chance = [1 / 8, 3 / 8, 3 / 8, 1 / 8] if distribution == "paper" else [1 / 4] * 4
        discount = sum(p / rank for rank, p in enumerate(chance, 1))
        half = [math.prod(1 - r / 2 for j, r in enumerate(stops) if j != i) for i in range(4)]
        soft = sum(r * discount * arrival for r, arrival in zip(stops, half, strict=True))
        found = SoftERR(SoftRank(0.1, distribution))(ties, labels)
        assert found.item() == pytest.approx(1 - soft / best, abs=1e-6)
    # whether a reader arrives at an item depends smoothly on the scores
    scores = torch.tensor([0.2, 0.1], requires_grad=True)
    SoftRank(0.5).before(scores)[1, 0].backward()
    assert scores.grad[0] > 0 > scores.grad[1]
    s, y = draw(5, 6)
    torch.testing.assert_close(SoftERR(SoftRank(0.0))(s, y), SoftERR(HardRank())(s, y))


def test_err_of_labels_without_overflow():
    labels = torch.tensor([200.0, 199.0, 0.0])
    loss = SoftERR(HardRank(), max_label=200, normalize=False)
    assert loss(torch.tensor([3.0, 2.0, 1.0]), labels).item() == pytest.approx(0, abs=1e-6)
    assert loss(torch.tensor([1.0, 2.0, 3.0]), labels).item() == pytest.approx(1 - 1 / 4 - 1 / 6)


def test_err_weights_count_as_so_many_looks():
    labels, weights = [2.0, 0.0, 1.0, 3.0], [0.5, 2.0, 3.0, 1.0]
    scores = torch.tensor([4.0, 3.0, 2.0, 1.0], dtype=torch.float64)
    loss = SoftERR(HardRank(), max_label=4, normalize=False)
    found = loss(scores, torch.tensor(labels), weights=torch.tensor(weights))
    assert found.item() == pytest.approx(1 - err(labels, 4, weights))


@pytest.mark.parametrize("top_k", [None, 1, 2])
@pytest.mark.parametrize(
    "weights", [[1.0, 0.1, 0.5, 0.5], [0.1, 10.0, 1.0, 3.0], [0.0, 1.0, 2.0, 0.5]]
)
@pytest.mark.parametrize("labels", [[1, 1, 1, 1], [2, 1, 0, 3], [1, 0, 0, 2]])
def test_no_order_beats_the_weighted_ideal_of_err(labels, weights, top_k):
    orders = torch.tensor([*itertools.permutations(range(4))])
    values = [
        err([labels[i] for i in o], max(labels), [weights[i] for i in o], top_k)
        for o in orders.tolist()
    ]
    scores = torch.zeros(24, 4, dtype=torch.float64).scatter(
        1, orders, torch.arange(4, 0, -1).double().expand(24, 4)
    )
    y, w = (torch.tensor(x, dtype=torch.float64).expand(24, 4) for x in (labels, weights))
    found = SoftERR(HardRank(), top_k, reduction="none")(scores, y, weights=w)
    expected = 1 - torch.tensor(values, dtype=torch.float64) / max(values)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_weighted_err_of_tied_labels_does_not_depend_on_the_order_of_the_list():
    # if the order of the list were the ideal, the second would be -1.93 and the third -5.52
    loss = SoftERR(HardRank())
    for scores, labels, weights in [
        ([2, 0], [1, 1], [1, 0.1]),
        ([0, 2], [1, 1], [0.1, 1]),
        ([0, 1], [2, 1], [0.1, 10]),
    ]:
        found = loss(
            *(torch.tensor(x).double() for x in (scores, labels)),
            None,
            torch.tensor(weights).double(),
        )
        assert found.item() == pytest.approx(0, abs=1e-12)


@HARD
@pytest.mark.parametrize("top_k", [1, 3, 20])
def test_hard_ranks_make_precision_and_recall_the_metrics(operator, top_k):
    scores, labels, mask = lists()
    made = {
        (loss, normalize): loss(operator, top_k, normalize, reduction="none")(scores, labels, mask)
        for loss in (SoftPrecision, SoftRecall)
        for normalize in (True, False)
    }
    for i, ranked in enumerate(real(scores, labels, mask)):
        relevant, hits = sum(y > 0 for y in ranked), sum(y > 0 for y in ranked[:top_k])
        for (loss, normalize), value in made.items():
            divisor = top_k if loss is SoftPrecision else relevant
            divisor = min(top_k, relevant) if normalize else divisor
            expected = 1 - hits / divisor if relevant else 0
            assert value[i].item() == pytest.approx(expected, abs=1e-12)


def test_several_cuts_have_their_mean():
    scores, labels = draw(5, 8)
    each = [SoftRecall(top_k=k)(scores, labels) for k in (1, 2, 4)]
    torch.testing.assert_close(SoftRecall(top_k=[1, 2, 4])(scores, labels), sum(each) / 3)


def test_an_item_just_outside_the_cut_has_a_gradient():
    for loss in [SoftPrecision, SoftRecall, SoftMRR, SoftMAP, SoftERR]:
        scores = torch.tensor([3.0, 2.0, 1.0, 0.0], requires_grad=True)
        loss(SigmoidRank(0.3), top_k=2)(scores, torch.tensor([0.0, 0.0, 1.0, 0.0])).backward()
        assert scores.grad[2] < -1e-4


def test_smooth_ap_by_the_papers_formula():
    scores, labels = draw(6, 7, grades=2)
    labels[:, 2] = 1
    found = SoftMAP(SigmoidRank(0.1), reduction="none")(scores, labels)
    for s, y, value in zip(scores.tolist(), labels.tolist(), found.tolist(), strict=True):
        terms = []
        for i in range(7):
            above = [1 / (1 + math.exp(-(s[j] - s[i]) / 0.1)) if j != i else 0 for j in range(7)]
            among = sum(a for a, label in zip(above, y, strict=True) if label)
            terms += [(1 + among) / (1 + sum(above))] * (y[i] > 0)
        assert value == pytest.approx(1 - sum(terms) / len(terms), abs=1e-12)


def test_one_draw_of_noise_serves_both_ranks_of_map():
    # if each of the two ranks had its own noise, the precision would be above 1
    generator = torch.Generator().manual_seed(0)
    operator = Stochastic(SigmoidRank(0), samples=200, scale=5.0, generator=generator)
    scores, labels = draw(4, 6, grades=2)
    labels[:, 1] = 1
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[:, 4] = False
    found = SoftMAP(operator, reduction="none")(scores, labels, mask)
    generator.manual_seed(0)
    noisy, _, _ = operator.transform(scores, mask)
    exact = [average_precision(s, labels, mask=mask, reduction="none") for s in noisy]
    torch.testing.assert_close(found, 1 - torch.stack(exact).mean(0))


def test_mrr_takes_only_the_first_relevant_item():
    loss = SoftMRR(SigmoidRank(0.5))
    scores = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)
    ranks = SigmoidRank(0.5)(scores)
    found = loss(scores, torch.tensor([0.0, 1.0, 1.0]))
    assert found.item() == pytest.approx(1 - 1 / ranks[1].item(), abs=1e-12)


def test_weights_of_mrr_map_precision():
    scores, labels = torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 1.0, 1.0])
    weights = torch.tensor([9.0, 1.0, 4.0, 2.0])
    hard = HardRank()
    assert SoftMRR(hard)(scores, labels, None, weights).item() == pytest.approx(1 - 4 / 3 / 4)
    precisions = (1 * 1 / 2 + 4 * 2 / 3 + 2 * 3 / 4) / 7
    assert SoftMAP(hard)(scores, labels, None, weights).item() == pytest.approx(1 - precisions)
    loss = SoftPrecision(hard, top_k=2)(scores, labels, None, weights)
    assert loss.item() == pytest.approx(1 - 1 / 6)


@HARD
def test_spearman_is_scipys(operator):
    scores, labels = draw(20, 9, grades=5)
    distinct = draw(20, 9, seed=7)[0]
    raw = SpearmanLoss(operator, normalize=False, reduction="none")
    for y in (labels, distinct):
        expected = [1 - spearmanr(s, v).statistic for s, v in zip(scores, y, strict=True)]
        np.testing.assert_allclose(raw(scores, y), expected, atol=1e-12)
    divided = SpearmanLoss(operator, reduction="none")
    torch.testing.assert_close(divided(scores, distinct), raw(scores, distinct))


def test_spearman_falls_to_0_with_equal_labels_and_is_2_for_the_reverse():
    labels = torch.tensor([2.0, 0.0, 1.0, 0.0, 2.0, 0.0])
    scores = labels + 0.1 * torch.arange(6)
    loss = SpearmanLoss(HardRank())
    assert loss(scores, labels).item() == pytest.approx(0, abs=1e-6)
    assert loss(-scores, labels).item() == pytest.approx(2)
    assert SpearmanLoss()(torch.zeros(6), labels).item() == pytest.approx(1)


@HARD
def test_weighted_spearman_is_the_correlation_with_the_room_that_the_labels_have(operator):
    scores, labels = draw(20, 9, grades=4)
    weights = torch.rand(20, 9, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    raw = SpearmanLoss(operator, normalize=False, reduction="none")(scores, labels, None, weights)
    divided = SpearmanLoss(operator, reduction="none")(scores, labels, None, weights)
    for s, y, w, plain, value in zip(scores, labels, weights, raw, divided, strict=True):
        room = [
            sum(v if b > a else v / 2 if b == a else 0 for b, v in zip(y, w, strict=True))
            for a in y
        ]
        ranks = rankdata(-s)
        assert plain.item() == pytest.approx(1 - np.corrcoef(ranks, room)[0, 1], abs=1e-12)
        best = np.cov(rankdata(-y), room)[0, 1]
        assert value.item() == pytest.approx(1 - np.cov(ranks, room)[0, 1] / best, abs=1e-12)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20, 1e30])
def test_the_scale_of_the_weights_does_not_matter(scale, normalize):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 6, generator=generator).requires_grad_()
    labels = torch.randint(0, 4, (4, 6), generator=generator).float()
    weights = torch.rand(4, 6, generator=generator)
    mask = torch.arange(6) < torch.tensor([[6], [4], [1], [0]])
    loss = SpearmanLoss(normalize=normalize, reduction="none")
    expected = loss(scores.double(), labels.double(), mask, weights.double())
    actual = loss(scores, labels, mask, weights * scale)
    torch.testing.assert_close(actual, expected, check_dtype=False, rtol=1e-4, atol=1e-5)
    (wanted,) = torch.autograd.grad(expected.sum(), scores)
    (gradient,) = torch.autograd.grad(actual.sum(), scores)
    torch.testing.assert_close(gradient, wanted, rtol=1e-3, atol=1e-5)


def test_no_wrong_order_beats_the_right_one_in_weighted_spearman():
    # if weights multiplied the terms of the covariance, the first would be about -1
    labels, weights = torch.tensor([2.0, 1.0, 0.0]), torch.tensor([0.0005, 1.33, 0.93])
    loss = SpearmanLoss(HardRank())
    assert loss(torch.tensor([1.01, 2.42, -1.12]), labels, weights=weights) > 0.1
    assert loss(torch.tensor([3.0, 2.0, 1.0]), labels, weights=weights) == 0


def test_weighted_ranks_are_average_ranks_of_copies():
    _, labels = draw(20, 7)
    mask = torch.rand(20, 7, generator=torch.Generator().manual_seed(4)) < 0.7
    ones = torch.ones_like(labels)
    plain = average_ranks(labels, mask)
    torch.testing.assert_close(weighted_ranks(labels, ones, mask)[mask], plain[mask] - 0.5)
    copies = torch.tensor([5.0, 7.0, 5.0, 5.0, 7.0, 1.0])
    found = weighted_ranks(torch.tensor([5.0, 7.0, 1.0]), torch.tensor([3.0, 2.0, 1.0]))
    assert found.tolist() == (average_ranks(copies)[[0, 1, 5]] - 0.5).tolist()
    assert weighted_ranks(torch.zeros(2, 0), torch.zeros(2, 0)).shape == (2, 0)


def test_spearman_trains_from_tied_scores():
    scores = torch.zeros(4, requires_grad=True)
    SpearmanLoss()(scores, torch.tensor([0.0, 3.0, 1.0, 1.0])).backward()
    assert scores.grad.argmin() == 1
    assert scores.grad.argmax() == 0


def test_average_ranks_are_scipys():
    _, labels = draw(20, 7)
    mask = torch.rand(20, 7, generator=torch.Generator().manual_seed(4)) < 0.7
    for y, m, found in zip(labels, mask, average_ranks(labels, mask), strict=True):
        np.testing.assert_array_equal(found[m], rankdata(-y[m]))
    assert average_ranks(torch.zeros(2, 0)).shape == (2, 0)
    assert average_ranks(torch.zeros(3, 1)).tolist() == [[1.0]] * 3


def test_approx_ndcg_is_soft_ndcg_by_sigmoids():
    scores, labels = draw(5, 6)
    torch.testing.assert_close(
        ApproxNDCG(0.3, top_k=3, gain="linear")(scores, labels),
        SoftNDCG(SigmoidRank(0.3), top_k=3, gain="linear", mean="arithmetic")(scores, labels),
    )


def test_bad_arguments():
    for loss in (SoftMRR, SoftMAP, SoftERR):
        with pytest.raises(ValueError, match=r"top_k.*0"):
            loss(top_k=0)
    for loss in (SoftPrecision, SoftRecall):
        with pytest.raises(ValueError, match=r"top_k.*0"):
            loss(top_k=[2, 0])
        with pytest.raises(ValueError, match=r"top_k.*\[\]"):
            loss(top_k=[])
        with pytest.raises(ValueError, match=r"top_k.*'3'"):
            loss(top_k="3")
    with pytest.raises(ValueError, match=r"max_label.*0"):
        SoftERR(max_label=0)
    for loss in (SoftMRR, SoftMAP, SoftERR, SoftPrecision, SoftRecall, SpearmanLoss):
        with pytest.raises(ValueError, match=r"operator.*'SoftSort'"):
            loss("SoftSort")


def test_shared_means():
    zero = torch.zeros(2, 0)
    assert weighted_mean(zero, zero).tolist() == [0, 0]
    assert list_weight(zero, None, zero).tolist() == [1, 1]
    weights, mask = torch.tensor([2.0, 4.0, 9.0]), torch.tensor([True, True, False])
    assert list_weight(torch.zeros(3), mask, weights) == 3
    assert list_weight(torch.zeros(3), torch.zeros(3).bool(), weights) == 1


@pytest.mark.parametrize("discount", ["log2", torch.ones_like])
def test_adr_mse_is_the_discounted_squared_error_of_the_ranks(discount):
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(4, 7, generator=generator, dtype=torch.float64)
    labels = torch.randint(-2, 3, (4, 7), generator=generator).double()
    weights = torch.rand(4, 7, generator=generator, dtype=torch.float64)
    found = ADRMSE(discount=discount, reduction="none")(scores, labels, weights=weights)
    for s, y, w, value in zip(
        scores.tolist(), labels.numpy(), weights.tolist(), found, strict=True
    ):
        wanted = rankdata(-y)
        terms = []
        for i in range(7):
            soft = 1 + sum(1 / (1 + math.exp(s[i] - s[j])) for j in range(7) if j != i)
            scale = 1 / math.log2(1 + wanted[i]) if discount == "log2" else 1.0
            terms.append(w[i] * scale * (soft - wanted[i]) ** 2)
        assert value.item() == pytest.approx(sum(terms) / sum(w), rel=1e-12)


@HARD
def test_adr_mse_is_0_at_the_right_ranks_alone(operator):
    loss = ADRMSE(operator, reduction="none")
    labels = torch.tensor([3.0, 1.0, 1.0, 0.0])
    orders = list(itertools.permutations(range(4)))
    found = loss(torch.tensor(orders, dtype=torch.float64), labels.expand(len(orders), 4))
    for order, value in zip(orders, found, strict=True):  # ranks of a tie are 2.5, orders have none
        wrong = (4 - np.array(order)) - np.array([1, 2.5, 2.5, 4])
        discounts = 1 / np.log2(1 + np.array([1, 2.5, 2.5, 4]))
        assert value.item() == pytest.approx((discounts * wrong**2).mean())
    assert loss(torch.zeros(4), torch.ones(4)) == 0


@pytest.mark.parametrize("scores", [[5.0], [3.0, -1.0, 2.0]])
def test_adr_mse_of_equal_labels_is_0_without_a_gradient(scores):
    scores = torch.tensor(scores, requires_grad=True)
    loss = ADRMSE()(scores, torch.ones_like(scores))
    (grad,) = torch.autograd.grad(loss, scores)
    assert loss == 0
    assert not grad.any()
