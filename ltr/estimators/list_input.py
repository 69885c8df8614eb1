"""Read lists to train on. Unlike a table X, lists contain the labels, qids and weights."""

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import validate_data

from ltr.datasets import ListDataset, Schema
from ltr.datasets.list_tables import holds_lists
from ltr.datasets.prepare import Prepared, prepare
from ltr.estimators import tables as tables
from ltr.losses import RankingLoss


def is_lists(X: Any) -> bool:
    """Return whether X is lists or a path, and not a table or an array."""
    return isinstance(X, str | PathLike | ListDataset | Prepared)


def read_lists(
    X: Any,
    beside: Mapping[str, Any],
    loss: RankingLoss | None,
    known: Schema | None,
    validation: float = 0,
) -> Prepared:
    """Return lists to train on, with validation lists if there are any.

    Args:
        X: see `NeuralRanker.fit`.
        beside: the other arguments of `fit`. All must be None, except `eval_set`, which may be a
            list of one data set to validate on; the data set must be lists, too.
        loss: the loss, whose side inputs the lists must have; None for the default loss.
        known: the schema of the previous training run, which the columns must match; None for the
            first run.
        validation: the fraction of the queries to hold out if there are no validation lists.

    Raises:
        ValueError: another argument is given; `eval_set` is not a list of one data set; a side
            input is missing; the columns do not match; or lists in memory have categories, but no
            schema.
    """
    eval_set = beside["eval_set"]
    for name, value in beside.items():
        if value is not None and name != "eval_set":
            raise ValueError(f"{name} must be None if X is lists, which bring their own")
    found = _prepared("X", X, known, validation if eval_set is None else 0)
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
    return replace(found, val=val)


def set_columns(estimator: Any, schema: Schema) -> None:
    """Set an estimator's columns to those of lists, so that it accepts tables with these columns.

    If the columns are called 1, 2, 3 and so on, as in LETOR text, they count as columns without
    names, like those of an array.
    """
    names = [*schema.steps]
    named = names != [str(i + 1) for i in range(len(names))]
    estimator.columns_ = names
    empty: Any = pd.DataFrame(columns=names) if named else np.empty((0, len(names)))
    validate_data(estimator, empty, reset=True, skip_check_array=True)


def _prepared(name: str, X: Any, known: Schema | None, validation: float = 0) -> Prepared:
    if isinstance(X, Prepared) and known is not None and (found := known.difference(X.schema)):
        raise ValueError(f"{name} must have the schema of the training, got {found}")
    if isinstance(X, str | PathLike) and not holds_lists(X):
        raise ValueError(
            f"{name} must be lists on disk or LETOR text if it is a path, got {X}: read the table, "
            "or make lists of it with `ltr convert`"
        )
    return prepare(X, {}, validation=validation, few="none", schema=known)
