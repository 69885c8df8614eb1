"""scikit-learn's own checks, and its tools: clone, pipelines, grid search with routed qids."""

import pickle
from typing import Any

import numpy as np
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ltr.datasets import query_folds
from ltr.estimators import NeuralRanker
from ltr.losses import ListNet
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
    other = clone(ranker)
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
