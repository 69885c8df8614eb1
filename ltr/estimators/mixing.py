"""Tables whose columns are taken from other rows, each column with its own type."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ltr.estimators import tables as tables


def as_columns(X: Any) -> Any:
    """Return X as an array, or as a table of pandas, polars or Arrow.

    Raises:
        ValueError: X is sparse, or has no rows and columns.
    """
    X = tables.with_rows(X)
    if not tables.is_frame(X):
        X = np.asarray(X)
    if len(X.shape) != 2 or 0 in X.shape:
        raise ValueError(f"X must have rows and columns, got shape {tuple(X.shape)}")
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


def take_rows(X: Any, rows: np.ndarray) -> Any:
    """Return some rows of a table; see `take_by_column`."""
    return take_by_column(X, [rows] * X.shape[1])
