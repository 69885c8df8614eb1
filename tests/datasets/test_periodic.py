"""Periodic embeddings: their formula, their limits, and what a network learns by them."""

import math

import numpy as np
import pytest
import torch

from ltr.datasets import Join, PeriodicEmbedding, PiecewiseLinearBins, Standardize, TableTransform
from ltr.estimators import NeuralRanker
from ltr.models import MLPScorer


def test_the_formula_number_by_number():
    rows = np.random.default_rng(0).normal(size=(40, 3)) * [1, 20, 0.1] + [0, 5, -7]
    fitted = PeriodicEmbedding(size=2, frequencies=4).double().fit(rows)
    got = fitted(torch.from_numpy(rows)).detach().numpy()
    angular, weight, bias = (x.detach().numpy() for x in fitted.parameters())
    for i, row in enumerate(rows):
        for j, x in enumerate(row):
            z = (x - rows[:, j].mean()) / rows[:, j].std()
            z = z / math.sqrt(1 + (z / 3) ** 2)
            waves = [math.cos(a * z) for a in angular[j]] + [math.sin(a * z) for a in angular[j]]
            outputs = [max(0.0, float(waves @ weight[j, :, s] + bias[j, s])) for s in range(2)]
            np.testing.assert_allclose(got[i, 3 * j : 3 * j + 3], [z, *outputs], atol=1e-6)


def test_gradients_are_those_of_the_formula():
    torch.manual_seed(0)
    rows = torch.randn(6, 3, dtype=torch.float64)
    fitted = PeriodicEmbedding(size=2, frequencies=4).double().fit(rows)
    parameters = dict(fitted.named_parameters())

    def outputs(features, *values):
        named = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(fitted, named, (features,))

    given = rows.requires_grad_(), *parameters.values()
    assert torch.autograd.gradcheck(outputs, given)
    plain = fitted(rows)
    lists = rows.detach().view(2, 3, 3)
    torch.testing.assert_close(fitted(lists).reshape(6, -1), plain)
    torch.testing.assert_close(torch.func.vmap(lambda x: fitted(x))(lists).reshape(6, -1), plain)


def test_frequencies_start_as_a_geometric_row():
    torch.manual_seed(0)
    rows = np.random.default_rng(0).normal(size=(5, 4000))
    fitted = PeriodicEmbedding(size=1, frequencies=3, slowest=0.1, fastest=1.6).fit(rows)
    spread = fitted.angular.std(0) / (2 * math.pi)
    np.testing.assert_allclose(spread.detach(), [0.1, 0.4, 1.6], rtol=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size must be"),
        ({"frequencies": 1.5}, "frequencies must be"),
        ({"slowest": 0}, "slowest must be > 0, got 0"),
        ({"slowest": 0.5, "fastest": 0.1}, r"fastest must be >= 0\.5, got 0\.1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        PeriodicEmbedding(**arguments)


def test_weights_are_trained_and_saved_with_the_ranker(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2)).astype(np.float32)
    X[::7, 1] = np.nan
    qid = np.arange(600) // 10
    y = (np.sin(3 * X[:, 0]) > 0.3).astype(float)
    ranker = NeuralRanker(
        transform=TableTransform(PeriodicEmbedding()),
        scorer=MLPScorer(hidden=(16,)),
        members=2,
        max_epochs=3,
        random_state=0,
        verbose=0,
    ).fit(X, y, qid=qid)
    embedding = ranker.transform_.features
    torch.manual_seed(0)
    assert embedding.angular.shape == (2, 8)
    assert (embedding.bias != 0).any()  # they start at 0
    ranker.save(tmp_path / "model")
    again = NeuralRanker.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), ranker.predict(X))
    assert len(ranker.best_iterations_) == 1  # the members share the embedding


def test_a_network_learns_waves_by_them():
    """What a user gets: a label that depends on a column in waves is ranked well."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4000, 8)).astype(np.float32)
    y = (np.sin(4 * X[:, 0]) + np.cos(3 * X[:, 1]) > 0.6).astype(float)
    qid = np.arange(4000) // 10
    train = qid < 300
    found = []
    for features in (Standardize(), PeriodicEmbedding()):
        ranker = NeuralRanker(
            transform=TableTransform(features),
            scorer=MLPScorer(hidden=(32,)),
            members=1,
            max_epochs=8,
            learning_rate=6e-3,
            random_state=0,
            verbose=0,
        ).fit(X[train], y[train], qid=qid[train])
        found.append(ranker.score(X[~train], y[~train], qid=qid[~train]))
    assert found[1] > found[0] + 0.1, found


def test_monotone_columns_need_another_transform():
    X, y, qid = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 3, np.arange(40) // 8
    for features in (PeriodicEmbedding(), Join([PiecewiseLinearBins(), PeriodicEmbedding()])):
        ranker = NeuralRanker(transform=TableTransform(features), monotone={"x0": 1}, verbose=0)
        with pytest.raises(ValueError, match="transform must not be a PeriodicEmbedding"):
            ranker.fit(X, y, qid=qid)
