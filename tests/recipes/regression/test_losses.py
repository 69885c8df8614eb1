"""Least-quantile and least-trimmed losses compared with numpy."""

import numpy as np
import pytest
import torch

from ltr.losses import PointwiseMSE
from ltr.operators import NeuralSort, SigmoidRank, SinkhornSort, SoftSort
from recipes.regression.losses import LeastQuantileRegression, LeastTrimmedSquares


def draw(*shape: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3))


@pytest.mark.parametrize("q", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_least_quantile_is_numpys_quantile_of_the_squared_errors(q):
    scores, labels, _ = draw(10, 8)
    mask = torch.rand(10, 8, generator=torch.Generator().manual_seed(2)) < 0.8
    found = LeastQuantileRegression(SoftSort(1e-9), q, reduction="none")(scores, labels, mask)
    for s, y, m, value in zip(scores, labels, mask, found, strict=True):
        expected = np.quantile(((s - y) ** 2)[m], q)
        assert value.item() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.7, 1.0])
def test_least_trimmed_is_the_mean_of_the_smallest(keep):
    scores, labels, weights = draw(10, 10)
    weights = weights.abs()
    mask = torch.rand(10, 10, generator=torch.Generator().manual_seed(2)) < 0.8
    mask[0] = True
    loss = LeastTrimmedSquares(SoftSort(1e-9), keep, reduction="none")
    for w in (None, weights):
        found = loss(scores, labels, mask, w)
        for i, m in enumerate(mask):
            errors = ((1 if w is None else w[i]) * (scores[i] - labels[i]) ** 2)[m].sort().values
            h = int(np.ceil(round(keep * len(errors), 9)))
            assert found[i].item() == pytest.approx(errors[:h].mean().item(), abs=1e-7)


@pytest.mark.parametrize(
    "loss", [LeastQuantileRegression(SoftSort(0.1), 0.7), LeastTrimmedSquares(keep=0.7)], ids=repr
)
def test_a_line_is_fitted_among_wrong_labels(loss):
    x = torch.linspace(-1, 1, 40, dtype=torch.float64)
    labels = 2 * x + 1
    labels[::5] = 50.0  # a fifth of the labels
    parameters = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([parameters], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        loss(parameters[0] * x + parameters[1], labels).backward()
        optimizer.step()
    torch.testing.assert_close(
        parameters.detach(), torch.tensor([2.0, 1.0]).double(), rtol=0, atol=0.1
    )


HARMLESS = [
    LeastQuantileRegression(SoftSort(0.1), 0.7),
    LeastQuantileRegression(NeuralSort(), 0.5),
    LeastTrimmedSquares(keep=0.75),
    LeastTrimmedSquares(SinkhornSort(), keep=0.5),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("wrong", [1e20, -1e20, 3e38])
@pytest.mark.parametrize("loss", HARMLESS, ids=repr)
def test_labels_that_are_wrong_by_any_amount_do_no_harm(loss, wrong, dtype):
    scores, labels, weights = (x.to(dtype) for x in draw(3, 12))
    mask = torch.arange(12) < torch.tensor([[12], [10], [6]])
    found = []
    for value in (1e6, wrong):
        labels[:, 3], s = value, scores.clone().requires_grad_()
        each = [loss(s, labels, mask, w) for w in (None, weights.abs() + 0.1)]
        sum(each).backward()
        found.append((torch.stack(each), s.grad))
    torch.testing.assert_close(found[1], found[0])
    assert found[0][1].isfinite().all()
    assert (found[0][1][:, 3] == 0).all()


@pytest.mark.parametrize("loss", HARMLESS, ids=repr)
def test_errors_that_are_all_large_have_gradients(loss):
    scores = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], requires_grad=True)
    loss(scores, scores.detach().flip(0) * 1e3 + 1e7).backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad != 0).any()


@pytest.mark.parametrize(("size", "dtype"), [(1e300, torch.float64), (1e30, torch.float32)])
def test_squares_that_overflow_make_the_loss_infinite(size, dtype):
    scores = torch.tensor([[size, 2 * size, 1.0, 2.0], [size, 3.0, 1.0, 2.0]], dtype=dtype)
    for loss in (LeastTrimmedSquares(keep=0.75, reduction="none"), PointwiseMSE(reduction="none")):
        assert loss(scores, torch.zeros_like(scores))[0] == torch.inf
    loss = LeastTrimmedSquares(keep=0.75)  # the large error of the second list is left out
    assert loss(scores[1], torch.zeros_like(scores[1])).isfinite()
    loss = LeastQuantileRegression(q=1.0, reduction="none")
    assert (loss(scores, torch.zeros_like(scores)) == torch.inf).all()


@pytest.mark.parametrize("loss", HARMLESS, ids=repr)
def test_masked_items_and_lists_without_items_add_nothing(loss):
    scores, labels, weights = draw(2, 6)
    mask = torch.tensor([[True, False, True, True, False, True], [False] * 6])
    leaf = torch.where(mask, scores, torch.nan).requires_grad_()
    labels, weights = (torch.where(mask, x, torch.nan) for x in (labels, weights.abs()))
    value = loss(leaf, labels, mask, weights)
    value.backward()
    kept = [x[0][mask[0]] for x in (scores, labels, weights)]
    torch.testing.assert_close(value.detach(), loss(kept[0], kept[1], weights=kept[2]))
    assert (leaf.grad[~mask] == 0).all()
    assert loss(torch.zeros(0), torch.zeros(0)) == 0


def test_bad_arguments():
    for loss in (LeastQuantileRegression, LeastTrimmedSquares):
        with pytest.raises(ValueError, match=r"operator must"):
            loss(SinkhornSort(milestones=2))(torch.zeros(4), torch.zeros(4))
        with pytest.raises(ValueError, match=r"operator must be a SortOperator, got SigmoidRank"):
            loss(SigmoidRank())
    with pytest.raises(ValueError, match=r"q.*1.5"):
        LeastQuantileRegression(q=1.5)
    for keep in (0.0, 1.1):
        with pytest.raises(ValueError, match="keep must"):
            LeastTrimmedSquares(keep=keep)
