"""Read what an estimator is trained on: lists, or a table X with labels, qids and weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.datasets import ListDataset, Schema
from ltr.datasets.column_steps import kind_of
from ltr.datasets.list_tables import holds_lists
from ltr.datasets.prepare import Prepared, prepare_varied, validated
from ltr.estimators import tables as tables
from ltr.estimators.habits import named_categories

Side = Callable[[Mapping[str, Any], int], dict[str, np.ndarray]]

_ARGUMENTS = (
    *("y", "qid", "group", "sample_weight", "position", "protected"),
    *("eval_set", "eval_qid", "eval_group", "categorical_feature"),
)
"""The arguments of `fit` beside X."""

_CATEGORIES = ("number", "string", "boolean", "missing")
"""The kinds of columns that `categorical_feature` may name."""


def is_lists(X: Any) -> bool:
    """Return whether X is lists or a path, and not a table or an array."""
    return isinstance(X, str | PathLike | ListDataset | Prepared)


def refuse_beside(beside: Mapping[str, Any]) -> None:
    """Raise a `ValueError` if an argument is given beside lists or a path, which bring their own.

    >>> refuse_beside({"y": None, "qid": [1]})
    Traceback (most recent call last):
    ValueError: qid must be None if X is lists, which bring their own
    """
    for name, value in beside.items():
        if value is not None:
            raise ValueError(f"{name} must be None if X is lists, which bring their own")


def read_data(
    estimator: Any,
    X: Any,
    given: Mapping[str, Any],
    side: Side,
    *,
    validation: float,
    max_levels: Callable[[int], int],
    known: Schema | None = None,
    exact: bool = False,
) -> tuple[Prepared, str]:
    """Return what an estimator is trained on, and which validation lists were held out, in words.

    Args:
        estimator: see `tables.as_table`. A new training run sets the attributes of its columns.
        X: see `NeuralRanker.fit`.
        given: the other arguments of `fit`; those that are missing count as None.
        side: a function that returns the columns of side inputs; see `tables.side_columns`.
        validation: the fraction of the queries to hold out if there are no validation lists.
        max_levels: see `prepare`.
        known: the schema of the previous training run, which the columns must match; None for the
            first run.
        exact: see `prepare`.

    Raises:
        ValueError: the arguments do not fit together, or `prepare` raises this error.
    """
    given = {**dict.fromkeys(_ARGUMENTS), **given}
    own = given["eval_set"] is None and getattr(X, "val", None) is None
    if is_lists(X):
        labels = getattr(getattr(estimator, "loss", None), "names", ())
        data = read_lists(X, given, side, known, validation, labels)
        if known is None:
            # LETOR text has the columns 1, 2, 3 and so on: no names, like those of an array.
            names = [*data.schema.steps]
            numbers = [str(i + 1) for i in range(len(names))]
            tables.set_columns(estimator, names, named=names != numbers)
    else:
        options: dict[str, Any] = {"max_levels": max_levels, "exact": exact}
        data = _read_rows(estimator, X, given, side, known, validation=validation, **options)
    held_out = data.val if own else None
    data = _with_relative_weights(data, held_out)
    if held_out is None:
        return data, ""
    queries = len(data.train) + len(held_out)
    return data, f"{len(held_out)} of {queries} queries held out for it, by a hash of the qid"


def read_lists(
    X: Any,
    beside: Mapping[str, Any],
    side: Side,
    known: Schema | None,
    validation: float = 0,
    labels: Sequence[str] = (),
) -> Prepared:
    """Return lists to train on, with validation lists if there are any.

    Args:
        X: see `NeuralRanker.fit`.
        beside: the other arguments of `fit`. All must be None, except `eval_set`, which may be a
            list of one data set to validate on; the data set must be lists, too.
        side: see `read_data`.
        known: the schema of the previous training run, which the columns must match; None for the
            first run.
        validation: the fraction of the queries to hold out if there are no validation lists.
        labels: the names of several labels of lists that have no schema. Default: y0, y1 and so on.

    Raises:
        ValueError: another argument is given; `eval_set` is not a list of one data set; a side
            input is missing; the columns or the labels do not match; or lists in memory have
            categories, but no schema.
    """
    eval_set = beside["eval_set"]
    refuse_beside({name: value for name, value in beside.items() if name != "eval_set"})
    prepared = _prepared("X", X, known, validation if eval_set is None else 0)
    named = isinstance(X, Prepared) or prepared.train.schema is not None
    if not named and known is None and 1 < len(labels) == len(prepared.schema.labels):
        prepared = replace(prepared, schema=replace(prepared.schema, label=(*labels,)))
    _check_labels("X", prepared, known or prepared.schema)
    inputs = {"position": prepared.train.position, "protected": prepared.train.protected}
    side(inputs, int(prepared.train.offsets[-1]))  # it checks them
    if eval_set is None:
        return prepared
    if not isinstance(eval_set, list | tuple) or len(eval_set) != 1 or not is_lists(eval_set[0]):
        raise ValueError(
            "eval_set must be a list of one data set of lists if X is lists, got "
            f"a {type(eval_set).__name__}"
        )
    evaluation = _prepared("eval_set", eval_set[0], prepared.schema)
    _check_labels("eval_set", evaluation, prepared.schema)
    return replace(prepared, val=evaluation.train)


def _check_labels(name: str, data: Prepared, schema: Schema) -> None:
    """Raise a `ValueError` if lists do not have the labels of a schema, in its order.

    Args:
        name: what errors call the lists.
        data: the lists. One label may have any name.
        schema: the schema of the training.
    """
    lists = data.train
    own = (lists.schema or data.schema).labels
    count = sum(lists.between(0, 0).labels.shape[1:]) or 1
    if count != len(own):
        own = tuple(f"y{i}" for i in range(count))
    if max(count, len(schema.labels)) > 1 and own != schema.labels:
        got = ", ".join(own) if count > 1 else "one label"
        raise ValueError(
            f"{name} must have the labels {', '.join(schema.labels)} in this order, got {got}"
        )


def _read_rows(
    estimator: Any,
    X: Any,
    given: Mapping[str, Any],
    side: Side,
    known: Schema | None,
    *,
    validation: float,
    **options: Any,
) -> Prepared:
    """Return the lists of a table or an array, with validation lists if there are any.

    For the arguments, see `read_data`; `options` are further arguments of `prepare`.
    """
    evaluation = tables.one_evaluation(given)
    frame = tables.as_table(estimator, X, given["y"], reset=known is None)
    categories = named_categories(given["categorical_feature"], frame.column_names)
    if known is None:
        frame = frame.joined({x: _as_category(frame.column(x)) for x in categories})
    names = tables.query_names(frame.num_rows, given["qid"], given["group"])
    inputs = {name: given[name] for name in ("position", "protected")}
    loss = getattr(estimator, "loss", None)
    labels = tables.label_columns(given["y"], frame.num_rows, frame.column_names, loss)
    if known is not None and len(known.labels) > 1 and not labels:
        wanted = ", ".join(known.labels)
        raise ValueError(f"y must have the labels of the training, {wanted}, got one label")
    columns: dict[str, Any] = {"qid": names}
    if not labels:
        columns["label"] = tables.as_labels(given["y"], frame.num_rows)
    columns |= side(inputs, frame.num_rows)
    of_lists = False
    if given["sample_weight"] is not None:
        lists = tables.list_groups(names)
        columns["weight"], of_lists = tables.row_weights(given["sample_weight"], *lists)
    before = {} if known is None else {"qid": known.qid, "label": known.label}
    taken = [*frame.column_names, *labels]
    named = tables.names_of_uses(taken, {"label": given["y"], **given}, before)
    uses: dict[str, Any] = {use: name if use in columns else None for use, name in named.items()}
    if labels:
        uses["label"] = (*labels,)
    training_only = {use: uses[use] for use in ("weight", "position", "protected")}
    prepared = prepare_varied(
        frame.joined({**{str(named[use]): x for use, x in columns.items()}, **labels}),
        uses,
        validation=validation if evaluation is None else 0,
        schema=None if known is None else replace(known, **training_only),
        **options,
    )
    prepared = replace(prepared, list_weights=of_lists)
    if others := [name for name in categories if name not in prepared.schema.categories]:
        raise ValueError(
            "categorical_feature must name columns of numbers, text or booleans (with warm_start, "
            f"those that are categories already), got {others[0]!r}"
        )
    if evaluation is None:
        return prepared
    X, y, qid, group = evaluation
    frame = tables.as_table(estimator, X)
    names = tables.query_names(frame.num_rows, qid, group, "eval_")
    labels = tables.label_columns(y, frame.num_rows, frame.column_names, loss)
    if not labels and len(prepared.schema.labels) == 1:
        labels = {prepared.schema.labels[0]: tables.as_labels(y, frame.num_rows)}
    if {*labels} != {*prepared.schema.labels}:
        wanted, got = ", ".join(prepared.schema.labels), ", ".join(labels) or "one label"
        raise ValueError(f"eval_set must have the labels of y, {wanted}, got {got}")
    return validated(prepared, frame.joined({prepared.schema.qid: names, **labels}))


def _with_relative_weights(data: Prepared, held_out: ListDataset | None) -> Prepared:
    """Return the data with the weights of the training lists divided by the mean of all weights.

    Args:
        data: the data.
        held_out: the validation lists that were held out of the data, whose weights count in the
            mean; or None.

    Raises:
        ValueError: a weight is negative or not finite, or all weights are 0 in float32.
    """
    if data.train.weight is None or data.divided:
        return data
    weights = []
    for lists in (data.train, held_out):
        if lists is not None and (weight := lists.weight) is not None:
            weights.append(weight[lists.offsets[:-1]] if data.list_weights else weight)
    every = np.concatenate(weights)
    for weight in every[~(np.isfinite(every) & (every >= 0))][:1]:
        raise ValueError(f"weights must be finite and >= 0, got {weight}")
    if (mean := float(every.mean(dtype=np.float64))) == 0:
        raise ValueError("weights must be > 0 in float32 in some row, got 0 in all rows")
    return replace(data, train=data.train.divide_weights(mean), divided=True)


def _as_category(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of numbers, text or booleans as an Arrow dictionary, which is a category.

    Columns of other types are returned unchanged.
    """
    values = column.combine_chunks()
    plain = not pa.types.is_dictionary(values.type) and kind_of(values.type) in _CATEGORIES
    return values.dictionary_encode() if plain else values


def _prepared(name: str, X: Any, known: Schema | None, validation: float = 0) -> Prepared:
    if isinstance(X, Prepared) and known is not None and (difference := known.difference(X.schema)):
        raise ValueError(f"{name} must have the schema of the training, got {difference}")
    if isinstance(X, str | PathLike) and not holds_lists(X):
        raise ValueError(
            f"{name} must be lists on disk or LETOR text if it is a path, got {X}: read the table, "
            "or make lists of it with `ltr convert`"
        )
    return prepare_varied(X, {}, validation=validation, schema=known)
