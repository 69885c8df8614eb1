"""What every scorer keeps to, and the errors."""

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from ltr.models import FeatureScorer, LinearScorer, MLPScorer, Scorer

D = 5


class MeanImage(Scorer):
    """Two axes an item, and something taken from the whole list."""

    item_dims = 2

    def score(self, features, mask):
        return features.mean((-1, -2))


SCORERS: list[Callable[..., FeatureScorer]] = [
    LinearScorer,
    MLPScorer,
    partial(MLPScorer, hidden=()),
    partial(MLPScorer, hidden=[7], activation=nn.GELU, norm=False, dropout=0.0),
]


@pytest.fixture(params=SCORERS)
def scorer(request: pytest.FixtureRequest) -> FeatureScorer:
    torch.manual_seed(0)
    return request.param(num_features=D).double().eval()


def batch(lists: int = 4, n: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(lists, n, D, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([n, 1, 3, 0])[:lists]
    return features, torch.arange(n) < lengths.unsqueeze(-1)


def test_a_batch_is_its_lists_one_by_one(scorer: FeatureScorer):
    features, mask = batch()
    scores = scorer(features, mask)
    assert scores.shape == mask.shape
    for row, items, real in zip(scores, features, mask, strict=True):
        torch.testing.assert_close(row[real], scorer(items[real]), rtol=0, atol=1e-12)
        assert (row[~real] == 0).all()


def test_any_batch_shape(scorer: FeatureScorer):
    features, mask = batch()
    nested = scorer(features.reshape(2, 2, 6, D), mask.reshape(2, 2, 6))
    torch.testing.assert_close(nested.reshape(4, 6), scorer(features, mask), rtol=0, atol=1e-12)
    assert scorer(features[:, :0]).shape == (4, 0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_what_lies_under_the_mask_does_not_get_out(scorer: FeatureScorer, bad: float):
    features, mask = batch()

    def scores_and_gradients(x: torch.Tensor) -> list[torch.Tensor]:
        model, x = copy.deepcopy(scorer), x.clone().requires_grad_()
        scores = model(x, mask)
        scores.square().sum().backward()
        assert x.grad is not None
        return [scores, x.grad, *(p.grad for p in model.parameters() if p.grad is not None)]

    clean = scores_and_gradients(features)
    dirty = scores_and_gradients(features.masked_fill(~mask.unsqueeze(-1), bad))
    for one, other in zip(clean, dirty, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert (clean[1][~mask] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtypes(scorer: FeatureScorer, dtype: torch.dtype):
    features, mask = batch()
    scores = scorer.to(dtype)(features.to(dtype), mask)
    assert scores.dtype == dtype
    assert scores.isfinite().all()


@pytest.mark.parametrize("make", SCORERS)
def test_the_width_can_come_later(make: Callable[..., FeatureScorer]):
    later = make()
    assert not list(later.parameters())
    with pytest.raises(ValueError, match="num_features must be given"):
        later(torch.zeros(2, 3, D))
    torch.manual_seed(3)
    later.build(D)
    torch.manual_seed(3)
    now = make(num_features=D)
    assert [k for k, _ in later.named_parameters()] == [k for k, _ in now.named_parameters()]
    torch.testing.assert_close(dict(later.state_dict()), dict(now.state_dict()), rtol=0, atol=0)
    parameters = list(later.parameters())
    later.build(D)  # weights stay
    assert all(a is b for a, b in zip(parameters, later.parameters(), strict=True))
    later.build(D + 1)  # a checkpoint of another width
    assert later(torch.zeros(2, D + 1)).shape == (2,)


def test_dropout_only_in_training():
    scorer = MLPScorer(D, dropout=0.5)
    x = torch.randn(4, 3, D)
    assert not torch.equal(scorer(x), scorer(x))
    scorer.eval()
    assert torch.equal(scorer(x), scorer(x))


def test_images():
    images = torch.arange(24.0).reshape(1, 3, 2, 4)
    mask = torch.tensor([[True, True, False]])
    assert MeanImage()(images, mask).tolist() == [[3.5, 11.5, 0.0]]
    MeanImage().build(64)  # does not depend on it


def test_errors():
    features, mask = batch()
    scorer = LinearScorer(D).double()
    with pytest.raises(ValueError, match=r"mask must be bool of shape \(4, 6\), got .* \(6,\)"):
        scorer(features, mask[0])
    with pytest.raises(ValueError, match="mask must be bool"):
        scorer(features, mask.double())
    with pytest.raises(ValueError, match="features must have num_features=5, got 4"):
        scorer(features[..., :4])
    with pytest.raises(ValueError, match="features must have 2 axes"):
        scorer(features[0, 0])
    with pytest.raises(ValueError, match=r"features must be floating point, got torch\.int64"):
        scorer(features.long())
    with pytest.raises(ValueError, match="features must be a tensor, got ndarray"):
        scorer(features.numpy())
    with pytest.raises(
        ValueError, match="num_features must be 5, which the scorer was made with, got 4"
    ):
        scorer.build(4)
    with pytest.raises(ValueError, match="num_features must be >= 1, got 0"):
        LinearScorer(0)
    for number in ("3", 2.5, True):
        with pytest.raises(ValueError, match="num_features must be a whole number >= 1, got"):
            LinearScorer(number)
    for hidden in ((8, 0), (8, None), 8, "8", (2.5,)):
        with pytest.raises(ValueError, match="hidden must be widths >= 1, got"):
            MLPScorer(hidden=hidden)
    for dropout in (1.0, "0.1", None):
        with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\), got"):
            MLPScorer(dropout=dropout)
    for activation in ("relu", nn.ReLU(), int):
        with pytest.raises(ValueError, match=r"activation must be a class such as nn\.ReLU, got"):
            MLPScorer(activation=activation)
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\), got 1.0"):
        MLPScorer(dropout=1.0)
    with pytest.raises(NotImplementedError, match="must define score"):
        Scorer()(features)
