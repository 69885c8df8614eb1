"""Find metrics by name, such as `ndcg@10`; the names of ir_measures and trec_eval also work."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ltr.config import parameters
from ltr.metrics import functional
from ltr.metrics.core import MetricCore
from ltr.names import nearest

_FUNCTIONS = {"map": "average_precision"}
"""The functions of metrics whose names differ."""

_OTHERS = {
    "alpha_ndcg": "its labels have an axis of topics",
    "gmap": "it is no mean over lists, which intervals and tests need",
}

ELSEWHERE = {
    "11pt_avg": "interpolated_precision",
    "ap": "map",
    "gm_map": "gmap",
    "iprec": "interpolated_precision",
    "iprec_at_recall": "interpolated_precision",
    "p": "precision",
    "r": "recall",
    "recip_rank": "mrr",
    "rprec": "r_precision",
    "rr": "mrr",
    "set_f": "set_f_beta",
    "set_p": "set_precision",
    "setf": "set_f_beta",
    "setp": "set_precision",
    "setr": "set_recall",
    "success": "hit_rate",
}
"""Maps names in ir_measures and trec_eval, in lower case, to the names of the metrics here."""

_OPTIONS = {"cutoff": "top_k", "rel": "relevant_from"}
"""Maps names of parameters in ir_measures to the names of the options here."""


@dataclass(frozen=True)
class Measure:
    """A metric with options and a cutoff, such as `ndcg@10` and `map(relevant_from=2)@10`.

    >>> Measure("ndcg", 10).title
    'ndcg@10'
    >>> Measure("map", 10, (("relevant_from", 2),)).title
    'map(relevant_from=2)@10'
    """

    name: str
    top_k: int | None = None
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def title(self) -> str:
        """The metric's name, its options, `@` and the cutoff."""
        options = ",".join(f"{name}={value}" for name, value in self.options)
        text = f"{self.name}({options})" if options else self.name
        return text if self.top_k is None else f"{text}@{self.top_k}"

    @property
    def takes_cutoff(self) -> bool:
        """Whether the metric takes a cutoff."""
        return "top_k" in parameters(self.kind)

    @property
    def kind(self) -> type[MetricCore]:
        """The metric's arithmetic."""
        return getattr(functional, _FUNCTIONS.get(self.name, self.name)).core

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        lengths: Tensor,
        *,
        largest: float,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the value of each list, (lists,).

        Args:
            scores: (items,), one list after the other.
            labels: (items,).
            lengths: (lists,), the number of items of each list.
            largest: the highest possible label, for ERR and graded RBP.
            weights: (items,); only some metrics take them.

        Raises:
            ValueError: weights are given, but the metric takes none.
        """
        if weights is not None and not self.kind.takes_weights:
            raise ValueError(f"metric must support item weights, got {self.title!r}")
        metric = self.make({"max_label": largest} if largest > 0 else {})
        return metric.measure(scores, labels, lengths=lengths, weights=weights, reduction="none")

    def make(self, given: Mapping[str, Any]) -> MetricCore:
        """Return the metric with its cutoff, its options, and the given options that it takes."""
        known = parameters(self.kind)
        options = {name: value for name, value in given.items() if name in known}
        if "ties" in options and known["ties"].default != "stable":
            del options["ties"]  # the definition of Kendall's tau covers ties
        options |= dict(self.options)
        if self.top_k is not None:
            options["top_k"] = self.top_k
        try:
            return self.kind(**options)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None


def metric_names() -> list[str]:
    """Return the names that `parse_measures` takes; `map` is the name of `average_precision`.

    They are the functions in `ltr.metrics.functional`, except `alpha_ndcg` and `gmap`.

    >>> {"ndcg", "map", "mrr"} <= set(metric_names())
    True
    """
    other = {name for name in functional.__all__ if name not in {*_OTHERS, *_FUNCTIONS.values()}}
    return sorted(other | _FUNCTIONS.keys())


def parse_measures(
    names: Sequence[str], cutoffs: Sequence[int] = (), *, of_runs: bool = False
) -> list[Measure]:
    """Return the metrics with these names.

    Upper and lower case are equivalent. The names of ir_measures and trec_eval also work. They mean
    the metrics of this library, with its options and defaults, such as the beta of F-beta.

    Args:
        names: names with or without a cutoff: `ndcg@10`, `map`; `nDCG@10`, `RR`, `P@5`;
            `ndcg_cut_10`, `recip_rank`, `P_5`. Options are in parentheses: `AP(rel=2)@10` and
            `map(relevant_from=2)@10`, `rbp(p=0.5)`. `IPrec@0.5` means recall 0.5.
        cutoffs: the cutoffs for each metric that takes a cutoff, but whose name has none.
        of_runs: whether the lists are runs, which are truncated. If True, a metric that needs whole
            lists is an error.

    Raises:
        ValueError: a metric or an option is unknown; a metric has a cutoff but takes none, or lacks
            a cutoff that it needs; or a metric needs whole lists, and `of_runs` is True.

    >>> [measure.title for measure in parse_measures(["nDCG@10", "RR", "P_5", "AP(rel=2)"])]
    ['ndcg@10', 'mrr', 'precision@5', 'map(relevant_from=2)']
    """
    several = isinstance(names, Iterable) and not isinstance(names, str)
    if not several or not all(isinstance(name, str) for name in names):
        hint = ""
        if several and any(isinstance(name, MetricCore) or callable(name) for name in names):
            hint = (
                ": for a metric of your own, give its values of the lists to "
                "ltr.metrics.mean_interval or compare"
            )
        raise ValueError(f"metrics must be a list of names, got {names!r}{hint}")
    known = metric_names()
    measures: list[Measure] = []
    for text in names:
        name, options, at, cutoff = _parts(text, known)
        if name in _OTHERS:
            raise ValueError(f"metrics: {name} is not possible here: {_OTHERS[name]}")
        if name not in known:
            raise ValueError(f"metrics: no metric {name!r}: {nearest(name, known)}")
        kind, takes_cutoff = Measure(name).kind, Measure(name).takes_cutoff
        if at and not (cutoff.isascii() and cutoff.isdigit() and int(cutoff) >= 1):
            raise ValueError(f"metrics: {name}@K must have a K >= 1, got {text!r}")
        if at and not takes_cutoff:
            raise ValueError(f"metrics: {name} takes no cutoff, got {text!r}")
        if of_runs and kind.of_run is MetricCore.of_run:
            raise ValueError(f"metrics: {name} needs whole lists, which a run does not have")
        if of_runs and kind.divides_by_k and not at and not cutoffs:
            raise ValueError(f"metrics: {name} of a run needs a cutoff, such as {name}@10")
        _check_options(kind, options, text)
        whole = [Measure(name, None, options)]
        each = [Measure(name, k, options) for k in cutoffs] if takes_cutoff else []
        measures += [Measure(name, int(cutoff), options)] if at else each or whole
    return list(dict.fromkeys(measures))


@dataclass(frozen=True)
class OwnMeasure:
    """A metric of the user's own, in the form of a `Measure`.

    Args:
        function: called with the labels, the scores and the qids of one list, float64 (items,) each
            but the qids, int64; returns the value of the list. Higher must be better.

    >>> def first(labels, scores, qid):
    ...     return labels[scores.argmax()]
    >>> values = torch.tensor([0.1, 0.9, 0.5]), torch.tensor([2.0, 1.0, 3.0])
    >>> OwnMeasure(first).per_list(*values, torch.tensor([2, 1]), largest=3.0)
    tensor([1., 3.], dtype=torch.float64)
    """

    function: Callable[..., Any]

    @property
    def title(self) -> str:
        """The name of the function."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        lengths: Tensor,
        *,
        largest: float,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the value of each list, float64 (lists,); NaN for an empty list.

        Raises:
            ValueError: weights are given, or the function returns no finite number.
        """
        if weights is not None:
            raise ValueError(f"metric must support item weights, got the function {self.title}")
        parts = (x.detach().double().split(lengths.tolist()) for x in (labels, scores))
        values = torch.full((len(lengths),), torch.nan, dtype=torch.float64)
        for position, (grades, own) in enumerate(zip(*parts, strict=True)):
            if not len(own):
                continue
            qid = torch.full((len(own),), position)
            value = self.function(grades.numpy(), own.numpy(), qid.numpy())
            if isinstance(value, Tensor | np.ndarray) and value.ndim == 0:
                value = value.item()
            if not isinstance(value, Real) or not isfinite(value):
                raise ValueError(
                    f"metric must return a finite number for each list, got {value!r} from "
                    f"{self.title}"
                )
            values[position] = float(value)
        return values


@dataclass(frozen=True)
class MetricMeasure:
    """An object of a metric class, in the form of a `Measure`.

    >>> from ltr.metrics import MRR
    >>> values = torch.tensor([0.1, 0.9, 0.5]), torch.tensor([2.0, 0.0, 3.0])
    >>> MetricMeasure(MRR(top_k=5)).per_list(*values, torch.tensor([2, 1]), largest=3.0)
    tensor([0.5000, 1.0000])
    """

    metric: MetricCore

    @property
    def title(self) -> str:
        """The class and its arguments, such as `MRR(top_k=5)`."""
        return repr(self.metric)

    def per_list(
        self,
        scores: Tensor,
        labels: Tensor,
        lengths: Tensor,
        *,
        largest: float,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the value of each list, (lists,); NaN for an empty list.

        Raises:
            ValueError: weights are given, but the metric takes none; or the metric leaves out a
                list that has items.
        """
        if weights is not None and not self.metric.takes_weights:
            raise ValueError(f"metric must support item weights, got {self.title}")
        lists = {"lengths": lengths, "weights": weights}
        values = self.metric.measure(scores, labels, reduction="none", **lists)
        if (values.isnan() & (lengths > 0)).any():
            raise ValueError(
                f"metric must have a value for each list, but {self.title} leaves some out: give "
                "a number for empty"
            )
        return values


def ranking_measure(
    name: str | Callable[..., Any] | MetricCore,
) -> Measure | OwnMeasure | MetricMeasure:
    """Return the metric with this name, for choosing between rankers: higher must be better.

    Args:
        name: the name; or a function, see `OwnMeasure`; or an object of a metric class.

    Raises:
        ValueError: the metric is unknown, lower is better, or it is no mean over lists of items
            with one label each.

    >>> ranking_measure("MRR@10").title
    'mrr@10'
    """
    if isinstance(name, MetricCore):
        if not name.higher_is_better:
            raise ValueError(f"metric must be higher for better rankings, got {name!r}")
        if name.is_geometric or name.takes_topics:
            raise ValueError(f"metric must be a mean over lists without topics, got {name!r}")
        return MetricMeasure(name)
    if callable(name) and not isinstance(name, type):
        return OwnMeasure(name)
    if not isinstance(name, str):
        call = f": give {name.__name__}(...)" if isinstance(name, type) else ""
        wanted = "the name of a metric, a function or a metric object"
        raise ValueError(f"metric must be {wanted}, got {name!r}{call}")
    try:
        (measure,) = parse_measures([name])
    except ValueError as error:
        raise ValueError(f"metric must be a metric's name: {error}") from None
    if not measure.kind.higher_is_better:
        raise ValueError(f"metric must be higher for better rankings, got {name!r}")
    return measure


def _parts(text: str, known: Sequence[str]) -> tuple[str, tuple[tuple[str, Any], ...], str, str]:
    """Return the name, the options, "@" if there is a cutoff, and the cutoff."""
    front, at, cutoff = text.partition("@")
    name, parenthesis, inside = front.partition("(")
    name = name.lower().strip()
    if parenthesis and not inside.endswith(")"):
        raise ValueError(f"metrics: options must be in parentheses, got {text!r}")
    pairs = [pair.partition("=") for pair in inside.removesuffix(")").split(",") if pair.strip()]
    options = {_OPTIONS.get(key.strip(), key.strip()): _value(value) for key, _, value in pairs}
    if not at and name not in known:  # trec_eval writes ndcg_cut_10, P_5 and P.5
        trec = re.fullmatch(r"(iprec_at_recall)_(\d\.\d+)|(.+?)(?:_cut)?[_.](\d+)", name)
        if trec:
            name, at, cutoff = trec[1] or trec[3], "@", trec[2] or trec[4]
    name = ELSEWHERE.get(name, name)
    if name == "interpolated_precision" and at:
        options["recall"], at, cutoff = _value(cutoff), "", ""
    if at and "top_k" in options:
        raise ValueError(f"metrics: {name} must have only one cutoff, got {text!r}")
    if "top_k" in options:
        at, cutoff = "@", str(options.pop("top_k"))
    return name, tuple(options.items()), at, cutoff


def _value(text: str) -> Any:
    """Return the text as a number if possible, otherwise as a word without quotes."""
    text = text.strip().strip("'\"")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_options(kind: type[MetricCore], options: tuple[tuple[str, Any], ...], text: str) -> None:
    for name, _ in options:
        if name not in parameters(kind):
            raise ValueError(f"metrics: {text!r} has the unknown option {name!r}")
    try:
        kind(**dict(options))
    except ValueError as error:
        raise ValueError(f"metrics: {text!r}: {error}") from None
