"""`Calibrated` beside scikit-learn's calibration, and `reliability` beside its curve."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from lightgbm import LGBMRanker
from pairwise import covering, named
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV, calibration_curve
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss

from ltr.cli import main
from ltr.datasets import ListDataset
from ltr.estimators import Blend, Calibrated, NeuralRanker, reliability
from ltr.models import AttentionScorer, LinearScorer
from ltr.reports.scored_tables import predicted_roles


class Given(BaseEstimator):
    """A ranker whose score is the only column."""

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(X)[:, 0]


class Decides(ClassifierMixin, BaseEstimator):
    """A fitted classifier with these scores, as scikit-learn calibrates it."""

    def __init__(self) -> None:
        self.classes_ = np.array([0, 1])

    def fit(self, X: Any, y: Any) -> "Decides":
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        return np.asarray(X)[:, 0]

    def predict(self, X: Any) -> np.ndarray:
        return self.decision_function(X) > 0


def drawn(rows: int = 500, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return scores (rows, 1) with ties, and grades from 0 to 3."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 1)).round(2)
    return 5 * X + 3, np.digitize(X[:, 0] + rng.normal(size=rows), [0.0, 1.0, 2.0])


@pytest.mark.parametrize("relevant_from", [1, 2])
@pytest.mark.parametrize("method", ["isotonic", "sigmoid"])
def test_as_scikit_learn(method, relevant_from):
    (X, y), (new, _) = drawn(), drawn(seed=1)
    found = Calibrated(Given(), method=method, relevant_from=relevant_from).fit(X, y)
    theirs = CalibratedClassifierCV(FrozenEstimator(Decides()), method=method, ensemble=False)
    # with a frozen classifier the folds are put together again, so it is fitted on all rows
    theirs.fit(X, (y >= relevant_from).astype(int))
    expected = theirs.predict_proba(new)[:, 1]
    exact = 1e-12 if method == "isotonic" else 2e-4  # they stop at a loose tolerance
    np.testing.assert_allclose(found.probability(new), expected, rtol=0, atol=exact)


def test_the_sigmoid_has_the_least_loss_on_platts_targets():
    X, y = drawn()
    found = Calibrated(Given(), method="sigmoid").fit(X, y)
    positive = (y >= 1).sum()
    target = np.where(y >= 1, (positive + 1) / (positive + 2), 1 / (len(y) - positive + 2))
    residual = found.probability(X) - target
    # both derivatives of the cross-entropy are 0
    np.testing.assert_allclose([residual.mean(), (residual * X[:, 0]).mean()], 0, atol=1e-6)


def test_separable_rows_have_a_finite_slope():
    X = np.arange(20.0)[:, None]
    found = Calibrated(Given(), method="sigmoid").fit(X, X[:, 0] >= 10)
    assert 0.1 < found.slope_ < 10  # the likelihood alone has no maximum


scores = arrays(np.float64, 12, elements=st.floats(-1e6, 1e6, width=32))


@given(scores=scores, labels=arrays(np.int64, 12, elements=st.integers(0, 1)), new=scores)
@pytest.mark.parametrize("method", ["isotonic", "sigmoid"])
def test_the_order_never_changes(method, scores, labels, new):
    try:
        found = Calibrated(Given(), method=method).fit(scores[:, None], labels)
    except ValueError as error:
        assert "labels below" in str(error) or "does not rise" in str(error)  # noqa: PT017
        return
    p = found.probability(np.sort(new)[:, None])
    assert ((p >= 0) & (p <= 1)).all()
    assert (np.diff(p) >= 0).all()
    qid = np.zeros(12)
    by_score = np.argsort(np.argsort(-new, kind="stable"), kind="stable") + 1
    assert found.rank(new[:, None], qid=qid).tolist() == by_score.tolist()


def test_rounding_at_the_end_of_a_step_does_not_turn_two_rows_around():
    scores = np.r_[1.0, -151.75, np.zeros(10)]
    labels = [1, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    found = Calibrated(Given()).fit(scores[:, None], labels)
    below, at = found.probability(np.array([[-1.5e-33], [0.0]]))
    assert below <= at == pytest.approx(0.3)


def test_isotonic_ties_keep_the_order_of_the_scores():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    found = Calibrated(Given()).fit(X, [0, 1, 0, 1])
    assert found.probability(X).tolist() == [0, 0.5, 0.5, 1]
    assert found.probability(X[[0, 3]] * 100 - 50).tolist() == [0, 1]
    assert found.rank(X, qid=np.zeros(4)).tolist() == [4, 3, 2, 1]
    assert found.score(X, [0, 1, 2, 3], qid=np.zeros(4)) == 1


def lists(rows: int = 160) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 3))
    return X, (X[:, 0] > rng.normal(size=rows)).astype(int), np.arange(rows) // 8


def quick(**parameters: Any) -> NeuralRanker:
    small: dict[str, Any] = {
        "members": 1,
        "max_epochs": 20,
        "learning_rate": 0.05,
        "verbose": 0,
        "random_state": 0,
    }
    return NeuralRanker(**{"scorer": LinearScorer(), "validation": 0, **small, **parameters})


@covering("kind, method", named("networks", "blend"), named("isotonic", "sigmoid"))
def test_saved_with_the_model(kind, method, tmp_path):
    X, y, qid = lists()
    trees = LGBMRanker(n_estimators=3, min_child_samples=2, verbose=-1)
    ranker = quick() if kind == "networks" else Blend([quick(), trees], validation=0, verbose=0)
    ranker.fit(X, y, qid=qid)
    before = ranker.predict(X)
    found = Calibrated(ranker, method=method, relevant_from=1).fit(X, y)
    np.testing.assert_array_equal(ranker.predict(X), before)
    np.testing.assert_array_equal(found.predict(X), before)
    found.save(tmp_path)
    again = Calibrated.load(tmp_path)
    np.testing.assert_array_equal(again.probability(X), found.probability(X))
    assert again.get_params(deep=False) | {"ranker": 0} == found.get_params(deep=False) | {
        "ranker": 0
    }
    raw = type(ranker).load(tmp_path)
    np.testing.assert_array_equal(raw.predict(X), before)
    again.save(tmp_path / "again")
    np.testing.assert_array_equal(
        Calibrated.load(tmp_path / "again").probability(X), found.probability(X)
    )
    ranker.save(tmp_path)
    with pytest.raises(ValueError, match=r"config.json has no calibration"):
        Calibrated.load(tmp_path)


def test_a_ranker_of_whole_lists_needs_qid():
    X, y, qid = lists()
    ranker = quick(scorer=AttentionScorer(hidden=(8,), heads=1, blocks=1))
    ranker.fit(X, y, qid=qid)
    with pytest.raises(ValueError, match="qid or group must be given"):
        Calibrated(ranker).fit(X, y)
    found = Calibrated(ranker).fit(X, y, qid=qid)
    by_group = found.probability(X, group=np.full(20, 8))
    np.testing.assert_array_equal(found.probability(X, qid), by_group)


@pytest.mark.parametrize(
    ("options", "labels", "message"),
    [
        ({"method": "beta"}, [0, 1, 1], "method must be 'isotonic' or 'sigmoid', got 'beta'"),
        ({"relevant_from": 0}, [0, 1, 1], r"relevant_from.*got 0"),
        ({}, [0, 0, 0], r"y must have .*relevant_from=1 on, got 0 of 3"),
        ({"relevant_from": 2}, [2, 3, 2], r"y must have .*relevant_from=2 on, got 3 of 3"),
        ({}, [1, 1, 0], "does not rise with the score"),
        ({"method": "sigmoid"}, [1, 1, 0], "does not rise with the score"),
    ],
)
def test_bad_arguments(options, labels, message):
    calibrated = Calibrated(Given(), **options)
    with pytest.raises(ValueError, match=message):
        calibrated.fit(np.array([[0.0], [1.0], [2.0]]), labels)
    assert not hasattr(calibrated, "scores_")


def test_bad_rankers(tmp_path):
    X, y, _ = lists()
    with pytest.raises(ValueError, match="ranker must have a method predict, got 3"):
        Calibrated(3).fit(X, y)
    with pytest.raises(ValueError, match="not fitted"):
        Calibrated(Given()).probability(X)
    two = ListDataset.from_arrays(X, np.stack([y, y], axis=1), np.arange(len(X)) // 8)
    ranker = NeuralRanker(members=1, max_epochs=1, verbose=0).fit(two)
    with pytest.raises(ValueError, match="X must be lists with one label, got 2 labels"):
        Calibrated(ranker).fit(two)
    with pytest.raises(ValueError, match=r"ranker must be a NeuralRanker or a Blend .*a Given: B"):
        Calibrated(Given()).fit(X, y).save(tmp_path)


@pytest.mark.parametrize("bins", [1, 4, 10])
def test_reliability_as_scikit_learn(bins):
    rng = np.random.default_rng(0)
    p = np.r_[rng.random(300) ** 2, 0.0, 1.0]
    y = rng.random(302) < p
    found = reliability(p, y, bins=bins)
    observed, predicted = calibration_curve(y, p, n_bins=bins)
    np.testing.assert_allclose(found.observed, observed)
    np.testing.assert_allclose(found.predicted, predicted)
    assert found.brier == pytest.approx(brier_score_loss(y, p))
    weighted = np.average(abs(observed - predicted), weights=found.counts)
    assert found.ece == pytest.approx(weighted)
    assert found.counts.sum() == 302


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("bins", [10, 49, 100, 1000])
def test_a_probability_at_an_edge_is_in_the_bin_above_it(bins, kind):
    edges = (np.arange(bins) / bins).astype(kind)
    assert reliability(edges, np.zeros(bins), bins=bins).counts.tolist() == [1] * bins
    found = reliability([0.29, 0.57, 0.58], [0, 0, 1], bins=100).counts
    assert np.flatnonzero(found).tolist() == [29, 57, 58]
    assert reliability([0, 1, True], [0, 0, 1], bins=bins).counts[[0, -1]].tolist() == [1, 2]


def test_reliability_of_an_isotonic_fit_on_its_own_rows_is_perfect():
    X, y = drawn()
    p = Calibrated(Given()).fit(X, y).probability(X)
    ours = reliability(p, y >= 1, bins=1000)
    assert ours.ece < 0.01
    plain = IsotonicRegression().fit(X[:, 0], y >= 1)
    assert ours.brier == pytest.approx(np.mean((plain.predict(X[:, 0]) - (y >= 1)) ** 2))


def test_empty_bins_and_the_plot():
    found = reliability([0.1, 0.9], [0, 1], bins=3)
    assert found.counts.tolist() == [1, 0, 1]
    assert np.isnan(found.predicted[1])
    assert np.isnan(found.observed[1])
    assert found.ece == pytest.approx(0.1)
    axes = found.plot()
    (_, line) = axes.lines
    assert line.get_xydata().tolist() == [[0.1, 0], [0.9, 1]]
    assert "0.0100" in axes.get_title()
    assert found.plot(axes) is axes


@pytest.mark.parametrize(
    ("p", "y", "bins", "message"),
    [
        ([0.5], [1], 0, "bins"),
        ([], [], 3, r"probabilities must be \(rows,\) in \[0, 1\]"),
        ([[0.5]], [[1]], 3, "probabilities must"),
        ([0.5, 1.5], [1, 0], 3, "probabilities must"),
        ([np.nan], [1], 3, "probabilities must"),
        ([0.5], [1, 0], 3, "relevant must be 0 or 1 for each of 1 rows"),
        ([0.5], [2], 3, "relevant must be 0 or 1"),
    ],
)
def test_bad_probabilities(p, y, bins, message):
    with pytest.raises(ValueError, match=message):
        reliability(p, y, bins=bins)


def test_the_folder_says_what_it_holds(tmp_path):
    X, y, qid = lists()
    Calibrated(quick().fit(X, y, qid=qid), method="sigmoid").fit(X, y).save(tmp_path)
    about = json.loads((tmp_path / "config.json").read_text())["calibration"]
    assert about.keys() == {"method", "relevant_from", "slope_", "intercept_"}


@covering("kind, method", named("network", "blend"), named("isotonic", "sigmoid"))
def test_predict_writes_probabilities(kind, method, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"q": np.arange(400) // 10, "x": rng.normal(size=400)})
    table["y"] = (table["x"] + rng.normal(size=400) > 0).astype(int)
    given = table[["x"]], table["y"]
    options: dict[str, Any] = {"members": 1, "max_epochs": 30, "random_state": 0, "verbose": 0}
    ranker: Any = NeuralRanker(scorer=LinearScorer(), **options)
    if kind == "blend":
        ranker = Blend([ranker, LGBMRanker(n_estimators=5, verbose=-1)], verbose=0)
    ranker = ranker.fit(*given, qid=table["q"].rename("q"))
    calibrated = Calibrated(ranker, method=method).fit(*given, qid=table["q"])
    calibrated.save(tmp_path / "model")
    table.to_csv(tmp_path / "t.csv", index=False)
    command = ["predict", tmp_path / "model", tmp_path / "t.csv", "--qid", "q", "--label", "y"]
    assert main([*map(str, command), "--output", str(tmp_path / "p.parquet")]) == 0
    found = pd.read_parquet(tmp_path / "p.parquet")
    assert [*found] == ["q", "y", "score", "probability", "rank"]
    expected = calibrated.probability(table[["x"]], table["q"])
    np.testing.assert_allclose(found["probability"], expected, atol=1e-6)
    assert predicted_roles(str(tmp_path / "p.parquet")) == {"qid": "q", "label": "y"}
    ranker.save(tmp_path / "model")  # the calibration goes with the model
    assert main([*map(str, command), "--output", str(tmp_path / "p.parquet")]) == 0
    assert "probability" not in pd.read_parquet(tmp_path / "p.parquet")
