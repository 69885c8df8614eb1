"""Text and categories of a table, in the form that each library's rankers take."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.base import RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor

from ltr.datasets import Category, Schema
from ltr.datasets.schema import as_text, kind_of
from ltr.estimators import tables as tables

Form = Literal["as it is", "categories", "text", "numbers"]

_WRAPPERS = {"estimator", "estimators", "regressor"}
"""The parameters of scikit-learn's rankers of others, which may encode text themselves."""


def form_of(ranker: Any) -> Form:
    """Return the form in which a ranker takes text and categories.

    "categories", pandas' own, are for LightGBM, XGBoost and scikit-learn's
    `HistGradientBoostingRegressor`; "text" is for CatBoost, which gets the names of the columns;
    and "numbers", a column of 0 and 1 for each level, for scikit-learn's other regressors. All
    others, such as a pipeline, get the table as it is.

    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> form_of(Ridge()), form_of(make_pipeline(Ridge()))
    ('numbers', 'as it is')
    """
    packages = {kind.__module__.partition(".")[0] for kind in type(ranker).__mro__}
    if packages & {"lightgbm", "xgboost"} or isinstance(ranker, HistGradientBoostingRegressor):
        return "categories"
    if "catboost" in packages:
        return "text"
    own = type(ranker).__module__.startswith("sklearn.") and not _WRAPPERS & {*ranker.get_params()}
    return "numbers" if own and isinstance(ranker, RegressorMixin) else "as it is"


def levels_of(X: Any) -> dict[Any, pd.Index]:
    """Return the levels of each column of text or categories of a table; none of an array.

    >>> levels = levels_of(pd.DataFrame({"shop": ["b", None, "a"], "price": [1, 2, 3]}))
    >>> {name: [*found] for name, found in levels.items()}
    {'shop': ['a', 'b']}
    """
    if not tables.is_frame(X):
        return {}
    frame = _frame(X)
    kinds = {name: pd.api.types.infer_dtype(frame[name]) for name in frame.columns}
    return {
        name: pd.Categorical(frame[name]).categories
        for name, kind in kinds.items()
        if kind in ("string", "categorical")
    }


def schema_of(X: Any, levels: Mapping[Any, pd.Index]) -> Schema | None:
    """Return the columns of a table by name, or None if they have no schema.

    An array has none, nor has a table with a name that is not text, or with levels that are neither
    text nor numbers nor booleans.

    A column of booleans is a category, as in `Schema.infer`; all others without levels are numbers.

    >>> table = pd.DataFrame({"shop": ["b", None, "a"], "price": [1, 2, 3], "new": [True] * 3})
    >>> schema = schema_of(table, levels_of(table))
    >>> [*schema.features], schema.categories["shop"].levels, schema.categories["new"].kind
    (['price'], ('a', 'b'), 'boolean')
    """
    if not tables.is_frame(X):
        return None
    frame = _frame(X)
    if not all(isinstance(name, str) for name in frame.columns):
        return None
    categories = {}
    for name in frame.columns:
        if name in levels:
            try:
                values = pa.array(levels[name])
            except (pa.ArrowInvalid, pa.ArrowTypeError):  # levels of several types
                return None
            kind = kind_of(values.type)
            if kind not in ("string", "number", "boolean", "missing"):
                return None
            text = as_text(pa.chunked_array([values])).to_pylist()
            categories[name] = Category("string" if kind == "missing" else kind, tuple(text))  # pyright: ignore[reportArgumentType]
        elif pd.api.types.infer_dtype(frame[name]) == "boolean":
            categories[name] = Category("boolean", ("false", "true"))
    uses = tables.names_of_uses(frame.columns)
    features = {name: 1 for name in frame.columns if name not in categories}
    return Schema(uses["qid"], uses["label"], features=features, categories=categories)


def from_codes(
    schema: Schema, levels: Mapping[Any, pd.Index], features: np.ndarray, codes: np.ndarray
) -> pd.DataFrame:
    """Return the table of numbers and of codes of categories.

    Args:
        schema: of the columns.
        levels: see `levels_of`.
        features: (rows, d), as the schema orders them.
        codes: (rows, c), 1 for the first level, 0 for a missing or unseen value.

    >>> table = pd.DataFrame({"shop": ["b", None, "a"], "price": [1, 2, 3]})
    >>> levels = levels_of(table)
    >>> from_codes(schema_of(table, levels), levels, np.ones((1, 1)), np.array([[2]]))
       price shop
    0    1.0    b
    """
    columns: dict[str, Any] = dict(zip(schema.features, features.T, strict=True))
    for (name, category), found in zip(schema.categories.items(), codes.T, strict=True):
        if name in levels:
            columns[name] = pd.Categorical.from_codes(found - 1, levels[name])
        else:
            missing = (found < 1) | (found > len(category.levels))
            columns[name] = pd.arrays.BooleanArray(found == 2, missing)
    return pd.DataFrame(columns)


def in_form(X: Any, levels: Mapping[Any, pd.Index], form: Form) -> Any:
    """Return a table with its text and categories in a form; without such columns, X itself.

    Args:
        X: a table.
        levels: of the training lists. Any other value counts as missing.
        form: see `form_of`.

    >>> table = pd.DataFrame({"shop": ["b", None, "c"], "price": [1, 2, 3]})
    >>> in_form(table, {"shop": pd.Index(["a", "b"])}, "numbers")
       price  shop_a  shop_b
    0      1     0.0     1.0
    1      2     0.0     0.0
    2      3     0.0     0.0
    """
    if form == "as it is" or not levels:
        return X
    frame = _frame(X)
    columns: dict[Any, Any] = {}
    for name, known in levels.items():
        values = pd.Index(frame[name].astype(object))
        codes = known.get_indexer(values)  # -1 for any other value
        columns[name] = pd.Categorical.from_codes(codes, known)
    if form == "text":
        columns = {name: np.where(x.isna(), "", x.astype(str)) for name, x in columns.items()}
    frame = frame.assign(**columns)
    return pd.get_dummies(frame, columns=[*levels], dtype=float) if form == "numbers" else frame


def _frame(X: Any) -> pd.DataFrame:
    return X if isinstance(X, pd.DataFrame) else pa.table(X).to_pandas()
