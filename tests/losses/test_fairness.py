"""Exposure penalties compared with their formulas, and their effect on a ranking."""

from math import log2

import pytest
import torch

from ltr.losses import ExposureParity, Penalized, PointwiseMSE, SoftNDCG
from ltr.operators import HardRank, SigmoidRank, SoftSort, Stochastic


def draw(*shape: int):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, shape, generator=generator).double()
    return scores, labels, torch.randint(0, 2, shape, generator=generator)


@pytest.mark.parametrize("operator", [HardRank(), SigmoidRank(0.5), SoftSort(0.5)], ids=repr)
@pytest.mark.parametrize("merit", [False, True])
@pytest.mark.parametrize("one_sided", [False, True])
def test_by_the_formula(operator, merit, one_sided):
    scores, labels, protected = draw(8, 6)
    weights = torch.rand(8, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    loss = ExposureParity(operator, merit=merit, one_sided=one_sided, reduction="none")
    found = loss(scores, labels, None, weights, protected=protected)
    for s, y, g, w, value in zip(scores, labels, protected, weights, found, strict=True):
        ranks, mean, merits = operator(s), [], []
        for k in (1, 0):
            items = [i for i in range(6) if g[i] == k]
            total = sum(w[i].item() for i in items)
            mean.append(sum(w[i].item() / log2(1 + ranks[i].item()) for i in items) / total)
            merits.append(sum(w[i].item() * y[i].item() for i in items) / total)
        if merit:
            if not all(merits):
                assert value == 0
                continue
            mean = [e * max(merits) / m for e, m in zip(mean, merits, strict=True)]
        gap = mean[1] - mean[0]
        assert value.item() == pytest.approx(max(gap, 0) ** 2 if one_sided else gap**2, abs=1e-12)


def test_one_group_alone_counts_0_and_masked_items_are_in_none():
    scores, labels, _ = draw(3, 5)
    scores.requires_grad_()
    loss = ExposureParity()
    found = loss(scores, labels, protected=torch.ones(3, 5))
    found.backward()
    assert found == 0
    assert (scores.grad == 0).all()
    protected = torch.tensor([[1, 1, 1, 0, 0]] * 3)
    mask = protected > 0
    assert loss(scores, labels, mask, protected=protected) == 0


def test_labels_are_the_groups_by_default():
    scores, labels, _ = draw(3, 5)
    torch.testing.assert_close(
        ExposureParity()(scores, labels), ExposureParity()(scores, labels, protected=labels > 0)
    )


def test_samples_are_averaged_after_the_square():
    scores, labels, protected = draw(3, 5)
    generator = torch.Generator().manual_seed(0)
    operator = Stochastic(SigmoidRank(), samples=4, generator=generator)
    found = ExposureParity(operator)(scores, labels, protected=protected)
    generator.manual_seed(0)
    noisy, _, _ = operator.transform(scores)
    wide = [x.expand(4, 3, 5) for x in (labels, protected)]
    torch.testing.assert_close(found, ExposureParity()(noisy, wide[0], protected=wide[1]))


def test_a_penalized_ranking_is_fairer():
    labels = torch.tensor([1.0, 1.0, 1.0, 0.9, 0.9, 0.9])
    protected = torch.tensor([0, 0, 0, 1, 1, 1])
    penalty = ExposureParity(SigmoidRank(0.3))
    unfair = {}
    for strength in (0.0, 10.0):
        scores = torch.linspace(1, 0, 6).requires_grad_()
        loss = Penalized(SoftNDCG(gain="linear"), penalty, strength)
        optimizer = torch.optim.Adam([scores], lr=0.02)
        for _ in range(100):
            optimizer.zero_grad()
            loss(scores, labels, protected=protected).backward()
            optimizer.step()
        unfair[strength] = penalty(scores, labels, protected=protected).item()
    assert unfair[10.0] < unfair[0.0] / 10


def test_penalized_is_the_sum_whatever_the_reductions_of_its_parts():
    scores, labels, protected = draw(4, 5)
    for reduction in ("mean", "sum", "none"):
        kept = PointwiseMSE(reduction="sum")
        loss = Penalized(kept, ExposureParity(), 0.3, reduction)
        each = PointwiseMSE(reduction="none")(scores, labels)
        each = each + 0.3 * ExposureParity(reduction="none")(scores, labels, protected=protected)
        expected = {"mean": each.mean(), "sum": each.sum(), "none": each}[reduction]
        torch.testing.assert_close(loss(scores, labels, protected=protected), expected)
        assert kept.reduction == "sum"  # the user's own object is unchanged


@pytest.mark.parametrize("kind", [ExposureParity, Penalized])
def test_groups_of_ragged_lists(kind):
    scores, labels, protected = draw(9)
    lengths = torch.tensor([4, 0, 5])
    loss = kind(reduction="none")
    found = loss(scores, labels, lengths=lengths, protected=protected)
    parts = [x.split(lengths.tolist()) for x in (scores, labels, protected)]
    apart = [loss(s, y, protected=g) for s, y, g in zip(*parts, strict=True)]
    torch.testing.assert_close(found, torch.stack(apart), rtol=0, atol=1e-12)
    assert (found[[0, 2]] > 0).all()


def test_parameters_of_a_wrapped_operator_are_its_own():
    class Learned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, a, b):
            return self.scale * (a - b).abs()

    inner = SoftNDCG(SoftSort(power=Learned()))
    assert next(Penalized(inner).parameters()) is next(inner.parameters())


def test_bad_arguments():
    with pytest.raises(ValueError, match="protected must"):
        ExposureParity()(torch.zeros(3), torch.zeros(3), protected=torch.zeros(2))
    with pytest.raises(ValueError, match=r"strength.*-1"):
        Penalized(strength=-1)
