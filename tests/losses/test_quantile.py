"""Quantile, least-quantile and least-trimmed losses compared with numpy."""

import numpy as np
import pytest
import torch

from ltr.losses import (
    LeastQuantileRegression,
    LeastTrimmedSquares,
    PointwiseMSE,
    QuantileLoss,
)
from ltr.operators import NeuralSort, SigmoidRank, SinkhornSort, SoftSort, Stochastic


def draw(*shape: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3))


LEVELS = pytest.mark.parametrize("q", [0.0, 0.25, 0.5, 0.9, 1.0])


@LEVELS
def test_a_hard_permutation_gives_the_value_of_the_item_at_the_quantile(q):
    scores, labels, values = draw(12, 7)
    mask = torch.rand(12, 7, generator=torch.Generator().manual_seed(2)) < 0.8
    loss = QuantileLoss(SoftSort(0), q, reduction="none")
    both = [loss(scores, labels, mask), loss(scores, labels, mask, values=values)]
    for carried, found in zip((labels, values), both, strict=True):
        for s, y, v, m, error in zip(scores, labels, carried, mask, found, strict=True):
            ordered = v[m][s[m].argsort()].numpy()
            chosen = np.interp(q * (len(ordered) - 1), range(len(ordered)), ordered)
            assert error.item() == pytest.approx((chosen - np.quantile(y[m], q)) ** 2, abs=1e-12)


@pytest.mark.parametrize("operator", [SoftSort(0.5), NeuralSort()], ids=repr)
def test_the_median_row_by_the_papers_formulas(operator):
    scores, labels, values = draw(6, 5)
    row = operator.permutation(scores).dense()[:, 2]
    median = labels.median(-1).values  # the median of five
    mean = ((row * values).sum(-1) - median) ** 2
    expected = (row * (values - median.unsqueeze(-1)) ** 2).sum(-1)
    for flag, wanted in [(False, mean), (True, expected)]:
        loss = QuantileLoss(operator, expected=flag, reduction="none")
        torch.testing.assert_close(loss(scores, labels, values=values), wanted)


def test_scores_and_values_both_learn_from_the_median_alone():
    scores, labels, values = (x.requires_grad_() for x in draw(5))
    QuantileLoss(SoftSort(1.0))(scores, labels.detach(), values=values).backward()
    assert (scores.grad != 0).any()
    assert (values.grad != 0).all()
    median = labels.detach().median().expand(5)
    again = QuantileLoss(SoftSort(1.0))(scores, median, values=values)
    torch.testing.assert_close(again, QuantileLoss(SoftSort(1.0))(scores, labels, values=values))


def test_right_scores_at_the_quantile_cost_nothing():
    labels = torch.tensor([3.0, 9.0, 1.0, 7.0, 5.0])
    assert QuantileLoss(SoftSort(0.01))(labels, labels) == 0


def test_weights_multiply_the_list():
    scores, labels, _ = draw(2, 5)
    mask = torch.tensor([[True] * 5, [True, True, True, False, False]])
    weights = torch.tensor([[2.0] * 5, [1.0, 2.0, 6.0, 100.0, 100.0]])
    loss = QuantileLoss(reduction="none")
    expected = loss(scores, labels, mask) * torch.tensor([2.0, 3.0])
    torch.testing.assert_close(loss(scores, labels, mask, weights), expected.double())


def test_samples_are_averaged_after_the_square():
    scores, labels, values = draw(3, 5)
    generator = torch.Generator().manual_seed(0)
    operator = Stochastic(SoftSort(), samples=4, generator=generator)
    found = QuantileLoss(operator)(scores, labels, values=values)
    generator.manual_seed(0)
    noisy, _, _ = operator.transform(scores)
    wide = [x.expand(4, 3, 5) for x in (labels, values)]
    torch.testing.assert_close(found, QuantileLoss()(noisy, wide[0], values=wide[1]))


@pytest.mark.parametrize("expected", [False, True])
def test_values_of_ragged_lists(expected):
    scores, labels, values = draw(9)
    lengths = torch.tensor([4, 0, 5])
    loss = QuantileLoss(expected=expected, reduction="none")
    found = loss(scores, labels, lengths=lengths, values=values)
    parts = [x.split(lengths.tolist()) for x in (scores, labels, values)]
    apart = [loss(s, y, values=v) for s, y, v in zip(*parts, strict=True)]
    torch.testing.assert_close(found, torch.stack(apart), rtol=0, atol=1e-12)


@LEVELS
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


def test_bad_arguments():
    for loss in (QuantileLoss, LeastQuantileRegression):
        with pytest.raises(ValueError, match=r"q.*1.5"):
            loss(q=1.5)
        with pytest.raises(ValueError, match=r"operator must"):
            loss(SinkhornSort(milestones=2))(torch.zeros(4), torch.zeros(4))
        with pytest.raises(ValueError, match=f"{loss.__name__} needs a permutation"):
            loss(SigmoidRank())
    for keep in (0.0, 1.1):
        with pytest.raises(ValueError, match="keep must"):
            LeastTrimmedSquares(keep=keep)
    with pytest.raises(ValueError, match="values must"):
        QuantileLoss()(torch.zeros(4), torch.zeros(4), values=torch.zeros(3))
