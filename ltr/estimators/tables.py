"""Turn arguments in the form of `LGBMRanker` and `XGBRanker` into tables and lists."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import sklearn
import torch
from scipy import sparse
from sklearn.utils.validation import check_array, column_or_1d, validate_data

from ltr.arrays import as_array, as_numbers, as_qids, check_labels, numbered
from ltr.datasets.frames import Frame
from ltr.datasets.table_files import load_frame
from ltr.losses.base import Loss
from ltr.names import close_matches, shown_names

_ROUTING = (
    ": scikit-learn's searches, folds and pipelines pass qid on after "
    "sklearn.set_config(enable_metadata_routing=True)"
)


def as_table(estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool = False) -> Frame:
    """Return X as a frame; scikit-learn checks the number and the names of its columns.

    Args:
        estimator: if `reset`, its `n_features_in_`, `feature_names_in_` and `columns_` are set to
            those of X. Otherwise X must match them.
        X: a pandas or polars data frame, an Arrow table, or an array of numbers (rows, columns).
        y: the labels, which must not be None; "no_validation" turns this check off.
        reset: whether a new training run begins.

    Raises:
        ValueError: X is not two-dimensional, is sparse, lacks a column of the training data, is an
            array with a value that is infinite or too large for float64, or has no rows although a
            new training run begins.
    """
    X = with_rows(X)
    if not reset:
        X = by_name(estimator, X)
    frame = None
    if is_frame(X):
        frame = load_frame(X) if reset else Frame.of(X)
    validate_data(estimator, X, y, reset=reset, skip_check_array=True)
    if frame is None:
        rows: dict[str, Any] = {"ensure_min_samples": int(reset), "ensure_all_finite": "allow-nan"}
        try:
            values = check_array(X, estimator=estimator, input_name="X", **rows)
        except OverflowError as error:
            raise ValueError(f"X must be finite in float32, got {error}") from None
        if values.dtype == np.longdouble:
            values = values.astype(np.float64)
        frame = Frame.of_array(values)
    if reset:
        estimator.columns_ = frame.column_names
    return frame.renamed(estimator.columns_)


def set_columns(estimator: Any, names: Sequence[str], *, named: bool) -> None:
    """Set the columns that an estimator accepts; `named` is whether users know their names."""
    estimator.columns_, estimator.n_features_in_ = [*names], len(names)
    vars(estimator).pop("feature_names_in_", None)
    if named:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)


def is_frame(X: Any) -> bool:
    """Return whether X is a table whose columns have names and types."""
    return hasattr(X, "__arrow_c_stream__") and len(getattr(X, "shape", ())) == 2


def as_pandas(X: Any) -> pd.DataFrame:
    """Return a table as a pandas data frame."""
    return X if isinstance(X, pd.DataFrame) else pa.table(X).to_pandas()


def with_rows(X: Any, name: str = "X") -> Any:
    """Return X as a table or an array, without a mask; errors call it `name`.

    Raises:
        ValueError: X is sparse, or does not have two dimensions.
    """
    if isinstance(X, np.ma.MaskedArray | torch.Tensor) or not hasattr(X, "shape"):
        X = as_array(X)
    if len(X.shape) != 2:
        raise ValueError(
            f"{name} must have the shape (rows, columns), got {tuple(X.shape)}. Reshape your data, "
            f"by {name}.reshape(1, -1) if it is one row"
        )
    kinds = [str(kind) for kind in getattr(X, "dtypes", ())]
    if sparse.issparse(X) or any(kind.startswith("Sparse[") for kind in kinds):
        raise ValueError(
            f"{name} must not be sparse, got a sparse {type(X).__name__}: make it a dense table or "
            "array"
        )
    return pa.table(X) if isinstance(X, pa.RecordBatch) else X


def by_name(estimator: Any, X: Any) -> Any:
    """Return the training columns of X in their order; X itself if X or the estimator has no names.

    Numbers that name the columns of a pandas frame are read as text, as in `Frame.of`.

    Raises:
        ValueError: columns are missing; the message names them.
    """
    if not is_frame(X) or not hasattr(estimator, "feature_names_in_"):
        return X
    names = [*(X.column_names if isinstance(X, pa.Table) else X.columns)]
    wanted = estimator.feature_names_in_.tolist()
    if not all(isinstance(name, str) for name in names):  # the frame is of pandas
        if not {*wanted} <= {*map(str, names)}:
            return X
        names = [*map(str, names)]
        X = X.set_axis(names, axis=1)
    if names == wanted:
        return X
    if missing := [name for name in wanted if name not in names]:
        others = [name for name in names if name not in wanted]
        close = {name: " or ".join(close_matches(name, others)) for name in missing}
        hints = [f" (did you mean {near}?)" if near else "" for near in close.values()]
        shown = ", ".join(map("".join, zip(missing, hints, strict=True)))
        raise ValueError(f"X must have all columns of the training, got none called {shown}")
    return X.select(wanted) if isinstance(X, pa.Table) else X[wanted]


def row_count(X: Any) -> int:
    """Return how many rows X has."""
    return X.shape[0] if hasattr(X, "shape") else len(X)


def as_labels(y: Any, rows: int) -> np.ndarray:
    """Return the labels as numbers (rows,).

    Raises:
        ValueError: `y` does not have one finite number >= 0 for each row.
    """
    labels = column_or_1d(as_numbers("y", y), warn=True).astype(np.float64)
    if len(labels) != rows:
        raise ValueError(
            f"y must have one label for each of the {rows} rows of X, got {len(labels)}"
        )
    check_labels("y", labels)
    return labels


def label_columns(
    y: Any, rows: int, columns: Collection[str], loss: Any = None
) -> dict[str, np.ndarray]:
    """Return the columns of several labels, (rows,) each, by name; {} if `y` is one label.

    Args:
        y: one label (rows,), or several: a frame or an array (rows, labels), with NaN where a label
            is not known.
        rows: the number of rows.
        columns: the names of the features.
        loss: the loss of the ranker. The columns of an array have the names of the labels of a
            `SeveralLabels`; without one, y0, y1 and so on.

    Raises:
        ValueError: the labels do not fit the rows or the loss; a value is not a number, negative or
            infinite; or two labels, or a label and a feature, have the same name.

    >>> label_columns(np.array([[0, 1], [2, np.nan]]), 2, [])
    {'y0': array([0., 2.]), 'y1': array([ 1., nan])}
    """
    if len(np.shape(y)) != 2 or np.shape(y)[1] < 2:
        return {}
    own = getattr(loss, "names", None)
    if is_frame(y):
        table = as_pandas(y)
        names = [str(name) for name in table.columns]
        values = [table.iloc[:, i] for i in range(len(names))]
    else:
        values = [*as_numbers("y", y).T]
        names = own if own is not None else [f"y{i}" for i in range(len(values))]
    if np.shape(y) != (rows, len(names)):
        wanted = f"({rows}, {len(names)})"
        raise ValueError(f"y must have the shape {wanted}, got {tuple(np.shape(y))}")
    if own is not None and {*own} != {*names}:
        raise ValueError(f"y must have the labels of the loss, {shown_names(own)}, got {names}")
    labels: dict[str, np.ndarray] = {}
    for name, column in zip(names, values, strict=True):
        if name in columns:
            raise ValueError(f"y must not have names of features, got {name!r}")
        if name in labels:
            raise ValueError(f"y must have different names of labels, got {name!r} twice")
        labels[name] = as_numbers(f"y[{name!r}]", column).astype(np.float64)
        check_labels(f"y[{name!r}]", np.where(np.isnan(labels[name]), 0.0, labels[name]))
    return {name: labels[name] for name in own or names}


def query_names(rows: int, qid: Any, group: Any, prefix: str = "") -> pa.Array:
    """Return the name of the query of each row.

    Args:
        rows: the number of rows.
        qid: (rows,), the query of each row, in any order; or None.
        group: (queries,), the sizes of the lists, in the order of the rows, as whole numbers of any
            type; or None.
        prefix: text before the names of the arguments in errors, such as "eval_" for `eval_qid`.

    Raises:
        ValueError: neither or both of `qid` and `group` are given; the given argument does not fit
            the rows; or the qid of a row is missing.
    """
    name = f"{prefix}{'qid' if group is None else 'group'}"
    if (qid is None) == (group is None):
        got = "both" if qid is not None else "neither"
        if got == "neither" and not sklearn.get_config()["enable_metadata_routing"]:
            got += _ROUTING
        raise ValueError(
            f"{prefix}qid (the query of each row) or {prefix}group (the sizes of the lists) must "
            f"be given, got {got}"
        )
    if group is not None:
        sizes = as_numbers(name, group)
        if sizes.ndim != 1:
            raise ValueError(f"{name} must be the sizes of the lists, (queries,), got {group!r}")
        good = (sizes >= 1) & (sizes == np.floor(sizes)) & (sizes.dtype.kind != "b")
        if not good.all():
            raise ValueError(
                f"{name} must be whole numbers >= 1, the sizes of lists, got {sizes[~good][0]}"
            )
        if sizes.sum() != rows:
            raise ValueError(f"{name} must add up to the {rows} rows of X, got {sizes.sum()}")
        return pa.array(np.repeat(np.arange(len(sizes)), sizes.astype(np.int64)))
    return as_qids(name, qid, rows, "rows of X")


def list_groups(names: pa.Array) -> tuple[np.ndarray, list[str]]:
    """Return the index of each row's list, (rows,), and the list names in order of appearance."""
    groups, queries = numbered(names)
    return groups, queries.cast(pa.string()).to_pylist()


def row_weights(
    sample_weight: Any, groups: np.ndarray, queries: Sequence[str]
) -> tuple[np.ndarray, bool]:
    """Return a weight for each row, and whether `sample_weight` has one weight for each list.

    Args:
        sample_weight: see `NeuralRanker.fit`; or one weight for all rows.
        groups: (rows,), the index of each row's list.
        queries: the names of the lists.

    Raises:
        ValueError: there is not one weight for each row or each list, a weight is negative or not
            finite, or all are 0.
    """
    weights = as_numbers("sample_weight", sample_weight).astype(np.float64)
    rows, lists = len(groups), len(queries)
    if weights.ndim == 0:  # one weight applies to all rows, as in scikit-learn
        weights = np.full(rows, float(weights))
    if weights.shape not in ((rows,), (lists,)):
        raise ValueError(
            f"sample_weight must have shape ({rows},), a weight for each row, or ({lists},), one "
            f"for each list in the order of its first row, got {weights.shape}"
        )
    if not (weights >= 0).all() or not 0 < weights.max() <= np.finfo(np.float32).max:
        raise ValueError("sample_weight must be finite, >= 0 and not 0 everywhere")
    of_lists = len(weights) != rows
    return (weights[groups] if of_lists else weights), of_lists


def side_columns(loss: Loss | None, given: Mapping[str, Any], rows: int) -> dict[str, np.ndarray]:
    """Return the columns of a loss's side inputs.

    Args:
        loss: the loss; None for the default loss, which needs none.
        given: `position` and `protected`, each (rows,) or None. The result has only those that the
            loss needs.
        rows: the number of rows.

    Raises:
        ValueError: a side input that the loss needs is not in `given`, is None, or does not have
            one number for each row.
    """
    inputs = {}
    for name in () if loss is None else loss.side_inputs:
        if name not in given:
            raise ValueError(
                f"loss must not need the side input {name!r}, which fit does not take, got {loss}"
            )
        if given[name] is None:
            raise ValueError(
                f"{name} must be given to fit, got None: {type(loss).__name__} needs it for each "
                "row"
            )
        inputs[name] = given[name]
    return row_numbers(inputs, rows)


def row_numbers(given: Mapping[str, Any], rows: int) -> dict[str, np.ndarray]:
    """Return the arguments that are not None, as arrays (rows,).

    Raises:
        ValueError: an argument does not have one number for each row.
    """
    arrays = {name: as_numbers(name, x) for name, x in given.items() if x is not None}
    for name, values in arrays.items():
        if values.shape != (rows,):
            raise ValueError(
                f"{name} must have one value for each of the {rows} rows of X, got shape "
                f"{values.shape}"
            )
    return arrays


def names_of_uses(
    columns: Collection[str], given: Mapping[str, Any], known: Mapping[str, Any]
) -> dict[str, Any]:
    """Return names, distinct from all feature names, for the columns of qid, label and so on.

    Args:
        columns: the names of the features.
        given: the arguments of `fit` by their uses. The name of a pandas or polars series becomes
            the name of its column; "_" is appended if the name is already taken.
        known: the names of the previous training run by their uses, which stay; {} for the first.

    >>> given = {"qid": pd.Series([1, 1], name="query")}
    >>> names_of_uses(["y", "price"], given, {})  # doctest: +ELLIPSIS
    {'qid': 'query', 'label': 'y_', 'weight': 'sample_weight', ...}
    """
    names = {**known}
    uses = {"qid": "qid", "label": "y", "weight": "sample_weight"}
    uses |= {"position": "position", "protected": "protected"}
    for use, default in uses.items():
        if use in known:
            continue
        own = getattr(given.get(use), "name", None)
        name = own if isinstance(own, str) and own else default
        while name in columns or name in names.values():
            name += "_"
        names[use] = name
    return names


def one_evaluation(given: Mapping[str, Any]) -> tuple[Any, Any, Any, Any] | None:
    """Return X, y, qid and group of the validation lists that `fit` got; None if there are none.

    Raises:
        ValueError: a validation argument is not a list of one value; or `eval_qid` or `eval_group`
            is given, but not `eval_set`.
    """
    names = "eval_set", "eval_qid", "eval_group"
    present = {name: given[name] for name in names if given[name] is not None}
    if "eval_set" not in present:
        for name in present:
            raise ValueError(f"eval_set must be given if {name} is given")
        return None
    if isinstance(present["eval_set"], tuple) and len(present["eval_set"]) == 2:
        present["eval_set"] = [present["eval_set"]]  # LightGBM also takes the pair without a list
    for name, value in present.items():
        if not isinstance(value, list | tuple) or len(value) != 1:
            several = isinstance(value, list | tuple)
            size = f"{len(value)} entries" if several else f"a {type(value).__name__}"
            raise ValueError(
                f"{name} must be a list of one value, got {size}"
                + " (give only the validation lists that training stops on)" * several
            )
    [pair], [qid], [group] = (present.get(name, [None]) for name in names)
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise ValueError(f"eval_set must hold one pair (X, y), got a {type(pair).__name__}")
    return *pair, qid, group
