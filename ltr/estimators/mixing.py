"""Tables whose columns come from different rows, each column with its own type."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import union_categoricals

from ltr.estimators import tables as tables


def as_columns(X: Any, name: str = "X") -> Any:
    """Return X as an array, or as a table of pandas, polars or Arrow.

    Raises:
        ValueError: X is sparse, or has no rows and columns.
    """
    X = tables.with_rows(X)
    if not tables.is_frame(X):
        X = np.asarray(X)
    if len(X.shape) != 2 or 0 in X.shape:
        raise ValueError(f"{name} must have rows and columns, got shape {tuple(X.shape)}")
    return X.unify_dictionaries() if isinstance(X, pa.Table) else X


def column_names(X: Any) -> list[Any]:
    """Return the names of the columns; those of an array are x0, x1 and so on."""
    if isinstance(X, np.ndarray):
        return [f"x{i}" for i in range(X.shape[1])]
    return [*(X.column_names if isinstance(X, pa.Table) else X.columns)]


def take_by_column(X: Any, rows: Sequence[np.ndarray | None]) -> Any:
    """Return a table whose column j has the values of X in the rows `rows[j]`.

    Args:
        X: see `as_columns`. Types are kept: categories, text, dates, lists.
        rows: for each column an array of row numbers, all of one length; None for the column as it
            is.

    >>> take_by_column(np.array([[1, 10], [2, 20]]), [None, np.array([1, 0])])
    array([[ 1, 20],
           [ 2, 10]])
    """
    if isinstance(X, np.ndarray):
        columns = [X[:, j] if r is None else X[r, j] for j, r in enumerate(rows)]
        return np.stack(columns, axis=1)
    if isinstance(X, pa.Table):
        found = [x if r is None else x.take(pa.array(r)) for x, r in zip(X, rows, strict=True)]
        return pa.table(found, schema=X.schema)
    if isinstance(X, pd.DataFrame):
        arrays = [X.iloc[:, j].array for j in range(X.shape[1])]
        taken = [x if r is None else x.take(r) for x, r in zip(arrays, rows, strict=True)]
        frame = pd.DataFrame(dict(enumerate(taken)))
        frame.columns = X.columns
        return frame
    series = [X.to_series(j) for j in range(X.shape[1])]  # polars
    return type(X)([x if r is None else x[r] for x, r in zip(series, rows, strict=True)])


def trained_positions(ranker: Any, X: Any) -> list[int]:
    """Return the indices of the columns that a ranker was trained on; all if it does not tell."""
    names = column_names(X)
    steps = getattr(getattr(ranker, "schema", None), "steps", names)  # of a `RankingModel`
    trained = [*getattr(ranker, "feature_names_in_", steps)]
    return [i for i, name in enumerate(names) if name in trained] or [*range(len(names))]


def select(X: Any, positions: list[int]) -> Any:
    """Return the columns with these indices."""
    if isinstance(X, pa.Table):
        return X.select(positions)
    return X.iloc[:, positions] if isinstance(X, pd.DataFrame) else X[:, positions]


def concatenate(X: Any, background: Any) -> Any:
    """Return the rows of X and those of the background, which has the same columns.

    Raises:
        ValueError: they are of different libraries, or differ in a column's name or type.
    """
    if type(X) is not type(background):
        names = type(X).__name__, type(background).__name__
        raise ValueError(f"background must be of the type of X, {names[0]}, got {names[1]}")
    if column_names(X) != column_names(background):
        raise ValueError(
            f"background must have the columns of X, {column_names(X)}, got "
            f"{column_names(background)}"
        )
    if isinstance(X, np.ndarray):
        return np.concatenate([X, background])
    if isinstance(X, pd.DataFrame):
        return _concatenate_frames(X, background)
    try:
        if isinstance(X, pa.Table):
            return pa.concat_tables([X, background]).unify_dictionaries()
        return X.vstack(background)  # polars
    except Exception as error:  # each library has its own
        raise ValueError(f"background must have the types of X: {error}") from None


def _concatenate_frames(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    columns = {}
    for j in range(first.shape[1]):
        parts = [one.iloc[:, j] for one in (first, second)]
        if all(isinstance(part.dtype, pd.CategoricalDtype) for part in parts):
            columns[j] = union_categoricals(parts)  # pd.concat makes text of different levels
        else:
            columns[j] = pd.concat(parts, ignore_index=True)
    frame = pd.DataFrame(columns)
    frame.columns = first.columns
    return frame


def first_rows(X: Any) -> np.ndarray:
    """Return, for each value of a table, the first row with it in its column, (rows, columns).

    >>> first_rows(np.array([[1, 5], [2, 5], [1, 6]]))
    array([[0, 0],
           [1, 0],
           [0, 2]])
    """
    found = np.empty(X.shape, dtype=np.int64)
    for j in range(X.shape[1]):
        values = column_values(X, j)
        try:
            codes, _ = pd.factorize(values, use_na_sentinel=False)
        except TypeError:  # lists of numbers
            codes = np.arange(len(values))
        _, first, which = np.unique(codes, return_index=True, return_inverse=True)
        found[:, j] = first[which]
    return found


def column_values(X: Any, position: int) -> pd.Series:
    """Return a column as a pandas series."""
    if isinstance(X, np.ndarray):
        return pd.Series(X[:, position])
    if isinstance(X, pd.DataFrame):
        return X.iloc[:, position].reset_index(drop=True)
    return (X.column(position) if isinstance(X, pa.Table) else X.to_series(position)).to_pandas()
