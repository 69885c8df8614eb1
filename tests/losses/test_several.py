"""`SeveralLabels`, against its losses taken one by one on the items whose label is known."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ltr.losses import XENDCG, LambdaRank, SeveralLabels, SoftmaxLoss, SoftNDCG, Unbiased
from ltr.losses.several import RUNNING_BATCHES, START_BATCHES

NAN = float("nan")
PAIRS = {"click": (SoftNDCG(), 1.0), "purchase": (LambdaRank(), 3.0)}


def lists(*shape: int, seed: int = 0, missing: float = 0.3) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scores (..., n) and two labels (..., n, 2), a part of them NaN."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (*shape, 2), generator=generator).double()
    unknown = torch.rand(labels.shape, generator=generator) < missing
    return scores.requires_grad_(), labels.masked_fill(unknown, NAN)


def one_by_one(scores, labels, mask=None, weights=None):
    """Return the loss of each label, over the known items of one list, which are taken out."""
    totals = []
    for k, (loss, _) in enumerate(PAIRS.values()):
        values = []
        for i in range(len(scores)):
            real = ~labels[i, :, k].isnan()
            real &= True if mask is None else mask[i]
            own = None if weights is None else weights[i][real]
            if real.any():
                values.append(loss(scores[i][real], labels[i][real][:, k], weights=own))
        totals.append(torch.stack(values).mean())
    return totals


@pytest.mark.parametrize("masked", [False, True])
def test_a_sum_has_the_values_and_gradients_of_its_losses(masked):
    scores, labels = lists(4, 6)
    mask = torch.arange(6) < torch.tensor([[6], [4], [3], [5]]) if masked else None
    weights = torch.rand(4, 6, dtype=torch.float64) + 0.5
    loss = SeveralLabels(PAIRS, scale=None)
    clicks, purchases = one_by_one(scores, labels, mask, weights)
    expected = clicks + 3 * purchases
    value = loss(scores, labels, mask, weights)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(
        torch.autograd.grad(value, scores)[0], torch.autograd.grad(expected, scores)[0]
    )


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_padded_ragged_and_named_lists_are_the_same(missing):
    scores, labels = lists(3, 5, missing=missing)
    loss = SeveralLabels(PAIRS, scale=None)
    padded = loss(scores, labels)
    flat, flat_labels = scores.flatten(), labels.flatten(0, 1)
    qid = torch.tensor([2, 7, 9]).repeat_interleave(5)
    torch.testing.assert_close(loss(flat, flat_labels, lengths=[5, 5, 5]), padded)
    torch.testing.assert_close(loss(flat, flat_labels, qid=qid), padded)
    mixed = torch.randperm(15, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(loss(flat[mixed], flat_labels[mixed], qid=qid[mixed]), padded)


def test_one_label_is_its_loss_bit_for_bit():
    scores, labels = lists(3, 5, missing=0.0)
    loss = SeveralLabels({"click": (SoftNDCG(), 1.0)}, scale=None)
    assert torch.equal(loss(scores, labels[..., :1]), SoftNDCG()(scores, labels[..., 0]))


@given(st.integers(1, 6), st.floats(0, 1), st.integers(0, 100))
@settings(deadline=None)
def test_unknown_labels_count_as_masked(n, missing, seed):
    scores, labels = lists(3, n, seed=seed, missing=missing)
    loss = SeveralLabels(PAIRS, scale=None)
    for k, name in enumerate(PAIRS):
        known = ~labels[..., k].isnan()
        alone = PAIRS[name][0](scores, labels[..., k].nan_to_num(7.0), known)
        assert torch.equal(loss.each(scores, labels)[name], alone)
        ragged = loss.each(scores.flatten(), labels.flatten(0, 1), lengths=[n, n, n])[name]
        torch.testing.assert_close(ragged, alone)


def test_labels_that_are_nowhere_known_add_nothing():
    scores, labels = lists(2, 4, missing=0.0)
    labels[..., 1] = NAN
    loss = SeveralLabels(PAIRS, scale=None)
    assert torch.equal(loss(scores, labels), SoftNDCG()(scores, labels[..., 0]))
    flat = scores.flatten(), labels.flatten(0, 1)
    torch.testing.assert_close(loss(*flat, lengths=[4, 4]), SoftNDCG()(scores, labels[..., 0]))


def test_chebyshev_is_the_largest():
    scores, labels = lists(4, 6)
    clicks, purchases = one_by_one(scores, labels)
    for weight in (0.01, 100.0):
        pairs = {"click": (SoftNDCG(), 1.0), "purchase": (LambdaRank(), weight)}
        value = SeveralLabels(pairs, "chebyshev", scale=None)(scores, labels)
        torch.testing.assert_close(value, torch.maximum(clicks, weight * purchases))


def test_without_reduction_each_list_has_a_value():
    pairs = {name: (copy.deepcopy(loss), w) for name, (loss, w) in PAIRS.items()}
    for loss, _ in pairs.values():
        loss.reduction = "none"
    scores, labels = lists(4, 6)
    loss = SeveralLabels(pairs, scale=None)
    assert loss(scores, labels).shape == (4,)
    named = loss(scores.flatten(), labels.flatten(0, 1), lengths=[6] * 4)
    torch.testing.assert_close(named, loss(scores, labels))


@pytest.mark.parametrize("scale", ["start", "running"])
def test_scales_are_means_of_the_losses_of_training_batches(scale):
    loss = SeveralLabels(PAIRS, scale=scale)
    seen = []
    for seed in range(START_BATCHES + 5):
        scores, labels = lists(3, 6, seed=seed)
        value = loss(scores, labels)
        seen.append(torch.stack([*loss.each(scores, labels).values()]).detach())
        means = torch.stack(seen[:START_BATCHES] if scale == "start" else seen).mean(0)
        torch.testing.assert_close(loss.scales, means)
        torch.testing.assert_close(value, (loss.weights * seen[-1] / means).sum())
    assert len(seen) < RUNNING_BATCHES
    loss.eval()
    before = loss.scales.clone()
    loss(*lists(3, 6, seed=99))
    assert torch.equal(loss.scales, before)


def test_units_of_a_loss_do_not_count():
    class Thousandfold(SoftNDCG):
        def per_list(self, *given, **named):
            return 1000 * super().per_list(*given, **named)

    scores, labels = lists(4, 6)
    pairs = {"click": (Thousandfold(), 1.0), "purchase": (LambdaRank(), 3.0)}
    torch.testing.assert_close(
        SeveralLabels(pairs)(scores, labels), SeveralLabels(PAIRS)(scores, labels)
    )


def test_multipliers_rise_below_the_floor_and_fall_above_it():
    loss = SeveralLabels(PAIRS, "floor", floors={"click": 0.6}, scale=None, step=10.0)
    scores, labels = lists(4, 6)
    clicks, purchases = one_by_one(scores, labels)
    for value, multiplier in ((0.5, 2.0), (0.55, 2.5), (0.7, 1.5), (0.9, 0.0), (0.59, 0.1)):
        loss.update({"click": value, "purchase": 0.1})
        torch.testing.assert_close(loss(scores, labels), multiplier * clicks + 3 * purchases)


def test_quality_prefers_epochs_that_hold_the_floor():
    loss = SeveralLabels(PAIRS, "floor", floors={"click": 0.6})
    held = loss.quality({"click": 0.6, "purchase": 0.1})
    assert held == pytest.approx(0.1)
    assert held > loss.quality({"click": 0.59, "purchase": 0.9}) == pytest.approx(-0.01)
    summed = SeveralLabels(PAIRS)
    assert summed.quality({"click": 0.5, "purchase": 0.1}) == pytest.approx(0.2)
    assert summed.quality({"click": 0.5, "purchase": NAN}) == pytest.approx(0.5)


def test_side_inputs_reach_the_loss_that_needs_them():
    scores, labels = lists(3, 5, missing=0.2)
    position = torch.arange(1, 6).expand(3, 5)
    biased = Unbiased(SoftmaxLoss())
    loss = SeveralLabels({"click": (biased, 1.0), "grade": (XENDCG(), 0.0)}, scale=None)
    assert loss.side_inputs == ("position",)
    known = ~labels[..., 0].isnan()
    alone = biased(scores, labels[..., 0].nan_to_num(), known, position=position)
    torch.testing.assert_close(loss(scores, labels, position=position), alone)


def test_copies_and_states_keep_scales_and_multipliers():
    loss = SeveralLabels(PAIRS, "floor", floors={"click": 0.6})
    loss(*lists(4, 6))
    loss.update({"click": 0.5})
    scores, labels = lists(4, 6, seed=1)
    again = SeveralLabels(PAIRS, "floor", floors={"click": 0.6})
    again.load_state_dict(loss.state_dict())
    for same in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), again):
        assert torch.equal(same(scores, labels), copy.deepcopy(loss)(scores, labels))
    assert "click: 3" in repr(loss)


@pytest.mark.parametrize(
    ("losses", "named", "message"),
    [
        ({}, {}, "losses must name a loss"),
        ({"a": SoftNDCG()}, {}, r"losses\['a'\] must be a loss and its weight"),
        ({"a": (SoftNDCG(), -1.0)}, {}, "the weight of 'a' must be .*-1"),
        ({"a": (SoftNDCG(), NAN)}, {}, "the weight of 'a' must be .*nan"),
        ({"a": (SoftNDCG(), 0.0)}, {}, "losses must have a weight above 0"),
        ({"a": (SoftNDCG(reduction="sum"), 1), "b": (SoftNDCG(), 1)}, {}, "one reduction"),
        (PAIRS, {"how": "mean"}, "how must be"),
        (PAIRS, {"scale": "end"}, "scale must be"),
        (PAIRS, {"step": 0.0}, "step must be"),
        (PAIRS, {"floors": {"click": 0.5}}, "floors need how='floor'"),
        (PAIRS, {"how": "floor"}, "floors must name at least one label"),
        (PAIRS, {"how": "floor", "floors": {"x": 0.5}}, "floors must name labels of .*'x'"),
        (PAIRS, {"how": "floor", "floors": dict.fromkeys(PAIRS, 0.5)}, "at least one label"),
        (PAIRS, {"how": "floor", "floors": {"click": NAN}}, r"floors\['click'\] must"),
    ],
)
def test_bad_arguments(losses, named, message):
    with pytest.raises(ValueError, match=message):
        SeveralLabels(losses, **named)


def test_bad_labels_name_the_label():
    scores, labels = lists(2, 3, missing=0.0)
    loss = SeveralLabels(PAIRS)
    for wrong in (labels[..., 0], labels[..., :1], None, [[1]]):
        with pytest.raises(ValueError, match=r"labels must have the shape \(2, 3, 2\)"):
            loss(scores, wrong)
    with pytest.raises(ValueError, match="mask must"):
        loss(scores, labels, torch.ones(2, dtype=torch.bool))
    with pytest.raises(TypeError, match="unexpected argument 'position'"):
        loss(scores, labels, position=scores)
    for value in (float("inf"), -float("inf")):
        labels[0, 0, 1] = value
        for flat in (scores, labels), (scores.flatten(), labels.flatten(0, 1)):
            lengths = [3, 3] if flat[0].dim() == 1 else None
            with pytest.raises(ValueError, match="label 'purchase': labels must be finite"):
                loss(*flat, lengths=lengths)
    labels[0, 0, 1] = -1
    with pytest.raises(ValueError, match="label 'purchase': labels must be >= 0, got -1"):
        loss(scores, labels)
    floor = SeveralLabels(PAIRS, "floor", floors={"click": 0.6})
    with pytest.raises(ValueError, match="values must have a finite 'click'"):
        floor.update({"purchase": 0.3})
