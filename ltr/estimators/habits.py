"""Arguments of `fit` in LightGBM, XGBoost and CatBoost: what they mean for rankers of ltr."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ltr.estimators.parameters import is_auto
from ltr.names import nearest

Kind = Literal["NeuralRanker", "Blend"]

_VALIDATION = "give eval_set=[(X, y)], and eval_qid or eval_group"
_QUERIES = "give qid=, the query of each row, or group=, the sizes of the lists"
_CATEGORIES = "give categorical_feature=, names or indices of columns"
_INSTEAD = {
    "cat_features": _CATEGORIES,
    "eval_X": _VALIDATION,
    "eval_names": "the attributes call the validation lists 'valid_0'",
    "eval_sample_weight": "the metric of validation lists is not weighted",
    "eval_y": _VALIDATION,
    "feature_name": "give a data frame, whose columns have names",
    "group_id": _QUERIES,
    "groups": _QUERIES,
    "query": _QUERIES,
}
"""For each argument that no `fit` takes, what to do instead."""

_OWN: dict[Kind, dict[str, str]] = {
    "NeuralRanker": {
        "early_stopping_rounds": "give NeuralRanker(patience=...), which counts epochs, not trees",
        "init_model": "give NeuralRanker(warm_start=True)",
        "verbose": "give NeuralRanker(verbose=...)",
    },
    "Blend": {
        "callbacks": "a Blend calls none; its networks and default trees stop early by themselves",
        "early_stopping_rounds": "the networks and the default trees stop early by themselves",
        "eval_names": "a Blend has one set of validation lists",
        "init_model": "give the trained Booster as one of the rankers",
        "verbose": "give Blend(verbose=...)",
    },
}
"""For each argument that the `fit` of one class does not take, what to do instead."""


def check_others(others: Mapping[str, Any], metric: Any, kind: Kind = "NeuralRanker") -> None:
    """Raise an error for an argument of another library's `fit` that means something else here.

    Args:
        others: the further arguments of `fit`. `eval_metric` and `eval_at` are allowed if they name
            the metric of the estimator, and so are `categorical_feature` (see `named_categories`)
            and an argument that is None or "auto".
        metric: the metric of the estimator.
        kind: the class of the estimator.

    Raises:
        ValueError: an argument is known, but cannot be taken; the message says what to do.
        TypeError: an argument is unknown.

    >>> check_others({"eval_metric": "ndcg", "eval_at": [10]}, "ndcg@10")
    >>> check_others({"eval_at": 5}, "ndcg@10")
    Traceback (most recent call last):
    ValueError: eval_at must name the metric 'ndcg@10' of this ranker, got 5: give \
NeuralRanker(metric='ndcg@5')
    """
    given = {name: x for name, x in others.items() if x is not None and not is_auto(x)}
    instead = {**_INSTEAD, **_OWN[kind]}
    for name, value in given.items():
        if name in ("eval_metric", "eval_at"):
            _check_metric(name, given, metric, kind)
        elif name == "categorical_feature":
            continue
        elif name in instead:
            raise ValueError(f"{name} must be None: {instead[name]}, got {_brief(value)}")
        else:
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}")


def _brief(value: Any) -> str:
    """Return a short value as it is written, and the type of any other, such as a table."""
    text = repr(value)
    plain = len(text) <= 40 and "\n" not in text and not callable(value)
    return text if plain else type(value).__name__


def named_categories(given: Any, columns: Sequence[str]) -> list[str]:
    """Return the names of the columns that LightGBM's `categorical_feature` makes categories.

    Args:
        given: names or indices of columns; None or "auto" for none.
        columns: the names of the columns of X.

    Raises:
        ValueError: `given` is not a list of names and indices, or there is no such column.

    >>> named_categories(["shop", 0], ["size", "shop"])
    ['shop', 'size']
    """
    if given is None or is_auto(given):
        return []
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(
            f"categorical_feature must be a list of names or indices of columns, got {given!r}"
        )
    names = []
    for column in given:
        if isinstance(column, int | np.integer) and not isinstance(column, bool):
            if not 0 <= column < len(columns):
                raise ValueError(
                    f"categorical_feature must have indices from 0 to {len(columns) - 1}, got "
                    f"{column}"
                )
            names.append(columns[int(column)])
        elif column in columns:
            names.append(column)
        else:
            near = nearest(str(column), columns)
            raise ValueError(f"categorical_feature must name columns of X, got {column!r}: {near}")
    return names


def check_callbacks(callbacks: Any) -> None:
    """Raise a `ValueError` unless callbacks are a list or tuple of functions of the history.

    A callback of LightGBM or XGBoost expects the state of its own library. `early_stopping` and
    `log_evaluation` have a parameter of the ranker instead.
    """
    if not isinstance(callbacks, list | tuple) or not all(map(callable, callbacks)):
        raise ValueError(f"callbacks must be a list of functions, got {callbacks!r}")
    for callback in callbacks:
        kind = callback if hasattr(callback, "__qualname__") else type(callback)
        package = (kind.__module__ or "").partition(".")[0]  # None for a method of a built-in class
        if package in ("lightgbm", "xgboost"):
            raise ValueError(
                f"callbacks must be functions of the history, got {kind.__qualname__} of "
                f"{kind.__module__}: give NeuralRanker(patience=...) to stop early, and verbose=2 "
                "to see each epoch"
            )


def _check_metric(name: str, given: Mapping[str, Any], metric: Any, kind: Kind) -> None:
    cutoffs, names = (_several(given.get(name)) for name in ("eval_at", "eval_metric"))
    own, _, cutoff = metric.partition("@") if isinstance(metric, str) else (metric, "", "")
    wanted = f"{(names or [own])[0]}".partition("@")[0]
    wanted = f"{wanted}@{(cutoffs or [cutoff])[0]}".removesuffix("@")
    said = f"{(names or [''])[0]}"
    same = wanted.lower() == f"{metric}".lower() and (
        "@" not in said or said.lower() == wanted.lower()
    )
    if kind == "Blend":
        if len(cutoffs) > 1 or len(names) > 1 or not same:
            raise ValueError(
                f"{name} must name {metric!r}, the metric by which a Blend chooses its weights, "
                f"got {_brief(given[name])}: its rankers may have others, such as "
                "NeuralRanker(metric='ndcg@5')"
            )
        return
    if callable((names or [None])[0]):
        raise ValueError(
            f"{name} must be None for a metric of one's own: give NeuralRanker(metric=function), a "
            f"function of labels, scores and qid, got {given[name]!r}"
        )
    if len(cutoffs) > 1 or len(names) > 1:
        raise ValueError(
            f"{name} must be one value, the metric of early stopping, got {given[name]!r}: give "
            f"NeuralRanker(metric={wanted!r}), and see `ltr.reports.evaluate` for several metrics"
        )
    if not same:
        raise ValueError(
            f"{name} must name the metric {metric!r} of this ranker, got {given[name]!r}: give "
            f"NeuralRanker(metric={wanted!r})"
        )


def _several(value: Any) -> list[Any]:
    if value is None:
        return []
    return [*value] if isinstance(value, list | tuple) else [value]
