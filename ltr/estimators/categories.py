"""Text, categories and dates of a table, in the form that each library accepts."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.base import RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor

from ltr.datasets import Category, Schema
from ltr.datasets.column_steps import Date, Number, Step, as_dates, as_text, kind_of
from ltr.datasets.frames import Frame
from ltr.datasets.infer import find_dates
from ltr.estimators import tables as tables

Form = Literal["as it is", "categories", "text", "numbers"]

_WRAPPERS = {"estimator", "estimators", "regressor"}
"""A scikit-learn estimator with one of these parameters wraps others, which may encode text."""


def form_of(ranker: Any) -> Form:
    """Return the form in which a ranker accepts text, categories and dates.

    LightGBM, XGBoost and scikit-learn's `HistGradientBoostingRegressor` accept "categories" of
    pandas. CatBoost accepts "text", and the names of the columns of text. scikit-learn's other
    regressors accept "numbers": a column of 0 and 1 for each level. All other rankers, such as a
    pipeline, get the table "as it is".

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


def columns_of(
    X: Any, given: Mapping[str, Any] | None = None
) -> tuple[dict[Any, pd.Index], Schema | None]:
    """Return the levels of each column of text or categories in a table, and the table's schema.

    A column of text that holds dates has no levels. A column of booleans is a category, as in
    `Schema.infer`, but its levels are not returned, because they are always false and true. All
    other columns without levels are numbers or dates.

    An array has neither levels nor a schema. A table has no schema if a column's name is not text,
    or if the levels of a column are not all text, all numbers or all booleans.

    Args:
        X: the table.
        given: see `names_of_uses`.

    >>> table = pd.DataFrame({"shop": ["b", None, "a"], "price": [1, 2, 3], "new": [True] * 3})
    >>> levels, schema = columns_of(table)
    >>> {name: [*found] for name, found in levels.items()}
    {'shop': ['a', 'b']}
    >>> [*schema.features], schema.categories["shop"].levels, schema.categories["new"].kind
    (['price'], ('a', 'b'), 'boolean')
    """
    if not tables.is_frame(X):
        return {}, None
    frame = tables.as_pandas(X)
    kinds = {name: pd.api.types.infer_dtype(frame[name]) for name in frame.columns}
    maybe = [name for name, kind in kinds.items() if kind == "string" or "date" in kind]
    dates = find_dates(Frame.of(frame[maybe]))
    levels: dict[Any, pd.Index] = {}
    numbers: dict[Any, Step] = {}
    categories: dict[Any, Category | None] = {}
    for name, kind in kinds.items():
        if (date := dates.get(str(name))) is not None:
            numbers[name] = date
        elif kind in ("string", "categorical"):
            levels[name] = pd.Categorical(frame[name]).categories
            categories[name] = category_of(levels[name])
        elif kind == "boolean":
            categories[name] = Category("boolean", ("false", "true"))
        else:
            numbers[name] = Number()
    steps = {**numbers, **categories}
    if None in steps.values() or not all(isinstance(name, str) for name in steps):
        return levels, None
    uses = tables.names_of_uses(frame.columns, given or {})
    return levels, Schema(uses["qid"], uses["label"], steps=steps)


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


def from_codes(
    schema: Schema, levels: Mapping[Any, pd.Index], features: np.ndarray, codes: np.ndarray
) -> pd.DataFrame:
    """Return the table of numbers, dates and categories that features and codes encode.

    Args:
        schema: the schema of the columns.
        levels: see `columns_of`.
        features: (rows, d), in the order of the schema.
        codes: (rows, c), 1 for the first level, 2 for the second and so on; 0 for a missing or
            unseen value.

    >>> table = pd.DataFrame({"shop": ["b", None, "a"], "price": [1, 2, 3]})
    >>> levels, schema = columns_of(table)
    >>> from_codes(schema, levels, np.ones((1, 1)), np.array([[2]]))
       price shop
    0    1.0    b
    """
    columns: dict[str, Any] = {}
    bounds = np.cumsum([0, *schema.features.values()])
    for (name, width), start in zip(schema.features.items(), bounds, strict=False):
        if name not in schema.dates:
            columns[name] = features[:, start]
            continue
        numbers = np.zeros((len(features), 2))
        numbers[:, :width] = features[:, start : start + width]
        times = pd.Series(as_dates(numbers))
        columns[name] = times if schema.dates[name] == "naive" else times.dt.tz_localize("UTC")
    for (name, category), found in zip(schema.categories.items(), codes.T, strict=True):
        if name in levels:
            columns[name] = pd.Categorical.from_codes(found - 1, levels[name])
        else:
            missing = (found < 1) | (found > len(category.levels))
            columns[name] = pd.arrays.BooleanArray(found == 2, missing)
    return pd.DataFrame(columns)


def in_form(
    X: Any, levels: Mapping[Any, pd.Index], form: Form, schema: Schema | None = None
) -> Any:
    """Return X with text, categories and dates in the given form; X itself if it has none of them.

    A column without any value counts as missing, whatever its type is. A column of dates becomes
    the number of days since 1970-01-01. If the schema has the hour of the day, a column "NAME
    (hour)" follows. In all forms but "as it is", objects get a type; see `_typed`.

    Args:
        X: a table.
        levels: for each column of text or categories, its levels in the training lists. Any other
            value of the column counts as missing.
        form: see `form_of`. "as it is" returns X itself.
        schema: the schema, which says which columns hold dates; None if no column does.

    Raises:
        ValueError: a column of hours would have the name of another column.

    >>> table = pd.DataFrame({"shop": ["b", None, "c"], "price": [1, 2, 3]})
    >>> in_form(table, {"shop": pd.Index(["a", "b"])}, "numbers")
       price  shop_a  shop_b
    0      1     0.0     1.0
    1      2     0.0     0.0
    2      3     0.0     0.0
    """
    if form == "as it is" or not (levels or (schema and schema.dates) or _has_others(X)):
        return X
    frame = _without_types(tables.as_pandas(X))
    if schema is not None:
        frame = _with_numbers(frame, schema)
    columns: dict[Any, Any] = {}
    for name, known in levels.items():
        values = pd.Index(frame[name].astype(object))
        codes = known.get_indexer(values)  # -1 stands for a value that is not a level
        columns[name] = pd.Categorical.from_codes(codes, known)
    if form == "text":
        columns = {name: np.where(x.isna(), "", x.astype(str)) for name, x in columns.items()}
    objects = [name for name, kind in frame.dtypes.items() if str(kind) in _UNTYPED]
    columns |= {name: _typed(pd.Series(frame[name])) for name in objects if name not in levels}
    frame = frame.copy(deep=False)
    for name, values in columns.items():  # `assign` takes only names that are text
        frame[name] = values
    if form == "numbers" and levels:
        frame = pd.get_dummies(frame, columns=[*levels], dtype=float).rename(columns=str)
    return frame


# The types of columns of objects or text in pandas.
_UNTYPED = {"object", "str", "string"}

# How the names of the types of numbers and booleans begin, in pandas, Arrow and polars.
_PLAIN = ("int", "uint", "float", "double", "half", "bool", "decimal")


def _has_others(X: Any) -> bool:
    """Return whether a table has a column of another type than numbers and booleans."""
    if not tables.is_frame(X):
        return False
    kinds = X.schema.types if isinstance(X, pa.Table) else getattr(X, "dtypes", ())
    return not all(str(kind).lower().startswith(_PLAIN) for kind in kinds)


def _without_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with each column that has no value as objects, all of them None."""
    frame = frame.copy(deep=False)
    for position in range(frame.shape[1]):
        column = frame.iloc[:, position]
        # The first value usually shows that the column has one.
        if column.iloc[:1].isna().all() and column.isna().all():
            frame.isetitem(position, np.full(len(frame), None))
    return frame


def _typed(objects: pd.Series) -> Any:
    """Return a column of objects as booleans or numbers if it has only these and missing values.

    LightGBM and XGBoost refuse objects and text. pandas makes objects of booleans with missing
    values; pandas and polars make objects or text of a column in which all values are missing.

    >>> _typed(pd.Series([True, None], dtype=object)).dtype, _typed(pd.Series([None, None]))
    (BooleanDtype, array([nan, nan]))
    """
    if objects.isna().all():
        return np.full(len(objects), np.nan)
    kind = pd.api.types.infer_dtype(objects)
    if kind == "boolean":
        return objects.astype("boolean")
    if kind in ("integer", "floating", "mixed-integer-float"):
        return objects.astype("Float64").to_numpy(np.float64, na_value=np.nan)
    return objects


def _with_numbers(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return the frame with its dates as numbers."""
    names = [*frame.columns]
    for name, step in schema.steps.items():
        if not isinstance(step, Date):
            continue
        column = Frame.of(frame[[name]]).column(name)
        step.check(name, column.type)
        numbers = step.read(name, column)
        hour = step.feature_names(name)[-1]
        if step.hour and hour in names:
            raise ValueError(
                f"column {hour!r} must not exist: the hours of {name!r} take this name"
            )
        frame = frame.assign(**{name: numbers[:, 0]})
        if step.hour:
            frame.insert([*frame.columns].index(name) + 1, hour, numbers[:, 1])
    return frame
