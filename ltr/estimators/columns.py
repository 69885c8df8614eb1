"""Choose the columns to train a ranker on, by shuffling columns on the validation lists."""

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ltr.datasets import ListDataset, Schema
from ltr.datasets.coded import Coded
from ltr.estimators.scoring import values_of_lists
from ltr.metrics.named import ranking_measure
from ltr.models import RankingModel

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

_TOGETHER = 64
"""The documents are transformed once more for this many columns that are shuffled alone."""


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

    Cost: the lists are scored once for each column, and at most 64 times more. If each output of
    the transform depends on one column (see `FeatureTransform.source_columns`), the lists are
    transformed once for 32 columns; otherwise once for each column.

    Args:
        model: the model, trained on all columns.
        lists: the validation lists.
        schema: the schema of the lists.
        metric: the name of the metric, or a function; see `NeuralRanker`.
        device: the device to compute on.
        seed: the seed of the shuffles.
    """
    names, title = column_names(schema), ranking_measure(metric).title
    shuffled = _Shuffled(model, lists, schema, metric, device, seed)
    costs = shuffled.costs_alone(names)
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
    dropped, joint = _longest(shuffled, weak, unused)
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
            together = f"with {len(dropped) - 1} others" if len(dropped) > 1 else "alone"
            why = f"dropped: shuffled {together} it costs {joint[0]:.4f} +- {joint[1]:.4f} of "
        else:
            why = f"kept: alone it costs {cost:.4f} +- {error:.4f}, but more with others, of "
        columns[name] = Column(position >= len(dropped), cost, error, why + title)
    return {name: columns[name] for name in names}


def _longest(
    shuffled: "_Shuffled", weak: Sequence[str], unused: int
) -> tuple[Sequence[str], tuple[float, float]]:
    """Return the largest tried set of weak columns whose joint cost is small, and this cost.

    Args:
        shuffled: the lists.
        weak: the weak columns, in ascending order of cost / standard error.
        unused: the number of weak columns that change nothing if shuffled; they come first.

    Returns:
        The columns, none if every set costs more, and their joint cost with its standard error.
    """
    lengths = {unused} | {-(-len(weak) * run // _RUNS) for run in range(1, _RUNS + 1)}
    for length in sorted(lengths - {0}, reverse=True):
        cost, error = shuffled.cost(weak[:length], _SHUFFLES)
        if cost <= _JOINT * error:
            return weak[:length], (cost, error)
    return (), (0.0, 0.0)


def _ratio(cost: float, error: float) -> float:
    """Return cost / standard error; -inf for a column that changes nothing, to sort it first."""
    return cost / error if error > 0 else -np.inf


class _Shuffled:
    """Validation lists that a model scores with some columns shuffled."""

    def __init__(
        self,
        model: RankingModel,
        lists: ListDataset,
        schema: Schema,
        metric: Any,
        device: str,
        seed: int,
    ) -> None:
        self.model, self.device = copy.deepcopy(model).to(device).eval(), device
        self.scorer = RankingModel(self.model.scorer)
        self.lists, self.metric = lists.in_memory(), metric
        self.relevance = lists.relevance
        self.groups = np.repeat(np.arange(len(lists)), lists.lengths)
        self.draw = np.random.default_rng(seed)
        self.columns = column_positions({**schema.features, **dict.fromkeys(schema.categories, 1)})
        width = lists.features.shape[1]
        self.categories = width, width + len(schema.categories)
        self.sources = source_columns(model)
        self.whole = self._values(self.model.score(lists, device=device))

    def cost(self, names: Sequence[str], shuffles: int = 1) -> tuple[float, float]:
        """Return the mean decrease of the metric if columns are shuffled, and its standard error.

        All columns are shuffled by the same permutation, so the decrease measures their joint
        information.
        """
        values = []
        for _ in range(shuffles):
            lists = self._shuffled(dict.fromkeys(names, self._order()))
            values.append(self._values(self.model.score(lists, device=self.device)))
        return self._lost(np.mean(values, axis=0))

    def costs_alone(self, names: Sequence[str]) -> dict[str, tuple[float, float]]:
        """Return the `cost` of each column alone.

        If each output of the transform depends on one column, a shuffled column changes only its
        own outputs. So one transform of lists in which each column is shuffled by a permutation of
        its own gives the changed outputs of many columns.
        """
        if self.sources is None:
            return {name: self.cost([name]) for name in names}
        costs = {}
        for start in range(0, len(names), _TOGETHER):
            block = names[start : start + _TOGETHER]
            scores = self._scores_alone(block)
            costs |= {name: self._lost(self._values(x)) for name, x in scores.items()}
        return costs

    def _scores_alone(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the scores (documents,) if each column alone is shuffled."""
        shuffled = self._shuffled({name: self._order() for name in names})
        scores: dict[str, list[np.ndarray]] = {name: [] for name in names}
        pairs = zip(self._batches(self.lists), self._batches(shuffled), strict=True)
        with torch.inference_mode():
            for batch, shuffled_batch in pairs:
                whole, changed = (
                    self.model.scorer_inputs(**batch),
                    self.model.scorer_inputs(**shuffled_batch),
                )
                mixed = _copy(whole)
                for name in names:
                    self._replace(mixed, changed, name)
                    scored = self.scorer(mixed, lengths=batch.get("lengths"))
                    scores[name].append(scored.float().cpu().numpy())
                    self._replace(mixed, whole, name)
        return {name: np.concatenate(blocks) for name, blocks in scores.items()}

    def _batches(self, lists: ListDataset) -> Any:
        return self.model.batches(lists, self.device)

    def _replace(self, outputs: Tensor | Coded, others: Tensor | Coded, name: str) -> None:
        """Replace the outputs that depend on a column by others, in place."""
        assert self.sources is not None
        column, tensors = self.columns[name], tensors_of(outputs)
        codes = torch.arange(*self.categories)
        sources = self.sources[: tensors[0].shape[1]], codes
        for tensor, replacement, source in zip(tensors, tensors_of(others), sources, strict=False):
            chosen = (source >= column.start) & (source < column.stop)
            its = chosen.nonzero().squeeze(1).to(tensor.device)
            tensor.index_copy_(1, its, replacement.index_select(1, its))

    def _order(self) -> np.ndarray:
        return self.draw.permutation(len(self.lists.features))

    def _shuffled(self, orders: Mapping[str, np.ndarray]) -> ListDataset:
        """Return the lists with some columns shuffled, each by its own permutation."""
        arrays = {"features": self.lists.features.copy()}
        if self.lists.categories is not None:
            arrays["categories"] = self.lists.categories.copy()
        width = self.categories[0]
        for name, order in orders.items():
            start, stop = self.columns[name].start, self.columns[name].stop
            array = arrays["features"]
            if start >= width:
                array, start, stop = arrays["categories"], start - width, stop - width
            array[:, start:stop] = array[order, start:stop]
        return self.lists.with_arrays(**arrays)

    def _lost(self, values: np.ndarray) -> tuple[float, float]:
        """Return the mean decrease to these values (lists,) and its standard error."""
        lost = self.whole - values
        if len(lost) < 2:
            return float(lost.mean()), float("inf")
        return float(lost.mean()), float(lost.std(ddof=1) / len(lost) ** 0.5)

    def _values(self, scores: np.ndarray) -> np.ndarray:
        """Return the metric of each list, (lists,)."""
        given = scores, self.relevance, self.groups
        return values_of_lists(*given, metric=self.metric).astype(np.float64)


def _copy(outputs: Tensor | Coded) -> Tensor | Coded:
    if isinstance(outputs, Coded):
        return outputs._replace(numbers=outputs.numbers.clone(), codes=outputs.codes.clone())
    return outputs.clone()


def tensors_of(outputs: Tensor | Coded) -> list[Tensor]:
    """Return the tensors of a transform's output: the numbers, and the codes if it has some."""
    return [outputs.numbers, outputs.codes] if isinstance(outputs, Coded) else [outputs]


def source_columns(model: RankingModel) -> Tensor | None:
    """Return the column of each output of the transform; None if some depend on several."""
    if model.transform is None:
        return None
    sources = model.transform.source_columns().cpu()
    known = len(sources) == model.transform.out_features and bool((sources >= 0).all())
    return sources if known else None


def column_positions(widths: Mapping[str, int]) -> dict[str, slice]:
    """Return each column's indices among the features, which the categories follow."""
    slices, start = {}, 0
    for name, width in widths.items():
        slices[name] = slice(start, start + width)
        start += width
    return slices
