"""scikit-learn's own checks, and its tools: clone, pipelines, grid search with routed qids."""

import pickle
from typing import Any

import numpy as np
import pytest
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
