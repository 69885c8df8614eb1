"""Text and categories of a table, in the form that each library's rankers take."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.base import RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor

from ltr.estimators import tables as tables

Form = Literal["as it is", "categories", "text", "numbers"]

_WRAPPERS = {"estimator", "estimators", "regressor"}
"""The parameters of scikit-learn's rankers of others, which may encode text themselves."""


def form_of(ranker: Any) -> Form:
    """Return the form in which a ranker takes text and categories.

    "categories", pandas' own, are for LightGBM, XGBoost and scikit-learn's
    `HistGradientBoostingRegressor`; "text" is for CatBoost, which is told the names of the columns;
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
