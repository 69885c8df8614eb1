"""scikit-learn's own checks, and its tools: clone, pipelines, grid search with routed qids."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ltr.datasets import query_folds
from ltr.estimators import Blend, NeuralRanker
from ltr.losses import ListNet, Penalized, PositionBias, SoftmaxLoss, Unbiased
from ltr.metrics.functional import ndcg
from ltr.models import LinearScorer, Scorer


class Listed(NeuralRanker):
    """What scikit-learn's checks can call: they know no queries, so each three rows are a list.

    The parameter `transform` is left out: the checks take any attribute of that name for the method
    of a transformer.
    """

    def __init__(
        self,
        *,
        scorer: Scorer | None = None,
        members: int = 5,
        max_epochs: int = 100,
        validation: float = 0.2,
        random_state: Any = None,
        verbose: int = 1,
    ) -> None:
        super().__init__(
            scorer=scorer,
            members=members,
            max_epochs=max_epochs,
            validation=validation,
            random_state=random_state,
            verbose=verbose,
        )
        del self.transform

    def fit(self, X: Any, y: Any, *, qid: Any = None) -> "Listed":  # pyright: ignore
        return super().fit(X, y, qid=self._lists(X) if qid is None else qid)

    def partial_fit(self, X: Any, y: Any, *, qid: Any = None) -> "Listed":  # pyright: ignore
        return super().partial_fit(X, y, qid=self._lists(X) if qid is None else qid)

    def score(self, X: Any, y: Any, *, qid: Any = None) -> float:  # pyright: ignore
        return super().score(X, y, qid=self._lists(X) if qid is None else qid)

    @staticmethod
    def _lists(X: Any) -> np.ndarray:
        rows = X.shape[0] if hasattr(X, "shape") else len(X)
        return np.arange(rows) // 3


@parametrize_with_checks(
    [Listed(scorer=LinearScorer(), members=1, max_epochs=2, verbose=0, validation=0)],
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def lists(rows: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 4))
    return X, (X[:, 0] + X[:, 1] > 0.5).astype(int), rng.integers(0, rows // 8, rows)


def quick(**parameters: Any) -> NeuralRanker:
    small: dict[str, Any] = {"members": 2, "max_epochs": 3, "verbose": 0, "random_state": 0}
    return NeuralRanker(**{**small, "batch_size": 4, **parameters})


def test_a_clone_has_the_parameters_and_no_fit():
    X, y, qid = lists()
    loss = ListNet(temperature=0.5)
    ranker = quick(loss=loss).fit(X, y, qid=qid)
    other: Any = clone(ranker)
    assert isinstance(other.loss, ListNet)
    assert other.loss is not loss
    assert other.loss.temperature == 0.5
    assert not hasattr(other, "scorer_")
    assert other.get_params()["members"] == 2


def test_pickled():
    X, y, qid = lists()
    ranker = quick().fit(X, y, qid=qid)
    again = pickle.loads(pickle.dumps(ranker))
    assert np.array_equal(again.predict(X), ranker.predict(X))


def test_the_parameters_given_stay_as_they_were():
    X, y, qid = lists()
    scorer = LinearScorer()
    quick(scorer=scorer).fit(X, y, qid=qid)
    assert not list(scorer.parameters())


def test_in_a_pipeline():
    X, y, qid = lists()
    pipe = make_pipeline(StandardScaler(), quick())
    pipe.fit(X, y, neuralranker__qid=qid)
    assert pipe.predict(X).shape == (120,)


def test_a_grid_search_passes_the_queries_on():
    X, y, qid = lists()
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(quick(), {"members": [1, 2]}, cv=query_folds(qid, 3))
        search.fit(X, y, qid=qid)
        assert search.best_params_["members"] in (1, 2)
        assert (search.cv_results_["mean_test_score"] > 0.3).all()
        scores = cross_val_score(quick(), X, y, cv=query_folds(qid, 2), params={"qid": qid})
    assert scores.shape == (2,)
    # a fold tests whole queries: the score is that of a model trained on the others
    train, test = next(query_folds(qid, 2).split(X))
    alone = quick().fit(X[train], y[train], qid=qid[train])
    assert scores[0] == alone.score(X[test], y[test], qid=qid[test])


RATES = [1e-7, 1e-2]
"""Candidates of which the second one learns more."""


def as_any(est: Any) -> Any:
    """`clone` has the type of all that it takes."""
    return est


def by_clone(X, y, qid) -> list[float]:
    rankers = [quick(learning_rate=rate) for rate in RATES]
    return [as_any(clone(one)).fit(X, y, qid=qid).score(X, y, qid=qid) for one in rankers]


def by_pickle(X, y, qid) -> list[float]:
    rankers = [quick(learning_rate=rate).fit(X, y, qid=qid) for rate in RATES]
    return [pickle.loads(pickle.dumps(one)).score(X, y, qid=qid) for one in rankers]


def by_pipeline(X, y, qid) -> list[float]:
    pipes = [make_pipeline(StandardScaler(), quick(learning_rate=rate)) for rate in RATES]
    return [pipe.fit(X, y, qid=qid).score(X, y, qid=qid) for pipe in pipes]


def by_search(X, y, qid) -> list[float]:
    search = GridSearchCV(quick(), {"learning_rate": RATES}, cv=query_folds(qid, 3))
    return [*search.fit(X, y, qid=qid).cv_results_["mean_test_score"]]


def by_search_over_a_pipeline(X, y, qid) -> list[float]:
    pipe = make_pipeline(StandardScaler(), quick())
    grid = {"neuralranker__learning_rate": RATES}
    search = GridSearchCV(pipe, grid, cv=query_folds(qid, 3)).fit(X, y, qid=qid)
    assert search.best_params_ == {"neuralranker__learning_rate": RATES[1]}
    best = as_any(clone(pipe)).set_params(**search.best_params_).fit(X, y, qid=qid)
    assert search.score(X, y, qid=qid) == best.score(X, y, qid=qid)
    return [*search.cv_results_["mean_test_score"]]


def by_search_over_a_blend(X, y, qid) -> list[float]:
    blend = make_pipeline(StandardScaler(), Blend([quick()], verbose=0))
    grid = {"blend__neuralranker__learning_rate": RATES}
    search = GridSearchCV(blend, grid, cv=query_folds(qid, 2)).fit(X, y, qid=qid)
    return [*search.cv_results_["mean_test_score"]]


def by_folds(X, y, qid) -> list[float]:
    folds = {"cv": query_folds(qid, 3), "params": {"qid": qid}}
    return [cross_val_score(quick(learning_rate=rate), X, y, **folds).mean() for rate in RATES]


def by_folds_of_a_pipeline(X, y, qid) -> list[float]:
    folds = {"cv": query_folds(qid, 3), "params": {"qid": qid}}
    pipes = [make_pipeline(StandardScaler(), quick(learning_rate=rate)) for rate in RATES]
    return [cross_val_score(pipe, X, y, **folds).mean() for pipe in pipes]


@pytest.mark.parametrize(
    "way",
    [
        *(by_clone, by_pickle, by_pipeline, by_search_over_a_pipeline, by_search_over_a_blend),
        by_folds_of_a_pipeline,
        # six fits each, which those over a pipeline pass the same arguments to
        *(pytest.param(way, marks=pytest.mark.slow) for way in (by_search, by_folds)),
    ],
)
def test_the_scores_of_candidates_differ(way):
    X, y, qid = lists(240)
    with sklearn.config_context(enable_metadata_routing=True):
        few, many = way(X, y, qid)
    assert many > few + 0.02
    assert np.isfinite(few)


def test_side_inputs_reach_the_folds_of_a_search():
    X, y, qid = lists(240)
    position = np.arange(240) % 9 + 1
    losses = [Unbiased(SoftmaxLoss(), PositionBias(power)) for power in (0.0, 2.0)]
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(StandardScaler(), quick())
        for est, name in ((quick(), "loss"), (pipe, "neuralranker__loss")):
            search = GridSearchCV(est, {name: losses}, cv=query_folds(qid, 2), error_score="raise")  # pyright: ignore
            with pytest.raises(ValueError, match=r"position .*Unbiased needs"):
                search.fit(X, y, qid=qid)
            flat, steep = search.fit(X, y, qid=qid, position=position).cv_results_[
                "mean_test_score"
            ]
            assert flat != steep
        grouped = quick(loss=Penalized(SoftmaxLoss(), strength=100.0))
        search = GridSearchCV(grouped, {"members": [1]}, cv=query_folds(qid, 2))
        found = [
            search.fit(X, y, qid=qid, protected=protected).best_score_
            for protected in (X[:, 0] > 0, y)
        ]
    assert found[0] != found[1]


def test_the_groups_of_a_search_make_its_folds():
    X, y, qid = lists(240)
    folds = GroupKFold(2)
    with sklearn.config_context(enable_metadata_routing=True):
        alone = GridSearchCV(quick(), {"members": [1]}, cv=folds).fit(X, y, qid=qid, groups=qid)
        splits = [*folds.split(X, y, groups=qid)]
        listed = GridSearchCV(quick(), {"members": [1]}, cv=splits).fit(X, y, qid=qid)
    assert alone.best_score_ == listed.best_score_


def search(est: Any, X: Any, y: Any, queries: Any, **given: Any) -> None:
    GridSearchCV(est, {}, cv=query_folds(queries, 2)).fit(X, y, **given)


def folds(est: Any, X: Any, y: Any, queries: Any, **given: Any) -> None:
    cross_val_score(est, X, y, cv=query_folds(queries, 2), params=given)


@pytest.mark.filterwarnings("ignore:.*scores are non-finite")
@pytest.mark.parametrize("way", [search, folds])
@pytest.mark.parametrize("piped", [False, True])
def test_without_routing_the_message_names_it(piped: bool, way):
    X, y, qid = lists()
    est = make_pipeline(StandardScaler(), quick()) if piped else quick()
    given = {"neuralranker__qid" if piped else "qid": qid}
    with pytest.warns(UserWarning, match="enable_metadata_routing"):
        way(est, X, y, qid, **given)
    with pytest.raises(ValueError, match=r"qid .*enable_metadata_routing"):
        est.fit(X, y)
    with pytest.raises(ValueError, match=r"qid .*enable_metadata_routing"):
        est.fit(X, y, **given).score(X, y)


@pytest.mark.parametrize("blended", [False, True])
def test_a_score_takes_weights(blended: bool):
    X, y, qid = lists()
    ranker: Any = Blend([quick()], verbose=0) if blended else quick()
    ranker.fit(X, y, qid=qid)
    plain = ranker.score(X, y, qid=qid)
    assert ranker.score(X, y, qid=qid, sample_weight=np.ones(120)) == pytest.approx(plain)
    queries = pd.unique(qid)
    each = [ranker.score(X[qid == q], y[qid == q], qid=qid[qid == q]) for q in queries]
    weights = np.arange(len(queries))
    expected = np.average(each, weights=weights)
    found = ranker.score(X, y, qid=qid, sample_weight=weights)
    assert found == pytest.approx(expected, abs=1e-6)
    # weights of rows multiply the gains, as those of the metric
    rows = np.random.default_rng(0).random(120)
    order = np.argsort(qid, kind="stable")
    scores, labels, factors = (
        torch.tensor(x[order]) for x in (ranker.predict(X, qid=qid), y, rows)
    )
    lengths = np.unique(qid, return_counts=True)[1].tolist()
    expected = ndcg(scores, labels, weights=factors, lengths=lengths, top_k=10)
    found = ranker.score(X, y, qid=qid, sample_weight=rows)
    assert found == pytest.approx(float(expected), abs=1e-6)
    with pytest.raises(ValueError, match=r"sample_weight .*\(3,\)"):
        ranker.score(X, y, qid=qid, sample_weight=np.ones(3))
