"""Boosted trees at full strength: the settings that are best on the validation lists.

`RIVALS` are searches: each fits all its settings, with at most 6,000 trees and early stopping by
NDCG@10 on the validation lists, and keeps the best fit. `BAGGED` fits the best settings of
LightGBM's search five times, with other seeds and four fifths of the rows and of the columns for
each tree, and averages the scores: about as much time as a `Blend()`.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import product
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
from quality_sets import Fold, Lists

RATES = (0.1, 0.05, 0.03)
TREES = "LightGBM, tuned"
XGBOOST = "XGBoost, tuned"
CATBOOST = "CatBoost, tuned"
BAGGED = "LightGBM, bagged"
_LEAVES, _DEPTHS = (15, 31), (6, 8)
RIVALS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    TREES: [{"learning_rate": x, "leaves": n} for x, n in product(RATES, _LEAVES)],
    XGBOOST: [{"learning_rate": x, "depth": n} for x, n in product(RATES, _DEPTHS)],
    CATBOOST: [{"learning_rate": x, "depth": 6} for x in RATES],
}
"""The settings of each search."""

_MOST, _PATIENCE = 6000, 50


def lightgbm_trees(fold: Fold, learning_rate: float, leaves: int, seed: int | None = None) -> Any:
    """Return LightGBM's lambdarank, fitted; with a seed, on parts of the rows and columns."""
    bagged = {"subsample": 0.8, "subsample_freq": 1, "colsample_bytree": 0.8, "random_state": seed}
    model = lightgbm.LGBMRanker(
        num_leaves=leaves,
        n_estimators=_MOST,
        learning_rate=learning_rate,
        metric="ndcg",
        early_stopping_round=_PATIENCE,
        n_jobs=1,
        verbose=-1,
        **({} if seed is None else bagged),
    )
    train, val = fold.train, fold.val
    return model.fit(
        train.X,
        train.y,
        group=train.lengths,
        eval_set=[(val.X, val.y)],
        eval_group=[val.lengths],
        eval_at=[10],
    )


def xgboost_trees(fold: Fold, learning_rate: float, depth: int) -> Any:
    """Return XGBoost's rank:ndcg, fitted."""
    model = import_module("xgboost").XGBRanker(
        max_depth=depth,
        n_estimators=_MOST,
        learning_rate=learning_rate,
        objective="rank:ndcg",
        eval_metric="ndcg@10",
        early_stopping_rounds=_PATIENCE,
        enable_categorical=True,
        n_jobs=1,
    )
    train, val = fold.train, fold.val
    lists = {"qid": train.qid, "eval_set": [(val.X, val.y)], "eval_qid": [val.qid]}
    return model.fit(train.X, train.y, **lists, verbose=False)


def catboost_trees(fold: Fold, learning_rate: float, depth: int) -> Any:
    """Return CatBoost's YetiRank, fitted."""
    library = import_module("catboost")
    model = library.CatBoostRanker(
        depth=depth,
        iterations=_MOST,
        learning_rate=learning_rate,
        eval_metric="NDCG:top=10;type=Exp",
        early_stopping_rounds=_PATIENCE,
        random_seed=0,
        thread_count=1,
        verbose=False,
        allow_writing_files=False,
    )
    train, val = (
        library.Pool(_for_catboost(x.X), x.y, group_id=x.qid, cat_features=_categories(x.X))
        for x in (fold.train, fold.val)
    )
    return model.fit(train, eval_set=val)


_FITS = {TREES: lightgbm_trees, XGBOOST: xgboost_trees, CATBOOST: catboost_trees}


def rival(fold: Fold, name: str, settings: Mapping[str, Any]) -> Any:
    """Return a model with one of the settings of a search, fitted."""
    return _FITS[name](fold, **settings)


class Bagged:
    """The average of fits of LightGBM with other seeds."""

    def __init__(self, fold: Fold, settings: Mapping[str, Any], members: int = 5) -> None:
        self.models = [lightgbm_trees(fold, **settings, seed=seed) for seed in range(members)]

    def predict(self, X: Any) -> np.ndarray:
        """Return the mean of the scores, (rows,)."""
        return np.mean([one.predict(X) for one in self.models], axis=0)


def trees_of(model: Any) -> int:
    """Return how many trees a model has, those of its members together."""
    if isinstance(model, Bagged):
        return sum(map(trees_of, model.models))
    if hasattr(model, "tree_count_"):  # CatBoost
        return int(model.tree_count_)
    if hasattr(model, "best_iteration_"):
        return int(model.best_iteration_)
    return int(model.best_iteration) + 1


def scores_of(model: Any, lists: Lists) -> np.ndarray:
    """Return the scores of lists, (rows,)."""
    of_catboost = type(model).__module__.startswith("catboost")
    return model.predict(_for_catboost(lists.X) if of_catboost else lists.X)


def _categories(X: Any) -> list[str]:
    return [*X.columns[X.dtypes == "category"]] if isinstance(X, pd.DataFrame) else []


def _for_catboost(X: Any) -> Any:
    """Return columns with text in place of missing categories, which CatBoost refuses."""
    texts = {name: X[name].astype(object).fillna("missing") for name in _categories(X)}
    return X.assign(**texts) if texts else X
