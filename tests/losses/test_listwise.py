"""Listwise losses compared with the papers' formulas, brute force over orders and scikit-learn."""

from functools import partial
from itertools import permutations, product
from math import exp, log, log2

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from ltr.losses import (
    XENDCG,
    CalibratedSoftmax,
    ListMLE,
    ListNet,
    PListMLE,
    PolyOneSoftmax,
    SoftmaxLoss,
    SoftmaxLossAtK,
    UniqueSoftmax,
)


def draw(*shape, grades=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    return scores, torch.randint(0, grades, shape, generator=generator).double()


def distinct(n, seed=0):
    s, _ = draw(n, seed=seed)
    return s, torch.randperm(n, generator=torch.Generator().manual_seed(seed)).double()


def cross_entropy(s, p):
    """Return the cross-entropy minus the entropy, by loops."""
    total = sum(exp(x) for x in s)
    mass = sum(p)
    p = [x / mass for x in p]
    return sum(q * (log(q) - log(exp(x) / total)) for x, q in zip(s, p, strict=True) if q > 0)


TARGETS = {
    "softmax": (SoftmaxLoss(), lambda y: y),
    "listnet": (ListNet(), exp),
    "listnet-2": (ListNet(2.0), lambda y: exp(y / 2)),
    "xe-ndcg": (XENDCG(), lambda y: 2**y - 0.5),
    "xe-ndcg-1": (XENDCG(1.0), lambda y: 2**y - 1),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("weighted", [False, True])
def test_divergence_from_the_labels_distribution(name, weighted):
    loss, target = TARGETS[name]
    s, y = draw(9)
    u = draw(9, seed=3)[0].abs() if weighted else torch.ones(9).double()
    p = [target(v) * w for v, w in zip(y.tolist(), u.tolist(), strict=True)]
    found = loss(s, y, weights=u if weighted else None)
    assert found.item() == pytest.approx(cross_entropy(s.tolist(), p), rel=1e-11)


@pytest.mark.parametrize("name", TARGETS)
def test_it_falls_to_0_at_the_distribution_itself(name):
    loss, target = TARGETS[name]
    y = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    s = torch.tensor([log(target(v)) for v in y.tolist()], dtype=torch.float64) + 5
    assert loss(s, y).item() == pytest.approx(0, abs=1e-12)


def test_softmax_is_scikit_learns_log_loss_of_the_relevant_item():
    s, _ = draw(6, 5)
    labels = torch.tensor([0, 4, 2, 2, 1, 3])
    one_hot = torch.nn.functional.one_hot(labels, 5).double()
    expected = log_loss(labels.numpy(), s.softmax(-1).numpy(), labels=np.arange(5))
    assert SoftmaxLoss()(s, one_hot).item() == pytest.approx(expected, rel=1e-12)
    cross = torch.nn.functional.cross_entropy(s, labels)
    assert SoftmaxLoss()(s, one_hot).item() == pytest.approx(cross.item(), rel=1e-12)


def test_the_gradient_is_that_of_the_cross_entropy():
    s, y = draw(4, 6)
    s.requires_grad_()
    p = y / y.sum(-1, keepdim=True)
    (expected,) = torch.autograd.grad(-(p * s.log_softmax(-1)).sum(-1).mean(), s)
    (found,) = torch.autograd.grad(SoftmaxLoss()(s, y), s)
    torch.testing.assert_close(found, expected)


def test_xe_ndcg_with_a_random_gamma_has_the_default_as_its_middle():
    s, y = draw(8)
    torch.manual_seed(0)
    loss = XENDCG("random")
    values = torch.stack([loss(s, y) for _ in range(300)])
    assert values.std() > 0
    assert values.min() < XENDCG()(s, y) < values.max()


def test_xe_ndcg_with_a_random_gamma_takes_its_mean_in_eval_mode():
    s, y = draw(3, 8)
    torch.testing.assert_close(XENDCG("random").eval()(s, y), XENDCG()(s, y))


def test_poly_one():
    s, y = draw(7)
    p, q = y / y.sum(), s.softmax(-1)
    expected = SoftmaxLoss()(s, y) + 0.7 * (1 - (p * q).sum())
    torch.testing.assert_close(PolyOneSoftmax(0.7)(s, y), expected)
    assert PolyOneSoftmax()(torch.tensor([90.0, 0.0]), torch.tensor([1.0, 0.0])) == 0


def test_calibrated_softmax_by_an_item_more_and_its_scale():
    s, y = draw(7)
    item = torch.zeros(1, dtype=torch.float64)
    expected = SoftmaxLoss()(torch.cat([s, item]), torch.cat([y, item + 0.3]))
    torch.testing.assert_close(CalibratedSoftmax(0.3)(s, y), expected)
    labels = torch.tensor([4.0, 2.0, 1.0], dtype=torch.float64)
    assert CalibratedSoftmax(0.5)((labels / 0.5).log(), labels).item() == pytest.approx(
        0, abs=1e-12
    )
    scores = torch.zeros(3, requires_grad=True)
    CalibratedSoftmax()(scores, torch.zeros(3)).backward()
    assert (scores.grad > 0).all()  # no relevant item: the scores should fall


def likelihood(s, order):
    return sum(log(sum(exp(s[j]) for j in order[k:])) - s[i] for k, i in enumerate(order))


@pytest.mark.parametrize("ties", ["mean", "random", "first"])
def test_list_mle_of_distinct_labels_is_the_likelihood_of_the_order(ties):
    s, y = distinct(7)
    order = y.argsort(descending=True).tolist()
    expected = likelihood(s.tolist(), order)
    assert ListMLE(ties=ties)(s, y).item() == pytest.approx(expected, rel=1e-12)


def test_the_likelihoods_of_all_orders_sum_to_1():
    s, _ = draw(5)
    total = 0.0
    for order in permutations(range(5)):
        y = torch.zeros(5, dtype=torch.float64)
        y[list(order)] = torch.arange(5, 0, -1).double()
        total += exp(-ListMLE()(s, y).item())
    assert total == pytest.approx(1, rel=1e-10)


def test_top_k_list_mle_has_the_first_terms():
    s, y = distinct(6)
    x = s.tolist()
    order = y.argsort(descending=True).tolist()
    terms = [log(sum(exp(x[j]) for j in order[k:])) - x[order[k]] for k in range(6)]
    assert ListMLE(2)(s, y).item() == pytest.approx(sum(terms[:2]), rel=1e-12)


def all_orders(y):
    groups = [[i for i, v in enumerate(y) if v == grade] for grade in sorted(set(y), reverse=True)]
    for parts in product(*(permutations(group) for group in groups)):
        yield [i for part in parts for i in part]


def test_ties_efrons_formula():
    s, y = draw(7, grades=3, seed=2)
    x, total = s.exp().tolist(), 0.0
    for grade in sorted(set(y.tolist()), reverse=True):
        tied = [i for i, v in enumerate(y.tolist()) if v == grade]
        below = sum(x[i] for i, v in enumerate(y.tolist()) if v < grade)
        mass, d = sum(x[i] for i in tied), len(tied)
        for gone, i in enumerate(tied):
            total += log(below + (1 - gone / d) * mass) - log(x[i]) - log(d - gone)
    assert ListMLE()(s, y).item() == pytest.approx(total, rel=1e-11)


def test_ties_are_the_mean_over_the_orders_where_tied_scores_are_equal():
    y = [2.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    s = [0.3, -1.0, -1.0, 0.7, 0.7, 0.7]
    orders = list(all_orders(y))
    mean = sum(likelihood(s, order) for order in orders) / len(orders)
    found = ListMLE()(torch.tensor(s).double(), torch.tensor(y).double()).item()
    assert found == pytest.approx(mean - log(len(orders)), rel=1e-6)
    likely = -log(sum(exp(-likelihood(s, order)) for order in orders))
    assert found == pytest.approx(
        likely, rel=1e-6
    )  # the likelihood of the labels as a partial order


def test_random_ties_draw_every_order_alike_on_ragged_lists():
    s = torch.tensor([[0.5, -1.0, 0.2, 9.0], [1.0, 0.0, 9.0, 9.0]], dtype=torch.float64)
    y = torch.tensor([[1.0, 1.0, 0.0, 5.0], [1.0, 0.0, 5.0, 5.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    torch.manual_seed(0)
    drawn = torch.stack([ListMLE(ties="random", reduction="none")(s, y, mask) for _ in range(400)])
    first, second = (likelihood([0.5, -1.0, 0.2], o) for o in ([0, 1, 2], [1, 0, 2]))
    is_first = torch.isclose(drawn[:, 0], torch.tensor(first).double())
    is_second = torch.isclose(drawn[:, 0], torch.tensor(second).double())
    assert (is_first | is_second).all()
    assert 140 < is_first.sum() < 260  # six standard deviations around 200
    expected = torch.full_like(drawn[:, 1], likelihood([1.0, 0.0], [0, 1]))
    torch.testing.assert_close(drawn[:, 1], expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("make", [partial(ListMLE, 3), ListMLE, PListMLE])
def test_random_ties_are_their_mean_in_eval_mode(make, weighted):
    y = torch.tensor([2.0, 1.0, 1.0, 0.0, 0.0, 0.0, 5.0], dtype=torch.float64)
    s = torch.tensor([0.3, -0.5, -0.5, 1.1, 1.1, 1.1, 9.0], dtype=torch.float64)
    w = torch.tensor([2.0, 0.5, 1.5, 1.0, 0.0, 3.0, 9.0]).double() if weighted else None
    mask = torch.arange(7) < 6
    loss, orders = make(ties="random").eval(), []
    for first in permutations([1, 2]):
        for second in permutations([3, 4, 5]):
            order = torch.tensor([0, *first, *second, 6])
            given = s[order], y[order], mask[order], None if w is None else w[order]
            orders.append(make(ties="first")(*given))
    # Efron's approximation is exact if the scores of tied items are equal.
    torch.testing.assert_close(loss(s, y, mask, w), torch.stack(orders).mean())
    state = torch.get_rng_state()
    assert loss(s, y, mask, w) == loss(s, y, mask, w)
    assert torch.equal(torch.get_rng_state(), state)


def test_random_ties_have_the_same_distribution_with_padding():
    s, y = draw(1, 5, grades=2)
    mask = torch.tensor([[True] * 5 + [False] * 3])
    padded = [torch.cat([x, torch.full((1, 3), torch.nan).double()], -1) for x in (s, y)]
    loss = ListMLE(ties="random")
    torch.manual_seed(0)
    plain = torch.stack([loss(s, y) for _ in range(2000)])
    hidden = torch.stack([loss(*padded, mask) for _ in range(2000)])
    values = [likelihood(s[0].tolist(), order) for order in all_orders(y[0].tolist())]
    error = 6 * np.std(values) / 2000**0.5
    assert plain.mean().item() == pytest.approx(np.mean(values), abs=error)
    assert hidden.mean().item() == pytest.approx(np.mean(values), abs=error)
    assert hidden.amin() == pytest.approx(min(values))


def test_ties_of_the_default_do_not_depend_on_the_order_of_the_list():
    s, y = draw(3, 9, grades=3)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(4))
    for loss in [ListMLE(), PListMLE(), UniqueSoftmax()]:
        torch.testing.assert_close(loss(s[:, order], y[:, order]), loss(s, y))


def test_equal_labels_define_no_order():
    for loss in [ListMLE(), ListMLE(ties="random"), ListMLE(ties="first"), PListMLE()]:
        scores = torch.randn(2, 5, requires_grad=True)
        value = loss(scores, torch.full((2, 5), 2.0))
        value.backward()
        assert value == 0
        assert (scores.grad == 0).all()


def test_p_list_mle_by_the_formula():
    s, y = distinct(6)
    x = s.tolist()
    order = y.argsort(descending=True).tolist()
    terms = [log(sum(exp(x[j]) for j in order[k:])) - x[order[k]] for k in range(6)]
    alpha = [2 ** (6 - k) - 1 for k in range(1, 7)]
    expected = sum(a * t for a, t in zip(alpha, terms, strict=True)) / alpha[0]
    assert PListMLE()(s, y).item() == pytest.approx(expected, rel=1e-12)
    expected = sum(t / log2(2 + k) for k, t in enumerate(terms))
    assert PListMLE("log2")(s, y).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n", [127, 128, 129, 1100, 3000])
def test_p_list_mle_of_long_lists(n):
    s, y = distinct(n)
    exact = PListMLE()(s, y).item()
    scores = s.float().requires_grad_()
    loss = PListMLE()(scores, y.float())
    loss.backward()
    assert scores.grad.isfinite().all()
    assert loss.item() == pytest.approx(exact, rel=1e-5)
    x = s[y.argsort(descending=True)].tolist()
    expected = sum(  # after 60 positions 2^-k adds nothing
        (2.0 ** (1 - k) - 2.0 ** (1 - n)) * (log(sum(map(exp, x[k - 1 :]))) - x[k - 1])
        for k in range(1, 60)
    )
    assert exact == pytest.approx(expected, rel=1e-12)


def test_weights_multiply_the_terms_of_list_mle():
    s, y = distinct(6)
    u = draw(6, seed=3)[0].abs()
    x, order = s.tolist(), y.argsort(descending=True).tolist()
    terms = [log(sum(exp(x[j]) for j in order[k:])) - x[order[k]] for k in range(6)]
    expected = sum(u[i].item() * t for i, t in zip(order, terms, strict=True))
    for ties in ("mean", "random", "first"):
        assert ListMLE(ties=ties)(s, y, weights=u).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("gain", ["exp2", "linear"])
def test_unique_softmax_by_loops(gain):
    s, y = draw(9)
    x, grades = s.tolist(), y.tolist()
    g = [2**v - 1 if gain == "exp2" else v for v in grades]
    total = 0.0
    for i in range(9):
        rivals = sum(exp(x[j]) for j in range(9) if grades[j] < grades[i])
        total += g[i] * log(1 + rivals / exp(x[i]))
    assert UniqueSoftmax(gain)(s, y).item() == pytest.approx(total / sum(g), rel=1e-11)


def test_unique_softmax_by_tf_rankings_documented_values():
    loss = UniqueSoftmax()
    scores, labels = torch.tensor([0.6, 0.8]), torch.tensor([1.0, 0.0])
    assert loss(scores, labels).item() == pytest.approx(0.7981389, abs=1e-6)
    ragged = torch.tensor([[0.6, 0.8, 0.0], [0.5, 0.8, 0.4]])
    labels = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    mask = torch.tensor([[True, True, False], [True] * 3])
    assert loss(ragged, labels, mask).item() == pytest.approx(0.83911896, abs=1e-6)


LOSSES = [
    SoftmaxLoss(),
    ListNet(),
    XENDCG(),
    PolyOneSoftmax(),
    CalibratedSoftmax(),
    UniqueSoftmax(),
    ListMLE(),
    PListMLE(),
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("gap", [25.0, 60.0, 90.0, 120.0])
def test_a_list_that_is_very_wrong_has_a_full_gradient(loss, gap):
    scores = torch.tensor([0.0, gap, -gap], requires_grad=True)
    value = loss(scores, torch.tensor([2.0, 0.0, 1.0]))
    value.backward()
    assert value.isfinite()
    assert value > 0.2 * gap
    assert scores.grad.isfinite().all()
    assert scores.grad[0] < -0.3
    assert scores.grad[1] > 0.3


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("least", [31, 124, 200])
def test_large_and_float_labels(loss, least):
    s, y = draw(3, 8)
    y = y / 2 + least
    exact = loss(s, y)
    scores = s.float().requires_grad_()
    value = loss(scores, y.float())
    value.backward()
    assert scores.grad.isfinite().all()
    assert scores.grad.abs().max() > 0
    assert value.item() == pytest.approx(exact.item(), rel=1e-4)


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"gamma.*2"):
        XENDCG(2)
    with pytest.raises(ValueError, match=r"ties.*'last'"):
        ListMLE(ties="last")
    with pytest.raises(ValueError, match=r"anchor.*0"):
        CalibratedSoftmax(0)
    with pytest.raises(ValueError, match=r"epsilon.*-1"):
        PolyOneSoftmax(-1)
    with pytest.raises(ValueError, match=r"gain.*'exp'"):
        UniqueSoftmax("exp")
    with pytest.raises(ValueError, match=r"discount.*3"):
        PListMLE(3)


def test_weighted_ties_of_list_mle_are_never_below_0_and_have_the_gradient_of_the_mean_order():
    # labels (1, 1, 0): the mean of both tied orders, with weighted terms, as in Efron
    s = torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64, requires_grad=True)
    labels, weights = torch.tensor([1.0, 1.0, 0.0]), torch.tensor([4.0, 1.0, 1.0])
    loss = ListMLE()(s, labels, None, weights)
    e = s.exp()
    rests = [e.sum(), (e[0] + e[1]) / 2 + e[2]]
    plain = 2.5 * sum(rest.log() for rest in rests) - 4 * s[0] - s[1]
    (found,), (expected,) = (torch.autograd.grad(x, s, retain_graph=True) for x in (loss, plain))
    torch.testing.assert_close(found, expected)
    best = torch.tensor([log(4.0), 0.0, -100.0], dtype=torch.float64)
    assert ListMLE()(best, labels, None, weights).item() == pytest.approx(0, abs=1e-12)
    for gap in torch.linspace(-5, 5, 21):
        moved = best + torch.tensor([gap, 0.0, 0.0])
        assert ListMLE()(moved, labels, None, weights) >= -1e-12


@pytest.mark.parametrize("top_k", [1, 3, 5, 6])
@pytest.mark.parametrize("gain", ["linear", "exp2"])
def test_softmax_at_k_is_its_formula_with_the_sigmoids_fixed_in_the_gradient(top_k, gain):
    s, y = draw(5, seed=top_k)
    weights = torch.rand(5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    scores = s.clone().requires_grad_()
    loss = SoftmaxLossAtK(top_k, 0.5, 2.0, gain)(scores, y, weights=weights)
    (grad,) = torch.autograd.grad(loss, scores)
    cut = sorted(s.tolist(), reverse=True)[top_k - 1] if top_k <= 5 else -np.inf
    sigmoids = [1 / (1 + np.exp(-(x - cut) / 2.0)) for x in s.tolist()]

    def formula(s):
        gains = [
            w * (2**label - 1 if gain == "exp2" else label)
            for w, label in zip(weights, y, strict=True)
        ]
        terms = [
            g * sigmoid * log(sum(exp((z - x) / 0.5) for z in s))
            for g, x, sigmoid in zip(gains, s, sigmoids, strict=True)
        ]
        return float(sum(terms) / sum(gains))

    assert loss.item() == pytest.approx(formula(s.tolist()), rel=1e-12)
    for i in range(5):
        step = 1e-6 * np.eye(5)[i]
        slope = (formula(s.numpy() + step) - formula(s.numpy() - step)) / 2e-6
        assert grad[i].item() == pytest.approx(slope, rel=1e-6, abs=1e-9)


def test_softmax_at_k_of_short_lists_is_the_cross_entropy():
    s, y = draw(3, 6, grades=2)
    y[:, 0] = 1
    mask = torch.arange(6) < torch.tensor([[6], [4], [1]])
    found = SoftmaxLossAtK(7, reduction="none")(s, y, mask)
    p = torch.where(mask, y, 0.0)
    entropy = p.sum(-1).log()  # of equal shares, which SoftmaxLoss subtracts
    torch.testing.assert_close(found, SoftmaxLoss(reduction="none")(s, y, mask) + entropy)
    at_5 = SoftmaxLossAtK(5, reduction="none")(s, y, mask)  # the second and third list are shorter
    torch.testing.assert_close(at_5[1:], found[1:])
    assert at_5[0] < found[0]
    assert SoftmaxLossAtK()(torch.randn(4), torch.zeros(4)) == 0
    assert SoftmaxLossAtK(1)(torch.randn(1), torch.ones(1)) == 0


def test_softmax_at_k_names_what_is_wrong():
    for options, named in [
        ({"top_k": 0}, "top_k.* 0"),
        ({"temperature": 0.0}, "temperature.* 0"),
        ({"weight_temperature": -1.0}, "weight_temperature.* -1"),
        ({"gain": "cubic"}, "gain.* 'cubic'"),
    ]:
        with pytest.raises(ValueError, match=named):
            SoftmaxLossAtK(**options)


def log_sum(x):
    """Return `logsumexp`, whose own gradient is wrong where its result is large."""
    top = x.detach().max()
    return (x - top).logsumexp(0) + top


def unique_softmax_by_differences(s, y, gain):
    """The definition in float64, in which only differences of scores occur."""
    terms, gains = [], []
    for i in range(len(y)):
        lower = [j for j in range(len(y)) if y[j] < y[i]]
        if lower and gain(y[i]) > 0:
            highest = s[lower].detach().max()
            terms.append(torch.logaddexp(0 * s[i], (highest - s[i]) + log_sum(s[lower] - highest)))
        else:
            terms.append(0 * s[i])
        gains.append(gain(y[i]))
    return sum(g * t for g, t in zip(gains, terms, strict=True)) / max(sum(gains), 1e-300)


def list_mle_by_differences(s, y, weight):
    """Efron's formula in float64, in which only differences of scores occur."""
    total, position = 0 * s.sum(), 0
    for label in sorted(set(y), reverse=True):
        tied = [i for i in range(len(y)) if y[i] == label]
        below = [i for i in range(len(y)) if y[i] < label]
        d, mean = len(tied), sum(weight(position + a) for a in range(len(tied))) / len(tied)
        highest = s[tied + below].detach().max()
        for a, i in enumerate(tied):
            logs = torch.tensor([log(1 - a / d)] * d + [0.0] * len(below)).double()
            inner = log_sum(s[tied + below] - highest + logs) - log(d - a)
            total = total + weight(position + a) * inner + mean * (highest - s[i])
        position += d
    return total if len(set(y)) > 1 else 0 * s.sum()


def paper_weight(n):
    """The weight of position k, from 0, of p-ListMLE."""
    return lambda k: (2 ** (n - 1 - k) - 1) / (2 ** (n - 1) - 1) if n > 1 else 1.0


BY_DIFFERENCES = {
    "unique": (
        UniqueSoftmax(),
        lambda s, y: unique_softmax_by_differences(s, y, lambda v: 2**v - 1),
    ),
    "unique-linear": (
        UniqueSoftmax("linear"),
        lambda s, y: unique_softmax_by_differences(s, y, lambda v: v),
    ),
    "mle": (ListMLE(), lambda s, y: list_mle_by_differences(s, y, lambda k: 1.0)),
    "mle-2": (ListMLE(2), lambda s, y: list_mle_by_differences(s, y, lambda k: float(k < 2))),
    "p-mle": (PListMLE(), lambda s, y: list_mle_by_differences(s, y, paper_weight(len(y)))),
}
wild = st.builds(
    lambda digits, power: float(np.float32(digits * 10.0**power)),
    st.floats(-9.9, 9.9),
    st.sampled_from([-3, 0, 0, 0, 1, 3, 6, 9, 12, 30]),
)
wild_lists = st.lists(st.tuples(wild, st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=7)


@pytest.mark.parametrize("name", BY_DIFFERENCES)
@given(items=wild_lists, offset=st.sampled_from([0.0, 0.0, 2.0**20, -1e9]))
@example(items=[(0.0, 0, 0), (-5.0, 1, 0), (1e9, 1, 0)], offset=0.0)
@example(items=[(0.0, 0, 0), (-5.0, 1, 0), (1e9, 2, 0)], offset=0.0)
@example(items=[(3.0, 0, 0), (2.0, 2, 0), (-1e9, 1, 0), (1e30, 3, 0)], offset=0.0)
@example(items=[(1.5, 0, 0), (0.5, 1, 0), (0.25, 1, 0), (-2.0, 2, 0)], offset=2.0**20)
@settings(max_examples=100, deadline=None)
def test_items_far_below_the_largest_score_count_in_float32(name, items, offset):
    loss, definition = BY_DIFFERENCES[name]
    s = torch.tensor([x[0] + (offset if x[2] else 0.0) for x in items]).requires_grad_()
    y = [float(x[1]) for x in items]
    found = loss(s, torch.tensor(y))
    (slope,) = torch.autograd.grad(found, s)
    exact = s.detach().double().requires_grad_()
    expected = definition(exact, y)
    (wanted,) = torch.autograd.grad(expected, exact)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(slope.double(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ties", ["first", "mean"])
def test_the_largest_scores_of_float32_have_finite_gradients(ties):
    for loss in (UniqueSoftmax(), ListMLE(ties=ties)):
        s = torch.tensor([-3e38, -3e38, 3e38, -3e38]).requires_grad_()
        found = loss(s, torch.tensor([1.0, 1.0, 1.0, 0.0]))
        (slope,) = torch.autograd.grad(found, s)
        assert slope.isfinite().all() or not found.isfinite()
