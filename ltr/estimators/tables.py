"""Turn what LGBMRanker and XGBRanker take into tables and lists."""

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.utils.validation import check_array, column_or_1d, validate_data

from ltr.datasets import Schema, load_table
from ltr.datasets.arrays import as_names, is_missing
from ltr.datasets.query_splits import query_shares


def as_table(estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool = False) -> pa.Table:
    """Return the rows of X as a table, and let scikit-learn check its names and its width.

    Args:
        estimator: keeps `n_features_in_` and `feature_names_in_` if `reset`, else is compared.
        X: a pandas or polars data frame, an Arrow table, or (rows, columns) numbers.
        y: checked to be there if it is not "no_validation".
        reset: whether this is a new training.

    Raises:
        ValueError: X is not such a table, or has other columns than in training.
    """
    if isinstance(X, pa.RecordBatch):
        X = pa.table(X)
    if hasattr(X, "__arrow_c_stream__") and len(getattr(X, "shape", ())) == 2:
        validate_data(estimator, X, y, reset=reset, skip_check_array=True)
        table = load_table(X)
        columns = table.column_names
    else:
        if not isinstance(y, str):
            validate_data(estimator, X, y, reset=reset, skip_check_array=True)
        values: Any = validate_data(
            estimator, X, reset=reset, dtype="numeric", ensure_all_finite="allow-nan"
        )
        columns = [f"x{i}" for i in range(values.shape[1])]
        table = pa.table({name: values[:, i] for i, name in enumerate(columns)})
    if reset:
        estimator.columns_ = columns
    return table.rename_columns(estimator.columns_)


def row_count(X: Any) -> int:
    """Return how many rows X has."""
    return X.shape[0] if hasattr(X, "shape") else len(X)


def as_labels(y: Any, rows: int) -> np.ndarray:
    """Return the labels as numbers (rows,).

    Raises:
        ValueError: they are not finite numbers >= 0, one for each row.
    """
    labels = check_array(y, ensure_2d=False, dtype="numeric", input_name="y")
    labels = column_or_1d(labels, warn=True)
    if len(labels) != rows:
        raise ValueError(f"y must have a label for each of the {rows} rows of X, got {len(labels)}")
    if (bad := np.flatnonzero(labels < 0)).size:
        raise ValueError(f"y must be >= 0, got {labels[bad[0]]:g} in row {bad[0]}")
    return labels.astype(np.float64)


def query_names(rows: int, qid: Any, group: Any, suffix: str = "") -> pa.Array:
    """Return the name of the query of each row.

    Args:
        rows: how many there are.
        qid: (rows,), the query of each row, in any order; or None.
        group: (queries,), the sizes of lists that stand one after the other; or None.
        suffix: of the arguments' names in errors: "eval_" for `eval_qid`.

    Raises:
        ValueError: none or both are given, they do not fit the rows, or a qid is missing.
    """
    name = f"{suffix}{'qid' if group is None else 'group'}"
    if (qid is None) == (group is None):
        raise ValueError(
            f"{suffix}qid (the query of each row) or {suffix}group (the sizes of the lists) must "
            f"be given, got {'both' if qid is not None else 'neither'}"
        )
    if group is not None:
        sizes = np.asarray(group)
        if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes < 1).any():
            raise ValueError(
                f"{name} must be whole numbers >= 1, the sizes of lists, got {group!r}"
            )
        if sizes.sum() != rows:
            raise ValueError(f"{name} must add up to the {rows} rows of X, got {sizes.sum()}")
        return pa.array(np.repeat(np.arange(len(sizes)), sizes))
    names = as_names(name, qid)
    if names.shape != (rows,):
        raise ValueError(
            f"{name} must have an entry for each of the {rows} rows of X, got shape {names.shape}"
        )
    if names.dtype.kind in "iu":
        return pa.array(names)
    values = names.tolist()
    for row, value in enumerate(values):
        if is_missing(value):
            raise ValueError(f"{name} must name a query in each row, got {value!r} in row {row}")
    return pa.array([str(value) for value in values], pa.string())


def list_groups(names: pa.Array) -> tuple[np.ndarray, list[str]]:
    """Return the list of each row, (rows,), and the lists' names, as they first appear."""
    encoded = names.dictionary_encode()
    groups = encoded.indices.to_numpy().astype(np.int64)
    return groups, encoded.dictionary.cast(pa.string()).to_pylist()


def row_weights(sample_weight: Any, groups: np.ndarray, lists: int) -> tuple[np.ndarray, bool]:
    """Return a weight for each row, and whether they were given for each list.

    Raises:
        ValueError: there is neither one for each row nor one for each list, or one is negative or
            not finite.
    """
    weights = np.asarray(sample_weight, dtype=np.float64)
    rows = len(groups)
    if weights.ndim == 0:  # scikit-learn takes a number for all rows
        weights = np.full(rows, float(weights))
    if weights.shape not in ((rows,), (lists,)):
        raise ValueError(
            f"sample_weight must have shape ({rows},), a weight for each row, or ({lists},), one "
            f"for each list in the order of its first row, got {weights.shape}"
        )
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise ValueError("sample_weight must be finite and >= 0, and not all of it 0")
    of_lists = len(weights) != rows
    weights = weights / weights.mean()
    return (weights[groups] if of_lists else weights), of_lists


def names_of_uses(table: pa.Table) -> dict[str, str]:
    """Return names for the columns of qid, label and weight that no feature has.

    >>> names_of_uses(pa.table({"qid": [0.5]}))
    {'qid': 'qid_', 'label': 'y', 'weight': 'sample_weight'}
    """
    found = {}
    for use, name in (("qid", "qid"), ("label", "y"), ("weight", "sample_weight")):
        while name in table.column_names:
            name += "_"
        found[use] = name
    return found


def join(table: pa.Table, columns: dict[str, Any]) -> pa.Table:
    """Return a table with more columns; those whose values are None are left out."""
    for name, values in columns.items():
        if values is not None:
            table = table.append_column(name, pa.array(values))
    return table


def one_evaluation(
    eval_set: Any, eval_qid: Any, eval_group: Any
) -> tuple[Any, Any, Any, Any] | None:
    """Return (X, y, qid, group) of the validation lists, or None.

    Raises:
        ValueError: they are not given as lists of one entry each.
    """
    given = {"eval_set": eval_set, "eval_qid": eval_qid, "eval_group": eval_group}
    if eval_set is None:
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"eval_set must be given where {name} is")
        return None
    if isinstance(eval_set, tuple) and len(eval_set) == 2:  # LightGBM takes it without a list
        eval_set = [eval_set]
    for name, value in {**given, "eval_set": eval_set}.items():
        if value is not None and (not isinstance(value, list | tuple) or len(value) != 1):
            several = isinstance(value, list | tuple)
            size = f"{len(value)} entries" if several else f"a {type(value).__name__}"
            raise ValueError(f"{name} must be a list of one entry, got {size}")
    if not isinstance(eval_set[0], list | tuple) or len(eval_set[0]) != 2:
        raise ValueError(f"eval_set must hold one pair (X, y), got a {type(eval_set[0]).__name__}")
    X, y = eval_set[0]
    qid = None if eval_qid is None else eval_qid[0]
    return X, y, qid, None if eval_group is None else eval_group[0]


def varies(labels: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return whether each list, (lists,), has two different labels."""
    starts = offsets[:-1]
    return np.maximum.reduceat(labels, starts) > np.minimum.reduceat(labels, starts)


def held_out(
    groups: np.ndarray, queries: list[str], labels: np.ndarray, share: float
) -> np.ndarray | None:
    """Return which queries are held out, (queries,) bool, or None if there are too few of them.

    Args:
        groups: (rows,), the number of each row's query.
        queries: their names.
        labels: (rows,).
        share: of the queries, in (0, 1).
    """
    order = np.argsort(groups, kind="stable")
    offsets = np.r_[0, np.cumsum(np.bincount(groups))]
    informative = varies(labels[order], offsets)
    held = query_shares(queries) < share
    return held if informative[held].any() and informative[~held].any() else None


def tell_unused(columns: list[str], schema: Schema) -> None:
    """Warn of the columns that the schema does not use."""
    known = {*schema.features, *schema.categories}
    unused = [name for name in columns if name not in known]
    if unused:
        warnings.warn(
            "X has columns that are neither numbers, text nor booleans, and are not used: "
            f"{', '.join(unused)}",
            stacklevel=5,
        )
