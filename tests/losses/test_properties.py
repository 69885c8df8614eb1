"""The properties of every loss, with its defaults and with the arguments of loss_variants.py.

A new loss is found by its name. If a property fails by the mathematics, the name is in a set below.
"""

import inspect
import itertools
from collections.abc import Collection

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_table import draw
from loss_variants import LOSSES, losses
from pairwise import named

import ltr.losses
from ltr.losses import (
    XENDCG,
    ApproxNDCG,
    ListMLE,
    PListMLE,
    SoftmaxLoss,
    SoftMRR,
    SoftNDCG,
    SoftPrecision,
    SoftRecall,
)
from ltr.operators import LapSum, Stochastic

# these have a loss for a list without a relevant item too
OF_ALL_ITEMS = {
    "CalibratedSoftmax",
    "PointwiseOrdinal",
    "PointwiseSigmoid",
    "PointwiseMSE",
    "PointwiseHuber",
    "Distillation",
    "Distillation-3",
}
# the targets of these are values of the scores, so a constant on all scores matters
OF_VALUES = OF_ALL_ITEMS - {"Distillation", "Distillation-3"}
# the first 10 of a list of four are all of them, without a threshold
OVER_LAPSUM = {
    f"{kind.__name__}@{k}-LapSum": lambda kind=kind, k=k: kind(LapSum(), k)
    for kind in (SoftPrecision, SoftRecall)
    for k in (2, 10)
}
# a score of -inf at an irrelevant item gives these their limit; a rank or a label that matters for
# irrelevant items too makes the others NaN or infinite
WITH_REMOVED = [
    *("CalibratedSoftmax", "PolyOneSoftmax", "SoftmaxLoss", "SoftmaxLoss-raw", "SoftmaxLossAtK"),
    *("SoftNDCG-tight", "SoftNDCG-tight@2"),
    *("UniqueSoftmax", "UniqueSoftmax-raw", "PointwiseSigmoid", "PointwiseOrdinal"),
    *("PairwiseLoss", "PairwiseHinge", "PairwiseDCGHinge", "PairwiseExponential"),
    *("PairwiseSoftZeroOne", "RankNet", "RankNet-sum"),
    *(name for name in LOSSES if name.startswith(("LambdaLoss", "LambdaRank"))),
]
# in training mode each call of these draws random numbers
DRAWING = {
    "XENDCG-random": lambda **options: XENDCG("random", **options),
    "ListMLE-random": lambda **options: ListMLE(ties="random", **options),
    "PListMLE-random": lambda **options: PListMLE(ties="random", **options),
    "SoftNDCG-dequantize": lambda **options: SoftNDCG(dequantize=True, **options),
    "SoftMRR-Stochastic": lambda **options: SoftMRR(Stochastic(), **options),
}
# the least value of these is above 0 if more items are relevant than positions count, or their
# first value is near the least already
NOT_TO_0 = {
    "LambdaLoss-ARPLoss1()",
    "LambdaLoss-NDCGLoss1()",
    "PointwiseOrdinal",
    "PolyOneSoftmax",
    "SoftmaxLossAtK",
    "SoftERR-raw@3",
    "SoftNDCG-linear",
    "SoftPrecision",
    "SoftPrecision-raw",
    "SoftRecall",
    "SoftRecall-raw",
    "SpearmanLoss-raw",
    "TopKLoss",
    "TopKLoss-hard-cutoff",
    "TopKCrossEntropy",
    "KNNLoss",
    "Penalized",
}
every = losses()
ranking = losses(arguments="name", but=OF_ALL_ITEMS)


@every
def test_builds_without_arguments_and_is_a_scalar(make):
    assert make()(*draw(3, 5)).shape == ()


@every
def test_reductions(make):
    scores, labels = draw(3, 2, 5)
    each = make(reduction="none")(scores, labels)
    assert each.shape == (3, 2)
    torch.testing.assert_close(make(reduction="sum")(scores, labels), each.sum())
    torch.testing.assert_close(make()(scores, labels), each.mean())


@every
def test_the_mean_leaves_out_lists_without_a_real_item(make):
    scores, labels = draw(3, 5)
    mask = torch.tensor([[True] * 5, [False] * 5, [True] * 5])
    expected = make()(scores[[0, 2]], labels[[0, 2]])
    torch.testing.assert_close(make()(scores, labels, mask), expected)
    torch.testing.assert_close(
        make()(scores[[1]], labels[[1]], mask[[1]]), torch.zeros(()).double()
    )


@every
def test_any_batch_shape(make):
    scores, labels = draw(2, 3, 4, 5)
    flat = make(reduction="none")(scores.view(24, 5), labels.view(24, 5))
    torch.testing.assert_close(make(reduction="none")(scores, labels), flat.view(2, 3, 4))
    assert make()(scores[0, 0, 0], labels[0, 0, 0]).shape == ()


@losses(named(0.0, 1e30, torch.nan, -torch.inf), arguments="make, hidden")
def test_padding_changes_neither_value_nor_gradient(make, hidden):
    real, labels = draw(4, 6)
    weights = draw(4, 6, seed=9)[0].abs()
    mask = torch.zeros(4, 9, dtype=torch.bool)
    mask[:, [1, 2, 4, 5, 6, 8]] = True

    def spread(x: torch.Tensor) -> torch.Tensor:
        return torch.full((4, 9), hidden, dtype=torch.float64).masked_scatter(mask, x)

    padded = spread(real).requires_grad_()
    real.requires_grad_()
    expected = make()(real, labels, weights=weights)
    loss = make()(padded, spread(labels), mask, spread(weights))
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-12)
    expected.backward()
    loss.backward()
    assert (padded.grad[~mask] == 0).all()
    torch.testing.assert_close(padded.grad[mask].view(4, 6), real.grad, rtol=0, atol=1e-12)


@losses(named(torch.float16, torch.bfloat16, torch.float32), arguments="make, dtype")
def test_dtypes(make, dtype):
    scores, labels = draw(3, 5)
    scores = scores.to(dtype)
    loss = make()(scores, labels.to(dtype))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(make()(scores.double(), labels).item(), abs=1e-5)
    torch.testing.assert_close(make()(scores, labels.long()), loss)  # integer labels


@every
def test_autocast_changes_nothing(make):
    found = []
    for enabled in (False, True):
        scores, labels = (x.float() for x in draw(3, 20))
        mask = torch.arange(20) < torch.tensor([[20], [17], [3]])
        scores.requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = make()(scores, labels, mask)
        loss.backward()
        found.append((loss, scores.grad))
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=1e-9)


@every
def test_gradcheck(make):
    scores, labels = draw(2, 4)
    mask = torch.tensor([[True, False, True, True], [True] * 4])
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: make()(x, labels, mask), scores)
    assert torch.autograd.gradgradcheck(lambda x: make()(x, labels, mask), scores)


@every
def test_gradients_are_those_of_differences(make):
    scores, labels = draw(5)
    mask = torch.tensor([True, False, True, True, True])

    def value(x: torch.Tensor) -> torch.Tensor:
        return make()(x, labels, mask)

    expected = torch.func.jacrev(value)(scores)
    step = 1e-6 * torch.eye(5, dtype=torch.float64)
    differences = [(value(scores + e) - value(scores - e)) / 2e-6 for e in step]
    torch.testing.assert_close(torch.stack(differences), expected, rtol=1e-4, atol=1e-6)


@every
def test_unusual_lists_have_a_graph_and_finite_gradients(make):
    scores, labels = draw(4, 5)
    labels[0] = 0  # no relevant item
    labels[1] = 2  # all equal
    scores[2] = 1  # all tied
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[3] = False
    scores.requires_grad_()
    loss = make()(scores, labels, mask)
    loss.backward()
    assert loss.isfinite()
    assert scores.grad.isfinite().all()


@ranking
def test_no_relevant_item_counts_0_with_a_graph(name):
    scores, _ = draw(2, 5)
    scores.requires_grad_()
    loss = LOSSES[name]()(scores, torch.zeros(2, 5))
    assert loss == 0
    loss.backward()
    assert (scores.grad == 0).all()


@every
def test_nan_scores_make_only_their_own_list_nan(make):
    scores, labels = draw(3, 5)
    expected = make(reduction="none")(scores, labels)
    scores[1, 2] = torch.nan
    each = make(reduction="none")(scores, labels)
    assert each[1].isnan()
    torch.testing.assert_close(each[[0, 2]], expected[[0, 2]])


@every
def test_vmap(make):
    scores, labels = draw(3, 5)
    torch.testing.assert_close(
        torch.func.vmap(make())(scores, labels), make(reduction="none")(scores, labels)
    )


# one of each way to compute; under autocast those that have a product or switch it off
COMPILED = ["SoftNDCG@2", "NeuralNDCG-scaled", "KNNLoss-log", "LambdaRank@3"]
COMPILED_WITHOUT = ["QuantileLoss-0.3", "Penalized", "Unbiased", "SpearmanLoss", "ListMLE"]
COMPILED_WITHOUT += ["SoftmaxLoss", "RankNet", "PairwiseMSE", "LambdaLoss", "SoftNDCG-tight"]
# a product, sums over pairs, sums over items: the other losses share their code for ids and checks
COMPILED_FULLY = {"SoftNDCG@2", "RankNet"}


def some_compiled(fast: Collection[str]) -> pytest.MarkDecorator:
    """Parametrize a test over the losses that are compiled; all but some are slow."""
    names = COMPILED + COMPILED_WITHOUT
    # a loss is traced again for each form of its arguments, up to a second each
    marks = [[] if name in fast else [pytest.mark.slow] for name in names]
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=m) for name, m in zip(names, marks, strict=True)]
    )


AUTOCAST = {("SoftNDCG@2", True), ("NeuralNDCG-scaled", False), ("QuantileLoss-0.3", False)}
AUTOCAST |= {("LambdaRank@3", False), ("SoftmaxLoss", False)}


@pytest.mark.parametrize(
    ("name", "autocast"),
    [  # the others are traced as these are, half a second to seconds each
        pytest.param(*case, marks=[] if case in AUTOCAST else [pytest.mark.slow])
        for case in [
            *itertools.product(COMPILED, [False, True]),
            *((name, False) for name in COMPILED_WITHOUT),
        ]
    ],
)
def test_compile_in_one_graph(name, autocast):
    torch.compiler.reset()  # all losses share one `forward`
    scores, labels = (x.float() for x in draw(3, 5))
    mask = torch.arange(5) < torch.tensor([[5], [3], [0]])
    loss = LOSSES[name]()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = torch.compile(loss, backend="eager", fullgraph=True)(scores, labels, mask)
    torch.testing.assert_close(found, loss(scores, labels, mask))


@every
def test_weights_of_one_change_nothing(make):
    scores, labels = draw(3, 5)
    loss = make()
    torch.testing.assert_close(loss(scores, labels, weights=torch.ones(3, 5)), loss(scores, labels))


@losses()
def test_a_list_whose_weights_are_all_0_counts_0(make):
    for n in (1, 4):
        scores, labels = draw(3, n)
        scores.requires_grad_()
        loss = make()(scores, labels, weights=torch.zeros(3, n))
        loss.backward()
        assert loss == 0
        assert (scores.grad == 0).all()


@losses(arguments="name")
def test_gradient_steps_lower_the_loss(name):
    scores, labels = draw(6, 8)
    scores.requires_grad_()
    optimizer, loss = torch.optim.Adam([scores], lr=0.2), LOSSES[name]()
    before = loss(scores, labels).item()
    for _ in range(30):
        optimizer.zero_grad()
        loss(scores, labels).backward()
        optimizer.step()
    assert loss(scores, labels).item() < (before if name in NOT_TO_0 else before / 2)


@losses(named(1e-4, 1.0, 1e4), arguments="make, size")
def test_extreme_scores(make, size):
    scores, labels = draw(3, 6)
    scores = (scores * size).float().requires_grad_()
    loss = make()(scores, labels)
    loss.backward()
    assert loss.isfinite()
    assert scores.grad.isfinite().all()


@losses(arguments="name", but=OF_VALUES)
def test_a_constant_on_all_scores_changes_nothing_in_float32(name):
    scores, labels = (x.float() for x in draw(3, 8))
    scores = (8 * scores).round() / 8  # exact in float32 after the addition too
    mask = torch.ones(3, 8, dtype=torch.bool)
    mask[1, 3:6] = False
    found = []
    for constant in (0.0, 2.0**20, -(2.0**20)):
        shifted = (scores + constant).requires_grad_()
        loss = LOSSES[name](reduction="none")(shifted, labels, mask)
        found.append((loss, torch.autograd.grad(loss.sum(), shifted)[0]))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-5, atol=1e-5)


# Distances to neighbors that are 1e9 away are tied in float32, and so are candidates of the class.
TIED_IN_FLOAT32 = {"KNNLoss-log"}


@losses(but=TIED_IN_FLOAT32)
def test_float32_has_the_values_of_float64_at_any_distance_from_the_largest_score(make):
    generator = torch.Generator().manual_seed(0)
    levels = torch.tensor([0.0, 0.0, 1e3, 1e6, -1e6, 1e9, -1e9])
    draws = torch.randint(0, len(levels), (60, 5), generator=generator)
    scores = levels[draws] + 3 * torch.randn(60, 5, generator=generator)
    labels = torch.randint(0, 3, (60, 5), generator=generator)
    found = []
    for x in (scores.requires_grad_(), scores.detach().double().requires_grad_()):
        loss = make(reduction="none")(x, labels)
        found.append((loss.double(), torch.autograd.grad(loss.sum(), x)[0].double()))
    (loss, slopes), (expected, wanted) = found
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    size = wanted.abs().amax(-1, keepdim=True).clamp(min=1)  # terms of this size are added
    torch.testing.assert_close(slopes / size, wanted / size, rtol=1e-3, atol=1e-5)


@losses(table=LOSSES | OVER_LAPSUM)
def test_an_infinite_score_does_not_hide_in_the_gradient(make):
    for index, value in itertools.product(range(4), [torch.inf, -torch.inf]):
        scores, labels = draw(1, 4, seed=3)
        scores[0, index] = value
        loss = make()(scores.requires_grad_(), labels)
        loss.backward()
        assert scores.grad.isfinite().all() or not loss.isfinite()


@losses(named(31, 200), arguments="make, least")
def test_large_and_float_labels(make, least):
    scores, labels = draw(2, 4)
    labels = least + labels / 2
    exact = make()(scores, labels)
    scores = scores.float().requires_grad_()
    loss = make()(scores, labels.float())
    loss.backward()
    assert scores.grad.isfinite().all()
    torch.testing.assert_close(loss.double(), exact, rtol=1e-4, atol=1e-5)


@losses(named((3, 0), (0, 5), (0, 0), (0,)), arguments="make, shape")
def test_no_items_and_no_lists_give_0(make, shape):
    for weights in (None, torch.ones(shape)):
        scores = torch.zeros(shape, requires_grad=True)
        loss = make()(scores, torch.zeros(shape), torch.ones(shape, dtype=torch.bool), weights)
        loss.backward()
        assert loss == 0
        assert make(reduction="none")(scores, torch.zeros(shape)).shape == shape[:-1]


@every
def test_all_masked_counts_0_whatever_lies_under_the_mask(make):
    scores = torch.full((2, 5), torch.nan, requires_grad=True)
    hidden = torch.full((2, 5), torch.nan)
    loss = make()(scores, hidden, torch.zeros(2, 5, dtype=torch.bool), hidden)
    loss.backward()
    assert loss == 0
    assert (scores.grad == 0).all()


@every
def test_no_tensor_is_left_on_the_cpu(make):
    # the "meta" device refuses tensors of the CPU, like a GPU, and every machine has it
    scores, labels = (x.float().to("meta") for x in draw(3, 5))
    mask, loss = torch.ones(3, 5, dtype=torch.bool, device="meta"), make().to("meta")
    value = loss(scores.requires_grad_(), labels, mask, torch.ones_like(labels))
    (grad,) = torch.autograd.grad(value, scores)
    assert value.device.type == grad.device.type == "meta"


@every
def test_twice_the_same_to_the_bit(make):
    found, loss = [], make()
    for _ in range(2):
        scores, labels = draw(3, 9)
        scores.requires_grad_()
        value = loss(scores, labels)
        value.backward()
        found.append((value, scores.grad))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])


@every
def test_labels_and_weights_may_have_gradients_and_other_dtypes(make):
    scores, labels = draw(3, 5)
    weights = torch.rand(3, 5, generator=torch.Generator().manual_seed(2))
    expected = make()(scores, labels, weights=weights.double())
    loss = make()(scores.requires_grad_(), labels.requires_grad_(), None, weights.requires_grad_())
    loss.backward()
    torch.testing.assert_close(loss, expected)
    assert scores.grad.isfinite().all()


@losses(table=LOSSES | DRAWING)
def test_nothing_is_drawn_in_eval_mode(make):
    loss, state = make().eval(), torch.get_rng_state()
    assert loss(*draw(3, 9)) == loss(*draw(3, 9))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", list(DRAWING))
def test_training_mode_draws(name):
    loss = DRAWING[name]()
    assert loss(*draw(3, 9)) != loss(*draw(3, 9))


@pytest.mark.parametrize("name", WITH_REMOVED)
def test_scores_of_minus_infinity_at_irrelevant_items_give_the_limit(name):
    loss, given = LOSSES[name](reduction="none"), draw(6, 7, seed=2)
    scores, labels = given[0], given[1].clamp(max=2)
    labels[0], labels[1, 0], labels[:, 6] = 0, 1, 3
    mask = torch.ones(6, 7, dtype=torch.bool)
    mask[3:, 2], mask[5, 6] = False, False
    weights = torch.rand(6, 7, generator=torch.Generator().manual_seed(4)).double()
    removed = (labels == 0) & (torch.rand(6, 7, generator=torch.Generator().manual_seed(5)) < 0.7)
    removed[0] = labels[0] == 0  # here all irrelevant items
    filtered, low = (torch.where(removed, x, scores).requires_grad_() for x in (-torch.inf, -1e5))
    expected = loss(low, labels, mask, weights)
    slopes = torch.autograd.grad(expected.sum(), low)[0]
    for x, calls in ((filtered, [loss, torch.func.vmap(loss)]), (filtered.float(), [loss])):
        for call in calls:
            found = call(x, labels.to(x.dtype), mask, weights.to(x.dtype))
            torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
        found = torch.autograd.grad(loss(x, labels, mask, weights).sum(), filtered)[0]
        torch.testing.assert_close(found, slopes, rtol=1e-5, atol=1e-6)
        assert (found[removed] == 0).all()
    ragged = loss(filtered[mask], labels[mask], None, weights[mask], lengths=mask.sum(-1))
    torch.testing.assert_close(ragged, expected, rtol=1e-9, atol=1e-12)


BAD = [torch.nan, torch.inf, -torch.inf]


@every
def test_labels_and_weights_of_real_items_are_finite_and_weights_and_grades_not_negative(make):
    scores, labels = draw(2, 5)
    loss = make()
    grades = getattr(loss, "loss", loss).grades
    for bad in [*BAD, -1.5] if grades else BAD:
        wrong = labels.clone()
        wrong[1, 3] = bad
        for any_float in (wrong, wrong.float()):
            with pytest.raises(ValueError, match=f"labels.* got {bad:g}"):
                loss(scores, any_float)
        with pytest.raises(ValueError, match=f"labels.* got {bad:g}"):
            loss(scores[1], wrong[1], lengths=[2, 3])
    for bad in [*BAD, -0.5]:
        weights = torch.ones(2, 5)
        weights[0, 2] = bad
        with pytest.raises(ValueError, match=f"weights.* got {bad:g}"):
            loss(scores, labels, weights=weights)
        with pytest.raises(ValueError, match=f"weights.* got {bad:g}"):
            loss(scores[0], labels[0], weights=weights[0], qid=torch.tensor([1, 0, 1, 0, 1]))


@every
def test_a_bad_label_or_weight_makes_its_list_nan_where_values_cannot_be_read(make):
    scores, labels = draw(4, 5)
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[2, 3] = False
    loss = torch.func.vmap(make())
    grades = getattr(make(), "loss", make()).grades
    weights = torch.rand(4, 5, generator=torch.Generator().manual_seed(3)).double()
    expected = loss(scores, labels, mask, weights)
    for bad in [*BAD, -1.5]:
        for name in ("labels", "weights"):
            if name == "labels" and bad == -1.5 and not grades:
                continue
            wrong = {"labels": labels.clone(), "weights": weights.clone()}
            wrong[name][1, 0] = wrong[name][2, 3] = bad  # the second one is masked
            s = scores.clone().requires_grad_()
            found = loss(s, wrong["labels"], mask, wrong["weights"])
            assert found[1].isnan()
            assert torch.equal(found[[0, 2, 3]], expected[[0, 2, 3]])
            found.sum().backward()
            assert s.grad[[0, 2, 3]].isfinite().all()


@some_compiled(COMPILED_FULLY)
def test_a_bad_label_or_weight_makes_its_list_nan_in_compiled_code(name):
    torch.compiler.reset()
    scores, labels = (x.float() for x in draw(3, 5))
    loss = LOSSES[name](reduction="none")
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    lengths, weights = torch.tensor([5, 4, 6]), torch.ones(3, 5)
    labels[1, 2] = torch.nan
    expected = [False, True, False]
    assert compiled(scores, labels, None, weights).isnan().tolist() == expected
    flat = scores.view(-1), labels.view(-1)
    assert compiled(*flat, lengths=lengths).isnan().tolist() == expected
    labels[1, 2], weights[1, 3] = 1.0, -1.0
    assert compiled(scores, labels, None, weights).isnan().tolist() == expected


LENGTHS = torch.tensor([3, 0, 5, 1, 4])
# Ragged lists take the sums over sorted scores and a short list the array, which differ by the 18
# exponentials instead of a sigmoid: 6e-14 in its derivative (docs/kernels/table.md). Standardized
# ranks bring that times the discounts' slope over 0.3 times the list's spread.
# `Unbiased` multiplies that by the mean weight of the clicks, here up to 4.
BOUNDS = dict.fromkeys(["SoftNDCG", "SoftNDCG-linear", "Penalized", "Unbiased"], 3e-12)
IDS = torch.tensor([-3, -1, 0, 7, 9])  # of these lists; the second one has no rows


def ragged() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    scores, labels = draw(13, seed=5)
    return scores, labels, torch.rand(13, generator=torch.Generator().manual_seed(6)).double()


@losses(named(False, True), arguments="name, weighted")
def test_ragged_lists_are_each_list_alone(name, weighted):
    make = LOSSES[name]
    scores, labels, weights = ragged()
    weights = weights if weighted else None
    flat, apart = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    found = make(reduction="none")(flat, labels, weights=weights, lengths=LENGTHS)
    parts = [None if x is None else x.split(LENGTHS.tolist()) for x in (apart, labels, weights)]
    expected = torch.stack(
        [
            make()(parts[0][i], parts[1][i], weights=None if parts[2] is None else parts[2][i])
            for i in range(5)
        ]
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=BOUNDS.get(name, 1e-12))
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(flat.grad, apart.grad, rtol=0, atol=BOUNDS.get(name, 1e-12))
    total = make(reduction="sum")(flat, labels, weights=weights, lengths=LENGTHS)
    torch.testing.assert_close(total, expected.sum())
    mean = make()(flat, labels, weights=weights, lengths=LENGTHS)  # four lists have an item
    torch.testing.assert_close(mean, expected.sum() / 4)


@every
def test_ragged_lists_keep_nan_and_other_lists_gains_to_themselves(make):
    scores, labels, _ = ragged()
    expected = make(reduction="none")(scores, labels, lengths=LENGTHS)
    scores[4], labels[3:8] = torch.nan, 200.0
    found = make(reduction="none")(scores.float(), labels.float(), lengths=LENGTHS)
    assert found[2].isnan()
    others = [0, 1, 3, 4]
    torch.testing.assert_close(found[others].double(), expected[others], rtol=1e-4, atol=1e-5)


@every
def test_ragged_lists_may_all_be_empty(make):
    for lengths in (torch.zeros(2).long(), torch.zeros(0).long()):
        scores = torch.zeros(0, requires_grad=True)
        loss = make()(scores, torch.zeros(0), lengths=lengths)
        loss.backward()
        assert loss == 0
        assert make(reduction="none")(scores, scores, lengths=lengths).shape == lengths.shape


@losses(named(torch.int64, torch.int32, torch.uint8), arguments="name, dtype")
def test_rows_by_qid_are_the_padded_lists_in_any_order(name, dtype):
    make = LOSSES[name]
    scores, labels, weights = ragged()
    mask = torch.arange(5) < LENGTHS.unsqueeze(-1)
    padded = [x.new_zeros(5, 5).masked_scatter(mask, x) for x in (scores, labels, weights)]
    padded[0].requires_grad_()
    loss = make(reduction="none")
    each = loss(padded[0], padded[1], mask, padded[2])
    each.sum().backward()

    qid = (IDS + (3 if dtype == torch.uint8 else 0)).to(dtype).repeat_interleave(LENGTHS)
    # shuffled, except that the items of a list keep their order, which some losses know
    key = torch.rand(13, generator=torch.Generator().manual_seed(8))
    for list_ in torch.arange(13).split(LENGTHS.tolist()):
        key[list_] = key[list_].sort().values
    order = key.argsort()
    rows = scores[order].requires_grad_()
    given = {"weights": weights[order], "qid": qid[order]}
    found = loss(rows, labels[order], **given)
    some = LENGTHS > 0
    torch.testing.assert_close(found, each[some], rtol=0, atol=BOUNDS.get(name, 1e-12))
    found.sum().backward()
    torch.testing.assert_close(
        rows.grad, padded[0].grad[mask][order], rtol=0, atol=BOUNDS.get(name, 1e-12)
    )
    torch.testing.assert_close(
        make(reduction="sum")(rows, labels[order], **given), each[some].sum()
    )
    torch.testing.assert_close(make()(rows, labels[order], **given), each[some].mean())


def compiled_rows(make):
    """Compile a loss of rows once, and compare it with several other qids, without recompiling."""
    torch.compiler.reset()
    scores, labels, weights = (x.float() for x in ragged())
    scores.requires_grad_()
    loss = make(reduction="none")
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    generator = torch.Generator().manual_seed(1)
    several = [torch.randint(-2, 3, (13,), generator=generator) for _ in range(2)]
    for number, qid in enumerate([*several, torch.arange(13), torch.zeros(13).long()]):
        with torch.compiler.set_stance("fail_on_recompile" if number else "default"):
            found = compiled(scores, labels, None, weights, qid=qid)
        expected = loss(scores, labels, None, weights, qid=qid)
        torch.testing.assert_close(found[: len(expected)], expected)
        assert (found[len(expected) :] == 0).all()
        gradients = [torch.autograd.grad(x.sum(), scores)[0] for x in (found, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@some_compiled(COMPILED_FULLY | {"ListMLE"})
def test_rows_by_qid_compile_in_one_graph_for_any_ids(name):
    compiled_rows(LOSSES[name])


@pytest.mark.slow  # each of 88 losses is traced, half a second to seconds
@every
def test_every_loss_of_rows_by_qid_compiles_in_one_graph_for_any_ids(make):
    compiled_rows(make)


def test_the_mean_of_compiled_rows_is_over_the_lists_that_have_rows():
    torch.compiler.reset()
    scores, labels, _ = ragged()
    compiled = torch.compile(SoftmaxLoss(), backend="eager", fullgraph=True)
    qid = IDS.repeat_interleave(LENGTHS).flip(0)
    torch.testing.assert_close(
        compiled(scores, labels, qid=qid), SoftmaxLoss()(scores, labels, qid=qid)
    )


@pytest.mark.parametrize("name", [*ltr.losses.__all__])
def test_temperatures_below_1e_30_are_refused(name):
    """Below it, float32 divides 0 by 0: the same limit as that of the operators."""
    kind = getattr(ltr.losses, name)
    is_loss = name in LOSSES
    names = [x for x in inspect.signature(kind).parameters if x.endswith("temperature")]
    for name, value in itertools.product(names, [0.0, 1e-40, 9e-31, 1e-320, -1.0, torch.nan]):
        if kind is ApproxNDCG and value == 0:  # hard ranks
            continue
        with pytest.raises(ValueError, match=f"{name} must be .*, got {value}"):
            kind(**{name: value})
    for name in names if is_loss else ():
        scores, labels = (x.float() for x in draw(3, 5))
        assert kind(**{name: 1e-30})(scores, labels).isfinite()


@every
def test_bad_arguments(make):
    scores, labels = draw(2, 3)
    with pytest.raises(ValueError, match=r"labels.*\(3"):
        make()(scores, labels[0])
    with pytest.raises(ValueError, match=r"mask must"):
        make()(scores, labels, torch.ones(2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"mask.*torch.int64"):
        make()(scores, labels, torch.ones(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="weights must"):
        make()(scores, labels, None, torch.ones(3))
    with pytest.raises(ValueError, match=r"labels.*list"):
        make()(scores, labels.tolist())
    with pytest.raises(ValueError, match=r"reduction.*'max'"):
        make(reduction="max")
    with pytest.raises(ValueError, match="scores must"):
        make()(scores.long(), labels)
    lengths = torch.tensor([1, 2])
    with pytest.raises(ValueError, match=r"mask, lengths and qid exclude.* got mask and lengths"):
        make()(scores[0], labels[0], labels[0] > 0, lengths=lengths)
    with pytest.raises(ValueError, match=r"scores must"):
        make()(scores, labels, lengths=lengths)
    with pytest.raises(ValueError, match=r"lengths.*4"):
        make()(scores[0], labels[0], lengths=lengths + torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="weights must"):
        make()(scores[0], labels[0], weights=torch.ones(2), lengths=lengths)
    qid = torch.tensor([1, 2, 1])
    for more in ({"mask": labels[0] > 0}, {"lengths": lengths}):
        [name] = more
        with pytest.raises(ValueError, match=f"mask, lengths and qid exclude.* {name} and qid"):
            make()(scores[0], labels[0], qid=qid, **more)
    with pytest.raises(ValueError, match=r"padding.*qid.*-1"):
        make()(scores[0], labels[0], qid=qid, padding=-1)
    with pytest.raises(ValueError, match=r"qid.*\(2, 3\)"):
        make()(scores, labels, qid=qid)
    with pytest.raises(ValueError, match=r"qid.*float32"):
        make()(scores[0], labels[0], qid=qid.float())
    with pytest.raises(TypeError, match="unexpected keyword argument 'ranks'"):
        make()(scores, labels, ranks=labels)


lists = st.integers(1, 6).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(-1e4, 1e4, width=32), min_size=n, max_size=n),
        st.lists(st.integers(0, 5), min_size=n, max_size=n),
        st.lists(st.booleans(), min_size=n, max_size=n),
    )
)


@given(lists, st.sampled_from(list(LOSSES)))
@settings(max_examples=200, deadline=None)
def test_any_list_gives_a_finite_loss_and_gradient(columns, name):
    scores, labels, mask = (torch.tensor(column) for column in columns)
    scores = scores.float().requires_grad_()
    loss = LOSSES[name]()(scores, labels, mask)
    loss.backward()
    assert loss.isfinite()
    assert scores.grad.isfinite().all()


@given(st.lists(lists, max_size=4), st.sampled_from(list(LOSSES)))
@settings(max_examples=100, deadline=None)
def test_any_ragged_lists_are_each_alone(batch, name):
    loss, lengths = LOSSES[name](reduction="none"), torch.tensor([len(x[0]) for x in batch]).long()
    flat = [[v for column in batch for v in column[i]] for i in (0, 1)]
    scores = torch.tensor(flat[0], dtype=torch.float64).requires_grad_()
    found = loss(scores, torch.tensor(flat[1]), lengths=lengths)
    alone = [loss(torch.tensor(s, dtype=torch.float64), torch.tensor(y)) for s, y, _ in batch]
    expected = torch.stack(alone) if alone else found.new_zeros(0)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    found.sum().backward()
    assert scores.grad.isfinite().all()
