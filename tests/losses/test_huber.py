"""Huber's loss compared with scikit-learn's regression, and its scale with the definition."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar
from sklearn.linear_model import HuberRegressor

from ltr.losses import PointwiseHuber


def huber(z: np.ndarray, t: float) -> np.ndarray:
    size = np.abs(z)
    return np.where(size <= t, size**2, 2 * t * size - t**2)


def sample(seed: int = 0, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    y = x @ [1.0, -2.0, 0.5] + 3 + rng.normal(size=n)
    y[rng.permutation(n)[: n // 5]] += rng.uniform(10, 20, n // 5)
    return x, y


@pytest.mark.parametrize("threshold", [1.01, 1.35, 3.0])
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_the_scale_makes_it_smallest(threshold: float, n: int):
    errors = np.random.default_rng(n).standard_t(1.5, size=n)
    found = PointwiseHuber(threshold)(torch.tensor(errors), torch.zeros(n).double())
    best = minimize_scalar(
        lambda log_s: np.mean(math.exp(log_s) * (1 + huber(errors / math.exp(log_s), threshold))),
        bounds=(-12, 8),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert found.item() == pytest.approx(best.fun, rel=1e-9)


@pytest.mark.parametrize("threshold", [1.35, 2.0])
def test_its_minimum_is_scikit_learns(threshold: float):
    x, y = sample()
    model = HuberRegressor(epsilon=threshold, alpha=0, max_iter=10000, tol=1e-10).fit(x, y)
    loss, features, labels = PointwiseHuber(threshold), torch.tensor(x), torch.tensor(y)

    def value_and_gradient(w: np.ndarray) -> tuple[float, np.ndarray]:
        parameters = torch.tensor(w, requires_grad=True)
        value = loss(features @ parameters[:3] + parameters[3], labels)
        value.backward()
        assert parameters.grad is not None
        return value.item(), parameters.grad.numpy()

    found = minimize(value_and_gradient, np.zeros(4), jac=True, tol=1e-12).x
    wanted = [*model.coef_, model.intercept_]
    np.testing.assert_allclose(
        found, wanted, rtol=0, atol=1e-4
    )  # scikit-learn's solver stops at this tolerance


def test_a_fixed_scale():
    errors = torch.tensor([0.5, -2.0, 10.0], dtype=torch.float64)
    loss = PointwiseHuber(2.0, adaptive=False)(errors, torch.zeros(3).double())
    assert loss.item() == pytest.approx((0.5**2 + 2**2 + 2 * 2 * 10 - 2**2) / 3)


@pytest.mark.parametrize("adaptive", [True, False])
def test_gradients(adaptive: bool):
    x, y = sample(1, 12)
    loss = PointwiseHuber(1.35, adaptive)
    scores = torch.tensor(x[:, 0], requires_grad=True)
    assert torch.autograd.gradcheck(loss, (scores, torch.tensor(y)))


@pytest.mark.parametrize("adaptive", [True, False])
def test_masked_items_and_weights(adaptive: bool):
    x, y = sample(2, 10)
    loss = PointwiseHuber(1.35, adaptive, reduction="none")
    scores, labels = torch.tensor(x[:, :2].T), torch.tensor(y).expand(2, -1)
    mask = torch.tensor([[True] * 10, [True] * 6 + [False] * 4])
    spoilt = torch.where(mask, scores, torch.nan)
    found = loss(spoilt, labels, mask)
    for row, real in zip(range(2), mask, strict=True):
        torch.testing.assert_close(found[row], loss(scores[row][real], labels[row][real]))
    counts = torch.tensor([1, 2, 3, 0, 1, 1, 0, 4, 1, 1])
    weighted = loss(scores[0], labels[0], weights=counts.double())
    torch.testing.assert_close(
        weighted, loss(scores[0].repeat_interleave(counts), labels[0].repeat_interleave(counts))
    )


def test_lists_without_errors_or_items():
    loss = PointwiseHuber(reduction="none")
    scores = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[0.0] * 4, [0.0, 0.0, 0.0, 3.0], [1.0] * 4], dtype=torch.float64)
    mask = torch.tensor([[True] * 4, [True] * 4, [False] * 4])
    found = loss(scores, labels, mask)
    # with this many errors of 0 the best scale is 0, and the loss is 2 t |e| / n
    torch.testing.assert_close(found, torch.tensor([0.0, 2 * 1.35 * 3 / 4, 0.0]).double())
    found.sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert PointwiseHuber()(torch.zeros(2, 0), torch.zeros(2, 0)) == 0
    assert PointwiseHuber()(torch.tensor([torch.nan, 0.0]), torch.zeros(2)).isnan()


@pytest.mark.parametrize(("threshold", "adaptive"), [(1.0, True), (0.0, False), (-1, False)])
def test_the_threshold_is_checked(threshold: float, adaptive: bool):
    with pytest.raises(ValueError, match="threshold must"):
        PointwiseHuber(threshold, adaptive)


def test_one_error_of_any_size_pulls_with_the_same_strength():
    scores, found = torch.linspace(-1, 1, 9), []
    for wrong in (1e3, 1e20):
        labels = torch.zeros(9)
        labels[4], s = wrong, scores.clone().requires_grad_()
        PointwiseHuber()(s, labels).backward()
        found.append(s.grad)
    assert found[0].isfinite().all()
    torch.testing.assert_close(found[1], found[0])
