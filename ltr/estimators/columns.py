"""The choice of the columns that a ranker is trained on, by shuffling them on validation lists."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ltr.datasets import ListDataset, Schema
from ltr.estimators.scoring import values_of_lists
from ltr.models import RankingModel

_CLEAR = 2.0
"""A column that costs more standard errors than this is kept in any case."""

_JOINT = 1.0
"""Together, the dropped columns may cost this many standard errors."""

_RUNS = 20
"""This many numbers of columns are tried together."""

_SHUFFLES = 3
"""Columns are shuffled together this many times: one shuffle keeps useless columns by chance."""


@dataclass(frozen=True)
class Column:
    """Why a column is kept or dropped.

    Attributes:
        kept: whether the networks get it.
        cost: the loss of the metric on the validation lists if only this column is shuffled; None
            if it was not measured.
        error: the standard error of `cost`, over the lists.
        reason: in words.
    """

    kept: bool
    cost: float | None
    error: float | None
    reason: str


def all_kept(schema: Schema, reason: str) -> dict[str, Column]:
    """Return that each column is kept, for one reason."""
    return {name: Column(True, None, None, reason) for name in column_names(schema)}


def column_names(schema: Schema) -> list[str]:
    """Return the names of the columns that a model is trained on."""
    return [*schema.features, *schema.categories]


def choose_columns(
    model: RankingModel,
    lists: ListDataset,
    schema: Schema,
    metric: str,
    device: str,
    seed: int,
) -> dict[str, Column]:
    """Return which columns a trained model needs, each with the reason.

    Each column is shuffled among all documents of the validation lists. The cost of a column
    is the loss of the metric. A column that costs more than two standard errors is kept. The others
    may still matter together. So they are ordered by cost / standard error, and shuffled
    together: all of them, then the first 95 %, 90 %, ... of them. The most columns that together
    cost at most one standard error are dropped.

    If nothing is left, all are kept, with a warning: the model has not learned enough to choose by.

    Cost: the lists are scored once for each column, and then at most 60 times more.

    Args:
        model: trained on all columns.
        lists: to validate on.
        schema: the columns of the lists.
        metric: its name.
        device: where to compute.
        seed: seed of the shuffles.
    """
    names = column_names(schema)
    shuffled = _Shuffled(model, lists, schema, metric, device, seed)
    costs = {name: shuffled.cost([name]) for name in names}
    found = {}
    weak = []
    for name, (cost, error) in costs.items():
        if cost > _CLEAR * error:
            why = f"kept: shuffling it costs {cost:.4f} +- {error:.4f} of {metric}"
            found[name] = Column(True, cost, error, why)
        else:
            weak.append(name)
    weak.sort(key=lambda name: _ratio(*costs[name]))
    unused = sum(costs[name][1] == 0 for name in weak)
    dropped, joint = _longest(shuffled, weak, unused)
    if len(dropped) == len(names):
        warnings.warn(
            f"all columns are kept, because none of them alone changes {metric} on the "
            f"validation lists: the loss from shuffling all {len(names)} is {joint[0]:.4f} "
            f"+- {joint[1]:.4f}",
            stacklevel=5,
        )
        return all_kept(schema, "kept: no column costs more than chance when it is shuffled")
    for position, name in enumerate(weak):
        cost, error = costs[name]
        if position < len(dropped):
            together = f"with {len(dropped) - 1} others" if len(dropped) > 1 else "alone"
            why = f"dropped: shuffled {together} it costs {joint[0]:.4f} +- {joint[1]:.4f} of "
        else:
            why = f"kept: alone it costs {cost:.4f} +- {error:.4f}, but more with others, of "
        found[name] = Column(position >= len(dropped), cost, error, why + metric)
    return {name: found[name] for name in names}


def _chosen(positions: Mapping[str, range], names: Iterable[str]) -> np.ndarray:
    return np.array([position for name in names for position in positions[name]], dtype=np.int64)


def _longest(
    shuffled: "_Shuffled", weak: Sequence[str], unused: int
) -> tuple[Sequence[str], tuple[float, float]]:
    """Return the longest run of the first columns that costs little together, and its cost.

    The first columns are those that the model does not use, `unused` of them.
    """
    lengths = {unused} | {-(-len(weak) * run // _RUNS) for run in range(1, _RUNS + 1)}
    for length in sorted(lengths - {0}, reverse=True):
        cost, error = shuffled.cost(weak[:length], _SHUFFLES)
        if cost <= _JOINT * error:
            return weak[:length], (cost, error)
    return (), (0.0, 0.0)


def _ratio(cost: float, error: float) -> float:
    """Return the cost in standard errors; a column that changes nothing comes first."""
    return cost / error if error > 0 else -np.inf


class _Shuffled:
    """The lists, to be scored with some columns shuffled."""

    def __init__(
        self,
        model: RankingModel,
        lists: ListDataset,
        schema: Schema,
        metric: str,
        device: str,
        seed: int,
    ) -> None:
        self.model, self.device = model, device
        self.lists, self.metric = lists, metric
        self.groups = np.repeat(np.arange(len(lists)), lists.lengths)
        self.draw = np.random.default_rng(seed)
        self.features = _positions(schema.features)
        self.categories = _positions(dict.fromkeys(schema.categories, 1))
        self.whole = self._values(self.lists)

    def cost(self, names: Sequence[str], shuffles: int = 1) -> tuple[float, float]:
        """Return the loss from shuffling columns together: the mean over the lists, and its error.

        All columns are shuffled by the same permutation, so this measures what they tell together.
        """
        lost = self.whole - np.mean([self._shuffled_values(names) for _ in range(shuffles)], axis=0)
        if len(lost) < 2:
            return float(lost.mean()), float("inf")
        return float(lost.mean()), float(lost.std(ddof=1) / len(lost) ** 0.5)

    def _shuffled_values(self, names: Sequence[str]) -> np.ndarray:
        order = self.draw.permutation(len(self.lists.features))
        shuffled: dict[str, np.ndarray] = {}
        for attribute, positions in (("features", self.features), ("categories", self.categories)):
            chosen = _chosen(positions, [name for name in names if name in positions])
            if len(chosen):
                array = shuffled[attribute] = getattr(self.lists, attribute).copy()
                array[:, chosen] = array[:, chosen][order]
        return self._values(self.lists.with_arrays(**shuffled))

    def _values(self, lists: ListDataset) -> np.ndarray:
        scores = self.model.score(lists, device=self.device)
        values = values_of_lists(scores, lists.labels, self.groups, metric=self.metric)
        return values.astype(np.float64)


def _positions(widths: Mapping[str, int]) -> dict[str, range]:
    """Return the positions of each column's numbers."""
    found, start = {}, 0
    for name, width in widths.items():
        found[name] = range(start, start + width)
        start += width
    return found
