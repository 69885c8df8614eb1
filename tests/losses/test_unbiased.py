"""Inverse propensities: over all patterns of looks, the mean loss is that on relevance.

What is exact for which loss is in the docstring of `Unbiased`.
"""

import itertools

import pytest
import torch
from loss_table import LOSSES
from pairwise import each

from ltr.losses import (
    ExposureParity,
    LambdaRank,
    Penalized,
    PointwiseMSE,
    PositionBias,
    RankingLoss,
    RankNet,
    SoftERR,
    SoftmaxLoss,
    SoftMRR,
    SoftNDCG,
    Unbiased,
    UniqueSoftmax,
    inverse_propensity_weights,
)
from ltr.losses.unbiased import one_click_lists
from ltr.operators import HardRank


class RanksOfRelevant(RankingLoss):
    """Sum over relevant items of weight * rank: linear in the weights, as the theory assumes."""

    def per_list(self, scores, labels, mask, weights):
        weights = torch.ones_like(scores) if weights is None else weights
        return (weights * labels * HardRank()(scores, mask)).sum(-1)


@pytest.mark.parametrize("bias", [PositionBias(), PositionBias(0.5), PositionBias(0.0)])
def test_the_expected_loss_on_clicks_is_the_loss_on_relevance(bias):
    scores = torch.tensor([0.3, 0.1, 0.9, 0.5], dtype=torch.float64)
    relevant = torch.tensor([0.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    position = torch.tensor([3, 1, 4, 2])
    looks = bias(position).double()
    expected = 0.0
    for seen in itertools.product([0.0, 1.0], repeat=4):
        pattern = torch.tensor(seen, dtype=torch.float64)
        chance = torch.where(pattern > 0, looks, 1 - looks).prod()
        loss = Unbiased(RanksOfRelevant(), bias)(scores, relevant * pattern, position=position)
        expected += chance * loss
    torch.testing.assert_close(expected, RanksOfRelevant()(scores, relevant))


# with the sums instead of the means over a list, and 1 - ERR itself
SUMS = {
    "SoftmaxLoss-raw": lambda: SoftmaxLoss(normalize=False),
    "UniqueSoftmax-raw": lambda: UniqueSoftmax("linear", normalize=False),
    "RankNet-raw": lambda: RankNet(normalize=False),
    "LambdaRank-raw": lambda: LambdaRank(normalize=False),
    "SoftERR-raw": lambda: SoftERR(max_label=2, normalize=False),
}
# a mean over all items is no loss of the clicks, see the test of these below; a penalty is none
# either; and `Unbiased` would need positions too
OF_CLICKS = {n: make for n, make in (LOSSES | SUMS).items() if not make().every_item}
del OF_CLICKS["Unbiased"], OF_CLICKS["Penalized"]
of_clicks = each("name", {name: name for name in OF_CLICKS})
SCORES = torch.tensor([0.3, 0.1, 0.9], dtype=torch.float64)
SHOWN = torch.tensor([3, 1, 2])
EXAMINED = PositionBias(examination=[0.9, 0.5, 0.2])


def looks_at_three_items():
    """Yield each pattern of looks at the items (3,), and its probability."""
    looks = EXAMINED(SHOWN).double()
    for seen in itertools.product([0.0, 1.0], repeat=3):
        pattern = torch.tensor(seen, dtype=torch.float64)
        yield pattern, torch.where(pattern > 0, looks, 1 - looks).prod()


@of_clicks
def test_a_click_weighs_the_inverse_of_its_propensity(name):
    loss, clicks = OF_CLICKS[name](), torch.tensor([0.0, 1.0, 0.0])
    for shown in ([1, 1, 1], [2, 2, 2], [10, 10, 10], [7, 10, 4]):
        expected, position = shown[1] * loss(SCORES, clicks), torch.tensor(shown)
        torch.testing.assert_close(Unbiased(loss)(SCORES, clicks, position=position), expected)
        flat = Unbiased(loss)(SCORES, clicks, position=position, lengths=[3])
        torch.testing.assert_close(flat, expected)


@of_clicks
def test_a_click_weighs_the_inverse_of_its_propensity_in_the_gradient(name):
    loss, clicks = OF_CLICKS[name](), torch.tensor([0.0, 1.0, 0.0])
    expected = gradient(loss, clicks)
    for shown in (1, 2, 10):
        for split in (False, True):
            found = gradient(Unbiased(loss, split=split), clicks, position=torch.full((3,), shown))
            torch.testing.assert_close(found, shown * expected)


@of_clicks
def test_with_one_relevant_item_the_expected_loss_is_the_loss_on_relevance(name):
    loss = OF_CLICKS[name]()
    for relevant in torch.eye(3, dtype=torch.float64):
        expected = sum(
            chance * Unbiased(loss, EXAMINED)(SCORES, relevant * seen, position=SHOWN)
            for seen, chance in looks_at_three_items()
        )
        torch.testing.assert_close(expected, loss(SCORES, relevant))


@of_clicks
def test_the_expected_sum_over_clicks_is_the_sum_over_relevant_items(name):
    loss = OF_CLICKS[name]()
    for relevant in ([1.0, 1.0, 0.0], [1.0, 1.0, 1.0]):
        alone = torch.tensor(relevant, dtype=torch.float64).diag()  # one relevant item each
        total = Unbiased(loss, EXAMINED, reduction="sum")
        lists = SCORES.expand(3, 3), SHOWN.expand(3, 3)
        expected = sum(
            chance * total(lists[0], alone * seen, position=lists[1])
            for seen, chance in looks_at_three_items()
        )
        torch.testing.assert_close(expected, sum(loss(SCORES, each) for each in alone))


def gradient(loss: RankingLoss, clicks: torch.Tensor, **position: torch.Tensor) -> torch.Tensor:
    scores = SCORES.clone().requires_grad_()
    return torch.autograd.grad(loss(scores, clicks, **position), scores)[0]


def expected_gradient(loss: RankingLoss, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean over all patterns of looks."""
    patterns = looks_at_three_items()
    return sum(p * gradient(loss, labels * seen, position=SHOWN) for seen, p in patterns)


@of_clicks
def test_with_split_the_expected_loss_is_the_sum_over_the_relevant_items(name):
    found = Unbiased(OF_CLICKS[name](), EXAMINED, split=True, reduction="none")
    total = OF_CLICKS[name]()
    total.reduction = "sum"
    seen, chances = map(torch.stack, zip(*looks_at_three_items(), strict=True))
    for relevant in itertools.product([0.0, 1.0], repeat=3):
        labels = torch.tensor(relevant).double()
        scores = SCORES.clone().requires_grad_()
        lists = scores.expand(8, 3), labels * seen
        expected = (chances * found(*lists, position=SHOWN.expand(8, 3))).sum()
        alone = total(scores.expand(3, 3), labels.diag())  # one relevant item each
        torch.testing.assert_close(expected, alone)
        slopes = [torch.autograd.grad(x, scores)[0] for x in (expected, alone)]
        torch.testing.assert_close(*slopes)
        all_seen = Unbiased(OF_CLICKS[name](), PositionBias(0.0), split=True)
        torch.testing.assert_close(all_seen(SCORES, labels), alone.detach())


def test_with_split_soft_ndcg_is_the_number_of_relevant_items_less_the_dcg():
    labels = torch.tensor([1.0, 0.0, 1.0])  # at the ranks 2 and 1
    loss = Unbiased(SoftNDCG(HardRank(), mean="arithmetic"), PositionBias(0.0), split=True)
    expected = 2 - (1 + 1 / torch.tensor(3.0).double().log2())
    torch.testing.assert_close(loss(SCORES, labels), expected)


# of all losses the only ones for which `split=False` is exact for several relevant items
EXACT = {"SoftmaxLoss-raw"}


def test_without_split_several_relevant_items_are_exact_for_linear_losses_alone():
    exact = set()
    for name, make in OF_CLICKS.items():
        loss = make()
        same = [
            torch.allclose(
                expected_gradient(Unbiased(loss, EXAMINED), labels), gradient(loss, labels)
            )
            for labels in map(torch.tensor, ([1.0, 1.0, 0.0], [1.0, 0.0, 1.0]))
        ]
        if all(same):
            exact.add(name)
    assert exact == EXACT


def test_the_only_unbiased_estimate_of_any_loss_has_terms_of_both_signs():
    loss, looks = SoftNDCG(), EXAMINED(SHOWN).double()
    sets = [frozenset(s) for k in range(4) for s in itertools.combinations(range(3), k)]

    def value(items):
        return loss(SCORES, torch.tensor([float(i in items) for i in range(3)])).item()

    def signed(whole):
        return sum((-1) ** len(whole - part) * value(part) for part in sets if part <= whole)

    def estimate(clicked):
        inverse = {s: 1 / looks[[*s]].prod() for s in sets}
        return sum(signed(s) * inverse[s] for s in sets if s <= clicked)

    for relevant in sets:
        expected = 0.0
        for pattern, chance in looks_at_three_items():
            expected += chance * estimate(relevant & {i for i in range(3) if pattern[i]})
        torch.testing.assert_close(expected, torch.tensor(value(relevant)).double())
    assert min(signed(s) for s in sets) < -0.01 < 0.01 < max(signed(s) for s in sets)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("relevant", [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
def test_the_softmax_loss_of_several_clicks_has_the_gradient_on_relevance(normalize, relevant):
    labels, loss = torch.tensor(relevant).double(), Unbiased(SoftmaxLoss(normalize), EXAMINED)
    expected = torch.zeros(3).double()
    for seen, chance in looks_at_three_items():
        clicks = labels * seen
        number = clicks.sum() if normalize else 1  # with `normalize` it is the mean over the clicks
        expected += chance * number * gradient(loss, clicks, position=SHOWN)
    torch.testing.assert_close(expected, gradient(SoftmaxLoss(normalize=False), labels))


@pytest.mark.parametrize("name", [name for name in LOSSES if LOSSES[name]().every_item])
def test_a_mean_over_all_items_has_the_weights_of_all_of_them_once(name):
    loss, clicks = LOSSES[name](), torch.tensor([0.0, 1.0, 0.0])
    expected = loss(SCORES, clicks, weights=SHOWN)
    torch.testing.assert_close(Unbiased(loss)(SCORES, clicks, position=SHOWN), expected)
    flat = Unbiased(loss)(SCORES, clicks, position=SHOWN, lengths=[3])
    torch.testing.assert_close(flat, expected)


@of_clicks
def test_without_bias_nothing_changes(name):
    loss = OF_CLICKS[name]()
    scores = torch.randn(4, 5, generator=torch.Generator().manual_seed(0)).double()
    clicks = torch.randint(0, 2, (4, 5), generator=torch.Generator().manual_seed(1)).double()
    clicks[0] = 0
    weights = torch.rand(4, 5, generator=torch.Generator().manual_seed(2)).double()
    found = Unbiased(loss, PositionBias(0.0))(scores, clicks, weights=weights)
    torch.testing.assert_close(found, loss(scores, clicks, weights=weights))


def drawn(*shape: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return scores, clicks and positions; the first list has no click."""
    generator = torch.Generator().manual_seed(7)
    scores = torch.randn(shape, generator=generator).double()
    clicks = torch.randint(0, 2, shape, generator=generator).double()
    clicks[0] = 0
    return scores, clicks, torch.rand(shape, generator=generator).argsort(-1) + 1


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("loss", [SoftmaxLoss(), SoftNDCG(), RankNet(), PointwiseMSE()], ids=str)
def test_a_penalty_is_not_corrected(loss, split):
    scores, clicks, position = drawn(4, 5)
    given = {"position": position, "protected": position % 2}
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[1, 2:] = False
    inside = Unbiased(Penalized(loss, ExposureParity(), 3.0), split=split)
    outside = Penalized(Unbiased(loss, split=split), ExposureParity(), 3.0)
    found = inside(scores, clicks, mask, **given)
    torch.testing.assert_close(found, outside(scores, clicks, mask, **given))
    twice = Unbiased(Penalized(Penalized(loss), ExposureParity(), 3.0), split=split)
    both = Penalized(Penalized(Unbiased(loss, split=split)), ExposureParity(), 3.0)
    torch.testing.assert_close(
        twice(scores, clicks, mask, **given), both(scores, clicks, mask, **given)
    )


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_self_normalization_divides_by_the_mean_weight_of_the_clicks_of_the_batch(split, reduction):
    scores, clicks, position = drawn(4, 5)
    weights = torch.arange(1.0, 6.0).double().expand(4, 5)
    inverse = inverse_propensity_weights(position, clip=3.0).double()
    plain = Unbiased(SoftNDCG(), clip=3.0, split=split, reduction=reduction)
    normal = Unbiased(SoftNDCG(), None, 3.0, split, True, reduction)
    for w in (None, weights):
        counted = clicks if w is None else clicks * w
        expected = plain(scores, clicks, weights=w, position=position)
        expected = expected / ((inverse * counted).sum() / counted.sum())
        found = normal(scores, clicks, weights=w, position=position)
        torch.testing.assert_close(found, expected)
        # the lists of other forms are one batch too
        flat = [x.flatten() for x in (scores, clicks, position)]
        rows = None if w is None else w.flatten()
        for form in ({"lengths": [5] * 4}, {"qid": torch.arange(4).repeat_interleave(5)}):
            found = normal(*flat[:2], weights=rows, position=flat[2], **form)
            torch.testing.assert_close(found, expected)
    none = torch.zeros(2, 3)
    assert normal(none, none).abs().sum() == 0
    constant = normal(scores, clicks, position=torch.full((4, 5), 9))
    torch.testing.assert_close(
        constant,
        Unbiased(SoftNDCG(), PositionBias(0.0), split=split, reduction=reduction)(scores, clicks),
    )


@pytest.mark.parametrize("name", [name for name in LOSSES if LOSSES[name]().every_item])
def test_options_of_clicks_do_not_change_a_mean_over_all_items(name):
    scores, clicks, position = drawn(4, 5)
    expected = Unbiased(LOSSES[name]())(scores, clicks, position=position)
    found = Unbiased(LOSSES[name](), split=True, self_normalize=True)
    torch.testing.assert_close(found(scores, clicks, position=position), expected)


@pytest.mark.parametrize("options", [{}, {"split": True}, {"self_normalize": True}], ids=str)
def test_the_forms_of_lists_agree(options):
    scores, clicks, position = drawn(4, 5)
    loss = Unbiased(Penalized(SoftNDCG(), RankNet()), clip=3.0, reduction="none", **options)
    lengths = torch.tensor([5, 0, 3, 1])
    mask = torch.arange(5) < lengths[:, None]
    padded = loss(scores, clicks, mask, position=torch.where(mask, position, -7))
    rows = [x[mask] for x in (scores, clicks, position)]
    flat = loss(*rows[:2], lengths=lengths, position=rows[2])
    torch.testing.assert_close(flat, padded)
    nested = [
        torch.nested.nested_tensor([*x.split(lengths.tolist())], layout=torch.jagged) for x in rows
    ]
    torch.testing.assert_close(loss(*nested[:2], position=nested[2]), padded)
    torch.testing.assert_close(
        loss(
            scores.view(2, 2, 5),
            clicks.view(2, 2, 5),
            mask.view(2, 2, 5),
            position=position.view(2, 2, 5),
        ).flatten(),
        padded,
    )


@pytest.mark.parametrize("shape", [(3, 0), (0, 4), (2, 4)])
def test_split_lists_without_a_click(shape):
    scores = torch.randn(shape, requires_grad=True)
    Unbiased(split=True)(scores, torch.zeros(shape)).backward()
    assert not scores.grad.any()


@pytest.mark.parametrize("kind", [torch.tensor, lambda x: torch.tensor(x, dtype=torch.float16)])
def test_one_click_lists(kind):
    labels, lengths = kind([0.0, 3.0, 1.0, 0.0, 1.0]), torch.tensor([3, 0, 1, 1])
    clicks, items, alone, sizes = one_click_lists(labels, lengths)
    assert clicks.tolist() == [1, 2, 4]
    assert items.tolist() == [0, 1, 2, 0, 1, 2, 4]
    assert alone.tolist() == [0, 3, 0, 0, 0, 1, 1]
    assert sizes.tolist() == [3, 3, 1]
    assert [len(x) for x in one_click_lists(labels * 0, lengths)] == [0, 0, 0, 0]


def test_by_default_lists_are_in_the_order_in_which_they_were_shown():
    scores, clicks = torch.randn(3, 6), torch.randint(0, 2, (3, 6)).float()
    position = torch.arange(1, 7).expand(3, 6)
    loss = Unbiased(PointwiseMSE())
    torch.testing.assert_close(loss(scores, clicks), loss(scores, clicks, position=position))
    mask = torch.tensor([[True, False, True, True, False, True]] * 3)
    real = [x[mask].view(3, 4) for x in (scores, clicks)]
    torch.testing.assert_close(loss(scores, clicks, mask), loss(*real))


def test_position_and_what_the_loss_takes_of_ragged_lists():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(9, generator=generator, dtype=torch.float64)
    clicks, protected = torch.randint(0, 2, (2, 9), generator=generator)
    position = torch.tensor([4, 3, 2, 1, 2, 3, 1, 5, 4])
    lengths = torch.tensor([4, 0, 5])
    loss = Unbiased(Penalized(PointwiseMSE()), reduction="none")
    parts = [x.split(lengths.tolist()) for x in (scores, clicks, position, protected)]
    for told in (True, False):
        options = {"position": position} if told else {}
        found = loss(scores, clicks, lengths=lengths, protected=protected, **options)
        apart = [
            loss(s, y, protected=g, **({"position": p} if told else {}))
            for s, y, p, g in zip(*parts, strict=True)
        ]
        torch.testing.assert_close(found, torch.stack(apart), rtol=0, atol=1e-12)


def test_weights_and_clipping():
    scores, clicks = torch.randn(5), torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0])
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    found = Unbiased(PointwiseMSE(), clip=3.0)(scores, clicks, None, weights)
    capped = torch.tensor([1.0, 2.0, 3.0, 3.0, 3.0]) * weights
    torch.testing.assert_close(found, PointwiseMSE()(scores, clicks, weights=capped))
    assert inverse_propensity_weights(torch.tensor([1, 3])).tolist() == pytest.approx([1, 3])


def test_a_table_of_examination_probabilities():
    bias = PositionBias(examination=[0.8, 0.4, 0.1])
    position = torch.tensor([[1, 2], [3, 9]])
    torch.testing.assert_close(bias(position), torch.tensor([[0.8, 0.4], [0.1, 0.1]]))
    torch.testing.assert_close(
        inverse_propensity_weights(position, bias, clip=5.0),
        torch.tensor([[1.25, 2.5], [5.0, 5.0]]),
    )
    assert bias.double()(position.double()).dtype == torch.float64


def test_reductions_are_of_the_whole_and_not_of_the_part():
    scores, clicks = torch.randn(4, 5), torch.randint(0, 2, (4, 5)).float()
    clicks[0] = 0
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[1] = False
    weights = torch.arange(1.0, 6.0).expand(4, 5)
    mean = (weights * clicks).sum(-1) / clicks.sum(-1).clamp(min=1)
    each = mean * SoftNDCG(reduction="none")(scores, clicks, mask, weights)
    assert each[:2].tolist() == [0, 0]  # no click, and no item
    for reduction in ("mean", "sum", "none"):
        inner = SoftNDCG(reduction="sum")
        found = Unbiased(inner, reduction=reduction)(scores, clicks, mask)
        expected = {"mean": each.sum() / 3, "sum": each.sum(), "none": each}[reduction]
        torch.testing.assert_close(found, expected)


def test_masked_values_do_not_matter():
    scores, clicks = torch.randn(2, 4), torch.ones(2, 4)
    mask = torch.tensor([[True, True, False, True]] * 2)
    position = torch.tensor([[1.0, 2.0, torch.nan, 3.0]] * 2)
    expected = Unbiased()(scores, clicks, mask)
    torch.testing.assert_close(Unbiased()(scores, clicks, mask, position=position), expected)


def test_a_loss_declares_its_side_inputs():
    assert SoftNDCG().side_inputs == ()
    assert Unbiased().side_inputs == ("position",)
    assert ExposureParity().side_inputs == ("protected",)
    assert Penalized().side_inputs == ("protected",)
    assert Penalized(Unbiased(), SoftMRR()).side_inputs == ("position",)
    assert Unbiased(Penalized()).side_inputs == ("position", "protected")
    assert Penalized(Unbiased(), Penalized(Unbiased())).side_inputs == ("position", "protected")


def test_each_part_gets_the_side_inputs_that_it_declares():
    generator = torch.Generator().manual_seed(0)
    scores, clicks = torch.randn(2, 6, generator=generator), torch.ones(2, 6)
    position = torch.tensor([[6, 5, 4, 3, 2, 1]] * 2)
    protected = torch.tensor([[1, 0, 1, 0, 0, 0]] * 2)
    loss, penalty = Unbiased(PointwiseMSE()), ExposureParity()
    expected = loss(scores, clicks, position=position) + penalty(
        scores, clicks, protected=protected
    )
    both = {"position": position, "protected": protected}
    found = Penalized(loss, penalty)(scores, clicks, **both)
    torch.testing.assert_close(found, expected)
    flat = {name: x.flatten() for name, x in both.items()}
    ragged = Penalized(loss, penalty)(scores.flatten(), clicks.flatten(), lengths=[6, 6], **flat)
    torch.testing.assert_close(ragged, expected)
    # a part within a part has them too
    inner = Unbiased(Unbiased(PointwiseMSE()))
    weights = 1.0 * position
    torch.testing.assert_close(
        inner(scores, clicks, position=position),
        loss(scores, clicks, None, weights, position=position),
    )
    torch.testing.assert_close(
        inner(scores.flatten(), clicks.flatten(), lengths=[6, 6], position=flat["position"]),
        loss(scores, clicks, None, weights, position=position),
    )


def test_split_does_not_hide_a_nan_score_of_a_list_without_a_click():
    scores, clicks = torch.zeros(2, 3), torch.zeros(2, 3)
    scores[0, 1] = torch.nan
    each = Unbiased(split=True, reduction="none")(scores, clicks)
    assert each.isnan().tolist() == [True, False]


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"power.*-1"):
        PositionBias(-1)
    for wrong in ([], [0.0], [1.5]):
        with pytest.raises(ValueError, match=r"examination must"):
            PositionBias(examination=wrong)
    with pytest.raises(ValueError, match=r"clip.*0"):
        Unbiased(clip=0)
    with pytest.raises(ValueError, match=r"clip.*0"):
        inverse_propensity_weights(torch.ones(2), clip=0)
    for name in ("split", "self_normalize"):
        with pytest.raises(ValueError, match=rf"{name} must be True or False, got 1"):
            Unbiased(**{name: 1})
    with pytest.raises(ValueError, match="position must"):
        Unbiased()(torch.zeros(3), torch.zeros(3), position=torch.ones(2))
