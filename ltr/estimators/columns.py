"""Choose the columns to train a ranker on, by shuffling columns on the validation lists."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ltr.datasets import ListDataset, Schema
from ltr.estimators.scoring import mean_gain, values_of_dataset
from ltr.metrics.named import ranking_measure
from ltr.models import RankingModel
from ltr.names import plural

_CLEAR = 2.0
"""A column is always kept if shuffling it costs more than this many standard errors."""

_JOINT = 1.0
"""Shuffling all dropped columns together may cost at most this many standard errors."""

_RUNS = 20
"""How many sets of weak columns are shuffled: all of them, 19/20 of them, 18/20, and so on.

A column is weak if shuffling it alone costs at most `_CLEAR` standard errors.
"""

_SHUFFLES = 3
"""How many times each set is shuffled: after only one shuffle, useless columns may look useful."""


@dataclass(frozen=True)
class Column:
    """Why a column is kept or dropped.

    Attributes:
        kept: whether the networks get the column.
        cost: the decrease of the metric on the validation lists if only this column is shuffled;
            None if it was not measured.
        error: the standard error of `cost`, over the lists; None if `cost` is None.
        reason: why the column is kept or dropped, in words.
    """

    kept: bool
    cost: float | None
    error: float | None
    reason: str


def all_kept(schema: Schema, reason: str) -> dict[str, Column]:
    """Return a `Column` for each column of the schema: all are kept, for the given reason."""
    return {name: Column(True, None, None, reason) for name in column_names(schema)}


def column_names(schema: Schema) -> list[str]:
    """Return the names of the columns that a model is trained on."""
    return [*schema.features, *schema.categories]


def choose_columns(
    model: RankingModel,
    lists: ListDataset,
    schema: Schema,
    metric: Any,
    device: str,
    seed: int,
) -> dict[str, Column]:
    """Return for each column whether a trained model needs it, and why.

    Each column is shuffled among all documents of the validation lists. The decrease of the metric
    is the cost of the column. A column that costs more than two standard errors is kept. The other
    columns may still matter together. So they are sorted by cost / standard error, and sets of them
    are shuffled: all of them, the first 95 %, the first 90 % and so on, and those that change
    nothing alone. The largest of these sets that costs at most one standard error is dropped.

    If no column would be left, all are kept, with a warning: the model has learned too little.

    Cost: the lists are scored once for each column, and at most 64 times more.

    Args:
        model: the model, trained on all columns.
        lists: the validation lists.
        schema: the schema of the lists.
        metric: the name of the metric, or a function; see `NeuralRanker`.
        device: the device to compute on.
        seed: the seed of the shuffles.
    """
    names, title = column_names(schema), ranking_measure(metric).title
    draw = np.random.default_rng(seed)

    def values(lists: ListDataset) -> np.ndarray:
        return values_of_dataset(model.score(lists, device=device), lists, metric)

    whole = values(lists)

    def cost_of(names: Sequence[str], shuffles: int = 1) -> tuple[float, float]:
        """Return the cost of columns that are shuffled by the same permutation, with its error."""
        tried = [values(_shuffled(lists, schema, names, draw)) for _ in range(shuffles)]
        return mean_gain(whole, np.mean(tried, axis=0))

    costs = {name: cost_of([name]) for name in names}
    columns = {}
    weak = []
    for name, (cost, error) in costs.items():
        if cost > _CLEAR * error:
            why = f"kept: shuffling it costs {cost:.4f} +- {error:.4f} of {title}"
            columns[name] = Column(True, cost, error, why)
        else:
            weak.append(name)
    weak.sort(key=lambda name: _ratio(*costs[name]))
    unused = sum(costs[name][1] == 0 for name in weak)
    dropped, joint = _longest(cost_of, weak, unused)
    if len(dropped) == len(names):
        warnings.warn(
            f"all columns are kept, because none of them alone changes {title} on the "
            f"validation lists: the loss from shuffling all {len(names)} is {joint[0]:.4f} "
            f"+- {joint[1]:.4f}",
            stacklevel=5,
        )
        return all_kept(schema, "kept: no column costs more than chance when it is shuffled")
    for position, name in enumerate(weak):
        cost, error = costs[name]
        if position < len(dropped):
            others = len(dropped) - 1
            together = f"with {others} {plural(others, 'other')}" if others else "alone"
            why = f"dropped: shuffled {together} it costs {joint[0]:.4f} +- {joint[1]:.4f} of "
        else:
            why = f"kept: alone it costs {cost:.4f} +- {error:.4f}, but more with others, of "
        columns[name] = Column(position >= len(dropped), cost, error, why + title)
    return {name: columns[name] for name in names}


def _longest(
    cost_of: Callable[[Sequence[str], int], tuple[float, float]], weak: Sequence[str], unused: int
) -> tuple[Sequence[str], tuple[float, float]]:
    """Return the largest tried set of weak columns whose joint cost is small, and this cost.

    Args:
        cost_of: returns the cost of a set that is shuffled a number of times.
        weak: the weak columns, in ascending order of cost / standard error.
        unused: the number of weak columns that change nothing if shuffled; they come first.

    Returns:
        The columns, none if every set costs more, and their joint cost with its standard error.
    """
    lengths = {unused} | {-(-len(weak) * run // _RUNS) for run in range(1, _RUNS + 1)}
    for length in sorted(lengths - {0}, reverse=True):
        cost, error = cost_of(weak[:length], _SHUFFLES)
        if cost <= _JOINT * error:
            return weak[:length], (cost, error)
    return (), (0.0, 0.0)


def _ratio(cost: float, error: float) -> float:
    """Return cost / standard error; -inf for a column that changes nothing, to sort it first."""
    return cost / error if error > 0 else -np.inf


def _shuffled(
    lists: ListDataset, schema: Schema, names: Sequence[str], draw: np.random.Generator
) -> ListDataset:
    """Return lists with some columns shuffled among all documents, by one permutation."""
    order = draw.permutation(len(lists.features))
    widths = schema.features.items()
    of_features = [name for name, width in widths for _ in range(width)]
    arrays: dict[str, np.ndarray] = {}
    for kind, owners in (("features", of_features), ("categories", [*schema.categories])):
        if chosen := [i for i, name in enumerate(owners) if name in names]:
            arrays[kind] = getattr(lists, kind).copy()
            arrays[kind][:, chosen] = arrays[kind][order[:, None], chosen]
    return lists.with_arrays(**arrays)
