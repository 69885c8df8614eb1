"""Find metrics by name, such as `ndcg@10`; the names of ir_measures and trec_eval also work."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any, ClassVar

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

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher value is better."""
        return bool(self.kind.higher_is_better)

    def gain(self, given: Mapping[str, Any]) -> Any:
        """Return the gain among the given options; None if the metric does not take it."""
        takes = "gain" in parameters(self.kind) and "gain" not in dict(self.options)
        return given["gain"] if takes else None

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
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"metrics must be a list of names, got {names!r}")
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

    higher_is_better: ClassVar[bool] = True

    @property
    def title(self) -> str:
        """The name of the function."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def gain(self, given: Mapping[str, Any]) -> None:
        """Return None: the function has its own gain, if it has one."""

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

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher value is better."""
        return bool(self.metric.higher_is_better)

    def gain(self, given: Mapping[str, Any]) -> Any:
        """Return the gain of the object; None if the metric has none."""
        return self.metric.arguments.get("gain")

    def make(self, given: Mapping[str, Any]) -> MetricCore:
        """Return the object, which has its own options."""
        return self.metric

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


Metric = str | Callable[..., Any] | MetricCore
"""A metric as users give it: its name, a function (see `OwnMeasure`), or an object of its class."""

AnyMeasure = Measure | OwnMeasure | MetricMeasure


def as_measures(metrics: "Sequence[Metric | Measure]") -> list[AnyMeasure]:
    """Return the metrics of an evaluation, each of them once.

    Raises:
        ValueError: a metric is unknown, or is no mean over lists of items with one label each; or
            two functions have the same name.

    >>> from ltr.metrics import MRR
    >>> [measure.title for measure in as_measures(["nDCG@10", MRR(top_k=3)])]
    ['ndcg@10', 'MRR(top_k=3)']
    """
    # torchmetrics' metrics have an `__iter__` that raises an error.
    if not isinstance(metrics, Iterable) or isinstance(metrics, str | MetricCore):
        raise ValueError(f"metrics must be a list, got {metrics!r}")
    measures: dict[str, AnyMeasure] = {}
    for metric in metrics:
        measure = metric if isinstance(metric, Measure) else _measure("metrics", metric)
        known = measures.setdefault(measure.title, measure)
        if isinstance(measure, OwnMeasure) and known != measure:
            raise ValueError(f"metrics must have different names, got {measure.title!r} twice")
    return [*measures.values()]


def ranking_measure(metric: Metric) -> AnyMeasure:
    """Return the metric for choosing between rankers: higher must be better.

    Raises:
        ValueError: the metric is unknown, lower is better, or it is no mean over lists of items
            with one label each.

    >>> ranking_measure("MRR@10").title
    'mrr@10'
    """
    try:
        measure = _measure("metric", metric)
    except ValueError as error:
        if not isinstance(metric, str):
            raise
        raise ValueError(f"metric must be a metric's name: {error}") from None
    if not measure.higher_is_better:
        raise ValueError(f"metric must be higher for better rankings, got {metric!r}")
    return measure


def _measure(argument: str, metric: Any) -> AnyMeasure:
    """Return a metric in the form of a `Measure`; errors name the argument."""
    if isinstance(metric, str):
        (measure,) = parse_measures([metric])
        return measure
    if isinstance(metric, MetricCore):
        if metric.is_geometric or metric.takes_topics:
            raise ValueError(f"{argument} must be a mean over lists without topics, got {metric!r}")
        return MetricMeasure(metric)
    if callable(metric) and not isinstance(metric, type):
        return OwnMeasure(metric)
    call = f": give {metric.__name__}(...)" if isinstance(metric, type) else ""
    wanted = "the name of a metric, a function or a metric object"
    raise ValueError(f"{argument} must be {wanted}, got {metric!r}{call}")


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
