"""Pointwise losses compared with scikit-learn and their formulas."""

from math import exp, log

import pytest
import torch
from sklearn.metrics import log_loss, mean_squared_error

from ltr.losses import (
    PointwiseMSE,
    PointwiseOrdinal,
    PointwiseSigmoid,
    Unbiased,
)


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    return scores, torch.randint(0, 5, shape, generator=generator).double()


def test_mse_is_scikit_learns():
    s, y = draw(12)
    u = draw(12, seed=1)[0].abs()
    expected = mean_squared_error(y, s, sample_weight=u)
    assert PointwiseMSE()(s, y, weights=u).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("threshold", [1.0, 2.5])
def test_sigmoid_is_scikit_learns_log_loss(threshold):
    s, y = draw(12)
    u = draw(12, seed=1)[0].abs()
    chances = torch.sigmoid(s).numpy()
    expected = log_loss((y >= threshold).numpy(), chances, sample_weight=u.numpy())
    loss = PointwiseSigmoid(threshold)
    assert loss(s, y, weights=u).item() == pytest.approx(expected, rel=1e-12)


def test_sigmoid_of_probabilities():
    s = torch.tensor([0.3, -1.0], dtype=torch.float64)
    y = torch.tensor([0.2, 0.9], dtype=torch.float64)
    q = torch.sigmoid(s)
    expected = -(y * q.log() + (1 - y) * (1 - q).log()).mean()
    torch.testing.assert_close(PointwiseSigmoid(None)(s, y), expected)


@pytest.mark.parametrize("kind", [PointwiseSigmoid, lambda x: Unbiased(PointwiseSigmoid(x))])
def test_sigmoid_of_labels_that_are_no_probabilities_is_refused(kind):
    s, loss = torch.tensor([0.3, -1.0, 5.0]), kind(None)
    more = {"position": torch.ones(3, dtype=torch.long)} if isinstance(loss, Unbiased) else {}
    for label in (3.0, 1.0001):
        y = torch.tensor([1.0, 0.0, label])
        with pytest.raises(ValueError, match=f"labels must be <= 1, got {label:g}"):
            loss(s, y, **more)
        assert loss(s, y, torch.tensor([True, True, False]), **more).isfinite()
        kind(1.0)(s, y, **more)
    with pytest.raises(ValueError, match="labels must be <= 1, got 2"):
        loss(s, torch.tensor([1, 0, 2]), **more)
    with pytest.raises(ValueError, match="labels must be >= 0, got -1"):
        loss(s, torch.tensor([1, 0, -1]), **more)
    y = torch.tensor([[1.0, 0.0, 3.0], [1.0, 0.0, 0.5]])
    found = torch.func.vmap(lambda y: PointwiseSigmoid(None)(s, y))(y)
    assert found.isnan().tolist() == [True, False]


def test_ordinal_by_loops():
    s, y = draw(9)
    thresholds = [-1.0, 0.2, 0.2, 3.0]
    total = 0.0
    for x, v in zip(s.tolist(), y.tolist(), strict=True):
        for grade, theta in enumerate(thresholds, 1):
            q = 1 / (1 + exp(theta - x))
            total -= log(q if v >= grade else 1 - q)
    loss = PointwiseOrdinal(thresholds)
    assert loss(s, y).item() == pytest.approx(total / 9, rel=1e-12)


def test_ordinal_scores_stand_between_their_thresholds():
    for grade in range(5):
        score = torch.zeros(1, requires_grad=True)
        optimizer, loss = torch.optim.Adam([score], lr=0.1), PointwiseOrdinal()
        for _ in range(200):
            optimizer.zero_grad()
            loss(score, torch.tensor([float(grade)])).backward()
            optimizer.step()
        between = [-99.0, 0.5, 1.5, 2.5, 3.5, 99.0]
        assert between[grade] < score.item() < between[grade + 1]


def test_labels_above_the_last_grade_count_as_it():
    s = torch.randn(4)
    loss = PointwiseOrdinal()
    torch.testing.assert_close(loss(s, torch.full((4,), 31.0)), loss(s, torch.full((4,), 4.0)))


@pytest.mark.parametrize("loss", [PointwiseSigmoid(), PointwiseOrdinal()], ids=repr)
@pytest.mark.parametrize("score", [-120.0, -90.0, 90.0, 120.0])
def test_very_wrong_items_have_a_finite_loss_and_a_full_gradient(loss, score):
    scores = torch.tensor([score], requires_grad=True)
    value = loss(scores, torch.tensor([0.0 if score > 0 else 4.0]))
    value.backward()
    assert value.isfinite()
    assert value >= 80
    assert scores.grad.abs() >= 1


@pytest.mark.parametrize("kind", [PointwiseMSE, PointwiseSigmoid, PointwiseOrdinal])
def test_the_mean_is_over_the_real_items_of_each_list(kind):
    s, y = draw(2, 5)
    mask = torch.tensor([[True, True, False, False, False], [True] * 5])
    each = kind(reduction="none")(s, y, mask)
    torch.testing.assert_close(each[0], kind()(s[0, :2], y[0, :2]))
    torch.testing.assert_close(each[1], kind()(s[1], y[1]))


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"threshold.*0"):
        PointwiseSigmoid(0)
    with pytest.raises(ValueError, match=r"thresholds.*\[1\.0, 0\.0\]"):
        PointwiseOrdinal([1.0, 0.0])
    with pytest.raises(ValueError, match=r"thresholds.*\[\]"):
        PointwiseOrdinal([])
