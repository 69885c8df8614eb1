"""SoftNDCG compared with its formula, its hard limit and scikit-learn."""

import itertools
from contextlib import contextmanager
from math import exp, log, log2

import pytest
import torch
from loss_table import draw
from sklearn.metrics import ndcg_score

from ltr.gains import log2_discount
from ltr.kernels import use
from ltr.kernels.choice import computed_by
from ltr.kernels.reference import REFERENCE
from ltr.losses import LambdaRank, PointwiseMSE, SoftmaxLoss, SoftNDCG, UniqueSoftmax
from ltr.losses.ndcg import first_gains
from ltr.metrics.functional import dcg, ndcg
from ltr.operators import (
    HardRank,
    RankOperator,
    SigmoidRank,
    SoftplusRank,
    SoftSort,
    Standardized,
    Stochastic,
    StraightThrough,
)


def test_approx_ndcg_by_the_formula():
    scores = torch.tensor([1.0, 0.0], dtype=torch.float64)
    sigmoid = 1 / (
        1 + torch.tensor(1 / 0.5, dtype=torch.float64).exp()
    )  # of the gap 1 at temperature 0.5
    first, second = 1 + sigmoid, 2 - sigmoid
    dcg = 1 / torch.log2(1 + first) + 3 / torch.log2(1 + second)
    expected = 1 - dcg / (3 / log2(2) + 1 / log2(3))
    loss = SoftNDCG(SigmoidRank(0.5), mean="arithmetic")(scores, torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(loss, expected)


OPERATORS = [SoftSort(0.3), SoftSort(0.3, power=2), SigmoidRank(0.3)]


@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
@pytest.mark.parametrize("gain", ["exp2", "linear"])
def test_any_operator_by_the_formula(operator, gain):
    scores = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(0, 4, (4, 6), generator=torch.Generator().manual_seed(1)).double()
    loss = SoftNDCG(operator, gain=gain, reduction="none", mean="arithmetic")(scores, labels)
    for s, y, value in zip(scores, labels, loss, strict=True):
        gains = [2 ** v.item() - 1 if gain == "exp2" else v.item() for v in y]
        dcg = sum(g / log2(1 + r) for g, r in zip(gains, operator(s).tolist(), strict=True))
        ideal = sum(g / log2(2 + i) for i, g in enumerate(sorted(gains, reverse=True)))
        assert value.item() == pytest.approx(1 - dcg / ideal, abs=1e-12)


@pytest.mark.parametrize("top_k", [None, 1, 3, 20])
@pytest.mark.parametrize("operator", [HardRank(), SoftSort(0), SigmoidRank(0)], ids=repr)
def test_hard_ranks_make_it_the_metric(operator, top_k):
    scores = torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(0, 4, (20, 8), generator=torch.Generator().manual_seed(1)).float()
    mask = torch.rand(20, 8, generator=torch.Generator().manual_seed(2)) < 0.8
    labels[:3] = 0
    loss = SoftNDCG(operator, top_k, reduction="none", mean="arithmetic")(scores, labels, mask)
    metric = ndcg(scores, labels, mask=mask, top_k=top_k, empty=1, reduction="none")
    torch.testing.assert_close(1 - loss, metric)


def test_the_soft_loss_tends_to_one_minus_scikit_learns_ndcg():
    scores = torch.randn(10, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(0, 4, (10, 8), generator=torch.Generator().manual_seed(1)).double()
    expected = 1 - ndcg_score((2**labels - 1).numpy(), scores.numpy())
    for operator in [SoftSort(1e-6), SigmoidRank(1e-6)]:
        assert SoftNDCG(operator, mean="arithmetic")(scores, labels).item() == pytest.approx(
            expected, abs=1e-9
        )


def test_the_soft_cut_at_k_is_near_the_hard_one():
    scores = torch.randn(50, 20, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(0, 3, (50, 20), generator=torch.Generator().manual_seed(1)).float()
    soft = SoftNDCG(SigmoidRank(1e-4), top_k=5, mean="arithmetic")(scores, labels)
    assert soft.item() == pytest.approx(1 - ndcg(scores, labels, top_k=5).item(), abs=0.02)


def test_an_item_just_outside_the_cut_has_a_gradient():
    scores = torch.tensor([3.0, 2.0, 1.0, 0.0], requires_grad=True)
    SoftNDCG(SigmoidRank(0.3), top_k=2, mean="arithmetic")(
        scores, torch.tensor([0.0, 0.0, 1.0, 0.0])
    ).backward()
    assert scores.grad[2] < -1e-4


def test_a_cut_far_before_all_soft_ranks_does_not_stop_the_training():
    generator = torch.Generator().manual_seed(0)
    scores = (torch.randn(4, 150, generator=generator) * 0.01).requires_grad_()
    labels = (torch.rand(4, 150, generator=generator) < 0.1).float()
    loss, optimizer = (
        SoftNDCG(SigmoidRank(1.0), top_k=10, mean="arithmetic"),
        torch.optim.Adam([scores], lr=0.1),
    )
    assert SigmoidRank(1.0)(scores).min() > 70  # all items are far after rank 10
    for _ in range(100):
        optimizer.zero_grad()
        loss(scores, labels).backward()
        optimizer.step()
    assert ndcg(scores.detach(), labels, top_k=10) > 0.9


def test_weights_multiply_gains_and_the_ideal():
    scores, labels = torch.tensor([2.0, 1.0]), torch.tensor([1.0, 1.0])
    weights = torch.tensor([0.0, 5.0])
    loss = SoftNDCG(HardRank(), mean="arithmetic")(scores, labels, weights=weights)
    assert loss.item() == pytest.approx(1 - 1 / log2(3))


def test_soft_ndcg_may_pass_1_with_softsort_ranks():
    scores = torch.cat([torch.tensor([5.6]), torch.zeros(100)])
    labels = torch.cat([torch.ones(1), torch.zeros(100)])
    assert SoftNDCG(SoftSort(1.0), mean="arithmetic")(scores, labels) < 0


def test_an_operator_with_samples_is_averaged():
    class Shifted(RankOperator):
        def forward(self, scores, mask=None, weights=None):
            return torch.stack([HardRank()(scores) + shift for shift in (0.0, 1.0, 2.0)])

    scores, labels = torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    loss = SoftNDCG(Shifted(), reduction="none", mean="arithmetic")(scores, labels)
    expected = [1 - sum(1 / log2(1 + r + s) for s in range(3)) / 3 for r in (1, 2)]
    torch.testing.assert_close(loss, torch.tensor(expected))


def test_a_function_as_gain_and_discount():
    scores, labels = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 0.0])
    loss = SoftNDCG(
        HardRank(), gain=torch.square, discount=lambda ranks: 1 / ranks, mean="arithmetic"
    )
    assert loss(scores, labels).item() == pytest.approx(1 - 1 / 2)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "measured",
    [
        lambda *lists, gain: SoftNDCG(gain=gain)(*lists),
        lambda *lists, gain: SoftNDCG(top_k=2, gain=gain, mean="tight")(*lists),
        lambda *lists, gain: LambdaRank(gain=gain)(*lists),
        lambda *lists, gain: UniqueSoftmax(gain=gain, normalize=False)(*lists),
        lambda scores, labels, mask, gain: ndcg(scores, labels, mask=mask, gain=gain),
        lambda scores, labels, mask, gain: dcg(scores, labels, top_k=2, mask=mask, gain=gain),
    ],
)
def test_a_condition_as_gain(measured, masked):
    scores, labels = draw(3, 6)
    mask = torch.arange(6) < torch.tensor([[4], [5], [6]]) if masked else None
    found = measured(scores, labels, mask, gain=lambda y: y >= 2)
    expected = measured(scores, labels, mask, gain=lambda y: (y >= 2).to(y.dtype))
    torch.testing.assert_close(found, expected)
    assert found > 0


def test_letor4_discount_does_not_discount_rank_2():
    scores, labels = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0])
    assert SoftNDCG(HardRank(), discount="letor4", mean="arithmetic")(scores, labels) == 0


@pytest.mark.parametrize("operator", ["SoftSort", SoftSort, torch.nn.Linear(2, 2), 0.1], ids=repr)
@pytest.mark.parametrize("kind", [SoftNDCG, Stochastic, StraightThrough])
def test_an_argument_that_is_not_an_operator_is_refused(kind, operator):
    with pytest.raises(ValueError, match="operator must"):
        kind(operator)


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"gain.*'exp'"):
        SoftNDCG(gain="exp")
    with pytest.raises(ValueError, match=r"discount.*3"):
        SoftNDCG(discount=3)
    with pytest.raises(ValueError, match=r"top_k.*0"):
        SoftNDCG(top_k=0)


def test_pointwise_mse_by_the_formula():
    loss = PointwiseMSE(reduction="none")
    scores, labels = torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[0.0, 1.0, 0.0]])
    mask = torch.tensor([[True, True, False]])
    weights = torch.tensor([[3.0, 1.0, 7.0]])
    assert loss(scores, labels, mask).tolist() == [(1 + 4) / 2]
    assert loss(scores, labels, mask, weights).tolist() == [(3 * 1 + 4) / 4]
    assert loss(scores, labels, mask, 0 * weights).tolist() == [0]


def test_discount_at_rank_1_is_1():
    assert log2_discount(torch.ones(())) == 1


@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
@pytest.mark.parametrize("gain", ["exp2", "linear"])
def test_the_harmonic_mean_by_the_formula(operator, gain):
    scores = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(0, 4, (4, 6), generator=torch.Generator().manual_seed(1)).double()
    labels[0] = 0
    mask = torch.rand(4, 6, generator=torch.Generator().manual_seed(2)) < 0.8
    loss = SoftNDCG(operator, gain=gain, mean="harmonic", reduction="none")(scores, labels, mask)
    for s, y, m, value in zip(scores, labels, mask, loss, strict=True):
        gains = [2 ** v.item() - 1 if gain == "exp2" else v.item() for v in y[m]]
        cost = sum(g * log2(1 + r) for g, r in zip(gains, operator(s[m]).tolist(), strict=True))
        least = sum(g * log2(2 + i) for i, g in enumerate(sorted(gains, reverse=True)))
        expected = 1 - least / cost if sum(gains) else 0
        assert value.item() == pytest.approx(expected, abs=1e-12)


def test_the_harmonic_mean_bounds_ndcg():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(200, 9, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, 4, (200, 9), generator=generator).double()
    labels[:, 0] = 1
    order = labels.sort(descending=True).values
    ideal = ndcg(order, order, reduction="none")
    torch.testing.assert_close(ideal, torch.ones_like(ideal))
    gains, best = 2**labels - 1, 2**order - 1
    positions = torch.arange(1, 10).double()
    # the DCG is at least that of the harmonic mean: gains summed times 1 / mean inverse discount
    least = (best * (1 + positions).log2()).sum(-1)
    dcg = (best / (1 + positions).log2()).sum(-1)
    constant = gains.sum(-1).square() / (least * dcg)  # <= 1, by Cauchy and Schwarz
    harmonic = 1 - SoftNDCG(HardRank(), mean="harmonic", reduction="none")(scores, labels)
    assert (constant <= 1 + 1e-12).all()
    assert (ndcg(scores, labels, reduction="none") >= constant * harmonic - 1e-12).all()


def test_only_an_ideal_order_has_the_loss_0():
    labels = torch.tensor([2.0, 1.0, 0.0])
    for scores in itertools.permutations([3.0, 2.0, 1.0]):
        loss = SoftNDCG(HardRank())(torch.tensor(scores), labels).item()
        assert (loss == pytest.approx(0, abs=1e-7)) == (scores == (3.0, 2.0, 1.0))


def test_a_relevant_item_far_down_pulls_harder_than_with_the_arithmetic_mean():
    scores = torch.linspace(5, -5, 200, dtype=torch.float64)
    labels = torch.zeros(200, dtype=torch.float64)
    labels[[0, 150]] = 1
    pulls = {}
    for mean in ("harmonic", "arithmetic"):
        x = scores.clone().requires_grad_()
        SoftNDCG(SigmoidRank(1.0), mean=mean)(x, labels).backward()
        pulls[mean] = x.grad[150] / x.grad.abs().max()
    assert pulls["harmonic"] < 3 * pulls["arithmetic"] < 0


def test_a_network_learns_an_interaction_that_the_arithmetic_mean_misses():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 20, 6, generator=generator)
    target = (3 * x[..., 0]).sin() + x[..., 1] * x[..., 2]
    labels = (target.argsort(-1).argsort(-1) >= 16).float()
    found = {}
    for mean in ("harmonic", "arithmetic"):
        torch.manual_seed(0)
        layers = torch.nn.Linear(6, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
        network = torch.nn.Sequential(*layers)
        loss, optimizer = (
            SoftNDCG(SigmoidRank(1.0), mean=mean),
            torch.optim.Adam(network.parameters(), lr=0.01),
        )
        for _ in range(150):
            optimizer.zero_grad()
            loss(network(x).squeeze(-1), labels).backward()
            optimizer.step()
        found[mean] = ndcg(network(x).squeeze(-1).detach(), labels).item()
    assert found["harmonic"] > found["arithmetic"] + 0.02


@pytest.mark.parametrize("operator", [*OPERATORS, SoftplusRank(0.5)], ids=repr)
@pytest.mark.parametrize("gain", ["exp2", "linear"])
@pytest.mark.parametrize("discount", ["log2", "letor4"])
def test_the_regret_by_the_formula(operator, gain, discount):
    scores, labels = draw(4, 6)
    labels[0] = 0
    mask = torch.rand(4, 6, generator=torch.Generator().manual_seed(2)) < 0.8
    weights = torch.rand(4, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def cost(rank):
        return log2(1 + rank) if discount == "log2" else log2(max(rank, 2))

    loss = SoftNDCG(operator, None, gain, discount, mean="regret", reduction="none")
    found = loss(scores, labels, mask, weights)
    ragged = loss(scores[mask], labels[mask], None, weights[mask], lengths=mask.sum(-1))
    torch.testing.assert_close(ragged, found)
    assert found[0] == 0  # no relevant item
    for s, y, w, m, value in zip(scores, labels, weights, mask, found, strict=True):
        grades = [2 ** v.item() - 1 if gain == "exp2" else v.item() for v in y[m]]
        gains = [g * v for g, v in zip(grades, w[m].tolist(), strict=True)]
        soft = sum(g * cost(r) for g, r in zip(gains, operator(s[m]).tolist(), strict=True))
        least = sum(g * cost(1 + i) for i, g in enumerate(sorted(gains, reverse=True)))
        expected = (soft - least) / sum(gains) if sum(gains) else 0
        assert value.item() == pytest.approx(expected, abs=1e-12)


def test_the_regret_is_over_softplus_ranks_by_default():
    scores, labels = draw(4, 6)
    loss = SoftNDCG(mean="regret")
    assert isinstance(loss.operator, SoftplusRank)
    assert loss.operator.temperature == 1
    bounds = 1 + torch.tensor(
        [
            [
                sum(log2(1 + exp(t - s)) for j, t in enumerate(row) if j != i)
                for i, s in enumerate(row)
            ]
            for row in scores.tolist()
        ]
    )
    gains = 2**labels - 1
    mean = (gains * (1 + bounds).log2()).sum(-1) / gains.sum(-1)
    best = (gains.sort(descending=True).values * (2 + torch.arange(6)).log2()).sum(-1)
    torch.testing.assert_close(loss(scores, labels), (mean - best / gains.sum(-1)).mean())


@pytest.mark.parametrize("temperature", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 100.0])
def test_the_regret_bounds_those_of_the_hard_order_and_of_dcg(temperature, scale):
    scores, labels = draw(200, 8)
    scores, labels[:, 0] = scale * scores, 1
    options = {"mean": "regret", "reduction": "none"}
    soft = SoftNDCG(SoftplusRank(temperature), **options)(scores, labels)
    hard = SoftNDCG(HardRank(), **options)(scores, labels)
    gains = 2**labels - 1
    best = (gains.sort(descending=True).values / (2 + torch.arange(8)).log2()).sum(-1)
    lost = (1 - ndcg(scores, labels, ties="stable", reduction="none")) * best / gains.sum(-1)
    assert (soft >= hard - 1e-12).all()
    assert (hard >= lost - 1e-12).all()
    assert (lost >= -1e-12).all()


def test_the_regret_of_one_relevant_item_tends_to_0():
    labels = torch.tensor([0.0, 1.0, 0.0])
    scores = torch.tensor([0.0, 40.0, 1.0])
    loss = SoftNDCG(mean="regret")
    assert loss(scores, labels).item() == pytest.approx(0, abs=1e-6)
    worst = (-10 * scores).requires_grad_()
    far = loss(worst, labels)
    assert far.item() == pytest.approx(log2(1 + 1 + 790 / log(2)) - 1, rel=1e-5)
    (gradient,) = torch.autograd.grad(far, worst)
    assert gradient[1] < -1e-3  # one over the rank, at any distance


def test_derivatives_of_the_regret():
    scores, labels = draw(3, 5)
    labels[0] = 0
    mask = torch.tensor([[True] * 5, [True] * 5, [True] * 3 + [False] * 2])
    loss, x = SoftNDCG(mean="regret", reduction="none"), scores.clone().requires_grad_()
    for form in ("dense", "sums"):
        with use(form):
            assert torch.autograd.gradcheck(lambda x: loss(x, labels, mask), x)
            assert torch.autograd.gradgradcheck(lambda x: loss(x, labels, mask), x)


def tight_by_loops(scores, gains, temperature, cost):
    """Return the tight regret of one list from its definition."""
    items, total = range(len(scores)), sum(gains)
    best = sorted(items, key=lambda i: (-gains[i], -scores[i]))
    found = 0.0
    for position, i in enumerate(best, 1):
        lower = [j for j in items if gains[j] < gains[i]]
        bound = position + sum(
            log(1 + exp((scores[j] - scores[i]) / temperature)) / log(2) for j in lower
        )
        found += gains[i] * (cost(bound) - cost(position))
    return found / total if total else 0.0


BOTH_FORMS = pytest.mark.parametrize("form", ["dense", "sums", "tiles"])


@contextmanager
def computed(form):
    """Compute with matrices, in sort time, or in tiles, as on a GPU or with many grades."""
    with use("dense" if form == "dense" else "sums"):
        if form == "tiles":
            with computed_by(REFERENCE):
                yield
        else:
            yield


@BOTH_FORMS
@pytest.mark.parametrize("gain", ["exp2", "linear"])
@pytest.mark.parametrize(("discount", "top_k"), [("log2", None), ("letor4", None), ("log2", 3)])
def test_the_tight_regret_by_the_formula(form, gain, discount, top_k):
    scores, labels = draw(6, 9)
    labels[0], scores[1] = 0, scores[1].round()  # ties
    mask = torch.rand(6, 9, generator=torch.Generator().manual_seed(2)) < 0.8
    draws = torch.rand(6, 9, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    operator = SoftplusRank(0.7)
    loss = SoftNDCG(operator, top_k, gain, discount, mean="tight", reduction="none")

    def cost(rank):
        return log2(1 + rank) if discount == "log2" else log2(max(rank, 2))

    for weights in (None, draws):
        with computed(form):
            found = loss(scores, labels, mask, weights)
            each = weights if weights is None else weights[mask]
            ragged = loss(scores[mask], labels[mask], None, each, lengths=mask.sum(-1))
            each = (x for x in (scores, labels, mask, weights) if x is not None)
            torch.testing.assert_close(torch.func.vmap(loss)(*each), found)
        torch.testing.assert_close(ragged, found)
        for row in range(6):
            real = mask[row]
            y = labels[row][real]
            gains = 2**y - 1 if gain == "exp2" else y
            gains = gains if weights is None else gains * weights[row][real]
            gains = gains if top_k is None else first_gains(gains, top_k)
            expected = tight_by_loops(scores[row][real].tolist(), gains.tolist(), 0.7, cost)
            assert found[row].item() == pytest.approx(expected, abs=1e-12)


def test_the_tight_regret_ends_at_0_where_the_regret_grows():
    scores, labels = torch.tensor([40.0, 30.0, 0.0, 0.0]), torch.tensor([1.0, 1.0, 0.0, 0.0])
    assert SoftNDCG(mean="tight")(scores, labels) == 0
    assert SoftNDCG()(scores, labels).item() == pytest.approx(1.2265, abs=1e-4)
    # The least regret with such labels: both relevant items are tied, far above the others.
    tied = torch.tensor([40.0, 40.0, 0.0, 0.0])
    least = log2(3) - (1 + log2(3)) / 2
    assert SoftNDCG()(tied, labels).item() == pytest.approx(least, abs=1e-4)
    assert least == pytest.approx(0.2925, abs=1e-4)


@pytest.mark.parametrize("temperature", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 100.0])
def test_the_tight_regret_bounds_that_of_the_hard_order(temperature, scale):
    scores, labels = draw(200, 8)
    scores, labels[:, 0] = scale * scores, 1
    weights = torch.rand(200, 8, generator=torch.Generator().manual_seed(5)).double()
    for more in ({}, {"weights": weights}):
        tight = SoftNDCG(SoftplusRank(temperature), mean="tight", reduction="none")
        hard = SoftNDCG(HardRank(), mean="regret", reduction="none")
        assert (tight(scores, labels, **more) >= hard(scores, labels, **more) - 1e-12).all()


@BOTH_FORMS
def test_the_tight_regret_of_an_ideal_order_falls_to_0_as_it_gets_surer(form):
    _, labels = draw(50, 12, seed=4)
    labels[:, 0] = 1
    noise = torch.rand(50, 12, generator=torch.Generator().manual_seed(1)).double()
    ideal = 2 * labels + noise  # in the order of the labels
    loss = SoftNDCG(mean="tight", reduction="none")
    with computed(form):
        values = torch.stack([loss(scale * ideal, labels) for scale in (0, 0.1, 1, 3, 10, 100)])
    assert (values.diff(dim=0) <= 1e-12).all()
    assert (values[-1] < 1e-12).all()
    assert (values[0] > 0.01)[(labels == 0).any(-1)].all()


@BOTH_FORMS
def test_a_larger_gap_between_right_pairs_never_costs_more(form):
    scores, labels = draw(300, 9, seed=6)
    labels[:, 0] = 2
    loss = SoftNDCG(mean="tight", reduction="none")
    with computed(form):
        before = loss(scores, labels)
        best = labels == labels.amax(-1, keepdim=True)  # a rise of these makes right pairs surer
        for raised in (best, best & (torch.arange(9) % 2 == 0), labels > 0):
            assert (loss(scores + 0.7 * raised, labels) <= before + 1e-12).all()
        lowest = labels == labels.amin(-1, keepdim=True)
        assert (loss(scores - 3.0 * lowest, labels) <= before + 1e-12).all()
        one = lowest & (lowest.cumsum(-1) == 1)
        assert (loss(scores - 0.3 * one, labels) <= before + 1e-12).all()


@BOTH_FORMS
def test_derivatives_of_the_tight_regret(form):
    scores, labels = draw(3, 7)
    labels[0] = 0
    mask = torch.arange(7) < torch.tensor([[7], [7], [4]])
    weights = torch.rand(3, 7, generator=torch.Generator().manual_seed(3)).double()
    loss, x = SoftNDCG(mean="tight", reduction="none"), scores.clone().requires_grad_()
    with computed(form):
        for given in (mask, None), (mask, weights):
            assert torch.autograd.gradcheck(lambda x, given=given: loss(x, labels, *given), x)
            assert torch.autograd.gradgradcheck(lambda x, given=given: loss(x, labels, *given), x)
        whole = torch.autograd.grad(loss(x, labels).sum(), x)[0]
        each = torch.func.vmap(torch.func.grad(SoftNDCG(mean="tight")))(scores, labels)
        torch.testing.assert_close(each, whole)
        outer = torch.func.vmap(loss)(x, labels).sum()
        torch.testing.assert_close(torch.autograd.grad(outer, x)[0], whole)


def test_the_tight_regret_of_many_grades_and_of_long_lists():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 700, generator=generator).double()
    mask = torch.arange(700) < torch.tensor([[700], [650]])
    loss = SoftNDCG(gain="linear", mean="tight", reduction="none")
    for labels in (
        torch.randint(0, 5, (2, 700), generator=generator).double(),
        torch.rand(2, 700, generator=generator).double(),  # 700 grades
    ):
        found = []
        for form in ("dense", "sums", "tiles"):
            x = scores.clone().requires_grad_()
            with computed(form):
                value = loss(x, labels, mask)
            found.append((value, torch.autograd.grad(value.sum(), x)[0]))
        for other in found[1:]:
            torch.testing.assert_close(other, found[0], rtol=1e-10, atol=1e-13)
        x = scores.float().requires_grad_()
        value = loss(x, labels.float(), mask)
        torch.testing.assert_close(value.double(), found[0][0], rtol=1e-5, atol=0)
        slopes = torch.autograd.grad(value.sum(), x)[0].double()
        assert (slopes - found[0][1]).abs().max() < 1e-5 * found[0][1].abs().max()


@pytest.mark.parametrize("operator", [HardRank(), SigmoidRank(0.5), SoftSort()], ids=repr)
def test_the_tight_regret_needs_softplus_ranks(operator):
    with pytest.raises(ValueError, match=r"operator.*SoftplusRank.*tight"):
        SoftNDCG(operator, mean="tight")


@pytest.mark.parametrize("mean", ["geometric", None, 1])
def test_another_mean_is_refused(mean):
    with pytest.raises(ValueError, match=rf"mean.*{mean!r}"):
        SoftNDCG(mean=mean)


@pytest.mark.parametrize("mean", ["harmonic", "regret"])
@pytest.mark.parametrize("top_k", [1, 2, 3, 9])
def test_a_cutoff_counts_the_gains_of_the_first_items_of_the_ideal_order(mean, top_k):
    labels = torch.tensor([1.0, 3.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    gains = {1: [0, 7, 0, 0, 0], 2: [1 / 3, 7, 1 / 3, 0, 1 / 3], 3: [2 / 3, 7, 2 / 3, 0, 2 / 3]}
    gain = torch.tensor(gains.get(top_k, [1, 7, 1, 0, 1]), dtype=torch.float64)
    best = torch.log2(2 + torch.arange(5.0, dtype=torch.float64)) @ gain.sort(descending=True)[0]
    loss, seen = SoftNDCG(HardRank(), top_k=top_k, mean=mean), []
    for order in itertools.permutations(range(5)):
        ranks = torch.tensor(order, dtype=torch.float64) + 1
        cost = torch.log2(1 + ranks) @ gain
        expected = 1 - best / cost if mean == "harmonic" else (cost - best) / gain.sum()
        found = loss(-ranks, labels).item()
        assert found == pytest.approx(expected.item(), abs=1e-12)
        seen.append(found)
        if found < 1e-12:
            assert ndcg(-ranks, labels, top_k=top_k).item() == pytest.approx(1)
    assert min(seen) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("mean", ["harmonic", "regret"])
def test_a_cutoff_leaves_a_gradient_to_items_far_below_it(mean):
    scores = torch.linspace(3, -3, 200, dtype=torch.float64).requires_grad_()
    labels = torch.zeros(200, dtype=torch.float64).index_fill(0, torch.tensor([150, 199]), 1)
    SoftNDCG(top_k=10, mean=mean)(scores, labels).backward()
    assert (scores.grad[[150, 199]] < -1e-4).all()


@pytest.mark.parametrize("form", ["padded", "ragged"])
def test_standardized_scores_make_it_independent_of_their_scale(form):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 9, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, 3, (5, 9), generator=generator).double()
    mask = torch.rand(5, 9, generator=generator) < 0.8
    loss = SoftNDCG(Standardized(SigmoidRank(0.3)), mean="harmonic")
    results = []
    for scale, shift in ((1.0, 0.0), (10.0, -3.0)):
        x = (scale * scores + shift).requires_grad_()
        if form == "padded":
            value = loss(x, labels, mask)
        else:
            value = loss(x[mask], labels[mask], lengths=mask.sum(-1))
        value.backward()
        results.append((value, scale * x.grad))
        assert (x.grad * x.detach()).sum(-1) == pytest.approx(torch.zeros(5), abs=1e-12)
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("gain", ["exp2", "linear"])
def test_dequantized_labels_draw_other_gains_at_each_call(gain):
    scores, labels = torch.randn(4, 6), torch.randint(0, 3, (4, 6)).float()
    labels[:, 0], labels[0] = 1, 0
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[:, 5] = False
    scores[:, 5] = torch.nan
    loss = SoftNDCG(gain=gain, dequantize=True, reduction="none")
    first, second = loss(scores, labels, mask), loss(scores, labels, mask)
    assert (first[1:] != second[1:]).all()
    assert first[0] == second[0] == 0  # without a relevant item there is nothing to learn
    plain = SoftNDCG(gain=gain, reduction="none")
    torch.manual_seed(0)
    found = loss(scores[mask], labels[mask], lengths=mask.sum(-1))
    torch.manual_seed(0)
    noise = torch.rand(int(mask.sum()))
    shifted = labels[mask] + noise * (labels > 0).any(-1).repeat_interleave(5)
    torch.testing.assert_close(found, plain(scores[mask], shifted, lengths=mask.sum(-1)))
    torch.testing.assert_close(loss.eval()(scores, labels, mask), plain(scores, labels, mask))
    loss.train()
    labels[1], scores[1] = torch.tensor([2.0, 0, 0, 0, 0, 0]), torch.tensor([9.0, 1, 2, 3, 4, 5])
    assert (loss(scores, labels, mask)[1] < 1).all()


@pytest.mark.parametrize("form", ["padded", "ragged"])
def test_the_softmax_term_is_the_softmax_loss_of_the_same_gains(form):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 7, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, 3, (5, 7), generator=generator).double()
    labels[0] = 0
    weights = torch.rand(5, 7, dtype=torch.float64, generator=generator)
    mask = torch.rand(5, 7, generator=generator) < 0.8
    given = {"reduction": "none", "gain": "linear"}
    found, plain = SoftNDCG(softmax=0.7, **given), SoftNDCG(**given)
    term = SoftmaxLoss(reduction="none")(scores, labels, mask, weights)
    if form == "padded":
        arguments, named = (scores, labels, mask, weights), {}
    else:
        arguments = (scores[mask], labels[mask], None, weights[mask])
        named = {"lengths": mask.sum(-1)}
    expected = plain(*arguments, **named) + 0.7 * term
    torch.testing.assert_close(found(*arguments, **named), expected)
    assert found(*arguments, **named)[0] == 0


def test_the_softmax_term_draws_no_labels_of_its_own():
    scores, labels = torch.randn(8), torch.tensor([3.0, 0, 1, 0, 0, 2, 0, 0])
    torch.manual_seed(0)
    found = SoftNDCG(gain="linear", dequantize=True, softmax=1.0)(scores, labels)
    torch.manual_seed(0)
    drawn = labels + torch.rand(8)
    expected = SoftNDCG(gain="linear")(scores, drawn) + SoftmaxLoss()(scores, drawn)
    torch.testing.assert_close(found, expected)


def test_the_softmax_term_holds_the_scale_of_the_scores():
    scores = torch.tensor([0.3, -0.2, 0.1, 0.0, -0.1], dtype=torch.float64)
    labels = torch.tensor([1.0, 0, 2, 0, 0], dtype=torch.float64)
    pull = {}
    for weight in (0.0, 0.5, 1.0):
        x = scores.clone().requires_grad_()
        SoftNDCG(mean="harmonic", softmax=weight)(x, labels).backward()
        pull[weight] = (x.grad * x.detach()).sum().item()
    assert pull[0.0] == pytest.approx(0, abs=1e-12)
    assert pull[1.0] == pytest.approx(2 * pull[0.5])
    assert pull[1.0] < -0.01  # small scores of a right order are spread


@pytest.mark.parametrize("weight", [-0.1, torch.nan, torch.inf, "1"])
def test_a_bad_weight_of_the_softmax_term_is_refused(weight):
    with pytest.raises(ValueError, match=rf"softmax.*{weight}"):
        SoftNDCG(softmax=weight)


@pytest.mark.parametrize("form", ["padded", "ragged"])
def test_all_but_the_arithmetic_mean_need_discounts_above_0(form):
    def first_three(ranks):
        return (ranks <= 3) / torch.log2(1 + ranks)

    scores, labels = torch.randn(2, 5), torch.ones(2, 5)
    if form == "ragged":
        short, long = torch.tensor([3, 3, 3, 1]), torch.tensor([3, 4, 3])
        arguments = scores.flatten(), labels.flatten()
        fits, named = {"lengths": short}, {"lengths": long}
    else:
        arguments, fits, named = (scores, labels), None, {}
    loss = SoftNDCG(HardRank(), discount=first_three)
    with pytest.raises(ValueError, match=r"discount.*got 0 at rank 4"):
        loss(*arguments, **named)
    assert loss(scores[:, :3], labels[:, :3]).isfinite()
    if fits:
        assert loss(*arguments, **fits).isfinite()
    with pytest.raises(ValueError, match=r"discount.*mean='regret', got 0 at rank 4"):
        SoftNDCG(discount=first_three, mean="regret")(*arguments, **named)
    assert SoftNDCG(discount=first_three, mean="arithmetic")(*arguments, **named).isfinite()
