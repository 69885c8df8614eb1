"""The k-nearest-neighbor loss compared with the matrix and scikit-learn's classifier."""

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from ltr.losses import KNNLoss
from ltr.operators import (
    NeuralSort,
    SigmoidRank,
    SinkhornSort,
    SoftSort,
    SortingNetwork,
    Stochastic,
)


def draw(*shape: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    scores = -torch.rand(shape, generator=generator, dtype=torch.float64)
    labels = (torch.rand(shape, generator=generator) < 0.4).double()
    labels[..., 0] = 1
    return scores, labels, torch.rand(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("operator", [SoftSort(0.3), NeuralSort(), SortingNetwork()], ids=repr)
@pytest.mark.parametrize("k", [1, 3, 9])
def test_by_the_papers_formula(operator, k):
    scores, labels, weights = draw(5, 6)
    P = operator.permutation(scores).dense()[:, :k]
    p = (P @ labels.unsqueeze(-1)).sum((-1, -2)) / min(k, 6)
    weighted = (P @ (labels * weights).unsqueeze(-1)).sum((-1, -2))
    weighted = weighted / (P @ weights.unsqueeze(-1)).sum((-1, -2))
    for form, of in [("probability", lambda p: 1 - p), ("log", lambda p: -p.log())]:
        loss = KNNLoss(operator, k, form, reduction="none")
        torch.testing.assert_close(loss(scores, labels), of(p))
        torch.testing.assert_close(loss(scores, labels, None, weights), of(weighted))
        summed = KNNLoss(operator, k, form, average=False, reduction="none")
        torch.testing.assert_close(summed(scores, labels), k * of(p))


@pytest.mark.parametrize("k", [1, 3, 5])
def test_a_hard_permutation_gives_scikit_learns_votes(k):
    generator = torch.Generator().manual_seed(0)
    points, queries = (
        torch.randn(30, 2, generator=generator),
        torch.randn(8, 2, generator=generator),
    )
    classes = torch.randint(0, 3, (30,), generator=generator)
    votes = KNeighborsClassifier(k).fit(points, classes).predict_proba(queries)
    scores = -torch.cdist(queries, points).square()
    for c in range(3):
        labels = (classes == c).float().expand(8, 30)
        loss = KNNLoss(SoftSort(0), k, reduction="none")(scores, labels)
        torch.testing.assert_close(1 - loss, torch.from_numpy(votes[:, c]).float())


def test_fewer_real_candidates_than_k():
    scores, labels, _ = draw(4, 3)
    mask = torch.arange(8) < 3
    wide, marks = (torch.nn.functional.pad(x, (0, 5), value=torch.nan) for x in (scores, labels))
    for form in ("probability", "log"):
        loss = KNNLoss(SoftSort(0.3), 5, form)
        found, expected = loss(wide, marks, mask.expand(4, 8)), loss(scores, labels)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(KNNLoss(SoftSort(0))(scores, labels), 1 - labels.mean())


@pytest.mark.parametrize("gap", [25.0, 60.0, 90.0, 120.0])
def test_a_class_far_away_has_a_gradient_in_the_log_form(gap):
    scores = torch.tensor([-1.0, -1.0 - gap], requires_grad=True)
    found = KNNLoss(top_k=1, form="log")(scores, torch.tensor([0.0, 1.0]))
    found.backward()
    assert found.isfinite()
    assert scores.grad[1] < -1


@pytest.mark.parametrize("gap", [2.0**20, 2.0**24, 1e9])
def test_equal_candidates_far_away_share_one_gradient_in_float32(gap):
    # Two neighbors at 0, two candidates of the class at -gap: p has four equal terms.
    scores = torch.tensor([0.0, 0.0, -gap, -gap]).requires_grad_()
    loss = KNNLoss(SoftSort(0.5), top_k=2, form="log")(scores, torch.tensor([0.0, 0.0, 1.0, 1.0]))
    (slope,) = torch.autograd.grad(loss, scores)
    expected = torch.tensor([1.0, 1.0, -1.0, -1.0])  # 1 / temperature, halved
    torch.testing.assert_close(slope, expected, rtol=1e-5, atol=0)


def test_samples_are_averaged():
    scores, labels, weights = draw(3, 5)
    generator = torch.Generator().manual_seed(0)
    operator = Stochastic(SoftSort(), samples=4, generator=generator)
    noisy, _, _ = operator.transform(scores)
    wide = [x.expand(4, 3, 5) for x in (labels, weights)]
    for form in ("probability", "log"):
        generator.manual_seed(0)
        found = KNNLoss(operator, 2, form)(scores, labels, weights=weights)
        expected = KNNLoss(None, 2, form)(noisy, wide[0], weights=wide[1])
        torch.testing.assert_close(found, expected)


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"form.*'p'"):
        KNNLoss(form="p")
    with pytest.raises(ValueError, match=r"top_k.*0"):
        KNNLoss(top_k=0)
    with pytest.raises(ValueError, match="KNNLoss needs a permutation"):
        KNNLoss(SigmoidRank())
    with pytest.raises(ValueError, match=r"operator.*3"):
        KNNLoss(SinkhornSort(milestones=3))(*draw(5)[:2])
