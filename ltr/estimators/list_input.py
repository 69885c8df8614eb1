"""Lists to train on, which bring what a table needs as further arguments of `fit`."""

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import validate_data

from ltr.datasets import ListDataset, Schema
from ltr.datasets.list_tables import holds_lists, letor_schema, load_lists, with_schema
from ltr.datasets.prepare import Prepared
from ltr.datasets.splits import hold_out
from ltr.estimators import tables as tables
from ltr.losses import RankingLoss


def is_lists(X: Any) -> bool:
    """Return whether X is lists, or the path of lists, and not a table or an array."""
    return isinstance(X, str | PathLike | ListDataset | Prepared)


def read_lists(
    X: Any,
    beside: Mapping[str, Any],
    loss: RankingLoss | None,
    known: Schema | None,
) -> Prepared:
    """Return lists to train on, with validation lists if there are any.

    Args:
        X: see `NeuralRanker.fit`.
        beside: the other arguments of `fit`, which must be None, except `eval_set`: a list of
            one data set to validate on, in a form of `X`.
        loss: whose side inputs the lists must have.
        known: the schema of an earlier training, to match the columns with.

    Raises:
        ValueError: another argument is given; a side input is missing; or lists in memory have
            categories, but no schema.
    """
    eval_set = beside["eval_set"]
    for name, value in beside.items():
        if value is not None and name != "eval_set":
            raise ValueError(f"{name} must be None if X is lists, which bring their own")
    found = _prepared("X", X, known)
    if loss is not None:
        side = {"position": found.train.position, "protected": found.train.protected}
        tables.side_columns(loss, side, int(found.train.offsets[-1]))
    if eval_set is None:
        return found
    if not isinstance(eval_set, list | tuple) or len(eval_set) != 1 or not is_lists(eval_set[0]):
        raise ValueError(
            "eval_set must be a list of one data set of lists if X is lists, got "
            f"a {type(eval_set).__name__}"
        )
    val = _prepared("eval_set", eval_set[0], found.schema).train
    return Prepared(found.schema, found.train, val, found.notice)


def set_columns(estimator: Any, schema: Schema) -> None:
    """Let an estimator take tables with the columns of lists.

    Columns that are called 1, 2, 3 and so on, as in LETOR text, count as columns of an array.
    """
    names = [*schema.steps]
    named = names != [str(i + 1) for i in range(len(names))]
    estimator.columns_ = names
    empty: Any = pd.DataFrame(columns=names) if named else np.empty((0, len(names)))
    validate_data(estimator, empty, reset=True, skip_check_array=True)


def hold_out_lists(data: Prepared, validation: float) -> Prepared:
    """Return the lists with some of them held out, by the rule of `prepare` with `few="none"`."""
    held = hold_out(data.train.qids, validation, varied=data.train.varied())
    if held is None:
        return data
    train, val = (data.train.select(np.flatnonzero(side)) for side in (~held, held))
    return Prepared(data.schema, train, val, data.notice)


def _prepared(name: str, X: Any, known: Schema | None) -> Prepared:
    if isinstance(X, Prepared):
        if known is not None and (found := known.difference(X.schema)):
            raise ValueError(f"{name} must have the schema of the training, got {found}")
        return X
    if isinstance(X, str | PathLike) and not holds_lists(X):
        raise ValueError(
            f"{name} must be lists on disk or LETOR text if it is a path, got {X}: read the table, "
            "or make lists of it with `ltr convert`"
        )
    lists = load_lists(X) if isinstance(X, str | PathLike) else X
    schema = None if lists.source is None else lists.source.schema
    if schema is None and lists.num_categories:
        raise ValueError(f"{name} must be the result of `prepare`: its categories need a schema")
    if known is not None:
        return Prepared(known, with_schema(lists, known), None)
    return Prepared(schema or letor_schema(lists), lists, None)
