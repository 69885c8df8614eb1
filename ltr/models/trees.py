"""Columns of a table in the form that libraries of boosted trees accept.

A library may refuse the names of a user's columns: LightGBM refuses `size: cm` and takes `a b` for
`a_b`, XGBoost refuses `price [EUR]`. So trees get columns called x0, x1 and so on, and the indices
of levels as categories. The schema of the model knows the user's names and levels.
"""

import inspect
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from torch import Tensor

from ltr.datasets import Category, RankPerList, Schema, StandardizePerList
from ltr.datasets.column_steps import as_text, kind_of

Form = Literal["categories", "codes"]

CONSTRAINTS = ("monotone_constraints", "monotonic_cst", "interaction_constraints")
"""Parameters of LightGBM, XGBoost, CatBoost and scikit-learn that may name columns."""

_BOOSTERS = {("lightgbm", "Booster"), ("xgboost", "Booster")}


def is_booster(ranker: Any) -> bool:
    """Return whether a ranker is a `Booster`: the result of `lightgbm.train` or `xgboost.train`."""
    kind = type(ranker)
    return (kind.__module__.partition(".")[0], kind.__name__) in _BOOSTERS


def of_booster(booster: Any, X: Any) -> Any:
    """Return X as the `predict` of a `Booster` takes it, with the columns of its training.

    Args:
        booster: the booster.
        X: a pandas data frame or an array.
    """
    names, frame = booster_names(booster), isinstance(X, pd.DataFrame)
    if frame and {*names} <= {*X.columns}:
        X = X[names] if names else X.to_numpy()
    if not hasattr(booster, "feature_names"):
        return X
    own = None if frame or not names else names
    return import_module("xgboost").DMatrix(X, feature_names=own, enable_categorical=True)


def scores_of(ranker: Any, X: Any, qid: Any = None) -> np.ndarray:
    """Return the scores (rows,) of a fitted ranker, float64.

    Args:
        ranker: an estimator with `predict`, or a `Booster` of LightGBM or XGBoost.
        X: (rows, columns), in a form that the ranker takes.
        qid: (rows,), for a ranker whose `predict` takes `qid`.

    Raises:
        ValueError: the ranker does not predict one number for each row.
    """
    rows = len(X)
    if is_booster(ranker):
        X = of_booster(ranker, X)
    takes_qid = qid is not None and "qid" in inspect.signature(ranker.predict).parameters
    predicted = ranker.predict(X, qid=qid) if takes_qid else ranker.predict(X)
    scores = np.asarray(predicted, dtype=np.float64)
    if scores.shape != (rows,):
        raise ValueError(
            f"rankers must predict one number for each of the {rows} rows, got shape "
            f"{scores.shape} from {ranker!r}"
        )
    return scores


def booster_names(booster: Any) -> list[str]:
    """Return the names of a booster's columns; [] if it was trained on an array by XGBoost."""
    of_xgboost = hasattr(booster, "feature_names")
    return [*((booster.feature_names or ()) if of_xgboost else booster.feature_name())]


def tree_positions(schema: Schema, columns: Sequence[str]) -> list[int]:
    """Return the order in which trees get the features and the categories of a schema.

    The order is that of the columns of the table, so that a list of constraints fits them.

    Args:
        schema: the schema.
        columns: the columns of the training table, in order; those that have no use are left out.

    Returns:
        Indices of `[*schema.feature_names, *schema.categories]`.

    >>> table = pa.table({"q": [1, 1], "shop": ["a", "b"], "price": [9.5, 8.0]})
    >>> tree_positions(Schema.infer(table, qid="q"), table.column_names)
    [1, 0]
    """
    starts, start = {}, 0
    for name, width in [*schema.features.items(), *dict.fromkeys(schema.categories, 1).items()]:
        starts[name] = range(start, start + width)
        start += width
    return [at for name in columns if name in starts for at in starts[name]]


def tree_table(
    schema: Schema,
    features: np.ndarray,
    codes: np.ndarray | None,
    positions: Sequence[int],
    *,
    form: Form = "categories",
    most: int | None = None,
    named: bool = False,
    relative: np.ndarray | None = None,
) -> pd.DataFrame:
    """Return the table that trees get. A boolean is 0 or 1; a missing value is NaN or no category.

    Args:
        schema: the schema of the columns.
        features: (rows, d), in the order of the schema.
        codes: int64 (rows, c), 1 for the first level, 2 for the second and so on; 0 for a missing
            or unseen value. None if there are no categories.
        positions: see `tree_positions`.
        form: "categories" for categories of pandas; "codes" for the codes themselves, as CatBoost
            takes them.
        most: a category with more levels than this becomes a number: the index of its level.
            Default: no category does.
        named: whether columns and levels are called as in the user's table, for a `Booster` that
            was trained on such a table. Default: x0, x1 and so on, and the indices of the levels.
        relative: (rows, 2 d), the last columns; see `relative_to_list`. Default: none.

    >>> table = pa.table({"q": [1, 1], "shop: name": ["a", "b"], "new": [True, None]})
    >>> schema = Schema.infer(table, qid="q").fit_levels(table)
    >>> tree_table(schema, np.ones((2, 0)), np.array([[1, 1], [2, 0]]), [0, 1])
      x0   x1
    0  0  1.0
    1  1  NaN
    """
    width = schema.num_features
    categories = [*schema.categories.values()]
    columns = {}
    for index, at in enumerate(positions):
        if at < width:
            columns[index] = features[:, at]
        else:
            assert codes is not None
            own = codes[:, at - width]
            columns[index] = _category(categories[at - width], own, form, most, named)
    known = [*schema.feature_names, *schema.categories]
    names = [known[at] if named else f"x{index}" for index, at in enumerate(positions)]
    if relative is not None:
        columns |= dict(enumerate(relative.T, start=len(names)))
        names = [f"x{index}" for index in range(len(columns))]
    return pd.DataFrame(columns, index=range(len(features))).set_axis(names, axis=1)


def relative_to_list(features: Tensor, **lists: Any) -> Tensor:
    """Return the columns relative to the list that trees get: (..., n, d) -> (..., n, 2 d).

    These are the ranks of each feature within its list, and then its differences from the list's
    mean, in standard deviations of the list. A missing value gives NaN.

    Args:
        features: see `FeatureTransform.forward`.
        lists: `mask` or `lengths`; see `FeatureTransform.forward`.
    """
    return torch.cat(
        [RankPerList()(features, **lists), StandardizePerList()(features, **lists)], -1
    )


def takes_relative(ranker: Any) -> bool:
    """Return whether a ranker gets columns relative to the list if a network of its blend does.

    Trees without constraints do: a list of constraints has one for each column of the table.
    """
    if library_of(ranker) is None or is_booster(ranker):
        return False
    given = ranker.get_params()
    return all(given.get(name) is None for name in CONSTRAINTS)


def tree_values(category: Category) -> list[float]:
    """Return the number that stands for each level in trees; a category is compared by it.

    >>> tree_values(Category("string", ("a", "b"))), tree_values(Category("boolean", ("true",)))
    ([0.0, 1.0], [1.0])
    """
    if category.kind == "boolean":
        return [float(level == "true") for level in category.levels]
    return [float(index) for index in range(len(category.levels))]


def _category(
    category: Category, codes: np.ndarray, form: Form, most: int | None, named: bool
) -> Any:
    count = len(category.levels)
    codes = np.where((codes < 0) | (codes > count), 0, codes)
    many = most is not None and count > most
    if _is_number(category) or many:
        return np.array([np.nan, *tree_values(category)])[codes]
    if form == "codes":
        return codes
    levels = level_values(category) if named else pd.RangeIndex(count)
    return pd.Categorical.from_codes(codes - 1, levels)


def _is_number(category: Category) -> bool:
    """Return whether trees always get the column as a number, however many levels it has."""
    return category.kind == "boolean" or not category.levels


def level_values(category: Category) -> pd.Index:
    """Return the levels of a category as the values that they stand for: text, numbers, booleans.

    >>> level_values(Category("number", ("1", "2.5"))).tolist()
    [1.0, 2.5]
    """
    if category.kind == "boolean":
        return pd.Index([level == "true" for level in category.levels])
    numbers = category.kind == "number"
    return pd.Index(pd.to_numeric([*category.levels]) if numbers else category.levels)


def tree_categories(schema: Schema, positions: Sequence[int]) -> list[str]:
    """Return the names x0, x1 and so on of the columns that `tree_table` makes categories."""
    plain = [True] * schema.num_features + [_is_number(x) for x in schema.categories.values()]
    return [f"x{index}" for index, at in enumerate(positions) if not plain[at]]


def set_names(ranker: Any, schema: Schema, positions: Sequence[int]) -> None:
    """Let the constraints of a ranker, which may name columns of the user's table, name x0, x1 ...

    Args:
        ranker: the ranker. Its parameters change.
        schema: the schema of the table.
        positions: see `tree_positions`.
    """
    known = [*schema.feature_names, *schema.categories]
    names = {known[at]: f"x{index}" for index, at in enumerate(positions)}
    given = ranker.get_params()
    changed = {
        name: _renamed(given[name], names) for name in CONSTRAINTS if given.get(name) is not None
    }
    if changed:
        ranker.set_params(**changed)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {names.get(name, name): inner for name, inner in value.items()}
    if isinstance(value, list | tuple | set):
        own = [
            names.get(inner, inner) if isinstance(inner, str) else _renamed(inner, names)
            for inner in value
        ]
        return type(value)(own)
    return value


def category_of(levels: Any) -> Category | None:
    """Return the category with these levels; None if they are not all of one kind.

    The kinds are text, numbers and booleans.

    >>> category_of([1, 2]).kind, category_of(["a", 1])
    ('number', None)
    """
    try:
        values = pa.array(levels)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None
    kind = kind_of(values.type)
    if kind not in ("string", "number", "boolean", "missing"):
        return None
    text = as_text(pa.chunked_array([values])).to_pylist()
    return Category("string" if kind == "missing" else kind, tuple(text))


def library_of(ranker: Any) -> str | None:
    """Return the library of trees: "lightgbm", "xgboost", "catboost" or "sklearn"; None for others.

    >>> library_of(HistGradientBoostingRegressor()), library_of(None)
    ('sklearn', None)
    """
    packages = {kind.__module__.partition(".")[0] for kind in type(ranker).__mro__}
    for library in ("lightgbm", "xgboost", "catboost"):
        if library in packages:
            return library
    return "sklearn" if isinstance(ranker, HistGradientBoostingRegressor) else None
