"""Categories as codes: equal in everything to the one-hot numbers that they stand for."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ltr.datasets import PiecewiseLinearBins, TableTransform
from ltr.datasets.coded import Coded
from ltr.estimators import NeuralRanker
from ltr.export import export_model
from ltr.models import (
    AdditiveScorer,
    AttentionScorer,
    CrossScorer,
    Ensemble,
    FeatureScorer,
    LinearScorer,
    MLPScorer,
    RankingModel,
    Scorer,
)
from ltr.models.ragged import score_ragged
from ltr.models.scorer import transformed

LEVELS = (7, 1, 4)
WIDTH = sum(LEVELS)
NUMBERS = 3

TAKE_CODES: dict[str, Callable[..., FeatureScorer]] = {
    "linear": LinearScorer,
    "mlp": partial(MLPScorer, hidden=(6, 5), dropout=0.0),
    "mlp-norm": partial(MLPScorer, hidden=(6,), dropout=0.0, norm=True),
    "mlp-none": partial(MLPScorer, hidden=()),
    "cross": partial(CrossScorer, hidden=(6,), rank=3, dropout=0.0),
    "cross-none": partial(CrossScorer, hidden=(), crosses=3, rank=2),
    "attention": partial(AttentionScorer, hidden=(8,), heads=2, dropout=0.0),
    "attention-points": partial(AttentionScorer, hidden=(6, 4), points=3, dropout=0.0),
}
OTHERS = {"additive": AdditiveScorer}


class Dense(MLPScorer):
    """Gets the numbers, as each subclass does that does not ask for codes."""

    def score(self, features: Tensor, mask: Tensor | None) -> Tensor:
        assert isinstance(features, Tensor)
        return super().score(features, mask)


def items(*shape: int) -> tuple[Coded, Tensor]:
    """Codes, a third of which have no level, and the numbers that they stand for."""
    draws = torch.Generator().manual_seed(0)
    numbers = torch.randn(*shape, NUMBERS, generator=draws, dtype=torch.float64)
    starts = torch.tensor(LEVELS).cumsum(0) - torch.tensor(LEVELS)
    levels = (torch.rand(*shape, len(LEVELS), generator=draws) * torch.tensor(LEVELS)).long()
    there = torch.rand(levels.shape, generator=draws) > 1 / 3
    hot = [one_hot(levels[..., i], n) * there[..., i, None] for i, n in enumerate(LEVELS)]
    coded = Coded(numbers, torch.where(there, levels + starts, WIDTH), WIDTH)
    return coded, torch.cat([numbers, *hot], -1)


def made(make: Callable[..., Scorer]) -> Scorer:
    torch.manual_seed(0)
    scorer = make(num_features=NUMBERS + WIDTH).double()
    with torch.no_grad():  # since some parts begin without effect
        for weight in scorer.parameters():
            weight += 0.3 * torch.randn_like(weight)
    return scorer


def gradients(scorer: Scorer, features: Any, *others: Any) -> tuple[Tensor, list[Tensor | None]]:
    scorer.zero_grad()
    scores = scorer(features, *others)
    (scores * torch.linspace(-1, 2, scores.numel()).view_as(scores)).sum().backward()
    return scores.detach(), [weight.grad for weight in scorer.parameters()]


def test_codes_stand_for_one_hot_numbers():
    coded, numbers = items(4, 6)
    assert (coded.codes == WIDTH).any()
    assert coded.shape == numbers.shape
    assert coded.dim() == 3
    assert torch.equal(coded.dense(), numbers)
    real = torch.rand(4, 6, 1) < 0.5
    assert torch.equal(coded.where(real).dense(), torch.where(real, numbers, 0))


@pytest.mark.parametrize("name", TAKE_CODES)
@pytest.mark.parametrize("masked", [False, True])
def test_scores_and_gradients_are_equal(name: str, masked: bool):
    scorer = made(TAKE_CODES[name])
    assert scorer.takes_codes
    coded, numbers = items(4, 6)
    mask = torch.arange(6) < torch.tensor([[6], [1], [3], [0]]) if masked else None
    found, expected = gradients(scorer, coded, mask), gradients(scorer, numbers, mask)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", TAKE_CODES)
def test_ragged_lists(name: str):
    scorer, (coded, numbers) = made(TAKE_CODES[name]), items(10)
    lengths = torch.tensor([4, 0, 1, 5])
    found, expected = (score_ragged(scorer, x, lengths) for x in (coded, numbers))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", OTHERS)
def test_other_scorers_get_the_numbers(name: str):
    scorer, (coded, numbers) = made(OTHERS[name]).eval(), items(4, 6)
    assert not scorer.takes_codes
    assert not Ensemble(OTHERS[name]()).takes_codes
    assert torch.equal(scorer(coded), scorer(numbers))


def test_a_subclass_gets_the_numbers():
    assert MLPScorer.takes_codes
    assert not Dense.takes_codes
    coded, numbers = items(4, 6)
    ensemble = Ensemble(Dense(dropout=0.0), members=2)
    assert not ensemble.takes_codes
    ensemble.build(NUMBERS + WIDTH)
    for scorer in (made(partial(Dense, dropout=0.0)), ensemble.double()):
        assert torch.equal(scorer(coded), scorer(numbers))


def test_the_first_weights_are_those_of_linear_layers():
    """The layers of `MLPScorer` as they are without codes: names, shapes, draws."""
    torch.manual_seed(3)
    scorer = MLPScorer(NUMBERS + WIDTH, hidden=(6, 5), dropout=0.0)
    torch.manual_seed(3)
    layers = (nn.Linear(NUMBERS + WIDTH, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 1))
    plain = nn.Sequential(*layers).state_dict(prefix="layers.")
    found = scorer.state_dict()
    assert [*found] == [*plain]
    assert all(torch.equal(found[name], plain[name]) for name in plain)


def test_training_steps_are_equal():
    """Weight decay acts on all levels, whether a batch has them or not."""
    scorer, (coded, numbers) = made(TAKE_CODES["mlp"]), items(4, 2)
    trained = []
    for features in (coded, numbers):
        own = copy.deepcopy(scorer)
        optimizer = torch.optim.AdamW(own.parameters(), lr=0.01, weight_decay=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            own(features).square().sum().backward()
            optimizer.step()
        trained.append([*own.parameters()])
    torch.testing.assert_close(trained[0], trained[1], rtol=1e-8, atol=1e-9)


@pytest.fixture(scope="module")
def fitted() -> tuple[TableTransform, Tensor, Tensor]:
    """A transform, and documents with missing values, and levels that training did not see."""
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((50, 2)) < 0.2, np.nan, rng.normal(size=(50, 2)))
    codes = rng.integers([0, 1], [9, 5], size=(50, 2))
    transform = TableTransform(PiecewiseLinearBins(4)).fit(rows.astype(np.float32), codes)
    new = torch.from_numpy(rng.integers(0, 12, size=(50, 2)))
    return transform, torch.from_numpy(rows.astype(np.float32)), new


def test_the_transform_gives_codes(fitted: tuple[TableTransform, Tensor, Tensor]):
    transform, rows, codes = fitted
    hot = [
        one_hot(torch.where(codes[:, i] > n, 0, codes[:, i]), n + 1) for i, n in ((0, 8), (1, 4))
    ]
    hot[1][:, 0] = 0  # no document of the training had code 0
    plain = TableTransform(PiecewiseLinearBins(4)).fit(rows.numpy())
    expected = torch.cat([plain(rows), *hot], -1)
    coded = transform.coded(rows, categories=codes)
    assert coded.codes.shape == (50, 2)
    assert coded.width == 14
    assert torch.equal(coded.dense(), expected)
    assert torch.equal(transform(rows, categories=codes), expected)


def test_a_model_scores_as_by_numbers(fitted: tuple[TableTransform, Tensor, Tensor]):
    transform, rows, codes = fitted
    scorer = Ensemble(MLPScorer(hidden=(6,)), members=2)
    scorer.build(transform.out_features or 0)
    model = RankingModel(scorer, transform).eval()
    expected = scorer(transform(rows, categories=codes))
    torch.testing.assert_close(model(rows, categories=codes), expected)
    lengths = torch.tensor([20, 0, 30])
    torch.testing.assert_close(model(rows, categories=codes, lengths=lengths), expected)
    mask = torch.rand(5, 10) < 0.7
    padded = model(rows.view(5, 10, 2), mask, codes.view(5, 10, 2))
    torch.testing.assert_close(padded, expected.view(5, 10) * mask)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(rows, categories=codes), expected)


def test_a_transform_of_the_users_own_is_called(fitted: tuple[TableTransform, Tensor, Tensor]):
    class Halved(TableTransform):
        def forward(self, *inputs: Any, **named: Any) -> Tensor:
            return super().forward(*inputs, **named) / 2

    transform, rows, codes = fitted
    own = Halved(PiecewiseLinearBins(4))
    own.load_state_dict(transform.state_dict())
    found = transformed(MLPScorer(), own, rows, categories=codes)
    assert isinstance(found, Tensor)
    assert torch.equal(found, transform(rows, categories=codes) / 2)


@pytest.mark.parametrize(
    "to",
    ["torch", pytest.param("onnx", marks=pytest.mark.slow)],  # as tests/export/test_export.py does
)
def test_exports_score_as_by_numbers(
    fitted: tuple[TableTransform, Tensor, Tensor], to: Any, tmp_path: Path
):
    transform, rows, codes = fitted
    scorer = MLPScorer(transform.out_features, hidden=(6,)).eval()
    model = RankingModel(scorer, transform).eval()
    expected = scorer(transform(rows, categories=codes)).detach().view(5, 10)
    rows, codes = rows.view(5, 10, 2), codes.view(5, 10, 2)
    written = export_model(model, tmp_path, to=to)
    if to == "torch":
        found = torch.export.load(written.model).module()(rows, codes)
    else:
        session = onnxruntime.InferenceSession(written.model)
        given = {"features": rows.numpy(), "categories": codes.numpy()}
        found = torch.from_numpy(np.asarray(session.run(None, given)[0]))
    torch.testing.assert_close(found, expected)


def test_a_fit_is_equal():
    """To the last digits of float32, which the order of a sum changes."""
    rng = np.random.default_rng(0)
    qid, shop = np.repeat(np.arange(60), 6), rng.integers(0, 40, 360)
    frame = pd.DataFrame({"price": rng.normal(size=360), "shop": [f"shop {i}" for i in shop]})
    labels = (frame["price"] + shop % 3 > 1).astype(int)
    options: dict[str, Any] = {"members": 2, "max_epochs": 4, "random_state": 0, "verbose": 0}
    found = []
    for kind in (MLPScorer, Dense):
        ranker = NeuralRanker(scorer=kind(hidden=(8,)), **options)
        ranker.fit(frame, labels, qid=qid)
        scores = ranker.predict(frame).reshape(-1, 6)
        found.append(scores - scores.mean(1, keepdims=True))  # the loss does not set the mean
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-4)
